//! Several locks as one, for blocking code.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{give_back, wait_for};
use crate::{
    All, AnyLock, Error, LostReason, Majority, Owner, Quorum, Released, guard::release_after,
};

/// All of several locks, or none: see [`crate::MultiLock`].
pub type MultiLock = GroupLock<All>;
/// A majority of several locks, on servers that fail independently: see [`crate::RedLock`] and [`RedLock::of`](GroupLock::of).
pub type RedLock = GroupLock<Majority>;

/// A handle to several locks as one, for blocking code: see [`crate::GroupLock`].
#[derive(Debug, Clone)]
pub struct GroupLock<Q: Quorum>(crate::GroupLock<Q>);

impl<Q: Quorum> From<crate::GroupLock<Q>> for GroupLock<Q> {
    fn from(group: crate::GroupLock<Q>) -> Self {
        Self(group)
    }
}

impl<Q: Quorum> GroupLock<Q> {
    /// The group of `locks`, of any kinds and clients, blocking or not: see [`crate::GroupLock::of`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(clients: [redisson_lock::blocking::LockClient; 3]) -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::blocking::RedLock;
    ///
    /// // Each client has a server of its own.
    /// let lock = RedLock::of(clients.map(|client| client.reentrant_lock("order:42")));
    /// let guard = lock.lock()?;
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(locks: impl IntoIterator<Item = impl Into<AnyLock>>) -> Self {
        Self(crate::GroupLock::of(locks))
    }

    /// Acquires the locks, and waits for them without a limit: see [`crate::GroupLock::lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::lock`].
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        let guard = self.wait(async |group| group.lock().await)?;
        Ok(MultiGuard::new(guard))
    }

    /// Acquires the locks if they are free, or held by this thread already: see [`crate::GroupLock::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::try_lock`].
    pub fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        let taken = self.wait(async |group| group.try_lock().await)?;
        Ok(taken.map(MultiGuard::new))
    }

    /// Acquires the locks, and waits for them for `wait`: see [`crate::GroupLock::try_lock_for`].
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::try_lock_for`].
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        let taken = self.wait(async |group| group.try_lock_for(wait).await)?;
        Ok(taken.map(MultiGuard::new))
    }

    /// Acquires the locks, unless `stop` is cancelled first, by another thread: see [`crate::GroupLock::lock_unless`].
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::lock_unless`].
    pub fn lock_unless(&self, stop: &CancellationToken) -> Result<Option<MultiGuard>, Error> {
        let taken = self.wait(async |group| group.lock_unless(stop.cancelled()).await)?;
        Ok(taken.map(MultiGuard::new))
    }

    /// Acquires the locks, and waits for them until `deadline`: see [`crate::GroupLock::try_lock_until`].
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::try_lock_until`].
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<MultiGuard>, Error> {
        let taken = self.wait(async |group| group.try_lock_until(deadline).await)?;
        Ok(taken.map(MultiGuard::new))
    }

    /// Acquires the locks, runs `body` and releases the locks: see [`Lock::run`](super::Lock::run).
    ///
    /// # Errors
    ///
    /// As [`Lock::run`](super::Lock::run).
    pub fn run<T: Send + 'static>(&self, body: impl FnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock()?.run(body)
    }

    /// As [`run`](Self::run), if the locks are free; `None`, without a call of `body`, if they are not.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock) and [`run`](Self::run).
    pub fn try_run<T: Send + 'static>(
        &self,
        body: impl FnOnce(&MultiGuard) -> T,
    ) -> Result<Option<T>, Error> {
        let guard = self.try_lock()?;
        guard.map(|guard| guard.run(body)).transpose()
    }

    /// As [`run`](Self::run), if the locks become free within `wait`; `None`, without a call of `body`, if they do not.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for) and [`run`](Self::run).
    pub fn try_run_for<T: Send + 'static>(
        &self,
        wait: Duration,
        body: impl FnOnce(&MultiGuard) -> T,
    ) -> Result<Option<T>, Error> {
        let guard = self.try_lock_for(wait)?;
        guard.map(|guard| guard.run(body)).transpose()
    }

    /// Releases the latest hold of this thread on the group that has no guard: see [`crate::GroupLock::unlock`].
    ///
    /// # Errors
    ///
    /// As [`crate::GroupLock::unlock`].
    pub fn unlock(&self) -> Result<Released, Error> {
        self.wait(async |group| group.unlock().await)
    }

    /// The same locks, held for a fixed `lease` and not renewed: see [`crate::GroupLock::with_lease`].
    #[must_use = "it is another handle; this one keeps its lease"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self(self.0.with_lease(lease))
    }

    /// The same locks, for `owner` instead of the current thread: see [`crate::GroupLock::owned_by`].
    #[must_use = "it is another handle; this one keeps its owner"]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self(self.0.owned_by(owner))
    }

    fn wait<T>(
        &self,
        operation: impl AsyncFnOnce(&crate::GroupLock<Q>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let owner = self.0.owner.unwrap_or_else(Owner::of_thread);
        let group = self.0.owned_by(&owner);
        wait_for(group.runtime()?, operation(&group))
    }
}

/// One hold on a group of locks, for blocking code: see [`crate::MultiGuard`], and [`Guard`](super::Guard) for its drop.
#[must_use = "a guard that is dropped releases its holds"]
pub struct MultiGuard {
    guard: Option<crate::MultiGuard>,
    runtime: Handle,
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Empty only while it is dropped.
        self.guard.iter().try_for_each(|inner| inner.fmt(f))
    }
}

impl MultiGuard {
    fn new(guard: crate::MultiGuard) -> Self {
        let runtime = guard.runtime().clone();
        Self {
            guard: Some(guard),
            runtime,
        }
    }

    /// Runs `body` under these holds, and releases them.
    fn run<T: Send + 'static>(mut self, body: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let done = body(&self);
        let held = self.take();
        wait_for(&self.runtime, release_after(held, done))
    }

    /// Releases every lock: see [`crate::MultiGuard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`crate::MultiGuard::unlock`].
    pub fn unlock(mut self) -> Result<Released, Error> {
        let guard = self.take();
        wait_for(&self.runtime, guard.unlock())
    }

    /// As [`unlock`](Self::unlock), with a result for each lock: see [`crate::MultiGuard::unlock_each`].
    pub fn unlock_each(mut self) -> Vec<(Arc<str>, Result<Released, Error>)> {
        let guard = self.take();
        wait_for(&self.runtime, guard.unlock_each())
    }

    /// A token that is cancelled when the hold is lost, to stop async tasks.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard().cancellation_token()
    }

    /// Blocks until the hold is lost, and returns the reason: see [`crate::MultiGuard::lost`].
    pub fn lost(&self) -> LostReason {
        wait_for(&self.runtime, self.guard().lost())
    }

    /// Whether the hold is lost: see [`crate::MultiGuard::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.guard().is_lost()
    }

    /// Until when the hold may be relied upon: see [`crate::MultiGuard::valid_until`].
    pub fn valid_until(&self) -> std::time::Instant {
        self.guard().valid_until()
    }

    /// Extends the holds to `lease` from now: see [`crate::MultiGuard::extend`].
    ///
    /// # Errors
    ///
    /// As [`crate::MultiGuard::extend`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        wait_for(&self.runtime, self.guard().extend(lease))
    }

    /// Asks the servers whether they have the holds: see [`crate::MultiGuard::check`].
    ///
    /// # Errors
    ///
    /// As [`crate::MultiGuard::check`].
    pub fn check(&self) -> Result<(), Error> {
        wait_for(&self.runtime, self.guard().check())
    }

    /// Calls `callback` with the reason if the hold is lost before its release: see [`crate::Guard::on_lost`]. The call comes from another
    /// thread.
    pub fn on_lost(&self, callback: impl FnOnce(LostReason) + Send + 'static) {
        self.guard().on_lost(callback);
    }

    /// The time from which on the owner has had all these locks: see [`crate::MultiGuard::since`].
    pub fn since(&self) -> std::time::Instant {
        self.guard().since()
    }

    /// The fencing tokens, by name: see [`crate::MultiGuard::tokens`].
    pub fn tokens(&self) -> Vec<(Arc<str>, i64)> {
        self.guard().tokens()
    }

    /// The fencing token of the lock `name`: see [`crate::MultiGuard::token_of`].
    pub fn token_of(&self, name: &str) -> Option<i64> {
        self.guard().token_of(name)
    }

    /// The names of the held locks.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.guard().names()
    }

    /// Ends the guard without a release: [`GroupLock::unlock`] releases the holds.
    pub fn leak(mut self) {
        self.take().leak();
    }

    fn guard(&self) -> &crate::MultiGuard {
        let guard = self.guard.as_ref();
        guard.expect("only what ends a guard takes it out")
    }

    fn take(&mut self) -> crate::MultiGuard {
        let guard = self.guard.take();
        guard.expect("only what ends a guard takes it out")
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            give_back(&self.runtime, guard, async |guard| {
                release_after(guard, ()).await
            });
        }
    }
}
