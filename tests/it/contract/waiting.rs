//! Waiters are woken.

use redisson_lock::{Error, Guard, Kind, Lock, Released};
use testbed::eventually;
use tokio::{task::JoinHandle, task::JoinSet, time::timeout};

use super::{
    Subject,
    bed::{Bed, NEVER, SOON, only_messages},
};

/// A task that waits for the lock.
fn waits<K: Kind>(lock: &Lock<K>) -> JoinHandle<Result<Guard<K>, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

async fn gets_in<K: Kind>(waiter: JoinHandle<Result<Guard<K>, Error>>) -> Guard<K> {
    let entered = timeout(SOON, waiter).await.expect("the waiter is woken");
    entered
        .expect("it does not panic")
        .expect("it gets the lock")
}

/// `waiter` comes while the lock is held and gets in by nothing but the message.
async fn woken_by_message<S: Subject>(bed: Bed<S>, waiter: &Lock<S::Kind>) {
    if !S::ANNOUNCED {
        return;
    }
    let guard = bed.lock.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = waits(waiter);
    bed.parked(1).await;
    assert!(!waiter.is_finished());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let guard = gets_in(waiter).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

pub async fn a_message_wakes_a_waiter_of_another_client<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let elsewhere = bed.elsewhere().await;
    woken_by_message(bed, &elsewhere).await;
}

pub async fn a_message_wakes_a_waiter_of_the_same_client<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let same = bed.lock.clone();
    woken_by_message(bed, &same).await;
}

/// P-W5, and every message wakes somebody of every client.
pub async fn messages_let_every_waiter_in<S: Subject>() {
    if !S::ANNOUNCED {
        return;
    }
    let bed = Bed::<S>::alone(only_messages()).await;
    let elsewhere = bed.elsewhere().await;
    let guard = bed.lock.lock().await.unwrap();
    bed.server.reset_calls().await;
    let mut waiters = JoinSet::new();
    for lock in [&bed.lock, &elsewhere].into_iter().cycle().take(6) {
        let lock = lock.clone();
        waiters.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    }
    bed.parked(6).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    timeout(SOON, waiters.join_all())
        .await
        .expect("everybody was inside");
    assert!(bed.is_free().await);
}

pub async fn a_dropped_guard_wakes_too<S: Subject>() {
    if !S::ANNOUNCED {
        return;
    }
    let bed = Bed::<S>::alone(only_messages()).await;
    let elsewhere = bed.elsewhere().await;
    let guard = bed.lock.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = waits(&elsewhere);
    bed.parked(1).await;
    drop(guard);
    assert_eq!(gets_in(waiter).await.unlock().await, Ok(Released::Fully));
}

pub async fn the_end_of_a_nested_hold_wakes_nobody<S: Subject>() {
    if !S::REENTRANT || !S::ANNOUNCED {
        return;
    }
    let bed = Bed::<S>::alone(only_messages()).await;
    let elsewhere = bed.elsewhere().await;
    let outer = bed.lock.lock().await.unwrap();
    let inner = bed.lock.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = waits(&elsewhere);
    bed.parked(1).await;
    bed.server.reset_calls().await;
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
    assert_eq!(gets_in(waiter).await.unlock().await, Ok(Released::Fully));
    let calls = bed.server.calls().await;
    assert_eq!(
        calls.get("publish"),
        Some(&2),
        "one message per freed lock: {calls:?}"
    );
}

/// Nobody tells of the end of a lease: the waiter goes by what it was told.
pub async fn a_lease_that_runs_out_lets_a_waiter_in<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let lease = std::time::Duration::from_millis(300);
    let guard = bed.lock.with_lease(lease).lock().await.unwrap();
    let elsewhere = bed.elsewhere().await;
    let inside = timeout(SOON, elsewhere.lock())
        .await
        .expect("it gets in")
        .unwrap();
    assert!(guard.is_lost(), "the holder knew before");
    assert_eq!(inside.unlock().await, Ok(Released::Fully));
}

pub async fn nothing_is_left_of_a_wait<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let elsewhere = bed.elsewhere().await;
    let guard = bed.lock.lock().await.unwrap();
    let waiters = [waits(&elsewhere), waits(&elsewhere), waits(&elsewhere)];
    if S::ANNOUNCED {
        let listens = async || bed.listeners().await == 1;
        eventually("they listen on one connection", SOON, listens).await;
    }
    for waiter in waiters {
        waiter.abort();
        assert!(waiter.await.is_err());
    }
    let deaf = async || bed.listeners().await == 0;
    eventually("nobody listens any more", SOON, deaf).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert!(bed.is_free().await);
    let again = elsewhere.try_lock_for(NEVER).await.unwrap();
    assert!(
        again.is_some(),
        "nothing of the dropped waits is in the way"
    );
}
