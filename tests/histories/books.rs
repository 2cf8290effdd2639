//! What one owner has on one lock, by what it was told. Pure.

use std::time::Duration;

use super::log::HoldId;

/// A hold that the owner counts as its own.
pub struct Live {
    pub hold: HoldId,
    pub lease: Duration,
    pub leaked: bool,
    /// Without a guard it may have ended unseen.
    pub doubtful: bool,
    pub ending: Option<usize>,
    /// Before this, its loss has no excuse.
    pub safe_until: Duration,
}

/// One owner on one lock: which holds it has (`live`), and how many things it has begun and not seen the end of
/// (`pending`: dropped guards, dropped futures), which the server may still count.
#[derive(Default)]
pub struct Book {
    pub asked: Option<usize>,
    /// It had holds when it asked.
    pub asked_inside: bool,
    /// What is had must last until then.
    pub good_until: Duration,
    /// The wait has a limit.
    pub limited: bool,
    pub live: Vec<Live>,
    pub pending: u32,
    /// Holds were lost, which the server may still have: it takes the owner for the holder.
    pub lingering: bool,
    /// The lock was forced open: counts and losses prove nothing until all is released.
    pub forced: bool,
}

impl Book {
    /// A guard said until when it is valid; says whether it had said more before.
    pub fn valid(&mut self, hold: HoldId, until: Duration) -> bool {
        let live = self.live.iter_mut().find(|live| live.hold == hold);
        live.is_some_and(|live| until < std::mem::replace(&mut live.safe_until, until))
    }

    /// The release of `hold` begins at `now`, and is number `at` of the events. It leaves the leases of the other holds in force;
    /// unanswered, it cannot tell whether it came in time.
    pub fn ends(&mut self, hold: HoldId, at: usize, now: Duration) {
        let others = self.live.iter().filter(|live| live.hold != hold);
        let left = others.map(|live| live.lease).max();
        if let Some(live) = self.live.iter_mut().find(|live| live.hold == hold) {
            live.ending = Some(at);
            if let Some(lease) = left {
                live.safe_until = live.safe_until.min(now + validity(lease));
            }
        }
    }

    pub fn remove(&mut self, hold: HoldId) -> Option<Live> {
        let at = self.live.iter().position(|live| live.hold == hold)?;
        Some(self.live.remove(at))
    }

    /// Holds without a guard whose time is over may have ended, unless another hold of their owner has prolonged it.
    pub fn doubt_leaked(&mut self, now: Duration) {
        for live in &mut self.live {
            live.doubtful |= live.leaked && now >= live.safe_until;
        }
    }

    /// Holds without a guard are lost with those that have one.
    pub fn forget_leaked(&mut self) {
        let before = self.live.len();
        self.live.retain(|live| !live.leaked);
        self.pending += (before - self.live.len()) as u32;
    }

    /// The holds that are there for certain, as far as the owner was told, and the most that there can be.
    pub fn bounds(&self) -> (u32, u32) {
        let sure = self.live.iter().filter(|live| !live.doubtful).count() as u32;
        (sure, self.live.len() as u32 + self.pending)
    }
}

/// What may be relied upon of a lease, at the least.
pub fn validity(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(3))
}
