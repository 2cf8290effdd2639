//! Waits that end because the caller's future completes, or at the caller's deadline.

use std::{
    future::{pending, poll_fn, ready},
    task::Poll,
    time::{Duration, Instant},
};

use redisson_lock::{Kind, Lock, LockClient, Released, blocking};
use tokio_util::sync::CancellationToken;

use crate::witness::{Witness, done, only_messages};

/// A deadline that no test reaches.
fn late() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

/// A server, a client that holds, and one that waits for messages.
async fn stage() -> (Witness, LockClient, LockClient) {
    let witness = Witness::new().await;
    let holder = witness.a_client().await;
    let waiter = witness.client(only_messages()).await;
    (witness, holder, waiter)
}

/// A waiter whose reason completes leaves the lock to its holder, and nothing behind.
async fn is_stopped<K: Kind>(lock: impl Fn(&LockClient) -> Lock<K>) {
    let (witness, holder, waiter) = stage().await;
    let held = lock(&holder).lock().await.unwrap();
    witness.server.reset_calls().await;

    let (stop, waiting) = (CancellationToken::new(), lock(&waiter));
    let stopped = stop.clone();
    let task = tokio::spawn(async move { waiting.lock_unless(stopped.cancelled()).await });
    witness.have_run(1).await;
    assert!(!task.is_finished());
    stop.cancel();
    assert!(done("the wait stops", task).await.unwrap().is_none());

    assert_eq!(held.unlock().await, Ok(Released::Fully));
    witness.nothing_left().await;
    let guard = lock(&waiter).lock_unless(pending::<()>()).await.unwrap();
    assert_eq!(guard.unwrap().unlock().await, Ok(Released::Fully));
}

#[tokio::test]
async fn wait_for_a_lock_of_each_kind_ends_with_the_callers_future() {
    is_stopped(|client| client.reentrant_lock("order:42")).await;
    is_stopped(|client| client.fair_lock("order:42")).await;
    is_stopped(|client| client.spin_lock("order:42")).await;
    is_stopped(|client| client.non_reentrant_lock("order:42")).await;
    is_stopped(|client| client.simple_lock("order:42")).await;
    is_stopped(|client| client.read_write_lock("order:42").write().clone()).await;
    is_stopped(|client| client.spin_lock("order:42").into_dyn()).await;
}

#[tokio::test]
async fn reason_that_has_completed_before_sends_nothing() {
    let witness = Witness::new().await;
    let client = witness.a_client().await;
    let (lock, group) = (client.reentrant_lock("a"), client.multi_lock(["a", "b"]));
    witness.server.reset_calls().await;
    assert!(lock.lock_unless(ready(())).await.unwrap().is_none());
    assert!(
        group
            .lock_unless(ready("any output"))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(witness.scripts().await, 0);
}

/// The reason completes at each poll of a group in turn; its members are asked in several.
#[tokio::test]
async fn group_that_is_stopped_at_any_moment_leaves_nothing() {
    let witness = Witness::new().await;
    let client = witness.a_client().await;
    let group = client.multi_lock(["b", "c"]);
    for polls in 0.. {
        let stops = std::cell::Cell::new(0);
        let stop = poll_fn(|_| match stops.replace(stops.get() + 1) >= polls {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        let locked = group.lock_unless(stop).await.unwrap();
        if let Some(guard) = locked {
            assert!(polls > 1, "the wait has ended in its first poll");
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
            break;
        }
        witness.nothing_left().await;
    }
}

#[tokio::test]
async fn wait_for_a_group_ends_with_the_callers_future() {
    let (witness, holder, waiter) = stage().await;
    let held = holder.reentrant_lock("b").lock().await.unwrap();
    let (stop, group) = (CancellationToken::new(), waiter.multi_lock(["a", "b"]));
    let stopped = stop.clone();
    let task = tokio::spawn(async move { group.lock_unless(stopped.cancelled()).await });
    witness.has_a_subscriber("redisson_lock__channel:{b}").await;
    stop.cancel();
    assert!(done("the wait stops", task).await.unwrap().is_none());
    assert_eq!(held.unlock().await, Ok(Released::Fully));
    witness.nothing_left().await;
}

#[tokio::test]
async fn deadline_that_has_passed_makes_one_attempt() {
    let witness = Witness::new().await;
    let (client, other) = (witness.a_client().await, witness.a_client().await);
    let (lock, group) = (client.reentrant_lock("a"), client.multi_lock(["b", "c"]));
    let passed = Instant::now();
    let held = lock
        .try_lock_until(passed)
        .await
        .unwrap()
        .expect("it is free");
    assert!(
        other
            .reentrant_lock("a")
            .try_lock_until(passed)
            .await
            .unwrap()
            .is_none()
    );
    let both = group.try_lock_until(passed).await.unwrap();
    assert!(
        other
            .multi_lock(["c", "d"])
            .try_lock_until(passed)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        both.expect("they are free").unlock().await,
        Ok(Released::Fully)
    );
    assert_eq!(held.unlock().await, Ok(Released::Fully));
}

#[tokio::test]
async fn wait_lasts_until_its_deadline_and_no_longer() {
    let (witness, holder, waiter) = stage().await;
    let held = holder.reentrant_lock("a").lock().await.unwrap();
    let deadline = Instant::now() + Duration::from_millis(200);
    for _ in 0..2 {
        // The second call finds the deadline passed.
        let locked = waiter.reentrant_lock("a").try_lock_until(deadline).await;
        assert!(locked.unwrap().is_none());
        assert!(Instant::now() >= deadline);
    }
    let lock = waiter.reentrant_lock("a");
    let task = tokio::spawn(async move { lock.try_lock_until(late()).await });
    witness.has_a_subscriber("redisson_lock__channel:{a}").await;
    assert_eq!(held.unlock().await, Ok(Released::Fully));
    let guard = done("the waiter hears of the release", task).await.unwrap();
    assert_eq!(guard.unwrap().unlock().await, Ok(Released::Fully));
}

/// A thread's wait ends by a token that another thread cancels.
#[tokio::test]
async fn wait_of_a_thread_ends_with_its_token() {
    let witness = Witness::new().await;
    let holder = witness.a_client().await;
    let held = holder.reentrant_lock("a").lock().await.unwrap();
    let (url, stop) = (witness.server.url(), CancellationToken::new());
    let stopped = stop.clone();
    let thread = tokio::task::spawn_blocking(move || {
        let client = blocking::LockClient::connect(url).unwrap();
        let locked = client.reentrant_lock("a").lock_unless(&stopped).unwrap();
        let group = client.multi_lock(["a", "b"]);
        let both = group.lock_unless(&stopped).unwrap();
        let late_too = client
            .reentrant_lock("a")
            .try_lock_until(Instant::now())
            .unwrap();
        let neither = group.try_lock_until(Instant::now()).unwrap();
        locked.is_none() && both.is_none() && late_too.is_none() && neither.is_none()
    });
    witness.has_a_subscriber("redisson_lock__channel:{a}").await;
    stop.cancel();
    assert!(done("the thread goes on", thread).await);
    assert_eq!(held.unlock().await, Ok(Released::Fully));
    witness.nothing_left().await;
}
