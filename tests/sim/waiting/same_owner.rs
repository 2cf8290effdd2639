//! Tasks of one owner that wait for the same lock. One arranged case per test, under a paused clock.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use redisson_lock::Owner;
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    holds::nested_leases::leased,
    support::{NEVER, SHORT, client, lossy_network::Network, network::server, polling_client},
};

/// Two branches of one task wait for the same lock. When one acquires it, the other enters by re-entry.
#[tokio::test(start_paused = true)]
async fn waiters_of_one_owner_enter_together() {
    let server = InMemoryRedis::new();
    let (holding, waiting) = (polling_client(&server).await, polling_client(&server).await);
    let (held, owner) = (holding.fair_lock("b").lock().await.unwrap(), Owner::new());
    let guard = leased(&holding, &Owner::new(), Duration::from_secs(60))
        .lock()
        .await
        .unwrap();
    let lock = waiting.reentrant_lock("a").owned_by(&owner);
    let fair = waiting.fair_lock("b").owned_by(&owner);
    let both = tokio::spawn(async move {
        let one = tokio::join!(lock.lock(), lock.lock());
        let other = tokio::join!(fair.lock(), fair.lock());
        (
            one.0.unwrap(),
            one.1.unwrap(),
            other.0.unwrap(),
            other.1.unwrap(),
        )
    });
    sleep(Duration::from_secs(1)).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    held.unlock().await.unwrap();
    let _held = both.await.unwrap();
    let took = released.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?}");
}

/// One branch waits. Another branch of the same owner acquires the lock without a wait.
#[tokio::test(start_paused = true)]
async fn try_lock_lets_waiters_of_its_owner_enter() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network);
    let (holding, waiting) = (polling_client(&server).await, polling_client(&server).await);
    let guard = holding.reentrant_lock("a").lock().await.unwrap();
    let lock = waiting.reentrant_lock("a").owned_by(&Owner::new());
    let (first, second) = tokio::join!(
        async {
            let guard = lock.lock().await.unwrap();
            (guard, Instant::now())
        },
        async {
            sleep(Duration::from_secs(1)).await;
            // A deletion publishes no message.
            server.delete("a");
            let guard = lock.try_lock().await.unwrap().expect("the lock is free");
            (guard, Instant::now())
        }
    );
    assert!(first.1 - second.1 < Duration::from_millis(100));
    drop(guard);
}

/// The lock of an owner is deleted and taken by another client. A second branch of the owner asks at once and is refused. It takes its
/// place in the local queue, between a task that has waited for longer and one that comes later.
#[tokio::test(start_paused = true)]
async fn branch_that_was_refused_waits_in_the_local_queue() {
    let (server, _network) = server();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let (owner, order) = (Owner::new(), Arc::new(Mutex::new(Vec::new())));
    let _lost = leased(&ours, &owner, NEVER).lock().await.unwrap();
    let enter = |name: &'static str, owner: &Owner| {
        let (lock, order) = (leased(&ours, owner, NEVER), order.clone());
        tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push(name);
            guard.unlock().await.unwrap();
        })
    };
    let first = enter("first", &Owner::new());
    sleep(SHORT).await;
    assert!(server.delete("a"));
    let taken = theirs.reentrant_lock("a").try_lock().await.unwrap();
    let taken = taken.expect("the lock is free");
    let branch = enter("branch", &owner);
    sleep(SHORT).await;
    let last = enter("last", &Owner::new());
    sleep(SHORT).await;
    taken.unlock().await.unwrap();
    let all = async { tokio::try_join!(first, branch, last) };
    timeout(SHORT, all).await.expect("it is free").unwrap();
    assert_eq!(*order.lock().unwrap(), ["first", "branch", "last"]);
}
