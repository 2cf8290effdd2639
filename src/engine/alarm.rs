//! The sleep of a task that looks after many entries: any thread moves an entry, and the task wakes for the earliest.

use tokio::time::Instant;

use super::deadline_queue::DeadlineQueue;
use crate::sync::{AtomicU64, Mutex, Notify, Ordering, lock, timeout_at};

/// Tables, so that locking and unlocking tasks seldom meet at one.
const SHARDS: usize = 8;

const NEVER: u64 = u64::MAX;

/// What is due when, and the sleep of the one task that waits for it.
pub(super) struct Alarm<T> {
    shards: [Mutex<DeadlineQueue<u64, T>>; SHARDS],
    started: Instant,
    /// When the task looks by itself, in milliseconds after `started`; 0 while it is looking.
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

    /// Moves the entry `number`, which stands under `entered`, to the time that `at` returns; `None` removes it.
    #[inline]
    pub(super) fn set(
        &self,
        number: u64,
        entered: &Mutex<Option<Instant>>,
        at: impl FnOnce() -> Option<Instant>,
        entry: impl FnOnce() -> T,
    ) {
        let mut shard = lock(&self.shards[number as usize % SHARDS]);
        // Read under the lock: of two calls at a time, the later one writes what is true later.
        let at = at();
        shard.set(number, &mut lock(entered), at, entry);
        drop(shard);
        // The entry is there before this is read, and the task reads the entries once more after it has written this.
        if at.is_some_and(|at| self.millis(at) < self.looks_at.load(Ordering::SeqCst)) {
            self.earlier.notify_one();
        }
    }

    /// Takes out what is due at `now`.
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

    /// Completes when something is due, and now and then earlier. One task waits.
    pub(super) async fn wait(&self) {
        let next = self.next();
        self.looks_at.store(
            next.map_or(NEVER, |next| self.millis(next)),
            Ordering::SeqCst,
        );
        if self.next() != next {
            return;
        }
        match next {
            Some(next) => drop(timeout_at(next, self.earlier.notified()).await),
            None => self.earlier.notified().await,
        }
    }
}
