//! The primitives of those protocols that `tests/models` runs in every interleaving of threads. There, a module of the same
//! name gives them loom's primitives, so this list stays short.

use std::sync::PoisonError;
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

pub(crate) use dashmap::DashMap;
pub(crate) use tokio::{sync::Notify, time::timeout_at};

/// Locks `mutex`, whose state is whole after a panic as well.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
