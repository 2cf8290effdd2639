//! Waits end at their limits.

use std::time::Duration;

use redisson_lock::{Error, Released};
use testbed::eventually;
use tokio::time::Instant;

use super::{
    Subject,
    bed::{Bed, NEVER, SOON, only_messages},
};
use crate::witness::busy_at_worst;

pub async fn try_lock_on_a_held_lock_returns_none_at_once<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.rival().await.lock().await.unwrap();
    assert!(bed.lock.try_lock().await.unwrap().is_none());
    assert!(
        bed.lock
            .with_lease(SOON)
            .try_lock()
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        bed.channels().await,
        [""; 0],
        "the attempt subscribes to nothing"
    );
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert!(bed.lock.try_lock().await.unwrap().is_some());
}

pub async fn a_wait_ends_at_its_limit_and_not_before<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.rival().await.lock().await.unwrap();
    for wait in [1, 50, 300].map(Duration::from_millis) {
        let begun = Instant::now();
        assert!(busy_at_worst(bed.lock.try_lock_for(wait).await).is_none());
        let waited = begun.elapsed();
        assert!(waited >= wait && waited < SOON, "{waited:?} for {wait:?}");
    }
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

pub async fn a_wait_of_zero_does_not_wait<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.rival().await.lock().await.unwrap();
    let at_once = async || busy_at_worst(bed.lock.try_lock_for(Duration::ZERO).await);
    assert!(at_once().await.is_none());
    assert_eq!(
        bed.channels().await,
        [""; 0],
        "the attempt subscribes to nothing"
    );
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let is_granted = async || at_once().await.is_some();
    eventually("the free lock is granted", SOON, is_granted).await;
}

/// Acquires a free lock and a held one, each with a limit that is computed last.
async fn gets_in_within<S: Subject>(wait: impl Fn() -> Duration + Send + 'static) {
    let bed = Bed::<S>::new().await;
    let free = bed.lock.try_lock_for(wait()).await;
    drop(free.unwrap().expect("the lock is free"));
    let guard = bed.rival().await.lock().await.unwrap();
    let lock = bed.lock.clone();
    let waiter = tokio::spawn(async move { lock.try_lock_for(wait()).await });
    let listens = async || waiter.is_finished() || !S::LISTENS || !bed.channels().await.is_empty();
    eventually("the waiter waits", SOON, listens).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let entered = tokio::time::timeout(SOON, waiter)
        .await
        .expect("a message wakes the waiter");
    assert!(entered.unwrap().unwrap().is_some());
}

pub async fn a_wait_longer_than_the_clock_waits<S: Subject>() {
    gets_in_within::<S>(|| Duration::MAX).await;
    gets_in_within::<S>(|| Duration::from_secs(1000 * 365 * 24 * 3600)).await;
}

/// A wait until shortly before the last instant of the clock.
pub async fn a_wait_at_the_end_of_the_clock_waits<S: Subject>() {
    let end = end_of_the_clock();
    for short_of_it in [1, 50, 90, 150, 1000].map(Duration::from_millis) {
        gets_in_within::<S>(move || end - Instant::now() - short_of_it).await;
    }
}

/// The last instant, to the millisecond.
fn end_of_the_clock() -> Instant {
    let mut end = Instant::now();
    let mut step = Duration::from_secs(u64::MAX / 2 + 1);
    while step > Duration::from_millis(1) {
        end = end.checked_add(step).unwrap_or(end);
        step /= 2;
    }
    end
}

/// Granted or not, the result is true.
pub async fn a_release_at_about_the_limit_grants_a_hold_or_leaves_none<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let rival = bed.rival().await;
    let (mut granted, mut late) = (0, 0);
    for round in 0..30 {
        let held = rival.lock().await.unwrap();
        let holder = async {
            tokio::time::sleep(Duration::from_millis(15 + round % 10)).await;
            assert_eq!(held.unlock().await, Ok(Released::Fully));
        };
        let wait = bed.lock.try_lock_for(Duration::from_millis(20));
        let (_, entered) = tokio::join!(holder, wait);
        match entered {
            Ok(Some(guard)) => {
                granted += 1;
                assert_eq!(bed.lock.hold_count().await, Ok(1));
                assert_eq!(guard.unlock().await, Ok(Released::Fully));
            }
            Ok(None) => {}
            // The reply of a busy machine, more than 100 ms after the limit.
            Err(Error::Unavailable { .. }) => late += 1,
            Err(error) => panic!("{error:?}"),
        }
        // A grant that was too late for its task is released behind it.
        let left = format!("round {round} leaves no hold without a guard");
        eventually(&left, SOON, async || bed.is_free().await).await;
    }
    println!("{granted} of 30 attempts were granted, {late} had no answer in time");
    assert!(late < 30, "no attempt had an answer in time");
}

/// P-A12: a waiter whose limit is later than the holder's lease waits on.
pub async fn a_holders_short_lease_does_not_end_a_wait<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let short = bed.rival().await.with_lease(Duration::from_millis(100));
    let guard = short.lock().await.unwrap();
    let lease_over = guard.valid_until();
    let entered = bed.lock.try_lock_for(NEVER).await.unwrap();
    assert!(entered.is_some());
    assert!(
        std::time::Instant::now() >= lease_over,
        "the lock is granted after the lease"
    );
}
