//! Leases that end early: the entry of a waiter, and the next hold of the owner. Under a paused clock.

use std::sync::atomic::Ordering::Relaxed;

use redisson_lock::{Kind, Lock, LockClient, LostReason, Owner, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LEASE, NEVER, SHORT, SOON, client, network::server, writer};

/// A hold with the watchdog's lease ends inside one with a short lease. The waiter knows the long lease, but enters when the short
/// one ends.
async fn enters_when_the_outer_lease_is_over<K: Kind>(lock: impl Fn(&LockClient) -> Lock<K>) {
    let server = InMemoryRedis::new();
    let (holding, waiting) = (client(&server).await, client(&server).await);
    let owner = Owner::new();
    let held = lock(&holding).owned_by(&owner);
    let outer = held.with_lease(SHORT).lock().await.unwrap();
    let inner = held.lock().await.unwrap();
    let waiter = lock(&waiting);
    let entering = tokio::spawn(async move { waiter.lock().await.map(|_guard| Instant::now()) });
    server.advance(SHORT / 2).await;
    inner.unlock().await.unwrap();
    let end = Instant::now() + server.remaining_lease("a").expect("the outer hold is left");
    let entered = entering.await.unwrap().unwrap();
    assert!(entered < end + SOON, "{:?} too late", entered - end);
    drop(outer);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_enters_when_the_lease_that_a_release_shortened_is_over() {
    enters_when_the_outer_lease_is_over(|client| client.reentrant_lock("a")).await;
    enters_when_the_outer_lease_is_over(|client| client.fenced_lock("a")).await;
    enters_when_the_outer_lease_is_over(|client| client.fair_lock("a")).await;
    enters_when_the_outer_lease_is_over(writer).await;
}

/// The client counts a hold as ended before the server does, so it still sends the release. That release must not end a later
/// hold of the same owner.
async fn spares_the_next_hold<K: Kind>(lock: impl Fn(&LockClient) -> Lock<K>) {
    let server = InMemoryRedis::new();
    let lock = lock(&client(&server).await).owned_by(&Owner::new());
    let over = lock.with_lease(SHORT).lock().await.unwrap();
    over.lost().await;
    let held = lock.lock().await.unwrap();
    drop(over);
    assert_eq!(lock.hold_count().await, Ok(1), "{}", lock.name());
    assert_eq!(held.unlock().await, Ok(Released::Fully));
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_hold_that_is_over_leaves_the_next_one_alone() {
    spares_the_next_hold(|client| client.reentrant_lock("reentrant")).await;
    spares_the_next_hold(|client| client.non_reentrant_lock("non-reentrant")).await;
    spares_the_next_hold(|client| client.spin_lock("spin")).await;
    spares_the_next_hold(|client| client.fenced_lock("fenced")).await;
    spares_the_next_hold(|client| client.simple_lock("simple")).await;
    spares_the_next_hold(|client| client.fair_lock("fair")).await;
    spares_the_next_hold(|client| client.non_reentrant_fair_lock("fair once")).await;
    spares_the_next_hold(|client| client.read_write_lock("read").read().clone()).await;
    spares_the_next_hold(|client| client.read_write_lock("write").write().clone()).await;
}

/// The holder relies on the short lease from the send of the release. The server has the long one until it executes the release.
#[tokio::test(start_paused = true)]
async fn a_long_lease_is_given_back_although_the_short_one_is_over() {
    let (server, network) = server();
    let lock = client(&server).await.reentrant_lock("a");
    let lock = lock.owned_by(&Owner::new());
    let outer = lock.with_lease(2 * SHORT).lock().await.unwrap();
    let inner = lock.with_lease(NEVER).lock().await.unwrap();
    network.0.is_loading.store(true, Relaxed);
    let unlocking = tokio::spawn(inner.unlock());
    assert_eq!(timeout(LEASE, outer.lost()).await, Ok(LostReason::Expired));
    // The release is refused again after the end of the short lease.
    sleep(LEASE).await;
    assert!(unlocking.await.unwrap().is_err());
    assert_eq!(server.holders("a").len(), 1);
    network.0.is_loading.store(false, Relaxed);
    sleep(3 * SHORT).await;
    assert_eq!(
        server.holders("a"),
        [],
        "the lock is left to the long lease"
    );
}
