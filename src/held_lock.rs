//! What a client holds, and what it left when it ended.

use std::{sync::Arc, time::Instant};

use crate::owner::OwnerId;

/// What one owner holds of one lock, of [`LockClient::holds`](crate::LockClient::holds).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// The lock.
    pub name: Arc<str>,
    /// The holder, as the server shows it.
    pub owner: OwnerId,
    /// How many holds, guarded or leaked.
    pub holds: u32,
    /// Since when: the first of these holds.
    pub since: Instant,
    /// Until when they may be relied upon without another renewal.
    pub valid_until: Instant,
}

/// What [`LockClient::shutdown`](crate::LockClient::shutdown) could not release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The holds that end only with their leases.
    pub unreleased: Vec<Unreleased>,
}

/// Holds of one owner on one lock that end only with their lease.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreleased {
    /// The lock.
    pub name: Arc<str>,
    /// The owner that held it.
    pub owner: OwnerId,
    /// How many holds.
    pub holds: u32,
    /// When the lease ends, give or take the drift of clocks.
    pub until: Instant,
}
