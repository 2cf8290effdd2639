//! The holds of a client, and the report of its shutdown.

use std::{sync::Arc, time::Instant};

use crate::owner::OwnerId;

/// The holds of one owner on one lock, from [`LockClient::holds`](crate::LockClient::holds).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// The lock.
    pub name: Arc<str>,
    /// The present owner. After a hand-off in memory, and for readers that share a hold, the server shows another owner.
    pub owner: OwnerId,
    /// The number of holds, with a guard or leaked.
    pub holds: u32,
    /// The time of the first of these holds. Readers that share a hold have one time.
    pub since: Instant,
    /// The end of their validity without another renewal.
    pub valid_until: Instant,
}

/// The holds that [`LockClient::shutdown`](crate::LockClient::shutdown) or
/// [`shutdown_and_release`](crate::LockClient::shutdown_and_release) did not release. A lock that
/// [`run_at_least`](crate::Lock::run_at_least) keeps on purpose is not listed, nor is a hold whose validity had ended before the call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The holds that end only with their leases: at most 1,000 entries. If there are 1,000, further holds may remain.
    pub unreleased: Vec<Unreleased>,
}

/// Holds of one owner on one lock that end only with their lease. Readers that share a hold on the server are listed one by one.
/// An owner has an entry for each refused unlock, and one for the remaining holds of each side of a read-write lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreleased {
    /// The lock.
    pub name: Arc<str>,
    /// The owner that held it.
    pub owner: OwnerId,
    /// The number of holds of this entry.
    pub holds: u32,
    /// The end of the validity, which may have come during the shutdown. The server keeps the hold until 1 % of the lease and 2 ms after
    /// that, or until a later end that another request of the owner has set.
    pub until: Instant,
}
