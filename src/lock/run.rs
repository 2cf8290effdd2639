//! A body that runs under a lock.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Lock;
use crate::{
    engine::Then,
    error::Error,
    guard::{Guard, release_after, run_and_release, run_if_held, run_under},
    owner::Owner,
    wire::{Kind, Lease},
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

    /// As [`try_run`](Self::try_run), but keeps the lock for at least `least` from its grant. Another instance with a late clock
    /// finds the lock held, and skips the finished job.
    ///
    /// Runs `body` for an owner of its own, so no other job of the same task enters. Returns when `body` returns; the client holds
    /// the lock until `least` is over. If the process ends after `body`, the lock ends at most a fiftieth of `least` and half a
    /// second after that, or with the watchdog's lease if that is later. If the process ends during `body`, the lock ends with its
    /// lease: that of the watchdog, or a fixed one. [`shutdown_and_release`](crate::LockClient::shutdown_and_release)
    /// leaves such locks alone. An error as the result of `body` changes nothing. A dropped or panicking `body` frees the lock at
    /// once. `least` also extends a shorter fixed lease ([`with_lease`](Self::with_lease)).
    ///
    /// # Errors
    ///
    /// As [`try_run`](Self::try_run), and [`Error::Config`] for a `least` out of the bounds of a lease.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    ///
    /// # Redisson
    ///
    /// None; ShedLock's `lockAtLeastFor`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let cleanup = client.reentrant_lock("job:cleanup");
    /// let done = cleanup
    ///     .run_at_least(Duration::from_secs(30), async |_guard| { /* takes a second */ })
    ///     .await?;
    /// println!("{}", if done.is_some() { "cleaned up" } else { "another instance has" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_at_least<T: Send + 'static>(
        &self,
        least: Duration,
        body: impl AsyncFnOnce(&Guard<K>) -> T,
    ) -> Result<Option<T>, Error> {
        let Some((guard, until)) = self.begin_at_least(least).await? else {
            return Ok(None);
        };
        let done = run_under(&guard, guard.owner(), body).await?;
        guard.keep_until(until, done).await.map(Some)
    }

    /// Acquires the lock for a new owner, if it is free. Returns the guard and the earliest release.
    pub(crate) async fn begin_at_least(
        &self,
        least: Duration,
    ) -> Result<Option<(Guard<K>, Instant)>, Error> {
        Lease::new(least).map_err(Error::config)?;
        let long = keeping(least)?;
        let lock = self.owned_by(&Owner::new()).with_options(|options| {
            if !options.watched && options.lease.duration < long.duration {
                options.lease = long;
            }
        });
        let guard = lock.try_lock().await?;
        Ok(guard.map(|guard| (guard, Instant::now() + least)))
    }
}

/// The longest time of a release.
const MARGIN: Duration = Duration::from_millis(500);

/// A lease longer than `time`, so that the hold is still valid at the release after `time`.
fn keeping(time: Duration) -> Result<Lease, Error> {
    Lease::new((time + time / 50 + MARGIN).min(Lease::MAX)).map_err(Error::config)
}

/// A hold that ends with its lease after a crash of the process.
struct Lingering<K: Kind>(Option<Guard<K>>);

impl<K: Kind> Lingering<K> {
    fn into_guard(mut self) -> Option<Guard<K>> {
        self.0.take()
    }
}

impl<K: Kind> Drop for Lingering<K> {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            guard.leak();
        }
    }
}

impl<K: Kind> Guard<K> {
    /// Keeps the hold, under which `done` was computed, until that time.
    pub(crate) async fn keep_until<T: Send + 'static>(
        self,
        until: Instant,
        done: T,
    ) -> Result<T, Error> {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return release_after(self, done).await;
        }
        let extended = self.hold().extend(keeping(rest)?, Then::Fixed).await;
        if let Err(lost @ Error::Lost { .. }) = extended {
            return Err(lost.with_result(done));
        }
        self.hold().tenure().leave_to_lease();
        // Otherwise the watchdog renews it while the process lives, or its lease is long enough.
        let runtime = self.runtime().clone();
        // Created here: the runtime may end before the task begins.
        let lingers = Lingering(Some(self));
        runtime.spawn(async move {
            sleep_until(until).await;
            drop(lingers.into_guard());
        });
        Ok(done)
    }
}
