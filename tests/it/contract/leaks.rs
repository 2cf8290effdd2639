//! Holds without a guard.

use std::time::Duration;

use redisson_lock::{Error, Owner, Released};
use testbed::eventually;

use super::{
    Subject,
    bed::{Bed, SHORT, SOON, only_messages, watched},
};

fn not_held<T>(unlocked: &Result<T, Error>) -> bool {
    matches!(unlocked, Err(Error::NotHeld { .. }))
}

pub async fn a_leaked_hold_is_unlocked_by_its_owner<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    bed.lock.lock().await.unwrap().leak();
    assert_eq!(bed.lock.is_held().await, Ok(true));
    assert!(bed.rival().await.try_lock().await.unwrap().is_none());
    assert_eq!(bed.lock.unlock().await, Ok(Released::Fully));
    assert!(bed.is_free().await);
    assert!(not_held(&bed.lock.unlock().await));
}

pub async fn a_leaked_hold_goes_on_and_is_renewed<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    bed.lock.lock().await.unwrap().leak();
    let enough = tokio::time::Instant::now() + 4 * SHORT;
    eventually("four leases have passed", SOON, async || {
        assert_eq!(bed.count_of(Owner::current()).await, Some(1));
        tokio::time::Instant::now() >= enough
    })
    .await;
    assert_eq!(bed.lock.unlock().await, Ok(Released::Fully));
}

pub async fn unlock_releases_leaked_holds_and_no_guards<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    bed.lock.lock().await.unwrap().leak();
    let guard = bed.lock.lock().await.unwrap();
    bed.lock.lock().await.unwrap().leak();
    assert_eq!(bed.count_of(Owner::current()).await, Some(3));
    assert_eq!(
        bed.lock.unlock().await,
        Ok(Released::StillHeld { holds: 2 })
    );
    assert_eq!(
        bed.lock.unlock().await,
        Ok(Released::StillHeld { holds: 1 })
    );
    assert!(
        not_held(&bed.lock.unlock().await),
        "the last hold has a guard"
    );
    assert!(!guard.is_lost());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    // The same in the other order.
    bed.lock.lock().await.unwrap().leak();
    let guard = bed.lock.lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(bed.lock.unlock().await, Ok(Released::Fully));
    assert!(bed.is_free().await);
}

pub async fn another_task_cannot_unlock_a_leaked_hold<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    bed.lock.lock().await.unwrap().leak();
    let lock = bed.lock.clone();
    let unlocked = tokio::spawn(async move { lock.unlock().await })
        .await
        .unwrap();
    assert!(not_held(&unlocked), "{unlocked:?}");
    assert!(not_held(&bed.lock_of_other_client().await.unlock().await));
    assert_eq!(bed.lock.unlock().await, Ok(Released::Fully));
}

pub async fn another_task_can_unlock_a_leaked_hold_as_the_same_owner<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let owner = Owner::new();
    let lock = bed.lock.owned_by(&owner);
    lock.lock().await.unwrap().leak();
    let unlocked = tokio::spawn(async move { lock.unlock().await });
    assert_eq!(unlocked.await.unwrap(), Ok(Released::Fully));
    bed.lock.owned_by(&owner).lock().await.unwrap().leak();
    let lock = bed.lock.clone();
    let unlocked = tokio::spawn(owner.scope(async move { lock.unlock().await }));
    assert_eq!(unlocked.await.unwrap(), Ok(Released::Fully));
    assert!(bed.is_free().await);
}

pub async fn a_leaked_lease_runs_out<S: Subject>() {
    let bed = Bed::<S>::with(watched(Duration::from_millis(90))).await;
    let lock = bed.lock.with_lease(Duration::from_millis(300));
    lock.lock().await.unwrap().leak();
    bed.becomes_free().await;
    let unlocked = bed.lock.unlock().await;
    assert!(is_gone(&unlocked), "{unlocked:?}");
    assert_eq!(bed.lock.hold_count().await, Ok(0));
}

pub async fn a_leaked_hold_that_was_forced_out_is_lost<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let other_client = bed.lock_of_other_client().await;
    bed.lock.lock().await.unwrap().leak();
    assert_eq!(other_client.force_unlock().await, Ok(true));
    let inside = bed.rival().await.lock().await.unwrap();
    let unlocked = bed.lock.unlock().await;
    assert!(is_gone(&unlocked), "{unlocked:?}");
    assert_eq!(inside.unlock().await, Ok(Released::Fully));
}

/// `Lost` before the client knows of the loss, `NotHeld` after. A connection that is replaced makes it ask.
fn is_gone(unlocked: &Result<Released, Error>) -> bool {
    matches!(unlocked, Err(Error::Lost { .. } | Error::NotHeld { .. }))
}
