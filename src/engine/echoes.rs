//! Echoes: the messages of this client's own releases, which its own subscription delivers and
//! which tell nothing new. Pure.
//!
//! An echo is expected from before its release is sent, and messages arrive in the order of their
//! publication. A message that is absorbed is therefore the echo, or an older message. Where the
//! difference matters, all expected echoes are forgotten: after a refused attempt, and when
//! messages may have been missed. An echo that is lost unnoticed, between nodes of a cluster, is
//! expected until [`ECHO_WAIT`] after the answer.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::time_limits::ECHO_WAIT;

/// A release whose echo is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// The echoes of the releases of one lock.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    /// The echoes that have not arrived. Each has an end from the answer to its release on.
    expected: VecDeque<(Ticket, Option<Instant>)>,
    tickets: u64,
}

impl Echoes {
    /// Expects the echo of a release that is about to be sent.
    pub(super) fn expect(&mut self, now: Instant) -> Ticket {
        self.forget_overdue(now);
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.expected.push_back((ticket, None));
        ticket
    }

    /// Records the answer to the release. Returns whether a message was absorbed by mistake,
    /// because the release has not `published`, or may not have.
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

    /// Returns whether a message is an echo, or older than one. It uses up one expected echo.
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
    use std::time::Duration;

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
