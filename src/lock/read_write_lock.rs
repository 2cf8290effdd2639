//! Two locks with one name: many may read, or one may write.

use std::sync::Arc;

use super::Lock;
use crate::{
    engine::{AcquireRequest, Deadline, OnFailure, Subject},
    error::Error,
    guard::Guard,
    wire::{read::Read, sealed::Known, write::Write},
};

/// A handle on a read-write lock: see [`LockClient::read_write_lock`](crate::LockClient::read_write_lock).
///
/// The holders of [`read`](Self::read) share the lock with each other and exclude writers; the holder of
/// [`write`](Self::write) excludes every other owner. Both sides are reentrant, and have the methods of every [`Lock`].
///
/// - **Downgrade**: an owner that writes may read as well. Its read holds remain when it releases its write hold, and waiting
///   readers enter. [`Guard::downgrade`](crate::Guard::downgrade) does both.
/// - **Upgrade**: an owner that reads cannot begin to write. It would wait for itself, so the client refuses
///   ([`Error::WouldDeadlock`](crate::Error::WouldDeadlock)). Release the read hold first.
/// - There is no queue. A waiting writer of this crate keeps new readers of this crate out for up to 64 ms, so that it enters
///   beside overlapping readers with shorter critical sections. **Overlapping readers with longer ones can exclude a writer for
///   ever**, as can readers of Java, and all readers a writer of Java or one with
///   [`Config::yield_to_others`](crate::Config::yield_to_others) `false`. The page says what to do.
/// - One owner may have up to 1,000 read holds on one lock
///   ([`Error::TooManyHolds`](crate::Error::TooManyHolds)).
/// - A dead reader excludes writers for one lease and a half at most.
/// - Queries concern one side, and [`force_unlock`](Lock::force_unlock) frees one side. That of the write side also frees the
///   writer's read holds; that of the read side does nothing while an owner writes.
///
/// [docs/read-write-lock.md](https://docs.rs/crate/redisson-lock/latest/source/docs/read-write-lock.md) shows the keys, and the
/// leases of holds inside one another.
///
/// # Redisson
///
/// `RReadWriteLock`.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
/// let catalogue = client.read_write_lock("catalogue");
///
/// let reading = catalogue.read().lock().await?;
/// reading.unlock().await?;
///
/// let writing = catalogue.write().lock().await?;
/// // From here on other owners may read, and none writes in between.
/// let reading = writing.downgrade().await?;
/// reading.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "RReadWriteLock")]
pub struct ReadWriteLock {
    read: Lock<Read>,
    write: Lock<Write>,
}

impl ReadWriteLock {
    pub(crate) fn new(read: Lock<Read>, write: Lock<Write>) -> Self {
        Self { read, write }
    }

    /// Returns the read side, which many owners may hold.
    ///
    /// Nothing is sent.
    ///
    /// # Redisson
    ///
    /// `readLock()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.read_write_lock("catalogue").read().lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "readLock")]
    pub fn read(&self) -> &Lock<Read> {
        &self.read
    }

    /// Returns the write side, which one owner holds alone.
    ///
    /// Nothing is sent.
    ///
    /// # Redisson
    ///
    /// `writeLock()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.read_write_lock("catalogue").write().lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "writeLock")]
    pub fn write(&self) -> &Lock<Write> {
        &self.write
    }
}

impl Guard<Write> {
    /// Turns this write hold into a read hold: waiting readers enter, and no owner writes in between.
    ///
    /// The read hold has the lease of this hold, which begins anew, or is renewed as this one was. Waits for two answers of the server.
    /// If the owner has further write holds, other owners do not enter before the end of those.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock`](crate::Lock::try_lock), and [`Error::Lost`] when the write hold is gone. The write hold is then released, as by
    /// a drop of the guard. A release of the write hold that is not answered is no error: it continues in the background, and other
    /// readers wait for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases both holds.
    ///
    /// # Redisson
    ///
    /// None as one call: the owner acquires the read side, then releases the write side.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let writing = client.read_write_lock("catalogue").write().lock().await?;
    /// // Write, then let other readers in.
    /// let reading = writing.downgrade().await?;
    /// reading.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(self) -> Result<Guard<Read>, Error> {
        let (hold, engine) = (self.hold(), self.engine());
        let spec = engine
            .subject(hold.tenure().name().clone(), Read::PROTOCOL)
            .spec;
        let options = Arc::new(hold.terms());
        let request = AcquireRequest::new(Subject { spec, options }, hold.owner())?;
        // No other owner reads or writes beside a writer, so a refusal is a loss.
        let Some(read) = engine.acquire(&request, Deadline::Once).await? else {
            self.check().await?;
            return Err(Error::unavailable(
                "the server refused a read hold beside the own write hold",
            ));
        };
        let reading = Guard::new(engine.clone(), read);
        match self.into_hold().release(OnFailure::Log).await {
            Err(lost @ Error::Lost { .. }) => Err(lost),
            _ => Ok(reading),
        }
    }
}
