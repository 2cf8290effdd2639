//! The kinds of lock in the suite. A new kind is a line in each of the two tables, and one in
//! `main.rs`.

use redisson_lock::{AnyLock, LockClient, MultiLock, RedLock};

use crate::rust_peer::Kinds;
use crate::steps;

/// The properties of a kind of lock.
#[derive(Debug)]
pub struct Kind {
    /// The name in both peers: a KIND of `Peer.java` and of [`MADE_BY`].
    pub name: &'static str,
    /// The lock argument behind the KIND: the name, or the members with their names.
    pub lock: fn(name: &str) -> String,
    /// The first version of Redisson that has the kind.
    pub since: (u32, u32),
    /// The kind that other owners cannot acquire while this one is held.
    pub rival: &'static Kind,
    /// The suffix of the owner in the lock's hash.
    pub field_ends: &'static str,
    /// The value of the field `mode` in the lock's hash.
    pub mode: Option<&'static str>,
    /// The channel of the lock's waiters, or the common prefix of their channels.
    pub channel: fn(lock: &str) -> String,
    pub waits: Waits,
    /// Whether the owner may acquire it again.
    pub reenters: bool,
    /// Redisson adds the lease of a re-entry to the rest of a write lock's lease, and this crate
    /// takes the longer one. Redisson's group lease also gives fencing counters an expiry, which
    /// this crate never does.
    pub leases_differ: bool,
    /// Some versions of Redisson report success for the release of a lost lock, or publish the
    /// refused release. This crate refuses it and sends nothing.
    pub unlock_forgives: bool,
    /// Redisson publishes no message at a release, and this crate does.
    pub java_is_silent: bool,
    /// The steps of the [conformance](crate::conformance) test.
    pub steps: &'static [&'static [&'static str]],
}

impl Kind {
    /// Whether the kind is a group of locks.
    pub fn is_group(&self) -> bool {
        (self.lock)("name") != "name"
    }
}

/// How the waiters of both languages wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// They subscribe to a channel.
    Listening,
    /// They queue, and each subscribes to its own channel.
    Queued,
    /// Redisson's waiters poll.
    Asking,
}

/// The constructors of the Rust peer's locks. `Peer.java` has the same table.
pub const MADE_BY: Kinds = &[
    ("reentrant", |client, name| {
        Box::new(client.reentrant_lock(name))
    }),
    ("fair", |client, name| Box::new(client.fair_lock(name))),
    ("read", |client, name| {
        Box::new(client.read_write_lock(name).read().clone())
    }),
    ("write", |client, name| {
        Box::new(client.read_write_lock(name).write().clone())
    }),
    ("fenced", |client, name| Box::new(client.fenced_lock(name))),
    ("spin", |client, name| Box::new(client.spin_lock(name))),
    ("nonreentrant", |client, name| {
        Box::new(client.non_reentrant_lock(name))
    }),
    ("nonreentrantfair", |client, name| {
        Box::new(client.non_reentrant_fair_lock(name))
    }),
    ("multi", |client, members| {
        Box::new(MultiLock::of(self::members(client, members)))
    }),
    ("redlock", |client, members| {
        Box::new(RedLock::of(self::members(client, members)))
    }),
];

/// The members `KIND:NAME,KIND:NAME` of a group.
fn members(client: &LockClient, members: &str) -> Vec<AnyLock> {
    members
        .split(',')
        .map(|member| {
            let (kind, name) = member.split_once(':').expect("a member is KIND:NAME");
            match kind {
                "fair" => client.fair_lock(name).into(),
                "write" => client.read_write_lock(name).write().clone().into(),
                "fenced" => client.fenced_lock(name).into(),
                _ => client.reentrant_lock(name).into(),
            }
        })
        .collect()
}

pub static REENTRANT: Kind = Kind {
    name: "reentrant",
    lock: str::to_owned,
    since: (3, 0),
    rival: &REENTRANT,
    field_ends: "",
    mode: None,
    channel: |lock| format!("redisson_lock__channel:{{{lock}}}"),
    waits: Waits::Listening,
    reenters: true,
    leases_differ: false,
    unlock_forgives: false,
    java_is_silent: false,
    steps: &[steps::PLAIN, steps::TAKEOVER],
};

pub static FAIR: Kind = Kind {
    name: "fair",
    rival: &FAIR,
    waits: Waits::Queued,
    unlock_forgives: true,
    steps: &[steps::PLAIN, steps::QUEUE],
    ..REENTRANT
};

pub static READ: Kind = Kind {
    name: "read",
    rival: &WRITE,
    field_ends: "",
    mode: Some("read"),
    leases_differ: false,
    ..WRITE
};

pub static WRITE: Kind = Kind {
    name: "write",
    rival: &WRITE,
    field_ends: ":write",
    mode: Some("write"),
    channel: |lock| format!("redisson_rwlock:{{{lock}}}"),
    leases_differ: true,
    unlock_forgives: true,
    steps: &[steps::READ_WRITE],
    ..REENTRANT
};

pub static FENCED: Kind = Kind {
    name: "fenced",
    rival: &FENCED,
    ..REENTRANT
};

pub static SPIN: Kind = Kind {
    name: "spin",
    rival: &SPIN,
    waits: Waits::Asking,
    java_is_silent: true,
    ..REENTRANT
};

pub static NON_REENTRANT: Kind = Kind {
    name: "nonreentrant",
    since: (4, 4),
    rival: &NON_REENTRANT,
    reenters: false,
    steps: &[steps::NON_REENTRANT],
    ..REENTRANT
};

pub static NON_REENTRANT_FAIR: Kind = Kind {
    name: "nonreentrantfair",
    since: (4, 4),
    rival: &NON_REENTRANT_FAIR,
    reenters: false,
    steps: &[steps::NON_REENTRANT, steps::QUEUE, steps::TAKEOVER],
    ..FAIR
};

pub static MULTI: Kind = Kind {
    name: "multi",
    lock: |name| {
        let kinds = ["reentrant", "fair", "write", "fenced"];
        let members = kinds.map(|kind| format!("{kind}:{name}:{kind}"));
        members.join(",")
    },
    rival: &MULTI,
    leases_differ: true,
    unlock_forgives: true,
    steps: &[steps::GROUP],
    ..REENTRANT
};

pub static RED_LOCK: Kind = Kind {
    name: "redlock",
    lock: |name| [1, 2, 3].map(|n| format!("reentrant:{name}:{n}")).join(","),
    rival: &RED_LOCK,
    ..MULTI
};

/// All kinds that the suite tests.
pub const ALL: &[&Kind] = &[
    &REENTRANT,
    &FAIR,
    &READ,
    &WRITE,
    &FENCED,
    &SPIN,
    &NON_REENTRANT,
    &NON_REENTRANT_FAIR,
    &MULTI,
    &RED_LOCK,
];
