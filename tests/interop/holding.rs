//! The holder, its holds and their lease look the same from both sides.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use testbed::eventually;

use crate::kinds::Kind;
use crate::stage::{AMPLE, Case, LONG, Pace, Stage, Version, together};
use crate::worker::{Lock, Worker};

pub async fn excludes(case: Case) {
    let stage = case.stage().await;
    for (holder, other) in stage.both_ways(case.kind) {
        let watcher = holder.lock.worker(other.peer);
        holder.lock().await;
        assert!(
            !other.try_lock().await,
            "{other} acquired the lock beside {holder}"
        );
        assert!(holder.is_held().await && !other.is_held().await && !watcher.is_held().await);
        assert!(holder.is_locked().await && watcher.is_locked().await);
        other.refused_unlock().await;
        assert!(holder.is_held().await, "{other} unlocked {holder}'s hold");

        holder.unlock().await;
        assert!(!watcher.is_locked().await && !holder.is_locked().await);
        assert!(
            other.try_lock().await,
            "{other} did not acquire a free lock"
        );
        assert!(
            !holder.try_lock().await,
            "{holder} acquired the lock beside {other}"
        );
        other.unlock().await;
        let (holder_took, other_took) = (holder.try_lock().await, other.try_lock().await);
        assert!(holder_took && !other_took);
        holder.unlock().await;
    }
}

pub async fn a_wait_has_its_limit(case: Case) {
    let stage = case.stage().await;
    for (holder, waiter) in stage.both_ways(case.kind) {
        holder.lock_for(LONG).await;
        let limit = Duration::from_millis(700);
        let (took, waited) = waiter.try_lock_for(limit).await;
        assert!(!took, "{waiter} acquired the lock beside {holder}");
        // Clocks are read in whole ms.
        let least = limit - Duration::from_millis(2);
        assert!(least <= waited && waited < AMPLE, "{waiter}: {waited:?}");
        holder.unlock().await;
        assert!(waiter.try_lock_for(AMPLE).await.0);
        waiter.unlock().await;
    }
}

pub async fn counts_and_leases_are_seen_equal(case: Case) {
    let stage = case.stage().await;
    let most = if case.kind.reenters { 3 } else { 1 };
    for (holder, other) in stage.both_ways(case.kind) {
        let field = holder.field().await;
        let lease = Duration::from_secs(30);
        for count in 1..=most {
            holder.lock().await;
            assert_eq!(holder.hold_count().await, count);
            assert_eq!(other.hold_count().await, 0);
            let expected = BTreeMap::from([(field.clone(), count.to_string())]);
            assert_eq!(stage.fields(&holder.lock).await, expected);
            let leases = if case.kind.leases_differ { count } else { 1 };
            leases_are_equal(&stage, &holder.lock, lease..=lease * leases).await;
        }
        for count in (1..most).rev() {
            holder.unlock().await;
            assert_eq!(holder.hold_count().await, count);
            let expected = BTreeMap::from([(field.clone(), count.to_string())]);
            assert_eq!(stage.fields(&holder.lock).await, expected);
            assert!(!other.try_lock().await, "{holder} still holds it");
            leases_are_equal(&stage, &holder.lock, lease..=lease).await;
        }
        holder.unlock().await;
        assert_eq!(stage.pttl(&holder.lock).await, -2);
        assert_eq!(
            (holder.remaining().await, other.remaining().await),
            (-2, -2)
        );

        holder.lock_for(LONG).await;
        leases_are_equal(&stage, &holder.lock, LONG..=LONG).await;
        holder.unlock().await;
    }
}

/// Both sides report the server's value, which is one of the `leases` less some time. A renewal between two of the values makes the
/// later one greater: they are read again then. A starved machine may answer so slowly that this happens several times.
async fn leases_are_equal(stage: &Stage, lock: &Lock, leases: RangeInclusive<Duration>) {
    let [least, most] = [leases.start(), leases.end()].map(|lease| lease.as_millis() as i64);
    let begin = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 10 {
        let before = stage.pttl(lock).await;
        let java = lock.worker(&stage.java).remaining().await;
        let rust = lock.worker(&stage.rust).remaining().await;
        let after = stage.pttl(lock).await;
        seen.push(format!(
            "server {before}, Java {java}, Rust {rust}, server {after} after {:?}",
            begin.elapsed()
        ));
        assert!(least - 9_000 < before && before <= most, "{seen:#?}");
        // Time within a script stands still, so the script's clock may lag.
        let falls = |earlier: i64, later: i64| earlier + 20 >= later;
        if falls(before, java) && falls(java, rust) && falls(rust, after) {
            return;
        }
    }
    panic!("{seen:#?}");
}

pub async fn owners_look_like_redissons(case: Case) {
    let stage = case.stage().await;
    for peer in [&stage.java, &stage.rust] {
        let lock = Lock::new(case.kind);
        let holder = lock.worker(peer);
        holder.lock_for(LONG).await;
        let fields = stage.fields(&lock).await;
        let fields: Vec<&String> = fields.keys().collect();
        let [field] = fields[..] else {
            panic!("not one field: {fields:?}");
        };
        assert_eq!(*field, holder.field().await);
        let owner = field
            .strip_suffix(case.kind.field_ends)
            .expect("the field has the suffix");
        let (client, number) = owner.split_once(':').expect("<client id>:<n>");
        assert!(is_uuid(client), "{field}");
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        assert!(digits && number.parse::<i64>().is_ok(), "{field}");
        holder.unlock().await;
    }
}

/// Whether the text matches `^[0-9a-f-]{36}$`.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

pub async fn a_forced_unlock_frees_and_wakes(case: Case) {
    let stage = case.stage().await;
    for (holder, waiter) in stage.both_ways(case.kind) {
        let other = holder.lock.worker(waiter.peer);
        assert!(!other.force_unlock().await, "no owner holds the lock");
        holder.lock_for(LONG).await;
        if case.kind.reenters {
            holder.lock_for(LONG).await;
        }
        let waiting = waiter.lock_for(LONG);
        stage.waiting(&holder.lock).await;
        assert!(other.force_unlock().await, "{holder} holds the lock");
        waiting.await;
        assert!(!holder.is_held().await && waiter.is_held().await);
        assert_eq!(holder.hold_count().await, 0);
        let refused = holder.refused_unlock().await;
        assert!(
            ["IllegalMonitorStateException", "Lost"].contains(&&refused[..]),
            "{refused}"
        );
        assert!(
            waiter.is_held().await,
            "{holder}'s late unlock affected {waiter}"
        );
        waiter.unlock().await;
        // The owner that was forced out can acquire the lock again.
        assert!(holder.lock.worker(holder.peer).try_lock().await);
    }
}

/// Java's `forceUnlock` sends the holder no report. The next renewal finds the loss.
pub async fn a_rust_holder_learns_that_java_forced_it_out(version: Version) {
    let stage = &version.own_stage(Pace::SHORT_LEASES).await;
    together(version.cases().iter().map(async |case| {
        forced_out(stage, case.kind).await;
    }))
    .await;
}

async fn forced_out(stage: &Stage, kind: &'static Kind) {
    let lock = Lock::new(kind);
    let (holder, other) = (lock.worker(&stage.rust), lock.worker(&stage.java));
    holder.lock().await;
    let is_lost = async || {
        let answer = holder.ask("islost", &[]).await;
        answer.unwrap_or_else(|refused| panic!("{refused}"))[0] == "true"
    };
    assert!(!is_lost().await);
    assert!(other.force_unlock().await);
    let next = other.with(kind.rival);
    next.lock_for(LONG).await;
    let what = format!("the holder of {} learns of the loss", kind.name);
    eventually(&what, AMPLE, is_lost).await;
    assert_eq!(holder.refused_unlock().await, "Lost");
    assert!(next.is_held().await);
}

pub async fn a_counter_that_only_the_lock_protects(case: Case) {
    let stage = case.stage().await;
    let lock = Lock::new(case.kind);
    let peers = [&stage.java, &stage.rust].repeat(4);
    let workers: Vec<_> = peers.into_iter().map(|peer| lock.worker(peer)).collect();
    count(&stage, &workers, 100).await;
    assert_eq!(stage.pttl(&lock).await, -2, "the lock is still held");
}

/// Each worker counts `times` times on one counter.
pub async fn count(stage: &Stage, workers: &[Worker<'_>], times: usize) {
    let counter = stage.server.name("counter").await;
    let working: Vec<_> = workers
        .iter()
        .map(|worker| worker.ask("work", &[&counter, &times.to_string()]))
        .collect();
    for worker in working {
        worker.await.unwrap_or_else(|refused| panic!("{refused}"));
    }
    let counted: usize = stage.server.command(&["GET", &counter]).await;
    assert_eq!(counted, workers.len() * times, "increments were lost");
}
