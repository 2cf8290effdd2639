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

/// How often an observer looks.
const LOOK: Duration = Duration::from_secs(1);
/// The longest name of a candidate.
const MOST_IDENTITY: usize = 1024;

/// An election: at any time at most one candidate leads. Made by [`LockClient::election`](crate::LockClient::election).
///
/// The leader holds the fenced lock of the same name. What the leader calls itself stands in the lock's hash, so it ends with
/// the term, however that ends. Redisson's `getFencedLock(name)` can stand as well: it excludes and is excluded, and leads
/// without an identity.
///
/// A term is a hold on a lock with a lease, with all that [docs/guarantees.md] says of it. Where a deposed leader must not do
/// harm, what it writes carries [`Term::token`], and the store compares.
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
    /// What the leader calls itself.
    pub identity: String,
    /// The number of its term, which is its fencing token.
    pub token: i64,
}

impl Election {
    pub(crate) fn new(lock: FencedLock) -> Self {
        Self { lock }
    }

    /// Stands for election as `identity`, and waits until it leads, as long as that takes.
    ///
    /// Each candidacy is an [`Owner`] of its own: two of one task exclude each other. What other candidates see of the leader is
    /// `identity`: a host and a process id, say.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`](crate::Lock::lock), and [`Error::Config`] for an identity that is empty or longer than 1 KiB.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a candidate that is dropped stands no more.
    ///
    /// # Redisson
    ///
    /// None: a program in Java holds the fenced lock of that name for the same election.
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
                "a candidate's identity has {} bytes: give it from 1 to {MOST_IDENTITY}",
                identity.len()
            )));
        }
        loop {
            let guard = self.lock.owned_by(&Owner::new()).lock().await?;
            match guard.hold().announce(guard.token(), &identity).await {
                Ok(()) => return Ok(Term { guard, identity }),
                // Before it was told of, the term was over.
                Err(Error::Lost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Stands as `identity` again and again: runs `body` for each term, until `body` comes to an end. A term that is lost
    /// stops `body` at its present await point; after a pause, this candidate stands again. `body` is told of the term's token.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), and [`Error::Lost`] when `body` came to its end after its term had ended:
    /// [`Error::take_result`] takes what it came to.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` where it is, and ends the term.
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
        // An async closure lends itself to its future, which then could not be spawned.
        mut body: impl FnMut(Leader) -> F,
    ) -> Result<F::Output, Error>
    where
        F::Output: Send + 'static,
    {
        let identity = identity.into();
        loop {
            let term = self.campaign(identity.clone()).await?;
            let leader = Leader {
                identity: identity.clone(),
                token: term.token(),
            };
            let done = tokio::select! {
                biased;
                _ = term.lost() => None,
                // Made here, as what a body does before it is polled counts too.
                done = async { body(leader).await } => Some(done),
            };
            if let Some(done) = done {
                return release_after(term.guard, done).await;
            }
            drop(term);
            sleep(pause).await;
        }
    }

    /// The present leader: `None` without one, and while a holder of the lock has given no identity.
    ///
    /// Waits for one answer of the server, which may be out of date when it arrives.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`](crate::Lock::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// None.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let found = self.lock.engine.leader(self.lock.spec()?).await?;
        Ok(found.map(|(token, identity)| Leader { identity, token }))
    }

    /// The leader, now and after each change, for as long as the stream is polled. It asks the server each second: a term that is
    /// shorter may be missed. An error is an item like any other; the stream never ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
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

    /// The name of the election, and of its lock.
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

/// One term of a leader, from its election to its end. Dropping it resigns, in the background.
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

    /// Completes, with the reason, when the term is over: see [`Guard::lost`](crate::Guard::lost).
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// Whether the term is over, by all that is known and by the clock. Sends nothing.
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// A token that is cancelled when the term is over, to stop other tasks.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard.cancellation_token()
    }

    /// Until when the leader may count on its term if it is not renewed again.
    pub fn valid_until(&self) -> std::time::Instant {
        self.guard.valid_until()
    }

    /// The number of the term, larger than that of every earlier one: see [`Guard::token`](crate::Guard::token).
    pub fn token(&self) -> i64 {
        self.guard.token()
    }

    /// What the leader calls itself.
    pub fn identity(&self) -> &str {
        &self.identity
    }
}
