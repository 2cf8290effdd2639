//! Permits that many processes share.

mod permit_expirable_semaphore;

use std::{fmt, sync::Arc, time::Duration};

pub use permit_expirable_semaphore::{ExpirablePermit, PermitExpirableSemaphore};

use crate::{
    engine::{Deadline, EngineHandle, PermitGuard},
    error::Error,
    wire::{reply::Detail, semaphore, sync_spec::SyncSpec},
};

/// A semaphore: a number of permits that processes acquire and release. Made by
/// [`LockClient::semaphore`](crate::LockClient::semaphore).
///
/// A permit has no owner and no end. **The permits of a killed process stay acquired** until a call [adds](Self::add_permits)
/// permits again: for the work of processes that can crash, use a [`PermitExpirableSemaphore`](crate::PermitExpirableSemaphore),
/// which recovers them by itself. Before the first [`try_set_permits`](Self::try_set_permits) there are no permits, and every task
/// waits; the log says so once.
///
/// Each client notifies its waiters of permits in the order of their arrival. A waiter for more permits than are available
/// does not delay the waiters behind it, so it may wait for long.
///
/// # Redisson
///
/// `RSemaphore`.
#[derive(Clone)]
#[doc(alias = "RSemaphore")]
pub struct Semaphore {
    pub(crate) engine: EngineHandle,
    /// Boxed: errors are rare.
    spec: Result<Arc<SyncSpec>, Box<Error>>,
}

impl Semaphore {
    pub(crate) fn new(engine: EngineHandle, spec: Result<Arc<SyncSpec>, Box<Error>>) -> Self {
        Self { engine, spec }
    }

    fn spec(&self) -> Result<&Arc<SyncSpec>, Error> {
        self.spec.as_ref().map_err(|error| Error::clone(error))
    }

    /// Sets the number of permits of a semaphore that does not exist yet. Returns whether it did.
    ///
    /// After [`Error::Unavailable`] the operation continues in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] after [`Config::command_wait`](crate::Config::command_wait), [`Error::WrongKind`] when the
    /// value of the key is not a number, or is that of an expirable semaphore with acquired permits, [`Error::InvalidName`],
    /// [`Error::Redis`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it once it has begun.
    ///
    /// # Redisson
    ///
    /// `trySetPermits(permits)`.
    #[doc(alias = "trySetPermits")]
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        let spec = self.spec()?;
        let begun = self
            .engine
            .run_operation(spec, |attempt| semaphore::begin(spec, permits, attempt));
        Ok(begun.await?.is_some())
    }

    /// Acquires a permit, and waits for it without a limit.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits), but [`Error::Unavailable`] when Redis cannot be reached for
    /// [`Config::outage_wait`](crate::Config::outage_wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a permit that is granted after the future is dropped is released. After a lost reply and an outage longer than
    /// [`Config::outage_wait`](crate::Config::outage_wait), permits may stay acquired; the log says so.
    ///
    /// # Redisson
    ///
    /// `acquire()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let pool = client.semaphore("pool");
    /// pool.try_set_permits(10).await?;
    /// let permit = pool.acquire().await?;
    /// // One of ten, over all services.
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<Permit, Error> {
        self.acquire_many(1).await
    }

    /// Acquires several permits at once, and waits for them without a limit. It acquires all of them or none.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Redisson
    ///
    /// `acquire(permits)`.
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit, Error> {
        // A wait without a limit ends with permits or an error.
        self.take(permits, Deadline::Never)
            .await?
            .ok_or(Error::Closed)
    }

    /// Acquires a permit if one is available.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but [`Error::Unavailable`] already after
    /// [`Config::command_wait`](crate::Config::command_wait).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Redisson
    ///
    /// `tryAcquire()`.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        self.try_acquire_many(1).await
    }

    /// Acquires several permits if as many are available.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Redisson
    ///
    /// `tryAcquire(permits)`.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>, Error> {
        self.take(permits, Deadline::Once).await
    }

    /// Acquires a permit, and waits for it no longer than `wait`, which covers everything.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), within `wait`.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Redisson
    ///
    /// `tryAcquire(waitTime, unit)`.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Permit>, Error> {
        self.try_acquire_many_for(1, wait).await
    }

    /// Acquires several permits at once, and waits for them no longer than `wait`.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_for`](Self::try_acquire_for).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Redisson
    ///
    /// `tryAcquire(permits, waitTime, unit)`.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire_many_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> Result<Option<Permit>, Error> {
        self.take(permits, Deadline::after(wait)).await
    }

    async fn take(&self, permits: u32, deadline: Deadline) -> Result<Option<Permit>, Error> {
        let taken = self.engine.acquire_permits(self.spec()?, permits, deadline);
        let engine = || self.engine.clone();
        Ok(taken.await?.map(|held| Permit {
            held,
            _engine: engine(),
        }))
    }

    /// Releases permits without a guard, those of a [`Permit::leak`]. The server does not check that they were acquired: it
    /// adds them to the number in any case.
    ///
    /// After [`Error::Unavailable`] the operation continues in the background, and a second call would execute it again.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it once it has begun.
    ///
    /// # Redisson
    ///
    /// `release(permits)`.
    pub async fn release(&self, permits: u32) -> Result<(), Error> {
        match permits {
            0 => Ok(()),
            _ => {
                self.engine
                    .release_permits(self.spec()?, permits.into())
                    .await
            }
        }
    }

    /// Adds permits; a negative number removes permits. More permits may then be acquired than exist.
    ///
    /// After [`Error::Unavailable`] the operation continues in the background, and a second call would execute it again.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it once it has begun.
    ///
    /// # Redisson
    ///
    /// `addPermits(permits)`.
    #[doc(alias = "addPermits")]
    pub async fn add_permits(&self, permits: i64) -> Result<(), Error> {
        self.engine.release_permits(self.spec()?, permits).await
    }

    /// Sets the number of available permits to 0, and returns the former number, which may be negative.
    ///
    /// After [`Error::Unavailable`] the operation continues in the background, and a second call would execute it again.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it once it has begun.
    ///
    /// # Redisson
    ///
    /// `drainPermits()`.
    #[doc(alias = "drainPermits")]
    pub async fn drain_permits(&self) -> Result<i64, Error> {
        let spec = self.spec()?;
        self.engine.check_accepts()?;
        let drained = self
            .engine
            .run_operation(spec, |attempt| semaphore::drain(spec, attempt));
        Ok(number(drained.await?))
    }

    /// The number of available permits; negative if more were removed than were available.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Redisson
    ///
    /// `availablePermits()`.
    #[doc(alias = "availablePermits")]
    pub async fn available_permits(&self) -> Result<i64, Error> {
        let spec = self.spec()?;
        let found = self
            .engine
            .run_query(spec, semaphore::inspect(spec))
            .await?;
        Ok(number(found))
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

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// The number in an answer.
pub(crate) fn number(detail: Option<Detail>) -> i64 {
    match detail {
        Some(Detail::Number(number)) => number,
        // Lua cannot represent the number exactly.
        Some(Detail::Text(text)) => text.parse().unwrap_or(0),
        _ => 0,
    }
}

/// Acquired permits of a [`Semaphore`]. Dropping it releases them in the background.
///
/// After [`LockClient::shutdown`](crate::LockClient::shutdown) they stay acquired, as permits have no end. Release them
/// first.
#[must_use = "a permit that is dropped is given back"]
pub struct Permit {
    held: PermitGuard,
    /// Keeps the client alive for as long as the permit lives.
    _engine: EngineHandle,
}

impl Permit {
    /// Releases the permits, and wakes waiters.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when no answer came within [`Config::command_wait`](crate::Config::command_wait): the release
    /// then continues in the background; [`Error::Redis`] when the server refused; [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it.
    ///
    /// # Redisson
    ///
    /// `release()`, or `release(permits)`.
    pub async fn release(self) -> Result<(), Error> {
        self.held.release().await
    }

    #[cfg(feature = "blocking")]
    pub(crate) async fn release_or_log(self) {
        self.held.release_or_log().await;
    }

    /// Ends the guard without a release: any process can release the permits by [`Semaphore::release`].
    pub fn leak(self) {
        self.held.leak();
    }

    /// The number of permits.
    pub fn permits(&self) -> u32 {
        self.held.permits()
    }

    /// The name of the semaphore.
    pub fn name(&self) -> &str {
        &self.held.spec().name
    }

    /// The runtime of the client's tasks.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self._engine.runtime()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("name", &self.name())
            .field("permits", &self.permits())
            .finish_non_exhaustive()
    }
}
