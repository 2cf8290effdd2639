//! `LockClient`, which creates every lock.

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
    engine::EngineHandle,
    error::Error,
    held_lock::{HeldLock, ShutdownReport},
    lock::{
        FairLock, FencedLock, Lock, MultiLock, NonReentrantFairLock, NonReentrantLock,
        ReadWriteLock, RedLock, ReentrantLock, SimpleLock, SpinLock,
    },
    semaphore::{PermitExpirableSemaphore, Semaphore},
    wire::{Kind, sealed::Known, sync_spec::SyncSpec},
};

/// A client of Redis or Valkey. It creates the handles of all locks.
///
/// Cheap to clone; clones share everything, so one client per process and server is enough. A client has two connections to a
/// master, one for scripts and one for the messages that wake waiters. Each [`Durability`](crate::Durability) that waits for
/// replicas has a further one. A cluster without sharded messages ([`ShardedPubSub`](crate::ShardedPubSub)) needs one connection
/// for messages in all. The client also connects to sentinels and, to find the master or the slots, to other servers.
///
/// The client's tasks run on the tokio runtime on which it was built. When the last clone, lock and guard are gone, the client
/// finishes its queued releases and closes its connections. [`shutdown`](Self::shutdown) closes the client now, waits up to 5 s
/// for queued releases, and returns a report.
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

    /// Returns the id that is part of every owner of this client: `<id>:<n>` in the lock's hash. Each client has a new id, of
    /// the time and random bits. Its time bounds the age of the client's holds ([`Since`](crate::Since)).
    ///
    /// # Redisson
    ///
    /// `redisson.getId()`.
    #[doc(alias = "getId")]
    pub fn id(&self) -> Uuid {
        self.engine.id
    }

    /// The plain reentrant lock `name`.
    ///
    /// Sends nothing. An invalid name (empty, with control characters, longer than 64 KiB) is [`Error::InvalidName`] at the first
    /// use. A [`Config::name_prefix`](crate::Config::name_prefix) does not make an empty name valid.
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
    /// Each waiter has an entry in a queue on the server. A waiter of this crate refreshes its entry while it waits, so a dead waiter
    /// delays the waiters behind it for seconds only (up to 5.5 s by default, see
    /// [`Config::max_poll_interval`](crate::Config::max_poll_interval)). A dead Java waiter delays them for Java's `fairLockWaitTimeout` (see
    /// [`Config::fair_lock_wait`](crate::Config::fair_lock_wait)). A wait that ends without the lock, or is dropped, leaves the
    /// queue; the entries of other waiters stay as they are.
    ///
    /// [`try_lock`](crate::Lock::try_lock) does not queue, and acquires a free lock only if it has no waiter.
    /// [docs/fair-lock.md](https://docs.rs/crate/redisson-lock/latest/source/docs/fair-lock.md) says where the order breaks, and
    /// what a long queue costs.
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
    /// A store that compares tokens refuses the late writes of a former holder, which no lock with a lease can prevent by itself.
    /// [docs/fenced-lock.md](https://docs.rs/crate/redisson-lock/latest/source/docs/fenced-lock.md) says what a token guarantees,
    /// and when it can repeat.
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

    /// The lock `name`, whose waiters poll with growing pauses ([`BackOff`]) instead of waiting for a message.
    ///
    /// For locks that are held for milliseconds and seldom contended, where a subscription is not worth its cost. A waiter asks
    /// after the pauses of [`with_back_off`](crate::Lock::with_back_off). Its data are those of the
    /// [reentrant lock](Self::reentrant_lock). Unlike Redisson's, its release publishes a message: it wakes tasks that wait for the
    /// same name as a reentrant lock.
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

    /// The lock `name` as the [reentrant lock](Self::reentrant_lock), but a second hold of one owner is [`Error::AlreadyHeld`].
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

    /// The lock `name` as the [fair lock](Self::fair_lock), but a second hold of one owner is [`Error::AlreadyHeld`].
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

    /// The lock `name` as one string key with an expiry, for services without Redisson. The value is the owner.
    ///
    /// Excludes programs that acquire the same key by `SET key value NX PX lease`, and delete or extend it only if the value is their
    /// own: redis-py's `Lock`, redsync, Spring Integration's registry and many home-made locks. **Does not exclude Redisson's locks**
    /// or the other kinds of this crate: each returns [`Error::WrongKind`] at the other's key. Not reentrant
    /// ([`Error::AlreadyHeld`]). Other libraries publish no release, so one waiter per lock and client asks five times a second. More is in
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
        let site = self.named(name.into());
        let site = site.map(|name| self.site(name, SyncSpec::semaphore));
        Semaphore::new(self.engine.clone(), site.map(Arc::new))
    }

    /// The semaphore `name` whose permits have an id and a lease, which the watchdog renews. The permits of a killed process become
    /// available again.
    ///
    /// # Redisson
    ///
    /// `redisson.getPermitExpirableSemaphore(name)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let pool = client.permit_expirable_semaphore("pool");
    /// pool.try_set_permits(10).await?;
    /// let permit = pool.acquire().await?;
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getPermitExpirableSemaphore")]
    pub fn permit_expirable_semaphore(&self, name: impl Into<String>) -> PermitExpirableSemaphore {
        let site = self.named(name.into());
        let site = site.map(|name| self.site(name, SyncSpec::semaphore));
        PermitExpirableSemaphore::new(self.engine.clone(), site.map(Arc::new))
    }

    /// The latch `name`, which opens when its count reaches zero.
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
        let site = site.map(|name| self.site(name, SyncSpec::count_down_latch));
        let site = site.and_then(|spec| match self.engine.check_latch(&spec) {
            Ok(()) => Ok(Arc::new(spec)),
            Err(reason) => Err(invalid_name(spec.name.to_string(), reason)),
        });
        CountDownLatch::new(self.engine.clone(), site)
    }

    /// The election `name`: at any time at most one candidate leads. See [`Election`].
    ///
    /// An election is the [fenced lock](Self::fenced_lock) of the same name, with the leader's identity in its hash.
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

    /// All of the [fenced locks](Self::fenced_lock) `names`, or none: [`MultiGuard::token_of`](crate::MultiGuard::token_of) returns the
    /// token of each.
    ///
    /// # Redisson
    ///
    /// `redisson.getMultiLock(locks)` of fenced locks, which shows no token.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let transfer = client.multi_fenced_lock(["account:1", "account:2"]);
    /// let guard = transfer.lock().await?;
    /// let token = guard.token_of("account:1");
    /// // update accounts set .., token = $token where id = 1 and token <= $token
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_fenced_lock(
        &self,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> MultiLock {
        MultiLock::of(names.into_iter().map(|name| self.fenced_lock(name)))
    }

    /// A majority of the reentrant locks `names`. On one server that adds no safety: see [`RedLock::of`] for locks of several
    /// clients, and [`RedLock`] for its guarantees.
    ///
    /// # Redisson
    ///
    /// `redisson.getRedLock(locks)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{LockClient, RedLock};
    ///
    /// // A RedLock belongs on servers that share nothing:
    /// let a = LockClient::connect("redis://redis-1").await?;
    /// let b = LockClient::connect("redis://redis-2").await?;
    /// let c = LockClient::connect("redis://redis-3").await?;
    /// let lock = RedLock::of([&a, &b, &c].map(|client| client.reentrant_lock("job")));
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

    /// Returns the valid holds of this client, the oldest first. Sends nothing.
    ///
    /// For a status page, or to find out why a program does not end. Omits a hold whose guard was dropped.
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

    /// Returns whether the client has a connection to every server that it needs. Sends nothing.
    ///
    /// - *One server, sentinels, replicated*: the connection to the server or master is open.
    /// - *Cluster*: each slot has a known owner, its connection is open, and it has not reported that it gave the slot up.
    ///
    /// A server that has just stopped answering, or just become a replica, still counts; [`ping`](Self::ping) notices it. For a
    /// readiness probe. Calls wait for a connection by themselves, within their limits.
    ///
    /// # Redisson
    ///
    /// None.
    pub fn is_connected(&self) -> bool {
        self.engine.is_connected()
    }

    /// Sends `PING` to every server that the client needs. Returns how long the slowest took to answer. Waits for a missing connection
    /// and for the answers, for [`Config::command_wait`](crate::Config::command_wait) in all. `Ok` proves:
    ///
    /// - *One server, sentinels, replicated*: the server of the locks answers, and is no replica (`ROLE`).
    /// - *A proxy*: it answers. A peer that refuses `ROLE` counts as one. [`EndpointKind::Proxy`](crate::EndpointKind::Proxy) is not asked.
    /// - *Cluster*: each slot has a node, and each of these nodes answers and reports that it serves all slots (`CLUSTER INFO`).
    ///
    /// For a health check that must notice a server that has just stopped answering; [`is_connected`](Self::is_connected) does not.
    /// Works also for a user without the rights to these commands, and then proves less.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when a server has no connection, does not answer within
    /// [`Config::command_wait`](crate::Config::command_wait), or cannot serve now; [`Error::Closed`].
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

    /// The name, if its lock can exist.
    fn named(&self, name: String) -> Result<Arc<str>, Box<Error>> {
        let name: Arc<str> = name.into();
        match self.engine.check_name(&name) {
            Ok(()) => Ok(name),
            Err(reason) => Err(invalid_name(name.to_string(), reason)),
        }
    }

    fn site(&self, name: Arc<str>, spec: fn(Arc<str>, &str) -> SyncSpec) -> SyncSpec {
        let key = self.engine.key_of(&name);
        spec(name, &key)
    }

    fn lock<K: Kind + Known>(&self, name: String) -> Lock<K> {
        let subject = |name| self.engine.subject(name, K::PROTOCOL);
        Lock {
            engine: self.engine.clone(),
            subject: self.named(name).map(subject),
            owner: None,
            kind: PhantomData,
        }
    }

    /// Ends the client, for all its clones.
    ///
    /// Waits for up to about 5 s while the client finishes its queued releases (dropped guards, dropped futures) and its waiters leave
    /// fair queues. Then the remaining holders lose their holds, with [`LostReason::Closed`](crate::LostReason::Closed). Nothing
    /// renews such holds, and the client does **not** release them, because their holders may need time to stop. Their leases end
    /// them, and the report lists them. Later operations return [`Error::Closed`]; a guard whose hold the shutdown ended
    /// returns [`Error::Lost`].
    ///
    /// Permits of semaphores stay acquired, and the report omits them: release them first.
    ///
    /// One call returns the report: after it, further calls return an empty one, and
    /// [`shutdown_and_release`](Self::shutdown_and_release) releases nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the shutdown. The next call returns the report, of the holds that are still valid then.
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
    ///     eprintln!("stays locked: {hold}");
    /// }
    /// # }
    /// ```
    pub async fn shutdown(&self) -> ShutdownReport {
        self.engine.shutdown().await
    }

    /// Whether the client was shut down, or the runtime that created it has ended. Its operations then return [`Error::Closed`].
    /// True from the call of [`shutdown_within`](Self::shutdown_within) on, although holders may still release and extend.
    ///
    /// # Redisson
    ///
    /// `redisson.isShutdown()`.
    #[doc(alias = "isShutdown")]
    pub fn is_closed(&self) -> bool {
        self.engine.refuses()
    }

    /// Completes when a shutdown of the client begins, or when its runtime ends: for tasks that end with it.
    ///
    /// A clone that waits here keeps the client open: the drop of all other clones does not complete it. Releases that are under way
    /// go on until [`shutdown`](Self::shutdown) returns, so a program should await that call before it exits.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    ///
    /// # Redisson
    ///
    /// None.
    pub async fn closed(&self) {
        self.engine.refusing().await;
    }

    /// As [`shutdown`](Self::shutdown), and releases the remaining holds. For the last step of a program that has stopped all work.
    ///
    /// The holders lose their holds first ([`LostReason::Closed`](crate::LostReason::Closed)), and other owners enter at once.
    /// [`Lock::run`](crate::Lock::run) and its like then drop their body at its present await point and return [`Error::Lost`]: the
    /// lock may be free before a body on another thread reaches that point. Permits of semaphores stay acquired. Locks of finished
    /// [`run_at_least`](crate::Lock::run_at_least) jobs stay held for their time, and the report omits them, as that of
    /// [`shutdown`](Self::shutdown) does. A program whose tasks may still work under a lock should call
    /// [`shutdown_within`](Self::shutdown_within), or [`shutdown`](Self::shutdown). Waits for up to another 5 s. It waits half a
    /// second at most for a member of a [`RedLock`], and skips a server without a connection.
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
    /// // After the last work of the program:
    /// let report = client.shutdown_and_release().await;
    /// assert!(report.unreleased.is_empty());
    /// std::process::exit(0);
    /// # }
    /// ```
    pub async fn shutdown_and_release(&self) -> ShutdownReport {
        self.engine.shutdown_and_release().await
    }

    /// Refuses acquisitions, waits for the holders for no longer than `wait`, and then does as
    /// [`shutdown_and_release`](Self::shutdown_and_release). For a service that was told to stop.
    ///
    /// From the call on, acquisitions and waits of all clones return [`Error::Closed`], nested ones of holders too, and
    /// [`closed`](Self::closed) completes. Holders may work, extend and release: the watchdog renews their holds meanwhile. The wait
    /// ends at the last release, of leaked holds and of guarded permits too. After `wait`, the remaining holders lose their holds,
    /// bodies of [`Lock::run`](crate::Lock::run) are dropped, and the locks are released. That takes milliseconds, or up to another
    /// 10 s if Redis does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait: the client goes on to refuse acquisitions, and holders keep their holds. A further call of
    /// any shutdown goes on.
    ///
    /// # Redisson
    ///
    /// `redisson.shutdown(quietPeriod, timeout, unit)` waits for its own tasks, not for holders.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn stop_signal() {}
    /// # async fn example(client: redisson_lock::LockClient) {
    /// use std::time::Duration;
    ///
    /// stop_signal().await;
    /// let report = client.shutdown_within(Duration::from_secs(20)).await;
    /// assert!(report.unreleased.is_empty());
    /// # }
    /// ```
    pub async fn shutdown_within(&self, wait: Duration) -> ShutdownReport {
        self.engine.shutdown_within(wait).await
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// Cuts a long name to its beginning.
fn shortened(name: String) -> String {
    const SHOWN: usize = 40;
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name,
    }
}

fn invalid_name(name: String, reason: &'static str) -> Box<Error> {
    Box::new(Error::InvalidName {
        name: shortened(name),
        reason,
    })
}
