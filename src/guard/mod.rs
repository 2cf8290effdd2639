//! One hold, as its holder sees it.

mod multi_guard;

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use multi_guard::MultiGuard;
pub(crate) use multi_guard::summed_up;

use crate::{
    engine::{EngineHandle, Held, Then, cancel_at_the_end, elsewhere, loss_of},
    error::{Error, LostReason},
    owner::Owner,
    wire::{Dyn, Kind, Lease, Released, fenced::Fenced},
};

/// One hold on a [`DynLock`](crate::DynLock).
pub type DynGuard = Guard<Dyn>;

/// One hold on a lock of kind `K`.
///
/// It keeps the owner that it was taken for: it may be moved to, used and dropped in any task. Dropping it releases the
/// hold in the background, before anything else that the client then does with the same lock; [`unlock`](Self::unlock)
/// releases it and tells how it went.
///
/// A guard that is dropped as the program returns from `main` is released as well. `process::exit` drops nothing: before it,
/// unlock, or call [`LockClient::shutdown_and_release`](crate::LockClient::shutdown_and_release).
///
/// # When the hold is lost
///
/// A hold can end before its guard: its lease ran out (because it was a fixed one, because Redis could not be reached,
/// because this process was stopped), the lock was forced open, or the server lost its data. Code that must not go
/// on then has four ways to hear of it: [`is_lost`](Self::is_lost) before each step that matters,
/// [`lost`](Self::lost) in a `select!`, [`cancellation_token`](Self::cancellation_token) to stop other tasks, and
/// [`Lock::run`](crate::Lock::run), which does it all. The time after which the hold counts as lost,
/// [`valid_until`](Self::valid_until), lies a little before the server's own (1 % of the lease and 2 ms), so that the
/// holder hears of it before another owner can enter.
#[must_use = "a guard that is dropped releases its hold"]
pub struct Guard<K: Kind> {
    held: Held,
    /// Keeps the client going for as long as the guard lives.
    engine: EngineHandle,
    kind: PhantomData<K>,
}

impl<K: Kind> Guard<K> {
    pub(crate) fn new(engine: EngineHandle, held: Held) -> Self {
        Self {
            held,
            engine,
            kind: PhantomData,
        }
    }

    /// Releases the hold. With the owner's last hold, the lock is free and a waiter is told.
    ///
    /// Waits for one answer of the server.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the hold was gone before: another owner may have entered what it protected.
    /// [`Error::Unavailable`] when no answer came within [`Config::command_wait`](crate::Config::command_wait); the
    /// release is carried on in the background, and at the latest the lease ends the hold. [`Error::Redis`] when the
    /// server refused, which leaves the hold to its lease; [`Error::Closed`] likewise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    ///
    /// # Redisson
    ///
    /// `unlock()`. A lost reply, which makes Redisson report "not locked by current thread", is not mistaken for a
    /// loss here.
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
        self.held.release().await
    }

    /// The same hold, without the lock's kind in the type.
    pub fn into_dyn(self) -> DynGuard {
        Guard {
            held: self.held,
            engine: self.engine,
            kind: PhantomData,
        }
    }

    /// The lock's name, with [`Config::name_prefix`](crate::Config::name_prefix).
    pub fn name(&self) -> &str {
        self.held.tenure().name()
    }

    /// Whose hold it is: [`owned_by`](crate::Lock::owned_by) with this owner re-enters.
    pub fn owner(&self) -> Owner {
        self.held.owner()
    }

    /// How many replicas had acknowledged the acquisition when it was answered. `None` where none were waited for
    /// ([`Durability`](crate::Durability)), or the server would not say.
    pub fn acknowledgements(&self) -> Option<u32> {
        self.held.acknowledged
    }

    /// Completes, with the reason, when the hold is lost; never if it is released before.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
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
        loss_of(self.held.tenure(), self.engine.runtime()).await
    }

    /// Whether the hold is lost, by all that is known and by the clock. Sends nothing.
    pub fn is_lost(&self) -> bool {
        self.lost_reason().is_some()
    }

    /// A token that is cancelled when the hold is lost, to stop other tasks. Cancelling it does not harm the guard.
    pub fn cancellation_token(&self) -> CancellationToken {
        let (tenure, token) = (self.held.tenure(), self.held.tenure().token().child_token());
        if let Some(here) = elsewhere(self.engine.runtime()) {
            here.spawn(cancel_at_the_end(Arc::downgrade(tenure), token.clone()));
        }
        token
    }

    /// Until when the hold may be relied upon if it is not renewed again: until the end of its own lease. It only moves
    /// forward: with each renewal, and for a fixed lease when an inner hold of the same owner is released, which begins the
    /// outer ones' leases anew. Before it the guard is lost only where the server has lost the lock; after it, as soon as no
    /// other hold of the owner lasts longer.
    pub fn valid_until(&self) -> std::time::Instant {
        self.held.valid_until().into_std()
    }

    /// Has the hold last for another `lease` from now on, as a holder with a fixed lease wants that needs longer than it thought.
    ///
    /// It never shortens: what is left already stays. With the lock's other holds of the same owner, the longest counts. A
    /// hold that the watchdog renews is lengthened too, and renewed as before. [`valid_until`](Self::valid_until) moves when
    /// the server has answered.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the hold is gone, [`Error::Config`] for a lease out of bounds, [`Error::Unavailable`] when no
    /// answer came within [`Config::command_wait`](crate::Config::command_wait) and [`Error::Replication`] when too few
    /// replicas have it (the hold then lasts as long as before, though the server may keep it for longer), [`Error::Redis`],
    /// [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried on, and what comes after it waits for it.
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
        self.held.extend(lease, Then::Renewed).await
    }

    /// Ends the guard and leaves the hold, which goes on, renewed if it was, for as long as the client does.
    /// [`Lock::unlock`](crate::Lock::unlock), by the same owner, releases it.
    pub fn leak(self) {
        self.held.leak();
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Where the client's tasks run.
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.engine.runtime()
    }

    pub(crate) fn lost_error(&self, reason: LostReason) -> Error {
        self.held.tenure().lost_error(reason)
    }

    fn lost_reason(&self) -> Option<LostReason> {
        self.held.tenure().lost(Instant::now())
    }
}

impl Guard<Fenced> {
    /// The fencing token: larger than that of every earlier holder, for as long as the server keeps its data.
    ///
    /// A store that remembers the largest token that it has seen, and refuses smaller ones, is safe from a holder that
    /// does not know yet that it has lost the lock. It has to compare and write in one step. All holds of one owner at a
    /// time show the token of its first, also where the counter has gone on.
    ///
    /// Tokens repeat if the server loses writes or the counter: after a failover without durable replication, a restart
    /// without persistence, an eviction or a `DEL`. What to do about it is in
    /// [docs/fenced-lock.md](https://docs.rs/crate/redisson-lock/latest/source/docs/fenced-lock.md).
    ///
    /// # Redisson
    ///
    /// What `lockAndGetToken()` and `tryLockAndGetToken()` answer; there, inner acquisitions answer larger numbers.
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
    #[doc(alias("lockAndGetToken", "getToken", "tryLockAndGetToken"))]
    pub fn token(&self) -> i64 {
        let fence = self.held.tenure().fence();
        fence.expect("a fenced lock is not granted without a token")
    }
}

impl DynGuard {
    /// The fencing token, if the lock is a [fenced lock](crate::FencedLock).
    pub fn fencing_token(&self) -> Option<i64> {
        self.held.tenure().fence()
    }
}

impl<K: Kind> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.held.tenure().name())
            .field("lost", &self.lost_reason())
            .finish_non_exhaustive()
    }
}
