//! Permits with an id and an end that many processes share.

use std::{
    fmt::{self, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::number;
use crate::{
    engine::{Deadline, EngineHandle, ExpirablePermitGuard},
    error::{Error, LostReason},
    wire::{
        Lease,
        permit::{self, Id},
        reply::Detail,
        sync_spec::{Attempt, SyncSpec},
    },
};

/// A semaphore whose permits end by themselves: the permits of a killed process become available again. Made by
/// [`LockClient::permit_expirable_semaphore`](crate::LockClient::permit_expirable_semaphore).
///
/// Each permit has an id, by which any process can release or extend it. It ends by the server's clock (in Redisson, by
/// each client's).
///
/// # Redisson
///
/// `RPermitExpirableSemaphore`.
#[derive(Clone)]
#[doc(alias = "RPermitExpirableSemaphore")]
pub struct PermitExpirableSemaphore {
    pub(crate) engine: EngineHandle,
    /// Boxed: errors are rare.
    spec: Result<Arc<SyncSpec>, Box<Error>>,
    /// The lease of its permits. `None` is that of the watchdog.
    lease: Option<Duration>,
    /// Whether permits with a `lease` are renewed too.
    is_renewed: bool,
}

impl PermitExpirableSemaphore {
    pub(crate) fn new(engine: EngineHandle, spec: Result<Arc<SyncSpec>, Box<Error>>) -> Self {
        Self {
            engine,
            spec,
            lease: None,
            is_renewed: false,
        }
    }

    /// Returns a handle whose permits have this `lease` and end with it, unless [`renewed`](Self::renewed) says otherwise.
    ///
    /// At least 10 ms; anything less is [`Error::Config`] at the first use. A permit with [`Duration::MAX`], or with more than 100
    /// years, has no end: if its process is killed, it stays acquired until a process [releases](Self::release) it by its id.
    ///
    /// # Redisson
    ///
    /// The `leaseTime` of `acquire` and `tryAcquire`; with [`Duration::MAX`] these methods without a `leaseTime`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let pool = client.permit_expirable_semaphore("pool").with_lease(Duration::from_secs(30));
    /// if let Some(permit) = pool.try_acquire_for(Duration::from_secs(5)).await? {
    ///     permit.release().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it is another handle; this one keeps its lease"]
    #[doc(alias = "leaseTime")]
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self {
            lease: Some(lease),
            ..self.clone()
        }
    }

    /// Returns a handle whose permits this client renews, with the lease of [`with_lease`](Self::with_lease), or with
    /// [`Config::watchdog_lease`](crate::Config::watchdog_lease). Without `with_lease`, a handle renews its permits anyway.
    ///
    /// Such a permit lasts for as long as its guard and its process do, and becomes available again a lease after the process
    /// has died. The watchdog renews the lease every third of it, as a lock's, until the guard is released, dropped or
    /// [leaked](ExpirablePermit::leak). A permit without an end ([`Duration::MAX`]) needs no renewal.
    /// [`ExpirablePermit::lost`] reports a loss.
    ///
    /// # Redisson
    ///
    /// None: there, a permit without a lease never ends, and no permit is renewed. To Redisson's clients, a renewal looks
    /// like `updateLeaseTime`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let pool = client.permit_expirable_semaphore("pool").renewed();
    /// let permit = pool.acquire().await?;
    /// tokio::select! {
    ///     biased;
    ///     reason = permit.lost() => eprintln!("stopped: {reason}"),
    ///     () = work() => { permit.release().await?; }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it is another handle; this one stays as it is"]
    pub fn renewed(&self) -> Self {
        Self {
            is_renewed: true,
            ..self.clone()
        }
    }

    fn spec(&self) -> Result<&Arc<SyncSpec>, Error> {
        self.spec.as_ref().map_err(|error| Error::clone(error))
    }

    /// Sets the number of permits of a semaphore that does not exist yet. Returns whether it did.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] after [`Config::command_wait`](crate::Config::command_wait), [`Error::WrongKind`] when a key
    /// has a value of another kind, [`Error::InvalidName`], [`Error::Redis`], [`Error::Closed`].
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
        let begin = |attempt: &Attempt| permit::begin(spec, permits, attempt);
        Ok(self.engine.run_operation(spec, begin).await?.is_some())
    }

    /// Sets the number of permits, those including the acquired ones.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before the answer may have taken effect or not.
    ///
    /// # Redisson
    ///
    /// `setPermits(permits)`.
    #[doc(alias = "setPermits")]
    pub async fn set_permits(&self, permits: u32) -> Result<(), Error> {
        let spec = self.spec()?;
        let set = self.engine.run_query(spec, permit::set(spec, permits));
        set.await.map(drop)
    }

    /// Acquires a permit, and waits for it without a limit.
    ///
    /// The watchdog renews the permit until its guard ends, unless [`with_lease`](Self::with_lease) sets a lease. In Redisson such a
    /// permit has no end.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits), but [`Error::Unavailable`] when Redis cannot be reached for
    /// [`Config::outage_wait`](crate::Config::outage_wait); and [`Error::Config`] for a lease of less than 10 ms.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a permit that is granted after the future is dropped is released.
    ///
    /// # Redisson
    ///
    /// With a lease `acquire(leaseTime, unit)`, and with [`Duration::MAX`] `acquire()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let pool = client.permit_expirable_semaphore("pool");
    /// pool.try_set_permits(10).await?;
    /// let permit = pool.acquire().await?;
    /// println!("permit {}", permit.id());
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<ExpirablePermit, Error> {
        // A wait without a limit ends with a permit or an error.
        let taken = self.take(1, Deadline::Never).await?;
        single(taken).ok_or(Error::Closed)
    }

    /// Acquires several permits at once, and waits for them without a limit. It acquires all of them or none.
    ///
    /// Each has an id and a guard of its own; [`release_many`](Self::release_many) releases several at once.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Config`] for more than 1,000 permits.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Redisson
    ///
    /// With a lease `acquire(permits, leaseTime, unit)`, and with [`Duration::MAX`] `acquire(permits)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let pool = client.permit_expirable_semaphore("pool");
    /// let permits = pool.acquire_many(3).await?;
    /// let ids: Vec<_> = permits.iter().map(|permit| permit.id()).collect();
    /// println!("permits {ids:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_many(&self, permits: u32) -> Result<Vec<ExpirablePermit>, Error> {
        let taken = self.take(permits, Deadline::Never).await?;
        taken.ok_or(Error::Closed)
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
    /// With a lease `tryAcquire(0, leaseTime, unit)`, and with [`Duration::MAX`] `tryAcquire()`.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire(&self) -> Result<Option<ExpirablePermit>, Error> {
        Ok(single(self.take(1, Deadline::Once).await?))
    }

    /// Acquires several permits if as many are available.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and [`Error::Config`] for more than 1,000 permits.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Redisson
    ///
    /// With a lease `tryAcquire(permits, 0, leaseTime, unit)`, and with [`Duration::MAX`] `tryAcquire(permits)`, which answer an
    /// empty list where this answers `None`.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire_many(
        &self,
        permits: u32,
    ) -> Result<Option<Vec<ExpirablePermit>>, Error> {
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
    /// With a lease `tryAcquire(waitTime, leaseTime, unit)`, and with [`Duration::MAX`] `tryAcquire(waitTime, unit)`.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<ExpirablePermit>, Error> {
        Ok(single(self.take(1, Deadline::after(wait)).await?))
    }

    /// Acquires several permits at once, and waits for them no longer than `wait`, which covers everything.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many), within `wait`.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Redisson
    ///
    /// With a lease `tryAcquire(permits, waitTime, leaseTime, unit)`, which answers an empty list where this answers `None`.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire_many_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> Result<Option<Vec<ExpirablePermit>>, Error> {
        self.take(permits, Deadline::after(wait)).await
    }

    async fn take(
        &self,
        permits: u32,
        deadline: Deadline,
    ) -> Result<Option<Vec<ExpirablePermit>>, Error> {
        let spec = self.spec()?;
        let (lease, is_renewed) = match self.lease {
            None => (Some(self.engine.options.lease.clone()), true),
            Some(lease) => (lease_of(lease)?, self.is_renewed),
        };
        check_many(permits as usize)?;
        let taken = self
            .engine
            .acquire_ids(spec, permits, lease, is_renewed, deadline);
        let guard = |held: ExpirablePermitGuard| ExpirablePermit {
            id: shown(held.id()),
            held,
            _engine: self.engine.clone(),
        };
        Ok(taken
            .await?
            .map(|held| held.into_iter().map(guard).collect()))
    }

    /// Releases the permit with this id, whichever task acquired it. Returns whether it existed and had not ended.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits), and [`Error::Config`] for an id that is not 32 hexadecimal digits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it once it has begun.
    ///
    /// # Redisson
    ///
    /// `tryRelease(permitId)`; `release(permitId)` throws where this returns `false`.
    #[doc(alias = "tryRelease")]
    pub async fn release(&self, id: &str) -> Result<bool, Error> {
        self.engine.release_ids(self.spec()?, &[read(id)?]).await
    }

    /// Releases the permits with these ids, whichever process acquired them. Returns whether all existed and had not ended;
    /// otherwise it releases none of them.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release), and [`Error::Config`] for more than 1,000 ids.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it once it has begun.
    ///
    /// # Redisson
    ///
    /// `tryRelease(permitIds)`, which returns the number of released permits; `release(permitIds)` throws where this
    /// returns `false`.
    #[doc(alias = "tryRelease")]
    pub async fn release_many(
        &self,
        ids: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<bool, Error> {
        let spec = self.spec()?;
        let ids = ids.into_iter().map(|id| read(id.as_ref()));
        let mut ids = ids.collect::<Result<Vec<_>, _>>()?;
        // An id that is given twice is one permit.
        ids.sort_unstable();
        ids.dedup();
        check_many(ids.len())?;
        match ids.is_empty() {
            true => Ok(true),
            false => self.engine.release_ids(spec, &ids).await,
        }
    }

    /// Sets the permit with this id to end `lease` from now. Returns whether it exists.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release), and [`Error::Config`] for a lease of less than 10 ms.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before the answer may have taken effect or not.
    ///
    /// # Redisson
    ///
    /// `updateLeaseTime(permitId, leaseTime, unit)`.
    #[doc(alias = "updateLeaseTime")]
    pub async fn update_lease(&self, id: &str, lease: Duration) -> Result<bool, Error> {
        let (spec, lease) = (self.spec()?, lease_of(lease)?);
        let request = permit::extend(spec, &read(id)?, lease.as_ref());
        Ok(self.engine.run_query(spec, request).await?.is_some())
    }

    /// How long the permit with this id lasts, [`Duration::MAX`] without an end; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Redisson
    ///
    /// `getLeaseTime(permitId)`, which throws where this returns `None`.
    #[doc(alias = "getLeaseTime")]
    pub async fn lease_left(&self, id: &str) -> Result<Option<Duration>, Error> {
        let spec = self.spec()?;
        let found = self.engine.run_query(spec, permit::left(spec, &read(id)?));
        let found = found.await?.map(|detail| number(Some(detail)));
        Ok(found.map(|left| match u64::try_from(left) {
            Ok(left) => Duration::from_millis(left),
            Err(_) => Duration::MAX,
        }))
    }

    /// Adds permits; a negative number removes permits.
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

    /// The number of available permits.
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
        Ok(self.counts().await?[1])
    }

    /// The number of acquired permits.
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
    /// `acquiredPermits()`.
    #[doc(alias = "acquiredPermits")]
    pub async fn acquired_permits(&self) -> Result<i64, Error> {
        Ok(self.counts().await?[2])
    }

    /// The number of permits, acquired and available; 0 if the semaphore does not exist.
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
    /// `getPermits()`.
    #[doc(alias = "getPermits")]
    pub async fn permits(&self) -> Result<i64, Error> {
        let [exists, left, taken] = self.counts().await?;
        Ok(if exists == 1 { left + taken } else { 0 })
    }

    async fn counts(&self) -> Result<[i64; 3], Error> {
        let spec = self.spec()?;
        match self.engine.run_query(spec, permit::count(spec)).await? {
            Some(Detail::Numbers(numbers)) => Ok(numbers.try_into().unwrap_or_default()),
            _ => Ok([0; 3]),
        }
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

impl fmt::Debug for PermitExpirableSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitExpirableSemaphore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// The most permits of one call, which blocks the server meanwhile.
const MOST_AT_ONCE: usize = 1_000;

fn check_many(permits: usize) -> Result<(), Error> {
    match permits {
        0..=MOST_AT_ONCE => Ok(()),
        _ => Err(Error::config(format!(
            "{permits} permits in one call: acquire or release at most {MOST_AT_ONCE}"
        ))),
    }
}

/// The only permit of a call for one.
fn single(taken: Option<Vec<ExpirablePermit>>) -> Option<ExpirablePermit> {
    taken?.pop()
}

/// A permit's lease; `None` without an end.
fn lease_of(duration: Duration) -> Result<Option<Lease>, Error> {
    if duration > Lease::MAX {
        return Ok(None);
    }
    Lease::new(duration).map(Some).map_err(Error::config)
}

fn shown(id: &Id) -> String {
    id.iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn read(id: &str) -> Result<Id, Error> {
    let is_hex = id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    match u128::from_str_radix(id, 16) {
        Ok(number) if is_hex => Ok(number.to_be_bytes()),
        _ => Err(Error::config(
            "the permit id is invalid: it must have 32 hexadecimal digits",
        )),
    }
}

/// A permit of a [`PermitExpirableSemaphore`]. Dropping it releases the permit in the background.
#[must_use = "a permit that is dropped is given back"]
pub struct ExpirablePermit {
    id: String,
    held: ExpirablePermitGuard,
    /// Keeps the client alive for as long as the permit lives.
    _engine: EngineHandle,
}

impl ExpirablePermit {
    /// The permit's id: 32 hexadecimal digits, by which any process can release it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Releases the permit, and wakes a waiter. Returns whether it had not ended before.
    ///
    /// # Errors
    ///
    /// As [`Permit::release`](crate::Permit::release).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it.
    ///
    /// # Redisson
    ///
    /// `tryRelease(permitId)`.
    #[doc(alias = "tryRelease")]
    pub async fn release(self) -> Result<bool, Error> {
        self.held.release().await
    }

    #[cfg(feature = "blocking")]
    pub(crate) async fn release_or_log(self) {
        self.held.release_or_log().await;
    }

    /// Completes with the reason when the permit is lost: its lease ended, a renewal found it gone, or the client was shut
    /// down. For a permit without an end, only a shutdown completes it.
    ///
    /// A permit that is not [renewed](PermitExpirableSemaphore::renewed) is lost at [`valid_until`](Self::valid_until).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
    pub async fn lost(&self) -> LostReason {
        self.held.lost().await
    }

    /// Whether the permit is known to be lost, or lost by the clock. Sends nothing.
    pub fn is_lost(&self) -> bool {
        self.held.lost_reason().is_some()
    }

    /// A token that is cancelled when the permit is lost, to stop other tasks. Cancelling it does not harm the permit. The
    /// close of the client cancels it even after a release.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.held.token()
    }

    /// Ends the guard without a release: [`PermitExpirableSemaphore::release`] or the lease ends the permit. Its renewal
    /// stops.
    pub fn leak(self) {
        self.held.leak();
    }

    /// Until when the permit may be relied upon if it is not renewed again: a little less than its lease after the
    /// acquisition or renewal was sent. `None` without an end. [`PermitExpirableSemaphore::update_lease`] does not move it.
    pub fn valid_until(&self) -> Option<Instant> {
        self.held.valid_until().map(tokio::time::Instant::into_std)
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

impl fmt::Debug for ExpirablePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpirablePermit")
            .field("name", &self.name())
            .field("id", &self.id)
            .field("lost", &self.held.lost_reason())
            .finish_non_exhaustive()
    }
}
