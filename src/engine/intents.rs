//! Intents: when a waiting writer keeps new readers out, and for how long. Pure.
//!
//! Overlapping readers never leave a lock free, so a writer beside them would wait forever. A
//! writer of this crate that has waited for a while sets an *intent* on the server
//! (`write_intend.lua`). For its length, clients of this crate are granted no new read holds. The
//! present readers finish, and the lock is free for the writer.
//!
//! - The first intent at a lock lasts [`SHORTEST_INTENT`]. An intent without a grant to a writer was
//!   shorter than the readers' critical sections, so the next one is twice as long. An intent that
//!   worked sets the length of the next one: twice the time that it took.
//! - An intent comes after a wait of four times its length, so it keeps readers out for at most a
//!   fifth of the time. Where not even the longest intent works, or the lock has no readers,
//!   intents become rarer: down to one per [`LONGEST_INTENT_PAUSE`].

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    deadline_queue::DeadlineQueue,
    time_limits::{
        INTENT_REMEMBERED_FOR, INTENT_TRANSIT, LONGEST_INTENT, LONGEST_INTENT_PAUSE,
        SHORTEST_INTENT,
    },
};
use crate::{hash::HashMap, wire::LockSpec};

/// The wait before an intent, and after it, as a multiple of its length.
const REST: u32 = 4;
/// The fewest locks that are searched for entries to forget.
const FEW: usize = 64;

#[derive(Debug)]
struct Intent {
    spec: Arc<LockSpec>,
    length: Duration,
    /// The wait before the next intent, if it is longer than its length demands.
    pause: Duration,
    /// The time of the next intent, while writers wait.
    due: Option<Instant>,
    /// The time of the last intent, if no writer has acquired the lock since.
    left: Option<Instant>,
    /// The server refuses other intents until then.
    rests_until: Instant,
    used: Instant,
}

impl Intent {
    /// Schedules the next intent: after a wait, and when the server accepts one again.
    fn schedule(&mut self, now: Instant, due: &mut DeadlineQueue<Arc<str>>) {
        let pause = self.pause.max(REST * self.length);
        let at = self.rests_until.max(now + pause);
        due.set(self.spec.name.clone(), &mut self.due, Some(at), || ());
    }

    /// Makes intents rarer: they are of no use at present.
    fn make_rarer(&mut self, times: u32) {
        self.pause = (times * self.pause.max(REST * self.length)).min(LONGEST_INTENT_PAUSE);
    }
}

/// The intents of one client, by the names of the locks.
#[derive(Debug)]
pub(super) struct Intents {
    on: bool,
    locks: HashMap<Arc<str>, Intent>,
    due: DeadlineQueue<Arc<str>>,
    /// The number of locks from which on entries to forget are searched for.
    look_at: usize,
}

impl Intents {
    pub(super) fn new(on: bool) -> Self {
        Self {
            on,
            locks: HashMap::default(),
            due: DeadlineQueue::default(),
            look_at: FEW,
        }
    }

    /// Adds a writer that was refused and waits.
    pub(super) fn add_writer(&mut self, spec: &Arc<LockSpec>, now: Instant) {
        if !self.on {
            return;
        }
        let name = &spec.name;
        if !self.locks.contains_key(name) {
            self.forget_old(now);
        }
        let intent = self.locks.entry(name.clone()).or_insert_with(|| Intent {
            spec: spec.clone(),
            length: SHORTEST_INTENT,
            pause: Duration::ZERO,
            due: None,
            left: None,
            rests_until: now,
            used: now,
        });
        intent.used = now;
        if intent.due.is_none() {
            intent.schedule(now, &mut self.due);
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.next()
    }

    /// Takes the next lock at which an intent is due, and the intent's length.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(Arc<LockSpec>, Duration)> {
        let (name, ()) = self.due.pop_due(now)?;
        let intent = self.locks.get_mut(&name)?;
        if intent.left.is_some() {
            if intent.length == LONGEST_INTENT {
                intent.make_rarer(2);
            }
            intent.length = (2 * intent.length).min(LONGEST_INTENT);
        }
        (intent.left, intent.used) = (Some(now), now);
        intent.rests_until = now + (1 + REST) * intent.length + INTENT_TRANSIT;
        intent.schedule(now, &mut self.due);
        Some((intent.spec.clone(), intent.length))
    }

    /// Records that the server refused an intent: another client has set one not long ago, or the
    /// lock has no readers.
    pub(super) fn record_refusal(&mut self, name: &Arc<str>, has_no_readers: bool, now: Instant) {
        let Some(intent) = self.locks.get_mut(name) else {
            return;
        };
        intent.left = None;
        if has_no_readers {
            // A writer holds the lock, perhaps for long.
            intent.make_rarer(8);
            if intent.due.is_some() {
                intent.schedule(now, &mut self.due);
            }
        }
    }

    /// Records that a writer acquired the lock.
    pub(super) fn record_grant(&mut self, name: &str, now: Instant) {
        let Some(intent) = self.locks.get_mut(name) else {
            return;
        };
        intent.pause = Duration::ZERO;
        if let Some(left) = intent.left.take() {
            let took = now.saturating_duration_since(left);
            intent.length = intent.length.min(2 * took).max(SHORTEST_INTENT);
        }
    }

    /// Removes the writers: none waits any more. Returns whether an intent may still keep readers out.
    pub(super) fn remove_writers(&mut self, name: &Arc<str>, now: Instant) -> bool {
        let Some(intent) = self.locks.get_mut(name) else {
            return false;
        };
        self.due.set(name.clone(), &mut intent.due, None, || ());
        let left = intent.left.take();
        left.is_some_and(|left| now < left + intent.length)
    }

    fn forget_old(&mut self, now: Instant) {
        if self.locks.len() < self.look_at {
            return;
        }
        self.locks
            .retain(|_, intent| intent.due.is_some() || now < intent.used + INTENT_REMEMBERED_FOR);
        self.look_at = FEW.max(2 * self.locks.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{LockProtocol, sealed::Known};

    fn spec(name: &str) -> Arc<LockSpec> {
        let wire: &dyn LockProtocol = crate::Write::PROTOCOL;
        Arc::new(wire.spec(name.into(), &crate::Config::default()))
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Takes intents as they are due until one is as long as `needed`. Returns its length.
    fn until_one_works(intents: &mut Intents, spec: &Arc<LockSpec>, needed: Duration) -> Duration {
        loop {
            let due = intents.next_due().expect("a writer waits");
            let (taken, length) = intents.take_due(due).expect("it is due");
            assert_eq!(taken.name, spec.name);
            assert!(intents.take_due(due).is_none(), "once");
            if length >= needed {
                intents.record_grant(&spec.name, due + needed);
                intents.remove_writers(&spec.name, due + needed);
                return length;
            }
        }
    }

    #[test]
    fn intent_grows_until_it_works_and_is_remembered() {
        let (mut intents, name, now) = (Intents::new(true), spec("a"), Instant::now());
        intents.add_writer(&name, now);
        intents.add_writer(&name, now + millis(1));
        assert_eq!(intents.next_due(), Some(now + 4 * SHORTEST_INTENT));
        assert_eq!(until_one_works(&mut intents, &name, millis(25)), millis(32));
        assert_eq!(intents.next_due(), None, "no writer waits");
        let later = now + Duration::from_secs(1);
        intents.add_writer(&name, later);
        assert_eq!(intents.next_due(), Some(later + millis(128)));
        // A refused intent says nothing about the readers.
        let (_, length) = intents.take_due(later + millis(128)).unwrap();
        intents.record_refusal(&name.name, false, later);
        assert_eq!(length, millis(32));
        assert_eq!(until_one_works(&mut intents, &name, millis(3)), millis(32));
        intents.add_writer(&name, later);
        assert_eq!(until_one_works(&mut intents, &name, millis(3)), millis(6));
    }

    #[test]
    fn intent_of_a_writer_that_gives_up_is_taken_back() {
        let (mut intents, name, now) = (Intents::new(true), spec("a"), Instant::now());
        intents.add_writer(&name, now);
        assert!(!intents.remove_writers(&name.name, now));
        intents.add_writer(&name, now);
        let due = intents.next_due().unwrap();
        intents.take_due(due);
        assert!(intents.remove_writers(&name.name, due + SHORTEST_INTENT / 2));
        assert!(!intents.remove_writers(&name.name, due + SHORTEST_INTENT / 2));
        let mut off = Intents::new(false);
        off.add_writer(&name, now);
        assert_eq!(off.next_due(), None);
    }

    #[test]
    fn intents_that_are_of_no_use_become_rarer() {
        let (mut intents, name, now) = (Intents::new(true), spec("a"), Instant::now());
        intents.add_writer(&name, now);
        let mut count = 0;
        while intents.next_due().unwrap() < now + Duration::from_secs(60) {
            let due = intents.next_due().unwrap();
            intents.take_due(due);
            count += 1;
        }
        assert!((15..30).contains(&count), "{count} in a minute");
        let later = now + Duration::from_secs(60);
        intents.record_refusal(&name.name, true, later);
        assert_eq!(intents.next_due(), Some(later + LONGEST_INTENT_PAUSE));
        intents.record_grant(&name.name, later);
        intents.remove_writers(&name.name, later);
        intents.add_writer(&name, later);
        assert!(intents.next_due().unwrap() < later + Duration::from_secs(1));
    }

    #[test]
    fn locks_without_writers_are_forgotten() {
        let (mut intents, mut now) = (Intents::new(true), Instant::now());
        for i in 0..100_000 {
            let name = spec(&i.to_string());
            intents.add_writer(&name, now);
            intents.remove_writers(&name.name, now);
            now += millis(1);
        }
        assert!(intents.locks.len() <= 20_000 && intents.due.next().is_none());
    }

    proptest! {
        #[test]
        fn readers_are_kept_out_for_a_fifth_of_the_time(
            needed in 0_u64..100, gaps in prop::collection::vec(0_u64..50, 1..50),
        ) {
            let (mut intents, name, begun) = (Intents::new(true), spec("a"), Instant::now());
            let (mut now, mut out) = (begun, Duration::ZERO);
            let needed = millis(needed);
            for gap in gaps {
                now += millis(gap);
                intents.add_writer(&name, now);
                for _ in 0..8 {
                    let due = intents.next_due().unwrap();
                    let (_, length) = intents.take_due(due).unwrap();
                    prop_assert!((SHORTEST_INTENT..=LONGEST_INTENT).contains(&length));
                    out += length.min(needed);
                    now = due + length.min(needed);
                    if length >= needed {
                        intents.record_grant(&name.name, now);
                        break;
                    }
                }
                intents.remove_writers(&name.name, now);
            }
            prop_assert!(5 * out <= now - begun + 5 * LONGEST_INTENT, "{out:?} of {:?}", now - begun);
        }
    }
}
