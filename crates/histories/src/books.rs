//! The holds of one owner on one lock, according to the results that it received. Pure functions.

use std::time::Duration;

use super::log::HoldId;

/// A hold that the owner counts as its own.
pub struct Live {
    pub hold: HoldId,
    pub lease: Duration,
    pub leaked: bool,
    /// A leaked hold that may have expired unnoticed.
    pub doubtful: bool,
    pub ending: Option<usize>,
    /// A loss before this time breaks a rule.
    pub safe_until: Duration,
}

/// One owner on one lock: its holds (`live`), and the number of its operations without a known result (`pending`: dropped guards and
/// futures), which the server may still count as holds.
#[derive(Default)]
pub struct Book {
    /// The event that began the present attempt.
    pub asked: Option<usize>,
    /// The owner had holds when the attempt began.
    pub asked_inside: bool,
    /// The end of the validity of a grant, at the earliest.
    pub good_until: Duration,
    /// The wait has a time limit.
    pub limited: bool,
    pub live: Vec<Live>,
    pub pending: u32,
    /// Holds were lost, but the server may still keep them and count the owner as the holder.
    pub lingering: bool,
    /// The lock was forced open: counts and losses prove nothing until the owner has released all holds.
    pub forced: bool,
}

impl Book {
    /// Records the validity of a guard. Returns whether it is shorter than the recorded one.
    pub fn valid(&mut self, hold: HoldId, until: Duration) -> bool {
        let live = self.live.iter_mut().find(|live| live.hold == hold);
        live.is_some_and(|live| until < std::mem::replace(&mut live.safe_until, until))
    }

    /// The release of `hold` begins at `now`, with event `at`. It may cut the server's lease to the longest one of the other holds. A
    /// release without an answer may find its hold lost after that.
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

    /// A leaked hold may have ended after its validity, unless another hold of its owner prolonged the lease.
    pub fn doubt_leaked(&mut self, now: Duration) {
        for live in &mut self.live {
            live.doubtful |= live.leaked && now >= live.safe_until;
        }
    }

    /// Leaked holds are lost with guarded ones.
    pub fn forget_leaked(&mut self) {
        let before = self.live.len();
        self.live.retain(|live| !live.leaked);
        self.pending += (before - self.live.len()) as u32;
    }

    /// The certain holds, and the most possible holds, of the owner.
    pub fn bounds(&self) -> (u32, u32) {
        let sure = self.live.iter().filter(|live| !live.doubtful).count() as u32;
        (sure, self.live.len() as u32 + self.pending)
    }
}

/// The shortest validity that a client may derive from a lease.
pub fn validity(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(3))
}
