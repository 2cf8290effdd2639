//! A master refuses writes while too few replicas follow it (`min-replicas-to-write`). The refusal
//! is transient (P-T2).

use std::time::Duration;

use redisson_lock::Released;
use testbed::{Server, eventually, unique_name};
use tokio::time::timeout;

use crate::hazards::stage::{GENEROUS, connect, watched, why};

async fn demand(server: &Server, replicas: &str) {
    let demand = ["CONFIG", "SET", "min-replicas-to-write", replicas];
    server.command::<()>(&demand).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t2_operations_refused_by_a_master_without_replicas_are_tried_again() {
    let server = Server::start().await;
    let mut config = watched(Duration::from_secs(30));
    config.command_wait = Duration::from_secs(1);
    let client = connect(&server.url(), config).await;
    let held = client.reentrant_lock(unique_name("held"));
    let wanted = client.reentrant_lock(unique_name("wanted"));
    let guard = held.lock().await.unwrap();
    demand(&server, "1").await;

    let refused = wanted.try_lock().await.map(drop).unwrap_err();
    assert!(why(&refused).contains("NOREPLICAS"), "{refused:?}");
    server.reset_calls().await;
    let waiting = tokio::spawn(async move { wanted.lock().await?.unlock().await });
    let releasing = tokio::spawn(guard.unlock());
    eventually(
        "both operations are refused at least once",
        GENEROUS,
        async || server.calls().await.get("evalsha") >= Some(&4),
    )
    .await;
    assert!(!waiting.is_finished());

    demand(&server, "0").await;
    let entered = timeout(GENEROUS, waiting)
        .await
        .expect("the waiter acquires the lock");
    assert_eq!(entered.unwrap(), Ok(Released::Fully));
    let _ = releasing.await.unwrap();
    eventually("the released lock is free", GENEROUS, async || {
        held.is_locked().await == Ok(false)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t2_a_hold_outlives_the_time_without_replicas() {
    let server = Server::start().await;
    let lease = Duration::from_secs(4);
    let client = connect(&server.url(), watched(lease)).await;
    let name = unique_name("held");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    demand(&server, "1").await;
    server.reset_calls().await;
    eventually("renewals were refused", GENEROUS, async || {
        server.calls().await.get("evalsha") >= Some(&2)
    })
    .await;
    demand(&server, "0").await;
    let until = guard.valid_until();
    eventually("the lease is renewed", GENEROUS, async || {
        guard.valid_until() > until
    })
    .await;
    assert!(!guard.is_lost());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t2_an_extension_is_tried_again_within_its_time() {
    let server = Server::start().await;
    let client = connect(&server.url(), watched(Duration::from_secs(30))).await;
    let guard = client.reentrant_lock(unique_name("held"));
    let guard = guard.lock().await.unwrap();
    demand(&server, "1").await;
    server.reset_calls().await;
    let longer = Duration::from_secs(60);
    let (extended, ()) = tokio::join!(guard.extend(longer), async {
        eventually("it is refused at least once", GENEROUS, async || {
            server.calls().await.get("evalsha") >= Some(&2)
        })
        .await;
        demand(&server, "0").await;
    });
    assert_eq!(extended, Ok(()));
}
