//! The local queue, and the state that only a contended lock needs. Pure.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{EntryId, LocalWaiter, turns::Turns};
use crate::{engine::room::ToNotify, error::Error, hash::HashMap, owner::Owner};

pub(super) struct Contention<W, O> {
    pub(super) waiters: VecDeque<LocalWaiter<W, O>>,
    /// The number of waiters of each owner.
    owners: HashMap<Owner, usize>,
    /// The waiter to which the lock was handed last.
    pub(super) successor: Option<LocalWaiter<W, O>>,
    pub(super) turns: Turns,
    /// When this client last had the lock.
    pub(super) last_busy: Option<Instant>,
    /// The error of the last asker, if it left without an answer.
    pub(super) last_error: Option<Error>,
    /// The asker, and the start of its attempt or subscription.
    pub(super) asking_since: Option<(EntryId, Instant)>,
    /// The round trip of the last refusal: an asker far from the server gets more time.
    pub(super) answer_takes: Duration,
    /// The number of a tenure, and the time of its next verification.
    pub(super) verify_at: Option<(u64, Instant)>,
    /// Whether the lock is among the contended locks, which are checked now and then.
    pub(super) is_listed: bool,
    /// Whether a check is due soon, because the lock was handed off.
    pub(super) check_soon: bool,
}

impl<W, O> Default for Contention<W, O> {
    fn default() -> Self {
        Self {
            waiters: VecDeque::new(),
            owners: HashMap::default(),
            successor: None,
            turns: Turns::default(),
            last_busy: None,
            last_error: None,
            asking_since: None,
            answer_takes: Duration::ZERO,
            verify_at: None,
            is_listed: false,
            check_soon: false,
        }
    }
}

impl<W, O> Contention<W, O> {
    pub(super) fn push(&mut self, waiter: LocalWaiter<W, O>) {
        *self.owners.entry(waiter.signal.owner).or_default() += 1;
        self.waiters.push_back(waiter);
    }

    pub(super) fn pop(&mut self) -> Option<LocalWaiter<W, O>> {
        let waiter = self.waiters.pop_front()?;
        self.forget(waiter.signal.owner);
        Some(waiter)
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<LocalWaiter<W, O>> {
        let index = self.waiters.iter().position(|waiter| waiter.id == id)?;
        let waiter = self.waiters.remove(index)?;
        self.forget(waiter.signal.owner);
        Some(waiter)
    }

    fn forget(&mut self, owner: Owner) {
        if let Some(count) = self.owners.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&owner);
            }
        }
    }

    /// All waiters of `owner`.
    pub(super) fn waiters_of(&self, owner: Owner) -> ToNotify<O> {
        let mut notified = ToNotify::none();
        if self.owners.contains_key(&owner) {
            let signals = self.waiters.iter().map(|waiter| &waiter.signal);
            notified.extend(signals.filter(|signal| signal.owner == owner).cloned());
        }
        notified
    }

    /// Begins the release of the tenure. Returns whether the next waiter may ask directly behind
    /// it.
    pub(super) fn begin_release(&mut self, now: Instant) -> bool {
        if self.waiters.is_empty() {
            self.turns.release_last();
            return true;
        }
        self.turns.begin_release(now)
    }
}
