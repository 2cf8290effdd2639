//! Waiters get in, and by nothing but the message where they listen for one.

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

/// A task that waits for the lock.
pub fn waits<K: Kind>(lock: &Lock<K>) -> JoinHandle<Result<Guard<K>, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

/// The same, of which the server need not hear: it waits when this completes.
pub async fn queues<K: Kind>(lock: &Lock<K>) -> JoinHandle<Result<Guard<K>, Error>> {
    let lock = lock.owned_by(&Owner::new());
    let mut waiting = Box::pin(async move { lock.lock().await });
    assert!(poll!(&mut waiting).is_pending());
    tokio::spawn(waiting)
}

pub async fn gets_in<K: Kind>(waiter: JoinHandle<Result<Guard<K>, Error>>) -> Guard<K> {
    let entered = timeout(SOON, waiter).await.expect("the waiter gets in");
    entered
        .expect("it does not panic")
        .expect("it gets the lock")
}

/// `waiter` comes while `holder` is inside, and gets in when that leaves.
async fn follows<S: Subject, H: Kind, W: Kind>(bed: &Bed<S>, holder: &Lock<H>, waiter: &Lock<W>) {
    let guard = holder.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = waits(waiter);
    bed.parked(1).await;
    assert!(!waiter.is_finished());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let guard = gets_in(waiter).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

pub async fn a_release_lets_a_waiter_of_another_client_in<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let rival = bed.rival().await;
    follows(&bed, &bed.lock, &rival).await;
    follows(&bed, &rival, &bed.lock).await;
}

pub async fn a_release_lets_a_waiter_of_the_same_client_in<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let rival = bed.rival_here();
    async fn follows<H: Kind, W: Kind>(holder: &Lock<H>, waiter: &Lock<W>) {
        let guard = holder.lock().await.unwrap();
        let waiter = queues(waiter).await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        let guard = gets_in(waiter).await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    follows(&bed.lock, &rival).await;
    follows(&rival, &bed.lock).await;
}

/// P-W5, and every message wakes a waiter of every client.
pub async fn releases_let_every_waiter_in<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let elsewhere = bed.elsewhere().await;
    let guard = bed.rival_here().lock().await.unwrap();
    bed.server.reset_calls().await;
    let mut waiters = JoinSet::new();
    let come = Arc::new(AtomicU64::new(0));
    for (index, lock) in [&bed.lock, &elsewhere]
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
            // That of the other client: the rest may wait behind the holder, or behind that one, without asking.
            bed.parked(1).await;
        }
    }
    eventually("all have come", SOON, async || come.load(SeqCst) == 6).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    timeout(SOON, waiters.join_all())
        .await
        .expect("everybody was inside");
    bed.becomes_free().await;
}

pub async fn a_dropped_guard_lets_a_waiter_in<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let rival = bed.rival().await;
    let guard = bed.lock.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = waits(&rival);
    bed.parked(1).await;
    drop(guard);
    assert_eq!(gets_in(waiter).await.unlock().await, Ok(Released::Fully));
}

pub async fn the_end_of_a_nested_hold_wakes_no_waiter<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let rival = bed.rival().await;
    let outer = bed.lock.lock().await.unwrap();
    let inner = bed.lock.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = waits(&rival);
    bed.parked(1).await;
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    let published = async || {
        let calls = bed.server.calls().await;
        calls.get("publish").or(calls.get("spublish")).copied()
    };
    assert_eq!(published().await, None, "the lock is not free");
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
    let guard = gets_in(waiter).await;
    assert_eq!(published().await, Some(1), "one message per freed lock");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// The end of a lease is not announced: the waiter goes by what it was told.
pub async fn a_lease_that_runs_out_lets_a_waiter_in<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let lease = std::time::Duration::from_millis(300);
    let guard = bed.lock.with_lease(lease).lock().await.unwrap();
    let rival = bed.rival().await;
    let inside = timeout(SOON, rival.lock())
        .await
        .expect("it gets in")
        .unwrap();
    assert!(guard.is_lost(), "the holder knew before");
    assert_eq!(inside.unlock().await, Ok(Released::Fully));
}

pub async fn nothing_is_left_of_a_wait<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let elsewhere = bed.elsewhere().await;
    let guard = bed.rival().await.lock().await.unwrap();
    let held = bed.keys().await;
    let waiters = [waits(&elsewhere), waits(&elsewhere), waits(&elsewhere)];
    bed.awaited().await;
    for waiter in waiters {
        waiter.abort();
        assert!(waiter.await.is_err());
    }
    eventually("nobody listens any more", SOON, async || {
        bed.channels().await.is_empty()
    })
    .await;
    eventually("nothing but the hold is left", SOON, async || {
        bed.keys().await == held
    })
    .await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    // A try that was on its way may have been granted, and is given back.
    bed.becomes_free().await;
    assert_eq!(bed.keys().await, [""; 0]);
    let again = elsewhere.try_lock_for(NEVER).await.unwrap();
    assert!(
        again.is_some(),
        "nothing of the dropped waits is in the way"
    );
}
