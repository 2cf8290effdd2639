//! Shutdowns of clients: released, awaited and reported holds. One arranged case per test, under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{Error, Owner, Released, ShutdownReport};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    holds::nested_leases::leased,
    support::{SHORT, SOON, lossy_network::slow_server, network, polling_client},
};

/// The names and counts of the holds that a shutdown reports.
fn left(report: &ShutdownReport) -> Vec<(&str, u32)> {
    let left = report.unreleased.iter();
    left.map(|left| (&*left.name, left.holds)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_the_holds_that_it_leaves() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    client.reentrant_lock("a").lock().await.unwrap().leak();
    server.stop();
    let report = client.shutdown().await;
    assert_eq!(left(&report), [("a", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_a_release_that_was_refused() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    server.fail_next(usize::MAX);
    assert!(matches!(guard.unlock().await, Err(Error::Redis { .. })));
    let report = client.shutdown().await;
    assert_eq!(left(&report), [("a", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_report_a_hold_released_after_a_refused_unlock() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    server.fail_next(usize::MAX);
    assert!(matches!(inner.unlock().await, Err(Error::Redis { .. })));
    server.fail_next(0);
    assert_eq!(outer.unlock().await.unwrap(), Released::Fully);
    assert!(client.shutdown().await.unreleased.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_releases_of_dropped_guards() {
    let (server, _) = slow_server(Duration::from_millis(5));
    let client = polling_client(&server).await;
    drop(client.reentrant_lock("a").lock().await.unwrap());
    assert!(client.shutdown().await.unreleased.is_empty());
    assert!(server.holders("a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_releases_leaves_nothing() {
    let server = InMemoryRedis::new();
    let (client, other) = (polling_client(&server).await, polling_client(&server).await);
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    client.fair_lock("b").lock().await.unwrap().leak();
    client
        .read_write_lock("c")
        .write()
        .lock()
        .await
        .unwrap()
        .leak();
    let lock = other.reentrant_lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await.map(|guard| guard.valid_until()) });
    sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    let report = client.shutdown_and_release().await;
    assert!(report.unreleased.is_empty(), "{report:?}");
    assert!(guard.is_lost());
    waiter.await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(server.holders("b").is_empty() && server.holders("c").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_report_an_expired_hold() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let guard = leased(&client, &Owner::new(), Duration::from_secs(5))
        .lock()
        .await
        .unwrap();
    server.fail_next(usize::MAX);
    assert!(matches!(guard.unlock().await, Err(Error::Redis { .. })));
    server.advance(Duration::from_secs(6)).await;
    assert!(client.shutdown().await.unreleased.is_empty());
}

/// The owner's next acquisition follows the release.
#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_a_hold_once_that_was_acquired_again() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let guard = lock.lock().await.unwrap();
    server.fail_next(usize::MAX);
    assert!(matches!(guard.unlock().await, Err(Error::Redis { .. })));
    server.fail_next(0);
    lock.lock().await.unwrap().leak();
    assert_eq!(server.holders("a")[0].1, 1);
    assert_eq!(left(&client.shutdown().await), [("a", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_report_the_inner_hold_of_a_lock_that_it_releases() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    lock.lock().await.unwrap().leak();
    let inner = lock.lock().await.unwrap();
    server.fail_next(usize::MAX);
    assert!(matches!(inner.unlock().await, Err(Error::Redis { .. })));
    server.fail_next(0);
    let report = client.shutdown_and_release().await;
    assert!(server.holders("a").is_empty());
    assert!(report.unreleased.is_empty(), "{report:?}");
}

/// The sides of a read-write lock have a field each.
#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_both_sides_whose_releases_were_refused() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let (lock, owner) = (client.read_write_lock("a"), Owner::new());
    let writing = lock.write().owned_by(&owner).lock().await.unwrap();
    let reading = lock.read().owned_by(&owner).lock().await.unwrap();
    server.fail_next(usize::MAX);
    assert!(matches!(reading.unlock().await, Err(Error::Redis { .. })));
    assert!(matches!(writing.unlock().await, Err(Error::Redis { .. })));
    assert_eq!(left(&client.shutdown().await), [("a", 1), ("a", 1)]);
}

/// A read grant to an owner without a write hold removes the write holds that the server still counts.
#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_report_a_write_hold_that_a_read_has_replaced() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let (lock, owner) = (client.read_write_lock("a"), Owner::new());
    let writing = lock.write().owned_by(&owner).lock().await.unwrap();
    server.fail_next(usize::MAX);
    assert!(matches!(writing.unlock().await, Err(Error::Redis { .. })));
    server.fail_next(0);
    let reading = lock.read().owned_by(&owner).lock().await.unwrap();
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    assert!(server.holders("a").is_empty());
    assert_eq!(left(&client.shutdown().await), []);
}

/// The report has room for 1,000 holds.
#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_a_hold_beside_many_that_have_ended() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    client.reentrant_lock("a").lock().await.unwrap().leak();
    let mut guards = Vec::new();
    for number in 0..1_000 {
        let lock = client.reentrant_lock(format!("short-{number}"));
        guards.push(lock.with_lease(SHORT).lock().await.unwrap());
    }
    server.fail_next(usize::MAX);
    drop(guards);
    server.advance(2 * SHORT).await;
    server.fail_next(0);
    assert_eq!(left(&client.shutdown().await), [("a", 1)]);
}

/// The server refuses to release what the clock has ended. An abandoned read has set a longer lease there.
#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_a_hold_that_ends_while_it_waits() {
    let (server, network) = network::server();
    let client = polling_client(&server).await;
    let (lock, owner) = (client.read_write_lock("a"), Owner::new());
    let writing = lock.write().owned_by(&owner).with_lease(SHORT);
    let guard = writing.lock().await.unwrap();
    let other = client.reentrant_lock("b").lock().await.unwrap();
    network.0.delay.store(10, Relaxed);
    let reading = lock.read().owned_by(&owner);
    let abandoned = timeout(Duration::from_millis(1), reading.lock()).await;
    assert!(abandoned.is_err());
    sleep_until(Instant::from_std(guard.valid_until()) - SOON).await;
    network.0.is_loading.store(true, Relaxed);
    drop(other);
    let report = client.shutdown().await;
    assert_eq!(server.holders("a").len(), 1, "the server has no hold");
    let mut left = left(&report);
    left.sort_unstable();
    assert_eq!(left, [("a", 1), ("b", 1)]);
}

/// An abandoned read sets a longer lease on the server than the write hold has. The validity of the write hold ends while the client
/// closes its connections, when nothing gives the hold back any more.
#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_a_hold_that_ends_during_it() {
    let (server, _) = slow_server(Duration::from_millis(5));
    let client = polling_client(&server).await;
    let (lock, owner) = (client.read_write_lock("a"), Owner::new());
    let writing = lock
        .write()
        .owned_by(&owner)
        .with_lease(Duration::from_secs(1));
    let guard = writing.lock().await.unwrap();
    let reading = lock.read().owned_by(&owner);
    let abandoned = timeout(Duration::from_millis(1), reading.lock()).await;
    assert!(abandoned.is_err());
    let valid_until = Instant::from_std(guard.valid_until());
    sleep_until(valid_until - Duration::from_millis(2)).await;
    let report = client.shutdown().await;
    assert!(Instant::now() > valid_until, "the hold is valid");
    assert_eq!(server.holders("a").len(), 1, "the server has no hold");
    assert_eq!(left(&report), [("a", 1)]);
}
