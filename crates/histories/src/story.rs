//! Builds histories by hand, for the tests of the oracle.

use std::time::Duration;

use redisson_lock::{LostReason, Released};

use super::{
    log::{Event, HoldId, Side, Spot, Trouble, What},
    oracle::judge,
    verdict::{Rules, Tally, Violation},
};

pub const RULES: Rules = Rules {
    reentrant: true,
    fair: true,
    exact: true,
    disturbed: false,
    failovers_lose: false,
    forced_hand_off: Duration::ZERO,
    slow_answer: Duration::ZERO,
};
pub const LEASE: Duration = Duration::from_millis(1000);

pub const fn spot(owner: u64, names: u32, side: Side) -> Spot {
    Spot { owner, names, side }
}
pub const A: Spot = spot(1, 1, Side::Alone);
pub const B: Spot = spot(2, 1, Side::Alone);
pub const C: Spot = spot(3, 1, Side::Alone);

/// Builds a history. Each event takes a millisecond.
#[derive(Default)]
pub struct Story {
    pub events: Vec<Event>,
    holds: u64,
    now: Duration,
}

impl Story {
    pub fn tell(&mut self, spot: Spot, what: What) -> &mut Self {
        self.now += Duration::from_millis(1);
        let at = self.now;
        self.events.push(Event { at, spot, what });
        self
    }

    pub fn pass(&mut self, millis: u64) -> &mut Self {
        self.now += Duration::from_millis(millis);
        self
    }

    pub fn asks(&mut self, spot: Spot) -> &mut Self {
        self.tell(
            spot,
            What::Asks {
                limited: false,
                lease: LEASE,
            },
        )
    }

    pub fn had(&mut self, spot: Spot, lease: Duration, valid: bool, token: Option<i64>) -> HoldId {
        self.holds += 1;
        let hold = HoldId(self.holds);
        let until = self.now + lease;
        self.tell(
            spot,
            What::Enters {
                hold,
                lease,
                until,
                valid,
                token,
            },
        );
        hold
    }

    /// Asks and enters at once.
    pub fn enters(&mut self, spot: Spot) -> HoldId {
        self.asks(spot).had(spot, LEASE, true, None)
    }

    pub fn enters_with(&mut self, spot: Spot, token: i64) -> HoldId {
        self.asks(spot).had(spot, LEASE, true, Some(token))
    }

    pub fn valid(&mut self, spot: Spot, hold: HoldId) -> &mut Self {
        let until = self.now + LEASE;
        self.tell(spot, What::Valid { hold, until })
    }

    pub fn lost(&mut self, spot: Spot, hold: HoldId) -> &mut Self {
        let reason = LostReason::Expired;
        self.tell(spot, What::Lost { hold, reason })
    }

    pub fn ends(&mut self, spot: Spot, hold: HoldId, how: Result<Released, Trouble>) -> &mut Self {
        self.tell(spot, What::Ends { hold });
        let how = Some(how);
        self.tell(spot, What::Ended { hold, how })
    }

    pub fn leaves(&mut self, spot: Spot, hold: HoldId) -> &mut Self {
        self.ends(spot, hold, Ok(Released::Fully))
    }

    pub fn still(&mut self, spot: Spot, hold: HoldId, holds: u32) -> &mut Self {
        self.ends(spot, hold, Ok(Released::StillHeld { holds }))
    }

    pub fn counts(&mut self, spot: Spot, count: u32) -> &mut Self {
        self.tell(spot, What::Counts);
        self.tell(spot, What::Counted(Ok(count)))
    }

    pub fn queue(&mut self, owners: &[u64]) -> &mut Self {
        self.tell(A, What::Looks);
        self.tell(A, What::Queue(owners.to_vec()))
    }

    pub fn judged(&self, rules: Rules) -> Result<Tally, Violation> {
        judge(&self.events, rules)
    }

    #[track_caller]
    pub fn is_good(&self) -> Tally {
        self.judged(RULES).expect("a good history")
    }

    #[track_caller]
    pub fn breaks(&self, rule: &str) {
        self.breaks_under(RULES, rule);
    }

    #[track_caller]
    pub fn breaks_under(&self, rules: Rules, rule: &str) {
        let violation = self.judged(rules).expect_err("a bad history");
        assert!(violation.rule.contains(rule), "{violation:?}");
    }
}
