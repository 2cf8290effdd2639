//! The kinds of lock that run through the suite. A new kind is a line in each of the two tables, and one in `main.rs`.

use crate::rust_peer::Kinds;

/// What the tests know of a kind of lock.
#[derive(Debug)]
pub struct Kind {
    /// What both peers call it: a KIND of `Peer.java` and of [`MADE_BY`].
    pub name: &'static str,
    /// The field of the lock's hash, after the owner.
    pub field_ends: &'static str,
    /// The channel that a waiter of the lock listens to.
    pub channel: fn(lock: &str) -> String,
}

/// How the Rust peer makes a lock of each kind; `Peer.java` has the same table.
pub const MADE_BY: Kinds = &[("reentrant", |client, name| {
    Box::new(client.reentrant_lock(name))
})];

pub const REENTRANT: Kind = Kind {
    name: "reentrant",
    field_ends: "",
    channel: |lock| format!("redisson_lock__channel:{{{lock}}}"),
};
