//! What the hazards share: a server behind a proxy, a room that one may enter at a time, repeatable randomness.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    task::Poll,
    time::Duration,
};

use redisson_lock::{Config, Error, Lock, LockClient, Released};
use testbed::{Faults, Proxy, Server, eventually};
use tokio::{task::JoinSet, time::timeout};

pub use crate::contract::subjects::Subject;
use crate::contract::subjects::held_by;

/// For what is sure to happen, however busy the machine is.
pub const GENEROUS: Duration = Duration::from_secs(30);
/// For a test that hangs.
pub const TEST_LIMIT: Duration = Duration::from_secs(150);
/// For what happens at once, as opposed to after a lease of 30 s: what is left behind is gone within it.
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

    /// A client that no fault of the proxy concerns.
    pub async fn direct(&self, config: Config) -> LockClient {
        connect(&self.server.url(), config).await
    }
}

pub async fn connect(url: &str, config: Config) -> LockClient {
    let builder = LockClient::builder().url(url).config(config);
    builder.build().await.expect("the server is there")
}

/// Redisson's settings, with a watchdog lease of its own and enough patience for a busy machine.
pub fn watched(lease: Duration) -> Config {
    let mut config = Config::default();
    config.watchdog_lease = lease;
    config.poll_floor = Duration::from_secs(1);
    config.command_wait = GENEROUS;
    config
}

/// Settings under which only a message or a reconnection wakes a waiter within [`GENEROUS`].
pub fn woken_only() -> Config {
    let mut config = watched(Duration::from_secs(300));
    config.poll_floor = Duration::from_secs(300);
    config
}

/// Locks of the kind that a scenario is about.
pub trait Locks {
    fn kind<S: Subject>(&self, name: impl AsRef<str>) -> Lock<S::Kind>;

    /// One that excludes it.
    fn rival<S: Subject>(&self, name: impl AsRef<str>) -> Lock<<S::Rival as Subject>::Kind> {
        self.kind::<S::Rival>(name)
    }
}

impl Locks for LockClient {
    fn kind<S: Subject>(&self, name: impl AsRef<str>) -> Lock<S::Kind> {
        S::lock(self, name.as_ref())
    }
}

/// Lets a silent owner hold a lock of kind `S`, without expiry.
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
    assert_eq!(counts.len(), 1, "{name} has one owner");
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

/// How many scripts the server was asked to run since its counts were set back.
pub async fn scripts(server: &Server) -> u64 {
    let calls = server.calls().await;
    let of = |command: &str| calls.get(command).copied().unwrap_or(0);
    of("evalsha") + of("eval")
}

pub async fn subscriptions(server: &Server) -> Vec<String> {
    server.command(&["PUBSUB", "CHANNELS"]).await
}

/// A client listens for the release of `name`, or, where none does, asks for something.
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

/// No lock, no place in a queue, no subscription: nothing that the tests did is left on the server, but for the counters of
/// fenced locks.
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

/// Lets real time pass, where a hazard consists of it: a lease, a stop, a time in which nothing may happen.
pub async fn let_pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What one lock protects: it notices two inside at once that should not be, and one that is alone counts in a way that
/// loses counts when it is not.
#[derive(Default)]
pub struct Room {
    /// How many share it, or -1 while one owner has it alone.
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

    /// As the holder of a lock of kind `S` may.
    pub async fn visit_as<S: Subject>(&self) {
        if !S::SHARED {
            return self.visit().await;
        }
        let _inside = Inside::with_others(self);
        tokio::task::yield_now().await;
        self.visits.fetch_add(1, SeqCst);
    }

    pub fn visits(&self) -> u64 {
        self.visits.load(SeqCst)
    }
}

/// A room, and what leaving it adds to the number inside.
struct Inside<'a>(&'a Room, i64);

impl<'a> Inside<'a> {
    fn alone(room: &'a Room) -> Self {
        assert!(room.inside.swap(-1, SeqCst) == 0, "two hold one lock");
        Self(room, 1)
    }

    fn with_others(room: &'a Room) -> Self {
        assert!(room.inside.fetch_add(1, SeqCst) >= 0, "two hold one lock");
        Self(room, -1)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_add(self.1, SeqCst);
    }
}

/// Takes the lock, visits the room, and releases the lock, which must have been the only hold.
pub async fn pair<S: Subject>(lock: &Lock<S::Kind>, room: &Room) {
    let guard = lock.lock().await.expect("the lock is had in the end");
    room.visit_as::<S>().await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// As [`pair`], with a second hold inside the first where the kind allows it.
pub async fn nested_pair<S: Subject>(lock: &Lock<S::Kind>, room: &Room) {
    if !S::REENTRANT {
        return pair::<S>(lock, room).await;
    }
    let outer = lock.lock().await.expect("the lock is had in the end");
    let inner = lock.lock().await.expect("it is entered once more");
    room.visit_as::<S>().await;
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
}

/// Why Redis is unavailable, and the cause.
pub fn why(error: &Error) -> String {
    match error {
        Error::Unavailable { reason, cause, .. } => format!("{reason} {cause:?}"),
        other => panic!("not unavailable: {other:?}"),
    }
}

/// What a try for a few milliseconds yields: on a busy machine not even an answer.
pub fn busy_at_worst<T>(tried: Result<Option<T>, Error>) -> Option<T> {
    match tried {
        Err(Error::Unavailable { .. }) => None,
        tried => tried.expect("busy at worst"),
    }
}

/// Polls `future` at most `times` times, each time that it asks for it; what is not done by then is dropped.
pub async fn poll_and_drop<F: Future>(future: F, times: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// What all of `tasks` return. One that fails, or does not end, fails the test.
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

/// Numbers that look random and are the same again for the same seed (SplitMix64).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// Seeded by `HAZARDS_SEED`, or anew; the seed is printed, and shown when the test fails.
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

    /// Another one, for another task.
    pub fn split(&mut self) -> Self {
        Self(self.next())
    }
}
