//! The holds of a client, and the report of its shutdown.

use std::{
    fmt,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use crate::owner::OwnerId;

/// The holds of one owner on one lock, from [`LockClient::holds`](crate::LockClient::holds).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// The lock.
    pub name: Arc<str>,
    /// The present owner. After a hand-off in memory, and for readers that share a hold, the server shows another owner.
    pub owner: OwnerId,
    /// The number of holds, with a guard or leaked.
    pub holds: u32,
    /// The time of the first of these holds. Readers that share a hold have one time.
    pub since: Instant,
    /// The end of their validity without another renewal.
    pub valid_until: Instant,
}

impl HeldLock {
    /// Returns [`since`](Self::since) as a date, by this host's present clock: for logs and status pages.
    pub fn since_date(&self) -> SystemTime {
        date_of(self.since)
    }

    /// Returns [`valid_until`](Self::valid_until) as a date, by this host's present clock.
    pub fn valid_until_date(&self) -> SystemTime {
        date_of(self.valid_until)
    }
}

/// The holds that [`LockClient::shutdown`](crate::LockClient::shutdown) or
/// [`shutdown_and_release`](crate::LockClient::shutdown_and_release) did not release. A lock that
/// [`run_at_least`](crate::Lock::run_at_least) keeps on purpose is not listed, nor is a hold whose validity had ended before the call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The holds that end only with their leases: at most 1,000 entries. If there are 1,000, further holds may remain.
    pub unreleased: Vec<Unreleased>,
}

/// Holds of one owner on one lock that end only with their lease. Readers that share a hold on the server are listed one by one.
/// An owner has an entry for each refused unlock, and one for the remaining holds of each side of a read-write lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreleased {
    /// The lock.
    pub name: Arc<str>,
    /// The owner that held it.
    pub owner: OwnerId,
    /// The number of holds of this entry.
    pub holds: u32,
    /// The end of the validity, which may have come during the shutdown. The server keeps the hold until 1 % of the lease and 2 ms after
    /// that, or until a later end that another request of the owner has set.
    pub until: Instant,
}

impl Unreleased {
    /// Returns [`until`](Self::until) as a date, by this host's present clock: for logs.
    pub fn until_date(&self) -> SystemTime {
        date_of(self.until)
    }
}

/// `order:42, by <owner>, until 2026-11-29T09:30:00Z`, by this host's present clock.
impl fmt::Display for Unreleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = in_utc(self.until_date());
        write!(f, "{}, by {}, until {until}", self.name, self.owner)
    }
}

/// A date in RFC 3339's form, in whole seconds.
fn in_utc(date: SystemTime) -> String {
    let seconds = date
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Counts from the 1st of March 2000 in the years of the calendar: leap days are last in theirs, and in a period of 400 years.
    let days = days + 719_468;
    let (period, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month < 10 {
        true => (400 * period + year, month + 3),
        false => (400 * period + year + 1, month - 9),
    };
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let second = second % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of `at` by this host's present clock.
fn date_of(at: Instant) -> SystemTime {
    // A test may have paused tokio's clock, which `at` follows.
    let (now, today) = (tokio::time::Instant::now().into_std(), SystemTime::now());
    let date = match at >= now {
        true => today.checked_add(at - now),
        false => today.checked_sub(now - at),
    };
    date.unwrap_or(today)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_799, "2024-02-28T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_944_600, "2026-11-29T09:30:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(in_utc(UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }

    #[test]
    fn dates_are_as_far_away_as_their_instants() {
        let hour = Duration::from_secs(3600);
        let (before, now) = (SystemTime::now(), Instant::now());
        let (later, earlier) = (date_of(now + hour), now.checked_sub(hour).map(date_of));
        let after = SystemTime::now();
        let about = |date: SystemTime, from: SystemTime, to: SystemTime| {
            let slack = Duration::from_secs(1);
            date >= from - slack && date <= to + slack
        };
        assert!(about(later, before + hour, after + hour), "{later:?}");
        assert!(earlier.is_none_or(|date| about(date, before - hour, after - hour)));
    }
}
