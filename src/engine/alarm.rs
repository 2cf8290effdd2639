//! The timer of a background task with many entries, such as the watchdog.
//!
//! Any thread may move an entry. The task sleeps until the earliest deadline, and publishes that
//! time in `looks_at`. A thread notifies the task only if its entry is due earlier, which is rare.
//!
//! No deadline is missed: a thread writes its entry before it reads `looks_at`. The task writes
//! `looks_at` before it reads the entries once more. So the thread sees the task's time, or the
//! task sees the thread's entry.

use tokio::time::Instant;

use super::deadline_queue::DeadlineQueue;
use crate::sync::{AtomicU64, Mutex, Notify, Ordering, lock, timeout_at};

/// Shards, so that tasks seldom contend for one mutex.
const SHARDS: usize = 8;

const NEVER: u64 = u64::MAX;

/// Entries by deadline, and the sleep of the one task that handles them.
pub(super) struct Alarm<T> {
    shards: [Mutex<DeadlineQueue<u64, T>>; SHARDS],
    started: Instant,
    /// The time of the task's next look, in milliseconds after `started`; 0 while it looks.
    looks_at: AtomicU64,
    earlier: Notify,
}

impl<T> Default for Alarm<T> {
    fn default() -> Self {
        Self {
            shards: Default::default(),
            started: Instant::now(),
            looks_at: AtomicU64::new(NEVER),
            earlier: Notify::new(),
        }
    }
}

impl<T> Alarm<T> {
    #[inline]
    fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }

    /// Moves the entry `number` from the deadline in `entered` to the one that `at` returns; `None`
    /// removes it.
    #[inline]
    pub(super) fn set(
        &self,
        number: u64,
        entered: &Mutex<Option<Instant>>,
        at: impl FnOnce() -> Option<Instant>,
        entry: impl FnOnce() -> T,
    ) {
        let mut shard = lock(&self.shards[number as usize % SHARDS]);
        // Read under the mutex: of two concurrent calls, the later one writes the later state.
        let at = at();
        shard.set(number, &mut lock(entered), at, entry);
        drop(shard);
        // The entry is written before `looks_at` is read (see the module's documentation).
        if at.is_some_and(|at| self.millis(at) < self.looks_at.load(Ordering::SeqCst)) {
            self.earlier.notify_one();
        }
    }

    /// Takes out the entries that are due at `now`.
    pub(super) fn due(&self, now: Instant) -> Vec<T> {
        self.looks_at.store(0, Ordering::SeqCst);
        self.shards
            .iter()
            .flat_map(|shard| lock(shard).due(now))
            .collect()
    }

    fn next(&self) -> Option<Instant> {
        self.shards
            .iter()
            .filter_map(|shard| lock(shard).next())
            .min()
    }

    /// Completes when an entry is due, and sometimes earlier. Only one task may wait.
    pub(super) async fn wait(&self) {
        self.wait_or(|_| None).await;
    }

    /// As [`wait`](Self::wait), and also at the time that `also` returns, by whether there are entries.
    pub(super) async fn wait_or(&self, also: impl Fn(bool) -> Option<Instant>) {
        let next = self.next();
        let looks = next.into_iter().chain(also(next.is_some())).min();
        self.looks_at.store(
            looks.map_or(NEVER, |looks| self.millis(looks)),
            Ordering::SeqCst,
        );
        if self.next() != next {
            return;
        }
        match looks {
            Some(looks) => drop(timeout_at(looks, self.earlier.notified()).await),
            None => self.earlier.notified().await,
        }
    }
}
