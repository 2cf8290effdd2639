//! One front for every kind of lock.

mod any_lock;
mod inspect;
mod job;
pub mod kind;
mod multi_lock;
mod quorum;
mod read_write_lock;
mod run;
mod stop;

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

pub use any_lock::AnyLock;
pub use job::{AtLeast, JobOutcome};
pub use multi_lock::{GroupLock, MultiLock, RedLock};
pub use quorum::{All, Majority, Quorum};
pub use read_write_lock::ReadWriteLock;

use crate::{
    back_off::BackOff,
    durability::Durability,
    engine::{AcquireOptions, AcquireRequest, Deadline, EngineHandle, Subject},
    error::Error,
    guard::Guard,
    owner::Owner,
    wire::{
        Dyn, Kind, Lease, LockSpec, Released,
        fair::Fair,
        fenced::Fenced,
        non_reentrant::{NonReentrant, NonReentrantFair},
        reentrant::Reentrant,
        simple::Simple,
        spin::Spin,
    },
};

/// The plain reentrant lock: see [`LockClient::reentrant_lock`](crate::LockClient::reentrant_lock).
pub type ReentrantLock = Lock<Reentrant>;
/// The lock that is granted in the order of the requests: see [`LockClient::fair_lock`](crate::LockClient::fair_lock).
#[doc(alias = "RedissonFairLock")]
pub type FairLock = Lock<Fair>;
/// The lock with fencing tokens: see [`LockClient::fenced_lock`](crate::LockClient::fenced_lock).
#[doc(alias = "RFencedLock")]
pub type FencedLock = Lock<Fenced>;
/// The lock that is polled: see [`LockClient::spin_lock`](crate::LockClient::spin_lock).
#[doc(alias = "RedissonSpinLock")]
pub type SpinLock = Lock<Spin>;
/// The lock that refuses its owner a second hold: see
/// [`LockClient::non_reentrant_lock`](crate::LockClient::non_reentrant_lock).
pub type NonReentrantLock = Lock<NonReentrant>;
/// The fair lock that refuses its owner a second hold: see
/// [`LockClient::non_reentrant_fair_lock`](crate::LockClient::non_reentrant_fair_lock).
pub type NonReentrantFairLock = Lock<NonReentrantFair>;
/// The lock that services without Redisson can share: see
/// [`LockClient::simple_lock`](crate::LockClient::simple_lock).
pub type SimpleLock = Lock<Simple>;

/// A lock whose kind is chosen at run time, such as by a setting. [`Lock::into_dyn`] makes it from a lock of any kind, with
/// the same data and behaviour.
///
/// ```no_run
/// # fn example(client: redisson_lock::LockClient, is_fair: bool) {
/// use redisson_lock::DynLock;
///
/// let lock: DynLock = match is_fair {
///     true => client.fair_lock("printer").into_dyn(),
///     false => client.reentrant_lock("printer").into_dyn(),
/// };
/// # }
/// ```
pub type DynLock = Lock<Dyn>;

/// A handle on a lock of kind `K`, for any number of acquisitions. Cheap to clone.
///
/// Every operation acts for one [`Owner`]: the current task, unless [`owned_by`](Self::owned_by) or
/// [`Owner::scope`] says otherwise. **Branches of one `join!` or `select!` are one task and share its owner**; see
/// [`Owner`].
///
/// # Redisson
///
/// `RLock`.
#[doc(alias = "RLock")]
pub struct Lock<K: Kind> {
    pub(crate) engine: EngineHandle,
    /// Boxed: errors are rare, and every lock future contains the handle.
    pub(crate) subject: Result<Subject, Box<Error>>,
    pub(crate) owner: Option<Owner>,
    pub(crate) kind: PhantomData<K>,
}

impl<K: Kind> Lock<K> {
    /// Acquires the lock, and waits for it without a limit.
    ///
    /// Wakes at the message of a release, at the end of the holder's lease, or after
    /// [`Config::max_poll_interval`](crate::Config::max_poll_interval), whichever is first, and asks again. A spin lock polls. A fair lock waits
    /// for the owner's place in the queue. An owner of a reentrant lock gets further holds at once. The watchdog renews the hold
    /// until its [`Guard`] ends, unless [`with_lease`](Self::with_lease) sets a fixed lease.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when Redis cannot be reached for [`Config::outage_wait`](crate::Config::outage_wait),
    /// [`Error::Replication`] when too few replicas acknowledge the acquisition in time ([`Durability`]), [`Error::WrongKind`],
    /// [`Error::InvalidName`], [`Error::Config`] for a lease out of bounds, [`Error::Redis`], [`Error::Closed`]. From a lock that
    /// is not reentrant [`Error::AlreadyHeld`], from the write side of a read-write lock [`Error::WouldDeadlock`], from its read side
    /// [`Error::TooManyHolds`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future at any point leaves no hold, place in a queue, subscription or renewal behind. A
    /// background task awaits the reply of an attempt under way, and releases a granted hold.
    ///
    /// # Redisson
    ///
    /// `lock()`, and with a lease `lock(leaseTime, unit)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.reentrant_lock("order:42").lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock(&self) -> Result<Guard<K>, Error> {
        // Without a deadline no wait times out, so `None` does not occur.
        self.acquire(Deadline::Never).await?.ok_or(Error::Closed)
    }

    /// Acquires the lock if it is free, or if this owner holds it already.
    ///
    /// Waits for one answer of the server. If another task of this client holds the lock, the call may return `None` without a
    /// request. The call first waits for the releases of guards of the lock that this client dropped. With 1,024 operations of the
    /// client under way, it also waits for an answer to one of them, for up to 100 ms. A fair lock with waiters counts as held.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), but [`Error::Unavailable`] already after
    /// [`Config::command_wait`](crate::Config::command_wait). The wait for dropped guards has a limit of the same length of its own:
    /// with the default of 3 s, the call lasts 6 s at most. A lock that another owner holds is `None`, not an error.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](Self::lock).
    ///
    /// # Redisson
    ///
    /// `tryLock()`, and with a lease `tryLock(0, leaseTime, unit)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// match client.reentrant_lock("nightly-report").try_lock().await? {
    ///     Some(guard) => { /* this instance does the work */ guard.unlock().await?; }
    ///     None => { /* another instance does it */ }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "tryLock")]
    pub async fn try_lock(&self) -> Result<Option<Guard<K>>, Error> {
        self.acquire(Deadline::Once).await
    }

    /// Acquires the lock, and waits for it no longer than `wait`.
    ///
    /// `wait` covers everything: connecting, asking, subscribing, waiting. A reply under way at the deadline has another
    /// 100 ms to arrive. A lock granted at the last moment is therefore not reported as busy. A `wait` of zero is
    /// [`try_lock`](Self::try_lock); a `wait` of more than 100 years is [`lock`](Self::lock).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), but [`Error::Unavailable`] when no answer came within `wait`, or within
    /// [`Config::outage_wait`](crate::Config::outage_wait) if that is shorter. A lock that another owner held all the time is `None`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](Self::lock).
    ///
    /// # Redisson
    ///
    /// `tryLock(waitTime, unit)`, and with a lease `tryLock(waitTime, leaseTime, unit)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let lock = client.reentrant_lock("order:42");
    /// if let Some(guard) = lock.try_lock_for(Duration::from_secs(5)).await? {
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "tryLock")]
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard<K>>, Error> {
        self.acquire(Deadline::after(wait)).await
    }

    /// Returns a handle whose holds have a fixed `lease` and are not renewed.
    ///
    /// The lock is free at the end of the lease, even if its holder is still at work; the [`Guard`] reports the loss just
    /// before. At least 10 ms, at most 100 years, rounded up to whole milliseconds; anything else is [`Error::Config`] at the
    /// first use.
    ///
    /// A hold inside another one of the same owner may extend the remaining time, but never shortens it. Its release starts the
    /// lease or the renewal of the outer hold anew, unless renewals wait for replicas.
    ///
    /// # Redisson
    ///
    /// The `leaseTime` of `lock` and `tryLock`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let lock = client.reentrant_lock("order:42");
    /// let guard = lock.with_lease(Duration::from_secs(10)).lock().await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it is another handle; this one keeps its lease"]
    #[doc(alias = "leaseTime")]
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.with_options(|options| options.set_lease(Lease::new(lease).map_err(Error::config)))
    }

    /// Returns a handle whose acquisitions and renewals wait for replicas by `durability`, instead of
    /// [`Config::durability`](crate::Config::durability).
    ///
    /// # Redisson
    ///
    /// None for a single lock; `slavesSyncTimeout` and `checkLockSyncedSlaves` for all.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{Durability, Error};
    ///
    /// let payments = client.reentrant_lock("payments").with_durability(Durability::Majority);
    /// match payments.lock().await {
    ///     Ok(guard) => println!("{:?} replicas have it", guard.acknowledgements()),
    ///     Err(Error::Replication { acknowledged, .. }) => eprintln!("only {acknowledged} replicas"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it is another handle; this one stays as it is"]
    pub fn with_durability(&self, durability: Durability) -> Self {
        self.with_options(|options| options.durability = durability)
    }

    /// Returns a handle that acts for `owner` instead of the current one.
    ///
    /// # Redisson
    ///
    /// The `threadId` of `lockAsync` and its like.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::Owner;
    ///
    /// let session = Owner::new();
    /// let lock = client.reentrant_lock("order:42");
    /// let guard = lock.owned_by(&session).lock().await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it is another handle; this one keeps its owner"]
    #[doc(alias("lockAsync", "threadId"))]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self {
            owner: Some(*owner),
            ..self.clone()
        }
    }

    /// Releases the owner's latest leaked hold ([`Guard::leak`]). A hold of a group comes after all holds of the lock alone.
    ///
    /// Waits for one answer of the server.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] when the owner has no such hold, or this client has already reported its loss. [`Error::Lost`] when the
    /// server has no such hold. [`Error::Unavailable`] when no answer came within
    /// [`Config::command_wait`](crate::Config::command_wait); the release then continues in the background. [`Error::Redis`],
    /// [`Error::InvalidName`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop a release that has begun.
    ///
    /// # Redisson
    ///
    /// `unlock()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let lock = client.reentrant_lock("order:42");
    /// lock.lock().await?.leak();
    /// // The same task, later:
    /// lock.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unlock(&self) -> Result<Released, Error> {
        let spec = self.spec()?;
        if self.engine.is_closed() {
            return Err(self.engine.closed_error());
        }
        self.engine.release_leaked(spec, self.owner(), None).await
    }

    /// Returns the lock without its kind in the type, for code that is not generic over kinds or chooses one at run time.
    pub fn into_dyn(self) -> DynLock {
        Lock {
            engine: self.engine,
            subject: self.subject,
            owner: self.owner,
            kind: PhantomData,
        }
    }

    /// The name of the lock, without [`Config::name_prefix`](crate::Config::name_prefix): what the caller gave. Guards, groups, errors,
    /// reports, log lines and spans say this name too. Empty for an invalid name, which every operation refuses with
    /// [`Error::InvalidName`].
    ///
    /// # Redisson
    ///
    /// `getName()`.
    #[doc(alias = "getName")]
    pub fn name(&self) -> &str {
        self.subject
            .as_ref()
            .map_or("", |subject| &subject.spec.name)
    }

    /// The key of the lock on the server: the name with [`Config::name_prefix`](crate::Config::name_prefix). `rlock` and `redis-cli`
    /// show this one. Empty for an invalid name.
    ///
    /// # Redisson
    ///
    /// None: `RedissonObject.getRawName()`, which no interface has.
    pub fn key(&self) -> &str {
        self.subject
            .as_ref()
            .map_or("", |subject| subject.spec.key())
    }

    async fn acquire(&self, deadline: Deadline) -> Result<Option<Guard<K>>, Error> {
        let request = AcquireRequest::new(self.subject()?.clone(), self.owner())?;
        let acquisition = self.engine.acquisition(&request);
        let held = self.engine.acquire(&request, deadline).await;
        if let Some(mut acquisition) = acquisition {
            acquisition.finish(&held);
        }
        Ok(held?.map(|hold| Guard::new(self.engine.clone(), hold)))
    }

    fn subject(&self) -> Result<&Subject, Error> {
        self.subject.as_ref().map_err(|error| Error::clone(error))
    }

    /// Returns a handle with changed options.
    pub(crate) fn with_options(&self, change: impl FnOnce(&mut AcquireOptions)) -> Self {
        let mut lock = self.clone();
        if let Ok(subject) = &mut lock.subject {
            change(Arc::make_mut(&mut subject.options));
        }
        lock
    }

    pub(crate) fn spec(&self) -> Result<&Arc<LockSpec>, Error> {
        Ok(&self.subject()?.spec)
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner.unwrap_or_else(Owner::current)
    }
}

impl Lock<Spin> {
    /// Returns a handle that polls with other pauses.
    ///
    /// A pause lasts from 1 ms to a minute: shorter and longer ones are adjusted. A waiter asks again at the end of the
    /// holder's lease, if that comes first.
    ///
    /// # Redisson
    ///
    /// `getSpinLock(name, backOff)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    /// use redisson_lock::BackOff;
    ///
    /// let pause = BackOff::Constant(Duration::from_millis(64));
    /// let guard = client.spin_lock("order:42").with_back_off(pause).lock().await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it is another handle; this one keeps its pauses"]
    #[doc(alias = "getSpinLock")]
    pub fn with_back_off(&self, back_off: BackOff) -> Self {
        self.with_options(|options| options.back_off = Some(back_off))
    }
}

impl<K: Kind> Clone for Lock<K> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            subject: self.subject.clone(),
            owner: self.owner,
            kind: PhantomData,
        }
    }
}

impl<K: Kind> fmt::Debug for Lock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name())
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
