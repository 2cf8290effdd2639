//! One lock as the tasks of one client share it: its present owner, and the local queue of waiters.
//!
//! While a task of the client holds the lock, other tasks enqueue in the order of their arrival,
//! and send nothing. While no task holds it, the first waiter leaves the queue and is the *asker*:
//! it sends an attempt, and subscribes if refused. The queued tasks wait on. However many tasks of
//! a client wait, one of them sends attempts.
//!
//! In the *hand-off window*, a time from the arrival of each grant, the holder may hand the lock to
//! the first waiter in memory ([`local_wait`](super::local_wait)). Stalled tasks do not block the
//! queue ([`checks`]): a hold that its waiter does not pick up goes to the next waiter, which also
//! replaces an asker that is late. A replaced asker sends one attempt when it is polled again, then
//! enqueues.
//!
//! Exclusion does not depend on a single asker, because the server decides on each attempt.
//! `try_lock` does not wait here. It sends nothing while another task of this client holds the lock;
//! otherwise its attempt costs a refusal at most.

mod checks;
mod contention;
mod turns;

use std::{sync::Arc, time::Duration};

use contention::Contention;
use tokio::time::Instant;

use super::room::{Signal, ToNotify};
use crate::{
    error::Error,
    owner::Owner,
    sync::{Mutex, MutexGuard, lock},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryId(u64);

/// The client's present tenure of the lock, and its owner.
pub(super) struct Current<T> {
    pub(super) owner: Owner,
    pub(super) tenure: T,
    /// Unique among the tenures of the client.
    pub(super) number: u64,
}

/// A waiter: its request, and how it is notified.
pub(super) struct LocalWaiter<W, O> {
    id: EntryId,
    pub(super) request: W,
    pub(super) signal: Arc<Signal<O>>,
}

/// One lock of one client. `T` is a tenure, `W` a waiter's request, and `O` a hold that is handed
/// to a waiter.
pub(super) struct LocalLock<T, W, O>(Mutex<State<T, W, O>>);

struct State<T, W, O> {
    ids: u64,
    current: Option<Current<T>>,
    /// The end of the hand-off window.
    hand_off_until: Option<Instant>,
    asker: Option<EntryId>,
    /// The signal of the asker, once it listens.
    listener: Option<Arc<Signal<O>>>,
    /// The server's last answer was a refusal: another client has the lock.
    is_held_elsewhere: bool,
    /// The time of the first attempt since the server's last answer.
    unanswered_since: Option<Instant>,
    /// Made for the first waiter; most locks have none.
    contention: Option<Box<Contention<W, O>>>,
}

/// The next step of a task that enters.
pub(super) enum Entered<O> {
    /// The task is the asker: it asks the server.
    Asker(EntryId),
    /// The task waits to be notified. If it `is_first`, the lock becomes one of the contended
    /// locks.
    Waiter {
        id: EntryId,
        signal: Arc<Signal<O>>,
        is_first: bool,
    },
    /// The task's owner has the lock already.
    AlreadyHolds,
}

/// The next step of a waiter.
pub(super) enum Step<O> {
    Wait,
    /// The lock was handed to the waiter.
    Acquired(O),
    /// The waiter is the asker now. If the asker before it left without an answer: that error, and
    /// the time since which the server has answered no asker.
    Ask(Option<(Error, Instant)>),
    /// The waiter's owner has the lock, by another of its tasks. The waiter has left the queue, and
    /// re-enters.
    Reenter,
}

impl<T, W, O> Default for LocalLock<T, W, O> {
    fn default() -> Self {
        Self(Mutex::new(State {
            ids: 0,
            current: None,
            hand_off_until: None,
            asker: None,
            listener: None,
            is_held_elsewhere: false,
            unanswered_since: None,
            contention: None,
        }))
    }
}

impl<T, W, O> State<T, W, O> {
    fn next_id(&mut self) -> EntryId {
        self.ids += 1;
        EntryId(self.ids)
    }

    /// Records the start of an attempt or a subscription of the task `id`. An asker that was
    /// replaced is ignored: it would begin the time of the present asker anew.
    fn record_asking(&mut self, id: EntryId, at: Instant) {
        if self.asker == Some(id)
            && let Some(contention) = &mut self.contention
        {
            contention.asking_since = Some((id, at));
        }
    }

    /// Notifies the asker. Without one, the first waiter becomes the asker. Called while no task of
    /// this client holds the lock.
    fn notify_next(&mut self) -> ToNotify<O> {
        if self.asker.is_none() {
            let contention = self.contention.as_mut();
            let Some(next) = contention.and_then(|contention| contention.pop()) else {
                return ToNotify::none();
            };
            self.asker = Some(next.id);
            self.listener = Some(next.signal);
        }
        self.listener.clone().into_iter().collect()
    }
}

impl<T: Clone, W, O> LocalLock<T, W, O> {
    fn state(&self) -> MutexGuard<'_, State<T, W, O>> {
        lock(&self.0)
    }

    /// The owner in this client that has the lock, and its tenure.
    pub(super) fn current(&self) -> Option<(Owner, T)> {
        let state = self.state();
        state
            .current
            .as_ref()
            .map(|current| (current.owner, current.tenure.clone()))
    }

    /// Enters a task of `owner`. If the task must wait, `wait` makes its request and its signal.
    pub(super) fn enter(
        &self,
        owner: Owner,
        wait: impl FnOnce() -> (W, Arc<Signal<O>>),
    ) -> Entered<O> {
        let mut state = self.state();
        let is_current = match &state.current {
            Some(current) if current.owner == owner => return Entered::AlreadyHolds,
            current => current.is_some(),
        };
        let id = state.next_id();
        if !is_current && state.asker.is_none() {
            // The end of a tenure and the leave of an asker make the first waiter the asker, so no
            // task waits here.
            let contention = state.contention.as_ref();
            debug_assert!(contention.is_none_or(|contention| contention.waiters.is_empty()));
            debug_assert!(state.listener.is_none());
            state.asker = Some(id);
            return Entered::Asker(id);
        }
        let contention = state.contention.get_or_insert_default();
        if is_current {
            contention.last_busy = Some(Instant::now());
        }
        let (request, signal) = wait();
        contention.push(LocalWaiter {
            id,
            request,
            signal: signal.clone(),
        });
        Entered::Waiter {
            id,
            signal,
            is_first: !std::mem::replace(&mut contention.is_listed, true),
        }
    }

    /// Decides the next step of the waiter `id`.
    pub(super) fn next_step(&self, id: EntryId, signal: &Signal<O>) -> Step<O> {
        let mut state = self.state();
        let State {
            current,
            asker,
            unanswered_since,
            contention,
            ..
        } = &mut *state;
        // Taken under the mutex: a holder may hand the lock to this waiter until it has left the
        // queue.
        if let Some(hold) = signal.take() {
            return Step::Acquired(hold);
        }
        if *asker == Some(id) {
            let error = contention
                .as_mut()
                .and_then(|contention| contention.last_error.take());
            return Step::Ask(error.zip(*unanswered_since));
        }
        let is_in = current
            .as_ref()
            .is_some_and(|current| current.owner == signal.owner);
        let Some(contention) = contention else {
            return Step::Ask(None);
        };
        if is_in {
            let waiter = contention.remove(id);
            drop(state);
            drop(waiter);
            return Step::Reenter;
        }
        match contention
            .waiters
            .iter()
            .rev()
            .any(|waiter| waiter.id == id)
        {
            true => Step::Wait,
            // The task was the asker and was replaced: it sends one attempt.
            false => Step::Ask(None),
        }
    }

    /// Whether the task `id` is the asker.
    pub(super) fn is_asker(&self, id: EntryId) -> bool {
        self.state().asker == Some(id)
    }

    /// Records when the task `id` sends its attempt, after a sleep.
    pub(super) fn schedule_attempt(&self, id: EntryId, at: Instant) {
        self.state().record_asking(id, at);
    }

    /// Records that the task `id` sends its attempt now.
    pub(super) fn begin_attempt(&self, id: EntryId, now: Instant) {
        let mut state = self.state();
        state.unanswered_since.get_or_insert(now);
        state.record_asking(id, now);
    }

    /// Sets how the asker is notified, from its refusal on.
    pub(super) fn set_listener(&self, id: EntryId, signal: &Arc<Signal<O>>, now: Instant) {
        let mut state = self.state();
        if state.asker == Some(id) {
            state.listener = Some(signal.clone());
            // The subscription takes a round trip of its own.
            state.record_asking(id, now);
        }
    }

    /// Records a refusal, whose round trip `took` that long: another client has the lock.
    pub(super) fn record_refusal(&self, took: Duration) {
        let mut state = self.state();
        (state.is_held_elsewhere, state.unanswered_since) = (true, None);
        if let Some(contention) = &mut state.contention {
            contention.turns.end();
            contention.answer_takes = took;
        }
    }

    /// Whether the lock was held at some time since `then`, as far as this client knows.
    pub(super) fn was_busy_since(&self, then: Instant) -> bool {
        let state = self.state();
        let busy = state
            .contention
            .as_ref()
            .and_then(|contention| contention.last_busy);
        state.current.is_some() || state.is_held_elsewhere || busy.is_some_and(|busy| busy >= then)
    }

    /// Takes the end of the gap in which the asker leaves the lock free.
    pub(super) fn take_gap(&self) -> Option<Instant> {
        self.state().contention.as_mut()?.turns.take_gap()
    }

    /// Removes a waiter or the asker. It leaves with an `error` if the server did not answer it.
    /// Returns the next asker, to be notified.
    pub(super) fn leave(&self, id: EntryId, error: Option<Error>) -> ToNotify<O> {
        let mut state = self.state();
        if state.asker != Some(id) {
            let gone = state.contention.as_mut().and_then(|contention| {
                // A check must not enqueue a successor again that has gone.
                let is_successor = |passed: &mut LocalWaiter<W, O>| passed.id == id;
                (contention.successor.take_if(is_successor)).or_else(|| contention.remove(id))
            });
            drop(state);
            drop(gone);
            return ToNotify::none();
        }
        state.asker = None;
        // The next asker's own attempt shows the state of the lock.
        match error {
            Some(_) => state.is_held_elsewhere = false,
            None => state.unanswered_since = None,
        }
        state.listener = None;
        if let Some(contention) = &mut state.contention {
            contention.last_error = error;
        }
        match state.current {
            Some(_) => ToNotify::none(),
            None => state.notify_next(),
        }
    }

    /// Records a grant. Returns the waiters of the same owner, and the tenure that the grant replaces. Returns another owner's tenure as an
    /// error, unless `is_over` accepts its end.
    pub(super) fn record_grant(
        &self,
        current: Current<T>,
        ends: Instant,
        is_over: impl FnOnce(&T) -> bool,
    ) -> Result<(ToNotify<O>, Option<T>), T> {
        let mut state = self.state();
        if let Some(other) = &state.current
            && other.owner != current.owner
            && !is_over(&other.tenure)
        {
            return Err(other.tenure.clone());
        }
        let (owner, number) = (current.owner, current.number);
        let old = state.current.replace(current);
        state.hand_off_until = Some(ends);
        (state.is_held_elsewhere, state.unanswered_since) = (false, None);
        let notified = state.contention.as_mut().map(|contention| {
            contention.last_error = None;
            (contention.waiters_of(owner), contention.successor.take())
        });
        // Dropped after the mutex is released: the last use of an entry locks a table, which other
        // threads lock before this mutex.
        drop(state);
        let old = old.filter(|old| old.number != number).map(|old| old.tenure);
        let (notified, passed) = notified.unwrap_or_else(|| (ToNotify::none(), None));
        drop(passed);
        Ok((notified, old))
    }

    /// Begins the release of the tenure. Returns whether the next waiter may ask directly behind
    /// the release. Otherwise it leaves a gap after the answer.
    pub(super) fn begin_release(&self, now: Instant) -> bool {
        match &mut self.state().contention {
            Some(contention) => contention.begin_release(now),
            None => true,
        }
    }

    /// The number of waiters.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state();
        state
            .contention
            .as_ref()
            .map_or(0, |contention| contention.waiters.len())
    }

    /// Forgets the tenure `number` and notifies the next waiter. Call it when the tenure ends, or when its release is sent and cannot
    /// be overtaken.
    pub(super) fn end_tenure(&self, number: u64) -> ToNotify<O> {
        let mut state = self.state();
        let Some(current) = state.current.take_if(|current| current.number == number) else {
            return ToNotify::none();
        };
        if let Some(contention) = &mut state.contention {
            let now = Instant::now();
            contention.last_busy = Some(now);
            contention.turns.end_turn(now);
        }
        let passed = state
            .contention
            .as_mut()
            .and_then(|contention| contention.successor.take());
        let notified = state.notify_next();
        drop(state);
        // Dropped after the mutex is released: this may be the last use of this lock.
        drop((current, passed));
        notified
    }

    /// Ends the hand-off window: the next release goes to the server. Returns the present tenure.
    pub(super) fn end_hand_off(&self) -> Option<T> {
        let mut state = self.state();
        state.hand_off_until = None;
        state.current.as_ref().map(|current| current.tenure.clone())
    }

    /// Ends the tenure `number` and begins its successor for the first waiter. `make_successor`
    /// makes that tenure and its hold, if the conditions allow. Returns `None` without a hand-off; otherwise, whether the
    /// caller must schedule an early check of the waiters.
    pub(super) fn hand_off(
        &self,
        number: u64,
        now: Instant,
        make_successor: impl FnOnce(&LocalWaiter<W, O>) -> Option<(Current<T>, O)>,
    ) -> Option<bool> {
        let mut state = self.state();
        let State {
            current,
            hand_off_until,
            asker,
            contention,
            ..
        } = &mut *state;
        let contention = contention.as_mut()?;
        let is_current = current
            .as_ref()
            .is_some_and(|current| current.number == number);
        let in_time = hand_off_until.is_some_and(|ends| now < ends);
        if !is_current || !in_time || asker.is_some() {
            return None;
        }
        let (next, hold) = make_successor(contention.waiters.front()?)?;
        let owner = next.owner;
        let old = current.replace(next);
        let waiter = contention.pop()?;
        // The hold precedes the notification: a notified waiter may leave, and takes the hold
        // along.
        waiter.signal.give(hold);
        let mut notified = contention.waiters_of(owner);
        notified.extend([waiter.signal.clone()]);
        let replaced = contention.successor.replace(waiter);
        let is_new = !std::mem::replace(&mut contention.check_soon, true);
        drop(state);
        drop((old, replaced, notified));
        Some(is_new)
    }

    /// Whether the next asker may be such a waiter: the first one is, or there is an asker already,
    /// whose request is not known here.
    pub(super) fn may_be_next(&self, is_such: impl FnOnce(&W) -> bool) -> bool {
        let state = self.state();
        let contention = state.contention.as_ref();
        let first = contention.and_then(|contention| contention.waiters.front());
        state.asker.is_some() || first.is_some_and(|first| is_such(&first.request))
    }

    /// The signal of the first waiter.
    pub(super) fn foremost(&self) -> Option<Arc<Signal<O>>> {
        let state = self.state();
        let first = state.contention.as_ref()?.waiters.front()?;
        Some(first.signal.clone())
    }

    /// Returns all waiters, and a hold that was handed to one of them and not picked up, to be dropped after this lock's mutex is
    /// released.
    pub(super) fn close(&self) -> (ToNotify<O>, Option<O>) {
        let mut state = self.state();
        let Some(contention) = &mut state.contention else {
            return (ToNotify::none(), None);
        };
        let passed = contention.successor.as_ref();
        let waiters = contention.waiters.iter().chain(passed);
        let notified = waiters.map(|waiter| waiter.signal.clone()).collect();
        (notified, passed.and_then(|passed| passed.signal.take()))
    }
}

#[cfg(test)]
mod tests;
