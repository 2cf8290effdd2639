//! A gate that opens when a count is down.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    engine::{Deadline, EngineHandle},
    error::Error,
    semaphore::{name, number},
    wire::{latch, semaphore, site::Site},
};

/// A latch: open while its count is 0, or before it was set. Waiters go on when it has been counted down. Made by
/// [`LockClient::count_down_latch`](crate::LockClient::count_down_latch).
///
/// An opening is never missed, also if a new count is set in the same moment, and a latch that is [deleted](Self::delete) opens:
/// in Redisson, waiters can miss the one and are not woken by the other.
///
/// # Redisson
///
/// `RCountDownLatch`, of the same name.
#[derive(Clone)]
#[doc(alias = "RCountDownLatch")]
pub struct CountDownLatch {
    pub(crate) engine: EngineHandle,
    /// Boxed, as a handle seldom has an error.
    site: Result<Arc<Site>, Box<Error>>,
}

impl CountDownLatch {
    pub(crate) fn new(engine: EngineHandle, site: Result<Arc<Site>, Box<Error>>) -> Self {
        Self { engine, site }
    }

    fn site(&self) -> Result<&Arc<Site>, Error> {
        self.site.as_ref().map_err(|error| Error::clone(error))
    }

    /// Sets the count of a latch that has none. Says whether it had none.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a count above [`i64::MAX`], which is the most that Redis counts with. [`Error::Unavailable`] after
    /// [`Config::command_wait`](crate::Config::command_wait), [`Error::WrongKind`] when the key holds something that is no number,
    /// [`Error::InvalidName`], [`Error::Redis`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried on.
    ///
    /// # Redisson
    ///
    /// `trySetCount(count)`.
    #[doc(alias = "trySetCount")]
    pub async fn try_set_count(&self, count: u64) -> Result<bool, Error> {
        let site = self.site()?;
        if count > i64::MAX as u64 {
            return Err(Error::config(format!(
                "a latch counts down from {} at most",
                i64::MAX
            )));
        }
        let begun = self
            .engine
            .run_at(site, |attempt| latch::begin(site, count, attempt));
        Ok(begun.await?.is_some())
    }

    /// Counts down by one; the last count opens the latch. An open one stays as it is.
    ///
    /// A reply that was lost does not make it count twice.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried on.
    ///
    /// # Redisson
    ///
    /// `countDown()`.
    #[doc(alias = "countDown")]
    pub async fn count_down(&self) -> Result<(), Error> {
        let site = self.site()?;
        let counted = self
            .engine
            .run_at(site, |attempt| latch::count_down(site, attempt));
        counted.await.map(drop)
    }

    /// The count; 0 for an open latch.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// `getCount()`.
    #[doc(alias = "getCount")]
    pub async fn count(&self) -> Result<u64, Error> {
        let site = self.site()?;
        let found = self.engine.ask_of(site, semaphore::inspect(site)).await?;
        Ok(u64::try_from(number(found)).unwrap_or(0))
    }

    /// Waits until the latch is open, or has been since the call.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count), but [`Error::Unavailable`] when Redis cannot be reached for
    /// [`Config::outage_wait`](crate::Config::outage_wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    ///
    /// # Redisson
    ///
    /// `await()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let ready = client.count_down_latch("ready");
    /// ready.try_set_count(3).await?;
    /// // Three services call `ready.count_down().await?`.
    /// ready.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "await")]
    pub async fn wait(&self) -> Result<(), Error> {
        self.open_at(Deadline::Never).await.map(drop)
    }

    /// Waits until the latch is open, but no longer than `wait`. Says whether it was.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    ///
    /// # Redisson
    ///
    /// `await(time, unit)`.
    #[doc(alias = "await")]
    pub async fn wait_for(&self, wait: Duration) -> Result<bool, Error> {
        self.open_at(Deadline::after(wait)).await
    }

    async fn open_at(&self, deadline: Deadline) -> Result<bool, Error> {
        self.engine.wait_for_opening(self.site()?, deadline).await
    }

    /// Removes the latch, which opens it. Says whether there was one.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count). What is no latch is left as it is: [`Error::WrongKind`].
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried on.
    ///
    /// # Redisson
    ///
    /// `delete()`.
    pub async fn delete(&self) -> Result<bool, Error> {
        let site = self.site()?;
        let deleted = self
            .engine
            .run_at(site, |attempt| latch::delete(site, attempt));
        Ok(deleted.await?.is_some())
    }

    /// The name, with [`Config::name_prefix`](crate::Config::name_prefix).
    pub fn name(&self) -> &str {
        name(&self.site)
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountDownLatch")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
