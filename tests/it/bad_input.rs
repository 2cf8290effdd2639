//! Each bad input gives a typed error that says what to do, before a request is sent if that is
//! possible. The error has no secret, and nothing is left in Redis.

mod certificates;
mod endpoints;
mod paused_clock;
mod servers;
mod set_ups;
mod stores;
pub mod tls;
mod urls;

use std::time::Duration;

use redisson_lock::{Config, Error, LockClient, Owner, ReentrantLock, Released};
use testbed::{Server, eventually};

use crate::witness::busy_at_worst;

/// The limit for steps that take milliseconds. Connecting may take 5 s, twice.
const SOON: Duration = Duration::from_secs(20);
const SECRET: &str = "s3cret";

struct Bed {
    server: Server,
    client: LockClient,
}

impl Bed {
    async fn new() -> Self {
        let server = Server::start().await;
        let client = LockClient::connect(&server.url()).await.unwrap();
        server.reset_calls().await;
        Self { server, client }
    }

    /// Fails if a script has run or a key exists.
    async fn nothing_was_sent(&self) {
        let calls = self.server.calls().await;
        let scripts = calls.keys().filter(|name| name.starts_with("eval")).count();
        assert_eq!(scripts, 0, "{calls:?}");
        assert!(!calls.contains_key("subscribe"), "{calls:?}");
        self.nothing_is_left().await;
    }

    async fn nothing_is_left(&self) {
        assert_eq!(self.server.command::<u32>(&["DBSIZE"]).await, 0);
    }
}

/// The errors of every method that acquires `lock`.
async fn refusals_to_take(lock: &ReentrantLock) -> Vec<Error> {
    vec![
        refusal(lock.lock()).await,
        refusal(lock.try_lock()).await,
        refusal(lock.try_lock_for(SOON)).await,
        refusal(lock.try_lock_for(Duration::ZERO)).await,
        refusal(lock.run(async |_| ())).await,
    ]
}

/// The error of `operation`, in time.
async fn refusal<T>(operation: impl Future<Output = Result<T, Error>>) -> Error {
    let done = tokio::time::timeout(SOON, operation).await;
    let done = done.expect("the call ends in time");
    done.map(drop).expect_err("the call is refused")
}

/// The errors of every method of `lock`.
async fn refusals(lock: &ReentrantLock) -> Vec<Error> {
    let mut errors = refusals_to_take(lock).await;
    errors.extend([
        refusal(lock.unlock()).await,
        refusal(lock.force_unlock()).await,
        refusal(lock.is_locked()).await,
        refusal(lock.is_held()).await,
        refusal(lock.hold_count()).await,
        refusal(lock.remaining_lease()).await,
    ]);
    errors
}

#[tokio::test]
async fn names_that_no_lock_should_have() {
    let bed = Bed::new().await;
    let huge = "x".repeat(1024 * 1024);
    let too_long = "x".repeat(64 * 1024 + 1);
    let wide = "é".repeat(64 * 1024);
    for (name, hint) in [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("\0", "NUL"),
        ("a\nb", "newline"),
        ("a\r\nDEL x", "control character"),
        ("\u{85}", "control character"),
        (&huge, "65536 bytes"),
        (&too_long, "65536 bytes"),
        (&wide, "65536 bytes"),
    ] {
        for error in refusals(&bed.client.reentrant_lock(name)).await {
            let text = crate::in_full(&error);
            assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
            assert!(text.contains(hint), "{text}");
            assert!(text.len() < 300, "the error repeats the whole name");
            assert!(!text.contains(['\n', '\0', '\r']), "{text:?}");
        }
    }
    bed.nothing_was_sent().await;
}

/// An empty name behind a prefix would be a valid key: the prefix itself.
#[tokio::test]
async fn an_empty_name_is_refused_behind_a_prefix() {
    let server = Server::start().await;
    let config = Config::default().with_name_prefix("billing:");
    let builder = LockClient::builder().url(server.url()).config(config);
    let client = builder.build().await.unwrap();
    let mut errors = refusals(&client.reentrant_lock("")).await;
    errors.extend([
        refusal(client.read_write_lock("").read().try_lock()).await,
        refusal(client.multi_lock(["a", ""]).try_lock()).await,
        refusal(client.election("").campaign("host-7")).await,
        refusal(client.semaphore("").try_set_permits(1)).await,
        refusal(client.permit_expirable_semaphore("").try_set_permits(1)).await,
        refusal(client.count_down_latch("").try_set_count(1)).await,
    ]);
    for error in errors {
        let is_expected = matches!(&error, Error::InvalidName { name, reason, .. } if name.is_empty() && reason.contains("empty"));
        assert!(is_expected, "{error:?}");
    }
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn a_handle_with_an_invalid_name_has_an_empty_name() {
    let Bed { client, .. } = &Bed::new().await;
    for name in ["a\nb", &"x".repeat(64 * 1024 + 1)] {
        assert_eq!(client.reentrant_lock(name).name(), "");
        assert_eq!(client.read_write_lock(name).read().name(), "");
        assert_eq!(client.election(name).name(), "");
        assert_eq!(client.semaphore(name).name(), "");
        assert_eq!(client.permit_expirable_semaphore(name).name(), "");
        assert_eq!(client.count_down_latch(name).name(), "");
    }
}

#[tokio::test]
async fn the_longest_name_works() {
    let bed = Bed::new().await;
    let lock = bed.client.reentrant_lock("x".repeat(64 * 1024));
    let guard = lock.lock().await.unwrap();
    assert_eq!(lock.is_held().await, Ok(true));
    let _ = guard.unlock().await.unwrap();
    bed.nothing_is_left().await;
}

/// The prefix is part of the key.
#[tokio::test]
async fn prefixes_that_no_lock_should_have() {
    let server = Server::start().await;
    for prefix in ["a\nb".to_owned(), "\0".to_owned(), "x".repeat(64 * 1024)] {
        let mut config = Config::default();
        config.name_prefix = prefix;
        let builder = LockClient::builder().url(server.url()).config(config);
        let error = match builder.build().await {
            Err(error) => error,
            Ok(client) => match client.reentrant_lock("name").try_lock().await {
                Err(error) => error,
                Ok(_) => panic!("a lock was made with a bad prefix"),
            },
        };
        let refused = matches!(error, Error::Config { .. } | Error::InvalidName { .. });
        assert!(refused, "{error:?}");
    }
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn leases_out_of_bounds() {
    let bed = Bed::new().await;
    let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    for (lease, hint) in [
        (Duration::ZERO, "10 ms"),
        (Duration::from_nanos(1), "10 ms"),
        (Duration::from_micros(500), "10 ms"),
        (Duration::from_millis(9), "10 ms"),
        (Duration::from_nanos(9_999_999), "10 ms"),
        (century + Duration::from_nanos(1), "100 years"),
        (Duration::from_millis(u64::MAX), "100 years"),
        (Duration::MAX, "100 years"),
    ] {
        let lock = bed.client.reentrant_lock("order:42").with_lease(lease);
        for error in refusals_to_take(&lock).await {
            assert!(matches!(error, Error::Config { .. }), "{error:?}");
            assert!(error.to_string().contains(hint), "{error}");
        }
        // An error of one handle does not affect the next.
        assert!(matches!(
            lock.with_lease(lease).lock().await,
            Err(Error::Config { .. })
        ));
    }
    bed.nothing_was_sent().await;
    for lease in [Duration::from_millis(10), century] {
        let lock = bed.client.reentrant_lock("order:42").with_lease(lease);
        let free = async || matches!(lock.try_lock().await, Ok(Some(_)));
        eventually("a lease at the bounds works", SOON, free).await;
    }
}

/// A setting of the client, and a change that breaks it.
type Broken = (&'static str, fn(&mut Config));

#[tokio::test]
async fn settings_that_cannot_work() {
    let server = Server::start().await;
    let broken: [Broken; 9] = [
        ("replica_wait", |config| {
            config.replica_wait = Duration::ZERO
        }),
        ("watchdog_lease", |config| {
            config.watchdog_lease = Duration::ZERO
        }),
        ("watchdog_lease", |config| {
            config.watchdog_lease = Duration::from_millis(9)
        }),
        ("watchdog_lease", |config| {
            config.watchdog_lease = Duration::MAX
        }),
        ("watchdog_batch_size", |config| {
            config.watchdog_batch_size = 0
        }),
        ("watchdog_batch_size", |config| {
            config.watchdog_batch_size = usize::MAX
        }),
        ("max_poll_interval", |config| {
            config.max_poll_interval = Duration::from_millis(99)
        }),
        ("command_wait", |config| {
            config.command_wait = Duration::ZERO
        }),
        ("outage_wait", |config| config.outage_wait = Duration::ZERO),
    ];
    server.reset_calls().await;
    for (name, breaking) in broken {
        let mut config = Config::default();
        breaking(&mut config);
        let builder = LockClient::builder().url(server.url()).config(config);
        let error = builder.build().await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let calls = server.calls().await;
    assert!(!calls.contains_key("hello"), "it connected: {calls:?}");
}

/// The largest value stands for an endless wait.
#[tokio::test]
async fn settings_without_an_end_work() {
    let server = Server::start().await;
    let endless: [fn(&mut Config); 3] = [
        |config| config.max_poll_interval = Duration::MAX,
        |config| config.command_wait = Duration::MAX,
        |config| config.outage_wait = Duration::MAX,
    ];
    let mut failed = Vec::new();
    for (number, setting) in endless.into_iter().enumerate() {
        let mut config = Config::default();
        setting(&mut config);
        let works = tokio::spawn(locks_and_waits(server.url(), config));
        let ended = tokio::time::timeout(SOON, works).await;
        if !matches!(ended, Ok(Ok(()))) {
            failed.push((number, ended));
        }
        server.command::<()>(&["FLUSHALL"]).await;
    }
    assert!(failed.is_empty(), "{failed:?}");
}

async fn locks_and_waits(url: String, config: Config) {
    let builder = LockClient::builder().url(url).config(config);
    let client = builder.build().await.unwrap();
    let lock = client.reentrant_lock("order:42");
    let guard = lock.try_lock().await.unwrap().expect("the lock is free");
    let other = lock.owned_by(&Owner::new());
    let waiter = tokio::spawn(async move { other.lock().await.map(drop) });
    let wait = Duration::from_millis(20);
    let busy = lock.owned_by(&Owner::new()).try_lock_for(wait).await;
    assert!(busy_at_worst(busy).is_none());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    waiter.await.unwrap().unwrap();
    // The lease expires while a waiter waits, which polls by itself.
    let short = lock.with_lease(Duration::from_millis(100));
    short.lock().await.unwrap().leak();
    let other = lock.owned_by(&Owner::new());
    assert!(other.lock().await.is_ok());
    client.shutdown().await;
}

#[tokio::test]
async fn keys_of_other_types() {
    let bed = Bed::new().await;
    for (found, words) in [
        ("string", &["SET", "order:42", "x"] as &[_]),
        ("list", &["RPUSH", "order:42", "x"]),
        ("set", &["SADD", "order:42", "x"]),
        ("zset", &["ZADD", "order:42", "1", "x"]),
        ("stream", &["XADD", "order:42", "1-1", "x", "y"]),
        (
            "read-write lock",
            &["HSET", "order:42", "mode", "read", "another:1", "1"],
        ),
    ] {
        bed.server.command::<redis::Value>(words).await;
        let before: Vec<u8> = bed.server.command(&["DUMP", "order:42"]).await;
        let lock = bed.client.reentrant_lock("order:42");
        let mut errors = refusals_to_take(&lock).await;
        errors.push(lock.force_unlock().await.unwrap_err());
        errors.push(lock.is_locked().await.unwrap_err());
        errors.push(lock.remaining_lease().await.unwrap_err());
        for error in errors {
            assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
            let text = crate::in_full(&error);
            assert!(text.contains(found) && text.contains("order:42"), "{text}");
        }
        assert!(matches!(lock.unlock().await, Err(Error::NotHeld { .. })));
        let after: Vec<u8> = bed.server.command(&["DUMP", "order:42"]).await;
        assert_eq!(before, after, "a {found} was changed");
        bed.server.command::<u32>(&["DEL", "order:42"]).await;
    }
    bed.nothing_is_left().await;
}
