//! What a history is judged by, and what is said of it.

use std::time::Duration;

/// What is expected of one history.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Whether an owner may take the lock again.
    pub reentrant: bool,
    /// Whether it is had in the order of asking.
    pub fair: bool,
    /// Whether all of an owner's holds are on the same locks: else counts, refusals and losses are not judged.
    pub exact: bool,
    /// Whether connections are disturbed: then an answer may stay out.
    pub disturbed: bool,
    /// Whether a failover may lose what was granted.
    pub failovers_lose: bool,
    /// For how long a client may hand off a lock in memory after it was forced open; zero where a client never does.
    pub forced_hand_off: Duration,
    /// How long an answer may take on a busy machine. A grant with a shorter lease may be over when it arrives; its owner then waits
    /// anew, behind the later waiters.
    pub slow_answer: Duration,
}

/// A rule that was broken, and the event that shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    pub at: usize,
    pub rule: String,
}

/// A violation, as an error.
pub fn broken<T>(at: usize, rule: impl Into<String>) -> Result<T, Violation> {
    let rule = rule.into();
    Err(Violation { at, rule })
}

/// What a history consisted of: one in which nothing happened proves nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that take a lock or give one back.
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
