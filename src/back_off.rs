//! The pauses of a waiter that polls.

use std::time::Duration;

/// The pauses between the attempts of a [`SpinLock`](crate::SpinLock), set by
/// [`with_back_off`](crate::Lock::with_back_off).
///
/// # Redisson
///
/// `LockOptions.BackOff`: `ConstantBackOff`, `ExponentialBackOff`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redisson_lock::BackOff;
///
/// let pauses = BackOff::Exponential {
///     initial: Duration::from_millis(1),
///     max: Duration::from_millis(128),
///     multiplier: 2,
/// };
/// assert_eq!(pauses, BackOff::default());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackOff {
    /// One fixed pause. Redisson's is 64 ms.
    Constant(Duration),
    /// Each pause is `multiplier` times as long as the previous one, plus a random part of up to `multiplier` milliseconds. The random
    /// part separates waiters that began together.
    Exponential {
        /// The first pause.
        initial: Duration,
        /// The longest pause.
        max: Duration,
        /// The factor from one pause to the next.
        multiplier: u32,
    },
}

impl Default for BackOff {
    /// From 1 ms to 128 ms, doubling: Redisson's default.
    fn default() -> Self {
        BackOff::Exponential {
            initial: Duration::from_millis(1),
            max: Duration::from_millis(128),
            multiplier: 2,
        }
    }
}

/// The shortest pause, whatever the settings: with a shorter one, a single waiter would keep the server busy.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// The state of a back-off during one wait.
#[derive(Debug)]
pub(crate) struct Spinning {
    next: Duration,
    max: Duration,
    multiplier: u32,
}

impl Spinning {
    pub(crate) fn new(back_off: &BackOff) -> Self {
        let (initial, max, multiplier) = match *back_off {
            BackOff::Constant(pause) => (pause, pause, 1),
            BackOff::Exponential {
                initial,
                max,
                multiplier,
            } => (initial, max, multiplier),
        };
        let max = max.clamp(SHORTEST, LONGEST);
        Self {
            next: initial.clamp(SHORTEST, max),
            max,
            multiplier: multiplier.max(1),
        }
    }

    pub(crate) fn next_delay(&mut self) -> Duration {
        let jitter = match self.multiplier {
            1 => Duration::ZERO,
            multiplier => Duration::from_millis(1)
                .saturating_mul(multiplier)
                .mul_f64(fastrand::f64()),
        };
        let next = self.next.saturating_mul(self.multiplier) + jitter;
        std::mem::replace(&mut self.next, next.min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(back_off: &BackOff) -> Vec<Duration> {
        let mut spinning = Spinning::new(back_off);
        (0..20).map(|_| spinning.next_delay()).collect()
    }

    #[test]
    fn constant_pauses_are_all_the_same() {
        let pause = Duration::from_millis(64);
        assert_eq!(delays(&BackOff::Constant(pause)), [pause; 20]);
    }

    #[test]
    fn exponential_pauses_grow_to_their_longest() {
        let delays = delays(&BackOff::default());
        assert_eq!(delays[0], Duration::from_millis(1));
        assert!(
            delays
                .windows(2)
                .all(|pair| pair[1] >= pair[0] * 2 || pair[1] == Duration::from_millis(128))
        );
        assert_eq!(delays[19], Duration::from_millis(128));
    }

    #[test]
    fn no_setting_makes_a_loop_without_pauses_or_overflows() {
        for back_off in [
            BackOff::Constant(Duration::ZERO),
            BackOff::Constant(Duration::MAX),
            BackOff::Exponential {
                initial: Duration::ZERO,
                max: Duration::ZERO,
                multiplier: 0,
            },
            BackOff::Exponential {
                initial: Duration::MAX,
                max: Duration::MAX,
                multiplier: u32::MAX,
            },
        ] {
            let delays = delays(&back_off);
            assert!(
                delays
                    .iter()
                    .all(|delay| (SHORTEST..=LONGEST).contains(delay))
            );
        }
    }
}
