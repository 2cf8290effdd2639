//! The guard of one hold.

mod body;
mod multi_guard;

use std::{fmt, marker::PhantomData, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use body::{Protects, release_after, run_and_release, run_if_held, run_under};
pub use multi_guard::MultiGuard;

use crate::{
    engine::{EngineHandle, HoldGuard, OnFailure, loss_of},
    error::{Error, LostReason},
    owner::Owner,
    wire::{Dyn, Kind, Lease, Released, fenced::Fenced},
};

/// One hold on a [`DynLock`](crate::DynLock).
pub type DynGuard = Guard<Dyn>;

/// One hold on a lock of kind `K`.
///
/// A guard keeps its owner: any task may use or drop it. Drop releases the hold in the background. A later acquisition of the
/// lock by this client waits for that release, up to [`Config::command_wait`](crate::Config::command_wait).
/// [`unlock`](Self::unlock) releases the hold and returns the result.
///
/// The return from `main` releases the guards that it drops. `process::exit` drops nothing: before it, unlock, or call
/// [`LockClient::shutdown_and_release`](crate::LockClient::shutdown_and_release).
///
/// # When the hold is lost
///
/// A hold can end before its guard: at the end of a fixed lease, after an outage of Redis, after a stop of this process, by a
/// forced unlock, or when the server loses its data. Code that must stop then has four ways:
/// [`is_lost`](Self::is_lost) before each step that matters, [`lost`](Self::lost) in a `select!`,
/// [`cancellation_token`](Self::cancellation_token) to stop other tasks, and [`Lock::run`](crate::Lock::run), which drops its
/// body; tasks that the body has spawned need the token. The validity of a hold ends at [`valid_until`](Self::valid_until), 1 %
/// of the lease and 2 ms before the lease on the server. The holder therefore learns of the loss before another owner can enter.
#[must_use = "a guard that is dropped releases its hold"]
pub struct Guard<K: Kind> {
    hold: HoldGuard,
    /// Keeps the client open for as long as the guard lives.
    engine: EngineHandle,
    kind: PhantomData<K>,
}

impl<K: Kind> Guard<K> {
    pub(crate) fn new(engine: EngineHandle, hold: HoldGuard) -> Self {
        Self {
            hold,
            engine,
            kind: PhantomData,
        }
    }

    /// Releases the hold.
    ///
    /// The client may hand the lock to a waiting task in memory, or leave a shared read hold to other readers
    /// ([`Config::local_hand_off`](crate::Config::local_hand_off)). Then the call waits for nothing; otherwise it waits for one answer
    /// of the server. After the owner's last hold, the server frees the lock and wakes a waiter, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the hold was gone before: another owner may have held the lock since.
    /// [`Error::Unavailable`] when no answer came within [`Config::command_wait`](crate::Config::command_wait); the
    /// release continues in the background until the lease ends the hold. [`Error::Redis`] when the server refused, and
    /// [`Error::Closed`]: then the lease ends the hold at the latest.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    ///
    /// # Redisson
    ///
    /// `unlock()`. A lost reply makes Redisson report "not locked by current thread"; here it is no loss.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::Released;
    ///
    /// let lock = client.reentrant_lock("order:42");
    /// let outer = lock.lock().await?;
    /// let inner = lock.lock().await?;
    /// assert_eq!(inner.unlock().await?, Released::StillHeld { holds: 1 });
    /// assert_eq!(outer.unlock().await?, Released::Fully);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unlock(self) -> Result<Released, Error> {
        self.hold.release(OnFailure::Return).await
    }

    /// Returns the guard without the lock's kind in the type.
    pub fn into_dyn(self) -> DynGuard {
        Guard {
            hold: self.hold,
            engine: self.engine,
            kind: PhantomData,
        }
    }

    /// The lock's name: see [`Lock::name`](crate::Lock::name).
    ///
    /// # Redisson
    ///
    /// `getName()`.
    #[doc(alias = "getName")]
    pub fn name(&self) -> &str {
        self.hold.tenure().name()
    }

    /// The lock's key on the server: see [`Lock::key`](crate::Lock::key).
    pub fn key(&self) -> &str {
        self.hold.tenure().key()
    }

    /// Returns the owner of the hold. [`owned_by`](crate::Lock::owned_by) with this owner re-enters.
    pub fn owner(&self) -> Owner {
        self.hold.owner()
    }

    /// Returns how many replicas had acknowledged the acquisition at its reply. `None` if the acquisition waited for no replica
    /// ([`Durability`](crate::Durability)), or the server refused to tell.
    ///
    /// # Redisson
    ///
    /// None.
    pub fn acknowledgements(&self) -> Option<u32> {
        self.hold.acknowledged
    }

    /// Completes with the reason when the hold is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
    ///
    /// # Redisson
    ///
    /// None: a holder learns of the loss by the exception of `unlock()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.reentrant_lock("order:42").lock().await?;
    /// tokio::select! {
    ///     biased;
    ///     reason = guard.lost() => eprintln!("stopped: {reason}"),
    ///     () = work() => { guard.unlock().await?; }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> LostReason {
        loss_of(self.hold.tenure(), self.engine.runtime()).await
    }

    /// Asks the server whether it has the hold. A hold that is gone is lost from then on, for each task that watches it.
    ///
    /// The client learns of a forced unlock or of lost data at the next renewal, a third of the lease later at most, and with a fixed lease
    /// not before its end. A step that cannot be undone asks first. What it protects can still end after the answer, at
    /// [`valid_until`](Self::valid_until) or by a forced unlock; only a [fencing token](crate::FencedLock) excludes that.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the hold is gone. [`Error::Unavailable`] when no answer came within
    /// [`Config::command_wait`](crate::Config::command_wait), [`Error::Redis`] and [`Error::Closed`]: these tell nothing about the hold.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// `isHeldByCurrentThread()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn send_the_money() {}
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.reentrant_lock("transfer:7").lock().await?;
    /// guard.check().await?;
    /// send_the_money().await;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "isHeldByCurrentThread")]
    pub async fn check(&self) -> Result<(), Error> {
        self.hold.check().await
    }

    /// Calls `callback` with the reason if the hold is lost before its release: for work that blocks its thread, and cannot wait for
    /// [`lost`](Self::lost).
    ///
    /// The call is made at once if the hold is lost already, and never after a release. It comes from a task on the client's runtime, so it
    /// must not block: it sets a flag, or ends a process. Each call of this method adds a callback.
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::sync::{Arc, atomic::{AtomicBool, Ordering::Relaxed}};
    ///
    /// let guard = client.reentrant_lock("import").lock().await?;
    /// let stop = Arc::new(AtomicBool::new(false));
    /// guard.on_lost({
    ///     let stop = stop.clone();
    ///     move |_| stop.store(true, Relaxed)
    /// });
    /// let import = move || while !stop.load(Relaxed) { /* the next row */ };
    /// tokio::task::spawn_blocking(import).await.expect("the import does not panic");
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_lost(&self, callback: impl FnOnce(LostReason) + Send + 'static) {
        self.hold.on_lost(callback);
    }

    /// Returns whether the hold was reported lost or its validity has ended. Sends nothing.
    ///
    /// # Redisson
    ///
    /// None: Java asks the server.
    pub fn is_lost(&self) -> bool {
        self.lost_reason().is_some()
    }

    /// Returns a token that the loss of the hold cancels, to stop other tasks. After a release, a loss of the owner's other holds
    /// does not cancel it. Cancelling it yourself does not affect the guard.
    ///
    /// # Redisson
    ///
    /// None.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.hold.token()
    }

    /// Returns the time from which on the owner has had the lock: that of its first hold. Readers that share a hold have one time.
    ///
    /// # Redisson
    ///
    /// None.
    pub fn since(&self) -> std::time::Instant {
        self.hold.tenure().since().into_std()
    }

    /// Returns the end of this hold's validity if no further renewal succeeds. A renewal moves it forward. The release of an
    /// inner hold restarts the leases of the outer holds, unless renewals wait for replicas. An earlier loss means that the server
    /// lost the lock, or that the client was closed. A longer hold of the same owner keeps the guard valid past this time.
    ///
    /// # Redisson
    ///
    /// None: Java asks the server for its remaining lease, which is longer.
    pub fn valid_until(&self) -> std::time::Instant {
        self.hold.valid_until().into_std()
    }

    /// Extends the hold to `lease` from now. Use it for a fixed lease that turns out too short.
    ///
    /// A longer remaining time stays. The lock is held for the longest of the owner's holds. The watchdog goes on renewing a
    /// hold that it renewed before. [`valid_until`](Self::valid_until) moves when the server has answered.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the hold is gone, [`Error::Config`] for a lease out of bounds, [`Error::Redis`], [`Error::Closed`].
    /// [`Error::Unavailable`] when no answer came within [`Config::command_wait`](crate::Config::command_wait), and
    /// [`Error::Replication`] when too few replicas acknowledged, whatever
    /// [`Config::check_replicas`](crate::Config::check_replicas) says: the validity then stays as it was, unless the answer
    /// comes later. The server may keep the hold for longer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop an extension that has begun. The owner's later operations on the lock wait for it.
    ///
    /// # Redisson
    ///
    /// `expire` on the lock, which may also shorten it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let import = client.reentrant_lock("import").with_lease(Duration::from_secs(60));
    /// let guard = import.lock().await?;
    /// for file in ["a.csv", "b.csv"] {
    ///     // A minute for each.
    ///     guard.extend(Duration::from_secs(60)).await?;
    /// #   let _ = file;
    /// }
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let lease = Lease::new(lease).map_err(Error::config)?;
        self.hold.extend(lease).await
    }

    /// Consumes the guard and keeps the hold. Renewal continues until the client closes.
    /// [`Lock::unlock`](crate::Lock::unlock) by the same owner releases the hold.
    ///
    /// # Redisson
    ///
    /// None: no hold of Redisson has a guard.
    pub fn leak(self) {
        self.hold.leak();
    }

    pub(crate) fn hold(&self) -> &HoldGuard {
        &self.hold
    }

    pub(crate) fn into_hold(self) -> HoldGuard {
        self.hold
    }

    pub(crate) fn engine(&self) -> &EngineHandle {
        &self.engine
    }

    /// Where the client's tasks run.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.engine.runtime()
    }

    fn lost_reason(&self) -> Option<LostReason> {
        self.hold.tenure().lost_reason(Instant::now())
    }
}

impl<K: Kind> Protects for Guard<K> {
    fn loss(&self) -> impl Future<Output = LostReason> + Send {
        self.lost()
    }

    fn loss_error(&self, reason: LostReason) -> Error {
        self.hold.tenure().lost_error(reason)
    }

    async fn release_or_log(self) -> Result<Released, Error> {
        self.hold.release(OnFailure::Log).await
    }
}

impl Guard<Fenced> {
    /// Returns the fencing token: larger than that of every earlier holder, for as long as the server keeps its data.
    ///
    /// A store that remembers the largest token, and refuses smaller ones, is safe from a holder that has not yet learned of its
    /// loss. The store must compare and write in one step. All holds in one tenure show the token of its first hold.
    ///
    /// Tokens repeat if the server loses writes or the counter: after a failover without durable replication, a restart
    /// without persistence, an eviction or a `DEL`.
    /// [docs/fenced-lock.md](https://docs.rs/crate/redisson-lock/latest/source/docs/fenced-lock.md) says what to do about it.
    ///
    /// # Redisson
    ///
    /// `lockAndGetToken()` and `tryLockAndGetToken()`; there, inner acquisitions return larger numbers.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.fenced_lock("order:42").lock().await?;
    /// let token = guard.token();
    /// // update orders set .., token = $token where id = 42 and token <= $token
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("lockAndGetToken", "tryLockAndGetToken"))]
    pub fn token(&self) -> i64 {
        let fence = self.hold.tenure().fence();
        fence.expect("a fenced lock is not granted without a token")
    }
}

impl DynGuard {
    /// Returns the fencing token, if the lock is a [fenced lock](crate::FencedLock).
    pub fn fencing_token(&self) -> Option<i64> {
        self.hold.tenure().fence()
    }
}

impl<K: Kind> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.hold.tenure().name())
            .field("owner", &self.hold.owner())
            .field("token", &self.hold.tenure().fence())
            .field("lost", &self.lost_reason())
            .finish_non_exhaustive()
    }
}
