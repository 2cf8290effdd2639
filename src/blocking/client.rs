//! The client for blocking code.

use std::{io, panic::resume_unwind, thread, time::Duration};

use tokio::runtime::Builder;
use uuid::Uuid;

use super::{
    CountDownLatch, Election, FairLock, FencedLock, MultiLock, NonReentrantFairLock,
    NonReentrantLock, PermitExpirableSemaphore, ReadWriteLock, RedLock, ReentrantLock, Semaphore,
    SimpleLock, SpinLock, wait_for,
};
use crate::{HeldLock, LockClientBuilder, ShutdownReport, error::Error};

/// A client of Redis or Valkey that makes blocking locks: see [`crate::LockClient`].
///
/// Cheap to clone; clones share everything, and may be used from any thread.
#[derive(Debug, Clone)]
pub struct LockClient(crate::LockClient);

impl LockClient {
    /// Connects to the server at `url`, with the default settings: see [`crate::LockClient::connect`]. For other settings,
    /// use [`build_blocking`](LockClientBuilder::build_blocking).
    ///
    /// # Errors
    ///
    /// As [`crate::LockClient::connect`].
    pub fn connect(url: impl AsRef<str>) -> Result<Self, Error> {
        crate::LockClient::builder().url(url).build_blocking()
    }

    /// Connects by the settings of Redisson's YAML: see [`crate::LockClient::from_redisson_yaml`].
    ///
    /// # Errors
    ///
    /// As [`crate::LockClient::from_redisson_yaml`].
    #[cfg(feature = "redisson-yaml")]
    pub fn from_redisson_yaml(text: impl AsRef<str>) -> Result<Self, Error> {
        crate::RedissonConfig::logged_builder(text)?.build_blocking()
    }

    pub(crate) fn build(builder: LockClientBuilder) -> Result<Self, Error> {
        let work = || {
            let here = Builder::new_current_thread().enable_time().build()?;
            Ok(here.block_on(builder.build()))
        };
        // A thread without a runtime: pauses between attempts need `block_on`, which panics within an async task.
        let built = thread::scope(|scope| {
            let built = thread::Builder::new().spawn_scoped(scope, work)?.join();
            built.unwrap_or_else(|panic| resume_unwind(panic))
        });
        let failed = |error: io::Error| Error::config(format!("the client cannot start: {error}"));
        built.map_err(failed)?.map(Self)
    }

    /// The same client for async code. It has the same holds, and its tasks run on the client's own thread.
    pub fn asynchronous(&self) -> &crate::LockClient {
        &self.0
    }

    /// The id that is part of every owner of this client.
    pub fn id(&self) -> Uuid {
        self.0.id()
    }

    /// The plain reentrant lock `name`: see [`crate::LockClient::reentrant_lock`].
    pub fn reentrant_lock(&self, name: impl Into<String>) -> ReentrantLock {
        self.0.reentrant_lock(name).into()
    }

    /// The fair lock `name`: see [`crate::LockClient::fair_lock`].
    pub fn fair_lock(&self, name: impl Into<String>) -> FairLock {
        self.0.fair_lock(name).into()
    }

    /// The fenced lock `name`: see [`crate::LockClient::fenced_lock`].
    pub fn fenced_lock(&self, name: impl Into<String>) -> FencedLock {
        self.0.fenced_lock(name).into()
    }

    /// The lock `name` that is polled: see [`crate::LockClient::spin_lock`].
    pub fn spin_lock(&self, name: impl Into<String>) -> SpinLock {
        self.0.spin_lock(name).into()
    }

    /// The lock `name` that refuses its owner a second hold: see [`crate::LockClient::non_reentrant_lock`].
    pub fn non_reentrant_lock(&self, name: impl Into<String>) -> NonReentrantLock {
        self.0.non_reentrant_lock(name).into()
    }

    /// The fair lock `name` that refuses its owner a second hold: see [`crate::LockClient::non_reentrant_fair_lock`].
    pub fn non_reentrant_fair_lock(&self, name: impl Into<String>) -> NonReentrantFairLock {
        self.0.non_reentrant_fair_lock(name).into()
    }

    /// The lock `name` for services without Redisson: see [`crate::LockClient::simple_lock`].
    pub fn simple_lock(&self, name: impl Into<String>) -> SimpleLock {
        self.0.simple_lock(name).into()
    }

    /// The read-write lock `name`: see [`crate::LockClient::read_write_lock`].
    pub fn read_write_lock(&self, name: impl Into<String>) -> ReadWriteLock {
        ReadWriteLock::new(&self.0.read_write_lock(name))
    }

    /// The semaphore `name`: see [`crate::LockClient::semaphore`].
    pub fn semaphore(&self, name: impl Into<String>) -> Semaphore {
        Semaphore(self.0.semaphore(name))
    }

    /// The semaphore `name` whose permits end: see [`crate::LockClient::permit_expirable_semaphore`].
    pub fn permit_expirable_semaphore(&self, name: impl Into<String>) -> PermitExpirableSemaphore {
        PermitExpirableSemaphore(self.0.permit_expirable_semaphore(name))
    }

    /// The latch `name`: see [`crate::LockClient::count_down_latch`].
    pub fn count_down_latch(&self, name: impl Into<String>) -> CountDownLatch {
        CountDownLatch(self.0.count_down_latch(name))
    }

    /// The election `name`: see [`crate::LockClient::election`].
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.0.election(name), self.0.engine.runtime().clone())
    }

    /// All of the reentrant locks `names`, or none: see [`crate::LockClient::multi_lock`].
    pub fn multi_lock(&self, names: impl IntoIterator<Item = impl Into<String>>) -> MultiLock {
        self.0.multi_lock(names).into()
    }

    /// All of the fenced locks `names`, or none: see [`crate::LockClient::multi_fenced_lock`].
    pub fn multi_fenced_lock(
        &self,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> MultiLock {
        self.0.multi_fenced_lock(names).into()
    }

    /// A majority of the reentrant locks `names`: see [`crate::LockClient::red_lock`].
    pub fn red_lock(&self, names: impl IntoIterator<Item = impl Into<String>>) -> RedLock {
        self.0.red_lock(names).into()
    }

    /// The valid holds of this client: see [`crate::LockClient::holds`].
    pub fn holds(&self) -> Vec<HeldLock> {
        self.asynchronous().holds()
    }

    /// Whether the client was shut down: see [`crate::LockClient::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.asynchronous().is_closed()
    }

    /// Whether there is a connection to every server that the client needs, on a cluster to an owner of each slot: see
    /// [`crate::LockClient::is_connected`].
    pub fn is_connected(&self) -> bool {
        self.asynchronous().is_connected()
    }

    /// Pings all servers: whether each answers and serves locks. [`crate::LockClient::ping`] says what that proves for each set-up.
    ///
    /// # Errors
    ///
    /// As [`crate::LockClient::ping`].
    pub fn ping(&self) -> Result<Duration, Error> {
        wait_for(self.0.engine.runtime(), self.0.ping())
    }

    /// Ends the client, for all its clones: see [`crate::LockClient::shutdown`].
    pub fn shutdown(&self) -> ShutdownReport {
        wait_for(self.0.engine.runtime(), self.0.shutdown())
    }

    /// Refuses acquisitions, waits for holders for no longer than `wait`, then ends the client and releases what it still holds: see
    /// [`crate::LockClient::shutdown_within`].
    pub fn shutdown_within(&self, wait: Duration) -> ShutdownReport {
        wait_for(self.0.engine.runtime(), self.0.shutdown_within(wait))
    }

    /// Ends the client and releases what it still holds: see [`crate::LockClient::shutdown_and_release`].
    pub fn shutdown_and_release(&self) -> ShutdownReport {
        wait_for(self.0.engine.runtime(), self.0.shutdown_and_release())
    }
}

impl LockClientBuilder {
    /// Connects, for code without async: see [`blocking`](super).
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let client = redisson_lock::LockClient::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .build_blocking()?;
    /// # Ok::<(), redisson_lock::Error>(())
    /// ```
    pub fn build_blocking(self) -> Result<LockClient, Error> {
        LockClient::build(self.own_runtime(true))
    }
}
