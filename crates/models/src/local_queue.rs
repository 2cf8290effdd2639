//! The local queue, the waiters of one client for one lock: `src/engine/local_lock/`.

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use loom::{future::block_on, thread};
use tokio::time::Instant;

use super::{
    local_lock::{Current, Entered, EntryId, LocalLock, Step},
    room::Signal,
};
use crate::{
    owner::Owner,
    sync::{AtomicUsize, Clock, Mutex, Ordering, explore, lock},
};

/// A hold, with the number of its tenure. Its drop hands the lock off, or releases it.
struct Hold {
    model: Model,
    number: Option<u64>,
}

type Local = LocalLock<u64, (), Hold>;

/// A client, and a server with one lock, which no other client uses.
#[derive(Clone)]
struct Model {
    local: Arc<Local>,
    is_held: Arc<Mutex<bool>>,
    numbers: Arc<AtomicUsize>,
    /// The number of requests.
    asked: Arc<AtomicUsize>,
    /// The number of tasks that have the lock now.
    inside: Arc<AtomicUsize>,
}

fn now() -> Instant {
    Clock::get().now()
}

/// An entry in the queue. Its drop removes it.
struct QueueEntry<'a> {
    local: &'a Local,
    owner: Owner,
    id: EntryId,
    signal: Option<Arc<Signal<Hold>>>,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let notified = self.local.leave(self.id, None);
        let passed = self.signal.as_ref();
        drop(passed.and_then(|signal| signal.take()));
        drop(notified);
    }
}

impl Model {
    fn new() -> Self {
        Self {
            local: Arc::default(),
            is_held: Arc::new(Mutex::new(false)),
            numbers: Arc::new(AtomicUsize::new(1)),
            asked: Arc::new(AtomicUsize::new(0)),
            inside: Arc::new(AtomicUsize::new(0)),
        }
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::SeqCst) as u64
    }

    fn hold(&self, number: u64) -> Hold {
        Hold {
            model: self.clone(),
            number: Some(number),
        }
    }

    /// Acquires from the server. A request that follows a release finds the lock free.
    fn ask(&self, owner: Owner) -> Hold {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let was_held = std::mem::replace(&mut *lock(&self.is_held), true);
        assert!(!was_held, "a request although another task has the lock");
        let current = Current {
            owner,
            tenure: self.number(),
            number: 0,
        };
        let number = current.tenure;
        let current = Current { number, ..current };
        let ends = now() + Duration::from_millis(2);
        let notified = self.local.record_grant(current, ends, |_| false);
        assert!(notified.is_ok(), "two tasks have the lock");
        self.hold(number)
    }

    /// Waits for the lock. After a lost wake-up it waits without end, which loom reports as a deadlock.
    fn enter(&self) -> Hold {
        let entry = self.wait();
        let Some(signal) = &entry.signal else {
            return self.ask(entry.owner);
        };
        loop {
            match self.local.next_step(entry.id, signal) {
                Step::Wait => block_on(signal.notified()),
                Step::Acquired(held) => return held,
                Step::Ask(_) => return self.ask(entry.owner),
                Step::Reenter => panic!("the owner is new and holds nothing"),
            }
        }
    }

    /// Acquires, checks exclusion, and releases.
    fn work(&self) {
        let hold = self.enter();
        assert_eq!(
            self.inside.fetch_add(1, Ordering::SeqCst),
            0,
            "two tasks are inside"
        );
        self.inside.fetch_sub(1, Ordering::SeqCst);
        drop(hold);
    }

    /// Enters the queue.
    fn wait(&self) -> QueueEntry<'_> {
        let owner = Owner::new();
        let (id, signal) = match self.local.enter(owner, || ((), Signal::new(owner))) {
            Entered::Asker(id) => (id, None),
            Entered::Waiter { id, signal, .. } => (id, Some(signal)),
            Entered::AlreadyHolds => panic!("the owner is new and holds nothing"),
        };
        QueueEntry {
            local: &self.local,
            owner,
            id,
            signal,
        }
    }

    /// Begins to wait, and gives up.
    fn give_up(&self) {
        drop(self.wait());
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(number) = self.number.take() else {
            return;
        };
        let Model { local, is_held, .. } = &self.model;
        let next = self.model.number();
        let passed = local.hand_off(number, now(), |waiter| {
            let current = Current {
                owner: waiter.signal.owner,
                tenure: next,
                number: next,
            };
            Some((current, self.model.hold(next)))
        });
        if passed.is_none() {
            local.begin_release(now());
            // Requests of other tasks from here on follow the release.
            *lock(is_held) = false;
            drop(local.end_tenure(number));
        }
    }
}

/// Three tasks want the lock at the same time: all get it, one at a time.
pub fn three_tasks() {
    explore(Some(2), || {
        let model = Model::new();
        let others = [model.clone(), model.clone()];
        let others = others.map(|other| thread::spawn(move || other.work()));
        model.work();
        for other in others {
            other.join().unwrap();
        }
        assert!(model.local.current().is_none() && !*lock(&model.is_held));
        assert_eq!(model.local.waiting(), 0);
    });
}

/// A waiter gives up while the lock is handed to it: the lock goes to the next waiter, or back to the server.
pub fn passed_to_a_waiter_that_leaves() {
    explore(Some(3), || {
        let model = Model::new();
        let hold = model.enter();
        let (goes, waits) = (model.clone(), model.clone());
        let going = thread::spawn(move || goes.give_up());
        let waiting = thread::spawn(move || waits.work());
        drop(hold);
        going.join().unwrap();
        waiting.join().unwrap();
        assert!(model.local.current().is_none() && !*lock(&model.is_held));
    });
}

/// A waiter gives up while a check takes the hold back that it was handed: the queue keeps no entry of it.
pub fn checked_while_the_successor_leaves() {
    explore(None, || {
        let model = Model::new();
        let hold = model.enter();
        let entry = model.wait();
        // Polled once, and never again.
        let mut notified = Box::pin(entry.signal.as_ref().expect("it waits").notified());
        let mut context = Context::from_waker(Waker::noop());
        assert!(notified.as_mut().poll(&mut context).is_pending());
        drop(hold);
        let checks = model.clone();
        let checking = thread::spawn(move || {
            let late = now() + Duration::from_secs(1);
            let check = checks
                .local
                .check(late, |_| Duration::MAX, |()| true, |_| ());
            drop((check.withdrawn, check.notified));
        });
        drop(notified);
        drop(entry);
        checking.join().unwrap();
        assert!(model.local.current().is_none() && !*lock(&model.is_held));
        assert_eq!(
            model.local.waiting(),
            0,
            "a waiter that has gone is waited for"
        );
    });
}

/// The asker gives up while another task arrives: that task asks.
pub fn asker_goes_while_another_comes() {
    explore(None, || {
        let model = Model::new();
        let goes = model.clone();
        let going = thread::spawn(move || goes.give_up());
        model.work();
        going.join().unwrap();
        assert!(model.local.current().is_none());
    });
}

/// Within the hand-off window, a waiter gets the lock without a request.
pub fn passed_on() {
    explore(None, || {
        let model = Model::new();
        let hold = model.enter();
        let waits = model.clone();
        let waiting = thread::spawn(move || waits.work());
        let waited = model.local.waiting() == 1;
        drop(hold);
        waiting.join().unwrap();
        let asked = model.asked.load(Ordering::SeqCst);
        assert!(asked == 1 || !waited && asked == 2, "{asked}");
    });
}
