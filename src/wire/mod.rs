//! What other Redisson clients see: keys, channels, scripts, messages. Pure: nothing here waits or reads a clock.
//!
//! | thing | key or channel |
//! | --- | --- |
//! | a lock (hash: owner to count; a simple one: string) | the name |
//! | its unlock channel | `redisson_lock__channel:{name}` |
//! | that of a read-write lock | `redisson_rwlock:{name}` |
//! | that of a simple lock | `simple_lock__channel:{name}` |
//! | a waiter of a fair lock | its unlock channel, `:`, the owner |
//! | its queue (list of owners) | `redisson_lock_queue:{name}` |
//! | until when each keeps its place (zset of owners) | `redisson_lock_timeout:{name}` |
//! | the counter of a fenced lock | `redisson_lock_token:{name}` |
//! | the lease of a reader's hold number i | `{name}:owner:rwlock_timeout:i` |
//! | a writer that waits keeps new readers out | `{name}:write_intent`, `{name}:write_intent:rest` |
//! | a semaphore's permits, or a latch's count (a number) | the name |
//! | the channel of a semaphore | `redisson_sc:{name}` |
//! | the permits of an expirable one that are taken (zset of ids) | `{name}:timeout` |
//! | the channel of a latch | `redisson_countdownlatch__channel__{name}` |
//! | what an attempt at a number came to (text) | `{name}:attempt:<client id>/<place>` |
//!
//! Every kind of lock is a [`LockProtocol`]: which scripts it runs, with which keys and arguments, and what their replies
//! mean. The rest of the crate neither spells a key nor reads a reply.

pub(crate) mod election;
pub(crate) mod fair;
pub(crate) mod fenced;
pub(crate) mod holders;
pub(crate) mod latch;
pub(crate) mod message;
pub(crate) mod name;
pub(crate) mod non_reentrant;
pub(crate) mod packed;
pub(crate) mod permit;
pub(crate) mod read;
pub(crate) mod reentrant;
pub(crate) mod reply;
pub(crate) mod script;
pub(crate) mod semaphore;
pub(crate) mod simple;
pub(crate) mod site;
pub(crate) mod spin;
pub(crate) mod write;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::config::Config;
pub use crate::lease::Lease;
pub use name::LockSpec;
use reply::{Detail, Outcome};
pub use reply::{Refusal, Reply};
pub use script::Request;

/// A kind of lock.
///
/// Sealed: the kinds are those that Redisson has, and each is a type of this crate, such as
/// [`Reentrant`](crate::Reentrant).
pub trait Kind: sealed::Sealed {}

/// A kind whose waiters stand in a queue on the server: [`Fair`](crate::Fair) and
/// [`NonReentrantFair`](crate::NonReentrantFair).
pub trait Queued: Kind {}

/// A kind that is not known when the program is compiled: see [`DynLock`](crate::DynLock).
#[derive(Debug, Clone, Copy)]
pub enum Dyn {}

impl Kind for Dyn {}

pub(crate) mod sealed {
    pub trait Sealed: Send + Sync + 'static {}

    /// Ties a public kind to what it is on the wire.
    pub trait Known: Send + Sync + 'static {
        const PROTOCOL: &'static dyn super::LockProtocol;
    }

    impl<K: Known> Sealed for K {}
    impl Sealed for super::Dyn {}
}

/// What a kind of lock says and hears. Requests are for one operation; the engine decides what travels together.
pub trait LockProtocol: std::fmt::Debug + Send + Sync {
    /// What gauges and spans call the kind.
    fn kind(&self) -> KindName;
    /// The lock `name` of this kind.
    fn spec(&'static self, name: Arc<str>, config: &Config) -> LockSpec;
    /// The most holds that one owner may have; 1 for a lock that is not reentrant.
    fn most_holds(&self) -> u32 {
        u32::MAX
    }
    /// Ask for a hold.
    fn acquire(&self, spec: &LockSpec, args: &AcquireArgs<'_>) -> Request;
    /// Read the answer to [`acquire`](Self::acquire).
    fn attempt(&self, reply: Reply) -> Result<AcquireOutcome, Refusal> {
        Ok(match reply.outcome()? {
            Outcome::Done(Detail::Number(token)) => AcquireOutcome::Granted { token: Some(token) },
            Outcome::Done(_) => AcquireOutcome::Granted { token: None },
            Outcome::Busy { remaining: millis } => AcquireOutcome::Busy {
                remaining: remaining(millis),
            },
            Outcome::Absent => AcquireOutcome::Gone,
        })
    }
    /// Where an owner that waits listens.
    fn listens_at(&self, spec: &Arc<LockSpec>, _owner: &Bytes) -> Arc<LockSpec> {
        spec.clone()
    }
    /// For kinds with a queue: give up the place that an owner has in it.
    fn abandon(&self) -> Option<fn(&LockSpec, &Bytes) -> Request> {
        None
    }
    /// For a kind that waits for holders that come and go: keep new ones out for so long, or no longer.
    fn intend(&self) -> Option<Intend> {
        None
    }
    /// Leave the owner with `holds` holds, which live for `lease`; `None` leaves their expiry as it is.
    fn release(&self, spec: &LockSpec, owner: &Bytes, lease: Option<&Lease>, holds: u32)
    -> Request;
    /// Whether a lock of this kind can pass from one task of a client to the next without the server's hearing of it: not
    /// where each grant is something of its own.
    fn is_passed_on(&self) -> bool {
        false
    }
    /// Keep the owner's holds for another `lease`; `None` only asks whether they are there.
    fn renew(&self, spec: &LockSpec, owner: &Bytes, lease: Option<&Lease>) -> Request;
    /// Free the lock, whichever owner holds it.
    fn force_release(&self, spec: &LockSpec) -> Request;
    /// Ask for the holders of the lock.
    fn holders(&self, spec: &LockSpec) -> Request {
        holders::of_hash(spec, None)
    }
    /// For kinds with a queue: ask for its waiters.
    fn waiters(&self, _place: &LockSpec) -> Option<Request> {
        None
    }
    /// Ask what stands at the lock.
    fn inspect(&self, spec: &LockSpec, owner: &Bytes) -> Request;
    /// Read the answer to [`inspect`](Self::inspect).
    fn inspection(&self, reply: Reply) -> Result<Inspection, Refusal> {
        match reply.outcome()? {
            Outcome::Done(Detail::Numbers(numbers)) if numbers.len() == 2 => Ok(Inspection {
                locked: numbers[0] != -2,
                remaining: remaining(numbers[0]),
                holds: u32::try_from(numbers[1]).unwrap_or(0),
            }),
            other => Err(Refusal::Failed {
                message: format!("an inspection answered {other:?}"),
            }),
        }
    }
}

/// A kind of lock, as gauges and spans name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindName {
    Reentrant,
    Spin,
    NonReentrant,
    Fair,
    NonReentrantFair,
    Fenced,
    Read,
    Write,
    Simple,
}

impl KindName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            KindName::Reentrant => "reentrant",
            KindName::Spin => "spin",
            KindName::NonReentrant => "non-reentrant",
            KindName::Fair => "fair",
            KindName::NonReentrantFair => "non-reentrant-fair",
            KindName::Fenced => "fenced",
            KindName::Read => "read",
            KindName::Write => "write",
            KindName::Simple => "simple",
        }
    }
}

/// See [`LockProtocol::intend`].
pub type Intend = fn(&LockSpec, Duration) -> Request;

/// The counts that one owner can have at one name. Kinds with the same count share its holds. In this order a group acquires
/// them: an owner that writes may read as well, but not the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldMode {
    Owner,
    Write,
    Read,
    Simple,
}

impl HoldMode {
    /// Whether owners hold the lock side by side.
    pub(crate) fn is_shared(self) -> bool {
        self == HoldMode::Read
    }

    /// Whether it keeps readers of the same name out.
    pub(crate) fn excludes_readers(self) -> bool {
        self == HoldMode::Write
    }

    /// The modes in which one owner can hold a lock at the same time.
    pub(crate) fn together(&self) -> &[HoldMode] {
        match self {
            HoldMode::Read | HoldMode::Write => &[HoldMode::Read, HoldMode::Write],
            one => std::slice::from_ref(one),
        }
    }

    /// The other of those.
    pub(crate) fn beside(self) -> Option<HoldMode> {
        self.together().iter().copied().find(|mode| *mode != self)
    }
}

/// What is asked of the server for an owner.
#[derive(Debug)]
pub struct AcquireArgs<'a> {
    pub(crate) owner: &'a Bytes,
    pub(crate) lease: &'a Lease,
    /// The owner's count once this has been granted.
    pub(crate) holds: u32,
    /// No earlier sending of it can have been run.
    pub(crate) fresh: bool,
    /// For a reader: the owner has a write hold at the same name that it may rely on.
    pub(crate) writes: bool,
    /// The owner relies on a hold that this one adds to. The field may count holds of other readers of the client alone.
    pub(crate) relies: bool,
    /// The owner will wait if it is refused.
    pub(crate) wait: Option<Wait>,
}

/// A wait, as a queue is told of it.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// Since the last try; zero for the first, and where what came of the last is not known.
    pub(crate) since_last: Duration,
    /// Whether the one whose turn it is may be told so.
    pub(crate) nudge: bool,
}

/// How an acquisition went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The owner now has the number of holds that it asked for.
    Granted {
        /// What a fenced lock counts.
        token: Option<i64>,
    },
    /// Another owner holds the lock, or is to have it next. It is worth asking again after `remaining`; `None`: that is not
    /// known.
    Busy { remaining: Option<Duration> },
    /// The holds that this one was to add to are gone.
    Gone,
}

/// Whether what an operation was about was still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Present,
    Absent,
}

/// Reads the answer to a release, a renewal or a forced release.
pub(crate) fn presence(reply: Reply) -> Result<Presence, Refusal> {
    match reply.outcome()? {
        Outcome::Done(_) => Ok(Presence::Present),
        _ => Ok(Presence::Absent),
    }
}

/// How many subscribers the message of a release had, as far as the server knows.
pub(crate) fn listeners(reply: &Reply) -> u64 {
    match reply.detail {
        Detail::Number(listeners) => u64::try_from(listeners).unwrap_or(0),
        _ => 0,
    }
}

/// What stood at a lock when the server looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inspection {
    /// Whether any owner holds it.
    pub(crate) locked: bool,
    /// For how long, unless it is renewed; `None` when free or without expiry.
    pub(crate) remaining: Option<Duration>,
    /// The count of the owner that asked.
    pub(crate) holds: u32,
}

/// What [`Guard::unlock`](crate::Guard::unlock) and [`Lock::unlock`](crate::Lock::unlock) did.
// Exhaustive: an owner has holds left or has none, and a caller matches both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// That was the owner's last hold: the lock is free and a waiter has been told.
    Fully,
    /// The owner had taken the lock more than once and still holds it.
    StillHeld {
        /// How many holds the owner has left.
        holds: u32,
    },
}

/// The reply number -1 of a `PTTL`: no expiry.
fn remaining(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// A lease as it travels, 0 for none.
fn lease_text(lease: Option<&Lease>) -> Bytes {
    lease.map_or_else(|| decimal(0), |lease| lease.text.clone())
}

/// A time as it travels.
fn millis(duration: Duration) -> Bytes {
    decimal(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// A number as it travels.
pub(crate) fn decimal(number: u64) -> Bytes {
    const DIGITS: &[u8; 10] = b"0123456789";
    match usize::try_from(number) {
        // Hold counts: nearly always one digit, on every acquisition and release.
        Ok(digit @ 0..=9) => Bytes::from_static(&DIGITS[digit..=digit]),
        _ => number.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 1, 9, 10, 99, u64::MAX] {
            assert_eq!(decimal(number), number.to_string().as_bytes());
        }
    }
}
