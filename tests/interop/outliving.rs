//! Leases that are renewed, that expire, and that dead holders leave. All kinds run at once,
//! because most of the time is waiting.

use std::time::{Duration, Instant};

use testbed::Peer;

use crate::kinds::Waits;
use crate::stage::{AMPLE, Pace, Stage, Version, now_ms, together};
use crate::worker::{Lock, Worker};

/// Clocks differ by this much: the server's has ms, and each process has its own.
const EARLY_MS: u64 = 20;
/// The greatest delay of an acquisition on a busy machine.
const LATE_MS: u64 = 12_000;

pub async fn a_waiter_acquires_the_lock_after_an_expired_lease(version: Version) {
    let stage = &*version.stage().await;
    let company = &company(version, stage).await;
    together(version.cases().iter().map(async |case| {
        for (holder, waiter) in stage.both_ways(case.kind) {
            lease_runs_out(stage, &holder, &waiter, company.as_ref()).await;
        }
    }))
    .await;
}

/// An old Redisson's fair waiter may sleep beside a free lock as long as its entry lasts. A waiter of
/// this crate wakes it (P-F10): this peer.
async fn company(version: Version, stage: &Stage) -> Option<Peer> {
    let sleeps = version.is_before(3, 38);
    if sleeps {
        Some(stage.rust_peer(Pace::SHORT_PLACES).await)
    } else {
        None
    }
}

/// Starts the second waiter, if there is one, behind the first.
async fn join(stage: &Stage, lock: &Lock, company: Option<&Peer>) {
    if let (Some(peer), Waits::Queued) = (company, lock.kind.waits) {
        stage.listening(lock, 1).await;
        let _unanswered = lock.worker(peer).lock();
    }
}

async fn lease_runs_out(
    stage: &Stage,
    holder: &Worker<'_>,
    waiter: &Worker<'_>,
    company: Option<&Peer>,
) {
    let subject = format!("{}: {holder}'s waiter in {waiter}", holder.lock.kind.name);
    let lease = Duration::from_millis(1_500);
    let asked = now_ms();
    holder.lock_for(lease).await;
    let until = now_ms() + lease.as_millis() as u64;
    let waiting = waiter.lock();
    join(stage, &holder.lock, company).await;
    let inside = waiting.await;
    assert!(
        inside + EARLY_MS >= asked + 1_500,
        "{subject} acquired the lock {} ms after the start",
        inside - asked
    );
    assert!(
        inside <= until + LATE_MS,
        "{subject} acquired the lock {} ms late",
        inside - until
    );
    assert!(
        !holder.is_held().await && waiter.is_held().await,
        "{subject}"
    );
    holder.refused_unlock().await;
    assert!(
        waiter.is_held().await,
        "{subject} lost its hold by a late unlock"
    );
    waiter.unlock().await;
}

pub async fn the_watchdog_outlives_the_lease(version: Version) {
    let stage = &version.own_stage(Pace::SHORT_LEASES).await;
    together(version.cases().iter().map(async |case| {
        let [java_holds, rust_holds] = stage.both_ways(case.kind);
        tokio::join!(watched(stage, java_holds), watched(stage, rust_holds));
    }))
    .await;
}

async fn watched(stage: &Stage, (holder, other): (Worker<'_>, Worker<'_>)) {
    let watchdog = Pace::SHORT_LEASES.watchdog;
    let subject = format!("{holder}'s {}", holder.lock.kind.name);
    let watcher = holder.lock.worker(other.peer);
    holder.lock().await;
    let (start, mut renewals, mut last) = (Instant::now(), 0, i64::MAX);
    while start.elapsed() < watchdog * 5 / 2 {
        assert!(!other.try_lock().await, "{other} acquired {subject}");
        let left = watcher.remaining().await;
        assert!(
            0 < left && left <= watchdog.as_millis() as i64,
            "{subject}: {left} ms left"
        );
        renewals += u32::from(left > last);
        last = left;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(renewals >= 3, "{subject} was renewed {renewals} times");
    assert!(holder.is_held().await, "{subject} was lost");
    holder.unlock().await;
    assert!(other.try_lock().await, "{subject} was not unlocked");
    // A renewal of a hold that has ended would keep another owner's hold alive, or fail.
    let field = other.field().await;
    let fields = stage.fields(&other.lock).await;
    assert_eq!(fields.into_keys().collect::<Vec<_>>(), [field], "{subject}");
    other.unlock().await;
    assert_eq!(stage.pttl(&holder.lock).await, -2, "{subject}");
}

pub async fn a_dead_java_holder_is_followed_after_the_lease(version: Version) {
    let stage = version.own_stage(Pace::SHORT_LEASES).await;
    let holders = version.cases().into_iter().map(|case| {
        let [java_holds, _] = stage.both_ways(case.kind);
        java_holds
    });
    crash(&stage, holders.collect(), None).await;
}

pub async fn a_dead_rust_holder_is_followed_after_the_lease(version: Version) {
    let stage = version.own_stage(Pace::SHORT_LEASES).await;
    let holders = version.cases().into_iter().map(|case| {
        let [_, rust_holds] = stage.both_ways(case.kind);
        rust_holds
    });
    let company = company(version, &stage).await;
    crash(&stage, holders.collect(), company.as_ref()).await;
}

/// The holders' process is killed, and the waiters acquire the locks when the leases end. The
/// second waiters, if any, wait behind them.
async fn crash(stage: &Stage, pairs: Vec<(Worker<'_>, Worker<'_>)>, company: Option<&Peer>) {
    let lease = Pace::SHORT_LEASES.watchdog.as_millis() as u64;
    let mut waiting = Vec::new();
    for (holder, waiter) in &pairs {
        holder.lock().await;
        waiting.push(waiter.lock());
        stage.listening(&holder.lock, 1).await;
        join(stage, &holder.lock, company).await;
    }
    // A time longer than the refusals' leases: the waiters ask again and wait on.
    let renewed = now_ms() + lease;
    for (holder, _) in &pairs {
        testbed::eventually("the hold outlives its first lease", AMPLE, async || {
            now_ms() > renewed && stage.pttl(&holder.lock).await > 0
        })
        .await;
    }
    let mut ends = Vec::new();
    for (holder, _) in &pairs {
        let asked = now_ms();
        let left = stage.pttl(&holder.lock).await;
        ends.push(asked + u64::try_from(left).expect("the lock is held with a lease"));
    }
    pairs[0].0.peer.kill();
    let killed = now_ms();
    for (((_, waiter), waiting), end) in pairs.iter().zip(waiting).zip(ends) {
        let inside = waiting.await;
        let after = inside.saturating_sub(killed);
        let subject = format!("{waiter}'s {}", waiter.lock.kind.name);
        assert!(
            inside + EARLY_MS >= end,
            "{subject} acquired the lock after {after} ms, {} ms too early",
            end - inside
        );
        assert!(
            after <= lease + LATE_MS,
            "{subject} acquired the lock only after {after} ms"
        );
        waiter.unlock().await;
    }
}
