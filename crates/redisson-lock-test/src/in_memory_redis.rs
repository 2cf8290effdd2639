//! The in-memory server for tests of users.

use std::{fmt, sync::LazyLock, time::Duration};

use bytes::Bytes;
use redisson_lock::{
    Config, Error, LockClient, LockClientBuilder,
    transport::{Frame, TransportError},
};
use tokio::time::Instant;

use super::{
    Address, Refusal, Server, Settings, faults::Faults, network::Network, raw::RawConnection,
    text_of,
};

/// A Redis server in the process, for tests of code that uses locks.
///
/// It runs the crate's own Lua scripts on a key space in memory. Its clients are ordinary [`LockClient`]s: they queue, are woken,
/// renew and lose locks as on a real server. Its clock is tokio's: under a paused clock (`#[tokio::test(start_paused = true)]`) a
/// lease of 30 s takes no time. A clone is the same server. Under a paused clock, use all its clients in one runtime, because each
/// runtime has its own clock. [`Guard::valid_until`](redisson_lock::Guard::valid_until) is a time of that clock: compare it with
/// `tokio::time::Instant::now().into_std()`.
///
/// It is not a database: it runs the commands that locks need, and refuses any other command by name.
///
/// # Examples
///
/// A holder without a connection learns of the loss of its lock in time:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redisson_lock::Error> {
/// use std::time::Duration;
/// use redisson_lock_test::InMemoryRedis;
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
    /// Creates a server without data and without faults.
    pub fn new() -> Self {
        let network = Network::new();
        network
            .state()
            .add(ADDRESS.clone(), Server::new(Settings::default()));
        Self { network }
    }

    /// Lets `faults` decide about faults from now on.
    #[doc(hidden)]
    pub fn set_faults(&self, faults: impl Faults + 'static) {
        self.network.state().faults = Box::new(faults);
    }

    /// The live keys of the server.
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

    /// The number of open connections of clients.
    pub fn connections(&self) -> usize {
        self.network.state().connections()
    }

    /// The remaining lease of the lock `name`: `None` if it is free, [`Duration::MAX`] without an expiry. For several readers, the
    /// longest lease.
    pub fn remaining_lease(&self, name: &str) -> Option<Duration> {
        let state = self.network.state();
        let millis = state.millis(Instant::now());
        let host = state.servers.get(&*ADDRESS)?;
        host.server.lease(name, millis)
    }

    /// Connects a client with the default settings.
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

    /// Connects a client with these settings.
    ///
    /// # Errors
    ///
    /// As [`client`](Self::client); [`Error::Config`] for invalid settings.
    ///
    /// # Cancel safety
    ///
    /// As [`LockClient::connect`].
    pub async fn client_with(&self, config: Config) -> Result<LockClient, Error> {
        self.builder().config(config).build().await
    }

    /// Returns a builder of clients of this server, for further settings.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock_test::InMemoryRedis;
    ///
    /// let server = InMemoryRedis::new();
    /// server.stop();
    /// // A program that starts while its server is down:
    /// let client = server.builder().lazy(true).build().await?;
    /// server.start();
    /// client.reentrant_lock("order:42").lock().await?.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(&self) -> LockClientBuilder {
        let (host, port) = &*ADDRESS;
        LockClient::builder()
            .url(format!("redis://{host}:{port}"))
            .transport(self.network.clone())
    }

    /// Ends all connections, like a short network failure. Clients reconnect at once.
    pub fn disconnect(&self) {
        self.network.state().disconnect(None);
    }

    /// Ends all connections, and accepts none until [`start`](Self::start). The data stays, and expires as usual.
    pub fn stop(&self) {
        self.network.state().set_up(&ADDRESS, false);
        self.disconnect();
    }

    /// Accepts connections again.
    pub fn start(&self) {
        self.network.state().set_up(&ADDRESS, true);
    }

    /// Ends all connections and deletes all data and scripts, like the restart of a server without persistence. A
    /// [stopped](Self::stop) server stays stopped.
    pub fn restart(&self) {
        self.network.state().restart(&ADDRESS);
    }

    /// Lets the next `count` scripts of any client fail with [`Error::Redis`]. Acquisitions, releases, renewals and the retries of
    /// waiters are scripts. Several operations may share one, such as those of a group: then all of them fail. A client repeats a
    /// release that fails. A further call replaces the count.
    pub fn fail_next(&self, count: usize) {
        if let Some(host) = self.network.state().servers.get_mut(&ADDRESS) {
            host.server.settings.failing_scripts = count;
        }
    }

    /// The owners that hold the lock `name`, with their hold counts, from the server's data: `<client id>:<number>`, followed by
    /// `:write` for a writer. The owner of a simple lock is its value.
    pub fn holders(&self, name: &str) -> Vec<(String, u64)> {
        let state = self.network.state();
        let millis = state.millis(Instant::now());
        let host = state.servers.get(&ADDRESS);
        host.map_or_else(Vec::new, |host| host.server.holders(name, millis))
    }

    /// Forgets all scripts, like `SCRIPT FLUSH`. Clients send them again.
    pub fn forget_scripts(&self) {
        self.run("SCRIPT", &["FLUSH"]);
    }

    /// Deletes the lock `name` of any kind, like an operator by hand. A holder with a renewed lease learns of it at its next
    /// renewal. Returns whether the lock existed.
    pub fn delete(&self, name: &str) -> bool {
        matches!(self.run("DEL", &[name]), Frame::Number(1))
    }

    /// Sets the string `key`, like a service that uses the name of a lock for other data.
    pub fn set(&self, key: &str, value: &str) {
        self.run("SET", &[key, value]);
    }

    /// Lets `time` and one more millisecond pass. Under a paused clock this takes no time, and everything that is due meanwhile
    /// happens in order. tokio advances a paused clock only when all tasks wait, so everything due at the end of `time` has
    /// happened before that millisecond ends.
    ///
    /// `tokio::time::advance` jumps: renewals that are due in between would be late.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe; the time that has passed does not come back.
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

    /// Sets the server's clock to `time`.
    #[doc(hidden)]
    pub fn set_clock(&self, time: std::time::SystemTime) {
        let since = time
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        self.network.state().set_millis(since.as_millis() as u64);
    }

    /// Opens a connection for another kind of client.
    ///
    /// # Errors
    ///
    /// The reason why there is none.
    #[doc(hidden)]
    pub async fn raw(&self) -> Result<RawConnection, TransportError> {
        RawConnection::open(&self.network, &ADDRESS).await
    }

    /// Lets the server refuse all commands that may need memory, or none.
    #[doc(hidden)]
    pub fn set_full(&self, is_full: bool) {
        let mut state = self.network.state();
        if let Some(host) = state.servers.get_mut(&ADDRESS) {
            host.server.settings.refusal = is_full.then_some(Refusal::OutOfMemory);
        }
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

/// Its address in its own network.
static ADDRESS: LazyLock<Address> = LazyLock::new(|| ("in-memory".into(), 6379));
