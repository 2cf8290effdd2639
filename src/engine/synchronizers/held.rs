//! The permits that guards of this client have: a task of it that waits for permits may wait for
//! them.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    hash::HashMap,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// The permits of guards, by a number for each guard.
pub(super) struct HeldPermits {
    entries: Mutex<HashMap<u64, Held>>,
    numbers: AtomicU64,
    /// Whether anything asks for them ([`Config::deadlock_warning`](crate::Config::deadlock_warning)).
    is_kept: bool,
}

struct Held {
    name: Arc<str>,
    permits: u32,
    since: Instant,
    is_suspected: bool,
}

/// What guards of this client have of one semaphore.
#[derive(Default)]
pub(super) struct HeldHere {
    pub(super) permits: u64,
    /// Those that were held for long, and that no log line has counted before.
    pub(super) suspected: u64,
}

impl HeldPermits {
    pub(super) fn new(is_kept: bool) -> Self {
        Self {
            entries: Mutex::default(),
            numbers: AtomicU64::new(0),
            is_kept,
        }
    }

    /// Adds the permits of a guard, held since about `since`. Returns the guard's number.
    pub(super) fn add(&self, name: &Arc<str>, permits: u32, since: Instant) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        if self.is_kept && permits > 0 {
            let held = Held {
                name: name.clone(),
                permits,
                since,
                is_suspected: false,
            };
            lock(&self.entries).insert(number, held);
        }
        number
    }

    pub(super) fn remove(&self, number: u64) {
        if self.is_kept {
            lock(&self.entries).remove(&number);
        }
    }

    /// Counts what guards have of each semaphore in `here`. Suspects those that have had it for
    /// `longest`.
    pub(super) fn suspect(&self, here: &mut HashMap<&str, HeldHere>, longest: Duration) {
        for held in lock(&self.entries).values_mut() {
            let Some(here) = here.get_mut(&*held.name) else {
                continue;
            };
            here.permits += u64::from(held.permits);
            if held.since.elapsed() >= longest && !held.is_suspected {
                held.is_suspected = true;
                here.suspected += u64::from(held.permits);
            }
        }
    }
}
