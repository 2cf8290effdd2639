//! A body that runs under a lock.

use std::time::Duration;

use super::Lock;
use crate::{
    error::Error,
    guard::{Guard, run_and_release, run_if_held},
    wire::Kind,
};

impl<K: Kind> Lock<K> {
    /// Acquires the lock, runs `body` and releases the lock. Stops `body` when the hold is lost.
    ///
    /// Waits as [`lock`](Self::lock) does. Checks before every poll of `body` that the hold is still valid: after a stop of the
    /// process for longer than the lease, `body` does not continue. `body` runs as the owner of the hold, so it can acquire the
    /// lock again.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Lost`] when the hold was lost. Then `body` was dropped at its await point, or it ran
    /// to its end without the protection of the lock; [`Error::take_result`] returns the result of such a `body`.
    /// A release that fails otherwise is logged, and the result of `body` is returned.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its await point and releases the lock in the background.
    ///
    /// # Redisson
    ///
    /// `lock(); try { .. } finally { unlock(); }`. Java cannot stop a body whose lock is lost.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let total = client
    ///     .reentrant_lock("order:42")
    ///     .run(async |_guard| 40 + 2)
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T: Send + 'static>(
        &self,
        body: impl AsyncFnOnce(&Guard<K>) -> T,
    ) -> Result<T, Error> {
        let owner = self.owner();
        let guard = self.owned_by(&owner).lock().await?;
        run_and_release(guard, owner, body).await
    }

    /// As [`run`](Self::run), if the lock is free. Returns `None` without a call of `body` if another owner holds it.
    ///
    /// Waits for one answer of the server, and for `body`.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), and [`Error::Lost`] as [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    ///
    /// # Redisson
    ///
    /// `if (tryLock()) try { .. } finally { unlock(); }`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// match client.reentrant_lock("nightly-report").try_run(async |_guard| 42).await? {
    ///     Some(pages) => println!("{pages} pages"),
    ///     None => println!("another instance does it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_run<T: Send + 'static>(
        &self,
        body: impl AsyncFnOnce(&Guard<K>) -> T,
    ) -> Result<Option<T>, Error> {
        let owner = self.owner();
        let guard = self.owned_by(&owner).try_lock().await?;
        run_if_held(guard, owner, body).await
    }

    /// As [`run`](Self::run), if the lock becomes free within `wait`. Returns `None` without a call of `body` if it does not.
    ///
    /// Waits as [`try_lock_for`](Self::try_lock_for) does, and for `body`, which `wait` does not limit.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for), and [`Error::Lost`] as [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    ///
    /// # Redisson
    ///
    /// `if (tryLock(wait, unit)) try { .. } finally { unlock(); }`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let stock = client.reentrant_lock("stock:7");
    /// if stock.try_run_for(Duration::from_secs(2), async |_guard| { /* book */ }).await?.is_none() {
    ///     println!("the stock is busy: try again later");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_run_for<T: Send + 'static>(
        &self,
        wait: Duration,
        body: impl AsyncFnOnce(&Guard<K>) -> T,
    ) -> Result<Option<T>, Error> {
        let owner = self.owner();
        let guard = self.owned_by(&owner).try_lock_for(wait).await?;
        run_if_held(guard, owner, body).await
    }
}
