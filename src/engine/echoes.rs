//! Echoes: the messages of this client's own releases, which its own subscription delivers and which tell nothing new. Pure.
//!
//! Messages arrive in the order of their publication, and an echo is expected from before its release is sent. So the
//! message that is taken for the echo is the echo, or an older message. Where the difference matters, nothing is expected any
//! more: after a refused attempt, and when messages may have been missed. An echo that is lost unnoticed, between nodes
//! of a cluster, is expected until [`ECHO_WAIT`] after the answer.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// How long after the answer to its release an echo is expected.
const ECHO_WAIT: Duration = Duration::from_millis(100);

/// A release whose echo is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// The echoes of the releases of one lock.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    /// Those that have not arrived, and until when they are expected, once their releases are answered.
    expected: VecDeque<(Ticket, Option<Instant>)>,
    tickets: u64,
}

impl Echoes {
    /// A release is about to be sent.
    pub(super) fn expect(&mut self, now: Instant) -> Ticket {
        self.forget_overdue(now);
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.expected.push_back((ticket, None));
        ticket
    }

    /// Records the answer to the release. Returns whether a message was taken for its echo that cannot have been, as it has not
    /// `published`, or is not known to have.
    pub(super) fn record_answer(&mut self, ticket: Ticket, published: bool, now: Instant) -> bool {
        let index = self
            .expected
            .iter()
            .position(|(expected, _)| *expected == ticket);
        match (index, published) {
            (Some(index), true) => self.expected[index].1 = Some(now + ECHO_WAIT),
            (Some(index), false) => drop(self.expected.remove(index)),
            (None, _) => {}
        }
        index.is_none() && !published
    }

    /// Whether a message is an echo, or older than one.
    pub(super) fn absorb(&mut self, now: Instant) -> bool {
        self.forget_overdue(now);
        self.expected.pop_front().is_some()
    }

    pub(super) fn forget(&mut self) {
        self.expected.clear();
    }

    fn forget_overdue(&mut self, now: Instant) {
        let is_due = |until: Option<Instant>| until.is_none_or(|until| until > now);
        self.expected.retain(|(_, until)| is_due(*until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_has_one_echo() {
        let (mut echoes, now) = (Echoes::default(), Instant::now());
        assert!(!echoes.absorb(now));
        let (first, second) = (echoes.expect(now), echoes.expect(now));
        assert!(echoes.absorb(now));
        assert!(!echoes.record_answer(first, true, now));
        assert!(!echoes.record_answer(second, true, now));
        assert!(echoes.absorb(now) && !echoes.absorb(now));
    }

    #[test]
    fn release_that_was_not_published_has_none() {
        let (mut echoes, now) = (Echoes::default(), Instant::now());
        let ticket = echoes.expect(now);
        assert!(!echoes.record_answer(ticket, false, now) && !echoes.absorb(now));
        let ticket = echoes.expect(now);
        assert!(echoes.absorb(now));
        assert!(echoes.record_answer(ticket, false, now), "it was another's");
    }

    #[test]
    fn echo_that_is_lost_is_expected_for_a_time_and_forgotten() {
        let (mut echoes, now) = (Echoes::default(), Instant::now());
        let ticket = echoes.expect(now);
        let later = now + Duration::from_secs(10);
        assert!(!echoes.record_answer(ticket, true, later));
        assert!(!echoes.absorb(later + ECHO_WAIT));
        echoes.expect(now);
        echoes.forget();
        assert!(!echoes.absorb(now));
    }
}
