//! Answers that come late, to futures that are not polled, or from a server that refuses for a while. One arranged case per test, under
//! a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{Error, LockClient, LostReason, Owner};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::support::{
    LEASE, NEVER, SHORT, SOON, client, hold_counts,
    network::{Network, server},
};

async fn set_up() -> (InMemoryRedis, Network, LockClient) {
    let (server, network) = server();
    let client = client(&server).await;
    (server, network, client)
}

/// Polls a future once.
async fn begin<F: Future + Unpin>(future: &mut F) {
    assert!(
        futures_util::poll!(future).is_pending(),
        "an answer without a delay"
    );
}

/// A hold with a fixed lease is not renewed: nothing but the reconnection verifies it.
#[tokio::test(start_paused = true)]
async fn fixed_lease_that_a_loading_server_has_lost_is_reported() {
    let (server, network, client) = set_up().await;
    let lock = client.reentrant_lock("a").with_lease(NEVER);
    let guard = lock.lock().await.unwrap();
    network.0.is_loading.store(true, Relaxed);
    server.restart();
    sleep(Duration::from_secs(10)).await;
    assert!(!guard.is_lost());
    network.0.is_loading.store(false, Relaxed);
    assert_eq!(timeout(SHORT, guard.lost()).await, Ok(LostReason::Gone));
}

/// The server has restarted without the lock before the task sees its grant.
#[tokio::test(start_paused = true)]
async fn grant_from_before_a_reconnection_is_verified() {
    let (server, network, client) = set_up().await;
    network.0.answers.store(10, Relaxed);
    let lock = client.reentrant_lock("a").with_lease(NEVER);
    let mut acquiring = Box::pin(lock.lock());
    // Two answers: the script is not known at first.
    assert!(timeout(SOON / 3, &mut acquiring).await.is_err());
    sleep(SOON).await;
    assert_eq!(server.holders("a").len(), 1);
    server.restart();
    sleep(SHORT).await;
    let guard = acquiring.await.unwrap();
    assert_eq!(timeout(SHORT, guard.lost()).await, Ok(LostReason::Gone));
}

/// The client pauses for a client that listens, so none of its tasks sends an attempt behind the release.
#[tokio::test(start_paused = true)]
async fn unlock_that_is_not_polled_does_not_stop_the_local_queue() {
    let (server, _network, ours) = set_up().await;
    let theirs = client(&server).await;
    let lock = |client: &LockClient| client.fenced_lock("a").owned_by(&Owner::new());
    let wait = |client: &LockClient| {
        let lock = lock(client);
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    let first = lock(&ours).lock().await.unwrap();
    let other = wait(&theirs);
    sleep(SOON).await;
    first.unlock().await.unwrap();
    let other = other.await.unwrap();
    let second = wait(&ours);
    sleep(SOON).await;
    other.unlock().await.unwrap();
    let second = second.await.unwrap();
    let (other, waiter) = (wait(&theirs), wait(&ours));
    sleep(SOON).await;
    let mut unlocking = Box::pin(second.unlock());
    begin(&mut unlocking).await;
    let other = timeout(SHORT, other).await.expect("it is free").unwrap();
    other.unlock().await.unwrap();
    let waiter = timeout(SHORT, waiter).await;
    drop(waiter.expect("it waits behind the unlock").unwrap());
}

/// The lock is gone, and a renewal is under way that will report it. Meanwhile another branch of the owner sends an attempt. The
/// release of the lost guard must not end the hold of that branch.
#[tokio::test(start_paused = true)]
async fn release_of_a_lost_hold_does_not_end_the_next_one() {
    let (server, network, client) = set_up().await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let guard = lock.lock().await.unwrap();
    // The first renewal loads the script.
    sleep(LEASE / 2).await;
    assert!(server.delete("a"));
    network.0.answers.store(200, Relaxed);
    sleep(LEASE / 6 + SOON).await;
    let mut trying = Box::pin(lock.try_lock());
    begin(&mut trying).await;
    let mut unlocking = Box::pin(guard.unlock());
    begin(&mut unlocking).await;
    let tried = trying.await;
    let unlocked = unlocking.await;
    assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    let next = tried.unwrap().expect("the lock is free");
    assert!(!next.is_lost());
    assert_eq!(server.holders("a").len(), 1, "the hold is gone");
}

/// The server executes a renewal, its answer is lost, and the client is cut off until the validity has ended.
#[tokio::test(start_paused = true)]
async fn lease_of_an_unanswered_renewal_is_given_back() {
    let (server, network, client) = set_up().await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    // The first renewal loads the script.
    sleep(LEASE / 2).await;
    network.0.loses_answer.store(true, Relaxed);
    network.0.connecting.store(100_000, Relaxed);
    assert_eq!(timeout(LEASE, guard.lost()).await, Ok(LostReason::Expired));
    assert_eq!(server.holders("a").len(), 1, "the renewal was not executed");
    network.0.connecting.store(0, Relaxed);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        server.holders("a").len(),
        0,
        "the lock is left to its lease"
    );
}

/// The server executes the release of an inner hold, its answer is lost, and the client is cut off until the validity has ended. The
/// repetition gives the outer hold, which is lost by then, a new lease.
#[tokio::test(start_paused = true)]
async fn lease_that_a_repeated_release_gave_a_lost_hold_is_given_back() {
    let (server, network, client) = set_up().await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    // Loads the script of the release.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    // Any later, and a renewal would travel beside the release.
    sleep(LEASE / 3 - SOON).await;
    network.0.loses_answer.store(true, Relaxed);
    network.0.connecting.store(100_000, Relaxed);
    let unlocking = tokio::spawn(inner.unlock());
    assert_eq!(timeout(LEASE, outer.lost()).await, Ok(LostReason::Expired));
    assert_eq!(hold_counts(&server), [1], "the release was not executed");
    network.0.connecting.store(0, Relaxed);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        server.holders("a").len(),
        0,
        "the lock is left to its lease"
    );
    drop(unlocking);
}

/// The request for the next hold is lost, and its repetition finds the field of the lost hold.
#[tokio::test(start_paused = true)]
async fn repeated_acquisition_after_a_loss_has_a_token_of_its_own() {
    let (server, network, client) = set_up().await;
    let lock = client
        .fenced_lock("a")
        .with_lease(Duration::from_secs(3_600));
    let lost = lock.lock().await.unwrap();
    sleep_until(Instant::from_std(lost.valid_until())).await;
    assert!(lost.is_lost());
    assert!(server.remaining_lease("a").is_some());
    network.0.loses_script.store(true, Relaxed);
    let guard = lock.lock().await.unwrap();
    assert!(guard.token() > lost.token());
}

/// Readers have waited through an outage, one after the other.
#[tokio::test(start_paused = true)]
async fn reader_does_not_wait_for_the_answer_of_another_as_long_as_an_outage() {
    let (server, _network, client) = set_up().await;
    let reader = || {
        let lock = client.read_write_lock("a").read().clone();
        lock.owned_by(&Owner::new())
    };
    // Keeps the state that readers share.
    let _guard = reader().lock().await.unwrap();
    sleep(SOON).await;
    server.stop();
    let wait = || {
        let lock = reader();
        tokio::spawn(async move { lock.lock().await })
    };
    assert!(matches!(
        wait().await.unwrap(),
        Err(Error::Unavailable { .. })
    ));
    let _asker = wait();
    sleep(SHORT).await;
    let began = Instant::now();
    let tried = reader().try_lock().await;
    assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    assert!(
        began.elapsed() <= Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
}
