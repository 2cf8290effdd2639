//! The only way to get a lock.

mod builder;
#[cfg(feature = "redisson-yaml")]
mod redisson;

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use uuid::Uuid;

pub use builder::LockClientBuilder;
#[cfg(feature = "redisson-yaml")]
pub use redisson::RedissonConfig;

use crate::{
    back_off::BackOff,
    count_down_latch::CountDownLatch,
    election::Election,
    engine::{EngineHandle, Subject},
    error::Error,
    held_lock::{HeldLock, ShutdownReport},
    lock::{
        FairLock, FencedLock, Lock, MultiLock, NonReentrantFairLock, NonReentrantLock,
        ReadWriteLock, RedLock, ReentrantLock, SimpleLock, SpinLock,
    },
    semaphore::{PermitExpirableSemaphore, Semaphore},
    wire::{Kind, sealed::Known, site::Site},
};

/// A connection to Redis or Valkey, from which locks are had.
///
/// Cheap to clone; clones share everything. It has two connections, one for scripts and one for the messages that wake
/// waiters, and its tasks run on the tokio runtime on which it was built. When the last clone is gone, and with it the
/// last lock and guard, what was queued for release is released and the connections close; [`shutdown`](Self::shutdown)
/// does so at once and tells how it went.
///
/// # Redisson
///
/// `RedissonClient`, as far as locks are concerned.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), redisson_lock::Error> {
/// let client = redisson_lock::LockClient::connect("redis://127.0.0.1:6379").await?;
/// let lock = client.reentrant_lock("order:42");
///
/// let guard = lock.lock().await?;
/// // Alone here, among all the Rust and Java services that lock `order:42`.
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockClient {
    pub(crate) engine: EngineHandle,
}

impl LockClient {
    pub(crate) fn new(engine: EngineHandle) -> Self {
        Self { engine }
    }

    /// The id that is part of every owner of this client: `<id>:<n>` in the lock's hash. Random, and made anew for every
    /// connect.
    #[doc(alias = "getId")]
    pub fn id(&self) -> Uuid {
        self.engine.id
    }

    /// The plain reentrant lock `name`.
    ///
    /// Nothing is sent. A name that cannot be a lock's (empty, with control characters, longer than 64 KiB) is
    /// [`Error::InvalidName`] at the first use.
    ///
    /// # Redisson
    ///
    /// `redisson.getLock(name)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.reentrant_lock("order:42").lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getLock")]
    pub fn reentrant_lock(&self, name: impl Into<String>) -> ReentrantLock {
        self.lock(name.into())
    }

    /// The fair lock `name`: grants are first come, first served, over all Rust and Java services.
    ///
    /// Each waiter has an entry in a queue on the server. A waiter of this crate refreshes its entry while it waits, so
    /// that one that dies holds up those behind it for seconds (three times
    /// [`Config::poll_floor`](crate::Config::poll_floor), 15 s by default); a dead waiter of Java does so for Java's
    /// `fairLockWaitTimeout` (see [`Config::fair_lock_wait`](crate::Config::fair_lock_wait)). A wait that ends without the
    /// lock, or is dropped, leaves the queue; the entries of other waiters stay as they are.
    ///
    /// [`try_lock`](crate::Lock::try_lock) does not queue, and takes a free lock only if it has no waiter. What the order
    /// is worth, and what a long queue costs, is in
    /// [docs/fair-lock.md](https://docs.rs/crate/redisson-lock/latest/source/docs/fair-lock.md).
    ///
    /// # Redisson
    ///
    /// `redisson.getFairLock(name)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let lock = client.fair_lock("printer");
    /// if let Some(guard) = lock.try_lock_for(Duration::from_secs(60)).await? {
    ///     // Every owner that asked before has had it.
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getFairLock")]
    pub fn fair_lock(&self, name: impl Into<String>) -> FairLock {
        self.lock(name.into())
    }

    /// The read-write lock `name`: many readers, or one writer. See [`ReadWriteLock`] for its rules.
    ///
    /// # Redisson
    ///
    /// `redisson.getReadWriteLock(name)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let catalogue = client.read_write_lock("catalogue");
    /// let entries = catalogue.read().run(async |_guard| 42).await?;
    /// catalogue.write().run(async |_guard| { /* no reader now */ }).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getReadWriteLock")]
    pub fn read_write_lock(&self, name: impl Into<String>) -> ReadWriteLock {
        let name = name.into();
        ReadWriteLock::new(self.lock(name.clone()), self.lock(name))
    }

    /// The fenced lock `name`: the reentrant lock whose guards have a [token](crate::Guard::token) that rises from holder to
    /// holder.
    ///
    /// A store that compares tokens refuses what a holder writes after its time: the one thing that no lock with a lease can
    /// prevent by itself. What a token is worth, and when it can repeat, is in
    /// [docs/fenced-lock.md](https://docs.rs/crate/redisson-lock/latest/source/docs/fenced-lock.md).
    ///
    /// # Redisson
    ///
    /// `redisson.getFencedLock(name)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.fenced_lock("order:42").lock().await?;
    /// let token = guard.token();
    /// // update orders set .., token = $token where id = 42 and token <= $token
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getFencedLock")]
    pub fn fenced_lock(&self, name: impl Into<String>) -> FencedLock {
        self.lock(name.into())
    }

    /// The lock `name`, polled with growing pauses ([`BackOff`]) instead of waited for by message.
    ///
    /// For locks that are held for milliseconds and seldom contended, so that a subscription is not worth its cost. Each
    /// waiter asks by itself, after pauses that [`with_back_off`](crate::Lock::with_back_off) sets. Its data are those of
    /// the [reentrant lock](Self::reentrant_lock). Unlike Redisson's, its release is announced, so that tasks that wait
    /// for the same name as a reentrant lock need not wait for the lease to end.
    ///
    /// # Redisson
    ///
    /// `redisson.getSpinLock(name)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.spin_lock("counter").lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getSpinLock")]
    pub fn spin_lock(&self, name: impl Into<String>) -> SpinLock {
        self.lock(name.into()).with_back_off(BackOff::default())
    }

    /// The lock `name` as the [reentrant lock](Self::reentrant_lock), but its owner may not take it again: that is
    /// [`Error::AlreadyHeld`].
    ///
    /// # Redisson
    ///
    /// `redisson.getNonReentrantLock(name)`, of 4.4 and later.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::Error;
    ///
    /// let lock = client.non_reentrant_lock("order:42");
    /// let guard = lock.lock().await?;
    /// assert!(matches!(lock.try_lock().await, Err(Error::AlreadyHeld { .. })));
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getNonReentrantLock")]
    pub fn non_reentrant_lock(&self, name: impl Into<String>) -> NonReentrantLock {
        self.lock(name.into())
    }

    /// The lock `name` as the [fair lock](Self::fair_lock), but its owner may not take it again: that is
    /// [`Error::AlreadyHeld`].
    ///
    /// # Redisson
    ///
    /// `redisson.getNonReentrantFairLock(name)`, of 4.4 and later.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.non_reentrant_fair_lock("printer").lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getNonReentrantFairLock")]
    pub fn non_reentrant_fair_lock(&self, name: impl Into<String>) -> NonReentrantFairLock {
        self.lock(name.into())
    }

    /// The lock `name` as one string key with a value of its owner's and an expiry, for services without Redisson.
    ///
    /// It excludes programs that take the same key by `SET key value NX PX lease`, delete it only if the value is their own and
    /// extend it likewise: redis-py's `Lock`, redsync, Spring Integration's registry and many a home-made lock. **It does not
    /// exclude Redisson's locks**, nor the other kinds of this crate: those answer [`Error::WrongKind`] at its key, and it
    /// at theirs. It is not reentrant ([`Error::AlreadyHeld`]). As other libraries do not announce their releases, one waiter per
    /// lock asks five times a second. More is in
    /// [docs/simple-lock.md](https://docs.rs/crate/redisson-lock/latest/source/docs/simple-lock.md).
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// // Python: redis.lock("order:42", timeout=30)
    /// let guard = client.simple_lock("order:42").lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn simple_lock(&self, name: impl Into<String>) -> SimpleLock {
        self.lock(name.into())
    }

    /// The semaphore `name`: a number of permits that all services share.
    ///
    /// # Redisson
    ///
    /// `redisson.getSemaphore(name)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let pool = client.semaphore("pool");
    /// pool.try_set_permits(10).await?;
    /// let permit = pool.acquire().await?;
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getSemaphore")]
    pub fn semaphore(&self, name: impl Into<String>) -> Semaphore {
        let site = self.named(name.into()).map(Site::semaphore).map(Arc::new);
        Semaphore::new(self.engine.clone(), site)
    }

    /// The semaphore `name` whose permits have an id and an end.
    ///
    /// # Redisson
    ///
    /// `redisson.getPermitExpirableSemaphore(name)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let pool = client.permit_expirable_semaphore("pool");
    /// pool.try_set_permits(10).await?;
    /// let permit = pool.acquire(Duration::from_secs(30)).await?;
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getPermitExpirableSemaphore")]
    pub fn permit_expirable_semaphore(&self, name: impl Into<String>) -> PermitExpirableSemaphore {
        let site = self.named(name.into());
        let site = site.map(Site::semaphore).map(Arc::new);
        PermitExpirableSemaphore::new(self.engine.clone(), site)
    }

    /// The latch `name`: opens when all have counted down.
    ///
    /// # Redisson
    ///
    /// `redisson.getCountDownLatch(name)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let ready = client.count_down_latch("ready");
    /// ready.try_set_count(3).await?;
    /// ready.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getCountDownLatch")]
    pub fn count_down_latch(&self, name: impl Into<String>) -> CountDownLatch {
        let site = self.named(name.into());
        let site = site.map(Site::count_down_latch).map(Arc::new);
        CountDownLatch::new(self.engine.clone(), site)
    }

    /// The election `name`: at any time at most one candidate leads. See [`Election`].
    ///
    /// It is the [fenced lock](Self::fenced_lock) of the same name, with the identity of the leader beside it.
    ///
    /// # Redisson
    ///
    /// None; `redisson.getFencedLock(name)` takes part.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let election = client.election("leaders");
    /// let term = election.campaign("host-7").await?;
    /// assert_eq!(election.leader().await?.unwrap().identity, "host-7");
    /// term.resign().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.fenced_lock(name))
    }

    /// All of the reentrant locks `names`, or none: see [`MultiLock::of`] for locks of other kinds and clients.
    ///
    /// # Redisson
    ///
    /// `redisson.getMultiLock(locks)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let transfer = client.multi_lock(["account:1", "account:2"]);
    /// let guard = transfer.lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getMultiLock")]
    pub fn multi_lock(&self, names: impl IntoIterator<Item = impl Into<String>>) -> MultiLock {
        MultiLock::of(self.reentrant_locks(names))
    }

    /// A majority of the reentrant locks `names`. On one server that is worth little: see [`RedLock::of`] for locks of
    /// several clients, and [`RedLock`] for what it guarantees.
    ///
    /// # Redisson
    ///
    /// `redisson.getRedLock(locks)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::RedLock;
    ///
    /// // On one server this is for trying it out. What it is made for:
    /// let (a, b, c) = (client.clone(), client.clone(), client); // clients of three servers
    /// let lock = RedLock::of([a, b, c].map(|client| client.reentrant_lock("job")));
    /// let guard = lock.lock().await?;
    /// println!("held until {:?}", guard.valid_until());
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getRedLock")]
    pub fn red_lock(&self, names: impl IntoIterator<Item = impl Into<String>>) -> RedLock {
        RedLock::of(self.reentrant_locks(names))
    }

    /// What this client holds now and may rely on, the longest held first. Sends nothing.
    ///
    /// For a page of a program's state, and for the question why it does not end. A hold whose guard was dropped is not listed.
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) {
    /// for held in client.holds() {
    ///     println!("{} for {:?}", held.name, held.since.elapsed());
    /// }
    /// # }
    /// ```
    pub fn holds(&self) -> Vec<HeldLock> {
        self.engine.held()
    }

    /// Whether there are connections to all servers that locks are asked for at. Sends nothing: a server that has just stopped
    /// answering still counts.
    ///
    /// For a readiness probe. Calls wait for a connection by themselves, within their limits.
    ///
    /// # Redisson
    ///
    /// None.
    pub fn is_connected(&self) -> bool {
        self.engine.is_connected()
    }

    /// Asks all servers that locks are asked for at for a sign of life (`PING`), and says how long the slowest took to answer.
    ///
    /// For a health check that is to notice a server that has just stopped answering, which
    /// [`is_connected`](Self::is_connected) does not. A user without the right to `PING` may use it as well.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when a server is not connected to or does not answer within
    /// [`Config::command_wait`](crate::Config::command_wait), or does not serve now; [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Redisson
    ///
    /// `redisson.getRedisNodes(..).pingAll()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// println!("Redis answers within {:?}", client.ping().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ping(&self) -> Result<Duration, Error> {
        self.engine.ping().await
    }

    fn reentrant_locks(
        &self,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> impl Iterator<Item = ReentrantLock> {
        names.into_iter().map(|name| self.reentrant_lock(name))
    }

    /// The name with what the settings put in front of it.
    fn named(&self, name: String) -> Result<Arc<str>, Box<Error>> {
        let name = match &*self.engine.config.name_prefix {
            "" => name,
            prefix => format!("{prefix}{name}"),
        };
        match self.engine.check_name(&name) {
            Ok(()) => Ok(name.into()),
            Err(reason) => Err(Box::new(Error::InvalidName {
                name: shortened(name),
                reason,
            })),
        }
    }

    fn lock<K: Kind + Known>(&self, name: String) -> Lock<K> {
        let subject = |name| Subject {
            spec: Arc::new(K::PROTOCOL.spec(name, &self.engine.config)),
            options: self.engine.terms.clone(),
        };
        Lock {
            engine: self.engine.clone(),
            subject: self.named(name).map(subject),
            owner: None,
            kind: PhantomData,
        }
    }

    /// Ends the client, for all its clones.
    ///
    /// What is queued for release (dropped guards, attempts whose futures were dropped) is released, and waiters in fair
    /// queues leave them, for up to about 5 s.
    /// Remaining holders of this client are told that their locks are lost, with
    /// [`LostReason::Closed`](crate::LostReason::Closed): such holds are no longer renewed, and **not** released
    /// either, as their holders may need a moment to stop. They end with their leases, and the report lists them. From
    /// here on every operation answers [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the shutdown, but its report is lost.
    ///
    /// # Redisson
    ///
    /// `redisson.shutdown()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) {
    /// let report = client.shutdown().await;
    /// for hold in &report.unreleased {
    ///     eprintln!("{} stays locked by {} for up to {:?}", hold.name, hold.owner, hold.until);
    /// }
    /// # }
    /// ```
    pub async fn shutdown(&self) -> ShutdownReport {
        self.engine.shutdown().await
    }

    /// As [`shutdown`](Self::shutdown), and releases what is still held, as the last step of a program that has stopped all work.
    ///
    /// Holders are told first ([`LostReason::Closed`](crate::LostReason::Closed)), and other owners enter at once: a program that may still
    /// be at work under a lock is better left to [`shutdown`](Self::shutdown). Waits for up to another 5 s.
    ///
    /// # Cancel safety
    ///
    /// As [`shutdown`](Self::shutdown).
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// client.reentrant_lock("migration").lock().await?.leak();
    /// // The work, and then, where nothing runs after it:
    /// let report = client.shutdown_and_release().await;
    /// assert!(report.unreleased.is_empty());
    /// std::process::exit(0);
    /// # }
    /// ```
    pub async fn shutdown_and_release(&self) -> ShutdownReport {
        self.engine.shutdown_and_release().await
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// A long name is shown by its beginning.
fn shortened(name: String) -> String {
    const SHOWN: usize = 40;
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name,
    }
}
