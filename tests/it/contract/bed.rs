//! What every test of the contract starts from: a server, a client, a lock with a name of its own.

use std::{sync::Arc, time::Duration};

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redisson_lock::{Config, Guard, Lock, LockClient, Owner};
use testbed::eventually;
use tokio::time::Instant;

use super::{
    ground::{Ground, Master},
    subjects::{Subject, held_by},
};

/// For what should be a matter of milliseconds.
pub const SOON: Duration = Duration::from_secs(20);
/// For a test that hangs.
pub const TEST_LIMIT: Duration = Duration::from_secs(60);
/// Longer than any test: what takes it never happens.
pub const NEVER: Duration = Duration::from_secs(600);

pub type RivalKind<S> = <<S as Subject>::Rival as Subject>::Kind;

pub struct Bed<S: Subject> {
    /// The server that has the lock.
    pub server: Master,
    /// For a user with no more rights than its kind needs (P-T8).
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

    /// With a client that may also use locks of kind `T`.
    pub async fn beside<T: Subject>(config: Config) -> Self {
        Self::among(Ground::shared().await, config, &[S::NAME, T::NAME]).await
    }

    /// As [`beside`](Self::beside), with servers of its own.
    pub async fn alone_beside<T: Subject>(config: Config) -> Self {
        Self::among(Ground::own().await, config, &[S::NAME, T::NAME]).await
    }

    /// With servers of its own.
    pub async fn alone(config: Config) -> Self {
        Self::on(Ground::own().await, config).await
    }

    async fn on(ground: Arc<Ground>, config: Config) -> Self {
        Self::among(ground, config, &[S::NAME]).await
    }

    /// With the rights that locks of all these kinds need.
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

    /// Another client, as another process would have it.
    pub async fn another_client(&self) -> LockClient {
        connect(&self.url, &self.config).await
    }

    /// The lock, through another client.
    pub async fn elsewhere(&self) -> Lock<S::Kind> {
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

    /// A lock that excludes this one, through another client.
    pub async fn rival(&self) -> Lock<RivalKind<S>> {
        self.rival_of(&self.another_client().await)
    }

    /// A lock that excludes this one, through the same client.
    pub fn rival_here(&self) -> Lock<RivalKind<S>> {
        self.rival_of(&self.client)
    }

    pub fn rival_of(&self, client: &LockClient) -> Lock<RivalKind<S>> {
        S::Rival::lock(client, &self.name)
    }

    /// `owner` of this client, as the server knows it.
    pub fn owner(&self, owner: Owner) -> String {
        format!("{}:{owner}", self.client.id())
    }

    /// The count of `owner` as other clients would read it.
    pub async fn count_of(&self, owner: Owner) -> Option<u32> {
        let owner = self.owner(owner);
        if S::TYPE == "string" {
            let holder: Option<String> = self.ask(&["GET", &self.name]).await;
            return (holder? == owner).then_some(1);
        }
        self.ask(&["HGET", &self.name, &S::field(&owner)]).await
    }

    /// Lets a foreign owner hold a lock of kind `H` and this name, without expiry.
    pub async fn hold_as<H: Subject>(&self, owner: &str) {
        for words in held_by::<H>(&self.name, owner) {
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            self.ask::<redis::Value>(&words).await;
        }
    }

    /// The keys that have to do with the lock.
    pub async fn all_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", &format!("*{}*", self.name)]).await;
        keys.sort_unstable();
        keys
    }

    /// The same but for the one that outlives every hold.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys = self.all_keys().await;
        keys.retain(|key| S::remains(&self.name).as_ref() != Some(key));
        keys
    }

    /// Those of one hold of `owner`.
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

    /// The channels of the lock that have a subscriber.
    pub async fn channels(&self) -> Vec<String> {
        let pattern = format!("{}*", S::channel(&self.name));
        let list = match self.server.ground().is_cluster() {
            true => "SHARDCHANNELS",
            false => "CHANNELS",
        };
        self.ask(&["PUBSUB", list, &pattern]).await
    }

    /// Waits until a waiter for the lock is there, as far as that can be seen.
    pub async fn awaited(&self) {
        let listens = async || !S::LISTENS || !self.channels().await.is_empty();
        eventually("somebody listens", SOON, listens).await;
    }

    /// Waits until `waiters` that have come since [`Server::reset_calls`] were refused twice, before and after they
    /// had subscribed: from here on only a message helps those that listen. Needs a server of its own, and waiters of a client
    /// each of which asks: behind the first one, many a kind's waiters do not.
    ///
    /// Each refusal says what is left of the lease; scripts would not tell, as several tries may share one.
    pub async fn parked(&self, waiters: u64) {
        let tries = async || self.server.calls().await.get("pttl") >= Some(&(2 * waiters));
        eventually("the waiters are parked", SOON, tries).await;
    }

    /// Waits for `time` while `guard` is held: it, and its owner's `count` on the server, are looked at all the time.
    pub async fn held_for(&self, time: Duration, guard: &Guard<S::Kind>, owner: Owner, count: u32) {
        let enough = Instant::now() + time;
        eventually("enough time has passed", TEST_LIMIT, async || {
            assert_eq!(
                self.count_of(owner).await,
                Some(count),
                "the hold is gone from the server"
            );
            assert!(!guard.is_lost(), "the holder was told of a loss");
            Instant::now() >= enough
        })
        .await;
    }
}

async fn connect(url: &str, config: &Config) -> LockClient {
    let builder = LockClient::builder().url(url).config(config.clone());
    builder.build().await.expect("the server is up")
}

/// A configuration under which nothing but a message brings a waiter in.
pub fn only_messages() -> Config {
    let mut config = Config::default();
    config.watchdog_lease = NEVER;
    config.poll_floor = NEVER;
    config
}

/// A configuration with this watchdog lease.
pub fn watched(lease: Duration) -> Config {
    let mut config = Config::default();
    config.watchdog_lease = lease;
    config
}

/// Long enough for a busy machine to renew in time, short enough to wait for several times over.
pub const SHORT: Duration = Duration::from_millis(900);
