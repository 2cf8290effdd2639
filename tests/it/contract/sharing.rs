//! Kinds with several holders at once.

use redisson_lock::{Owner, Released};

use super::{
    Subject,
    bed::{Bed, only_messages},
    waiting::{expect_grant, spawn_waiter},
};

pub async fn many_owners_hold_a_shared_lock_at_once<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let other_client = bed.lock_of_other_client().await;
    let mut guards = Vec::new();
    for lock in [&bed.lock, &other_client].into_iter().cycle().take(6) {
        let lock = lock.owned_by(&Owner::new());
        guards.push(lock.try_lock().await.unwrap().expect("the lock is shared"));
        assert_eq!(lock.hold_count().await, Ok(1));
    }
    assert_eq!(
        bed.lock.hold_count().await,
        Ok(0),
        "each owner has its own hold count"
    );
    while let Some(guard) = guards.pop() {
        assert!(guards.iter().all(|guard| !guard.is_lost()));
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        assert_eq!(bed.is_free().await, guards.is_empty());
    }
    bed.becomes_free().await;
}

pub async fn a_rival_enters_after_the_last_holder<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let other_client = bed.lock_of_other_client().await;
    let guards = [
        bed.lock.lock().await.unwrap(),
        other_client.lock().await.unwrap(),
        other_client.owned_by(&Owner::new()).lock().await.unwrap(),
    ];
    bed.server.reset_calls().await;
    let rival = spawn_waiter(&bed.rival().await);
    bed.wait_for_refusals(1).await;
    for guard in guards {
        assert!(!rival.is_finished());
        assert!(bed.rival().await.try_lock().await.unwrap().is_none());
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    assert_eq!(
        expect_grant(rival).await.unlock().await,
        Ok(Released::Fully)
    );
}

/// The readers all acquire the lock after the rival's release.
pub async fn a_rival_excludes_all_holders_of_a_shared_lock<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let other_client = bed.lock_of_other_client().await;
    let rival = bed.rival().await.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiting: Vec<_> = [&bed.lock, &bed.lock, &other_client, &other_client]
        .into_iter()
        .map(spawn_waiter)
        .collect();
    bed.wait_for_refusals(4).await;
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
    assert_eq!(rival.unlock().await, Ok(Released::Fully));
    // No reader leaves before the last one enters.
    let mut guards = Vec::new();
    for waiter in waiting {
        guards.push(expect_grant(waiter).await);
    }
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    drop(guards);
    bed.becomes_free().await;
}
