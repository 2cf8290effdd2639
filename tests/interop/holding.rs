//! Who holds the lock, how often and for how long: both sides see the same.

use std::collections::BTreeMap;
use std::time::Duration;

use testbed::{Peer, eventually, unique_name};

use crate::stage::{AMPLE, Case, LONG, Lock, Stage};

pub async fn excludes(case: Case) {
    let stage = case.stage().await;
    for (holder, other) in stage.both_ways(case.kind) {
        holder.lock().await;
        assert!(!other.try_lock().await, "{other} took what {holder} holds");
        assert!(holder.is_held().await && !other.is_held().await);
        assert!(holder.is_locked().await && other.is_locked().await);
        other.refused_unlock().await;
        assert!(other.is_locked().await, "{other} unlocked {holder}'s hold");

        holder.unlock().await;
        assert!(!other.is_locked().await && !holder.is_locked().await);
        assert!(other.try_lock().await, "{other} did not take a free lock");
        assert!(!holder.try_lock().await, "{holder} took what {other} holds");
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
        let limit = Duration::from_millis(400);
        let (took, waited) = waiter.try_lock_for(limit).await;
        assert!(!took, "{waiter} took what {holder} holds");
        assert!(limit <= waited && waited < AMPLE, "{waiter}: {waited:?}");
        holder.unlock().await;
        assert!(waiter.try_lock_for(AMPLE).await.0);
        waiter.unlock().await;
    }
}

pub async fn counts_and_leases_are_seen_equal(case: Case) {
    let stage = case.stage().await;
    for (holder, other) in stage.both_ways(case.kind) {
        let field = holder.field().await;
        let lease = Duration::from_secs(30);
        for count in [1, 2, 3] {
            holder.lock().await;
            assert_eq!(holder.hold_count().await, count);
            assert_eq!(other.hold_count().await, 0);
            let expected = BTreeMap::from([(field.clone(), count.to_string())]);
            assert_eq!(stage.fields(&holder.lock).await, expected);
            leases_are_equal(&stage, &holder.lock, lease).await;
        }
        for count in [2, 1] {
            holder.unlock().await;
            assert_eq!(holder.hold_count().await, count);
            let expected = BTreeMap::from([(field.clone(), count.to_string())]);
            assert_eq!(stage.fields(&holder.lock).await, expected);
            assert!(!other.try_lock().await, "{holder} still holds it");
            leases_are_equal(&stage, &holder.lock, lease).await;
        }
        holder.unlock().await;
        assert_eq!(stage.pttl(&holder.lock).await, -2);
        assert_eq!(
            (holder.remaining().await, other.remaining().await),
            (-2, -2)
        );

        holder.lock_for(LONG).await;
        leases_are_equal(&stage, &holder.lock, LONG).await;
        holder.unlock().await;
    }
}

/// Both say what the server says, which is `lease` less some time.
async fn leases_are_equal(stage: &Stage, lock: &Lock, lease: Duration) {
    let before = stage.pttl(lock).await;
    let java = lock.worker(&stage.java).remaining().await;
    let rust = lock.worker(&stage.rust).remaining().await;
    let after = stage.pttl(lock).await;
    let seen = format!("server {before}, Java {java}, Rust {rust}, server {after}");
    let lease = lease.as_millis() as i64;
    assert!(lease - 9_000 < before && before <= lease, "{seen}");
    assert!(before >= java && java >= rust && rust >= after, "{seen}");
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
            .expect("it ends so");
        let (client, number) = owner.split_once(':').expect("<client id>:<n>");
        assert!(is_uuid(client), "{field}");
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        assert!(digits && number.parse::<i64>().is_ok(), "{field}");
        holder.unlock().await;
    }
}

/// Whether it is what `^[0-9a-f-]{36}$` matches.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

pub async fn a_forced_unlock_frees_and_wakes(case: Case) {
    let stage = case.stage().await;
    for (holder, other) in stage.both_ways(case.kind) {
        assert!(!other.force_unlock().await, "nobody held it");
        holder.lock_for(LONG).await;
        holder.lock_for(LONG).await;
        let waiter = other.lock.worker(other.peer);
        let waiting = waiter.lock_for(LONG);
        stage.waiting(&holder.lock).await;
        assert!(other.force_unlock().await, "{holder} held it");
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
            "{holder}'s late unlock harmed {waiter}"
        );
        waiter.unlock().await;
        // The one who was forced out can take it again.
        assert!(holder.lock.worker(holder.peer).try_lock().await);
    }
}

/// A Java service does not tell the holder whom it forces out; the next renewal does.
pub async fn a_rust_holder_hears_that_java_forced_it_out(case: Case) {
    let watchdog = Duration::from_secs(3);
    let stage = case.own_stage(Some(watchdog)).await;
    let lock = Lock::new(case.kind);
    let (holder, other) = (lock.worker(&stage.rust), lock.worker(&stage.java));
    holder.lock().await;
    let is_lost = async || {
        let answer = holder.ask("islost", &[]).await;
        answer.unwrap_or_else(|refused| panic!("{refused}"))[0] == "true"
    };
    assert!(!is_lost().await);
    assert!(other.force_unlock().await);
    other.lock_for(LONG).await;
    eventually("the holder hears of it", AMPLE, is_lost).await;
    assert_eq!(holder.refused_unlock().await, "Lost");
    assert!(other.is_held().await);
}

pub async fn a_counter_that_only_the_lock_protects(case: Case) {
    const WORKERS: usize = 4;
    const TIMES: usize = 100;
    let stage = case.stage().await;
    let lock = Lock::new(case.kind);
    let counter = unique_name("counter");
    let times = TIMES.to_string();
    let work = |peer: &Peer| {
        let worker = lock.worker(peer);
        worker.ask("work", &[&counter, &times])
    };
    let working: Vec<_> = [&stage.java, &stage.rust]
        .iter()
        .flat_map(|peer| [work(peer), work(peer), work(peer), work(peer)])
        .collect();
    assert_eq!(working.len(), 2 * WORKERS);
    for worker in working {
        worker.await.unwrap_or_else(|refused| panic!("{refused}"));
    }
    let counted: usize = stage.server.command(&["GET", &counter]).await;
    assert_eq!(counted, 2 * WORKERS * TIMES, "increments were lost");
    assert_eq!(stage.pttl(&lock).await, -2, "the lock is still held");
}
