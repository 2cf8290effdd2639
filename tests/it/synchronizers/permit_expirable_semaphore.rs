use std::{collections::HashSet, sync::mpsc, time::Duration};

use redisson_lock::{Config, Error, LockClient, LostReason};
use testbed::{Server, eventually};
use tokio::time::timeout;

use super::{SOON, a_task_waits, no_client_listens, without_polls};
use crate::witness::busy_at_worst;

const CHANNEL: &str = "redisson_sc:{pool}";
const LEASE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn permits_have_ids_and_ends() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    let pool = client.permit_expirable_semaphore("pool");
    assert_eq!(pool.permits().await, Ok(0));
    assert!(
        pool.with_lease(LEASE)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    assert!(pool.try_set_permits(2).await.unwrap());
    assert!(!pool.try_set_permits(3).await.unwrap());
    let (first, endless) = (
        pool.with_lease(LEASE).acquire().await.unwrap(),
        pool.with_lease(Duration::MAX).acquire().await.unwrap(),
    );
    assert_ne!(first.id(), endless.id());
    let left = first.valid_until().unwrap() - std::time::Instant::now();
    assert!(left < LEASE && left > LEASE / 2, "{left:?}");
    assert_eq!(endless.valid_until(), None);
    let score = async |id: &str| -> String {
        let id: Vec<u8> = (0..16)
            .map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        let mut admin = server.admin().await;
        let mut asks = redis::cmd("ZSCORE");
        asks.arg("{pool}:timeout").arg(id);
        asks.query_async(&mut admin).await.unwrap()
    };
    assert_eq!(score(endless.id()).await, "922337203685477");
    assert_eq!(pool.available_permits().await, Ok(0));
    assert_eq!(pool.acquired_permits().await, Ok(2));
    assert_eq!(pool.permits().await, Ok(2));
    let left = pool.lease_left(first.id()).await.unwrap().unwrap();
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
    assert_eq!(pool.lease_left(endless.id()).await, Ok(Some(Duration::MAX)));
    assert!(pool.update_lease(first.id(), 2 * LEASE).await.unwrap());
    assert!(pool.lease_left(first.id()).await.unwrap().unwrap() > LEASE);
    assert!(pool.update_lease(endless.id(), LEASE).await.unwrap());
    assert!(pool.update_lease(first.id(), Duration::MAX).await.unwrap());
    assert_eq!(pool.lease_left(first.id()).await, Ok(Some(Duration::MAX)));
    let id = first.id().to_owned();
    first.leak();
    assert!(pool.release(&id.to_uppercase()).await.unwrap());
    assert!(!pool.release(&id).await.unwrap());
    assert_eq!(pool.lease_left(&id).await, Ok(None));
    assert!(!pool.update_lease(&id, LEASE).await.unwrap());
    assert!(endless.release().await.unwrap());
    assert_eq!(pool.available_permits().await, Ok(2));
    let dropped = pool.with_lease(LEASE).acquire().await.unwrap();
    drop(dropped);
    eventually("the dropped permit is released", SOON, async || {
        pool.available_permits().await == Ok(2)
    })
    .await;
    pool.add_permits(1).await.unwrap();
    let one = pool.with_lease(LEASE).acquire().await.unwrap();
    pool.set_permits(10).await.unwrap();
    assert_eq!(pool.available_permits().await, Ok(9));
    assert_eq!(pool.permits().await, Ok(10));
    pool.set_permits(10).await.unwrap();
    assert_eq!(pool.permits().await, Ok(10));
    one.release().await.unwrap();
    client
        .permit_expirable_semaphore("new")
        .set_permits(0)
        .await
        .unwrap();
    assert_eq!(server.command::<String>(&["GET", "new"]).await, "0");
}

#[tokio::test]
async fn permits_of_dead_clients_expire() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let pool = client.permit_expirable_semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    let dead = pool.with_lease(SHORT).acquire().await.unwrap();
    let id = dead.id().to_owned();
    dead.leak();
    // The reply tells the waiter when the permit expires.
    let permit = timeout(SOON, pool.with_lease(LEASE).acquire())
        .await
        .unwrap()
        .unwrap();
    assert!(!pool.release(&id).await.unwrap());
    assert_eq!(pool.permits().await, Ok(1));
    permit.release().await.unwrap();
    no_client_listens(&server, CHANNEL).await;
    let late = pool.with_lease(SHORT).acquire().await.unwrap();
    eventually("the permit has expired", SOON, async || {
        pool.lease_left(late.id()).await == Ok(None)
    })
    .await;
    assert!(!late.release().await.unwrap());
    assert_eq!(pool.available_permits().await, Ok(1));
}

#[tokio::test]
async fn waiters_are_woken() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let pool = client.permit_expirable_semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    let permit = pool.with_lease(LEASE).acquire().await.unwrap();
    assert!(busy_at_worst(pool.with_lease(LEASE).try_acquire_for(SHORT).await).is_none());
    let waits = tokio::spawn({
        let pool = pool.clone();
        async move { pool.with_lease(LEASE).acquire().await }
    });
    a_task_waits(&server, CHANNEL).await;
    drop(permit);
    let permit = timeout(SOON, waits).await.unwrap().unwrap().unwrap();
    let waits = tokio::spawn({
        let pool = pool.clone();
        async move { pool.with_lease(LEASE).acquire().await }
    });
    a_task_waits(&server, CHANNEL).await;
    pool.set_permits(2).await.unwrap();
    let other = timeout(SOON, waits).await.unwrap().unwrap().unwrap();
    drop((permit, other));
}

/// The client's only thread is blocked.
#[tokio::test]
async fn a_frozen_client_loses_its_renewed_permit_and_knows() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let pool = client.permit_expirable_semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    let ((says, said), (goes_on, freezes)) = (mpsc::channel(), mpsc::channel());
    let url = server.url();
    let frozen = std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async {
            let client = without_polls(&url).await;
            let pool = client.permit_expirable_semaphore("pool").renewed();
            let permit = pool
                .with_lease(Duration::from_secs(2))
                .acquire()
                .await
                .unwrap();
            let token = permit.cancellation_token();
            let renewed = permit.valid_until();
            eventually("the lease is renewed", SOON, async || {
                permit.valid_until() > renewed
            })
            .await;
            says.send(()).unwrap();
            let () = freezes.recv().unwrap();
            assert!(
                permit.is_lost(),
                "the permit knows of its loss without a poll"
            );
            assert_eq!(permit.lost().await, LostReason::Expired);
            timeout(SOON, token.cancelled()).await.unwrap();
            assert!(!permit.release().await.unwrap());
        });
    });
    said.recv().unwrap();
    let taken = timeout(SOON, pool.with_lease(LEASE).acquire())
        .await
        .unwrap()
        .unwrap();
    goes_on.send(()).unwrap();
    frozen.join().unwrap();
    assert_eq!(pool.acquired_permits().await, Ok(1));
    drop(taken);
}

#[tokio::test]
async fn lists_are_acquired_and_released_all_or_none() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let pool = client.permit_expirable_semaphore("pool");
    pool.try_set_permits(4).await.unwrap();
    let three = pool.with_lease(LEASE).acquire_many(3).await.unwrap();
    let ids: HashSet<_> = three.iter().map(|permit| permit.id().to_owned()).collect();
    assert_eq!(ids.len(), 3);
    assert!(
        pool.with_lease(LEASE)
            .try_acquire_many(2)
            .await
            .unwrap()
            .is_none()
    );
    let waited = pool.with_lease(LEASE).try_acquire_many_for(2, SHORT).await;
    assert!(busy_at_worst(waited).is_none());
    assert_eq!(pool.available_permits().await, Ok(1));
    assert!(
        pool.with_lease(LEASE)
            .acquire_many(0)
            .await
            .unwrap()
            .is_empty()
    );
    let none: [&str; 0] = [];
    assert!(pool.release_many(none).await.unwrap());
    let unknown = "0".repeat(32);
    let with_unknown = ids.iter().chain([&unknown]);
    assert!(!pool.release_many(with_unknown).await.unwrap());
    assert_eq!(pool.acquired_permits().await, Ok(3));
    // A repeated id counts once.
    let twice = ids.iter().chain(&ids);
    assert!(pool.release_many(twice).await.unwrap());
    assert_eq!(pool.available_permits().await, Ok(4));
    for permit in three {
        assert!(!permit.release().await.unwrap());
    }
    drop(
        pool.with_lease(LEASE)
            .try_acquire_many(4)
            .await
            .unwrap()
            .unwrap(),
    );
    eventually("the dropped permits are released", SOON, async || {
        pool.available_permits().await == Ok(4)
    })
    .await;
}

/// Redisson announces the number of added permits, which may be less than the number that is left.
#[tokio::test]
async fn a_waiter_for_several_permits_asks_when_a_message_announces_fewer() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let pool = client.permit_expirable_semaphore("pool");
    pool.try_set_permits(2).await.unwrap();
    let waits = tokio::spawn({
        let pool = pool.clone();
        async move { pool.with_lease(LEASE).acquire_many(3).await }
    });
    a_task_waits(&server, CHANNEL).await;
    super::parked().await;
    server.command::<()>(&["SET", "pool", "3"]).await;
    server.command::<i64>(&["PUBLISH", CHANNEL, "1"]).await;
    let taken = timeout(SOON, waits).await.unwrap().unwrap().unwrap();
    assert_eq!(taken.len(), 3);
}

#[tokio::test]
async fn invalid_ids_leases_and_keys_are_errors() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    let pool = client.permit_expirable_semaphore("pool");
    let is_config = |error: Error| matches!(error, Error::Config { .. });
    for id in ["", "1", "x", &"+".repeat(32), &"0".repeat(33)] {
        assert!(is_config(pool.release(id).await.unwrap_err()), "{id}");
        assert!(is_config(pool.lease_left(id).await.unwrap_err()), "{id}");
    }
    assert!(is_config(
        pool.with_lease(Duration::ZERO).acquire().await.unwrap_err()
    ));
    let many = pool.with_lease(LEASE).try_acquire_many(1_001).await;
    assert!(is_config(many.unwrap_err()));
    let ids = (0..1_001).map(|id| format!("{id:032x}"));
    assert!(is_config(pool.release_many(ids).await.unwrap_err()));
    let id = "0".repeat(32);
    assert!(is_config(
        pool.update_lease(&id, Duration::ZERO).await.unwrap_err()
    ));
    pool.try_set_permits(1).await.unwrap();
    let _: i64 = server.command(&["HSET", "{pool}:timeout", "a", "1"]).await;
    let wrong = [
        pool.with_lease(LEASE).acquire().await.map(drop),
        pool.release(&id).await.map(drop),
        pool.permits().await.map(drop),
        pool.lease_left(&id).await.map(drop),
    ];
    for wrong in wrong {
        assert!(matches!(wrong, Err(Error::WrongKind { .. })), "{wrong:?}");
    }
    let config = Config::default().with_name_prefix("app:");
    let builder = LockClient::builder().url(server.url()).config(config);
    let client = builder.build().await.unwrap();
    let pool = client.permit_expirable_semaphore("a");
    assert_eq!((pool.name(), pool.key()), ("a", "app:a"));
}
