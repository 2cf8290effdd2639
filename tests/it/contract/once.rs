//! Kinds without re-entry: an owner's second attempt is refused at once, with an error that names
//! the lock.

use std::time::Duration;

use redisson_lock::{Error, Guard, Kind, Lock, Owner, Released};
use tokio::time::timeout;

use super::{
    Subject,
    bed::{Bed, NEVER, SHORT, SOON, only_messages, watched},
};

fn refused<T>(tried: &Result<T, Error>, lock: &str) -> bool {
    matches!(tried, Err(Error::AlreadyHeld { name, .. }) if **name == *lock)
}

pub async fn every_acquire_method_is_refused_to_the_holder<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.lock.lock().await.unwrap();
    let (lock, name) = (&bed.lock, bed.name.as_str());
    let waits = async {
        assert!(refused(&lock.lock().await, name));
        assert!(refused(&lock.try_lock().await, name));
        assert!(refused(&lock.try_lock_for(Duration::ZERO).await, name));
        assert!(refused(&lock.try_lock_for(NEVER).await, name));
        assert!(refused(&lock.with_lease(NEVER).lock().await, name));
        let by_number = lock.owned_by(&Owner::current());
        assert!(refused(&by_number.lock().await, name));
        assert!(refused(&lock.run(async |_| ()).await, name));
        let (lock, owner) = (lock.clone(), Owner::current());
        let scoped = owner.scope(async move { lock.lock().await.map(drop) });
        assert!(refused(&tokio::spawn(scoped).await.unwrap(), name));
    };
    timeout(SOON, waits).await.expect("no attempt waits");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    bed.becomes_free().await;
}

/// A refusal changes neither the hold count nor the lease, nor its renewal.
pub async fn a_refusal_costs_the_hold_nothing<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    let guard = bed.lock.lock().await.unwrap();
    for lease in [SHORT / 4, NEVER] {
        assert!(refused(&bed.lock.with_lease(lease).lock().await, &bed.name));
        let left = bed.pttl().await;
        assert!((1..=SHORT.as_millis() as i64).contains(&left), "{left} ms");
    }
    bed.held_for(3 * SHORT, &guard, Owner::current(), 1).await;
    assert_eq!(bed.lock.hold_count().await, Ok(1));
    assert!(bed.rival().await.try_lock().await.unwrap().is_none());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// The branches are one owner, as documented.
pub async fn the_branches_of_a_join_are_one_owner_and_the_second_is_refused<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let (one, other) = tokio::join!(bed.lock.lock(), bed.lock.lock());
    let (guard, error) = match (one, other) {
        (Ok(guard), refused) | (refused, Ok(guard)) => (guard, refused),
        neither => panic!("{neither:?}"),
    };
    assert!(refused(&error, &bed.name), "{error:?}");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// A hold that the client knows to be lost is no obstacle, whatever the server has.
pub async fn a_hold_that_ended_is_no_obstacle<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let short = bed.lock.with_lease(Duration::from_millis(100));
    let expired = short.lock().await.unwrap();
    timeout(SOON, expired.lost())
        .await
        .expect("the loss is reported");
    let next = timeout(SOON, bed.lock.lock())
        .await
        .expect("the lock is free");
    assert!(refused(&bed.lock.try_lock().await, &bed.name));
    drop(expired);
    assert_eq!(bed.lock.hold_count().await, Ok(1));
    assert_eq!(next.unwrap().unlock().await, Ok(Released::Fully));

    let forced_out = bed.lock.lock().await.unwrap();
    assert_eq!(bed.lock.force_unlock().await, Ok(true));
    let next = bed
        .lock
        .try_lock()
        .await
        .unwrap()
        .expect("the lock is free");
    assert!(forced_out.is_lost());
    assert_eq!(next.unlock().await, Ok(Released::Fully));
}

pub async fn an_owner_acquires_again_after_every_kind_of_end<S: Subject>() {
    async fn enter<K: Kind>(lock: &Lock<K>) -> Guard<K> {
        lock.try_lock().await.unwrap().expect("the lock is free")
    }
    let bed = Bed::<S>::with(only_messages()).await;
    assert_eq!(enter(&bed.lock).await.unlock().await, Ok(Released::Fully));
    drop(enter(&bed.lock).await);
    drop(enter(&bed.lock).await.unlock());
    enter(&bed.lock).await.leak();
    assert!(refused(&bed.lock.try_lock().await, &bed.name));
    assert_eq!(bed.lock.unlock().await, Ok(Released::Fully));
    assert_eq!(bed.lock.run(async |_| 1).await, Ok(1));
    assert_eq!(enter(&bed.lock).await.unlock().await, Ok(Released::Fully));
    bed.becomes_free().await;
}
