//! A guard is one hold, and it may end in any task or thread.

use std::sync::Arc;

use futures::poll_once;
use redisson_lock::{Error, Owner, Released};

use super::{
    Subject,
    bed::{Bed, SOON, only_messages},
};

mod futures {
    /// Polls `future` once and drops it.
    pub async fn poll_once<F: Future>(future: F) {
        let mut future = Box::pin(future);
        std::future::poll_fn(|context| {
            let _ = future.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
    }
}

fn not_held<T>(unlocked: &Result<T, Error>, lock: &str) -> bool {
    matches!(unlocked, Err(Error::NotHeld { name, .. }) if **name == *lock)
}

pub async fn unlock_needs_a_hold_of_the_same_owner<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let other_client = bed.lock_of_other_client().await;
    assert!(not_held(&bed.lock.unlock().await, &bed.name), "free");
    let guard = bed.lock.lock().await.unwrap();
    assert!(
        not_held(&other_client.unlock().await, &bed.name),
        "held by another client"
    );
    let namesake = other_client.owned_by(&Owner::current());
    assert!(
        not_held(&namesake.unlock().await, &bed.name),
        "held by another client's owner of the same number"
    );
    let other_owner = bed.lock.owned_by(&Owner::new());
    assert!(
        not_held(&other_owner.unlock().await, &bed.name),
        "held by another owner"
    );
    assert_eq!(bed.count_of(Owner::current()).await, Some(1));
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert!(
        not_held(&bed.lock.unlock().await, &bed.name),
        "more unlocks than holds"
    );
}

pub async fn unlock_does_not_release_a_hold_with_a_guard<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let guard = bed.lock.lock().await.unwrap();
    assert!(not_held(&bed.lock.unlock().await, &bed.name));
    assert!(!guard.is_lost());
    assert_eq!(bed.lock.hold_count().await, Ok(1));
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

pub async fn another_task_may_unlock_a_guard<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let guard = bed.lock.lock().await.unwrap();
    let unlocked = tokio::spawn(async move { guard.unlock().await });
    assert_eq!(unlocked.await.unwrap(), Ok(Released::Fully));
    assert!(bed.is_free().await);
}

pub async fn a_dropped_guard_is_released<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    drop(bed.lock.lock().await.unwrap());
    bed.becomes_free().await;
    // The owner's next hold waits for this release, which does not end it (P-A4).
    for _ in 0..20 {
        drop(bed.lock.lock().await.unwrap());
        let next = bed.lock.lock().await.unwrap();
        assert_eq!(bed.lock.is_held().await, Ok(true));
        assert_eq!(next.unlock().await, Ok(Released::Fully));
        assert!(bed.is_free().await);
    }
}

pub async fn a_dropped_inner_guard_leaves_the_outer_one<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let outer = bed.lock.lock().await.unwrap();
    drop(bed.lock.lock().await.unwrap());
    let counted = async || bed.count_of(Owner::current()).await == Some(1);
    testbed::eventually("the inner hold is released", SOON, counted).await;
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
}

pub async fn a_guard_may_be_dropped_in_another_task<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.lock.lock().await.unwrap();
    tokio::spawn(async move { drop(guard) }).await.unwrap();
    bed.becomes_free().await;
    // Two tasks share the guard, and the last drop releases it.
    let guard = Arc::new(bed.lock.lock().await.unwrap());
    let other = guard.clone();
    tokio::spawn(async move { assert!(!other.is_lost()) })
        .await
        .unwrap();
    assert!(!bed.is_free().await);
    drop(guard);
    bed.becomes_free().await;
}

pub async fn a_guard_may_be_dropped_outside_of_any_runtime<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.lock.lock().await.unwrap();
    let thread = std::thread::spawn(move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        drop(guard);
    });
    tokio::task::spawn_blocking(|| thread.join())
        .await
        .unwrap()
        .unwrap();
    bed.becomes_free().await;
}

pub async fn a_dropped_unlock_completes<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.lock.lock().await.unwrap();
    drop(guard.unlock());
    bed.becomes_free().await;
    let guard = bed.lock.lock().await.unwrap();
    poll_once(guard.unlock()).await;
    bed.becomes_free().await;
    // The owner's next hold waits for the dropped `unlock` (P-A4).
    for _ in 0..20 {
        let guard = bed.lock.lock().await.unwrap();
        poll_once(guard.unlock()).await;
        let next = bed.lock.lock().await.unwrap();
        assert_eq!(bed.count_of(Owner::current()).await, Some(1));
        assert_eq!(next.unlock().await, Ok(Released::Fully));
        assert!(bed.is_free().await);
    }
}

pub async fn dropped_unlocks_complete_in_order<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    // The second `unlock` waits for the first, and is sent only after its future was dropped.
    let outer = bed.lock.lock().await.unwrap();
    let inner = bed.lock.lock().await.unwrap();
    poll_once(async { tokio::join!(inner.unlock(), outer.unlock()) }).await;
    bed.becomes_free().await;
}

pub async fn a_cancelled_token_harms_nothing<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.lock.lock().await.unwrap();
    guard.cancellation_token().cancel();
    assert!(!guard.is_lost());
    assert!(!guard.cancellation_token().is_cancelled());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
