//! The hold on a group of locks, as its holder sees it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{runtime::Handle, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Protects;
use crate::{
    engine::{Part, Tenure, Then, elsewhere, loss_of_group, lost_reason, release_all, valid_until},
    error::{Error, LostReason},
    wire::{Lease, Released},
};

/// One hold on a [`MultiLock`](crate::MultiLock) or a [`RedLock`](crate::RedLock).
///
/// It is lost when too few of the locks are still held: for a multi-lock with the first that is lost, for a RedLock when
/// no majority is left. As a [`Guard`](crate::Guard), it keeps its owner, may be moved, and releases in the background
/// when dropped.
#[must_use = "a guard that is dropped releases its holds"]
pub struct MultiGuard {
    parts: Vec<Part>,
    need: usize,
    /// Cancelled with the guard.
    ended: CancellationToken,
    end: DropGuard,
    /// Cancelled at the loss; made at the first call that asks for it.
    lost_token: OnceLock<CancellationToken>,
}

impl MultiGuard {
    pub(crate) fn new(parts: Vec<Part>, need: usize) -> Self {
        let ended = CancellationToken::new();
        Self {
            parts,
            need,
            end: ended.clone().drop_guard(),
            ended,
            lost_token: OnceLock::new(),
        }
    }

    /// Releases every lock, also when some of them turn out to be lost.
    ///
    /// Waits for one answer of each server; those of one server's locks come together.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], with the name of the lock, when a lock had been lost (for a RedLock: so many that no majority was
    /// left), and else what the release of a lock answered: see [`Guard::unlock`](crate::Guard::unlock). The remaining ones are
    /// released all the same; [`unlock_each`](Self::unlock_each) tells how it went with each.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the releases.
    ///
    /// # Redisson
    ///
    /// `unlock()`, which stops at the first lock that is lost.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.multi_lock(["account:1", "account:2"]).lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unlock(self) -> Result<Released, Error> {
        let need = self.need;
        summed_up(release_all(self.parts).await, need)
    }

    /// As [`unlock`](Self::unlock), and says for each lock, by its name, how it went.
    ///
    /// Waits for one answer of each server. Only the locks that are held are there: of a RedLock, perhaps not all.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the releases.
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.multi_lock(["account:1", "account:2"]).lock().await?;
    /// for (name, released) in guard.unlock_each().await {
    ///     if let Err(error) = released {
    ///         eprintln!("{name}: {error}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unlock_each(self) -> Vec<(Arc<str>, Result<Released, Error>)> {
        let names: Vec<_> = self.names().cloned().collect();
        names
            .into_iter()
            .zip(release_all(self.parts).await)
            .collect()
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
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// # async fn work() {}
    /// let guard = client.multi_lock(["account:1", "account:2"]).lock().await?;
    /// tokio::select! {
    ///     biased;
    ///     reason = guard.lost() => eprintln!("stopped: {reason}"),
    ///     () = work() => { guard.unlock().await?; }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> LostReason {
        let tenures = self.tenures();
        loss_of_group(&tenures, self.need, self.runtime()).await
    }

    /// Whether the hold is lost, by all that is known and by the clock. Sends nothing.
    pub fn is_lost(&self) -> bool {
        lost_reason(&self.tenures(), self.need).is_some()
    }

    /// A token that is cancelled when the hold is lost, to stop other tasks. Cancelling it does not harm the guard.
    pub fn cancellation_token(&self) -> CancellationToken {
        let lost_token = self.lost_token.get_or_init(|| {
            let token = CancellationToken::new();
            if let Some(part) = self.parts.first() {
                let (tenures, need) = (self.tenures(), self.need);
                let (token, ended) = (token.clone(), self.ended.clone());
                let client = part.runtime().clone();
                let here = elsewhere(&client).unwrap_or_else(|| client.clone());
                here.spawn(async move {
                    let lost = loss_of_group(&tenures, need, &client);
                    if ended.run_until_cancelled(lost).await.is_some() {
                        token.cancel();
                    }
                });
            }
            token
        });
        if self.is_lost() {
            lost_token.cancel();
        }
        lost_token.child_token()
    }

    /// Until when the hold may be relied upon if it is not renewed again. Renewals move it.
    ///
    /// For a multi-lock, the earliest end among its locks. For a RedLock, the time until which a majority is held: the
    /// lease, less the time that the acquisition took, less an allowance for the drift of clocks.
    pub fn valid_until(&self) -> std::time::Instant {
        let until = valid_until(&self.parts, self.need);
        until.unwrap_or_else(Instant::now).into_std()
    }

    /// Has the holds last for another `lease` from now on: see [`Guard::extend`](crate::Guard::extend).
    ///
    /// For a RedLock, it is enough when a majority does.
    ///
    /// # Errors
    ///
    /// As [`Guard::extend`](crate::Guard::extend), when too few of the locks were extended: a loss, if there was one, else the first
    /// failure. Those that were stay so.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is carried on, and what comes after it waits for it.
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let guard = client.multi_lock(["a", "b"]).with_lease(minute).lock().await?;
    /// guard.extend(minute).await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let lease = Lease::new(lease).map_err(Error::config)?;
        let each = self
            .parts
            .iter()
            .map(|part| part.hold.extend(lease.clone(), Then::Renewed));
        let failures = join_all(each).await.into_iter().filter_map(Result::err);
        let mut failures: Vec<_> = failures.collect();
        if self.parts.len() - failures.len() >= self.need {
            return Ok(());
        }
        // The worst of them first.
        failures.sort_by_key(|error| !error.is_lost());
        Err(failures.swap_remove(0))
    }

    /// The fencing tokens of those of the locks that are fenced, by name: see [`Guard::token`](crate::Guard::token).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{AnyLock, MultiLock};
    ///
    /// let group = MultiLock::of([
    ///     AnyLock::from(client.fenced_lock("order:42")),
    ///     AnyLock::from(client.reentrant_lock("stock")),
    /// ]);
    /// let guard = group.lock().await?;
    /// assert_eq!(guard.tokens().len(), 1);
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tokens(&self) -> Vec<(Arc<str>, i64)> {
        let fenced = self.parts.iter().filter_map(|part| {
            let tenure = part.hold.tenure();
            Some((tenure.name().clone(), tenure.fence()?))
        });
        fenced.collect()
    }

    /// The names of the locks that are held: for a RedLock, perhaps not of all.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.parts.iter().map(|part| part.hold.tenure().name())
    }

    /// Ends the guard and leaves the holds, which go on, renewed if they were, for as long as their clients do.
    /// [`unlock`](crate::MultiLock::unlock) of the group or of each lock, by the same owner, releases them. There is no notification
    /// any more when they are lost.
    pub fn leak(self) {
        // A token is still cancelled by a loss.
        self.end.disarm();
        for part in self.parts {
            part.hold.leak();
        }
    }

    fn runtime(&self) -> &Handle {
        self.parts[0].runtime()
    }

    fn tenures(&self) -> Vec<Arc<Tenure>> {
        self.parts
            .iter()
            .map(|part| part.hold.tenure().clone())
            .collect()
    }
}

impl Protects for MultiGuard {
    fn loss(&self) -> impl Future<Output = LostReason> + Send {
        self.lost()
    }

    fn loss_error(&self, reason: LostReason) -> Error {
        let now = Instant::now();
        let lost = self.parts.iter().find_map(|part| {
            let tenure = part.hold.tenure();
            Some(tenure.lost_error(tenure.lost_reason(now)?))
        });
        lost.unwrap_or_else(|| self.parts[0].hold.tenure().lost_error(reason))
    }

    fn release(self) -> impl Future<Output = Result<Released, Error>> + Send {
        self.unlock()
    }
}

/// What the releases of a group's locks come to, if `need` of them had to be held. A loss goes before other errors.
pub(crate) fn summed_up(
    releases: Vec<Result<Released, Error>>,
    need: usize,
) -> Result<Released, Error> {
    let mut released = 0;
    let mut left = 0;
    let mut worst = None;
    for release in releases {
        match release {
            Ok(Released::Fully) => released += 1,
            Ok(Released::StillHeld { holds }) => {
                released += 1;
                left = left.max(holds);
            }
            Err(lost @ Error::Lost { .. }) if !matches!(worst, Some(Error::Lost { .. })) => {
                worst = Some(lost);
            }
            Err(error) => worst = worst.or(Some(error)),
        }
    }
    match worst {
        Some(error) if released < need => Err(error),
        _ if left > 0 => Ok(Released::StillHeld { holds: left }),
        _ => Ok(Released::Fully),
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGuard")
            .field("names", &self.names().collect::<Vec<_>>())
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
