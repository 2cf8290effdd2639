//! What happened, in one order: every task writes into one log, under one lock.
//!
//! What begins is noted before it is asked for, what is had after it was answered. So a hold in the log is never longer
//! than the hold itself: what overlaps here has overlapped.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{Error, LostReason, Released};
use tokio::time::Instant;

use super::subjects::Peek;

/// How many events a failure shows.
const SHOWN: usize = 50;

/// Whether other owners may be inside as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Shared,
    Alone,
}

/// One owner on one lock, or on a group of locks: whose events these are, and how the lock is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spot {
    pub owner: u64,
    /// A bit for each name.
    pub names: u32,
    pub side: Side,
}

/// What is written down of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    Unavailable,
    Lost(LostReason),
    NotHeld,
    AlreadyHeld,
    WouldDeadlock,
    /// The client was shut down.
    Closed,
    /// Too few replicas have acknowledged it.
    TooFewReplicas,
    /// It did not end.
    Hung,
    Other(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { .. } => Self::Unavailable,
            Error::Lost { reason, .. } => Self::Lost(reason),
            Error::NotHeld { .. } => Self::NotHeld,
            Error::AlreadyHeld { .. } => Self::AlreadyHeld,
            Error::WouldDeadlock { .. } => Self::WouldDeadlock,
            Error::Closed => Self::Closed,
            Error::Replication { .. } => Self::TooFewReplicas,
            other => Self::Other(format!("{other:?}")),
        }
    }
}

/// Holds are numbered in the order in which they were seen to be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The lock is asked for; without `limited`, until it is had.
    Asks {
        limited: bool,
        lease: Duration,
    },
    /// It is had. `valid`: the guard says so.
    Enters {
        hold: HoldId,
        lease: Duration,
        until: Duration,
        valid: bool,
        token: Option<i64>,
    },
    /// It was busy.
    Refused,
    /// It was not had.
    Failed(Trouble),
    /// The future was dropped: what it had begun goes on unseen.
    Abandons,
    /// The guard says that the hold is valid, and until when.
    Valid {
        hold: HoldId,
        until: Duration,
    },
    /// The guard says that the hold is lost.
    Lost {
        hold: HoldId,
        reason: LostReason,
    },
    /// The guard is leaked.
    Leaks {
        hold: HoldId,
    },
    /// The guard is dropped.
    Drops {
        hold: HoldId,
    },
    /// A release begins.
    Ends {
        hold: HoldId,
    },
    /// A release was answered; `None`: no caller waited for the answer.
    Ended {
        hold: HoldId,
        how: Option<Result<Released, Trouble>>,
    },
    /// The owner asks for its count.
    Counts,
    Counted(Result<u32, Trouble>),
    /// The lock is forced open.
    Forces,
    Forced(Result<bool, Trouble>),
    /// A client is shut down.
    Closes,
    /// The queue on the server was looked at,
    Looks,
    /// and sees these owners, in this order.
    Queue(Vec<u64>),
    /// A replica becomes the master, on which these locks are not as on the old one.
    Promoted,
    /// A master takes commands that has been replaced.
    Splits,
    /// There is one master again.
    Joins,
    /// Something happens to a connection.
    Weather(String),
}

impl What {
    /// Whether a lock is asked for or given back.
    pub fn is_call(&self) -> bool {
        matches!(
            self,
            Self::Asks { .. } | Self::Ends { .. } | Self::Drops { .. }
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub at: Duration,
    pub spot: Spot,
    pub what: What,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spot { owner, names, side } = self.spot;
        let at = self.at.as_micros() as f64 / 1e3;
        match &self.what {
            What::Weather(fault) => write!(f, "{at:>10.3} ms  {fault}"),
            // The lowest bits tell where the number of an owner comes from, the highest is always set.
            what => write!(
                f,
                "{at:>10.3} ms  task {} on {names:b} {side:?}: {what:?}",
                (owner & !(1 << 62)) >> 2
            ),
        }
    }
}

/// The log of one history.
pub struct Log {
    start: Instant,
    holds: AtomicU64,
    events: Mutex<Vec<Event>>,
    /// Says which rule an event breaks at the moment at which it is noted.
    observer: Option<Observer>,
    broken: OnceLock<String>,
}

pub type Observer = Box<dyn Fn(&Event) -> Option<String> + Send + Sync>;

impl Default for Log {
    fn default() -> Self {
        Self::observed(None)
    }
}

impl Log {
    pub fn observed(observer: Option<Observer>) -> Self {
        Self {
            start: Instant::now(),
            holds: AtomicU64::new(0),
            events: Mutex::default(),
            observer,
            broken: OnceLock::new(),
        }
    }

    /// The first rule that the observer has seen broken.
    pub fn broken(&self) -> Option<String> {
        self.broken.get().cloned()
    }

    /// A rule is broken that is not about an event.
    pub fn breaks(&self, rule: String) {
        let _ = self.broken.set(rule);
    }

    pub fn note(&self, spot: Spot, what: What) {
        self.look(spot, |_| Some(what));
    }

    /// A client is shut down: from now on its tasks may hear of it.
    pub fn closes(&self) {
        self.note(NOBODY, What::Closes);
    }

    pub fn weather(&self, fault: String) {
        self.note(NOBODY, What::Weather(fault));
    }

    /// How many holds have been had.
    pub fn holds(&self) -> u64 {
        self.holds.load(Relaxed)
    }

    /// A hold is had.
    pub fn enters(&self, spot: Spot, lease: Duration, guard: &dyn Peek) -> HoldId {
        let hold = HoldId(self.holds.fetch_add(1, Relaxed));
        self.look(spot, |log| {
            Some(What::Enters {
                hold,
                lease,
                valid: guard.lost().is_none(),
                until: log.time_of(guard.valid_until()),
                token: guard.token(),
            })
        });
        hold
    }

    /// A hold is had by a client that has no guards, and relies on it for as long as it lasts on the server.
    pub fn enters_without_guard(&self, spot: Spot, lease: Duration, token: Option<i64>) -> HoldId {
        let hold = HoldId(self.holds.fetch_add(1, Relaxed));
        self.look(spot, |log| {
            Some(What::Enters {
                hold,
                lease,
                valid: true,
                until: log.start.elapsed(),
                token,
            })
        });
        hold
    }

    /// Asks the guard about its hold, and notes it if it is valid; else says how it was lost.
    pub fn probe(&self, spot: Spot, hold: HoldId, guard: &dyn Peek) -> Option<LostReason> {
        let mut lost = None;
        self.look(spot, |log| {
            lost = guard.lost();
            let until = log.time_of(guard.valid_until());
            lost.is_none().then_some(What::Valid { hold, until })
        });
        lost
    }

    /// Notes what is seen, at the moment at which it is seen.
    fn look(&self, spot: Spot, see: impl FnOnce(&Self) -> Option<What>) {
        let mut events = self.events();
        let at = self.start.elapsed();
        let Some(what) = see(self) else { return };
        let event = Event { at, spot, what };
        if let Some(rule) = self.observer.as_ref().and_then(|observer| observer(&event)) {
            let _ = self.broken.set(format!("{rule}, at {at:?}"));
        }
        events.push(event);
    }

    fn time_of(&self, instant: std::time::Instant) -> Duration {
        instant.saturating_duration_since(self.start.into_std())
    }

    pub fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NOBODY: Spot = Spot {
    owner: 0,
    names: 0,
    side: Side::Alone,
};

/// The events up to the one numbered `last` that concern the same names.
pub fn tail(events: &[Event], last: usize) -> String {
    let Some(event) = events.get(last) else {
        return String::new();
    };
    let concerns = |other: &&Event| other.spot.names & event.spot.names == other.spot.names;
    let before = events[..=last].iter().rev().filter(concerns).take(SHOWN);
    let mut lines: Vec<_> = before.map(|event| format!("{event}\n")).collect();
    lines.reverse();
    lines.concat()
}
