//! The consecutive turns of a client with waiting tasks, and the gap that follows them. Pure.
//!
//! A client whose release finds no listener hands the lock to its own next waiter. Listener counts
//! omit clients that poll, or that listen at a replica: such a client acquires the lock in the gap.

use tokio::time::Instant;

use crate::engine::time_limits::{GAP, GAP_AFTER};

#[derive(Default)]
pub(super) struct Turns {
    began: Option<Instant>,
    /// The release under way leaves a gap, because the turns have lasted for [`GAP_AFTER`].
    gap_due: bool,
    /// The end of the gap.
    gap_until: Option<Instant>,
}

impl Turns {
    /// Begins the release of a turn that another one shall follow. Returns whether it may follow
    /// without a gap.
    pub(super) fn begin_release(&mut self, now: Instant) -> bool {
        let began = *self.began.get_or_insert(now);
        self.gap_due = now.saturating_duration_since(began) >= GAP_AFTER;
        !self.gap_due
    }

    /// Records the release of a turn that none follows.
    pub(super) fn release_last(&mut self) {
        self.began = None;
    }

    /// Ends a turn. The gap begins if it is due.
    pub(super) fn end_turn(&mut self, now: Instant) {
        if std::mem::take(&mut self.gap_due) {
            (self.began, self.gap_until) = (None, Some(now + GAP));
        }
    }

    /// Ends the turns: another client has the lock.
    pub(super) fn end(&mut self) {
        (self.began, self.gap_until) = (None, None);
    }

    /// Takes the end of the gap.
    pub(super) fn take_gap(&mut self) -> Option<Instant> {
        self.gap_until.take()
    }
}
