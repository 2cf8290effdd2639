//! Permits that many processes share.

mod permit_expirable_semaphore;

use std::{fmt, sync::Arc, time::Duration};

pub use permit_expirable_semaphore::{ExpirablePermit, PermitExpirableSemaphore};

use crate::{
    engine::{Deadline, EngineHandle, HeldPermits},
    error::Error,
    wire::{reply::Detail, semaphore, site::Site},
};

/// A semaphore: a number of permits, of which each process takes some and gives them back. Made by
/// [`LockClient::semaphore`](crate::LockClient::semaphore).
///
/// A permit has no owner and no end: those of a process that is killed are gone for good, until a call
/// [adds](Self::add_permits) some again. Where that matters, a [`PermitExpirableSemaphore`](crate::PermitExpirableSemaphore) is
/// better. Before the first [`try_set_permits`](Self::try_set_permits) there are none, and everybody waits.
///
/// Waiters are notified of permits in the order of their arrival, client by client; a waiter for more permits than there are
/// does not hold up those behind it, and so may wait for long.
///
/// # Redisson
///
/// `RSemaphore`, of the same name.
#[derive(Clone)]
#[doc(alias = "RSemaphore")]
pub struct Semaphore {
    pub(crate) engine: EngineHandle,
    /// Boxed, as a handle seldom has an error.
    site: Result<Arc<Site>, Box<Error>>,
}

impl Semaphore {
    pub(crate) fn new(engine: EngineHandle, site: Result<Arc<Site>, Box<Error>>) -> Self {
        Self { engine, site }
    }

    fn site(&self) -> Result<&Arc<Site>, Error> {
        self.site.as_ref().map_err(|error| Error::clone(error))
    }

    /// Sets the number of permits of a semaphore that does not exist yet. Says whether it did not.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] after [`Config::command_wait`](crate::Config::command_wait), [`Error::WrongKind`] when the key holds
    /// something that is no number, [`Error::InvalidName`], [`Error::Redis`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried on.
    ///
    /// # Redisson
    ///
    /// `trySetPermits(permits)`.
    #[doc(alias = "trySetPermits")]
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        let site = self.site()?;
        let begun = self
            .engine
            .run_at(site, |attempt| semaphore::begin(site, permits, attempt));
        Ok(begun.await?.is_some())
    }

    /// Takes a permit, waiting for it as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits), but [`Error::Unavailable`] when Redis cannot be reached for
    /// [`Config::outage_wait`](crate::Config::outage_wait).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was asked for when the future is dropped, and granted, is given back.
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

    /// Takes several permits at once, waiting for them as long as it takes. None are taken before all can be.
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
        // Without a limit, permits that are taken are waited for.
        self.take(permits, Deadline::Never)
            .await?
            .ok_or(Error::Closed)
    }

    /// Takes a permit if there is one.
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

    /// Takes several permits if there are as many.
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

    /// Takes a permit, waiting for it no longer than `wait`, which covers everything.
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

    /// Takes several permits at once, waiting for them no longer than `wait`.
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
        self.take(permits, Deadline::of(wait)).await
    }

    async fn take(&self, permits: u32, deadline: Deadline) -> Result<Option<Permit>, Error> {
        let taken = self.engine.acquire_permits(self.site()?, permits, deadline);
        let engine = || self.engine.clone();
        Ok(taken.await?.map(|held| Permit {
            held,
            _engine: engine(),
        }))
    }

    /// Gives back permits that have no guard: those of a [`Permit::leak`]. There is no check that they were taken; as many more
    /// permits there are.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried on.
    ///
    /// # Redisson
    ///
    /// `release(permits)`.
    pub async fn release(&self, permits: u32) -> Result<(), Error> {
        match permits {
            0 => Ok(()),
            _ => {
                self.engine
                    .release_permits(self.site()?, permits.into())
                    .await
            }
        }
    }

    /// Changes the number of permits; a negative number takes some away, of which more may then be taken than there are.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried on.
    ///
    /// # Redisson
    ///
    /// `addPermits(permits)`.
    #[doc(alias = "addPermits")]
    pub async fn add_permits(&self, permits: i64) -> Result<(), Error> {
        self.engine.release_permits(self.site()?, permits).await
    }

    /// Takes all permits that are left, and says how many.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried on.
    ///
    /// # Redisson
    ///
    /// `drainPermits()`.
    #[doc(alias = "drainPermits")]
    pub async fn drain_permits(&self) -> Result<i64, Error> {
        let site = self.site()?;
        let drained = self
            .engine
            .run_at(site, |attempt| semaphore::drain(site, attempt));
        Ok(number(drained.await?))
    }

    /// How many permits are left; below 0 when more were taken away than were left.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// `availablePermits()`.
    #[doc(alias = "availablePermits")]
    pub async fn available_permits(&self) -> Result<i64, Error> {
        let site = self.site()?;
        let found = self.engine.ask_of(site, semaphore::inspect(site)).await?;
        Ok(number(found))
    }

    /// The name, with [`Config::name_prefix`](crate::Config::name_prefix).
    pub fn name(&self) -> &str {
        name(&self.site)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// The number that an answer has.
pub(crate) fn number(detail: Option<Detail>) -> i64 {
    match detail {
        Some(Detail::Number(number)) => number,
        // What Lua has no exact number for.
        Some(Detail::Text(text)) => text.parse().unwrap_or(0),
        _ => 0,
    }
}

/// The name of what may not exist.
pub(crate) fn name(site: &Result<Arc<Site>, Box<Error>>) -> &str {
    match site {
        Ok(site) => &site.name,
        Err(error) => match &**error {
            Error::InvalidName { name, .. } => name,
            _ => "",
        },
    }
}

/// Permits of a [`Semaphore`] that were taken. Dropping it gives them back, in the background.
///
/// After [`LockClient::shutdown`](crate::LockClient::shutdown) they stay taken, as permits have no end. Give them back before.
#[must_use = "a permit that is dropped is given back"]
pub struct Permit {
    held: HeldPermits,
    /// Keeps the client going for as long as the permit lives.
    _engine: EngineHandle,
}

impl Permit {
    /// Gives the permits back, and wakes waiters.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when no answer came within [`Config::command_wait`](crate::Config::command_wait), and then it is
    /// carried on in the background; [`Error::Redis`] when the server refused; [`Error::Closed`].
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

    /// Ends the guard without giving anything back: [`Semaphore::release`] does that, anywhere.
    pub fn leak(self) {
        self.held.leak();
    }

    /// How many permits these are.
    pub fn permits(&self) -> u32 {
        self.held.permits()
    }

    /// The name of the semaphore.
    pub fn name(&self) -> &str {
        &self.held.site().name
    }

    /// Where the client's tasks run.
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
