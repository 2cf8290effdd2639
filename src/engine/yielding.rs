//! Yields: when a client leaves a lock that it has released to other clients, and for how long.
//! Pure.
//!
//! A waiter in another client needs a message, a wake-up and a script before it can acquire a
//! released lock. The releasing client needs the script alone, and would win every time without a
//! rule.
//!
//! The rule: a release that other clients hear may begin a *yield*. Until its end, this client's
//! `lock` and `try_lock_for` wait, subscribed, and send nothing. A message about another client's
//! release ends it early.
//!
//! - *Length.* The first yield lasts [`SHORTEST_YIELD`]. A yield in which no other client acquired the
//!   lock was too short for the distance of the listeners, so the next one lasts twice as long. If
//!   a message shows that another client came and went within a yield, the next one lasts no longer
//!   than that took. The length thus follows the distance of the neighbours.
//! - *Unused yields.* A *streak* is the time since this client's first grant after the last yield,
//!   or after it left the lock alone for as long as a yield. After an unused yield, the next one is
//!   due when the streak has lasted four times as long as a yield. Listeners that never ask thus
//!   cost a fifth of the time at most, and a ninth once yields have their greatest length.
//!   Neighbours that cannot be counted, or that poll, cost a tenth.
//! - *Used yields.* After a yield that another client used, the next one is due sooner. For a
//!   client with one task, that is after a quarter of a yield's length. With waiting tasks, it is
//!   when the streak has lasted as long as the other clients had the lock, but never later than
//!   above.
//! - *Turns.* Where several clients listen, each gets a turn before this one is back. When one of
//!   them releases the lock, this client *stands back*: it waits for the length of a yield for each
//!   client that has had no turn yet. The client that has waited longest does not stand back, so no
//!   time is lost, and few attempts are in vain. If listeners never ask, this client notices it,
//!   and does not stand back for them for eight times as long.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::time_limits::{
    LONGEST_YIELD, LONGEST_YIELD_TO_POLLS, NEIGHBOURS_REMEMBERED_FOR, SHORTEST_YIELD,
};
use crate::hash::HashMap;
use crate::wire::{HoldMode, LockSpec};

/// The fewest locks that are searched for entries to forget.
const FEW: usize = 64;

/// The other clients that a release may concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Neighbours {
    /// No other client listened.
    None,
    /// This many other clients received the message of the release.
    Listening(u32),
    /// Listeners cannot be counted: there may be some.
    Uncounted,
    /// Other clients poll, if there are any.
    Polling,
}

impl Neighbours {
    fn count(self) -> u32 {
        match self {
            Neighbours::None => 0,
            Neighbours::Listening(count) => count,
            Neighbours::Uncounted | Neighbours::Polling => 1,
        }
    }

    fn longest(self) -> Duration {
        match self {
            Neighbours::Polling => LONGEST_YIELD_TO_POLLS,
            _ => LONGEST_YIELD,
        }
    }
}

/// The neighbours at one lock, as far as this client knows.
#[derive(Debug)]
struct Yielding {
    neighbours: Neighbours,
    /// The length of the next yield.
    length: Duration,
    /// Whether a yield of the greatest length was not used.
    is_futile: bool,
    /// How long other clients had the lock, in the last yield and after it, if they used it.
    used: Option<Duration>,
    /// The first grant since the last yield, or since another client had the lock.
    streak_began: Option<Instant>,
    /// The time of the last release, if no task of this client waited then.
    left: Option<Instant>,
    /// The last yield, until this client has the lock again.
    last: Option<Yield>,
    /// The number of neighbours that seem to be active, and the end of that assumption: in the last
    /// round, not all had their turn in time.
    active: Option<(u32, Instant)>,
    heard: Instant,
}

/// One yield, from the answer to a release on.
#[derive(Debug, Clone, Copy)]
struct Yield {
    began: Instant,
    until: Instant,
    /// Whether a task of this client has waited for its end.
    waited_for: bool,
    /// Whether another client has had the lock.
    used: bool,
    /// The number of releases by other clients since.
    turns: u32,
    /// For how long this client stands back, if it does.
    stand_back: Option<Duration>,
}

impl Yielding {
    fn new(neighbours: Neighbours, now: Instant) -> Self {
        Self {
            neighbours,
            length: SHORTEST_YIELD,
            is_futile: false,
            used: None,
            streak_began: None,
            left: None,
            last: None,
            active: None,
            heard: now,
        }
    }

    /// The length of a streak, if `waiting` tasks of this client wait.
    fn longest_streak(&self, waiting: usize) -> Duration {
        let factor = match self.neighbours {
            Neighbours::Listening(_) if self.is_futile => 8,
            Neighbours::Listening(_) => 4,
            _ => 9,
        };
        let longest = self.length * factor;
        match self.used {
            None => longest,
            Some(_) if waiting == 0 => self.length / 4,
            Some(used) => used.min(longest),
        }
    }

    fn is_due(&self, waiting: usize, now: Instant) -> bool {
        let lasted = |began: Instant| now.saturating_duration_since(began);
        self.streak_began
            .is_none_or(|began| lasted(began) >= self.longest_streak(waiting))
    }

    fn begin(&mut self, now: Instant) {
        self.last = Some(Yield {
            began: now,
            until: now + self.length,
            waited_for: false,
            used: false,
            turns: 0,
            stand_back: None,
        });
        self.streak_began = None;
    }

    fn record_grant(&mut self, now: Instant) {
        if self
            .left
            .take()
            .is_some_and(|left| now > left + self.length)
        {
            self.streak_began = Some(now);
        }
        self.streak_began.get_or_insert(now);
        let Some(last) = self.last.take() else {
            return;
        };
        if last.used {
            self.used = Some(now - last.began);
            self.is_futile = false;
            if let Some(stood_back) = last.stand_back
                && now >= last.until
            {
                // A neighbour that missed one turn may ask again, so the assumption ends.
                self.active = Some((last.turns, now + 8 * stood_back));
            }
        } else if last.waited_for && now >= last.until {
            let longest = self.neighbours.longest();
            (self.used, self.is_futile) = (None, self.length >= longest);
            self.length = (self.length * 2).min(longest);
        }
    }

    /// Records that another client used the yield.
    fn record_use(&mut self) {
        if let Some(last) = &mut self.last {
            last.used = true;
            self.streak_began = None;
        }
    }

    /// Records a release by another client. Returns the time until which this client stands back,
    /// if it does.
    fn record_foreign_release(&mut self, now: Instant) -> Option<Instant> {
        self.streak_began = None;
        let others = self.others(now);
        let last = self.last.as_mut()?;
        if !last.used {
            let took = now.saturating_duration_since(last.began);
            self.length = self.length.min(took).max(SHORTEST_YIELD);
        }
        last.used = true;
        last.turns += 1;
        let to_come = others.saturating_sub(last.turns);
        let stand_back = (self.length * to_come).min(LONGEST_YIELD);
        last.until = now + stand_back;
        last.stand_back = (to_come > 0).then_some(stand_back);
        last.stand_back.map(|_| last.until)
    }

    /// The number of neighbours that get a turn between two of this client.
    fn others(&self, now: Instant) -> u32 {
        let count = self.neighbours.count();
        match self.active {
            Some((active, until)) if now < until => count.min(active),
            _ => count,
        }
    }
}

/// The neighbours at each lock that had any lately.
#[derive(Debug)]
pub(super) struct Yields {
    /// Whether this client yields at all.
    on: bool,
    /// The two sides of a read-write lock have neighbours of their own.
    locks: HashMap<(Arc<str>, HoldMode), Yielding>,
    /// The number of locks from which on entries to forget are searched for.
    look_at: usize,
}

impl Yields {
    pub(super) fn new(on: bool) -> Self {
        Self {
            on,
            locks: HashMap::default(),
            look_at: FEW,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    fn at(&mut self, spec: &LockSpec) -> Option<&mut Yielding> {
        self.locks.get_mut(&key(spec))
    }

    /// Whether a release that other clients hear begins a yield, if `waiting` tasks of this client
    /// wait for the lock.
    pub(super) fn is_due(&mut self, spec: &LockSpec, waiting: usize, now: Instant) -> bool {
        self.on && self.at(spec).is_none_or(|lock| lock.is_due(waiting, now))
    }

    /// Records the release of a last hold. If other clients heard of it, a yield begins if it is
    /// `due`. If the release was `alone`, no other task of this client waits for the lock.
    ///
    /// Returns the time until which this client stays subscribed, because it may come back; `None`
    /// if no other client heard of the release.
    pub(super) fn record_release(
        &mut self,
        spec: &Arc<LockSpec>,
        neighbours: Neighbours,
        due: bool,
        alone: bool,
        now: Instant,
    ) -> Option<Instant> {
        if !self.on {
            return None;
        }
        if neighbours == Neighbours::None {
            if let Some(lock) = self.at(spec) {
                (lock.last, lock.neighbours) = (None, neighbours);
            }
            return None;
        }
        match self.at(spec) {
            Some(lock) if now > lock.heard + NEIGHBOURS_REMEMBERED_FOR => {
                *lock = Yielding::new(neighbours, now)
            }
            Some(_) => {}
            None => self.forget_old(now),
        }
        let lock = self.locks.entry(key(spec));
        let lock = lock.or_insert_with(|| Yielding::new(neighbours, now));
        (lock.neighbours, lock.heard) = (neighbours, now);
        lock.left = alone.then_some(now);
        if due {
            lock.begin(now);
        }
        Some(now + lock.length)
    }

    /// Whether other clients may have heard the last release.
    pub(super) fn has_neighbours(&mut self, spec: &LockSpec) -> bool {
        self.at(spec)
            .is_some_and(|lock| lock.neighbours != Neighbours::None)
    }

    /// Whether this client stays subscribed when a waiter is granted the lock.
    pub(super) fn may_stay(&self, spec: &LockSpec) -> bool {
        self.on && spec.announced && spec.has_local_queue()
    }

    /// The end of the present yield.
    pub(super) fn until(&mut self, spec: &LockSpec, now: Instant) -> Option<Instant> {
        let until = self.at(spec)?.last?.until;
        (until > now).then_some(until)
    }

    /// Begins the wait of a task for the end of a yield. Returns that end, if there is a yield.
    pub(super) fn begin_wait(&mut self, spec: &LockSpec, now: Instant) -> Option<Instant> {
        let last = self.at(spec)?.last.as_mut()?;
        if last.until <= now {
            return None;
        }
        last.waited_for = true;
        Some(last.until)
    }

    /// Records a grant to this client.
    pub(super) fn record_grant(&mut self, spec: &LockSpec, now: Instant) {
        if let Some(lock) = self.at(spec) {
            lock.record_grant(now);
        }
    }

    /// Records a refusal: another client has used the yield of this client, if there was one.
    pub(super) fn record_refusal(&mut self, spec: &LockSpec) {
        if let Some(lock) = self.at(spec) {
            lock.record_use();
        }
    }

    /// Records a release by another client. Returns the time until which this client stands back,
    /// if it does.
    pub(super) fn record_foreign_release(
        &mut self,
        spec: &LockSpec,
        now: Instant,
    ) -> Option<Instant> {
        self.at(spec)?.record_foreign_release(now)
    }

    /// Forgets old locks, less often the more locks there are.
    fn forget_old(&mut self, now: Instant) {
        if self.locks.len() < self.look_at {
            return;
        }
        self.locks
            .retain(|_, lock| now < lock.heard + NEIGHBOURS_REMEMBERED_FOR);
        self.look_at = FEW.max(2 * self.locks.len());
    }
}

fn key(spec: &LockSpec) -> (Arc<str>, HoldMode) {
    (spec.name.clone(), spec.mode)
}

#[cfg(test)]
#[path = "yielding_tests.rs"]
mod tests;
