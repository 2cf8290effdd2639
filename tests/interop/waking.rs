//! Waiters that the other side wakes. No lease ends and no poll comes, so only a message wakes
//! them.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::kinds::{REENTRANT, SPIN};
use crate::stage::{AMPLE, Case, LONG, Version, now_ms};
use crate::worker::{Lock, Worker};

/// The limit from the request to unlock until the waiter has the lock. The best of some rounds
/// counts, because the machine may be busy.
const WOKEN_WITHIN_MS: u64 = 250;

pub async fn an_unlock_wakes_a_waiter(case: Case) {
    let stage = case.stage().await;
    for (holder, waiter) in stage.both_ways(case.kind) {
        let mut took = Vec::new();
        for _ in 0..5 {
            stage.listening(&holder.lock, 0).await;
            holder.lock_for(LONG).await;
            let waiting = waiter.lock_for(LONG);
            stage.waiting(&holder.lock).await;
            let asked = now_ms();
            holder.unlock().await;
            took.push(waiting.await.saturating_sub(asked));
            assert!(!holder.try_lock().await, "{waiter} holds the lock");
            waiter.unlock().await;
        }
        let best = *took.iter().min().expect("there were rounds");
        let what = format!("{waiter} was woken by {holder} after (ms) {took:?}");
        assert!(best <= WOKEN_WITHIN_MS, "{what}");
        println!("{what}");
    }
}

/// Unlike Redisson's, this crate's spin lock announces its release, to a waiter for the same name
/// with a plain lock.
pub async fn a_spin_lock_wakes_plain_waiters(version: Version) {
    let stage = version.stage().await;
    let lock = Lock::new(&SPIN);
    let holder = lock.worker(&stage.rust);
    // A waiter of the same process would stand in the local queue.
    let waiter = lock.of(&REENTRANT).worker(&stage.java);
    holder.lock_for(LONG).await;
    let waiting = waiter.lock_for(LONG);
    stage.waiting(&waiter.lock).await;
    holder.unlock().await;
    let inside = timeout(AMPLE, waiting).await;
    inside.unwrap_or_else(|_| panic!("{waiter} sleeps"));
    waiter.unlock().await;
}

/// Waiters of one process, which share a subscription, and of both processes.
pub async fn every_unlock_wakes_one_waiter(case: Case) {
    let stage = case.stage().await;
    for (holder, other) in stage.both_ways(case.kind) {
        for waiters in [
            [other.peer, other.peer, other.peer],
            [other.peer, holder.peer, other.peer],
        ] {
            let lock = Lock::new(case.kind);
            let holder = lock.worker(holder.peer);
            holder.lock_for(LONG).await;
            let waiters = waiters.map(|peer| lock.rival().worker(peer));
            one_by_one(&holder, &waiters).await;
        }
    }
}

async fn one_by_one(holder: &Worker<'_>, waiters: &[Worker<'_>]) {
    let mut waiting = JoinSet::new();
    for (index, waiter) in waiters.iter().enumerate() {
        let inside = waiter.lock_for(LONG);
        waiting.spawn(async move {
            inside.await;
            index
        });
    }
    // Gives all of them time to wait. One that comes later is admitted too.
    assert_none_comes(&mut waiting, Duration::from_millis(300)).await;
    let mut inside = holder;
    while !waiting.is_empty() {
        inside.unlock().await;
        let next = timeout(AMPLE, waiting.join_next()).await;
        let next = next.unwrap_or_else(|_| panic!("{inside}'s unlock has woken no waiter"));
        inside = &waiters[next
            .expect("a task waits")
            .expect("the waiter acquires the lock")];
        assert_none_comes(&mut waiting, Duration::from_millis(100)).await;
    }
    inside.unlock().await;
}

async fn assert_none_comes(waiting: &mut JoinSet<usize>, pause: Duration) {
    if waiting.is_empty() {
        return;
    }
    if let Ok(second) = timeout(pause, waiting.join_next()).await {
        panic!("a second worker holds the lock: {second:?}");
    }
}

pub async fn a_dropped_guard_wakes_java(case: Case) {
    let stage = case.stage().await;
    let lock = Lock::new(case.kind);
    let (holder, waiter) = (lock.worker(&stage.rust), lock.rival().worker(&stage.java));
    holder.lock_for(LONG).await;
    if case.kind.reenters {
        holder.lock_for(LONG).await;
    }
    let waiting = waiter.lock_for(LONG);
    stage.waiting(&lock).await;
    let drop_one = async || {
        let dropped = holder.ask("drop", &[]).await;
        dropped.unwrap_or_else(|refused| panic!("{refused}"));
    };
    if case.kind.reenters {
        drop_one().await;
        let field = holder.field().await;
        testbed::eventually("one hold is released", AMPLE, async || {
            stage.fields(&lock).await.get(&field).map(String::as_str) == Some("1")
        })
        .await;
    }
    drop_one().await;
    waiting.await;
    waiter.unlock().await;
}
