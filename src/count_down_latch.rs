//! A gate that opens when a count is down.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    engine::{Deadline, EngineHandle},
    error::Error,
    semaphore::number,
    wire::{latch, semaphore, sync_spec::SyncSpec},
};

/// A latch: open while its count is 0, or before the count is set. Its waiters continue when it opens. Made by
/// [`LockClient::count_down_latch`](crate::LockClient::count_down_latch).
///
/// A waiter does not miss an opening while its connection lasts, even if a new count follows at once. During a reconnection it
/// misses an opening that a new count follows. [Deleting](Self::delete) a latch opens it. In Redisson, waiters can miss an opening
/// at any time, and a deletion does not wake them.
///
/// # Redisson
///
/// `RCountDownLatch`, of the same name.
#[derive(Clone)]
#[doc(alias = "RCountDownLatch")]
pub struct CountDownLatch {
    pub(crate) engine: EngineHandle,
    /// Boxed: errors are rare.
    spec: Result<Arc<SyncSpec>, Box<Error>>,
}

impl CountDownLatch {
    pub(crate) fn new(engine: EngineHandle, spec: Result<Arc<SyncSpec>, Box<Error>>) -> Self {
        Self { engine, spec }
    }

    fn spec(&self) -> Result<&Arc<SyncSpec>, Error> {
        self.spec.as_ref().map_err(|error| Error::clone(error))
    }

    /// Sets the count of a latch that has none. Returns whether it had none. A count of 0 leaves the latch open; it must be
    /// [deleted](Self::delete) or counted down before the next count.
    ///
    /// After [`Error::Unavailable`] the operation continues in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a count above [`i64::MAX`], the largest number of Redis. [`Error::Unavailable`] after
    /// [`Config::command_wait`](crate::Config::command_wait), [`Error::WrongKind`] when the value of the key is not a number,
    /// or is that of an expirable semaphore with acquired permits, [`Error::InvalidName`], [`Error::Redis`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it once it has begun.
    ///
    /// # Redisson
    ///
    /// `trySetCount(count)`.
    #[doc(alias = "trySetCount")]
    pub async fn try_set_count(&self, count: u64) -> Result<bool, Error> {
        let spec = self.spec()?;
        if count > i64::MAX as u64 {
            return Err(Error::config(format!(
                "the count of a latch is at most {}",
                i64::MAX
            )));
        }
        let begun = self
            .engine
            .run_operation(spec, |attempt| latch::begin(spec, count, attempt));
        Ok(begun.await?.is_some())
    }

    /// Counts down by one; the last count opens the latch. An open latch stays unchanged.
    ///
    /// A call counts once, even if its reply was lost. After [`Error::Unavailable`] it continues in the background, and a second call
    /// would count again.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it once it has begun.
    ///
    /// # Redisson
    ///
    /// `countDown()`.
    #[doc(alias = "countDown")]
    pub async fn count_down(&self) -> Result<(), Error> {
        let spec = self.spec()?;
        let counted = self
            .engine
            .run_operation(spec, |attempt| latch::count_down(spec, attempt));
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
    /// Cancel safe: it changes nothing.
    ///
    /// # Redisson
    ///
    /// `getCount()`.
    #[doc(alias = "getCount")]
    pub async fn count(&self) -> Result<u64, Error> {
        let spec = self.spec()?;
        let found = self
            .engine
            .run_query(spec, semaphore::inspect(spec))
            .await?;
        Ok(u64::try_from(number(found)).unwrap_or(0))
    }

    /// Waits until the latch is open, or was open at any time since the call while its connection lasted.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count), but [`Error::Unavailable`] when Redis cannot be reached for
    /// [`Config::outage_wait`](crate::Config::outage_wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
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

    /// Waits until the latch is open, but no longer than `wait`. Returns whether it opened.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), but [`Error::Unavailable`] also when no answer came within `wait`. A latch that was closed at the last
    /// answer is `false`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Redisson
    ///
    /// `await(time, unit)`.
    #[doc(alias = "await")]
    pub async fn wait_for(&self, wait: Duration) -> Result<bool, Error> {
        self.open_at(Deadline::after(wait)).await
    }

    async fn open_at(&self, deadline: Deadline) -> Result<bool, Error> {
        self.engine.wait_for_opening(self.spec()?, deadline).await
    }

    /// Removes the latch, which opens it. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count). A key that is not a latch stays unchanged: [`Error::WrongKind`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it once it has begun.
    ///
    /// # Redisson
    ///
    /// `delete()`.
    pub async fn delete(&self) -> Result<bool, Error> {
        let spec = self.spec()?;
        let deleted = self
            .engine
            .run_operation(spec, |attempt| latch::delete(spec, attempt));
        Ok(deleted.await?.is_some())
    }

    /// The name, without [`Config::name_prefix`](crate::Config::name_prefix). Empty for an invalid name, which every operation refuses
    /// with [`Error::InvalidName`].
    ///
    /// # Redisson
    ///
    /// `getName()`.
    #[doc(alias = "getName")]
    pub fn name(&self) -> &str {
        self.spec.as_ref().map_or("", |spec| &spec.name)
    }

    /// The key of its number on the server: the name with [`Config::name_prefix`](crate::Config::name_prefix). Empty for an invalid
    /// name.
    pub fn key(&self) -> &str {
        self.spec.as_ref().map_or("", |spec| spec.key())
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountDownLatch")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
