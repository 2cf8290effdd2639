//! Tests that each gauge counts its own events and nothing else, on the page that Prometheus reads, with a server in memory.

mod ages;
mod page;
mod pages;
mod spans;

use std::time::Duration;

use page::Page;
use redisson_lock::{Error, LockClient, LostReason, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{sleep, timeout};

const REENTRANT: &str = "kind=\"reentrant\"";

async fn two(server: &InMemoryRedis) -> (LockClient, LockClient) {
    let one = server.client().await.unwrap();
    (one, server.client().await.unwrap())
}

fn acquisitions(outcome: &str) -> String {
    format!("redisson_lock_acquisitions_total{{{REENTRANT},outcome=\"{outcome}\"}}")
}

fn lost(reason: &str) -> String {
    format!("redisson_lock_lost_total{{{REENTRANT},reason=\"{reason}\"}}")
}

fn renewals(outcome: &str) -> String {
    format!("redisson_lock_renewals_total{{outcome=\"{outcome}\"}}")
}

fn wake_ups(cause: &str) -> String {
    format!("redisson_lock_wake_ups_total{{cause=\"{cause}\"}}")
}

fn holders() -> String {
    format!("redisson_lock_holders{{{REENTRANT}}}")
}

fn waiters() -> String {
    format!("redisson_lock_waiters{{{REENTRANT}}}")
}

#[tokio::test(start_paused = true)]
async fn acquisitions_are_counted_by_outcome() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let (one, other) = two(&server).await;
    let guard = one.reentrant_lock("a").lock().await.unwrap();
    assert!(
        other
            .reentrant_lock("a")
            .try_lock()
            .await
            .unwrap()
            .is_none()
    );
    let wait = Duration::from_secs(3);
    let late = other.reentrant_lock("a").try_lock_for(wait).await;
    assert!(late.unwrap().is_none());
    let lock = other.reentrant_lock("a");
    assert!(timeout(wait, lock.lock()).await.is_err());
    server.fail_next(1);
    let failed = one.reentrant_lock("b").try_lock().await;
    assert!(matches!(failed, Err(Error::Redis { .. })), "{failed:?}");
    server.stop();
    let unreached = one.reentrant_lock("c").try_lock().await;
    assert!(matches!(unreached, Err(Error::Unavailable { .. })));
    let outcomes = ["acquired", "busy", "cancelled", "failed", "unavailable"];
    let counted = outcomes.map(|outcome| page.number(&acquisitions(outcome)));
    assert_eq!(counted, [1.0, 2.0, 1.0, 1.0, 1.0]);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn acquisitions_are_counted_by_kind() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let client = server.client().await.unwrap();
    macro_rules! take {
        ($($lock:expr => $kind:literal,)*) => {
            $(drop($lock.lock().await.unwrap());
            let series = format!("redisson_lock_acquisitions_total{{kind=\"{}\",outcome=\"acquired\"}}", $kind);
            assert_eq!(page.number(&series), 1.0, "{series}");)*
        };
    }
    take! {
        client.reentrant_lock("reentrant") => "reentrant",
        client.spin_lock("spin") => "spin",
        client.non_reentrant_lock("non-reentrant") => "non-reentrant",
        client.fair_lock("fair") => "fair",
        client.non_reentrant_fair_lock("non-reentrant-fair") => "non-reentrant-fair",
        client.fenced_lock("fenced") => "fenced",
        client.read_write_lock("read").read() => "read",
        client.read_write_lock("write").write() => "write",
        client.simple_lock("simple") => "simple",
    }
}

#[tokio::test(start_paused = true)]
async fn waits_and_holds_are_timed_and_current_ones_counted() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let (one, other) = two(&server).await;
    let guard = one.reentrant_lock("a").lock().await.unwrap();
    assert_eq!(
        (page.number(&holders()), page.number(&waiters())),
        (1.0, 0.0)
    );
    let waits = tokio::spawn(async move { other.reentrant_lock("a").lock().await });
    sleep(Duration::from_secs(7)).await;
    assert_eq!(
        (page.number(&holders()), page.number(&waiters())),
        (1.0, 1.0)
    );
    assert_eq!(guard.unlock().await.unwrap(), Released::Fully);
    let second = waits.await.unwrap().unwrap();
    assert_eq!(
        (page.number(&holders()), page.number(&waiters())),
        (1.0, 0.0)
    );
    let wait = "redisson_lock_wait_seconds_sum{kind=\"reentrant\",outcome=\"acquired\"}";
    let waited = page.number(wait);
    assert!((7.0..7.5).contains(&waited), "{waited}");
    let hold = || page.number("redisson_lock_hold_seconds_sum{kind=\"reentrant\"}");
    let held = hold();
    assert!((7.0..7.5).contains(&held), "{held}");
    sleep(Duration::from_secs(2)).await;
    second.unlock().await.unwrap();
    assert!((9.0..9.6).contains(&hold()), "{}", hold());
    assert_eq!(page.number(&holders()), 0.0);
    let count = page.number("redisson_lock_hold_seconds_count{kind=\"reentrant\"}");
    assert_eq!(count, 2.0);
}

/// A holder is an owner with at least one hold, with or without a guard.
#[tokio::test(start_paused = true)]
async fn reentry_and_leak_leave_one_holder() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let client = server.client().await.unwrap();
    let lock = client.reentrant_lock("a");
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    assert_eq!(page.number(&holders()), 1.0);
    inner.unlock().await.unwrap();
    outer.leak();
    assert_eq!(page.number(&holders()), 1.0);
    lock.unlock().await.unwrap();
    assert_eq!(page.number(&holders()), 0.0);
    let holds = page.number("redisson_lock_hold_seconds_count{kind=\"reentrant\"}");
    assert_eq!(holds, 1.0);
}

/// The asker, the rest of the local queue and spinning waiters are counted in different places.
#[tokio::test(start_paused = true)]
async fn waiters_of_all_sorts_are_counted_once() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let (one, other) = two(&server).await;
    let held = one.reentrant_lock("a").lock().await.unwrap();
    let _spins = one.spin_lock("b").lock().await.unwrap();
    let first = other.reentrant_lock("a");
    let local = other.reentrant_lock("a");
    let (first, local) = (
        tokio::spawn(async move { first.lock().await }),
        tokio::spawn(async move { local.lock().await }),
    );
    let spinning = other.spin_lock("b");
    let spins = tokio::spawn(async move { spinning.lock().await });
    sleep(Duration::from_secs(1)).await;
    let spinners = "redisson_lock_waiters{kind=\"spin\"}";
    assert_eq!((page.number(&waiters()), page.number(spinners)), (2.0, 1.0));
    local.abort();
    spins.abort();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((page.number(&waiters()), page.number(spinners)), (1.0, 0.0));
    held.unlock().await.unwrap();
    drop(first.await.unwrap().unwrap());
    assert_eq!(page.number(&waiters()), 0.0);
}

#[tokio::test(start_paused = true)]
async fn lost_holds_are_counted_by_reason() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let (one, other) = two(&server).await;
    let gone = one.reentrant_lock("gone").lock().await.unwrap();
    server.delete("gone");
    assert_eq!(gone.lost().await, LostReason::Gone);
    assert_eq!(page.number(&renewals("gone")), 1.0);
    let short = one
        .reentrant_lock("expired")
        .with_lease(Duration::from_secs(1));
    let expired = short.lock().await.unwrap();
    assert_eq!(expired.lost().await, LostReason::Expired);
    let _closed = other.reentrant_lock("closed").lock().await.unwrap();
    other.shutdown().await;
    let counted = ["gone", "expired", "closed"].map(|reason| page.number(&lost(reason)));
    assert_eq!(counted, [1.0; 3]);
    assert_eq!(page.number(&holders()), 0.0);
}

#[tokio::test(start_paused = true)]
async fn renewals_are_counted_by_outcome() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let client = server.client().await.unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    sleep(Duration::from_secs(25)).await;
    assert_eq!(page.number(&renewals("renewed")), 2.0);
    server.fail_next(1);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(page.number(&renewals("refused")), 1.0);
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn wake_ups_are_counted_by_cause() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let (one, other) = two(&server).await;
    let waits = async |release: &dyn Fn()| {
        let lock = other.reentrant_lock("a");
        let (waited, ()) = tokio::join!(lock.lock(), async {
            sleep(Duration::from_secs(2)).await;
            release();
        });
        waited.unwrap().unlock().await.unwrap();
    };
    let causes = ["message", "poll", "reconnection"];
    let counted = || causes.map(|cause| page.number(&wake_ups(cause)));
    let guard = std::cell::Cell::new(Some(one.reentrant_lock("a").lock().await.unwrap()));
    waits(&|| drop(guard.take())).await;
    assert_eq!(counted(), [1.0, 0.0, 0.0]);
    one.reentrant_lock("a").lock().await.unwrap().leak();
    waits(&|| assert!(server.delete("a"))).await;
    let [messages, polls, _] = counted();
    assert!(messages == 1.0 && polls >= 1.0, "{messages} {polls}");
    let before = counted()[2];
    one.reentrant_lock("b").lock().await.unwrap().leak();
    let lock = other.reentrant_lock("b");
    let wait = timeout(Duration::from_secs(3), lock.lock());
    let (waited, ()) = tokio::join!(wait, async {
        sleep(Duration::from_secs(1)).await;
        server.disconnect();
    });
    assert!(waited.is_err());
    assert!(counted()[2] > before, "{:?}", counted());
}

#[tokio::test(start_paused = true)]
async fn local_hand_offs_are_counted_and_change_no_other_gauge() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let client = server.client().await.unwrap();
    let lock = client.reentrant_lock("a");
    let first = lock.lock().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    while page.number(&waiters()) == 0.0 {
        tokio::task::yield_now().await;
    }
    first.unlock().await.unwrap();
    let second = next.await.unwrap().unwrap();
    let hand_offs = format!("redisson_lock_hand_offs_total{{{REENTRANT}}}");
    assert_eq!(page.number(&hand_offs), 1.0);
    assert_eq!(page.number(&holders()), 1.0);
    second.unlock().await.unwrap();
    assert_eq!(
        (page.number(&hand_offs), page.number(&holders())),
        (1.0, 0.0)
    );
    let count = page.number("redisson_lock_hold_seconds_count{kind=\"reentrant\"}");
    assert_eq!(count, 2.0);
}

#[tokio::test(start_paused = true)]
async fn connections_are_counted_by_purpose() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let client = server.client().await.unwrap();
    sleep(Duration::from_secs(11)).await;
    let scripts = |what: &str| {
        page.number(&format!(
            "redisson_lock_{what}_total{{purpose=\"scripts\"}}"
        ))
    };
    assert_eq!(
        (scripts("disconnections"), scripts("reconnections")),
        (0.0, 0.0)
    );
    server.disconnect();
    sleep(Duration::from_secs(11)).await;
    assert_eq!(
        (scripts("disconnections"), scripts("reconnections")),
        (1.0, 1.0)
    );
    assert_eq!(scripts("failed_connects"), 0.0);
    server.stop();
    sleep(Duration::from_secs(3)).await;
    assert!(scripts("failed_connects") >= 1.0);
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn batches_are_measured() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let client = server.client().await.unwrap();
    let number = |what: &str| page.number(&format!("redisson_lock_batch_operations_{what}"));
    drop(client.reentrant_lock("a").try_lock().await.unwrap());
    sleep(Duration::from_secs(1)).await;
    let (calls, operations) = (number("count"), number("sum"));
    assert_eq!(calls, operations);
    let tasks = (0..64).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let guard = client.reentrant_lock(format!("b{number}")).lock().await;
            guard.unwrap().unlock().await.unwrap();
        })
    });
    for task in Vec::from_iter(tasks) {
        task.await.unwrap();
    }
    assert_eq!(number("sum"), operations + 128.0);
    assert!(number("count") < calls + 40.0, "{}", number("count"));
}
