//! Leases: those that are renewed, those that run out, and those of the dead.

use std::time::{Duration, Instant};

use crate::stage::{AMPLE, Case, Stage, Worker, now_ms, rust_peer};

/// The watchdog lease, on both sides, where the test has to outlast it.
const WATCHDOG: Duration = Duration::from_secs(3);
/// Clocks: the server's knows ms, and each process reads its own.
const EARLY_MS: u64 = 20;
/// How late a takeover may be, on a busy machine.
const LATE_MS: u64 = 3_000;

pub async fn a_lease_that_runs_out_lets_the_next_in(case: Case) {
    let stage = case.stage().await;
    for (holder, waiter) in stage.both_ways(case.kind) {
        let lease = Duration::from_millis(1_500);
        let asked = now_ms();
        holder.lock_for(lease).await;
        let waiting = waiter.lock();
        let until = now_ms() + lease.as_millis() as u64;
        let inside = waiting.await;
        assert!(
            inside + EARLY_MS >= asked + 1_500,
            "{waiter} came {} ms after the start",
            inside - asked
        );
        assert!(
            inside <= until + LATE_MS,
            "{waiter} came {} ms late",
            inside - until
        );
        assert!(!holder.is_held().await && waiter.is_held().await);
        holder.refused_unlock().await;
        assert!(
            waiter.is_held().await,
            "{holder}'s late unlock harmed {waiter}"
        );
        waiter.unlock().await;
    }
}

pub async fn the_watchdog_outlives_the_lease(case: Case) {
    let stage = case.own_stage(Some(WATCHDOG)).await;
    let [java_holds, rust_holds] = stage.both_ways(case.kind);
    tokio::join!(watched(&stage, java_holds), watched(&stage, rust_holds));
}

async fn watched(stage: &Stage, (holder, other): (Worker<'_>, Worker<'_>)) {
    holder.lock().await;
    let (start, mut renewals, mut last) = (Instant::now(), 0, i64::MAX);
    while start.elapsed() < WATCHDOG * 5 / 2 {
        assert!(!other.try_lock().await, "{other} took what {holder} holds");
        let left = other.remaining().await;
        assert!(
            0 < left && left <= WATCHDOG.as_millis() as i64,
            "{holder}: {left} ms left"
        );
        renewals += u32::from(left > last);
        last = left;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(renewals >= 3, "{holder} renewed {renewals} times");
    assert!(holder.is_held().await, "{holder} lost it");
    holder.unlock().await;
    assert!(other.try_lock().await, "{holder} has unlocked it");
    // Renewals of a hold that is over would keep another's hold alive, or fail.
    let field = other.field().await;
    assert_eq!(
        stage
            .fields(&other.lock)
            .await
            .into_keys()
            .collect::<Vec<_>>(),
        [field]
    );
    other.unlock().await;
    assert_eq!(stage.pttl(&holder.lock).await, -2);
}

pub async fn a_crash_is_taken_over_after_the_lease(case: Case) {
    let mut stage = case.own_stage(Some(WATCHDOG)).await;
    let [_, rust_holds] = stage.both_ways(case.kind);
    crash(&stage, rust_holds).await;
    stage.rust = rust_peer(&stage.server, Some(WATCHDOG)).await;
    let [java_holds, _] = stage.both_ways(case.kind);
    crash(&stage, java_holds).await;
}

/// The holder's process is killed; the waiter comes in when the lease ends that nobody renews any more.
async fn crash(stage: &Stage, (holder, waiter): (Worker<'_>, Worker<'_>)) {
    holder.lock().await;
    let waiting = waiter.lock();
    stage.listening(&holder.lock, 1).await;
    // Longer than the waiter was told to wait: it asks, is told to go on waiting, and does.
    let renewed = now_ms() + WATCHDOG.as_millis() as u64;
    testbed::eventually("the hold outlives its first lease", AMPLE, async || {
        now_ms() > renewed && stage.pttl(&holder.lock).await > 0
    })
    .await;
    let asked = now_ms();
    let left = stage.pttl(&holder.lock).await;
    let left = u64::try_from(left).expect("it is held, for a time");
    holder.peer.kill();
    let killed = now_ms();
    let inside = waiting.await;
    let after = inside.saturating_sub(killed);
    assert!(
        inside + EARLY_MS >= asked + left,
        "{waiter} came in after {after} ms; {left} ms were left"
    );
    let lease = WATCHDOG.as_millis() as u64;
    assert!(
        after <= lease + LATE_MS,
        "{waiter} came in only after {after} ms"
    );
    waiter.unlock().await;
}
