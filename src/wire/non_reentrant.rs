//! The locks of which an owner has at most one hold: Redisson's `getNonReentrantLock` and `getNonReentrantFairLock`.
//!
//! Their data are those of the reentrant kinds. The client refuses a second hold without a request.

use super::{
    Kind, KindName, LockProtocol, Queued, fair::FairProtocol, reentrant::ReentrantProtocol,
    sealed::Known,
};

/// A lock that refuses its owner a second hold: see
/// [`LockClient::non_reentrant_lock`](crate::LockClient::non_reentrant_lock).
#[derive(Debug, Clone, Copy)]
pub enum NonReentrant {}

impl Kind for NonReentrant {}

impl Known for NonReentrant {
    const PROTOCOL: &'static dyn LockProtocol = &ReentrantProtocol {
        kind: KindName::NonReentrant,
    };
}

/// A fair lock that refuses its owner a second hold: see
/// [`LockClient::non_reentrant_fair_lock`](crate::LockClient::non_reentrant_fair_lock).
#[derive(Debug, Clone, Copy)]
pub enum NonReentrantFair {}

impl Kind for NonReentrantFair {}

impl Queued for NonReentrantFair {}

impl Known for NonReentrantFair {
    const PROTOCOL: &'static dyn LockProtocol = &FairProtocol {
        kind: KindName::NonReentrantFair,
    };
}
