//! The watchdog's sleep: `src/engine/alarm.rs`.

use std::sync::Arc;

use loom::{future::block_on, thread};
use tokio::time::Instant;

use super::alarm::Alarm;
use crate::sync::{Clock, Mutex, explore, lock};

/// An alarm, and the recorded time of each of its entries.
#[derive(Clone)]
struct Model {
    alarm: Arc<Alarm<u64>>,
    entered: [Arc<Mutex<Option<Instant>>>; 2],
}

impl Model {
    fn new() -> Self {
        Self {
            alarm: Arc::default(),
            entered: std::array::from_fn(|_| Arc::new(Mutex::new(None))),
        }
    }

    /// Moves an entry to `seconds` after the start, or removes it.
    fn set(&self, number: u64, seconds: Option<u64>) {
        let at = seconds.map(|seconds| Clock::get().at(seconds));
        self.alarm
            .set(number, &self.entered[number as usize], || at, || number);
    }

    /// Sleeps and collects due entries as the watchdog does, until it has found `entries`.
    fn watch(&self, entries: usize) -> Vec<u64> {
        let mut found = Vec::new();
        while found.len() < entries {
            block_on(self.alarm.wait());
            found.extend(self.alarm.due(Clock::get().now()));
        }
        found
    }

    /// Runs [`watch`](Self::watch) on a thread. After a lost wake-up all threads wait, which loom reports as a deadlock.
    fn watching(&self, entries: usize) -> thread::JoinHandle<Vec<u64>> {
        let model = self.clone();
        thread::spawn(move || model.watch(entries))
    }
}

/// A hold is added while the watchdog goes to sleep without entries.
pub fn added_to_none() {
    explore(None, || {
        let model = Model::new();
        let watching = model.watching(1);
        model.set(0, Some(10));
        let clock = Clock::get();
        clock.advance(clock.at(10));
        assert_eq!(watching.join().unwrap(), [0]);
    });
}

/// An earlier hold is added while the watchdog goes to sleep for a later one. Time passes only up to the earlier one, so the watchdog
/// must wake for it.
pub fn added_before_another() {
    explore(Some(3), || {
        let model = Model::new();
        model.set(0, Some(20));
        let watching = model.watching(1);
        model.set(1, Some(10));
        let clock = Clock::get();
        clock.advance(clock.at(10));
        assert_eq!(watching.join().unwrap(), [1]);
    });
}

/// Two threads add holds.
pub fn added_by_two_threads() {
    explore(Some(2), || {
        let model = Model::new();
        let watching = model.watching(2);
        let other = model.clone();
        let adding = thread::spawn(move || other.set(1, Some(10)));
        model.set(0, Some(10));
        adding.join().unwrap();
        let clock = Clock::get();
        clock.advance(clock.at(10));
        let mut found = watching.join().unwrap();
        found.sort_unstable();
        assert_eq!(found, [0, 1]);
    });
}

/// A hold moves to an earlier time after the watchdog has collected the due entries.
pub fn moved_to_an_earlier_time() {
    explore(Some(3), || {
        let model = Model::new();
        let clock = Clock::get();
        model.set(0, Some(0));
        model.set(1, Some(20));
        let watching = model.watching(2);
        model.set(1, Some(10));
        clock.advance(clock.at(10));
        assert_eq!(watching.join().unwrap(), [0, 1]);
    });
}

/// Two threads move one hold. The later move counts, and no stale entry remains.
pub fn moved_by_two_threads() {
    explore(Some(3), || {
        let model = Model::new();
        let at = Arc::new(Mutex::new(None));
        let move_to = |model: &Model, at: &Mutex<Option<Instant>>, seconds: Option<u64>| {
            *lock(at) = seconds.map(|seconds| Clock::get().at(seconds));
            model.alarm.set(0, &model.entered[0], || *lock(at), || 0);
        };
        let (other, its) = (model.clone(), at.clone());
        let moving = thread::spawn(move || move_to(&other, &its, Some(10)));
        move_to(&model, &at, Some(20));
        moving.join().unwrap();
        let last = *lock(&at);
        assert_eq!(*lock(&model.entered[0]), last);
        let clock = Clock::get();
        assert_eq!(model.alarm.due(clock.at(30)).len(), 1);
        move_to(&model, &at, None);
        assert!(model.alarm.due(clock.at(30)).is_empty());
    });
}
