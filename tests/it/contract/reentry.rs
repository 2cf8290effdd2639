//! A holder enters again, and the hold counts are exact.

use std::time::Duration;

use redisson_lock::{Owner, Released};
use testbed::eventually;

use super::{
    Subject,
    bed::{Bed, SOON},
};
use crate::witness::busy_at_worst;

pub async fn counts_are_exact_here_and_on_the_server<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let owner = Owner::current();
    let mut guards = Vec::new();
    for holds in 1..=5 {
        guards.push(bed.lock.lock().await.unwrap());
        assert_eq!(bed.count_of(owner).await, Some(holds));
        assert_eq!(bed.lock.hold_count().await, Ok(holds));
    }
    for holds in (1..=4).rev() {
        let guard = guards.pop().unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::StillHeld { holds }));
        assert_eq!(bed.count_of(owner).await, Some(holds));
        assert_eq!(bed.lock.hold_count().await, Ok(holds));
    }
    assert_eq!(guards.pop().unwrap().unlock().await, Ok(Released::Fully));
    assert!(bed.is_free().await);
    assert_eq!(bed.lock.hold_count().await, Ok(0));
}

pub async fn every_acquire_method_is_reentrant<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let _first = bed
        .lock
        .try_lock()
        .await
        .unwrap()
        .expect("the lock is free");
    let _second = bed
        .lock
        .try_lock()
        .await
        .unwrap()
        .expect("the owner re-enters");
    let mut third = None;
    let re_enters = async || {
        third = busy_at_worst(bed.lock.try_lock_for(Duration::ZERO).await);
        third.is_some()
    };
    eventually("the owner re-enters", SOON, re_enters).await;
    let _fourth = bed
        .lock
        .try_lock_for(SOON)
        .await
        .unwrap()
        .expect("the owner re-enters");
    let _fifth = bed.lock.with_lease(SOON).lock().await.unwrap();
    let by_number = bed.lock.owned_by(&Owner::current());
    let _sixth = by_number.lock().await.unwrap();
    let inside = bed.lock.run(async |_| bed.lock.hold_count().await).await;
    assert_eq!(inside, Ok(Ok(7)));
    assert_eq!(bed.count_of(Owner::current()).await, Some(6));
}

pub async fn guards_may_end_in_any_order<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let outer = bed.lock.lock().await.unwrap();
    let middle = bed.lock.lock().await.unwrap();
    let inner = bed.lock.lock().await.unwrap();
    assert_eq!(outer.unlock().await, Ok(Released::StillHeld { holds: 2 }));
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert!(!middle.is_lost());
    assert_eq!(bed.lock.is_held().await, Ok(true));
    assert_eq!(middle.unlock().await, Ok(Released::Fully));
    assert!(bed.is_free().await);
}

pub async fn no_other_owner_enters_before_the_last_guard_ends<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let rival = bed.rival().await;
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(bed.lock.lock().await.unwrap());
    }
    while let Some(guard) = guards.pop() {
        assert!(rival.try_lock().await.unwrap().is_none());
        let _ = guard.unlock().await.unwrap();
    }
    assert!(rival.try_lock().await.unwrap().is_some());
}

/// Hold counts with two digits.
pub async fn a_tenth_hold_is_counted_like_the_first<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let mut guards = Vec::new();
    for _ in 0..12 {
        guards.push(bed.lock.lock().await.unwrap());
    }
    assert_eq!(bed.count_of(Owner::current()).await, Some(12));
    for holds in (1..12).rev() {
        let released = guards.pop().unwrap().unlock().await;
        assert_eq!(released, Ok(Released::StillHeld { holds }));
    }
    assert_eq!(guards.pop().unwrap().unlock().await, Ok(Released::Fully));
}
