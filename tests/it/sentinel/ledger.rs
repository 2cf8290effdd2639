//! Records the holds of tasks that lock all the time, and judges them afterwards.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fastrand::Rng;
use redisson_lock::{Kind, Lock, Released};
use tokio_util::sync::CancellationToken;

/// The limit of an overlap where the new master never had the first hold. It is the time until all
/// clients find the new master, and not a lease of 30 s.
const REPORTED_WITHIN: Duration = Duration::from_secs(5);

/// One hold, from the grant to the release or the report of its loss.
#[derive(Clone)]
struct Stay {
    name: String,
    owner: usize,
    entered: Instant,
    left: Instant,
    lost: bool,
}

/// All holds of a test.
#[derive(Default)]
pub struct Ledger {
    stays: Mutex<Vec<Stay>>,
    stop: CancellationToken,
}

/// The result of a ledger.
#[derive(Debug, Default)]
pub struct Sum {
    pub holds: usize,
    /// Holds whose loss was reported, because the new master never had them.
    pub lost: usize,
    /// Overlaps of two holds of one lock, one of which was reported lost, and the longest of them.
    pub overlaps: usize,
    pub longest: Duration,
    /// Overlaps without a reported loss: each hold began and ended at its own master.
    pub unreported: usize,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            holds,
            lost,
            overlaps,
            longest,
            unreported,
        } = self;
        write!(
            f,
            "{holds} holds, {lost} lost, {overlaps} overlaps of up to {longest:?}, {unreported} unreported"
        )
    }
}

impl Ledger {
    /// Locks and unlocks as `owner` until the ledger is closed. One hold in 16 may last long.
    pub async fn work<K: Kind>(self: Arc<Self>, lock: Lock<K>, owner: usize) {
        let mut random = Rng::new();
        while !self.stop.is_cancelled() {
            // A failover may outlast `command_wait`.
            let Ok(guard) = lock.lock().await else {
                continue;
            };
            let entered = Instant::now();
            let longest = if random.u8(..16) == 0 { 1000 } else { 20 };
            let stay = Duration::from_millis(random.u64(..longest));
            let reported = tokio::time::timeout(stay, guard.lost()).await;
            let left = Instant::now();
            let unlocked = guard.unlock().await;
            let stay = Stay {
                name: lock.name().to_owned(),
                owner,
                entered,
                left,
                lost: reported.is_ok() || unlocked != Ok(Released::Fully),
            };
            self.stays().push(stay);
            tokio::time::sleep(Duration::from_millis(random.u64(..5))).await;
        }
    }

    pub fn holds(&self) -> usize {
        self.stays().len()
    }

    pub fn close(&self) {
        self.stop.cancel();
    }

    fn stays(&self) -> std::sync::MutexGuard<'_, Vec<Stay>> {
        self.stays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if two owners held one lock, unless the old master acknowledged a write that was lost,
    /// and then only for a short time.
    ///
    /// While `two_masters` answer, a hold may begin and end at the old one, which reports no loss.
    pub fn judged(&self, two_masters: &Range<Instant>) -> Sum {
        let mut stays = self.stays().clone();
        stays.sort_by_key(|stay| stay.entered);
        let mut sum = Sum {
            holds: stays.len(),
            lost: stays.iter().filter(|stay| stay.lost).count(),
            ..Sum::default()
        };
        for (at, later) in stays.iter().enumerate() {
            let inside =
                |earlier: &&Stay| earlier.name == later.name && earlier.left > later.entered;
            for earlier in stays[..at].iter().filter(inside) {
                let both = earlier.left.min(later.left) - later.entered;
                let two = format!(
                    "{} and {} held {} for {both:?}",
                    earlier.owner, later.owner, later.name
                );
                if !earlier.lost && !later.lost {
                    let excused = two_masters.contains(&later.entered);
                    assert!(excused, "{two}, and no loss was reported");
                    sum.unreported += 1;
                }
                assert!(both < REPORTED_WITHIN, "{two}");
                sum.overlaps += 1;
                sum.longest = sum.longest.max(both);
            }
        }
        sum
    }
}

/// A hold from `millis.start` to `millis.end` after `start`.
#[cfg(test)]
fn stay(start: Instant, owner: usize, millis: std::ops::Range<u64>, lost: bool) -> Stay {
    let at = |millis| start + Duration::from_millis(millis);
    Stay {
        name: "a".into(),
        owner,
        entered: at(millis.start),
        left: at(millis.end),
        lost,
    }
}

fn ledger(stays: Vec<Stay>) -> Ledger {
    Ledger {
        stays: Mutex::new(stays),
        stop: CancellationToken::new(),
    }
}

#[test]
fn holders_in_turn_and_overlaps_with_a_reported_loss_are_good() {
    let start = Instant::now();
    let sum = ledger(vec![
        stay(start, 1, 0..10, false),
        stay(start, 2, 10..20, true),
        stay(start, 1, 15..40, false),
    ])
    .judged(&(start..start));
    assert_eq!((sum.holds, sum.lost, sum.overlaps), (3, 1, 1));
    assert_eq!(sum.longest, Duration::from_millis(5));
}

#[test]
fn two_holders_at_the_time_of_two_masters_are_tolerated() {
    let start = Instant::now();
    let stays = [stay(start, 1, 0..30, false), stay(start, 2, 20..40, false)];
    let two_masters = start + Duration::from_millis(10)..start + Duration::from_millis(25);
    let sum = ledger(stays.into()).judged(&two_masters);
    assert_eq!((sum.overlaps, sum.unreported), (1, 1));
}

#[test]
#[should_panic(expected = "no loss was reported")]
fn two_holders_outside_the_time_of_two_masters_are_found() {
    let start = Instant::now();
    let stays = [stay(start, 1, 0..30, false), stay(start, 2, 20..40, false)];
    let two_masters = start + Duration::from_millis(5)..start + Duration::from_millis(15);
    ledger(stays.into()).judged(&two_masters);
}

#[test]
#[should_panic(expected = "no loss was reported")]
fn two_holders_at_a_time_are_found() {
    let start = Instant::now();
    let stays = [stay(start, 1, 0..30, false), stay(start, 2, 29..40, false)];
    ledger(stays.into()).judged(&(start..start));
}

#[test]
#[should_panic(expected = "held a for 6s")]
fn a_holder_that_learns_of_its_loss_too_late_is_found() {
    let start = Instant::now();
    let stays = [
        stay(start, 1, 0..7_000, true),
        stay(start, 2, 1_000..9_000, false),
    ];
    ledger(stays.into()).judged(&(start..start));
}
