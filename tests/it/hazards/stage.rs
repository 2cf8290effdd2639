//! Helpers of the hazards: a server behind a proxy, a [`Room`] that checks exclusion, repeatable
//! random numbers.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use redisson_lock::{Config, Error, Lock, LockClient, Released};
use testbed::{Faults, Proxy, Server, eventually};
use tokio::{task::JoinSet, time::timeout};

pub use crate::contract::subjects::Subject;
use crate::contract::subjects::held_by;

/// The limit for steps that must happen, however busy the machine is.
pub const GENEROUS: Duration = Duration::from_secs(30);
/// The limit for a test that hangs.
pub const TEST_LIMIT: Duration = Duration::from_secs(150);
/// The limit for steps that do not wait for a lease of 30 s, such as the removal of all keys.
pub const PROMPT: Duration = Duration::from_secs(8);

/// A server with a proxy in front of it.
pub struct Stage {
    pub server: Server,
    pub proxy: Proxy,
}

impl Stage {
    pub async fn new() -> Self {
        let server = Server::start().await;
        let proxy = Proxy::start(server.port()).await;
        Self { server, proxy }
    }

    pub fn faults(&self) -> Faults {
        self.proxy.faults()
    }

    /// A client that reaches the server through the proxy.
    pub async fn client(&self, config: Config) -> LockClient {
        connect(&self.proxy.url(), config).await
    }

    /// A client that connects past the proxy, so its faults do not apply.
    pub async fn direct(&self, config: Config) -> LockClient {
        connect(&self.server.url(), config).await
    }
}

pub async fn connect(url: &str, config: Config) -> LockClient {
    let builder = LockClient::builder().url(url).config(config);
    builder.build().await.expect("the server is there")
}

/// Redisson's settings with this watchdog lease, and a `command_wait` for a busy machine.
pub fn watched(lease: Duration) -> Config {
    let mut config = Config::default();
    config.watchdog_lease = lease;
    config.max_poll_interval = Duration::from_secs(1);
    config.command_wait = GENEROUS;
    config
}

/// Settings under which only a message or a reconnection wakes a waiter within [`GENEROUS`].
pub fn woken_only() -> Config {
    let mut config = watched(Duration::from_secs(300));
    config.max_poll_interval = Duration::from_secs(300);
    config
}

/// Locks of the kind under test.
pub trait Locks {
    fn kind<S: Subject>(&self, name: impl AsRef<str>) -> Lock<S::Kind>;

    /// A lock that excludes those of kind `S`.
    fn rival<S: Subject>(&self, name: impl AsRef<str>) -> Lock<<S::Rival as Subject>::Kind> {
        self.kind::<S::Rival>(name)
    }
}

impl Locks for LockClient {
    fn kind<S: Subject>(&self, name: impl AsRef<str>) -> Lock<S::Kind> {
        S::lock(self, name.as_ref())
    }
}

/// Makes `owner`, which has no client, hold a lock of kind `S` without expiry.
pub async fn hold_as<S: Subject>(server: &Server, name: &str, owner: &str) {
    for words in held_by::<S>(name, owner) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        server.command::<redis::Value>(&words).await;
    }
}

pub async fn exists(server: &Server, name: &str) -> bool {
    server.command(&["EXISTS", name]).await
}

pub async fn pttl(server: &Server, name: &str) -> i64 {
    server.command(&["PTTL", name]).await
}

/// The count of the only owner of a lock.
pub async fn count<S: Subject>(server: &Server, name: &str) -> u64 {
    let counts = counts::<S>(server, name).await;
    assert_eq!(counts.len(), 1, "{name} must have one owner");
    counts[0]
}

/// The counts of all owners of a lock.
pub async fn counts<S: Subject>(server: &Server, name: &str) -> Vec<u64> {
    if S::TYPE == "string" {
        return vec![1; usize::from(exists(server, name).await)];
    }
    let mut values: Vec<String> = server.command(&["HVALS", name]).await;
    values.retain(|value| S::MODE != Some(value));
    values
        .iter()
        .map(|value| value.parse().expect("a count"))
        .collect()
}

/// How many scripts the server ran since `reset_calls`.
pub async fn scripts(server: &Server) -> u64 {
    let calls = server.calls().await;
    let of = |command: &str| calls.get(command).copied().unwrap_or(0);
    of("evalsha") + of("eval")
}

pub async fn subscriptions(server: &Server) -> Vec<String> {
    server.command(&["PUBSUB", "CHANNELS"]).await
}

/// A waiter listens for the release of `name`. For kinds without messages, a waiter sends scripts.
pub async fn is_waited_for<S: Subject>(server: &Server, name: &str) -> bool {
    if S::LISTENS {
        let channel = S::channel(name);
        let subscriptions = subscriptions(server).await;
        return subscriptions
            .iter()
            .any(|heard| heard.starts_with(&channel));
    }
    let before = scripts(server).await;
    let_pass(Duration::from_millis(200)).await;
    scripts(server).await > before
}

/// Fails if a lock, a queue entry or a subscription is left on the server. Counters of fenced locks
/// stay.
pub async fn nothing_left(server: &Server, within: Duration) {
    eventually("no key is left", within, async || {
        let mut keys: Vec<String> = server.command(&["KEYS", "*"]).await;
        keys.retain(|key| !key.starts_with("redisson_lock_token:"));
        keys.is_empty()
    })
    .await;
    eventually("no subscription is left", within, async || {
        subscriptions(server).await.is_empty()
    })
    .await;
}

/// Lets real time pass: a lease, a stop, or a time in which nothing may happen.
pub async fn let_pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The data that one lock protects. It detects two owners inside at once. A visit without other
/// owners inside counts with a read and a write, so that overlapping visits lose counts.
#[derive(Default)]
pub struct Room {
    /// How many owners share the room, or -1 while one owner has it alone.
    inside: AtomicI64,
    visits: AtomicU64,
}

impl Room {
    pub async fn visit(&self) {
        let _inside = Inside::alone(self);
        let visits = self.visits.load(SeqCst);
        tokio::task::yield_now().await;
        self.visits.store(visits + 1, SeqCst);
    }

    /// Visits as a holder of a lock of kind `S` may.
    pub async fn visit_as<S: Subject>(&self) {
        if !S::SHARED {
            return self.visit().await;
        }
        let _inside = Inside::shared(self);
        tokio::task::yield_now().await;
        self.visits.fetch_add(1, SeqCst);
    }

    pub fn visits(&self) -> u64 {
        self.visits.load(SeqCst)
    }
}

/// A visit to a room, and the number that its end adds to `inside`.
struct Inside<'a>(&'a Room, i64);

impl<'a> Inside<'a> {
    fn alone(room: &'a Room) -> Self {
        assert!(
            room.inside.swap(-1, SeqCst) == 0,
            "two owners hold one lock"
        );
        Self(room, 1)
    }

    fn shared(room: &'a Room) -> Self {
        assert!(
            room.inside.fetch_add(1, SeqCst) >= 0,
            "two owners hold one lock"
        );
        Self(room, -1)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_add(self.1, SeqCst);
    }
}

/// Acquires the lock, visits the room, and releases the lock. Fails unless it was the only hold.
pub async fn pair<S: Subject>(lock: &Lock<S::Kind>, room: &Room) {
    let guard = lock.lock().await.expect("the lock is acquired in the end");
    room.visit_as::<S>().await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// Like [`pair`], with a second hold inside the first where the kind allows it.
pub async fn nested_pair<S: Subject>(lock: &Lock<S::Kind>, room: &Room) {
    if !S::REENTRANT {
        return pair::<S>(lock, room).await;
    }
    let outer = lock.lock().await.expect("the lock is acquired in the end");
    let inner = lock.lock().await.expect("the owner enters again");
    room.visit_as::<S>().await;
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
}

/// The reason and the cause of [`Error::Unavailable`].
pub fn why(error: &Error) -> String {
    match error {
        Error::Unavailable { reason, cause, .. } => format!("{reason} {cause:?}"),
        other => panic!("not unavailable: {other:?}"),
    }
}

/// Returns what all of `tasks` return. Fails if one panics or does not end.
pub async fn all_done<T: 'static>(mut tasks: JoinSet<T>) -> Vec<T> {
    let all = async {
        let mut done = Vec::new();
        while let Some(task) = tasks.join_next().await {
            done.push(task.expect("no task failed"));
        }
        done
    };
    timeout(2 * GENEROUS, all).await.expect("all tasks end")
}

/// Random numbers that are the same for the same seed (SplitMix64).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// Seeded by `HAZARDS_SEED` if it is set. Prints the seed, which a failed test thus shows.
    pub fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let given = std::env::var("HAZARDS_SEED").ok();
        let seed = given.map_or_else(
            || RandomState::new().hash_one(0),
            |seed| seed.parse().expect("HAZARDS_SEED is a number"),
        );
        println!("HAZARDS_SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.below(longest.as_micros() as u64 + 1))
    }

    /// A generator for another task.
    pub fn split(&mut self) -> Self {
        Self(self.next())
    }
}
