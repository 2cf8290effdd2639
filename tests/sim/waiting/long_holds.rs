//! Log lines of long holds. Under a paused clock.

use std::time::Duration;

use redisson_lock::{Config, LockClient, Owner};
use redisson_lock_test::InMemoryRedis;
use tokio::time::sleep;

use crate::support::log_lines::LogLines;

const LINE: &str = "a task holds a lock for long";

/// A client that logs holds of this time.
async fn slow(server: &InMemoryRedis, slow_hold: Duration) -> LockClient {
    let config = Config::default().with_slow_hold(slow_hold);
    server.client_with(config).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_slow_hold_is_logged_once_with_its_owner() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = slow(&server, Duration::from_secs(60)).await;
    let owner = Owner::new();
    let held = client.reentrant_lock("a").owned_by(&owner).lock().await;
    let held = held.unwrap();
    let short = client.fair_lock("b").lock().await.unwrap();
    sleep(Duration::from_secs(59)).await;
    short.unlock().await.unwrap();
    assert_eq!(lines.with(LINE), [""; 0]);
    sleep(Duration::from_secs(6)).await;
    let told = lines.with(LINE);
    let [line] = &told[..] else {
        panic!("{told:#?}");
    };
    let by = format!("owner={}:{owner} ", client.id());
    assert!(line.contains("name=a ") && line.contains(&by), "{line}");
    assert!(line.contains("held=6"), "{line}");
    // A re-entry begins no new hold, and a renewal neither.
    let inner = client.reentrant_lock("a").owned_by(&owner).lock().await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(lines.with(LINE).len(), 1);
    for guard in [inner.unwrap(), held] {
        guard.unlock().await.unwrap();
    }
    // The next hold is another one, with a fixed lease too.
    let lock = client.reentrant_lock("a");
    let fixed = lock.with_lease(Duration::from_secs(3_600));
    let _held = fixed.lock().await.unwrap();
    sleep(Duration::from_secs(66)).await;
    assert_eq!(lines.with(LINE).len(), 2);
}

/// Each sort of hold: of a reader, of a leaked guard, and after a hand-off in memory.
#[tokio::test(start_paused = true)]
async fn every_sort_of_hold_is_logged() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = slow(&server, Duration::from_secs(1)).await;
    let shared = client.read_write_lock("read");
    let _reads = shared.read().lock().await.unwrap();
    client.simple_lock("leaked").lock().await.unwrap().leak();
    let handed = client.reentrant_lock("handed");
    let first = handed.lock().await.unwrap();
    let next = tokio::spawn({
        let lock = handed.clone();
        async move { lock.lock().await.unwrap() }
    });
    tokio::task::yield_now().await;
    first.unlock().await.unwrap();
    let _next = next.await.unwrap();
    sleep(Duration::from_secs(3)).await;
    for name in ["read", "leaked", "handed"] {
        let told = lines.with(&format!("name={name} "));
        assert_eq!(told.len(), 1, "{name}: {told:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_hold_is_logged_by_default_or_after_its_end() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let _held = client.reentrant_lock("a").lock().await.unwrap();
    let slow = slow(&server, Duration::from_secs(20)).await;
    // Lost at the server before its time.
    let lost = slow.reentrant_lock("b").lock().await.unwrap();
    server.delete("b");
    lost.lost().await;
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(lines.with(LINE), [""; 0]);
}
