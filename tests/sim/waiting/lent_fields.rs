//! An exclusive hold that was handed off has its field from the task that had it before, the *lender*. What the holder's future does
//! must not stop the lender, nor the other way round. One arranged case per test, under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{Guard, Lock, LockClient, Reentrant, Released, test_util::InMemoryRedis};
use tokio::time::{sleep, timeout};

use crate::support::{LEASE, SOON, client, network::server, of_each, started};

struct HandedOff {
    server: InMemoryRedis,
    _client: LockClient,
    /// The lock of the owner whose field the hold has.
    lender: Lock<Reentrant>,
    holder: Lock<Reentrant>,
    guard: Guard<Reentrant>,
}

/// A hold that the task of `lender` has handed off. Answers take 2 ms from then on.
async fn handed_off() -> HandedOff {
    let (server, network) = server();
    let client = client(&server).await;
    let [lender, holder] = of_each(&client);
    // Loads the scripts into the server.
    lender.lock().await.unwrap().unlock().await.unwrap();
    let first = lender.lock().await.unwrap();
    let waiting = holder.clone();
    let waiting = tokio::spawn(async move { waiting.lock().await });
    sleep(Duration::from_millis(1)).await;
    let before = network.scripts();
    assert_eq!(first.unlock().await, Ok(Released::Fully));
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(network.scripts(), before, "the lock was not handed off");
    network.0.delay.store(1, Relaxed);
    HandedOff {
        server,
        _client: client,
        lender,
        holder,
        guard,
    }
}

/// Asserts that the lender finds the lock free, and acquires it.
async fn acquires(lender: &Lock<Reentrant>) {
    let again = timeout(2 * LEASE, lender.try_lock()).await;
    assert!(matches!(again, Ok(Ok(Some(_)))), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn unlock_that_is_not_polled_does_not_stop_the_lender() {
    let HandedOff { lender, guard, .. } = handed_off().await;
    let mut stuck = Box::pin(guard.unlock());
    started(&mut stuck).await;
    // The answer takes 2 ms.
    sleep(SOON).await;
    acquires(&lender).await;
}

/// The lock is deleted while the extension is under way, and a renewal shows the loss.
#[tokio::test(start_paused = true)]
async fn extension_that_is_not_polled_does_not_stop_the_lender() {
    let HandedOff {
        server,
        lender,
        guard,
        ..
    } = handed_off().await;
    let mut stuck = Box::pin(guard.extend(2 * LEASE));
    started(&mut stuck).await;
    sleep(LEASE).await;
    assert!(server.delete("a"));
    sleep(2 * LEASE).await;
    acquires(&lender).await;
}

/// The lender's attempt begins in an outage, and is not polled after it.
#[tokio::test(start_paused = true)]
async fn attempt_of_the_lender_that_is_not_polled_does_not_stop_the_holder() {
    let HandedOff {
        server,
        lender,
        holder,
        guard,
        ..
    } = handed_off().await;
    server.stop();
    sleep(Duration::from_millis(10)).await;
    let mut trying = Box::pin(lender.try_lock());
    let tried = futures_util::poll!(&mut trying);
    server.start();
    sleep(3 * LEASE).await;
    assert!(!guard.is_lost());
    assert_eq!(holder.hold_count().await, Ok(1));
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert!(tried.is_ready() || matches!(trying.await, Ok(None)));
}
