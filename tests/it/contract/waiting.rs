//! Waiters acquire a released lock. Waiters that subscribe do so at a message alone.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use futures_util::poll;
use redisson_lock::{Error, Guard, Kind, Lock, Owner, Released};
use testbed::eventually;
use tokio::{task::JoinHandle, task::JoinSet, time::timeout};

use super::{
    Subject,
    bed::{Bed, NEVER, SOON, only_messages},
};

/// Spawns a task that waits for the lock.
pub fn spawn_waiter<K: Kind>(lock: &Lock<K>) -> JoinHandle<Result<Guard<K>, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

/// As [`spawn_waiter`], and completes when the task waits. A waiter in the local queue sends nothing, so the server cannot show it.
pub async fn spawn_enqueued<K: Kind>(lock: &Lock<K>) -> JoinHandle<Result<Guard<K>, Error>> {
    let lock = lock.owned_by(&Owner::new());
    let mut waiting = Box::pin(async move { lock.lock().await });
    assert!(poll!(&mut waiting).is_pending());
    tokio::spawn(waiting)
}

pub async fn expect_grant<K: Kind>(waiter: JoinHandle<Result<Guard<K>, Error>>) -> Guard<K> {
    let entered = timeout(SOON, waiter)
        .await
        .expect("the waiter acquires the lock in time");
    entered
        .expect("the task does not panic")
        .expect("the lock is granted")
}

/// `waiter` waits while `holder` has the lock, and acquires it after the release.
async fn follows<S: Subject, H: Kind, W: Kind>(bed: &Bed<S>, holder: &Lock<H>, waiter: &Lock<W>) {
    let guard = holder.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = spawn_waiter(waiter);
    bed.wait_for_refusals(1).await;
    assert!(!waiter.is_finished());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let guard = expect_grant(waiter).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

pub async fn a_release_wakes_a_waiter_of_another_client<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let rival = bed.rival().await;
    follows(&bed, &bed.lock, &rival).await;
    follows(&bed, &rival, &bed.lock).await;
}

pub async fn a_release_wakes_a_waiter_of_the_same_client<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let rival = bed.rival_same_client();
    async fn follows<H: Kind, W: Kind>(holder: &Lock<H>, waiter: &Lock<W>) {
        let guard = holder.lock().await.unwrap();
        let waiter = spawn_enqueued(waiter).await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        let guard = expect_grant(waiter).await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    follows(&bed.lock, &rival).await;
    follows(&rival, &bed.lock).await;
}

/// P-W5. Each message wakes one waiter of every client.
pub async fn releases_wake_every_waiter<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let other_client = bed.lock_of_other_client().await;
    let guard = bed.rival_same_client().lock().await.unwrap();
    bed.server.reset_calls().await;
    let mut waiters = JoinSet::new();
    let come = Arc::new(AtomicU64::new(0));
    for (index, lock) in [&bed.lock, &other_client]
        .into_iter()
        .cycle()
        .take(6)
        .enumerate()
    {
        let (lock, come) = (lock.clone(), come.clone());
        waiters.spawn(async move {
            come.fetch_add(1, SeqCst);
            lock.lock().await.unwrap().unlock().await.unwrap()
        });
        if index == 1 {
            // The second waiter is the first of its client, so it asks. Later waiters may stand in a local queue and send nothing.
            bed.wait_for_refusals(1).await;
        }
    }
    eventually("all waiters have begun", SOON, async || {
        come.load(SeqCst) == 6
    })
    .await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    timeout(SOON, waiters.join_all())
        .await
        .expect("every waiter had the lock");
    bed.becomes_free().await;
}

pub async fn a_dropped_guard_wakes_a_waiter<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let rival = bed.rival().await;
    let guard = bed.lock.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = spawn_waiter(&rival);
    bed.wait_for_refusals(1).await;
    drop(guard);
    assert_eq!(
        expect_grant(waiter).await.unlock().await,
        Ok(Released::Fully)
    );
}

pub async fn the_end_of_a_nested_hold_wakes_no_waiter<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let rival = bed.rival().await;
    let outer = bed.lock.lock().await.unwrap();
    let inner = bed.lock.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = spawn_waiter(&rival);
    bed.wait_for_refusals(1).await;
    let published = async || {
        let calls = bed.server.calls().await;
        let count = calls.get("publish").or(calls.get("spublish")).copied();
        count.unwrap_or_default()
    };
    // Before Redis 7, a client can only publish to find out whether it may.
    let before = published().await;
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(published().await, before, "the lock is not free");
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
    let guard = expect_grant(waiter).await;
    assert_eq!(published().await, before + 1, "one message per freed lock");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// The end of a lease has no message: the waiter uses the remaining lease of its refusal.
pub async fn a_waiter_acquires_the_lock_when_a_lease_expires<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let lease = std::time::Duration::from_millis(300);
    let guard = bed.lock.with_lease(lease).lock().await.unwrap();
    let rival = bed.rival().await;
    let inside = timeout(SOON, rival.lock())
        .await
        .expect("the lease ends in time")
        .unwrap();
    assert!(guard.is_lost(), "the holder learned of the loss before");
    assert_eq!(inside.unlock().await, Ok(Released::Fully));
}

pub async fn a_wait_leaves_nothing<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let other_client = bed.lock_of_other_client().await;
    let guard = bed.rival().await.lock().await.unwrap();
    let held = bed.keys().await;
    let waiters = [
        spawn_waiter(&other_client),
        spawn_waiter(&other_client),
        spawn_waiter(&other_client),
    ];
    bed.awaited().await;
    for waiter in waiters {
        waiter.abort();
        assert!(waiter.await.is_err());
    }
    eventually("no subscription is left", SOON, async || {
        bed.channels().await.is_empty()
    })
    .await;
    eventually("nothing but the hold is left", SOON, async || {
        bed.keys().await == held
    })
    .await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    // The server may have granted an attempt under way. Its release follows.
    bed.becomes_free().await;
    assert_eq!(bed.keys().await, [""; 0]);
    let again = other_client.try_lock_for(NEVER).await.unwrap();
    assert!(
        again.is_some(),
        "the dropped waits leave nothing that excludes a waiter"
    );
}
