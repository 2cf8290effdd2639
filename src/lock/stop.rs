//! Waits that end for a reason of the caller's.

use std::time::Instant;

use super::{Lock, multi_lock::GroupLock, quorum::Quorum};
use crate::{Error, Guard, Kind, MultiGuard, engine::Deadline};

impl<K: Kind> Lock<K> {
    /// Acquires the lock, unless `stop` completes first: a request is cancelled, a service shuts down.
    ///
    /// `None` means that `stop` has completed. If it had completed before the call, nothing is sent. A lock that is granted at the same
    /// moment is released. A `CancellationToken` stops the wait by its future `cancelled()`.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](Self::lock); `stop` is dropped with the future. Pass `&mut stop`, pinned, to keep it.
    ///
    /// # Redisson
    ///
    /// `lockInterruptibly()`, whose thread is interrupted.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use tokio_util::sync::CancellationToken;
    ///
    /// let shutdown = CancellationToken::new();
    /// let lock = client.reentrant_lock("order:42");
    /// let Some(guard) = lock.lock_unless(shutdown.cancelled()).await? else {
    ///     return Ok(()); // The service shuts down.
    /// };
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "lockInterruptibly")]
    pub async fn lock_unless(&self, stop: impl Future) -> Result<Option<Guard<K>>, Error> {
        unless(stop, self.lock()).await
    }

    /// Acquires the lock, and waits for it until `deadline`: [`try_lock_for`](Self::try_lock_for) the time that is left. Several calls
    /// share one deadline that way.
    ///
    /// A `deadline` that has passed makes one attempt, as [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](Self::lock).
    ///
    /// # Redisson
    ///
    /// `tryLock(waitTime, unit)`, with the time that is left.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(5);
    /// let (stock, order) = (client.reentrant_lock("stock:7"), client.reentrant_lock("order:42"));
    /// if let Some(stock) = stock.try_lock_until(deadline).await?
    ///     && let Some(order) = order.try_lock_until(deadline).await?
    /// {
    ///     // At most 5 seconds have passed.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "tryLock")]
    pub async fn try_lock_until(&self, deadline: Instant) -> Result<Option<Guard<K>>, Error> {
        self.acquire(Deadline::at(deadline)).await
    }
}

impl<Q: Quorum> GroupLock<Q> {
    /// Acquires the locks, unless `stop` completes first: see [`Lock::lock_unless`](crate::Lock::lock_unless).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](Self::lock); `stop` is dropped with the future.
    ///
    /// # Redisson
    ///
    /// `lockInterruptibly()`, whose thread is interrupted.
    #[doc(alias = "lockInterruptibly")]
    pub async fn lock_unless(&self, stop: impl Future) -> Result<Option<MultiGuard>, Error> {
        unless(stop, self.lock()).await
    }

    /// Acquires the locks, and waits for them until `deadline`: see [`Lock::try_lock_until`](crate::Lock::try_lock_until).
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](Self::try_lock_for).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](Self::lock).
    ///
    /// # Redisson
    ///
    /// `tryLock(waitTime, unit)`, with the time that is left.
    #[doc(alias = "tryLock")]
    pub async fn try_lock_until(&self, deadline: Instant) -> Result<Option<MultiGuard>, Error> {
        self.acquire(Deadline::at(deadline)).await
    }
}

async fn unless<T>(
    stop: impl Future,
    locking: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, Error> {
    tokio::select! {
        biased;
        _ = stop => Ok(None),
        locked = locking => locked.map(Some),
    }
}
