//! Promises of `InMemoryRedis` to a project that tests with it.

use std::time::Duration;

use redisson_lock::{AnyLock, Config, Error, LostReason, MultiLock, Owner, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, timeout};

const LEASE: Duration = Duration::from_secs(30);
const NEVER: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn the_kit_lists_holders_with_their_counts() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let owner = Owner::new();
    let lock = client.reentrant_lock("a").owned_by(&owner);
    assert_eq!(server.holders("a"), []);
    let outer = lock.lock().await.unwrap();
    let _inner = lock.lock().await.unwrap();
    assert_eq!(
        server.holders("a"),
        [(format!("{}:{owner}", client.id()), 2)]
    );
    assert_eq!(server.remaining_lease("a"), Some(LEASE));
    assert_eq!(server.keys(), ["a"]);
    outer.unlock().await.unwrap();
    let _simple = client.simple_lock("b").lock().await.unwrap();
    assert_eq!(server.holders("b").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn renewals_keep_a_lock_while_time_passes() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    server.advance(NEVER).await;
    assert!(!guard.is_lost());
    let fixed = client
        .reentrant_lock("b")
        .with_lease(LEASE)
        .lock()
        .await
        .unwrap();
    // A key lives until the clock shows more than its time.
    server.advance(LEASE + Duration::from_millis(1)).await;
    assert!(fixed.is_lost());
    assert_eq!(fixed.lost().await, LostReason::Expired);
    assert_eq!(server.holders("b"), []);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_deleted_is_lost_at_the_next_renewal() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    assert!(server.delete("a"));
    assert!(!server.delete("a"));
    server.advance(LEASE / 3).await;
    assert_eq!(timeout(NEVER, guard.lost()).await, Ok(LostReason::Gone));
}

#[tokio::test(start_paused = true)]
async fn broken_connection_loses_no_hold() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let before = server.connections();
    server.disconnect();
    server.advance(Duration::from_secs(1)).await;
    assert_eq!(server.connections(), before);
    server.advance(NEVER).await;
    guard.unlock().await.unwrap();
    assert_eq!(server.holders("a"), []);
}

#[tokio::test(start_paused = true)]
async fn stopped_server_is_unavailable_until_its_start() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    server.stop();
    assert!(matches!(
        server.client().await,
        Err(Error::Unavailable { .. })
    ));
    let lock = client.reentrant_lock("a");
    let busy = lock.try_lock().await;
    assert!(matches!(busy, Err(Error::Unavailable { .. })), "{busy:?}");
    server.start();
    assert!(lock.try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_restart_forgets_every_lock() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    server.restart();
    assert_eq!(timeout(LEASE, guard.lost()).await, Ok(LostReason::Gone));
    assert_eq!(server.keys(), [""; 0]);
    assert!(
        client
            .reentrant_lock("a")
            .try_lock()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn fail_next_fails_that_many_scripts() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let lock = client.reentrant_lock("a");
    server.fail_next(2);
    for _ in 0..2 {
        assert!(matches!(lock.try_lock().await, Err(Error::Redis { .. })));
    }
    assert!(lock.try_lock().await.unwrap().is_some());
}

/// A call of a group has an operation for each name.
#[tokio::test(start_paused = true)]
async fn fail_next_fails_every_operation_of_a_script() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let names = ["a", "b", "c"];
    let (lock, group) = (client.reentrant_lock("a"), client.multi_lock(names));
    for knows_script in [false, true] {
        for count in [1, 2] {
            server.fail_next(count);
            for _ in 0..count {
                let failed = group.try_lock().await;
                assert!(matches!(failed, Err(Error::Redis { .. })), "{failed:?}");
            }
            let guard = group.try_lock().await.unwrap().unwrap();
            server.fail_next(1);
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
            assert_eq!(server.keys(), [""; 0]);
        }
        if !knows_script {
            server.forget_scripts();
        }
    }
    // Each kind, alone and in a group.
    let kinds = |name: &str| {
        let (dual, name) = (client.read_write_lock(name), name.to_owned());
        [
            AnyLock::from(client.reentrant_lock(&*name)),
            client.fair_lock(&*name).into(),
            client.fenced_lock(&*name).into(),
            client.spin_lock(&*name).into(),
            client.non_reentrant_lock(&*name).into(),
            client.non_reentrant_fair_lock(&*name).into(),
            client.simple_lock(&*name).into(),
            dual.read().clone().into(),
            dual.write().clone().into(),
        ]
    };
    for (number, (one, other)) in kinds("one").into_iter().zip(kinds("other")).enumerate() {
        for group in [MultiLock::of([one.clone()]), MultiLock::of([one, other])] {
            server.fail_next(1);
            let failed = group.try_lock().await;
            assert!(
                matches!(failed, Err(Error::Redis { .. })),
                "{number}: {failed:?}"
            );
            let guard = group.try_lock().await.unwrap().unwrap();
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
            server.fail_next(0);
        }
    }
    server.fail_next(1);
    let asked = lock.is_locked().await;
    assert!(matches!(asked, Err(Error::Redis { .. })), "{asked:?}");
    let pool = client.semaphore("pool");
    server.fail_next(1);
    let set = pool.try_set_permits(1).await;
    assert!(matches!(set, Err(Error::Redis { .. })), "{set:?}");
    server.fail_next(1);
    let acquired = pool.try_acquire().await;
    assert!(matches!(acquired, Err(Error::Redis { .. })), "{acquired:?}");
}

#[tokio::test(start_paused = true)]
async fn key_of_another_type_is_the_wrong_kind() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    server.set("a", "text");
    let taken = client.reentrant_lock("a").try_lock().await;
    assert!(matches!(taken, Err(Error::WrongKind { .. })), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn forgotten_scripts_are_sent_again() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    server.forget_scripts();
    lock.lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_waiter_of_another_client() {
    let server = InMemoryRedis::new();
    let config = Config::default().with_max_poll_interval(NEVER);
    let (one, other) = (
        server.client().await.unwrap(),
        server.client_with(config).await.unwrap(),
    );
    let guard = one.reentrant_lock("a").lock().await.unwrap();
    let waiting = tokio::spawn(async move {
        other
            .reentrant_lock("a")
            .lock()
            .await
            .map(|_| Instant::now())
    });
    server.advance(Duration::from_secs(5)).await;
    assert_eq!(server.channels(), ["redisson_lock__channel:{a}"]);
    let released = Instant::now();
    guard.unlock().await.unwrap();
    assert!(waiting.await.unwrap().unwrap() < released + Duration::from_millis(50));
}

/// One server, used from several threads and runtimes, under a clock that runs.
#[test]
fn runtimes_share_a_server() {
    let server = InMemoryRedis::new();
    let inside = std::sync::Mutex::new(0);
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = server.client().await.unwrap();
            for _ in 0..20 {
                let guard = client.reentrant_lock("a").lock().await.unwrap();
                *inside.try_lock().expect("no other thread is inside") += 1;
                guard.unlock().await.unwrap();
            }
            client.shutdown().await;
        });
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(work);
        }
    });
    assert_eq!(*inside.lock().unwrap(), 60);
    assert_eq!((server.keys(), server.connections()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn debug_output_shows_the_number_of_connections() {
    let server = InMemoryRedis::new();
    let _client = server.client().await.unwrap();
    assert_eq!(
        format!("{server:?}"),
        "InMemoryRedis { connections: 2, .. }"
    );
    fn is_shared<T: Send + Sync + Clone + Default + std::panic::UnwindSafe>(_: &T) {}
    is_shared(&server);
}

/// The row of docs/testing-your-code.md about `server.keys()` names each key that stays after the last release.
#[tokio::test(start_paused = true)]
async fn the_page_names_the_keys_that_stay_after_a_release() {
    let page = include_str!("../../../docs/testing-your-code.md");
    let row = page
        .lines()
        .find(|line| line.starts_with("| that nothing is left |"));
    let row = row.expect("the page has the row");
    let names: Vec<_> = row.split('`').skip(1).step_by(2).collect();
    let server = InMemoryRedis::new();
    let (one, other) = (
        server.client().await.unwrap(),
        server.client().await.unwrap(),
    );
    macro_rules! pass_on {
        ($(|$client:ident| $lock:expr => $kind:literal: [$($left:literal),*],)*) => {
            $(let locked = |$client: &redisson_lock::LockClient| $lock;
            let held = locked(&one).lock().await.unwrap();
            let next = tokio::spawn({
                let lock = locked(&other);
                async move { lock.lock().await.unwrap().unlock().await }
            });
            server.advance(Duration::from_secs(1)).await;
            held.unlock().await.unwrap();
            next.await.unwrap().unwrap();
            left(&server, &names, $kind, &[$($left),*]);)*
        };
    }
    pass_on! {
        |client| client.reentrant_lock("a") => "reentrant": [],
        |client| client.spin_lock("a") => "spin": [],
        |client| client.non_reentrant_lock("a") => "non-reentrant": [],
        |client| client.fair_lock("a") => "fair": [],
        |client| client.simple_lock("a") => "simple": [],
        |client| client.fenced_lock("a") => "fenced": ["redisson_lock_token:{a}"],
        |client| client.read_write_lock("a").write().clone() => "write": [],
    }
    // A writer that waits for readers keeps new ones out, from 16 ms on.
    let lock = one.read_write_lock("a");
    let reads = lock.read().lock().await.unwrap();
    let new = server.client().await.unwrap();
    let writes = tokio::spawn(async move { new.read_write_lock("a").write().lock().await });
    server.advance(Duration::from_millis(20)).await;
    reads.unlock().await.unwrap();
    writes.await.unwrap().unwrap().unlock().await.unwrap();
    left(&server, &names, "read", &["{a}:write_intent:rest"]);
    let semaphore = one.semaphore("a");
    semaphore.try_set_permits(1).await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    left(&server, &names, "semaphore", &["a", "{a}:attempt:"]);
    let semaphore = one.permit_expirable_semaphore("a");
    semaphore.try_set_permits(1).await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    left(&server, &names, "expirable", &["a", "{a}:attempt:"]);
}

/// Compares the keys of the lock `a` with the beginnings `expected`, and with the names in the page's row. Deletes them.
fn left(server: &InMemoryRedis, names: &[&str], kind: &str, expected: &[&str]) {
    let keys = server.keys();
    for key in &keys {
        server.delete(key);
        let is_like = |begins: &&str| match begins.strip_suffix("..") {
            Some(begins) => key.starts_with(begins),
            None => key == *begins,
        };
        let expected = expected.iter().any(|expected| {
            key == expected || expected.ends_with(':') && key.starts_with(expected)
        });
        let names = names.iter().map(|name| name.replace("name", "a"));
        let is_named = names.into_iter().any(|name| is_like(&&*name));
        assert!(expected && is_named, "{kind}: {key} of {keys:?}");
    }
    assert!(keys.len() >= expected.len(), "{kind}: {keys:?}");
}
