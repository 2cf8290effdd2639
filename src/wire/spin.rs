//! The lock that is polled: Redisson's `getSpinLock`.
//!
//! Its data are the reentrant lock's. Redisson publishes no release of it; this crate does, for its own listeners.

use super::{Kind, LockProtocol, reentrant::ReentrantProtocol, sealed::Known};

/// A lock whose waiters ask again and again: see [`LockClient::spin_lock`](crate::LockClient::spin_lock).
#[derive(Debug, Clone, Copy)]
pub enum Spin {}

impl Kind for Spin {}

impl Known for Spin {
    const PROTOCOL: &'static dyn LockProtocol = &ReentrantProtocol {
        most_holds: u32::MAX,
        announced: false,
    };
}
