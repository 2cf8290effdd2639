//! The lease of a hold.

use std::time::Duration;

use bytes::Bytes;

/// A lease, with its text in requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub(crate) duration: Duration,
    /// The lease in milliseconds, in decimal.
    pub(crate) text: Bytes,
}

impl Lease {
    /// The shortest lease: below it, the allowance for clock drift would eat most of what the holder may rely on.
    pub(crate) const MIN: Duration = Duration::from_millis(10);
    /// The longest lease, a hundred years: exact in Lua's numbers and far from the server's own limit, beyond which
    /// `PEXPIRE` fails.
    pub(crate) const MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

    /// `duration` rounded up to whole milliseconds, or the reason why it cannot be a lease.
    pub(crate) fn new(duration: Duration) -> Result<Self, String> {
        if duration < Self::MIN {
            return Err(format!(
                "a lease of {} is too short: the minimum is 10 ms",
                shown(duration)
            ));
        }
        if duration > Self::MAX {
            return Err(format!(
                "a lease of {} is too long: the maximum is 100 years",
                shown(duration)
            ));
        }
        let millis = duration.as_nanos().div_ceil(1_000_000) as u64;
        Ok(Self {
            duration: Duration::from_millis(millis),
            text: millis.to_string().into(),
        })
    }
}

/// The text of a duration in an error. `Debug` shows a zero in nanoseconds, and the longest one as a number of 20 digits.
pub(crate) fn shown(duration: Duration) -> String {
    match duration {
        Duration::ZERO => "zero".into(),
        Duration::MAX => "Duration::MAX".into(),
        _ => format!("{duration:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_the_lease_as_its_caller_wrote_it() {
        let reason = |lease| Lease::new(lease).unwrap_err();
        let short = |text| format!("a lease of {text} is too short: the minimum is 10 ms");
        assert_eq!(reason(Duration::ZERO), short("zero"));
        assert_eq!(reason(Duration::from_millis(9)), short("9ms"));
        assert_eq!(
            reason(Duration::MAX),
            "a lease of Duration::MAX is too long: the maximum is 100 years"
        );
    }

    #[test]
    fn leases_are_bounded_and_rounded_up() {
        // P-A6
        assert!(Lease::new(Duration::ZERO).is_err());
        assert!(Lease::new(Duration::from_micros(999)).is_err());
        assert!(Lease::new(Duration::MAX).is_err());
        assert!(Lease::new(Lease::MAX + Duration::from_nanos(1)).is_err());
        assert!(Lease::new(Lease::MAX).is_ok());
        let lease = Lease::new(Duration::from_micros(10_001)).unwrap();
        assert_eq!(
            (lease.duration, &lease.text[..]),
            (Duration::from_millis(11), &b"11"[..])
        );
    }
}
