//! Synchronization primitives of the files that `crates/models` checks in every interleaving of threads. There, a module of the same
//! name provides loom's primitives, so this list must stay short.

use std::sync::PoisonError;
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

pub(crate) use dashmap::DashMap;
pub(crate) use tokio::{sync::Notify, time::timeout_at};

/// Locks `mutex`. A panic leaves its state consistent, so poisoning does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
