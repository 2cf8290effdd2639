//! The start of every contract test: a server, a client, a lock with its own name.

use std::{fmt::Debug, sync::Arc, time::Duration};

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redisson_lock::{Config, Error, Guard, Lock, LockClient, LostReason, Owner};
use testbed::eventually;
use tokio::time::Instant;

use super::{
    ground::{Ground, Master},
    subjects::{Subject, held_by},
};

/// The limit for steps that take milliseconds.
pub const SOON: Duration = Duration::from_secs(20);
/// The limit for a whole test.
pub const TEST_LIMIT: Duration = Duration::from_secs(60);
/// Longer than any test: such a wait never ends.
pub const NEVER: Duration = Duration::from_secs(600);

pub type RivalKind<S> = <<S as Subject>::Rival as Subject>::Kind;

pub struct Bed<S: Subject> {
    /// The server that has the lock.
    pub server: Master,
    /// The URL of a user that has only the rights of the kind (P-T8).
    pub url: String,
    pub config: Config,
    pub client: LockClient,
    pub name: String,
    pub lock: Lock<S::Kind>,
    admin: MultiplexedConnection,
}

impl<S: Subject> Bed<S> {
    pub async fn new() -> Self {
        Self::with(Config::default()).await
    }

    pub async fn with(config: Config) -> Self {
        Self::on(Ground::shared().await, config).await
    }

    /// A bed whose client may also use locks of kind `T`.
    pub async fn beside<T: Subject>(config: Config) -> Self {
        Self::among(Ground::shared().await, config, &[S::NAME, T::NAME]).await
    }

    /// As [`beside`](Self::beside), with its own servers.
    pub async fn alone_beside<T: Subject>(config: Config) -> Self {
        Self::among(Ground::own().await, config, &[S::NAME, T::NAME]).await
    }

    /// A bed with its own servers.
    pub async fn alone(config: Config) -> Self {
        Self::on(Ground::own().await, config).await
    }

    /// `LOCAL_HAND_OFF=0` runs the contract without hand-offs in memory.
    async fn on(ground: Arc<Ground>, mut config: Config) -> Self {
        if std::env::var("LOCAL_HAND_OFF").is_ok_and(|millis| millis == "0") {
            config.local_hand_off = Duration::ZERO;
        }
        Self::among(ground, config, &[S::NAME]).await
    }

    /// A bed with the rights of all these kinds.
    async fn among(ground: Arc<Ground>, config: Config, kinds: &[&str]) -> Self {
        let url = ground.admit(kinds).await;
        let client = connect(&url, &config).await;
        let prefix = format!("app:{}", S::NAME);
        let (name, server) = ground.name(&config.name_prefix, &prefix).await;
        Self {
            lock: S::lock(&client, &name),
            admin: server.admin().await,
            server,
            url,
            config,
            client,
            name,
        }
    }

    /// Connects another client, as another process would.
    pub async fn another_client(&self) -> LockClient {
        connect(&self.url, &self.config).await
    }

    /// The lock, from another client.
    pub async fn lock_of_other_client(&self) -> Lock<S::Kind> {
        S::lock(&self.another_client().await, &self.name)
    }

    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut admin = self.admin.clone();
        let answer = redis::cmd(words[0])
            .arg(&words[1..])
            .query_async(&mut admin)
            .await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// A lock that excludes this one, from another client.
    pub async fn rival(&self) -> Lock<RivalKind<S>> {
        self.rival_of(&self.another_client().await)
    }

    /// A lock that excludes this one, from the same client.
    pub fn rival_same_client(&self) -> Lock<RivalKind<S>> {
        self.rival_of(&self.client)
    }

    pub fn rival_of(&self, client: &LockClient) -> Lock<RivalKind<S>> {
        S::Rival::lock(client, &self.name)
    }

    /// `owner` of this client, as its field on the server.
    pub fn owner(&self, owner: Owner) -> String {
        format!("{}:{owner}", self.client.id())
    }

    /// The hold count of `owner` on the server.
    pub async fn count_of(&self, owner: Owner) -> Option<u32> {
        let owner = self.owner(owner);
        if S::TYPE == "string" {
            let holder: Option<String> = self.ask(&["GET", &self.name]).await;
            return (holder? == owner).then_some(1);
        }
        self.ask(&["HGET", &self.name, &S::field(&owner)]).await
    }

    /// Writes a hold of a foreign owner on a lock of kind `H` and this name, without expiry.
    pub async fn hold_as<H: Subject>(&self, owner: &str) {
        for words in held_by::<H>(&self.name, owner) {
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            self.ask::<redis::Value>(&words).await;
        }
    }

    /// All keys that contain the lock's name.
    pub async fn all_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", &format!("*{}*", self.name)]).await;
        keys.sort_unstable();
        keys
    }

    /// As [`all_keys`](Self::all_keys), without the key that outlives every hold.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys = self.all_keys().await;
        keys.retain(|key| S::remains(&self.name).as_ref() != Some(key));
        keys
    }

    /// The keys of one hold of `owner`.
    pub fn keys_of_a_hold(&self, owner: Owner) -> Vec<String> {
        let mut keys = S::markers(&self.name, &self.owner(owner));
        keys.push(self.name.clone());
        keys.sort_unstable();
        keys
    }

    pub async fn is_free(&self) -> bool {
        self.ask::<u32>(&["EXISTS", &self.name]).await == 0
    }

    pub async fn becomes_free(&self) {
        let nothing_left = async || self.keys().await.is_empty();
        eventually("the lock is free", SOON, nothing_left).await;
    }

    pub async fn pttl(&self) -> i64 {
        self.ask(&["PTTL", &self.name]).await
    }

    /// Waits until the lease has expired. Fails if it is renewed.
    pub async fn expires_without_renewal(&self) {
        let mut left = self.pttl().await;
        eventually("the lease expires", SOON, async || {
            let now = self.pttl().await;
            assert!(now <= left, "renewed from {left} to {now} ms");
            left = now;
            now == -2
        })
        .await;
    }

    /// The channels of the lock that have a subscriber.
    pub async fn channels(&self) -> Vec<String> {
        let pattern = format!("{}*", S::channel(&self.name));
        let list = match self.server.ground().is_cluster() {
            true => "SHARDCHANNELS",
            false => "CHANNELS",
        };
        self.ask(&["PUBSUB", list, &pattern]).await
    }

    /// Waits until a waiter has subscribed, for kinds that subscribe.
    pub async fn awaited(&self) {
        let listens = async || !S::LISTENS || !self.channels().await.is_empty();
        eventually("a waiter has subscribed", SOON, listens).await;
    }

    /// Waits until the server has refused `waiters` twice each since [`Server::reset_calls`], before and after they subscribed. From
    /// then on only a message wakes a subscribed waiter. Needs a bed with its own servers, and waiters that ask: in a local queue,
    /// only the asker does.
    ///
    /// Counts `PTTL` calls, one per refusal. Several attempts may share one script call.
    pub async fn wait_for_refusals(&self, waiters: u64) {
        let tries = async || self.server.calls().await.get("pttl") >= Some(&(2 * waiters));
        eventually("the waiters are refused", SOON, tries).await;
    }

    /// Checks for `time` that `guard` is not lost and that the server has `count` holds of its owner.
    pub async fn held_for(&self, time: Duration, guard: &Guard<S::Kind>, owner: Owner, count: u32) {
        let enough = Instant::now() + time;
        eventually("enough time has passed", TEST_LIMIT, async || {
            assert_eq!(
                self.count_of(owner).await,
                Some(count),
                "the hold count on the server"
            );
            assert!(!guard.is_lost(), "the guard reports a loss");
            Instant::now() >= enough
        })
        .await;
    }
}

/// Asserts that a call failed because the server lacked the holds.
#[track_caller]
pub fn assert_gone<T: Debug>(answer: &Result<T, Error>) {
    let is_gone = matches!(
        answer,
        Err(Error::Lost {
            reason: LostReason::Gone,
            ..
        })
    );
    assert!(is_gone, "{answer:?}");
}

async fn connect(url: &str, config: &Config) -> LockClient {
    let builder = LockClient::builder().url(url).config(config.clone());
    builder.build().await.expect("the server is up")
}

/// A configuration in which only a message wakes a waiter.
pub fn only_messages() -> Config {
    let mut config = Config::default();
    config.watchdog_lease = NEVER;
    config.max_poll_interval = NEVER;
    config
}

/// A configuration with this watchdog lease.
pub fn watched(lease: Duration) -> Config {
    let mut config = Config::default();
    config.watchdog_lease = lease;
    config
}

/// A lease that a busy machine renews in time. Tests wait for it several times.
pub const SHORT: Duration = Duration::from_millis(1200);
