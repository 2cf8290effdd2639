//! The guard of a hold on a group of locks.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use futures_util::stream::FuturesUnordered;
use tokio::{runtime::Handle, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Protects;
use crate::{
    engine::{
        Group, HeldMember, OnFailure, Quota, Tenure, cancel_at_the_loss_of_group, gather,
        join_group, longest_answer_wait, loss_of_group, lost_reason, release_all, summed_up,
        valid_until,
    },
    error::{Error, LostReason},
    wire::{Lease, Released},
};

/// One hold on a [`MultiLock`](crate::MultiLock) or a [`RedLock`](crate::RedLock).
///
/// A hold on a multi-lock is lost with its first lost lock; a hold on a RedLock is lost when no majority is left. Like a
/// [`Guard`](crate::Guard), a group's guard keeps its owner, can move to another task, and releases in the background when dropped.
#[must_use = "a guard that is dropped releases its holds"]
pub struct MultiGuard {
    parts: Vec<HeldMember>,
    quota: Quota,
    /// Cancelled when the guard is dropped.
    ended: CancellationToken,
    end: DropGuard,
    /// Cancelled at the loss; created by the first call of [`cancellation_token`](Self::cancellation_token).
    lost_token: OnceLock<CancellationToken>,
}

impl MultiGuard {
    pub(crate) fn new(parts: Vec<HeldMember>, group: &Group<'_>) -> Self {
        join_group(&parts, group);
        let quota = group.quota;
        let ended = CancellationToken::new();
        Self {
            parts,
            quota,
            end: ended.clone().drop_guard(),
            ended,
            lost_token: OnceLock::new(),
        }
    }

    /// Releases every lock, even if some of them are lost.
    ///
    /// Waits for one answer of each server. A RedLock waits until a majority of its servers does not have the lock any more, and
    /// for the rest for as long as that took, plus 10 ms. The other releases continue in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] with the name of a lost lock (for a RedLock, only if no majority was left). Otherwise the error of a
    /// failed release, as for [`Guard::unlock`](crate::Guard::unlock), for a RedLock if a majority may still have the lock. The
    /// other locks are released in any case. [`unlock_each`](Self::unlock_each) returns one result per lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the releases.
    ///
    /// # Redisson
    ///
    /// `unlock()`, which stops at the first lost lock.
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
        let quota = self.quota;
        let releases = release_all(self.parts, quota, OnFailure::Return);
        summed_up(releases.await, quota)
    }

    /// As [`unlock`](Self::unlock), with one result per lock, by its name.
    ///
    /// Waits as [`unlock`](Self::unlock) does. Contains held locks only: for a RedLock, perhaps not all. The result of a release
    /// that continues in the background is [`Error::Unavailable`].
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
            .zip(release_all(self.parts, self.quota, OnFailure::Return).await)
            .collect()
    }

    /// Completes with the reason when the hold is lost.
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
        loss_of_group(&tenures, self.quota.need).await
    }

    /// Returns whether the hold was reported lost or its validity has ended. Sends nothing.
    pub fn is_lost(&self) -> bool {
        self.lost_reason().is_some()
    }

    /// Returns a token that the loss of the hold cancels, to stop other tasks. Cancelling it yourself does not affect the guard.
    pub fn cancellation_token(&self) -> CancellationToken {
        let lost_token = self.lost_token.get_or_init(|| {
            let token = CancellationToken::new();
            let lost = cancel_at_the_loss_of_group(&self.tenures(), self.quota.need, token.clone());
            let ended = self.ended.clone();
            let here = Handle::try_current().unwrap_or_else(|_| self.runtime().clone());
            here.spawn(async move { ended.run_until_cancelled(lost).await });
            token
        });
        if self.is_lost() {
            lost_token.cancel();
        }
        lost_token.child_token()
    }

    /// Calls `callback` with the reason if the hold is lost before its release: see [`Guard::on_lost`](crate::Guard::on_lost).
    ///
    /// # Redisson
    ///
    /// None.
    pub fn on_lost(&self, callback: impl FnOnce(LostReason) + Send + 'static) {
        let (lost, ended) = (self.cancellation_token(), self.ended.clone());
        let tenures: Vec<_> = self.tenures().iter().map(Arc::downgrade).collect();
        self.runtime().spawn(async move {
            tokio::select! {
                biased;
                () = lost.cancelled() => {
                    let now = Instant::now();
                    let mut tenures = tenures.iter().filter_map(Weak::upgrade);
                    let reason = tenures.find_map(|tenure| tenure.lost_reason(now));
                    // A lost tenure stays lost.
                    callback(reason.unwrap_or(LostReason::Gone));
                }
                () = ended.cancelled() => {}
            }
        });
    }

    /// Returns the time from which on the owner has had all these locks.
    ///
    /// # Redisson
    ///
    /// None.
    pub fn since(&self) -> std::time::Instant {
        let since = self.parts.iter().map(|part| part.hold.tenure().since());
        since.max().unwrap_or_else(Instant::now).into_std()
    }

    /// Returns the end of the validity if no further renewal succeeds. A renewal moves it forward.
    ///
    /// For a multi-lock, the earliest end among its locks. For a RedLock, the end of the majority: the lease, less the time of the
    /// acquisition, less an allowance for clock drift.
    pub fn valid_until(&self) -> std::time::Instant {
        let until = valid_until(&self.parts, self.quota.need);
        until.unwrap_or_else(Instant::now).into_std()
    }

    /// Extends the holds to `lease` from now: see [`Guard::extend`](crate::Guard::extend).
    ///
    /// A multi-lock waits for the answers of all its servers. For a RedLock a majority is enough: it waits for the rest for as
    /// long as the majority took, plus 10 ms, and for a majority for a fiftieth of the acquired lease (at least 50 ms). Later answers
    /// extend their locks too.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] as soon as too few locks are valid: without any answer, at the end of the validity. Otherwise the first failure
    /// as [`Guard::extend`](crate::Guard::extend), when too few locks were extended and are still held. Extended locks stay extended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop an extension that has begun. The owner's later operations on the locks wait for it.
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
        let parts = self.parts.iter();
        self.ask_each(parts.map(|part| part.hold.extend(lease.clone())))
            .await
    }

    /// Asks the servers whether they have the holds: see [`Guard::check`](crate::Guard::check).
    ///
    /// Waits as [`extend`](Self::extend) does.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] as soon as too few locks are valid. Otherwise the first failure as [`Guard::check`](crate::Guard::check), when too
    /// few locks were confirmed and are still held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// None.
    pub async fn check(&self) -> Result<(), Error> {
        self.ask_each(self.parts.iter().map(|part| part.hold.check()))
            .await
    }

    /// Returns the fencing tokens of the fenced locks, by the names that the caller gave: see [`Guard::token`](crate::Guard::token).
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

    /// Returns the fencing token of the lock `name`, if the group holds it and it is a fenced lock. Of locks of one name on several
    /// servers, returns the token of the first: their tokens have no common order.
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let guard = client.multi_fenced_lock(["account:1", "account:2"]).lock().await?;
    /// let token = guard.token_of("account:1");
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn token_of(&self, name: &str) -> Option<i64> {
        let tokens = self.tokens();
        let of_name = tokens.iter().find(|(fenced, _)| **fenced == *name);
        of_name.map(|(_, token)| *token)
    }

    /// Returns the names of the held locks, as the caller gave them: for a RedLock, perhaps not all.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.parts.iter().map(|part| part.hold.tenure().name())
    }

    /// Consumes the guard and keeps the holds. Renewal continues until the clients close. [`unlock`](crate::MultiLock::unlock) of the
    /// group or of each lock, by the same owner, releases the holds. A later loss cancels the tokens that exist already.
    pub fn leak(self) {
        self.end.disarm();
        for part in self.parts {
            part.hold.leak();
        }
    }

    /// The runtime of one of the clients.
    pub(crate) fn runtime(&self) -> &Handle {
        self.parts[0].runtime()
    }

    /// Asks all members, until it is known whether enough of them hold.
    async fn ask_each(
        &self,
        each: impl Iterator<Item = impl Future<Output = Result<(), Error>>>,
    ) -> Result<(), Error> {
        let each = each
            .enumerate()
            .map(async |(index, answer)| (index, answer.await));
        let mut confirmed = vec![false; self.parts.len()];
        let mut failure = None;
        let most = longest_answer_wait(&self.parts, self.quota);
        let clients = self.parts.iter().map(HeldMember::client);
        let each = FuturesUnordered::from_iter(each);
        let answers = gather(clients, each, most, |index, answer| {
            match answer {
                Ok(()) => confirmed[index] = true,
                // The loss of one member of a majority is not the group's.
                Err(error) if error.is_lost() => {}
                Err(error) => failure = failure.take().or(Some(error)),
            }
            let is_enough = self.quota.is_majority() && self.has_enough(&confirmed);
            is_enough.then_some(Duration::MAX)
        });
        // A hold that ends meanwhile needs no further answer.
        tokio::select! {
            biased;
            () = answers => {}
            _ = self.lost() => {}
        }
        if self.has_enough(&confirmed) {
            return Ok(());
        }
        Err(match self.lost_reason() {
            Some(reason) => self.loss_error(reason),
            None => failure.unwrap_or_else(|| self.no_answer(&confirmed)),
        })
    }

    /// The members that are not lost, with their indices.
    fn held_parts(&self) -> impl Iterator<Item = (usize, &HeldMember)> {
        let now = Instant::now();
        let parts = self.parts.iter().enumerate();
        parts.filter(move |(_, part)| part.hold.tenure().lost_reason(now).is_none())
    }

    /// Whether enough of the `confirmed` members are still held: a member may be lost after its answer.
    fn has_enough(&self, confirmed: &[bool]) -> bool {
        let held = self.held_parts().filter(|(index, _)| confirmed[*index]);
        held.count() >= self.quota.need
    }

    /// The error of the first held member that has not answered.
    fn no_answer(&self, confirmed: &[bool]) -> Error {
        let silent = self.held_parts().find(|(index, _)| !confirmed[*index]);
        silent.map_or(&self.parts[0], |(_, part)| part).no_answer()
    }

    fn lost_reason(&self) -> Option<LostReason> {
        lost_reason(&self.tenures(), self.quota.need)
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

    async fn release_or_log(self) -> Result<Released, Error> {
        let quota = self.quota;
        let releases = release_all(self.parts, quota, OnFailure::Log);
        summed_up(releases.await, quota)
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
