//! One leader among many processes.

use std::{fmt, time::Duration};

use futures_util::stream::{self, Stream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Error, LostReason},
    guard::{Guard, release_after},
    lock::FencedLock,
    owner::Owner,
    wire::fenced::Fenced,
};

/// The interval at which an observer asks the server.
const LOOK: Duration = Duration::from_secs(1);
/// The most bytes of a candidate's identity.
const MOST_IDENTITY: usize = 1024;

/// An election: at any time at most one candidate leads. Made by [`LockClient::election`](crate::LockClient::election).
///
/// The leader holds the fenced lock of the same name. Its identity is a field of the lock's hash, so it ends with the term.
/// A Redisson service takes part with `getFencedLock(name)`: it leads without an identity.
///
/// A term is a hold on a lock with a lease: [docs/guarantees.md] lists its promises. If a late write of a deposed leader would do
/// harm, write [`Term::token`] with it, and let the store compare.
///
/// [docs/guarantees.md]: https://docs.rs/crate/redisson-lock/latest/source/docs/guarantees.md
#[derive(Clone)]
pub struct Election {
    lock: FencedLock,
}

/// The leader of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The leader's identity.
    pub identity: String,
    /// The number of the term: the fencing token.
    pub token: i64,
}

impl Election {
    pub(crate) fn new(lock: FencedLock) -> Self {
        Self { lock }
    }

    /// Campaigns as `identity`, and waits without a limit until this candidate leads.
    ///
    /// Each campaign has its own [`Owner`]: two campaigns of one task exclude each other. Other candidates see `identity` as the
    /// leader: for example, a host and a process id.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`](crate::Lock::lock), and [`Error::Config`] for an identity that is empty or longer than 1 KiB.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future ends the campaign.
    ///
    /// # Redisson
    ///
    /// None: a Java program takes part by the fenced lock of the same name.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let term = client.election("leaders").campaign("host-7").await?;
    /// println!("leads in term {}", term.token());
    /// term.lost().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn campaign(&self, identity: impl Into<String>) -> Result<Term, Error> {
        let identity = identity.into();
        if identity.is_empty() || identity.len() > MOST_IDENTITY {
            return Err(Error::config(format!(
                "the candidate's identity has {} bytes: it must have from 1 to {MOST_IDENTITY}",
                identity.len()
            )));
        }
        loop {
            let guard = self.lock.owned_by(&Owner::new()).lock().await?;
            match guard.hold().announce(guard.token(), &identity).await {
                Ok(()) => return Ok(Term { guard, identity }),
                // The term ended before its leader was announced.
                Err(Error::Lost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Campaigns as `identity` and runs `body` with the token of the term. The loss of the term stops `body` at its await point;
    /// after `pause`, this candidate campaigns again. Returns when a `body` ends.
    ///
    /// An outage does not end the candidacy: after a [retryable](Error::is_retryable) error of a campaign, which is logged, and
    /// `pause`, this candidate campaigns again.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign) without the retryable errors, and [`Error::Lost`] when `body` ended after its term:
    /// [`Error::take_result`] returns its result. A resignation that fails otherwise is logged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` at its await point and ends the term.
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn schedule() {}
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let election = client.election("scheduler");
    /// let pause = Duration::from_secs(1);
    /// election.lead("host-7", pause, |_leader| schedule()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead<F: Future>(
        &self,
        identity: impl Into<String>,
        pause: Duration,
        // A closure that returns a future: an async closure would lend itself to its future, which could not be spawned.
        mut body: impl FnMut(Leader) -> F,
    ) -> Result<F::Output, Error>
    where
        F::Output: Send + 'static,
    {
        let identity = identity.into();
        loop {
            let term = match self.campaign(identity.clone()).await {
                Err(error) if error.is_retryable() => {
                    self.lock.engine.log_failed_campaign(self.name(), &error);
                    sleep(pause).await;
                    continue;
                }
                campaign => campaign?,
            };
            let leader = Leader {
                identity: identity.clone(),
                token: term.token(),
            };
            let done = tokio::select! {
                biased;
                _ = term.lost() => None,
                // Called here, because the work of `body` before its first poll counts too.
                done = async { body(leader).await } => Some(done),
            };
            if let Some(done) = done {
                return release_after(term.guard, done).await;
            }
            drop(term);
            sleep(pause).await;
        }
    }

    /// Returns the current leader. `None` without a leader, or if the holder of the lock has no identity.
    ///
    /// Waits for one answer of the server, which may be out of date when it arrives.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Redisson
    ///
    /// None.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let found = self.lock.engine.leader(self.lock.spec()?).await?;
        Ok(found.map(|(token, identity)| Leader { identity, token }))
    }

    /// Returns a stream of the leader, now and after each change. The stream asks the server every second while it is polled, so it
    /// may miss a shorter term. Errors are items, once each; the stream never ends. After [`Error::Closed`] no further item comes.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Redisson
    ///
    /// None.
    pub fn observe(
        &self,
    ) -> impl Stream<Item = Result<Option<Leader>, Error>> + Send + Unpin + 'static {
        let (election, seen) = (self.clone(), None);
        let look = async |(election, mut seen): (Self, Option<_>)| {
            loop {
                if seen.is_some() {
                    sleep(LOOK).await;
                }
                let found = election.leader().await;
                if seen.as_ref() != Some(&found) {
                    seen = Some(found.clone());
                    return Some((found, (election, seen)));
                }
            }
        };
        Box::pin(stream::unfold((election, seen), look))
    }

    /// The name of the election, and of its lock: see [`Lock::name`](crate::Lock::name).
    pub fn name(&self) -> &str {
        self.lock.name()
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// One term of a leader, from its election to its end. Dropping it resigns in the background.
#[must_use = "a term that is dropped is over"]
#[derive(Debug)]
pub struct Term {
    guard: Guard<Fenced>,
    identity: String,
}

impl Term {
    /// Ends the term, and wakes a candidate.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`](crate::Guard::unlock): [`Error::Lost`] when the term was over before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop it.
    ///
    /// # Redisson
    ///
    /// None.
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.unlock().await.map(drop)
    }

    /// As [`resign`](Self::resign), and logs a failure, for a caller that discards the error.
    #[cfg(feature = "blocking")]
    pub(crate) async fn resign_or_log(self) {
        drop(release_after(self.guard, ()).await);
    }

    /// Completes with the reason when the term is over: see [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is consumed.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// Returns whether the term was reported lost or its validity has ended. Sends nothing.
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Returns a token that the loss of the term cancels, to stop other tasks. [`resign`](Self::resign) and a drop do not cancel
    /// it: stop these tasks first.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard.cancellation_token()
    }

    /// Returns the end of the term's validity if no further renewal succeeds.
    pub fn valid_until(&self) -> std::time::Instant {
        self.guard.valid_until()
    }

    /// Returns the number of the term, larger than that of every earlier term: see [`Guard::token`](crate::Guard::token).
    pub fn token(&self) -> i64 {
        self.guard.token()
    }

    /// The leader's identity.
    pub fn identity(&self) -> &str {
        &self.identity
    }
}
