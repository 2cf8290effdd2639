//! The protocol that this crate shares with Redisson: keys, channels, scripts, messages. Pure: nothing here waits or reads
//! a clock.
//!
//! | thing | key or channel |
//! | --- | --- |
//! | a lock (hash: owner to count; a simple one: string) | the name |
//! | its unlock channel | `redisson_lock__channel:{name}` |
//! | the unlock channel of a read-write lock | `redisson_rwlock:{name}` |
//! | the unlock channel of a simple lock | `simple_lock__channel:{name}` |
//! | the channel of a waiter of a fair lock | the lock's channel, `:`, the owner |
//! | the queue of a fair lock (list of owners) | `redisson_lock_queue:{name}` |
//! | the end of each waiter's place (zset of owners) | `redisson_lock_timeout:{name}` |
//! | the counter of a fenced lock | `redisson_lock_token:{name}` |
//! | the lease of a reader's hold number i | `{name}:owner:rwlock_timeout:i` |
//! | the mark of a job that is done | the owner `run_at_least:done` of the lock |
//! | a writer's intent, and the rest after it | `{name}:write_intent`, `{name}:write_intent:rest` |
//! | a semaphore's permits, or a latch's count (a number) | the name |
//! | the channel of a semaphore | `redisson_sc:{name}` |
//! | the acquired permits of an expirable semaphore (zset of ids) | `{name}:timeout` |
//! | the channel of a latch | `redisson_countdownlatch__channel__{name}` |
//! | the result of an attempt at a number (text) | `{name}:attempt:<client id>/<random>/<count>` |
//!
//! Every kind of lock is a [`LockProtocol`]: its scripts, their keys and arguments, and the meaning of their replies. No other part
//! of the crate spells a key or reads a reply.

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
pub(crate) mod spin;
pub(crate) mod sync_spec;
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
/// Sealed: each kind is a type of this crate, such as [`Reentrant`](crate::Reentrant).
pub trait Kind: sealed::Sealed {}

/// A kind whose waiters stand in a queue on the server: [`Fair`](crate::Fair) and
/// [`NonReentrantFair`](crate::NonReentrantFair).
pub trait Queued: Kind {}

/// A kind that is chosen at run time: see [`DynLock`](crate::DynLock).
#[derive(Debug, Clone, Copy)]
pub enum Dyn {}

impl Kind for Dyn {}

pub(crate) mod sealed {
    pub trait Sealed: Send + Sync + 'static {}

    /// Ties a public kind to its protocol.
    pub trait Known: Send + Sync + 'static {
        const PROTOCOL: &'static dyn super::LockProtocol;
    }

    impl<K: Known> Sealed for K {}
    impl Sealed for super::Dyn {}
}

/// The requests and replies of a kind of lock. A request is one operation. Batches belong to `redis`.
pub trait LockProtocol: std::fmt::Debug + Send + Sync {
    /// The kind's name in gauges and spans.
    fn kind(&self) -> KindName;
    /// Which of an owner's counts at a name the kind uses.
    fn mode(&self) -> HoldMode {
        HoldMode::Owner
    }
    /// The lock `name` of this kind.
    fn spec(&'static self, name: Arc<str>, config: &Config) -> LockSpec;
    /// The largest number of holds of one owner; 1 for a lock that is not reentrant.
    /// Whether a release fails if its message is refused.
    fn needs_messages(&self) -> bool {
        true
    }

    fn most_holds(&self) -> u32 {
        u32::MAX
    }
    /// Asks for a hold.
    fn acquire(&self, spec: &LockSpec, args: &AcquireArgs<'_>) -> Request;
    /// Reads the reply to [`acquire`](Self::acquire).
    fn attempt(&self, reply: Reply) -> Result<AcquireOutcome, Refusal> {
        Ok(match reply.outcome()? {
            Outcome::Done(Detail::Number(token)) => AcquireOutcome::Granted { token: Some(token) },
            Outcome::Done(Detail::Text(token)) => AcquireOutcome::Granted {
                token: token.parse().ok(),
            },
            Outcome::Done(_) => AcquireOutcome::Granted { token: None },
            Outcome::Busy { remaining: millis } => AcquireOutcome::Busy {
                remaining: remaining(millis),
            },
            Outcome::Absent => AcquireOutcome::Gone,
        })
    }
    /// The spec with the channel to which a waiting owner subscribes.
    fn listens_at(&self, spec: &Arc<LockSpec>, _owner: &Bytes) -> Arc<LockSpec> {
        spec.clone()
    }
    /// For kinds with a queue: removes the owner's place.
    fn abandon(&self) -> Option<fn(&LockSpec, &Bytes) -> Request> {
        None
    }
    /// For the write side: sets an intent for a time, or ends it with a time of zero.
    fn intend(&self) -> Option<Intend> {
        None
    }
    /// Releases the owner's holds down to `holds`, which get `lease`; `None` leaves the expiry as it is.
    fn release(&self, spec: &LockSpec, owner: &Bytes, lease: Option<&Lease>, holds: u32)
    -> Request;
    /// Ends the owner's last hold, and keeps the lock for `lease` under [`KEPT`]. `None` for a kind that owners share.
    fn keep(&self, _spec: &LockSpec, _owner: &Bytes, _lease: &Lease) -> Option<Request> {
        None
    }
    /// Whether tasks of one client may hand off the lock in memory: reentrant, non-reentrant, spin and simple locks. A kind with a
    /// fencing token or a queue of its own may not.
    fn hands_off_locally(&self) -> bool {
        false
    }
    /// Renews the owner's holds for `lease`; `None` only verifies them.
    fn renew(&self, spec: &LockSpec, owner: &Bytes, lease: Option<&Lease>) -> Request;
    /// Frees the lock from any owner.
    fn force_release(&self, spec: &LockSpec) -> Request;
    /// Asks for the holders of the lock.
    fn holders(&self, spec: &LockSpec) -> Request {
        holders::of_hash(spec, None)
    }
    /// For kinds with a queue: asks for its waiters.
    fn waiters(&self, _spec: &LockSpec) -> Option<Request> {
        None
    }
    /// Asks for the state of the lock.
    fn inspect(&self, spec: &LockSpec, owner: &Bytes) -> Request;
    /// Reads the reply to [`inspect`](Self::inspect).
    fn inspection(&self, reply: Reply) -> Result<Inspection, Refusal> {
        inspection(reply)
    }
}

fn inspection(reply: Reply) -> Result<Inspection, Refusal> {
    match reply.outcome()? {
        Outcome::Done(Detail::Numbers(numbers)) if numbers.len() == 2 => Ok(Inspection {
            locked: numbers[0] != -2,
            remaining: remaining(numbers[0]),
            holds: u32::try_from(numbers[1]).unwrap_or(0),
        }),
        other => Err(Refusal::Failed {
            message: format!("the script that inspects a lock returned {other:?}"),
        }),
    }
}

/// The owner that a lock has after a job is done, until the lock's expiry. No client has it.
pub(crate) static KEPT: Bytes = Bytes::from_static(b"run_at_least:done");

/// The keys and arguments of the scripts that keep a lock, without further keys.
fn keep_parts(spec: &LockSpec, owner: &Bytes, lease: &Lease) -> Vec<Bytes> {
    vec![
        spec.key.clone(),
        owner.clone(),
        KEPT.clone(),
        lease.text.clone(),
        spec.channel.clone(),
    ]
}

/// The name of a kind in gauges and spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// The counts that one owner can have at one name. Kinds with the same count share its holds. A group acquires them in this
/// order, because an owner that writes may also read, but an owner that reads may not write.
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

    /// Whether a hold keeps readers of the same name out.
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

    /// The other one of [`together`](Self::together).
    pub(crate) fn beside(self) -> Option<HoldMode> {
        self.together().iter().copied().find(|mode| *mode != self)
    }
}

/// The arguments of an acquisition.
#[derive(Debug)]
pub struct AcquireArgs<'a> {
    pub(crate) owner: &'a Bytes,
    pub(crate) lease: &'a Lease,
    /// The owner's count after the grant.
    pub(crate) holds: u32,
    /// For a reader: whether the owner has a valid write hold at the same name.
    pub(crate) writes: bool,
    /// For a reader: whether the owner itself has a hold under this field. The field may count only holds of other readers
    /// of the client.
    pub(crate) relies: bool,
    /// `None` if the owner does not wait after a refusal.
    pub(crate) wait: Option<Wait>,
}

/// A wait, for the kinds that report it to the server.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// The time since the last attempt; zero for a first attempt, and if the result of the last one is unknown.
    pub(crate) since_last: Duration,
    /// Whether the server may notify the head of the queue.
    pub(crate) notify_head: bool,
}

/// The result of an acquisition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The owner now has the number of holds that it asked for.
    Granted {
        /// The fencing token of a fenced lock.
        token: Option<i64>,
    },
    /// Another owner holds the lock, or is before this one in the queue. `remaining` is when to ask again, if that is known.
    Busy { remaining: Option<Duration> },
    /// The owner's earlier holds are gone.
    Gone,
}

/// Whether the hold of an operation was still on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Present,
    Absent,
}

/// Reads the reply to a release, a renewal or a forced release.
pub(crate) fn presence(reply: Reply) -> Result<Presence, Refusal> {
    match reply.outcome()? {
        Outcome::Done(_) => Ok(Presence::Present),
        _ => Ok(Presence::Absent),
    }
}

/// The number of subscribers that received the message of a release, as far as the server can count them.
pub(crate) fn listeners(reply: &Reply) -> u64 {
    match reply.detail {
        Detail::Number(listeners) => u64::try_from(listeners).unwrap_or(0),
        _ => 0,
    }
}

/// The state of a lock on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inspection {
    /// Whether any owner holds it.
    pub(crate) locked: bool,
    /// The remaining lease; `None` if the lock is free or has no expiry.
    pub(crate) remaining: Option<Duration>,
    /// The hold count of the asking owner.
    pub(crate) holds: u32,
}

/// What [`Guard::unlock`](crate::Guard::unlock) and [`Lock::unlock`](crate::Lock::unlock) did.
// Exhaustive: an owner has holds left or has none, and a caller matches both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The owner has no hold left, or on a read-write lock none of this side: a writer may still read. Another task of this
    /// client may hold the lock already.
    Fully,
    /// One of several holds: the owner still holds the lock.
    StillHeld {
        /// The number of the owner's remaining holds.
        holds: u32,
    },
}

/// Reads a `PTTL`. Negative replies mean no expiry or no key.
fn remaining(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// A lease as an argument, 0 for none.
fn lease_text(lease: Option<&Lease>) -> Bytes {
    lease.map_or_else(|| decimal(0), |lease| lease.text.clone())
}

/// A time as an argument, in milliseconds.
fn millis(duration: Duration) -> Bytes {
    decimal(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// A number as an argument.
pub(crate) fn decimal(number: u64) -> Bytes {
    const DIGITS: &[u8; 10] = b"0123456789";
    match usize::try_from(number) {
        // Hold counts travel with every acquisition and release, and nearly always have one digit.
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
