//! The handle to a blocking lock of any kind.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{Guard, wait_for};
use crate::{
    AnyLock, AtLeast, BackOff, Durability, Error, Fair, Fenced, Holder, JobOutcome, Kind,
    NonReentrant, NonReentrantFair, Owner, Queued, Read, Reentrant, Released, Simple, Spin, Waiter,
    Write, kind::Dyn,
};

/// The plain reentrant lock.
pub type ReentrantLock = Lock<Reentrant>;
/// The lock with grants in the order of requests.
pub type FairLock = Lock<Fair>;
/// The lock with fencing tokens.
pub type FencedLock = Lock<Fenced>;
/// The lock that is polled.
pub type SpinLock = Lock<Spin>;
/// The lock that refuses its owner a second hold.
pub type NonReentrantLock = Lock<NonReentrant>;
/// The fair lock that refuses its owner a second hold.
pub type NonReentrantFairLock = Lock<NonReentrantFair>;
/// The lock that services without Redisson can share.
pub type SimpleLock = Lock<Simple>;

/// A lock of a kind that is not known when the program is compiled: see [`crate::DynLock`].
pub type DynLock = Lock<Dyn>;

/// A handle to a lock of kind `K` for blocking code: see [`crate::Lock`], which has the same methods.
///
/// Every operation acts for the current OS thread, unless [`owned_by`](Self::owned_by) says otherwise.
#[derive(Debug, Clone)]
pub struct Lock<K: Kind>(crate::Lock<K>);

/// Converts a lock of an asynchronous client.
///
/// Such a client runs on the runtime that created it, unless it has [its own](crate::LockClientBuilder::own_runtime). Within a
/// task of a current-thread runtime (the default of `#[tokio::test]`) or of a `LocalSet`, a blocking call panics, because the
/// client needs that thread; `spawn_blocking` has another one. A guard that is dropped on a current-thread runtime does not
/// wait for its release; nor does one that a panic drops in a task or a `spawn_blocking` of the client's runtime.
impl<K: Kind> From<crate::Lock<K>> for Lock<K> {
    fn from(lock: crate::Lock<K>) -> Self {
        Self(lock)
    }
}

impl<K: Kind> From<Lock<K>> for AnyLock {
    fn from(lock: Lock<K>) -> Self {
        lock.0.into()
    }
}

impl<K: Kind> From<&Lock<K>> for AnyLock {
    fn from(lock: &Lock<K>) -> Self {
        (&lock.0).into()
    }
}

impl<K: Kind> Lock<K> {
    /// Acquires the lock, and waits for it without a limit: see [`crate::Lock::lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::lock`].
    pub fn lock(&self) -> Result<Guard<K>, Error> {
        self.wait(async |lock| lock.lock().await).map(Guard::new)
    }

    /// Acquires the lock if it is free, or held by this thread already: see [`crate::Lock::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::try_lock`].
    pub fn try_lock(&self) -> Result<Option<Guard<K>>, Error> {
        let taken = self.wait(async |lock| lock.try_lock().await)?;
        Ok(taken.map(Guard::new))
    }

    /// Acquires the lock, and waits for it no longer than `wait`: see [`crate::Lock::try_lock_for`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::try_lock_for`].
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard<K>>, Error> {
        let taken = self.wait(async |lock| lock.try_lock_for(wait).await)?;
        Ok(taken.map(Guard::new))
    }

    /// Acquires the lock, unless `stop` is cancelled first, by another thread: see [`crate::Lock::lock_unless`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::lock_unless`].
    pub fn lock_unless(&self, stop: &CancellationToken) -> Result<Option<Guard<K>>, Error> {
        let taken = self.wait(async |lock| lock.lock_unless(stop.cancelled()).await)?;
        Ok(taken.map(Guard::new))
    }

    /// Acquires the lock, and waits for it until `deadline`: see [`crate::Lock::try_lock_until`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::try_lock_until`].
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<Guard<K>>, Error> {
        let taken = self.wait(async |lock| lock.try_lock_until(deadline).await)?;
        Ok(taken.map(Guard::new))
    }

    /// Acquires the lock, runs `body` and releases the lock.
    ///
    /// A thread cannot be stopped from outside: `body` looks at [`Guard::is_lost`] before each step that matters.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Lost`] when the hold was lost before `body` was done: the error has the result
    /// of `body` ([`Error::take_result`]). A release that fails otherwise is logged, and the result of `body` is returned.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(client: redisson_lock::blocking::LockClient) -> Result<(), redisson_lock::Error> {
    /// let total = client.reentrant_lock("order:42").run(|_guard| 40 + 2)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<T: Send + 'static>(&self, body: impl FnOnce(&Guard<K>) -> T) -> Result<T, Error> {
        self.lock()?.run(body)
    }

    /// As [`run`](Self::run), if the lock is free; `None`, without a call of `body`, if another owner holds it.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock) and [`run`](Self::run).
    pub fn try_run<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Guard<K>) -> T,
    ) -> Result<Option<T>, Error> {
        let guard = self.try_lock()?;
        guard.map(|guard| guard.run(body)).transpose()
    }

    /// As [`run`](Self::run), if the lock becomes free within `wait`; `None`, without a call of `body`, if it does not.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for) and [`run`](Self::run).
    pub fn try_run_for<T: Send + 'static>(
        &self,
        wait: Duration,
        body: impl FnOnce(&Guard<K>) -> T,
    ) -> Result<Option<T>, Error> {
        let guard = self.try_lock_for(wait)?;
        guard.map(|guard| guard.run(body)).transpose()
    }

    /// As [`try_run`](Self::try_run), but keeps the lock for at least `least` from its grant, marked as done: see
    /// [`crate::Lock::run_at_least`]. The hold has an owner of its own: within `body`, `lock.owned_by(&guard.owner())`
    /// acquires the same lock again.
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::run_at_least`].
    pub fn run_at_least<T: Send + 'static>(
        &self,
        least: impl Into<AtLeast<T>>,
        body: impl FnOnce(&Guard<K>) -> T,
    ) -> Result<JobOutcome<T>, Error> {
        self.run_at_least_for(Duration::ZERO, least.into(), body)
    }

    /// As [`run_at_least`](Self::run_at_least), but waits for a job that is not done, for no longer than `wait`: see
    /// [`crate::Lock::run_at_least_for`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::run_at_least_for`].
    pub fn run_at_least_for<T: Send + 'static>(
        &self,
        wait: Duration,
        least: AtLeast<T>,
        body: impl FnOnce(&Guard<K>) -> T,
    ) -> Result<JobOutcome<T>, Error> {
        let begun = self.wait(async |lock| lock.begin_job(wait, &least).await)?;
        let (guard, granted) = match begun {
            Ok((guard, granted)) => (Guard::new(guard), granted),
            Err(outcome) => return Ok(outcome),
        };
        let done = body(&guard);
        let until = least.until(granted, &done);
        guard.end_job(until, done).map(JobOutcome::Ran)
    }

    /// Releases the latest hold of this thread that has no guard: see [`crate::Lock::unlock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::unlock`].
    pub fn unlock(&self) -> Result<Released, Error> {
        self.wait(async |lock| lock.unlock().await)
    }

    /// Frees the lock, whichever owner holds it: see [`crate::Lock::force_unlock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::force_unlock`].
    pub fn force_unlock(&self) -> Result<bool, Error> {
        self.wait(async |lock| lock.force_unlock().await)
    }

    /// Whether the lock is held: see [`crate::Lock::is_locked`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::is_locked`].
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.wait(async |lock| lock.is_locked().await)
    }

    /// The holders of the lock, as the server knows them: see [`crate::Lock::holders`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::holders`].
    pub fn holders(&self) -> Result<Vec<Holder>, Error> {
        self.wait(async |lock| lock.holders().await)
    }

    /// Whether this thread holds the lock and may rely on it: see [`crate::Lock::is_held`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::is_locked`].
    pub fn is_held(&self) -> Result<bool, Error> {
        self.wait(async |lock| lock.is_held().await)
    }

    /// The number of valid holds of this thread: see [`crate::Lock::hold_count`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::is_locked`].
    pub fn hold_count(&self) -> Result<u32, Error> {
        self.wait(async |lock| lock.hold_count().await)
    }

    /// The remaining time of the lock, unless it is renewed or released: see [`crate::Lock::remaining_lease`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::is_locked`].
    pub fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        self.wait(async |lock| lock.remaining_lease().await)
    }

    /// The same lock, without its kind in the type: see [`crate::Lock::into_dyn`].
    pub fn into_dyn(self) -> DynLock {
        Lock(self.0.into_dyn())
    }

    /// The same lock, held for a fixed `lease` and not renewed: see [`crate::Lock::with_lease`].
    #[must_use = "it is another handle; this one keeps its lease"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self(self.0.with_lease(lease))
    }

    /// The same lock, whose acquisitions wait for replicas as `durability` says: see [`crate::Lock::with_durability`].
    #[must_use = "it is another handle; this one stays as it is"]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self(self.0.with_durability(durability))
    }

    /// The same lock, for `owner` instead of the current thread: see [`crate::Lock::owned_by`].
    #[must_use = "it is another handle; this one keeps its owner"]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self(self.0.owned_by(owner))
    }

    /// The name of the lock: see [`crate::Lock::name`].
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The key of the lock on the server: see [`crate::Lock::key`].
    pub fn key(&self) -> &str {
        self.0.key()
    }

    fn wait<T>(
        &self,
        operation: impl AsyncFnOnce(&crate::Lock<K>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let owner = self.0.owner.unwrap_or_else(Owner::of_thread);
        let lock = self.0.owned_by(&owner);
        wait_for(lock.engine.runtime(), operation(&lock))
    }
}

impl Lock<Spin> {
    /// Returns a handle that polls with other pauses: see [`crate::Lock::with_back_off`].
    #[must_use = "it is another handle; this one keeps its pauses"]
    pub fn with_back_off(&self, back_off: BackOff) -> Self {
        Self(self.0.with_back_off(back_off))
    }
}

/// Two locks of one name, for readers and a writer: see [`crate::ReadWriteLock`].
#[derive(Debug, Clone)]
pub struct ReadWriteLock {
    read: Lock<Read>,
    write: Lock<Write>,
}

impl ReadWriteLock {
    pub(super) fn new(both: &crate::ReadWriteLock) -> Self {
        Self {
            read: both.read().clone().into(),
            write: both.write().clone().into(),
        }
    }

    /// The side of the readers.
    pub fn read(&self) -> &Lock<Read> {
        &self.read
    }

    /// The side of the writer.
    pub fn write(&self) -> &Lock<Write> {
        &self.write
    }
}

impl<K: Queued> Lock<K> {
    /// The waiters in the lock's queue, the next to be served first: see [`crate::Lock::waiters`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::waiters`].
    pub fn waiters(&self) -> Result<Vec<Waiter>, Error> {
        self.wait(async |lock| lock.waiters().await)
    }
}
