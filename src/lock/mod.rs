//! One front for every kind of lock.

mod any_lock;
mod inspect;
pub mod kind;
mod multi_lock;
mod quorum;
mod read_write_lock;
mod run;

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

pub use any_lock::AnyLock;
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
/// The lock that is had in the order of asking: see [`LockClient::fair_lock`](crate::LockClient::fair_lock).
#[doc(alias = "RedissonFairLock")]
pub type FairLock = Lock<Fair>;
/// The lock with fencing tokens: see [`LockClient::fenced_lock`](crate::LockClient::fenced_lock).
#[doc(alias = "RFencedLock")]
pub type FencedLock = Lock<Fenced>;
/// The lock that is polled: see [`LockClient::spin_lock`](crate::LockClient::spin_lock).
#[doc(alias = "RedissonSpinLock")]
pub type SpinLock = Lock<Spin>;
/// The lock that its owner may not take again: see
/// [`LockClient::non_reentrant_lock`](crate::LockClient::non_reentrant_lock).
pub type NonReentrantLock = Lock<NonReentrant>;
/// The fair lock that its owner may not take again: see
/// [`LockClient::non_reentrant_fair_lock`](crate::LockClient::non_reentrant_fair_lock).
pub type NonReentrantFairLock = Lock<NonReentrantFair>;
/// The lock that services without Redisson can share: see
/// [`LockClient::simple_lock`](crate::LockClient::simple_lock).
pub type SimpleLock = Lock<Simple>;

/// A lock of a kind that is not known when the program is compiled, such as one that a setting names: made by
/// [`Lock::into_dyn`]. It does what a lock of that kind does, and is the same lock.
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

/// A handle on a lock of kind `K`, for as many uses as wanted. Cheap to clone.
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
    /// Boxed, as a handle seldom has an error, and is a part of every future of its uses.
    pub(crate) subject: Result<Subject, Box<Error>>,
    pub(crate) owner: Option<Owner>,
    pub(crate) kind: PhantomData<K>,
}

impl<K: Kind> Lock<K> {
    /// Takes the lock, waiting for it as long as it takes.
    ///
    /// Waits for the message of a release, for the holder's lease to end, and at the latest for the
    /// next look at the server ([`Config::poll_floor`](crate::Config::poll_floor)); for a spin lock, for the next try; for a
    /// fair lock, until it is the owner's turn. An owner that holds the lock already enters at once, if the lock is
    /// reentrant. The hold is renewed until its [`Guard`] ends, unless [`with_lease`](Self::with_lease) says otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when Redis cannot be reached for
    /// [`Config::outage_wait`](crate::Config::outage_wait), [`Error::WrongKind`], [`Error::InvalidName`],
    /// [`Error::Config`] for a lease out of bounds, [`Error::Redis`], [`Error::Closed`]. From a lock that is not reentrant
    /// [`Error::AlreadyHeld`], from the write side of a read-write lock [`Error::WouldDeadlock`], from its read side
    /// [`Error::TooManyHolds`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future at any point leaves no hold, place in a queue, subscription or renewal behind. A try
    /// that was on its way is seen to its end in the background, and what it was granted is given back.
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
        // Without a limit, a lock that is taken is waited for.
        self.acquire(Deadline::Never).await?.ok_or(Error::Closed)
    }

    /// Takes the lock if it is free, or held by this owner already.
    ///
    /// Waits for one answer of the server. A fair lock is not taken while it has waiters.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), but [`Error::Unavailable`] already after
    /// [`Config::command_wait`](crate::Config::command_wait). That another owner holds the lock is `None`, not an error.
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
    ///     None => { /* another one is at it */ }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "tryLock")]
    pub async fn try_lock(&self) -> Result<Option<Guard<K>>, Error> {
        self.acquire(Deadline::Once).await
    }

    /// Takes the lock, waiting for it no longer than `wait`.
    ///
    /// `wait` covers everything: connecting, asking, subscribing, waiting. An answer that is on its way when it is over
    /// is waited for a little longer (100 ms), so that a lock granted at the last moment is not reported as busy. A
    /// `wait` of zero is [`try_lock`](Self::try_lock); one of more than 100 years is [`lock`](Self::lock).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), but [`Error::Unavailable`] when no answer came within `wait`. That another owner held the
    /// lock all the time is `None`.
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
        self.acquire(Deadline::of(wait)).await
    }

    /// The same lock, held for a fixed `lease` and not renewed.
    ///
    /// When the lease is over, the lock is free, whether its holder is done or not; the [`Guard`] says so just before.
    /// At least 10 ms, at most 100 years, rounded up to whole milliseconds; anything else is [`Error::Config`] at the
    /// first use.
    ///
    /// A hold taken inside another one of the same owner may lengthen the time that is left, but never shortens it. When
    /// it is released, the lease or renewal of the outer hold is in force again, counted from then.
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
        self.on(|options| options.set_lease(Lease::new(lease).map_err(Error::config)))
    }

    /// The same lock, whose acquisitions and renewals wait for replicas as `durability` says, instead of
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
        self.on(|options| options.durability = durability)
    }

    /// The same lock, for `owner` instead of the current one.
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

    /// Releases the latest hold of the owner that has no guard, as [`Guard::leak`] leaves it.
    ///
    /// Waits for one answer of the server.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] when the owner has no such hold, or is known to have lost it; [`Error::Lost`] when it turns out to
    /// be gone; [`Error::Unavailable`] when no answer came within [`Config::command_wait`](crate::Config::command_wait) (the
    /// release is then carried on in the background), [`Error::Redis`], [`Error::InvalidName`], [`Error::Closed`].
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
            return Err(Error::Closed);
        }
        self.engine.release_leaked(spec, self.owner(), None).await
    }

    /// The same lock, without its kind in the type: for code that is not generic over kinds, or chooses one when it runs.
    pub fn into_dyn(self) -> DynLock {
        Lock {
            engine: self.engine,
            subject: self.subject,
            owner: self.owner,
            kind: PhantomData,
        }
    }

    /// The name of the lock, with the prefix of the [`Config`](crate::Config) if there is one.
    #[doc(alias = "getName")]
    pub fn name(&self) -> &str {
        match &self.subject {
            Ok(subject) => &subject.spec.name,
            Err(_) => "",
        }
    }

    async fn acquire(&self, deadline: Deadline) -> Result<Option<Guard<K>>, Error> {
        let request = AcquireRequest::new(self.subject()?.clone(), self.owner())?;
        let acquisition = self.engine.acquisition(&request);
        let held = self.engine.acquire(&request, deadline).await;
        if let Some(mut acquisition) = acquisition {
            acquisition.ended(&held);
        }
        Ok(held?.map(|held| Guard::new(self.engine.clone(), held)))
    }

    fn subject(&self) -> Result<&Subject, Error> {
        self.subject.as_ref().map_err(|error| Error::clone(error))
    }

    /// The same lock, with other options.
    pub(crate) fn on(&self, change: impl FnOnce(&mut AcquireOptions)) -> Self {
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
    /// The same lock, polled with other pauses.
    ///
    /// Pauses shorter than 1 ms are 1 ms, longer than a minute a minute. When the holder's lease ends within a pause, the
    /// next try is made then.
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
        self.on(|options| options.back_off = Some(back_off))
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
