//! The holds of each owner and their times: written down by tasks that lock all the time, and judged afterwards.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fastrand::Rng;
use redisson_lock::{Kind, Lock, Released};
use tokio_util::sync::CancellationToken;

/// How long two may hold one lock when the new master never had the first hold: until all clients have found the new
/// master, as opposed to a lease of 30 s.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// One hold, from when its owner could rely on it to when it gave it up, or was told that it is lost.
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

/// What a ledger tells.
#[derive(Debug, Default)]
pub struct Sum {
    pub holds: usize,
    /// Holders that were told that the new master never had their hold.
    pub lost: usize,
    /// Pairs that held one lock at a time, the one of the two that was lost being told of it, and for how long at most.
    pub overlaps: usize,
    pub longest: Duration,
    /// Pairs of which neither was told, as either was let in and out by a master of its own.
    pub untold: usize,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            holds,
            lost,
            overlaps,
            longest,
            untold,
        } = self;
        write!(
            f,
            "{holds} holds, {lost} lost, {overlaps} overlaps of up to {longest:?}, {untold} untold"
        )
    }
}

impl Ledger {
    /// Locks and unlocks as `owner` until the ledger is closed; once in a while holds for long.
    pub async fn work<K: Kind>(self: Arc<Self>, lock: Lock<K>, owner: usize) {
        let mut random = Rng::new();
        while !self.stop.is_cancelled() {
            // None within `command_wait`: the failover takes that long.
            let Ok(guard) = lock.lock().await else {
                continue;
            };
            let entered = Instant::now();
            let longest = if random.u8(..16) == 0 { 1000 } else { 20 };
            let stay = Duration::from_millis(random.u64(..longest));
            let told = tokio::time::timeout(stay, guard.lost()).await;
            let left = Instant::now();
            let unlocked = guard.unlock().await;
            let stay = Stay {
                name: lock.name().to_owned(),
                owner,
                entered,
                left,
                lost: told.is_ok() || unlocked != Ok(Released::Fully),
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

    /// No two held one lock, but where a write was lost that the old master had acknowledged; and then not for long.
    ///
    /// While `two_masters` answer, a hold may begin and end at the old one, which is never told.
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
                    assert!(excused, "{two}, and neither was told");
                    sum.untold += 1;
                }
                assert!(both < TOLD_WITHIN, "{two}");
                sum.overlaps += 1;
                sum.longest = sum.longest.max(both);
            }
        }
        sum
    }
}

/// A stay of so many milliseconds after `start`.
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
    assert_eq!((sum.overlaps, sum.untold), (1, 1));
}

#[test]
#[should_panic(expected = "neither was told")]
fn two_holders_outside_the_time_of_two_masters_are_found() {
    let start = Instant::now();
    let stays = [stay(start, 1, 0..30, false), stay(start, 2, 20..40, false)];
    let two_masters = start + Duration::from_millis(5)..start + Duration::from_millis(15);
    ledger(stays.into()).judged(&two_masters);
}

#[test]
#[should_panic(expected = "neither was told")]
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
