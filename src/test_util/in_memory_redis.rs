//! The server that users' tests run against.

use std::{fmt, sync::LazyLock, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{Server, Settings, faults::Faults, network::Network, raw::RawConnection, text_of};
use crate::{
    client::{LockClient, LockClientBuilder},
    config::Config,
    error::Error,
    redis::{
        Target,
        connection::{Frame, ServerConfig},
        endpoint::{Address, Endpoint},
    },
};

/// A Redis server in the process, for tests of code that takes locks.
///
/// It runs the crate's own Lua scripts on a key space in memory, and its clients are ordinary
/// [`LockClient`]s: they queue, are woken, renew and lose locks as on a real server. Its clock is tokio's, so that under a
/// paused one (`#[tokio::test(start_paused = true)]`) a lease of 30 s takes no time. A clone is the same server. Under a paused
/// clock all its clients belong to one runtime, since each runtime has a clock of its own; and
/// [`Guard::valid_until`](crate::Guard::valid_until) is a time of that clock, to be compared with
/// `tokio::time::Instant::now().into_std()`.
///
/// It is not a database: it has the commands that locks need, and refuses every other command by name.
///
/// # Examples
///
/// A holder that is cut off from the server learns in time that its lock is lost:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redisson_lock::Error> {
/// use std::time::Duration;
/// use redisson_lock::test_util::InMemoryRedis;
///
/// let server = InMemoryRedis::new();
/// let client = server.client().await?;
/// let guard = client.reentrant_lock("order:42").lock().await?;
///
/// server.stop();
/// server.advance(Duration::from_secs(30)).await;
/// assert!(guard.is_lost());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InMemoryRedis {
    network: Network,
}

impl InMemoryRedis {
    /// A server without data, that nothing disturbs.
    pub fn new() -> Self {
        let network = Network::new();
        network
            .state()
            .add(ADDRESS.clone(), Server::new(Settings::default()));
        Self { network }
    }

    /// Has `faults` decide what goes wrong from now on.
    #[doc(hidden)]
    pub fn set_faults(&self, faults: impl Faults + 'static) {
        self.network.state().faults = Box::new(faults);
    }

    /// The keys of the server that have not expired.
    pub fn keys(&self) -> Vec<String> {
        match self.run("KEYS", &["*"]) {
            Frame::List(keys) => keys.iter().filter_map(text_of).collect(),
            _ => Vec::new(),
        }
    }

    /// The channels that clients are subscribed to.
    pub fn channels(&self) -> Vec<String> {
        match self.run("PUBSUB", &["CHANNELS"]) {
            Frame::List(channels) => channels.iter().filter_map(text_of).collect(),
            _ => Vec::new(),
        }
    }

    /// How many connections clients have open.
    pub fn connections(&self) -> usize {
        self.network.state().connections()
    }

    /// How long the server keeps the lock `name` from now on: `None` if it is free, [`Duration::MAX`] without an end. Of several
    /// readers it is the longest lease.
    pub fn remaining_lease(&self, name: &str) -> Option<Duration> {
        let state = self.network.state();
        let millis = state.millis(Instant::now());
        let host = state.servers.get(&*ADDRESS)?;
        host.server.lease(name, millis)
    }

    /// A client of this server, with the default settings.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] while the server is [stopped](Self::stop).
    ///
    /// # Cancel safety
    ///
    /// As [`LockClient::connect`].
    pub async fn client(&self) -> Result<LockClient, Error> {
        self.client_with(Config::default()).await
    }

    /// A client of this server, with these settings.
    ///
    /// # Errors
    ///
    /// As [`client`](Self::client); [`Error::Config`] for settings that cannot work.
    ///
    /// # Cancel safety
    ///
    /// As [`LockClient::connect`].
    pub async fn client_with(&self, config: Config) -> Result<LockClient, Error> {
        self.builder().config(config).build().await
    }

    /// A builder of clients of this server, for all else that can be said of one.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::test_util::InMemoryRedis;
    ///
    /// let server = InMemoryRedis::new();
    /// server.stop();
    /// // As a program that starts while its server is down.
    /// let client = server.builder().lazy(true).build().await?;
    /// server.start();
    /// client.reentrant_lock("order:42").lock().await?.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(&self) -> LockClientBuilder {
        LockClient::builder().target(self.target())
    }

    /// Ends all connections, as a network that fails for a moment. Clients connect again at once.
    pub fn disconnect(&self) {
        self.network.state().disconnect(None);
    }

    /// Ends all connections, and accepts none until [`start`](Self::start). The data stays, and goes on to expire.
    pub fn stop(&self) {
        self.network.state().set_up(&ADDRESS, false);
        self.disconnect();
    }

    /// Accepts connections again.
    pub fn start(&self) {
        self.network.state().set_up(&ADDRESS, true);
    }

    /// Ends all connections and forgets all data and scripts, as a server without persistence that restarts. One that was
    /// [stopped](Self::stop) stays so.
    pub fn restart(&self) {
        self.network.state().restart(&ADDRESS);
    }

    /// Lets the next `count` scripts of any client fail with an error of the server, unexecuted. Every operation on a lock is a
    /// script, or part of a batch in one: acquisitions and releases, and also renewals and the retries of waiters. The
    /// error is [`Error::Redis`]. A further call replaces the count.
    pub fn fail_next(&self, count: usize) {
        self.network.state().fail_next = count;
    }

    /// The owners that hold the lock `name`, and how many holds each has, by the server's data: `<client id>:<number>`, for a
    /// writer with `:write` behind it. A simple lock has its value for an owner.
    pub fn holders(&self, name: &str) -> Vec<(String, u64)> {
        let state = self.network.state();
        let millis = state.millis(Instant::now());
        let host = state.servers.get(&ADDRESS);
        host.map_or_else(Vec::new, |host| host.server.holders(name, millis))
    }

    /// Forgets the scripts that it knows, as by `SCRIPT FLUSH`. Clients send them again.
    pub fn forget_scripts(&self) {
        self.run("SCRIPT", &["FLUSH"]);
    }

    /// Deletes the lock `name`, whatever its kind, as an operator does by hand. Its holders learn of it at their next renewal.
    /// Says whether there was one.
    pub fn delete(&self, name: &str) -> bool {
        matches!(self.run("DEL", &[name]), Frame::Number(1))
    }

    /// Sets the string `key`, as a service does that uses the name of a lock for something else.
    pub fn set(&self, key: &str, value: &str) {
        self.run("SET", &[key, value]);
    }

    /// Lets `time` pass, and one millisecond more: under a paused clock in no time, with everything that is due meanwhile, in
    /// order. tokio moves a paused clock on only when all tasks wait, so what became due at the end of `time` has been done
    /// before that millisecond is over.
    ///
    /// `tokio::time::advance` jumps: what is due in between, such as renewals, would be late.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe; the time that has passed has passed.
    pub async fn advance(&self, time: Duration) {
        tokio::time::sleep(time).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn run(&self, name: &str, args: &[&str]) -> Frame {
        let args: Vec<Bytes> = args
            .iter()
            .map(|arg| Bytes::copy_from_slice(arg.as_bytes()))
            .collect();
        self.network.state().run(&ADDRESS, name, &args)
    }

    /// Has the server's clock show `time` now.
    #[doc(hidden)]
    pub fn set_clock(&self, time: std::time::SystemTime) {
        let since = time
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        self.network.state().set_millis(since.as_millis() as u64);
    }

    /// A connection for a client that is not of this crate.
    ///
    /// # Errors
    ///
    /// As [`client`](Self::client).
    #[doc(hidden)]
    pub async fn raw(&self) -> Result<RawConnection, Error> {
        RawConnection::open(&self.network, &self.server()).await
    }

    fn server(&self) -> ServerConfig {
        ServerConfig {
            transport: std::sync::Arc::new(self.network.clone()),
            endpoint: Endpoint::Tcp(ADDRESS.clone()),
            username: None,
            password: None,
            database: None,
            connection_name: None,
            servers: crate::redis::Servers::new(),
        }
    }

    pub(crate) fn target(&self) -> Target {
        let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_le_bytes());
        let mut target = Target::fixed(self.server());
        target.client_id = Some(id.into_uuid());
        target
    }
}

impl Default for InMemoryRedis {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InMemoryRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.network.state();
        f.debug_struct("InMemoryRedis")
            .field("connections", &state.connections())
            .finish_non_exhaustive()
    }
}

/// Where it is, on its own network.
static ADDRESS: LazyLock<Address> = LazyLock::new(|| ("in-memory".into(), 6379));
