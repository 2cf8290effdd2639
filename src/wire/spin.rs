//! The lock that is polled: Redisson's `getSpinLock`.
//!
//! Its data are the reentrant lock's. Redisson publishes no release of a spin lock. This crate does, for waiters of other kinds,
//! where the server lets it.

use super::{Kind, KindName, LockProtocol, reentrant::ReentrantProtocol, sealed::Known};

/// A lock whose waiters poll: see [`LockClient::spin_lock`](crate::LockClient::spin_lock).
#[derive(Debug, Clone, Copy)]
pub enum Spin {}

impl Kind for Spin {}

impl Known for Spin {
    const PROTOCOL: &'static dyn LockProtocol = &ReentrantProtocol {
        kind: KindName::Spin,
    };
}
