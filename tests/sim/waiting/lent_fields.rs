//! An exclusive hold that was handed off has its field from the task that had it before, the *lender*. What the holder's future does
//! must not stop the lender, nor the other way round. One arranged case per test, under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use futures_util::{FutureExt, future::BoxFuture, poll};
use redisson_lock::{Fair, Guard, Lock, LockClient, Reentrant, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};

use crate::support::{LEASE, SOON, client, network::server, of_each, started};

struct HandedOff {
    server: InMemoryRedis,
    client: LockClient,
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
        client,
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
    let tried = poll!(&mut trying);
    server.start();
    sleep(3 * LEASE).await;
    assert!(!guard.is_lost());
    assert_eq!(holder.hold_count().await, Ok(1));
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert!(tried.is_ready() || matches!(trying.await, Ok(None)));
}

/// The holder's acquisition of an inner hold is not polled, and the lock is deleted.
#[tokio::test(start_paused = true)]
async fn nested_attempt_that_is_not_polled_does_not_stop_the_lender() {
    let HandedOff {
        server,
        lender,
        holder,
        guard,
        ..
    } = handed_off().await;
    let mut stuck = Box::pin(holder.lock());
    started(&mut stuck).await;
    sleep(SOON).await;
    assert!(server.delete("a"));
    sleep(2 * LEASE).await;
    assert!(guard.is_lost());
    acquires(&lender).await;
}

/// An attempt of the holder, by a fair lock of the same name, waits behind the release of its hold, and finds the lock with a third
/// owner. Returns the third owner's guard, and the attempt.
async fn beside_a_third_owner<T: Send + 'static>(
    set_up: HandedOff,
    attempt: impl FnOnce(Lock<Fair>) -> BoxFuture<'static, T>,
) -> (Guard<Reentrant>, BoxFuture<'static, T>) {
    let HandedOff { client, guard, .. } = set_up;
    let [third] = of_each(&client);
    let waiting = tokio::spawn(async move { third.lock().await });
    // The hand-off window ends.
    sleep(SOON).await;
    let borrower = guard.owner();
    let mut extending = Box::pin(guard.extend(LEASE));
    started(&mut extending).await;
    drop(extending);
    let unlocking = tokio::spawn(guard.unlock());
    yield_now().await;
    let mut attempt = attempt(client.fair_lock("a").owned_by(&borrower));
    assert!(poll!(&mut attempt).is_pending());
    assert_eq!(unlocking.await.unwrap(), Ok(Released::Fully));
    (waiting.await.unwrap().unwrap(), attempt)
}

/// The attempt began under the lender's field, which is free again. So it goes on under the field of its owner.
#[tokio::test(start_paused = true)]
async fn attempt_under_a_field_that_was_lent_goes_on_under_its_own() {
    let set_up = handed_off().await;
    let lender = set_up.lender.clone();
    let trying = |fair: Lock<Fair>| async move { fair.try_lock().await }.boxed();
    let (of_third, trying) = beside_a_third_owner(set_up, trying).await;
    let mut leaving = Box::pin(of_third.unlock());
    started(&mut leaving).await;
    let (left, tried) = tokio::join!(leaving, trying);
    assert_eq!(left, Ok(Released::Fully));
    let _guard = tried.unwrap().expect("it follows the release");
    let inside = lender.try_lock().await.unwrap();
    assert!(inside.is_none(), "two owners have the lock");
}

#[tokio::test(start_paused = true)]
async fn waiter_under_a_field_that_was_lent_leaves_no_entry_of_the_lender() {
    let set_up = handed_off().await;
    let queue = set_up.client.fair_lock("a");
    let waiting = |fair: Lock<Fair>| async move { fair.lock().await }.boxed();
    let (_of_third, mut waiting) = beside_a_third_owner(set_up, waiting).await;
    assert!(timeout(SOON, &mut waiting).await.is_err());
    assert_eq!(queue.waiters().await.unwrap().len(), 1);
    drop(waiting);
    sleep(SOON).await;
    assert_eq!(queue.waiters().await, Ok(Vec::new()));
}
