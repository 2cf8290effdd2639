//! The locks that an owner may take only once: Redisson's `getNonReentrantLock` and `getNonReentrantFairLock`.
//!
//! Their data are those of the reentrant kinds. That an owner holds the lock already is known without asking.

use super::{
    Kind, LockProtocol, Queued, fair::FairProtocol, reentrant::ReentrantProtocol, sealed::Known,
};

/// A lock that its owner may not take again: see
/// [`LockClient::non_reentrant_lock`](crate::LockClient::non_reentrant_lock).
#[derive(Debug, Clone, Copy)]
pub enum NonReentrant {}

impl Kind for NonReentrant {}

impl Known for NonReentrant {
    const PROTOCOL: &'static dyn LockProtocol = &ReentrantProtocol {
        most_holds: 1,
        announced: true,
    };
}

/// A fair lock that its owner may not take again: see
/// [`LockClient::non_reentrant_fair_lock`](crate::LockClient::non_reentrant_fair_lock).
#[derive(Debug, Clone, Copy)]
pub enum NonReentrantFair {}

impl Kind for NonReentrantFair {}

impl Queued for NonReentrantFair {}

impl Known for NonReentrantFair {
    const PROTOCOL: &'static dyn LockProtocol = &FairProtocol { most_holds: 1 };
}
