//! Extensions of holds by their owners.

use std::time::{Duration, Instant};

use redisson_lock::{Config, Error, LockClient, LostReason, Released};
use testbed::{Server, eventually};

async fn bed() -> (Server, LockClient) {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    (server, client)
}

const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(60);

fn lasts(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

#[tokio::test]
async fn a_fixed_lease_of_every_kind_is_lengthened_and_never_shortened() {
    let (server, client) = bed().await;
    macro_rules! lasts_longer {
        ($lock:expr) => {{
            let lock = $lock.with_lease(SHORT);
            let guard = lock.lock().await.unwrap();
            assert!(lasts(guard.valid_until()) <= SHORT);
            assert_eq!(guard.extend(LONG).await, Ok(()));
            let left = lock.remaining_lease().await.unwrap().unwrap();
            let valid = lasts(guard.valid_until());
            assert!(valid > LONG / 2 && valid < left, "{valid:?} of {left:?}");
            assert_eq!(guard.extend(SHORT).await, Ok(()));
            let left = lock.remaining_lease().await.unwrap().unwrap();
            assert!(left > LONG / 2, "{left:?}");
            assert!(lasts(guard.valid_until()) > LONG / 2);
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
        }};
    }
    lasts_longer!(client.reentrant_lock("a"));
    lasts_longer!(client.fair_lock("b"));
    lasts_longer!(client.fenced_lock("c"));
    lasts_longer!(client.spin_lock("d"));
    lasts_longer!(client.non_reentrant_lock("e"));
    lasts_longer!(client.simple_lock("f"));
    lasts_longer!(client.read_write_lock("g").read());
    lasts_longer!(client.read_write_lock("g").write());
    assert_eq!(server.command::<Vec<String>>(&["KEYS", "*"]).await.len(), 1);
}

/// The holder relies on the new lease, and it remains after an inner hold.
#[tokio::test]
async fn an_outer_hold_keeps_its_extended_lease() {
    let (_server, client) = bed().await;
    let lock = client.reentrant_lock("a");
    let outer = lock.with_lease(SHORT).lock().await.unwrap();
    outer.extend(LONG).await.unwrap();
    let inner = lock.with_lease(2 * LONG).lock().await.unwrap();
    inner.unlock().await.unwrap();
    assert!(lock.remaining_lease().await.unwrap().unwrap() > LONG / 2);
    assert!(lasts(outer.valid_until()) > LONG / 2);
    // The time is past the first lease.
    tokio::time::sleep(SHORT + SHORT / 4).await;
    assert!(!outer.is_lost());
    outer.unlock().await.unwrap();
}

/// Renewals go on with the watchdog's lease. After an inner hold, the extended end remains.
#[tokio::test]
async fn a_renewed_hold_keeps_its_extended_lease() {
    let (_server, client) = bed().await;
    let lock = client.reentrant_lock("a");
    let outer = lock.lock().await.unwrap();
    outer.extend(LONG).await.unwrap();
    for _ in 0..3 {
        lock.lock().await.unwrap().unlock().await.unwrap();
        let left = lock.remaining_lease().await.unwrap().unwrap();
        let valid = lasts(outer.valid_until());
        assert!(
            valid > LONG * 3 / 4 && valid < left,
            "{valid:?} of {left:?}"
        );
    }
    outer.unlock().await.unwrap();
}

#[tokio::test]
async fn a_lost_hold_is_not_extended() {
    let (server, client) = bed().await;
    let lock = client.reentrant_lock("a").with_lease(LONG);
    let guard = lock.lock().await.unwrap();
    server.command::<()>(&["DEL", "a"]).await;
    let token = guard.cancellation_token();
    let gone = guard.extend(LONG).await;
    let is_gone = |reason| matches!(reason, LostReason::Gone);
    assert!(
        matches!(gone, Err(Error::Lost { reason, .. }) if is_gone(reason)),
        "{gone:?}"
    );
    assert!(token.is_cancelled() && guard.is_lost());
    assert_eq!(server.command::<u32>(&["EXISTS", "a"]).await, 0);

    let lock = lock.with_lease(Duration::from_millis(50));
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(matches!(guard.extend(LONG).await, Err(Error::Lost { .. })));
    let guard = lock.with_lease(LONG).lock().await.unwrap();
    for bad in [Duration::ZERO, Duration::MAX] {
        let error = guard.extend(bad).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_silent_server_extends_nothing() {
    let server = Server::start().await;
    let config = Config::default().with_command_wait(Duration::from_millis(300));
    let building = LockClient::builder().url(server.url()).config(config);
    let client = building.build().await.unwrap();
    let lock = client.reentrant_lock("a").with_lease(LONG / 2);
    let guard = lock.lock().await.unwrap();
    let before = guard.valid_until();
    server.pause();
    let silent = guard.extend(LONG).await;
    assert!(
        matches!(silent, Err(Error::Unavailable { .. })),
        "{silent:?}"
    );
    assert_eq!(guard.valid_until(), before);
    server.resume();
    let extends = async || guard.extend(LONG).await.is_ok();
    eventually("the server answers again", LONG, extends).await;
    assert!(guard.valid_until() > before);
}

#[tokio::test]
async fn a_group_is_extended_as_far_as_it_needs() {
    let (server, client) = bed().await;
    let group = client.multi_lock(["a", "b"]).with_lease(LONG / 2);
    let guard = group.lock().await.unwrap();
    let before = guard.valid_until();
    guard.extend(LONG).await.unwrap();
    assert!(guard.valid_until() > before);
    for name in ["a", "b"] {
        let left: i64 = server.command(&["PTTL", name]).await;
        assert!(left > LONG.as_millis() as i64 * 3 / 4, "{name}: {left}");
    }
    server.command::<()>(&["DEL", "b"]).await;
    let lost = guard.extend(LONG).await.unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    drop(guard);
    let guard = client.red_lock(["c", "d", "e"]).with_lease(LONG / 2);
    let guard = guard.lock().await.unwrap();
    server.command::<()>(&["DEL", "d"]).await;
    guard.extend(LONG).await.unwrap();
    server.command::<()>(&["DEL", "e"]).await;
    assert!(guard.extend(LONG).await.unwrap_err().is_lost());
}
