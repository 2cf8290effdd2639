//! The log of a history: all tasks write their events into one list, under one mutex.
//!
//! A task records a request before it sends it, and a hold after the answer. So a hold in the log is never longer than the hold
//! itself, and holds that overlap in the log have overlapped.

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

use super::handle::Peek;

/// The most events that a failure shows.
const SHOWN: usize = 50;

/// Whether other owners may hold the lock at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Shared,
    Alone,
}

/// The owner of an event, the lock or group of locks, and the side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spot {
    pub owner: u64,
    /// A bit for each name.
    pub names: u32,
    pub side: Side,
}

/// An error, as the log records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    Unavailable,
    Lost(LostReason),
    NotHeld,
    AlreadyHeld,
    WouldDeadlock,
    /// The client was shut down.
    Closed,
    /// Too few replicas have acknowledged the hold.
    TooFewReplicas,
    /// The server had no memory.
    NoMemory,
    /// The call exceeded its time limit.
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
            Error::Closed | Error::RuntimeEnded => Self::Closed,
            Error::Replication { .. } => Self::TooFewReplicas,
            Error::Redis { message, .. } if message.contains("OOM ") => Self::NoMemory,
            other => Self::Other(format!("{other:?}")),
        }
    }
}

/// Holds are numbered in the order in which the log records them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// An acquisition begins. Without `limited`, it waits until it has the lock.
    Asks {
        limited: bool,
        lease: Duration,
    },
    /// The acquisition succeeded. `valid`: the guard is not lost.
    Enters {
        hold: HoldId,
        lease: Duration,
        until: Duration,
        valid: bool,
        token: Option<i64>,
    },
    /// The lock was busy.
    Refused,
    /// The acquisition failed.
    Failed(Trouble),
    /// The future of the acquisition was dropped. Its request may still take effect.
    Abandons,
    /// The guard reports a valid hold, and the end of the validity.
    Valid {
        hold: HoldId,
        until: Duration,
    },
    /// The guard reports a lost hold.
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
    /// A release was answered. `None`: no caller awaited the answer.
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
    /// A read of the server's queue begins.
    Looks,
    /// The queue has these owners, in this order.
    Queue(Vec<u64>),
    /// A replica becomes the master, and these locks differ from those on the old master.
    Promoted,
    /// A replaced master still executes commands.
    Splits,
    /// Only one master executes commands again.
    Joins,
    /// A fault, or another remark of the simulator.
    Fault(String),
}

impl What {
    /// Whether an acquisition or a release begins.
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

impl Spot {
    /// Whether the owner is a thread of Java. Bit 62 of all other owners is set.
    pub fn is_java(&self) -> bool {
        self.owner < 4
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spot { owner, names, side } = self.spot;
        let at = self.at.as_micros() as f64 / 1e3;
        match &self.what {
            What::Fault(fault) => write!(f, "{at:>10.3} ms  {fault}"),
            what if self.spot.is_java() => write!(
                f,
                "{at:>10.3} ms  Java thread {owner} on {names:b} {side:?}: {what:?}"
            ),
            // The lowest two bits of an owner's number show its origin, and bit 62 is always set: the story leaves them out.
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
    /// Returns the rule that an event breaks when it is recorded.
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

    /// The first broken rule.
    pub fn broken(&self) -> Option<String> {
        self.broken.get().cloned()
    }

    /// Records a broken rule that belongs to no event.
    pub fn breaks(&self, rule: String) {
        let _ = self.broken.set(rule);
    }

    pub fn note(&self, spot: Spot, what: What) {
        self.look(spot, |_| Some(what));
    }

    /// Records a shutdown: from now on calls of its client may fail.
    pub fn closes(&self) {
        self.note(NO_OWNER, What::Closes);
    }

    pub fn fault(&self, fault: String) {
        self.note(NO_OWNER, What::Fault(fault));
    }

    /// The number of holds so far.
    pub fn holds(&self) -> u64 {
        self.holds.load(Relaxed)
    }

    /// Records a hold.
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

    /// Records a hold of a client without guards, which relies on it until `until`.
    pub fn enters_without_guard(
        &self,
        spot: Spot,
        lease: Duration,
        until: Instant,
        token: Option<i64>,
    ) -> HoldId {
        let hold = HoldId(self.holds.fetch_add(1, Relaxed));
        self.look(spot, |log| {
            Some(What::Enters {
                hold,
                lease,
                valid: true,
                until: log.time_of(until.into_std()),
                token,
            })
        });
        hold
    }

    /// Records a guard if its hold is valid. Otherwise returns the reason of the loss.
    pub fn probe(&self, spot: Spot, hold: HoldId, guard: &dyn Peek) -> Option<LostReason> {
        let mut lost = None;
        self.look(spot, |log| {
            lost = guard.lost();
            let until = log.time_of(guard.valid_until());
            lost.is_none().then_some(What::Valid { hold, until })
        });
        lost
    }

    /// Calls `see` and records its event under the mutex, so that no other event comes in between.
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

const NO_OWNER: Spot = Spot {
    owner: 0,
    names: 0,
    side: Side::Alone,
};

/// The last events before and with `last` that concern the same names.
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
