//! One lock as the tasks of one client share it: the task that holds it, and the local queue of those that wait.
//!
//! While a task holds the lock, the other tasks wait here in the order of their arrival, and the server hears of none of
//! them. While no task holds it, the head of the queue is the *asker*: it sends attempts to the server, and subscribes; the other
//! tasks go on waiting behind it. So a client costs the server what one task costs, however many of its tasks want the lock.
//!
//! The time from a grant by the server to the release that is sent to the server is a *row*. Within a row the lock may be
//! handed from task to task in memory ([`row`](super::row)). A successor whose future is kept and not polled
//! blocks no other task: after [`PICK_UP`] it goes to the end of the queue. An asker that is not polled
//! loses its part: when it is polled after all, it sends one attempt and comes back.
//!
//! Nothing depends on there being only one asker: `try_lock` sends its attempt without waiting here. That costs a refusal, and no
//! more.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::room::{PICK_UP, Signal, ToNotify};
use crate::{
    error::Error,
    hash::HashMap,
    owner::Owner,
    sync::{Mutex, MutexGuard, lock},
};

/// How often waiters that are not polled are looked for; and after how long a tenure the server is asked whether it still exists,
/// on behalf of the waiters behind it.
const LOOK: Duration = Duration::from_millis(50);
/// How long an asker may take to send its attempt before the next waiter asks too: its future may be kept and not polled.
const ASKER_WAIT: Duration = Duration::from_millis(200);
/// The same where answers take long.
const LONGEST_ASKER_WAIT: Duration = Duration::from_secs(2);
/// After this long without a gap for other clients, none of which was heard, the lock is left free for [`REST`]:
/// clients that poll, or listen at a replica, are not counted among the listeners.
const LONGEST_CHAIN: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryId(u64);

/// What this client has of the lock.
pub(super) struct Row<T> {
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
    row: Option<Row<T>>,
    /// Until when the lock may be passed on in the present row.
    row_ends: Option<Instant>,
    asker: Option<EntryId>,
    /// How the asker is notified, once it listens.
    listener: Option<Arc<Signal<O>>>,
    /// The server has said last that another client has the lock.
    is_foreign: bool,
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
    passed: Option<Waiter<W, O>>,
    /// Since when there was no gap in which another client could acquire.
    chain_began: Option<Instant>,
    /// The present release leaves a gap, as the chain was long enough.
    leaves_gap: bool,
    /// The end of the gap.
    rest_until: Option<Instant>,
    /// When this client last had the lock.
    busy: Option<Instant>,
    /// Why the last asker left, if it had no answer.
    failed: Option<Error>,
    /// Since when the asker is known to be at work.
    asks_since: Option<(EntryId, Instant)>,
    /// How long the last refusal was on its way: an asker far from the server is given more time.
    answer_takes: Duration,
    /// When the server is asked whether the row of this number still has the lock.
    verify_at: Option<(u64, Instant)>,
    /// Whether its waiters are looked at now and then.
    is_listed: bool,
    /// And soon, as the lock was passed on.
    looks_soon: bool,
}

impl<W, O> Default for Contention<W, O> {
    fn default() -> Self {
        Self {
            waiters: VecDeque::new(),
            owners: HashMap::default(),
            passed: None,
            chain_began: None,
            leaves_gap: false,
            rest_until: None,
            busy: None,
            failed: None,
            asks_since: None,
            answer_takes: Duration::ZERO,
            verify_at: None,
            is_listed: false,
            looks_soon: false,
        }
    }
}

/// What a task that enters is to do.
pub(super) enum Entered<O> {
    /// Ask the server: it is the asker.
    Asks(EntryId),
    /// Wait to be notified; the caller has these waiters looked at, if they are not yet.
    Waits {
        id: EntryId,
        signal: Arc<Signal<O>>,
        is_first: bool,
    },
    /// Its owner has the lock already.
    IsIn,
}

/// What a waiter is to do.
pub(super) enum Turn<O> {
    Wait,
    /// It was passed the lock.
    Has(O),
    /// Ask the server. The asker before it may have had no answer, for this reason, and no task has had one since.
    Ask(Option<(Error, Instant)>),
    /// Ask for one more hold: its owner has the lock, by another of its tasks. It waits here no more.
    Add,
}

/// What a look at the waiters of a lock comes to.
pub(super) struct Look<T, O> {
    /// What has been waited behind for so long that the server is to be asked about it.
    pub(super) doubtful: Option<T>,
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
            row: None,
            row_ends: None,
            asker: None,
            listener: None,
            is_foreign: false,
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
    fn of(&self, owner: Owner) -> ToNotify<O> {
        let mut notified = ToNotify::none();
        if self.owners.contains_key(&owner) {
            let its = self.waiters.iter().map(|waiter| &waiter.signal);
            notified.extend(its.filter(|signal| signal.owner == owner).cloned());
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
    pub(super) fn row(&self) -> Option<(Owner, T)> {
        let state = self.state();
        state
            .row
            .as_ref()
            .map(|row| (row.owner, row.tenure.clone()))
    }

    /// `owner` wants the lock, and may wait for it.
    pub(super) fn enter(
        &self,
        owner: Owner,
        wait: impl FnOnce() -> (W, Arc<Signal<O>>),
    ) -> Entered<O> {
        let mut state = self.state();
        let is_free = match &state.row {
            Some(row) if row.owner == owner => return Entered::IsIn,
            row => row.is_none() && state.asker.is_none(),
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
            return Entered::Asks(id);
        }
        let has_row = state.row.is_some();
        let contention = state.contention.get_or_insert_default();
        if has_row {
            contention.busy = Some(Instant::now());
        }
        let (request, signal) = wait();
        contention.push(Waiter {
            id,
            request,
            signal: signal.clone(),
        });
        Entered::Waits {
            id,
            signal,
            is_first: !std::mem::replace(&mut contention.is_listed, true),
        }
    }

    /// What the waiter `id` is to do now.
    pub(super) fn turn(&self, id: EntryId, signal: &Signal<O>) -> Turn<O> {
        let mut state = self.state();
        let State {
            row,
            asker,
            unanswered_since,
            contention,
            ..
        } = &mut *state;
        // In one step with the rest: the lock may be passed to it at any time until it has left the queue.
        if let Some(hold) = signal.take() {
            return Turn::Has(hold);
        }
        if *asker == Some(id) {
            let failed = contention
                .as_mut()
                .and_then(|contention| contention.failed.take());
            return Turn::Ask(failed.zip(*unanswered_since));
        }
        let is_in = row.as_ref().is_some_and(|row| row.owner == signal.owner);
        let Some(contention) = contention else {
            return Turn::Ask(None);
        };
        if is_in {
            let waiter = contention.remove(id);
            drop(state);
            drop(waiter);
            return Turn::Add;
        }
        match contention
            .waiters
            .iter()
            .rev()
            .any(|waiter| waiter.id == id)
        {
            true => Turn::Wait,
            // It was the asker, and another one was named since.
            false => Turn::Ask(None),
        }
    }

    /// Whether it is the asker.
    pub(super) fn is_asker(&self, id: EntryId) -> bool {
        self.state().asker == Some(id)
    }

    /// The asker sends its attempt after a sleep.
    pub(super) fn asks_at(&self, id: EntryId, at: Instant) {
        if let Some(contention) = &mut self.state().contention {
            contention.asks_since = Some((id, at));
        }
    }

    /// The asker sends its attempt now.
    pub(super) fn asks(&self, id: EntryId, now: Instant) {
        let mut state = self.state();
        state.unanswered_since.get_or_insert(now);
        if let Some(contention) = &mut state.contention {
            contention.asks_since = Some((id, now));
        }
    }

    /// The asker was refused, and listens from now on.
    pub(super) fn listens(&self, id: EntryId, signal: &Arc<Signal<O>>, now: Instant) {
        let mut state = self.state();
        if state.asker == Some(id) {
            state.listener = Some(signal.clone());
            // It subscribes, which takes a trip of its own.
            if let Some(contention) = &mut state.contention {
                contention.asks_since = Some((id, now));
            }
        }
    }

    /// Another client has the lock, as an answer says that took so long.
    pub(super) fn refused(&self, took: Duration) {
        let mut state = self.state();
        (state.is_foreign, state.unanswered_since) = (true, None);
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
            .and_then(|contention| contention.busy);
        state.row.is_some() || state.is_foreign || busy.is_some_and(|busy| busy >= then)
    }

    /// Until when the asker is to leave the lock free.
    pub(super) fn rest_until(&self) -> Option<Instant> {
        self.state().contention.as_mut()?.rest_until.take()
    }

    /// A waiter or the asker leaves; it has `failed` if it leaves because it had no answer.
    pub(super) fn leave(&self, id: EntryId, failed: Option<Error>) -> ToNotify<O> {
        let mut state = self.state();
        if state.asker != Some(id) {
            if let Some(contention) = &mut state.contention {
                contention.remove(id);
            }
            return ToNotify::none();
        }
        state.asker = None;
        // The other tasks find out by asking themselves.
        match failed {
            Some(_) => state.is_foreign = false,
            None => state.unanswered_since = None,
        }
        state.listener = None;
        if let Some(contention) = &mut state.contention {
            contention.failed = failed;
        }
        match state.row {
            Some(_) => ToNotify::none(),
            None => state.notify_next(),
        }
    }

    /// The server has granted the lock. Waiters of the same owner are notified. A grant to an owner beside another one is
    /// returned, unless the other tenure `is_over` and the answer that says so is about to come: then that one is replaced, and returned.
    pub(super) fn granted(
        &self,
        row: Row<T>,
        ends: Instant,
        is_over: impl FnOnce(&T) -> bool,
    ) -> Result<(ToNotify<O>, Option<T>), T> {
        let mut state = self.state();
        if let Some(other) = &state.row
            && other.owner != row.owner
            && !is_over(&other.tenure)
        {
            return Err(other.tenure.clone());
        }
        let (owner, number) = (row.owner, row.number);
        let old = state.row.replace(row);
        state.row_ends = Some(ends);
        (state.is_foreign, state.unanswered_since) = (false, None);
        let notified = state.contention.as_mut().map(|contention| {
            contention.failed = None;
            (contention.of(owner), contention.passed.take())
        });
        // What is dropped is not dropped with the lock: it may be the last use of an entry.
        drop(state);
        let old = old.filter(|old| old.number != number).map(|old| old.tenure);
        let (notified, passed) = notified.unwrap_or_else(|| (ToNotify::none(), None));
        drop(passed);
        Ok((notified, old))
    }

    /// The row is about to be released. Says whether the next one may ask right behind the release, or is to leave a gap, which
    /// begins with the answer.
    pub(super) fn releases(&self, now: Instant) -> bool {
        let mut state = self.state();
        let Some(contention) = &mut state.contention else {
            return true;
        };
        if contention.waiters.is_empty() {
            contention.chain_began = None;
            return true;
        }
        let began = *contention.chain_began.get_or_insert(now);
        contention.leaves_gap = now.saturating_duration_since(began) >= LONGEST_CHAIN;
        !contention.leaves_gap
    }

    /// How many wait here.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state();
        state
            .contention
            .as_ref()
            .map_or(0, |contention| contention.waiters.len())
    }

    /// The tenure of `number` is over, or its release goes before whatever the next one sends.
    pub(super) fn ended(&self, number: u64) -> ToNotify<O> {
        let mut state = self.state();
        let Some(row) = state.row.take_if(|row| row.number == number) else {
            return ToNotify::none();
        };
        if let Some(contention) = &mut state.contention {
            let now = Instant::now();
            contention.busy = Some(now);
            if std::mem::take(&mut contention.leaves_gap) {
                (contention.chain_began, contention.rest_until) = (None, Some(now + REST));
            }
        }
        let passed = state
            .contention
            .as_mut()
            .and_then(|contention| contention.passed.take());
        let notified = state.notify_next();
        drop(state);
        // Dropped here, outside of the lock: it may be the last use of this one.
        drop((row, passed));
        notified
    }

    /// The present row is to end with the next release.
    pub(super) fn end_row(&self) -> Option<T> {
        let mut state = self.state();
        state.row_ends = None;
        state.row.as_ref().map(|row| row.tenure.clone())
    }

    /// Hands the row of `number` to the first waiter: `pass` makes a row and a hold of it, if it may be handed on.
    /// `None` if it was not; otherwise, whether the waiters have to be looked at soon.
    pub(super) fn pass(
        &self,
        number: u64,
        now: Instant,
        pass: impl FnOnce(&Waiter<W, O>) -> Option<(Row<T>, O)>,
    ) -> Option<bool> {
        let mut state = self.state();
        let State {
            row,
            row_ends,
            asker,
            contention,
            ..
        } = &mut *state;
        let contention = contention.as_mut()?;
        let is_it = row.as_ref().is_some_and(|row| row.number == number);
        let in_time = row_ends.is_some_and(|ends| now < ends);
        if !is_it || !in_time || asker.is_some() {
            return None;
        }
        let (next, hold) = pass(contention.waiters.front()?)?;
        let owner = next.owner;
        let old = row.replace(next);
        let waiter = contention.pop()?;
        // In one step with the notification: from then on it may leave, and take the hold along.
        waiter.signal.give(hold);
        let mut notified = contention.of(owner);
        notified.extend([waiter.signal.clone()]);
        let replaced = contention.passed.replace(waiter);
        let is_new = !std::mem::replace(&mut contention.looks_soon, true);
        drop(state);
        drop((old, replaced, notified));
        Some(is_new)
    }

    /// Looks whether the notified tasks have been polled. Returns the tasks to notify instead, and when to look again. The server is
    /// asked about a row now and then, with a pause of that length. While no task `can_ask`, an asker is given time. A hold that is
    /// taken back is `marked` in the same step: its owner may be polled at once, and must not find that it has the lock.
    pub(super) fn look(
        &self,
        now: Instant,
        pause: impl Fn(&T) -> Duration,
        can_ask: impl Fn(&W) -> bool,
        mark: impl FnOnce(&O),
    ) -> Look<T, O> {
        let mut state = self.state();
        let State {
            row,
            asker,
            listener,
            contention,
            ..
        } = &mut *state;
        let mut look = Look {
            doubtful: None,
            withdrawn: None,
            notified: ToNotify::none(),
            next: None,
        };
        let Some(contention) = contention else {
            return look;
        };
        contention.looks_soon = false;
        if let Some(passed) = contention.passed.take_if(|passed| passed.signal.has_hold()) {
            look.next = Some(now + PICK_UP);
            contention.looks_soon = true;
            if passed.signal.is_late(now) {
                look.withdrawn = passed.signal.take().inspect(mark);
                if look.withdrawn.is_some() {
                    contention.push(passed);
                }
            } else {
                contention.passed = Some(passed);
            }
        }
        if contention.waiters.is_empty() {
            contention.is_listed = look.next.is_some();
            return look;
        }
        look.next = look.next.or(Some(now + LOOK));
        if let Some(row) = row {
            let since = contention
                .verify_at
                .filter(|(number, _)| *number == row.number);
            let (_, at) = since.unwrap_or((row.number, now + LOOK));
            let is_due = at <= now;
            look.doubtful = is_due.then(|| row.tenure.clone());
            let at = if is_due { now + pause(&row.tenure) } else { at };
            contention.verify_at = Some((row.number, at));
        }
        let waits = listener.as_ref().filter(|asker| asker.waits());
        let is_late = match (*asker, waits) {
            (_, Some(waits)) => waits.is_late(now),
            (Some(id), None) => {
                let since = contention.asks_since.filter(|(of, _)| *of == id);
                let (_, since) = *contention.asks_since.insert(since.unwrap_or((id, now)));
                let answers = 4 * contention.answer_takes;
                since + answers.clamp(ASKER_WAIT, LONGEST_ASKER_WAIT) <= now
            }
            (None, None) => false,
        };
        if waits.is_some() {
            contention.asks_since = None;
        }
        let first = contention.waiters.front();
        if row.is_none() && is_late && first.is_some_and(|first| can_ask(&first.request)) {
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

    /// All waiters, and a hold that was handed to one of them and not picked up, to be dropped after this lock's mutex is
    /// released.
    pub(super) fn closes(&self) -> (ToNotify<O>, Option<O>) {
        let mut state = self.state();
        let Some(contention) = &mut state.contention else {
            return (ToNotify::none(), None);
        };
        let passed = contention.passed.as_ref();
        let waiters = contention.waiters.iter().chain(passed);
        let notified = waiters.map(|waiter| waiter.signal.clone()).collect();
        (notified, passed.and_then(|passed| passed.signal.take()))
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
