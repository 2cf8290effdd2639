//! Several locks as one: all of them, or a majority.

use std::{fmt, marker::PhantomData, time::Duration};

use bytes::Bytes;

use super::{
    any_lock::AnyLock,
    quorum::{All, Majority, Quorum},
};
use crate::{
    engine::{Deadline, Group, Member, Quota, results_of, summed_up},
    error::Error,
    guard::{MultiGuard, run_and_release, run_if_held},
    owner::Owner,
    wire::{HoldMode, KindName, Lease, Released},
};

/// All of several locks, or none: see [`LockClient::multi_lock`](crate::LockClient::multi_lock) and
/// [`MultiLock::of`](GroupLock::of).
///
/// The rules of acquisition, waiting and release are in
/// [docs/groups.md](https://docs.rs/crate/redisson-lock/latest/source/docs/groups.md).
///
/// # Redisson
///
/// `RedissonMultiLock`.
#[doc(alias = "RedissonMultiLock")]
pub type MultiLock = GroupLock<All>;

/// A majority of several locks on servers that fail independently: see [`RedLock::of`](GroupLock::of).
///
/// # What it does and does not guarantee
///
/// The holder has more than half of the locks, so no other owner can have more than half at the same time. This holds for
/// as long as the servers keep their data and the clocks of servers and client run at about the same speed. The lock works
/// while a minority of the servers is down. The holder may rely on it until [`MultiGuard::valid_until`]: the lease, less
/// the time that the acquisition took, less an allowance for drift.
///
/// Martin Kleppmann's [criticism](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html) (2016): a
/// paused process or a delayed packet can outlast a lease, so a holder may write after its time, whatever algorithm granted
/// the lock. Only a store that checks a fencing token prevents that, and this algorithm yields no such token. It also
/// relies on clocks that do not jump and on servers that do not forget.
///
/// Salvatore Sanfilippo's [reply](http://antirez.com/news/101): the holder checks the time *after* it has the majority, so
/// earlier delays do no harm. Later delays affect every lock with a lease. Clocks can be kept from jumping, and a server
/// that restarts without its data can stay away for one lease.
///
/// Both arguments are right. Use a RedLock where two holders at a time only duplicate work. Otherwise, let the store
/// compare the tokens of a [fenced lock](crate::LockClient::fenced_lock). On one server, or on replicas of one, a RedLock
/// adds no safety.
///
/// # Redisson
///
/// `RedissonRedLock`, which checks no validity and is deprecated.
#[doc(alias = "RedissonRedLock")]
pub type RedLock = GroupLock<Majority>;

/// A handle to several locks as one, [`MultiLock`] or [`RedLock`]. Cheap to clone.
///
/// Every operation acts for one [`Owner`], which is the same for all the locks.
///
/// # Redisson
///
/// `RedissonMultiLock`.
pub struct GroupLock<Q: Quorum> {
    members: Vec<AnyLock>,
    lease: Option<Result<Lease, Error>>,
    pub(crate) owner: Option<Owner>,
    quorum: PhantomData<Q>,
}

impl<Q: Quorum> GroupLock<Q> {
    /// The group of `locks`, of any kinds and clients.
    ///
    /// The group orders its locks by name, whatever their order here. Locks of one name on several servers stay in the order
    /// here: name the servers in the same order in every process. A lock that is given twice counts once in a [`MultiLock`],
    /// and is [`Error::Config`] in a [`RedLock`] at the first use. So are, in both, two kinds that are one lock on the server,
    /// such as a reentrant and a fair lock of one name. One script call acquires the locks of one kind and client (up to
    /// 128); the calls run at the same time. Leases, back-offs and clients are those of the given locks; their owners are not
    /// used. Two clients of one server are two owners: a group with the same name from both can never be acquired.
    ///
    /// Sends nothing. A group without any lock is invalid: every operation is [`Error::Config`].
    ///
    /// # Redisson
    ///
    /// `redisson.getMultiLock(locks)`, `redisson.getRedLock(locks)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient, other: redisson_lock::LockClient)
    /// # -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{AnyLock, MultiLock};
    ///
    /// let transfer = MultiLock::of([
    ///     AnyLock::from(client.reentrant_lock("account:1")),
    ///     AnyLock::from(other.read_write_lock("rates").read()),
    /// ]);
    /// let guard = transfer.lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(locks: impl IntoIterator<Item = impl Into<AnyLock>>) -> Self {
        let mut members: Vec<AnyLock> = locks.into_iter().map(Into::into).collect();
        // A stable sort: clients have no order that all processes know, except for the caller's.
        members.sort_by(|a, b| rank(a).cmp(&rank(b)));
        let mut unique: Vec<AnyLock> = Vec::with_capacity(members.len());
        for lock in members {
            let is_repeated = same_in_redis(&unique, &lock).any(|other| kind(other) == kind(&lock));
            if !(is_repeated && Q::MERGES_REPEATS) {
                unique.push(lock);
            }
        }
        Self {
            members: unique,
            lease: None,
            owner: None,
            quorum: PhantomData,
        }
    }

    /// Acquires the locks, and waits for them without a limit.
    ///
    /// If another owner holds a lock of the group, the group releases its acquired locks, waits for that one as
    /// [`Lock::lock`](crate::Lock::lock) does, and then tries the rest again. From the second round on, a multi-lock first
    /// keeps the acquired locks that precede the missing one for up to 250 ms and waits for the rest: contended locks are seldom
    /// free together. It then releases them and holds nothing while it waits. All groups have their locks in one order, so groups
    /// that share locks do not wait for each other in a circle.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`](crate::Lock::lock), of any of the locks; for a [`RedLock`] only when so many fail that no majority is
    /// left. [`Error::Config`] for an invalid group: see [`of`](Self::of).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future at any point leaves nothing behind, as for [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Redisson
    ///
    /// `lock()`, and with a lease `lock(leaseTime, unit)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let transfer = client.multi_lock(["account:1", "account:2"]);
    /// let guard = transfer.lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        self.acquire(Deadline::Never).await?.ok_or(Error::Closed)
    }

    /// Acquires the locks if they are free, or held by this owner already.
    ///
    /// Waits for one answer of each server, and for a second one if it has to release acquired locks.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), after [`Config::command_wait`](crate::Config::command_wait). For a [`RedLock`] each server has
    /// a fiftieth of the lease to answer, at least 50 ms, and no more than that.
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
    /// if let Some(guard) = client.multi_lock(["account:1", "account:2"]).try_lock().await? {
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "tryLock")]
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        self.acquire(Deadline::Once).await
    }

    /// Acquires the locks, and waits for them for `wait`.
    ///
    /// Waits as [`lock`](Self::lock) does. After `wait` the group asks for nothing more. Beside a silent server it returns up to
    /// 100 ms later: answers to earlier requests still count, and acquired locks are released.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), but [`Error::Unavailable`] when there was no answer within `wait`. `None` means that
    /// the group never had enough of the locks at one time.
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
    /// let transfer = client.multi_lock(["account:1", "account:2"]);
    /// if let Some(guard) = transfer.try_lock_for(Duration::from_secs(5)).await? {
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "tryLock")]
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        self.acquire(Deadline::after(wait)).await
    }

    /// The same group, its locks held for a fixed `lease` and not renewed: see
    /// [`Lock::with_lease`](crate::Lock::with_lease).
    ///
    /// # Redisson
    ///
    /// The `leaseTime` of `lock` and `tryLock`. Here, each acquisition sets the lease itself: a lease that is set later
    /// could extend a lock that has been lost in between.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let transfer = client.multi_lock(["account:1", "account:2"]);
    /// let guard = transfer.with_lease(Duration::from_secs(10)).lock().await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it is another handle; this one keeps its lease"]
    #[doc(alias = "leaseTime")]
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self {
            lease: Some(Lease::new(lease).map_err(Error::config)),
            ..self.clone()
        }
    }

    /// The same group, for `owner` instead of the current one.
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
    /// let guard = client.multi_lock(["account:1", "account:2"]).owned_by(&session).lock().await?;
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

    /// Acquires the locks, runs `body` and releases the locks; stops `body` when the hold is lost: see
    /// [`Lock::run`](crate::Lock::run).
    ///
    /// Waits as [`lock`](Self::lock) does.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Lost`] with the name of a lock when the hold was lost. [`Error::take_result`]
    /// returns the result of a `body` that had ended by then. A release that fails otherwise is logged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` where it is and releases the locks in the background.
    ///
    /// # Redisson
    ///
    /// `lock(); try { .. } finally { unlock(); }`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let transfer = client.multi_lock(["account:1", "account:2"]);
    /// let moved = transfer.run(async |_guard| 100).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T: Send + 'static>(
        &self,
        body: impl AsyncFnOnce(&MultiGuard) -> T,
    ) -> Result<T, Error> {
        let owner = self.owner();
        let guard = self.owned_by(&owner).lock().await?;
        run_and_release(guard, owner, body).await
    }

    /// As [`run`](Self::run), if the locks are free. Returns `None` without a call of `body` if they are not.
    ///
    /// Waits as [`try_lock`](Self::try_lock) does, and for `body`.
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
    pub async fn try_run<T: Send + 'static>(
        &self,
        body: impl AsyncFnOnce(&MultiGuard) -> T,
    ) -> Result<Option<T>, Error> {
        let owner = self.owner();
        let guard = self.owned_by(&owner).try_lock().await?;
        run_if_held(guard, owner, body).await
    }

    /// As [`run`](Self::run), if the locks become free within `wait`. Returns `None` without a call of `body` if they do not.
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
    pub async fn try_run_for<T: Send + 'static>(
        &self,
        wait: Duration,
        body: impl AsyncFnOnce(&MultiGuard) -> T,
    ) -> Result<Option<T>, Error> {
        let owner = self.owner();
        let guard = self.owned_by(&owner).try_lock_for(wait).await?;
        run_if_held(guard, owner, body).await
    }

    /// Releases the owner's latest hold on the group that has no guard, as [`MultiGuard::leak`] leaves it. If there is none,
    /// releases the latest such hold on every lock.
    ///
    /// Waits as [`MultiGuard::unlock`] does.
    ///
    /// # Errors
    ///
    /// As [`Lock::unlock`](crate::Lock::unlock), of any of the locks; the rest are released nevertheless. For a [`RedLock`]
    /// only when so many fail that no majority was held.
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
    /// let transfer = client.multi_lock(["account:1", "account:2"]);
    /// transfer.lock().await?.leak();
    /// // The same task, later:
    /// transfer.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unlock(&self) -> Result<Released, Error> {
        let owner = self.owner();
        let members = self.members(owner)?;
        let quota = Self::quota(&members);
        let group = Group {
            members: &members,
            quota,
        };
        let leaked = group.latest_leaked();
        let locks = || {
            members
                .iter()
                .map(|member| (&member.engine, &*member.request.spec))
        };
        let releases = members.iter().map(async |member| {
            let Member { engine, request } = member;
            if engine.is_closed() {
                return Err(engine.closed_error());
            }
            let spec = &request.spec;
            engine.release_leaked(spec, owner, leaked.as_ref()).await
        });
        summed_up(results_of(releases, locks(), quota).await, quota)
    }

    pub(super) async fn acquire(&self, deadline: Deadline) -> Result<Option<MultiGuard>, Error> {
        let members = self.members(self.owner())?;
        let quota = Self::quota(&members);
        let group = Group {
            members: &members,
            quota,
        };
        let taken = group.acquire(deadline).await?;
        Ok(taken.map(|parts| MultiGuard::new(parts, &group)))
    }

    fn quota(members: &[Member]) -> Quota {
        Quota {
            members: members.len(),
            need: Q::need(members.len()),
        }
    }

    fn members(&self, owner: Owner) -> Result<Vec<Member>, Error> {
        self.first()?;
        for (index, lock) in self.members.iter().enumerate() {
            let name = &lock.spec()?.name;
            if let Some(other) = same_in_redis(&self.members[..index], lock).next() {
                return Err(Error::config(match kind(other) == kind(lock) {
                    true => format!(
                        "the RedLock names `{name}` twice on one client: give it a lock of each server's client"
                    ),
                    false => format!(
                        "the group names `{name}` as two kinds that share one lock in Redis: name it once"
                    ),
                }));
            }
        }
        let member = |lock: &AnyLock| {
            Ok(Member {
                engine: lock.engine.clone(),
                request: lock.request(owner, self.lease.as_ref())?,
            })
        };
        self.members.iter().map(member).collect()
    }

    fn first(&self) -> Result<&AnyLock, Error> {
        let none = || Error::config("a group needs at least one lock");
        self.members.first().ok_or_else(none)
    }

    /// The runtime of one of the clients.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> Result<&tokio::runtime::Handle, Error> {
        Ok(self.first()?.engine.runtime())
    }

    fn owner(&self) -> Owner {
        self.owner.unwrap_or_else(Owner::current)
    }
}

fn kind(lock: &AnyLock) -> Option<KindName> {
    lock.spec().ok().map(|spec| spec.protocol.kind())
}

/// The order of members, by their keys: an invalid name comes first, because the user is to see that error.
fn rank(lock: &AnyLock) -> Option<(&Bytes, HoldMode)> {
    let spec = lock.spec().ok()?;
    Some((&spec.key, spec.mode))
}

/// The members at the end of sorted `members` that are the same lock in Redis as `lock`, which
/// comes next.
fn same_in_redis<'a>(
    members: &'a [AnyLock],
    lock: &'a AnyLock,
) -> impl Iterator<Item = &'a AnyLock> {
    let is_valid = lock.spec().is_ok();
    let run = members
        .iter()
        .rev()
        .take_while(|other| rank(other) == rank(lock));
    run.filter(move |other| is_valid && other.engine.id == lock.engine.id)
}

impl<Q: Quorum> Clone for GroupLock<Q> {
    fn clone(&self) -> Self {
        Self {
            members: self.members.clone(),
            lease: self.lease.clone(),
            owner: self.owner,
            quorum: PhantomData,
        }
    }
}

impl<Q: Quorum> fmt::Debug for GroupLock<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupLock")
            .field("members", &self.members)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
