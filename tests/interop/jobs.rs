//! Java beside a lock that `run_at_least` keeps: it is held, and free when its expiry is over.

use std::time::Duration;

use redisson_lock::{DynLock, JobOutcome, LockClient};

use crate::kinds::{Kind, Waits};
use crate::stage::{AMPLE, LONG, Pace, Stage, Version, now_ms, together};
use crate::worker::Lock;

fn lock_of(client: &LockClient, lock: &Lock) -> DynLock {
    let name = &*lock.name;
    match lock.kind.name {
        "fair" => client.fair_lock(name).into_dyn(),
        "write" => client.read_write_lock(name).write().clone().into_dyn(),
        "fenced" => client.fenced_lock(name).into_dyn(),
        "spin" => client.spin_lock(name).into_dyn(),
        "nonreentrant" => client.non_reentrant_lock(name).into_dyn(),
        "nonreentrantfair" => client.non_reentrant_fair_lock(name).into_dyn(),
        _ => client.reentrant_lock(name).into_dyn(),
    }
}

pub async fn a_lock_that_a_job_keeps_is_held_for_java_until_its_expiry(version: Version) {
    let stage = &version.own_stage(Pace::REDISSONS).await;
    let client = &LockClient::connect(stage.server.url()).await.unwrap();
    let mut cases = version.cases();
    cases.retain(|case| case.kind.name != "read");
    together(cases.iter().map(async |case| {
        is_held_for_java(stage, client, case.kind).await;
        // An old Redisson's fair waiter may sleep beside a free lock (P-F10).
        if case.kind.waits != Waits::Queued || !version.is_before(3, 38) {
            wakes_java(stage, client, case.kind).await;
        }
    }))
    .await;
}

async fn is_held_for_java(stage: &Stage, client: &LockClient, kind: &'static Kind) {
    let lock = Lock::new(kind);
    let (ours, java) = (lock_of(client, &lock), lock.worker(&stage.java));
    let ran = ours.run_at_least(LONG, async |_| 7).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(7)), "{}", kind.name);
    assert!(!java.try_lock().await, "{}: Java acquired it", kind.name);
    let (took, _) = java.try_lock_for(Duration::from_millis(200)).await;
    assert!(!took, "{}: Java acquired it", kind.name);
    assert!(java.is_locked().await && !java.is_held().await);
    assert_eq!(java.hold_count().await, 0);
    let left = java.remaining().await;
    let most = LONG.as_millis() as i64;
    assert!((most / 2..=most).contains(&left), "{}: {left}", kind.name);
    if !kind.unlock_forgives {
        java.refused_unlock().await;
    }
    assert!(matches!(
        ours.run_at_least(LONG, async |_| 8).await,
        Ok(JobOutcome::Done { .. })
    ));
    assert!(java.force_unlock().await);
    let ran = ours.run_at_least(LONG, async |_| 9).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(9)), "{}", kind.name);
    assert!(ours.force_unlock().await.unwrap());
    assert!(java.try_lock().await, "{}", kind.name);
    java.unlock().await;
}

/// A Java thread that waits expects the watchdog's lease of 30 s. The end of the body tells it the rest.
async fn wakes_java(stage: &Stage, client: &LockClient, kind: &'static Kind) {
    let lock = Lock::new(kind);
    let (ours, java) = (lock_of(client, &lock), lock.worker(&stage.java));
    let least = Duration::from_secs(5);
    let mut waiting = None;
    let body = async |_: &_| {
        waiting = Some(java.lock());
        stage.waiting(&lock).await;
    };
    let began = now_ms();
    let ran = ours.run_at_least(least, body).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(())), "{}", kind.name);
    let waiting = waiting.expect("the body has run");
    let inside = tokio::time::timeout(AMPLE, waiting).await;
    let inside = inside.unwrap_or_else(|_| panic!("{}: Java still waits", kind.name));
    assert!(inside + 20 >= began + 5_000, "{}: too early", kind.name);
    java.unlock().await;
}
