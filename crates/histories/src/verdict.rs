//! The rules of a history, and the result of a judgement.

use std::time::Duration;

/// The conditions of one history, which decide how strict the rules are.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Whether an owner may acquire the lock again.
    pub reentrant: bool,
    /// Whether grants are in the order of the requests.
    pub fair: bool,
    /// Whether all holds of an owner are on the same locks. Otherwise counts, refusals and losses are not judged.
    pub exact: bool,
    /// Whether connections are disturbed, so that answers may be lost.
    pub disturbed: bool,
    /// Whether a failover may lose granted holds.
    pub failovers_lose: bool,
    /// How long a client may hand off a lock in memory after the lock was forced open. Zero: never.
    pub forced_hand_off: Duration,
    /// How long an answer may take on a busy machine. A grant with a shorter lease may expire on the way; its owner then waits again,
    /// behind later waiters.
    pub slow_answer: Duration,
}

/// A broken rule, and the event that shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    pub at: usize,
    pub rule: String,
}

/// Returns a violation as an error.
pub fn broken<T>(at: usize, rule: impl Into<String>) -> Result<T, Violation> {
    let rule = rule.into();
    Err(Violation { at, rule })
}

/// Counts of a history, so that a test can require that enough happened.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that acquire or release a lock.
    pub calls: usize,
    pub entered: usize,
    pub nested: usize,
    pub refused: usize,
    pub abandoned: usize,
    pub lost: usize,
    pub unanswered: usize,
    /// Answers of clients that were shut down.
    pub closed: usize,
    /// Counts that were compared.
    pub counted: usize,
    /// Pairs of waiters whose order was compared.
    pub ordered: usize,
}
