//! Points in time, as numbers: a state that holds them can be compared, hashed and explored.

use std::{ops::Add, time::Duration};

/// Nanoseconds since the client began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The time from now until this point; zero if it has passed.
    pub fn left(self, now: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(now.0))
    }

    pub fn has_come(self, now: Time) -> bool {
        self <= now
    }

    /// The same point as seen `passed` later by a clock that stands still, but not earlier than `floor`.
    #[cfg(any(test, feature = "explorer"))]
    pub fn rebased(self, passed: Duration, floor: Time) -> Self {
        Self(self.0.saturating_sub(nanos(passed))).max(floor)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}
