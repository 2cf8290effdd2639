//! One leader among many processes, for blocking code.

use std::{fmt, iter, time::Instant};

use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{give_back, wait_for};
use crate::{Error, Leader, LostReason};

/// An election, for blocking code: see [`crate::Election`].
///
/// A thread cannot be stopped from outside, so there is no `lead`: the leader looks at [`Term::is_lost`] before each step that
/// matters, and campaigns again.
#[derive(Clone)]
pub struct Election {
    election: crate::Election,
    runtime: Handle,
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.election.fmt(f)
    }
}

/// One term of a leader of blocking code: see [`crate::Term`]. Dropping it resigns, and waits for the answer.
#[must_use = "a term that is dropped is over"]
pub struct Term {
    term: Option<crate::Term>,
    runtime: Handle,
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Empty only while it is dropped.
        self.term.iter().try_for_each(|inner| inner.fmt(f))
    }
}

impl Election {
    pub(super) fn new(election: crate::Election, runtime: Handle) -> Self {
        Self { election, runtime }
    }

    /// Stands for election as `identity`, and waits until it leads: see [`crate::Election::campaign`].
    ///
    /// # Errors
    ///
    /// As [`crate::Election::campaign`].
    pub fn campaign(&self, identity: impl Into<String>) -> Result<Term, Error> {
        let term = wait_for(&self.runtime, self.election.campaign(identity))?;
        Ok(Term {
            term: Some(term),
            runtime: self.runtime.clone(),
        })
    }

    /// The current leader: see [`crate::Election::leader`].
    ///
    /// # Errors
    ///
    /// As [`crate::Election::leader`].
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        wait_for(&self.runtime, self.election.leader())
    }

    /// Returns an iterator over the leader, now and after each change: see [`crate::Election::observe`]. `next` blocks until the
    /// leader changes, and never returns `None`.
    pub fn observe(
        &self,
    ) -> impl Iterator<Item = Result<Option<Leader>, Error>> + Send + Unpin + 'static {
        let (mut leaders, runtime) = (self.election.observe(), self.runtime.clone());
        iter::from_fn(move || wait_for(&runtime, leaders.next()))
    }

    /// The name of the election, and of its lock: see [`crate::Election::name`].
    pub fn name(&self) -> &str {
        self.election.name()
    }
}

impl Term {
    /// Ends the term, and wakes a candidate: see [`crate::Term::resign`].
    ///
    /// # Errors
    ///
    /// As [`crate::Term::resign`].
    pub fn resign(mut self) -> Result<(), Error> {
        match self.term.take() {
            Some(term) => wait_for(&self.runtime, term.resign()),
            None => Ok(()),
        }
    }

    /// Blocks until the term is over, and returns the reason: see [`crate::Term::lost`]. For a thread that stops the work of other threads.
    pub fn lost(&self) -> LostReason {
        wait_for(&self.runtime, self.term().lost())
    }

    /// Whether the term is over: see [`crate::Term::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.term().is_lost()
    }

    /// A token that is cancelled when the term is lost, to stop async tasks. A release does not cancel it.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.term().cancellation_token()
    }

    /// Until when the leader may rely on its term if it is not renewed again.
    pub fn valid_until(&self) -> Instant {
        self.term().valid_until()
    }

    /// The number of the term, larger than that of every earlier one: see [`crate::Term::token`].
    pub fn token(&self) -> i64 {
        self.term().token()
    }

    /// The leader's identity.
    pub fn identity(&self) -> &str {
        self.term().identity()
    }

    fn term(&self) -> &crate::Term {
        let term = self.term.as_ref();
        term.expect("only what ends a term takes it out")
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        if let Some(term) = self.term.take() {
            give_back(&self.runtime, term, async |term| term.resign_or_log().await);
        }
    }
}
