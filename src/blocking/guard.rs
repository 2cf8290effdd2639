//! One hold, for blocking code.

use std::{
    fmt,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{give_back, wait_for};
use crate::{
    Error, Fenced, Kind, LostReason, Owner, Released, guard::release_after, kind, kind::Dyn,
};

/// One hold on a [`DynLock`](super::DynLock).
pub type DynGuard = Guard<Dyn>;

/// One hold on a lock of kind `K`, for blocking code: see [`crate::Guard`].
///
/// It keeps its owner when it moves to another thread. **Dropping it releases the hold** and waits for the server's answer,
/// at most for [`Config::command_wait`](crate::Config::command_wait). A release without an answer continues in the
/// background.
#[must_use = "a guard that is dropped releases its hold"]
pub struct Guard<K: Kind>(Option<crate::Guard<K>>);

impl<K: Kind> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Empty only while it is dropped.
        self.0.iter().try_for_each(|inner| inner.fmt(f))
    }
}

impl<K: Kind> Guard<K> {
    pub(super) fn new(guard: crate::Guard<K>) -> Self {
        Self(Some(guard))
    }

    /// Releases the hold: see [`crate::Guard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::unlock`].
    pub fn unlock(mut self) -> Result<Released, Error> {
        let guard = self.take();
        let runtime = guard.runtime().clone();
        wait_for(&runtime, guard.unlock())
    }

    /// Blocks until the hold is lost, and returns the reason: see [`crate::Guard::lost`]. For a thread that stops the work of other threads.
    pub fn lost(&self) -> LostReason {
        let guard = self.guard();
        wait_for(guard.runtime(), guard.lost())
    }

    /// Asks the server whether it has the hold: see [`crate::Guard::check`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::check`].
    pub fn check(&self) -> Result<(), Error> {
        let guard = self.guard();
        wait_for(guard.runtime(), guard.check())
    }

    /// Calls `callback` with the reason if the hold is lost before its release: see [`crate::Guard::on_lost`]. The call comes from another
    /// thread.
    pub fn on_lost(&self, callback: impl FnOnce(LostReason) + Send + 'static) {
        self.guard().on_lost(callback);
    }

    /// The time from which on the owner has had the lock: see [`crate::Guard::since`].
    pub fn since(&self) -> Instant {
        self.guard().since()
    }

    /// The lock's name: see [`crate::Guard::name`].
    pub fn name(&self) -> &str {
        self.guard().name()
    }

    /// The lock's key on the server: see [`crate::Guard::key`].
    pub fn key(&self) -> &str {
        self.guard().key()
    }

    /// The owner of the hold: see [`crate::Guard::owner`].
    pub fn owner(&self) -> Owner {
        self.guard().owner()
    }

    /// Whether the hold is known to be lost, or lost by the clock. Sends nothing, and returns at once.
    pub fn is_lost(&self) -> bool {
        self.guard().is_lost()
    }

    /// A token that is cancelled when the hold is lost, to stop async tasks.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard().cancellation_token()
    }

    /// Until when the hold may be relied upon if it is not renewed again: see [`crate::Guard::valid_until`].
    pub fn valid_until(&self) -> Instant {
        self.guard().valid_until()
    }

    /// The number of replicas that acknowledged the acquisition: see [`crate::Guard::acknowledgements`].
    pub fn acknowledgements(&self) -> Option<u32> {
        self.guard().acknowledgements()
    }

    /// Extends the hold to `lease` from now: see [`crate::Guard::extend`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::extend`].
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        let guard = self.guard();
        wait_for(guard.runtime(), guard.extend(lease))
    }

    /// The same hold, without the lock's kind in the type: see [`crate::Guard::into_dyn`].
    pub fn into_dyn(mut self) -> DynGuard {
        Guard(Some(self.take().into_dyn()))
    }

    /// Ends the guard without a release: [`Lock::unlock`](super::Lock::unlock) releases the hold.
    pub fn leak(mut self) {
        self.take().leak();
    }

    /// Runs `body`, then releases the hold.
    pub(super) fn run<T: Send + 'static>(
        mut self,
        body: impl FnOnce(&Self) -> T,
    ) -> Result<T, Error> {
        let result = body(&self);
        let guard = self.take();
        let runtime = guard.runtime().clone();
        wait_for(&runtime, release_after(guard, result))
    }

    /// Ends the hold under which `done` was computed: see [`crate::Guard::end_job`].
    pub(super) fn end_job<T: Send + 'static>(
        mut self,
        kept: Option<tokio::time::Instant>,
        done: T,
    ) -> Result<T, Error> {
        let guard = self.take();
        let runtime = guard.runtime().clone();
        wait_for(&runtime, guard.end_job(kept, done))
    }

    fn guard(&self) -> &crate::Guard<K> {
        let guard = self.0.as_ref();
        guard.expect("only what ends a guard takes it out")
    }

    fn take(&mut self) -> crate::Guard<K> {
        let guard = self.0.take();
        guard.expect("only what ends a guard takes it out")
    }
}

impl Guard<kind::Write> {
    /// Turns this write hold into a read hold: see [`crate::Guard::downgrade`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::downgrade`].
    pub fn downgrade(mut self) -> Result<Guard<kind::Read>, Error> {
        let guard = self.take();
        let runtime = guard.runtime().clone();
        wait_for(&runtime, guard.downgrade()).map(Guard::new)
    }
}

impl Guard<Fenced> {
    /// The fencing token: see [`crate::Guard::token`].
    pub fn token(&self) -> i64 {
        self.guard().token()
    }
}

impl DynGuard {
    /// The fencing token, if the lock is a fenced lock: see [`crate::DynGuard`].
    pub fn fencing_token(&self) -> Option<i64> {
        self.guard().fencing_token()
    }
}

impl<K: Kind> Drop for Guard<K> {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            let runtime = guard.runtime().clone();
            // An unanswered request ends with the lease at the latest.
            give_back(&runtime, guard, async |guard| {
                release_after(guard, ()).await
            });
        }
    }
}
