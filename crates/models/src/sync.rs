//! Replaces the crate's `src/sync.rs`: the same names, with loom's primitives.

mod clock;
mod map;
mod notify;

use std::sync::PoisonError;

pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

pub(crate) use clock::{Clock, timeout_at};
pub(crate) use map::DashMap;
pub(crate) use notify::Notify;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `model` in every interleaving of its threads with at most `preemptions` preemptions, and prints their number.
/// `LOOM_MAX_PREEMPTIONS` sets another bound.
pub(crate) fn explore(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = runs.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    println!(
        "{} interleavings",
        runs.load(std::sync::atomic::Ordering::Relaxed)
    );
}
