//! Fixed leases: nested holds with leases of their own, and the last hundredth of a lease. Under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use futures_util::FutureExt;
use redisson_lock::{Error, Lock, LockClient, Owner, Reentrant, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::time::Instant;

use crate::support::{lossy_network::Network, polling_client};

/// A lock of `owner`, with a fixed lease.
pub fn leased(client: &LockClient, owner: &Owner, lease: Duration) -> Lock<Reentrant> {
    client.reentrant_lock("a").owned_by(owner).with_lease(lease)
}

#[tokio::test(start_paused = true)]
async fn an_outer_lease_begins_anew_on_both_sides_when_an_inner_hold_ends() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let lock = leased(&client, &Owner::new(), Duration::from_secs(3));
    let outer = lock.lock().await.unwrap();
    let before = outer.valid_until();
    let inner = lock.lock().await.unwrap();
    server.advance(Duration::from_millis(2_700)).await;
    inner.unlock().await.unwrap();
    let ours = outer.valid_until() - Instant::now().into_std();
    let on_server = server.remaining_lease("a").unwrap();
    assert!(
        ours < on_server && on_server - ours <= Duration::from_millis(33),
        "{ours:?}, {on_server:?}"
    );
    assert!(outer.valid_until() > before);
    server.advance(Duration::from_millis(2_500)).await;
    assert_eq!(outer.unlock().await.unwrap(), Released::Fully);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_long_inner_lease_does_not_shorten_the_outer_validity() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let owner = Owner::new();
    let outer = leased(&client, &owner, Duration::from_secs(3))
        .lock()
        .await
        .unwrap();
    let before = outer.valid_until();
    let inner = leased(&client, &owner, Duration::from_secs(20))
        .lock()
        .await
        .unwrap();
    assert_eq!(outer.valid_until(), before);
    assert!(inner.valid_until() > before + Duration::from_secs(15));
    server.advance(Duration::from_secs(10)).await;
    assert!(
        !outer.is_lost(),
        "lost although the inner hold keeps the lock"
    );
    inner.unlock().await.unwrap();
    assert!(outer.valid_until() > before);
    server.advance(Duration::from_secs(3)).await;
    assert!(outer.is_lost() && server.holders("a").is_empty());
}

/// The answer to a nested acquisition is lost, and its future is dropped. Its longer lease ends with it.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_dropped_nested_acquisition_leaves_the_outer_lease() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network.clone());
    let client = polling_client(&server).await;
    let owner = Owner::new();
    let outer = leased(&client, &owner, Duration::from_secs(2))
        .lock()
        .await
        .unwrap();
    network.lost.store(1, Relaxed);
    let nested = leased(&client, &owner, Duration::from_secs(20));
    assert!(nested.lock().now_or_never().is_none());
    server.advance(Duration::from_secs(1)).await;
    assert_eq!(server.holders("a")[0].1, 1);
    let on_server = server.remaining_lease("a").unwrap();
    let ours = outer.valid_until() - Instant::now().into_std();
    assert!(
        ours < on_server && on_server < Duration::from_secs(2),
        "{ours:?}, {on_server:?}"
    );
    server.advance(Duration::from_secs(2)).await;
    assert!(outer.is_lost() && server.holders("a").is_empty());
}

/// The client ends a validity 1 % before the server ends the lease. Of a day's lease, that is a quarter of an hour.
#[tokio::test(start_paused = true)]
async fn a_lock_unlocked_at_the_very_end_of_its_lease_is_free() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    for unlocks in [true, false] {
        let guard = leased(&client, &Owner::new(), DAY).lock().await.unwrap();
        server.advance(DAY.mul_f64(0.995)).await;
        assert!(guard.is_lost() && server.holders("a").len() == 1);
        match unlocks {
            true => assert!(matches!(guard.unlock().await, Err(Error::Lost { .. }))),
            false => drop(guard),
        }
        server.advance(Duration::from_millis(10)).await;
        assert_eq!(server.holders("a"), []);
    }
}

/// A write hold has ended by its client's clock, and the server keeps it for the last hundredth of its lease. Its owner reads then:
/// the write hold goes, so that other owners may read too.
#[tokio::test(start_paused = true)]
async fn a_read_hold_replaces_an_ended_write_hold_of_its_owner() {
    let server = InMemoryRedis::new();
    let (client, other) = (polling_client(&server).await, polling_client(&server).await);
    let (lock, owner) = (client.read_write_lock("a"), Owner::new());
    let write = lock
        .write()
        .owned_by(&owner)
        .with_lease(Duration::from_secs(3));
    let written = write.lock().await.unwrap();
    server.advance(Duration::from_millis(2_980)).await;
    assert!(written.is_lost());
    let _read = lock.read().owned_by(&owner).lock().await.unwrap();
    let beside = other.read_write_lock("a").read().try_lock().await;
    assert!(beside.unwrap().is_some());
}

/// The outer lease ends while the acquisition of an inner hold is on its way. The server counts the inner hold together with the lost
/// one, so the client gives it back and asks anew.
#[tokio::test(start_paused = true)]
async fn an_inner_hold_that_arrives_after_the_outer_lease_is_counted_alone() {
    let (server, network) = (
        InMemoryRedis::new(),
        Network::slow(Duration::from_millis(5)),
    );
    server.set_faults(network);
    let client = polling_client(&server).await;
    let owner = Owner::new();
    let outer = leased(&client, &owner, Duration::from_millis(100));
    // Loads the scripts into the server.
    outer.lock().await.unwrap().unlock().await.unwrap();
    let outer = outer.lock().await.unwrap();
    let left = outer.valid_until() - Instant::now().into_std();
    tokio::time::sleep(left - Duration::from_millis(3)).await;
    assert!(!outer.is_lost());
    let lock = leased(&client, &owner, Duration::from_secs(3));
    let inner = lock.lock().await.unwrap();
    assert!(outer.is_lost() && !inner.is_lost());
    assert_eq!(server.holders("a").len(), 1);
    assert_eq!(server.holders("a")[0].1, 1, "the lost hold counts");
    assert_eq!(inner.unlock().await, Ok(Released::Fully));
}
