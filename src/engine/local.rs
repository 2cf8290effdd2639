//! One lock as the tasks of one client share it: the task that holds it, and the local queue of those that wait.
//!
//! While a task holds the lock, the other tasks wait here in the order of their arrival, and the server hears of none of
//! them. While no task holds it, the head of the queue is the *asker*: it sends attempts to the server, and subscribes; the other
//! tasks go on waiting behind it. So a client costs the server what one task costs, however many of its tasks want the lock.
//!
//! For a time after a grant by the server, the *hand-off window*, the lock may be handed off from task to task in memory
//! ([`local_queue`](super::local_queue)). A successor whose future is kept and not polled blocks no other task: after [`PICK_UP`] it
//! goes to the end of the queue. A late asker is replaced. It sends one attempt when it is polled again, then enqueues.
//!
//! Exclusion does not depend on a single asker: `try_lock` sends its attempt without waiting here, which costs a refusal at most.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::room::{PICK_UP, Signal, ToNotify};
use crate::{
    error::Error,
    hash::HashMap,
    owner::Owner,
    sync::{Mutex, MutexGuard, lock},
};

/// Interval between two checks for waiters that are not polled. Age at which a tenure with waiters behind it is verified.
const LOOK: Duration = Duration::from_millis(50);
/// How long an asker may take to send its attempt before the next waiter asks too: its future may be kept and not polled.
const ASKER_WAIT: Duration = Duration::from_millis(200);
/// The same where answers take long.
const LONGEST_ASKER_WAIT: Duration = Duration::from_secs(2);
/// Longest time in which tasks of this client acquire one after the other. The next asker then pauses for [`REST`]: clients that poll, or
/// listen at a replica, are not counted among the listeners.
const LONGEST_CHAIN: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryId(u64);

/// The tenure that this client has of the lock, and its present owner.
pub(super) struct Current<T> {
    pub(super) owner: Owner,
    pub(super) tenure: T,
    /// Different from every other tenure's of the client.
    pub(super) number: u64,
}

/// A waiter: the hold that it asks for, and how it is notified.
pub(super) struct Waiter<W, O> {
    id: EntryId,
    pub(super) request: W,
    pub(super) signal: Arc<Signal<O>>,
}

/// One lock of one client. `T` is a tenure, `W` what a waiter asks for, and `O` a hold that is passed to it.
pub(super) struct LocalLock<T, W, O>(Mutex<State<T, W, O>>);

struct State<T, W, O> {
    ids: u64,
    current: Option<Current<T>>,
    /// The end of the hand-off window.
    hand_off_until: Option<Instant>,
    asker: Option<EntryId>,
    /// How the asker is notified, once it listens.
    listener: Option<Arc<Signal<O>>>,
    /// The server has said last that another client has the lock.
    is_held_elsewhere: bool,
    /// Since when the server has not answered any asker.
    unanswered_since: Option<Instant>,
    /// Made for the first waiter; most locks have none.
    contention: Option<Box<Contention<W, O>>>,
}

/// The waiters, and what they need to know.
struct Contention<W, O> {
    waiters: VecDeque<Waiter<W, O>>,
    /// How many of them each owner has.
    owners: HashMap<Owner, usize>,
    /// The waiter that the lock was handed to last.
    successor: Option<Waiter<W, O>>,
    /// Since when there was no gap in which another client could acquire.
    chain_began: Option<Instant>,
    /// The present release is to leave a gap, as the chain was long enough.
    gap_due: bool,
    /// The end of the gap.
    rest_until: Option<Instant>,
    /// When this client last had the lock.
    last_busy: Option<Instant>,
    /// Why the last asker left, if it had no answer.
    last_error: Option<Error>,
    /// Since when the asker is known to be at work.
    asking_since: Option<(EntryId, Instant)>,
    /// How long the last refusal was on its way: an asker far from the server is given more time.
    answer_takes: Duration,
    /// When the tenure of this number is verified.
    verify_at: Option<(u64, Instant)>,
    /// Whether its waiters are looked at now and then.
    is_listed: bool,
    /// And soon, as the lock was handed off.
    look_soon: bool,
}

impl<W, O> Default for Contention<W, O> {
    fn default() -> Self {
        Self {
            waiters: VecDeque::new(),
            owners: HashMap::default(),
            successor: None,
            chain_began: None,
            gap_due: false,
            rest_until: None,
            last_busy: None,
            last_error: None,
            asking_since: None,
            answer_takes: Duration::ZERO,
            verify_at: None,
            is_listed: false,
            look_soon: false,
        }
    }
}

/// What a task that enters is to do.
pub(super) enum Entered<O> {
    /// Ask the server: it is the asker.
    Asker(EntryId),
    /// Wait to be notified; the caller has these waiters looked at, if they are not yet.
    Waiter {
        id: EntryId,
        signal: Arc<Signal<O>>,
        is_first: bool,
    },
    /// Its owner has the lock already.
    AlreadyHolds,
}

/// What a waiter is to do.
pub(super) enum Step<O> {
    Wait,
    /// It was passed the lock.
    Acquired(O),
    /// Ask the server. The asker before it may have had no answer, for this reason, and no task has had one since.
    Ask(Option<(Error, Instant)>),
    /// Ask for one more hold: its owner has the lock, by another of its tasks. It waits here no more.
    Reenter,
}

/// What a look at the waiters of a lock comes to.
pub(super) struct Look<T, O> {
    /// What has been waited behind for so long that the server is to be asked about it.
    pub(super) to_verify: Option<T>,
    /// A hold that its waiter has not picked up, to be dropped after this lock's mutex is released.
    pub(super) withdrawn: Option<O>,
    pub(super) notified: ToNotify<O>,
    /// When to look again.
    pub(super) next: Option<Instant>,
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

impl<W, O> Contention<W, O> {
    fn push(&mut self, waiter: Waiter<W, O>) {
        *self.owners.entry(waiter.signal.owner).or_default() += 1;
        self.waiters.push_back(waiter);
    }

    fn pop(&mut self) -> Option<Waiter<W, O>> {
        let waiter = self.waiters.pop_front()?;
        self.forget(waiter.signal.owner);
        Some(waiter)
    }

    fn remove(&mut self, id: EntryId) -> Option<Waiter<W, O>> {
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
    fn waiters_of(&self, owner: Owner) -> ToNotify<O> {
        let mut notified = ToNotify::none();
        if self.owners.contains_key(&owner) {
            let signals = self.waiters.iter().map(|waiter| &waiter.signal);
            notified.extend(signals.filter(|signal| signal.owner == owner).cloned());
        }
        notified
    }
}

impl<T, W, O> State<T, W, O> {
    fn next_id(&mut self) -> EntryId {
        self.ids += 1;
        EntryId(self.ids)
    }

    /// Notifies the asker, or makes one: no task of this client holds the lock.
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

    /// Which of this client's owners has the lock, and how.
    pub(super) fn current(&self) -> Option<(Owner, T)> {
        let state = self.state();
        state
            .current
            .as_ref()
            .map(|current| (current.owner, current.tenure.clone()))
    }

    /// `owner` wants the lock, and may wait for it.
    pub(super) fn enter(
        &self,
        owner: Owner,
        wait: impl FnOnce() -> (W, Arc<Signal<O>>),
    ) -> Entered<O> {
        let mut state = self.state();
        let is_free = match &state.current {
            Some(current) if current.owner == owner => return Entered::AlreadyHolds,
            current => current.is_none() && state.asker.is_none(),
        };
        let id = state.next_id();
        let no_task_waits = state
            .contention
            .as_ref()
            .is_none_or(|contention| contention.waiters.is_empty());
        if is_free && no_task_waits {
            state.asker = Some(id);
            let old = state.listener.take();
            drop(state);
            drop(old);
            return Entered::Asker(id);
        }
        let is_current = state.current.is_some();
        let contention = state.contention.get_or_insert_default();
        if is_current {
            contention.last_busy = Some(Instant::now());
        }
        let (request, signal) = wait();
        contention.push(Waiter {
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

    /// What the waiter `id` is to do now.
    pub(super) fn next_step(&self, id: EntryId, signal: &Signal<O>) -> Step<O> {
        let mut state = self.state();
        let State {
            current,
            asker,
            unanswered_since,
            contention,
            ..
        } = &mut *state;
        // In one step with the rest: the lock may be passed to it at any time until it has left the queue.
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
            // It was the asker, and another one was named since.
            false => Step::Ask(None),
        }
    }

    /// Whether it is the asker.
    pub(super) fn is_asker(&self, id: EntryId) -> bool {
        self.state().asker == Some(id)
    }

    /// Records when the asker sends its attempt, after a sleep.
    pub(super) fn schedule_attempt(&self, id: EntryId, at: Instant) {
        if let Some(contention) = &mut self.state().contention {
            contention.asking_since = Some((id, at));
        }
    }

    /// Records that the asker sends its attempt now.
    pub(super) fn begin_attempt(&self, id: EntryId, now: Instant) {
        let mut state = self.state();
        state.unanswered_since.get_or_insert(now);
        if let Some(contention) = &mut state.contention {
            contention.asking_since = Some((id, now));
        }
    }

    /// Sets how the asker is notified, from its refusal on.
    pub(super) fn set_listener(&self, id: EntryId, signal: &Arc<Signal<O>>, now: Instant) {
        let mut state = self.state();
        if state.asker == Some(id) {
            state.listener = Some(signal.clone());
            // It subscribes, which takes a trip of its own.
            if let Some(contention) = &mut state.contention {
                contention.asking_since = Some((id, now));
            }
        }
    }

    /// Records a refusal: another client has the lock. The answer took so long.
    pub(super) fn record_refusal(&self, took: Duration) {
        let mut state = self.state();
        (state.is_held_elsewhere, state.unanswered_since) = (true, None);
        if let Some(contention) = &mut state.contention {
            (contention.chain_began, contention.rest_until) = (None, None);
            contention.answer_takes = took;
        }
    }

    /// Whether the lock is known to have been taken at some time since then.
    pub(super) fn was_busy_since(&self, then: Instant) -> bool {
        let state = self.state();
        let busy = state
            .contention
            .as_ref()
            .and_then(|contention| contention.last_busy);
        state.current.is_some() || state.is_held_elsewhere || busy.is_some_and(|busy| busy >= then)
    }

    /// Until when the asker is to leave the lock free.
    pub(super) fn take_rest(&self) -> Option<Instant> {
        self.state().contention.as_mut()?.rest_until.take()
    }

    /// A waiter or the asker leaves; with an `error` if it leaves because it had no answer.
    pub(super) fn leave(&self, id: EntryId, error: Option<Error>) -> ToNotify<O> {
        let mut state = self.state();
        if state.asker != Some(id) {
            if let Some(contention) = &mut state.contention {
                contention.remove(id);
            }
            return ToNotify::none();
        }
        state.asker = None;
        // The next asker learns the state from its own attempt.
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
        // What is dropped is not dropped with the lock: it may be the last use of an entry.
        drop(state);
        let old = old.filter(|old| old.number != number).map(|old| old.tenure);
        let (notified, passed) = notified.unwrap_or_else(|| (ToNotify::none(), None));
        drop(passed);
        Ok((notified, old))
    }

    /// The tenure is about to be released. Returns whether the next waiter may ask directly behind the release. Otherwise it pauses for
    /// [`REST`] after the answer.
    pub(super) fn begin_release(&self, now: Instant) -> bool {
        let mut state = self.state();
        let Some(contention) = &mut state.contention else {
            return true;
        };
        if contention.waiters.is_empty() {
            contention.chain_began = None;
            return true;
        }
        let began = *contention.chain_began.get_or_insert(now);
        contention.gap_due = now.saturating_duration_since(began) >= LONGEST_CHAIN;
        !contention.gap_due
    }

    /// How many wait here.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state();
        state
            .contention
            .as_ref()
            .map_or(0, |contention| contention.waiters.len())
    }

    /// Ends the tenure of `number` here and notifies the next waiter. Called at its end, or once its release precedes every later request.
    pub(super) fn end_tenure(&self, number: u64) -> ToNotify<O> {
        let mut state = self.state();
        let Some(current) = state.current.take_if(|current| current.number == number) else {
            return ToNotify::none();
        };
        if let Some(contention) = &mut state.contention {
            let now = Instant::now();
            contention.last_busy = Some(now);
            if std::mem::take(&mut contention.gap_due) {
                (contention.chain_began, contention.rest_until) = (None, Some(now + REST));
            }
        }
        let passed = state
            .contention
            .as_mut()
            .and_then(|contention| contention.successor.take());
        let notified = state.notify_next();
        drop(state);
        // Dropped here, outside of the lock: it may be the last use of this one.
        drop((current, passed));
        notified
    }

    /// Ends the hand-off window: the next release goes to the server.
    pub(super) fn end_hand_off(&self) -> Option<T> {
        let mut state = self.state();
        state.hand_off_until = None;
        state.current.as_ref().map(|current| current.tenure.clone())
    }

    /// Hands the tenure of `number` off to the first waiter: `make_successor` makes the next tenure and its hold, if the conditions allow.
    /// `None` if it was not; otherwise, whether the waiters have to be looked at soon.
    pub(super) fn hand_off(
        &self,
        number: u64,
        now: Instant,
        make_successor: impl FnOnce(&Waiter<W, O>) -> Option<(Current<T>, O)>,
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
        // In one step with the notification: from then on it may leave, and take the hold along.
        waiter.signal.give(hold);
        let mut notified = contention.waiters_of(owner);
        notified.extend([waiter.signal.clone()]);
        let replaced = contention.successor.replace(waiter);
        let is_new = !std::mem::replace(&mut contention.look_soon, true);
        drop(state);
        drop((old, replaced, notified));
        Some(is_new)
    }

    /// Checks for tasks that are not polled. Enqueues a waiter again that has not taken its hold within [`PICK_UP`]. Replaces an asker that
    /// is late, if the next waiter `can_ask`. Returns a tenure to verify, once per `pause`. `mark` marks a withdrawn hold as dropped under
    /// the mutex: its owner must not re-enter by it.
    pub(super) fn look(
        &self,
        now: Instant,
        pause: impl Fn(&T) -> Duration,
        can_ask: impl Fn(&W) -> bool,
        mark: impl FnOnce(&O),
    ) -> Look<T, O> {
        let mut state = self.state();
        let State {
            current,
            asker,
            listener,
            contention,
            ..
        } = &mut *state;
        let mut look = Look {
            to_verify: None,
            withdrawn: None,
            notified: ToNotify::none(),
            next: None,
        };
        let Some(contention) = contention else {
            return look;
        };
        contention.look_soon = false;
        if let Some(passed) = contention
            .successor
            .take_if(|passed| passed.signal.has_hold())
        {
            look.next = Some(now + PICK_UP);
            contention.look_soon = true;
            if passed.signal.is_late(now) {
                look.withdrawn = passed.signal.take().inspect(mark);
                if look.withdrawn.is_some() {
                    contention.push(passed);
                }
            } else {
                contention.successor = Some(passed);
            }
        }
        if contention.waiters.is_empty() {
            contention.is_listed = look.next.is_some();
            return look;
        }
        look.next = look.next.or(Some(now + LOOK));
        if let Some(current) = current {
            let since = contention
                .verify_at
                .filter(|(number, _)| *number == current.number);
            let (_, at) = since.unwrap_or((current.number, now + LOOK));
            let is_due = at <= now;
            look.to_verify = is_due.then(|| current.tenure.clone());
            let at = if is_due {
                now + pause(&current.tenure)
            } else {
                at
            };
            contention.verify_at = Some((current.number, at));
        }
        let waits = listener.as_ref().filter(|asker| asker.waits());
        let is_late = match (*asker, waits) {
            (_, Some(waits)) => waits.is_late(now),
            (Some(id), None) => {
                let since = contention.asking_since.filter(|(asker, _)| *asker == id);
                let (_, since) = *contention.asking_since.insert(since.unwrap_or((id, now)));
                let answers = 4 * contention.answer_takes;
                since + answers.clamp(ASKER_WAIT, LONGEST_ASKER_WAIT) <= now
            }
            (None, None) => false,
        };
        if waits.is_some() {
            contention.asking_since = None;
        }
        let first = contention.waiters.front();
        if current.is_none() && is_late && first.is_some_and(|first| can_ask(&first.request)) {
            (*asker, *listener) = (None, None);
            look.notified = state.notify_next();
        }
        look
    }

    /// The task that has waited here for longest.
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
#[path = "local_tests.rs"]
mod tests;
