//! The subscribed waiters of one client, and which of them tries next. Pure.
//!
//! The waiters of a local queue ([`local_lock`](super::local_lock)) are not among them, except its asker.
//!
//! Messages, reconnections, losses and polls wake waiters. A waiter stores its wake-up as a state.
//! An event during an attempt makes a refusal outdated; the waiter then tries again instead of
//! parking. A waiter that leaves without using a wake-up passes it on. Each queue has a
//! poll besides: when the holder's lease ends, and after the poll interval at the latest (invariant
//! 5).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    deadline_queue::DeadlineQueue,
    echoes::Ticket,
    intents::Intents,
    room_queue::{KeepsSubscribed, Key, RoomQueue, RoomWaiter, WaiterId, WaiterState},
    time_limits::{
        LONGEST_POLL_PAUSE, SERVER_CLOCK_STEP, SHORTEST_POLL_PAUSE, UNANNOUNCED_POLL_INTERVAL,
    },
    yielding::{Neighbours, Yields},
};
use crate::{
    hash::HashMap,
    wire::{LockSpec, message::Wake},
};

/// The waiters by channel and lock. `S` is the signal of a waiter.
///
/// Two names can share a channel (`a` and `{a}` do): a message concerns the waiters of each.
#[derive(Debug)]
pub(super) struct Waiters<S> {
    /// The queues of each channel. Most channels have one, so a list takes less room than a map.
    channels: HashMap<Bytes, Vec<RoomQueue<S>>>,
    /// The time of each queue's next poll.
    polls: DeadlineQueue<Key>,
    /// The yields, in which locks are left to other clients.
    pub(super) yields: Yields,
    intents: Intents,
    /// Locks whose writers have left, and may have left an intent.
    withdrawn: Vec<Arc<LockSpec>>,
    /// Locks that this client has, or had, although a message announced another client's release.
    contradicted: Vec<Arc<LockSpec>>,
    /// Locks that were granted to a poll, and not after a message.
    unheard: Vec<Arc<LockSpec>>,
    /// Channels to unsubscribe from.
    unneeded: Vec<Bytes>,
    max_poll_interval: Duration,
    ids: u64,
}

/// Whether a refused waiter may park.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParkDecision {
    /// The waiter is parked until it is notified.
    Parked,
    /// An event has arrived since the attempt began.
    TryAgain,
}

impl<S: Clone> Waiters<S> {
    pub(super) fn new(max_poll_interval: Duration, yields: bool) -> Self {
        Self {
            channels: HashMap::default(),
            polls: DeadlineQueue::default(),
            yields: Yields::new(yields),
            intents: Intents::new(yields),
            withdrawn: Vec::new(),
            contradicted: Vec::new(),
            unheard: Vec::new(),
            unneeded: Vec::new(),
            max_poll_interval,
            ids: 0,
        }
    }

    fn queue(&mut self, spec: &LockSpec) -> Option<&mut RoomQueue<S>> {
        self.queue_and_polls(spec).map(|(queue, _)| queue)
    }

    fn queue_and_polls(
        &mut self,
        spec: &LockSpec,
    ) -> Option<(&mut RoomQueue<S>, &mut DeadlineQueue<Key>)> {
        let mut queues = self.channels.get_mut(&spec.channel)?.iter_mut();
        let queue = queues.find(|queue| queue.is_of(spec))?;
        Some((queue, &mut self.polls))
    }

    /// Adds a waiter that is about to try.
    pub(super) fn join(&mut self, spec: &Arc<LockSpec>, signal: S) -> WaiterId {
        self.ids += 1;
        let id = WaiterId(self.ids);
        let waiter = RoomWaiter {
            id,
            state: WaiterState::Trying,
            signal,
        };
        match self.queue(spec) {
            Some(queue) => queue.waiters.push_back(waiter),
            None => self.begin(spec).waiters.push_back(waiter),
        }
        id
    }

    fn begin(&mut self, spec: &Arc<LockSpec>) -> &mut RoomQueue<S> {
        let max_poll_interval = max_poll_interval(spec, self.max_poll_interval);
        let queues = self.channels.entry(spec.channel.clone());
        let queues = queues.or_insert_with(|| Vec::with_capacity(1));
        queues.push(RoomQueue::new(spec, max_poll_interval));
        let last = queues.len() - 1;
        &mut queues[last]
    }

    /// Keeps the client subscribed for as long as it holds the lock. Returns whether it has to subscribe.
    pub(super) fn stay_subscribed(&mut self, spec: &Arc<LockSpec>) -> bool {
        let queue = match self.queue(spec) {
            Some(queue) => queue,
            None => self.begin(spec),
        };
        queue.keeps_subscribed = KeepsSubscribed::WhileHeld;
        !queue.listens
    }

    /// Wakes the other waiters of the owner that acquired the lock: they re-enter. `taker` is the waiter that acquired it, if it waited.
    pub(super) fn wake_waiters_of_owner(
        &mut self,
        spec: &LockSpec,
        taker: Option<WaiterId>,
        is_of_owner: impl Fn(&S) -> bool,
    ) -> Vec<S> {
        let waiters = self.queue(spec).map(|queue| queue.waiters.iter_mut());
        let others = waiters.into_iter().flatten();
        let others = others.filter(|other| Some(other.id) != taker && is_of_owner(&other.signal));
        others.filter_map(RoomWaiter::wake).collect()
    }

    /// Adds a waiter that does not try before the end of a yield. Returns `None` without a yield;
    /// otherwise its id, and whether the subscription is confirmed.
    pub(super) fn join_yielding(
        &mut self,
        spec: &Arc<LockSpec>,
        signal: S,
        now: Instant,
    ) -> Option<(WaiterId, bool)> {
        let until = self.yields.begin_wait(spec, now)?;
        let id = self.join(spec, signal);
        let queue = self.queue(spec)?;
        queue.waiter(id)?.state = WaiterState::Parked;
        queue.rest(until);
        let listens = queue.listens;
        self.poll_by(spec, until, now);
        Some((id, listens))
    }

    /// Records the end of a subscription: it is confirmed if `done`, or has failed.
    pub(super) fn record_subscription(&mut self, spec: &LockSpec, done: bool) {
        if let Some(queue) = self.queue(spec) {
            queue.listens |= done;
            queue.has_subscribed = true;
        }
    }

    /// Begins the release of a last hold of this client. Its message may arrive before the answer,
    /// so its echo is expected from now on.
    pub(super) fn begin_release(&mut self, spec: &LockSpec, now: Instant) -> Option<Ticket> {
        let queue = self.queue(spec).filter(|queue| queue.listens)?;
        Some(queue.echoes.expect(now))
    }

    /// Finishes the release of a last hold of this client. The message reached the neighbours
    /// `heard`; `None` if it may not have been published. A yield begins if it is `due`. If the
    /// release was `alone`, no other task of this client waits for the lock.
    pub(super) fn finish_release(
        &mut self,
        spec: &Arc<LockSpec>,
        ticket: Option<Ticket>,
        heard: Option<Neighbours>,
        (due, alone): (bool, bool),
        now: Instant,
    ) -> Vec<S> {
        let published = heard.is_some();
        let listen_until =
            heard.and_then(|heard| self.yields.record_release(spec, heard, due, alone, now));
        let Some(queue) = self.queue(spec) else {
            return Vec::new();
        };
        if queue.keeps_subscribed == KeepsSubscribed::WhileHeld {
            queue.keeps_subscribed =
                listen_until.map_or(KeepsSubscribed::No, KeepsSubscribed::Until);
        }
        let notified =
            match ticket.is_some_and(|ticket| queue.echoes.record_answer(ticket, published, now)) {
                true => queue.wake(Wake::One),
                false => Vec::new(),
            };
        self.forget_if_unused(spec, now);
        notified
    }

    /// Records the loss of a hold of this client. Wakes one waiter of each queue: the other side of a
    /// read-write lock has a queue of its own.
    pub(super) fn record_loss(&mut self, spec: &LockSpec, now: Instant) -> Vec<S> {
        let queues = self.channels.get_mut(&spec.channel).into_iter().flatten();
        let notified = queues.flat_map(|queue| {
            queue.end_rest();
            queue.wake(Wake::One)
        });
        let notified = notified.collect();
        self.end_hold(spec, now);
        notified
    }

    /// Schedules a poll for the remaining waiters: one of them was granted the lock until `until`,
    /// and leaves.
    pub(super) fn poll_after_grant(&mut self, spec: &LockSpec, until: Instant, now: Instant) {
        let Some(queue) = self.queue(spec) else {
            return;
        };
        if queue.waiters.len() > 1 {
            let at = now + pause(Some(until - now), queue.polls, queue.max_poll_interval);
            self.poll_by(spec, at, now);
        }
    }

    /// Begins an attempt of a waiter. A later event makes its refusal out of date.
    pub(super) fn begin_attempt(&mut self, spec: &LockSpec, id: WaiterId) {
        if let Some(waiter) = self.queue(spec).and_then(|queue| queue.waiter(id)) {
            waiter.state = WaiterState::Trying;
        }
    }

    /// Records a refused attempt; the holder has `remaining` left.
    pub(super) fn record_refusal(
        &mut self,
        spec: &LockSpec,
        id: WaiterId,
        remaining: Option<Duration>,
        now: Instant,
    ) -> ParkDecision {
        let Some(queue) = self.queue(spec) else {
            return ParkDecision::TryAgain;
        };
        match queue.waiter(id) {
            Some(waiter) if waiter.state == WaiterState::Trying => {
                waiter.state = WaiterState::Parked
            }
            _ => return ParkDecision::TryAgain,
        }
        queue.echoes.forget();
        if spec.protocol.intend().is_some() {
            let writers = queue.key.arc().clone();
            self.intents.add_writer(&writers, now);
        }
        let Some(queue) = self.queue(spec) else {
            return ParkDecision::TryAgain;
        };
        let at = now + pause(remaining, queue.polls, queue.max_poll_interval);
        self.poll_by(spec, at, now);
        ParkDecision::Parked
    }

    /// Schedules a poll of the queue at `at`, or earlier.
    fn poll_by(&mut self, spec: &LockSpec, at: Instant, now: Instant) {
        let Some((queue, polls)) = self.queue_and_polls(spec) else {
            return;
        };
        let old = queue.poll_at;
        // A later waiter does not postpone the poll that earlier waiters count on.
        let new = old.filter(|old| *old > now).map_or(at, |old| old.min(at));
        if old != Some(new) {
            queue.set_poll(Some(new), polls);
        }
    }

    /// Removes a waiter, which was `granted` the lock or gives up. Passes on a notification that
    /// the waiter has not used. The lock may have been lost since the grant, and that loss reported:
    /// `is_held` says whether the client has it still.
    pub(super) fn leave(
        &mut self,
        spec: &LockSpec,
        id: WaiterId,
        granted: bool,
        is_held: impl FnOnce() -> bool,
        now: Instant,
    ) -> Vec<S> {
        let stays = self.yields.may_stay(spec);
        let Some(queue) = self.queue(spec) else {
            return Vec::new();
        };
        let Ok(index) = queue.waiters.binary_search_by_key(&id, |waiter| waiter.id) else {
            return Vec::new();
        };
        let state = queue.waiters.remove(index).map(|waiter| waiter.state);
        // Before the confirmation of a subscription, perhaps no attempt follows it: the next waiter
        // tries. In a yield, the poll at its end does.
        let sure = queue.has_subscribed || queue.rests_until(now).is_some();
        let parked = state == Some(WaiterState::Parked) && sure;
        // The event during the attempt concerned the hold that is granted now, or a later one.
        let outdated = state == Some(WaiterState::Outdated);
        // A grant of a shared lock lets the next waiter acquire too.
        let used = granted && !spec.grant_wakes_next && !outdated;
        let passed_on = if used || parked {
            Vec::new()
        } else {
            queue.wake(Wake::One)
        };
        if granted && stays && queue.listens && is_held() {
            queue.keeps_subscribed = KeepsSubscribed::WhileHeld;
        }
        let (is_empty, spec) = (queue.waiters.is_empty(), queue.key.arc().clone());
        let polls = queue.polls;
        if granted && outdated && spec.has_local_queue() {
            self.contradicted.push(spec.clone());
        }
        if granted && polls > 0 && spec.announced {
            self.unheard.push(spec.clone());
        }
        if spec.protocol.intend().is_some() {
            if granted {
                self.intents.record_grant(&spec.name, now);
            }
            if is_empty && self.intents.remove_writers(&spec.name, now) {
                self.withdrawn.push(spec.clone());
            }
        }
        self.forget_if_unused(&spec, now);
        passed_on
    }

    /// Records a grant to this client. `is_held` as for [`leave`](Self::leave).
    pub(super) fn record_grant(
        &mut self,
        spec: &LockSpec,
        is_held: impl FnOnce() -> bool,
        now: Instant,
    ) {
        self.yields.record_grant(spec, now);
        if let Some(queue) = self.queue(spec)
            && let KeepsSubscribed::Until(_) = queue.keeps_subscribed
            && is_held()
        {
            queue.keeps_subscribed = KeepsSubscribed::WhileHeld;
        }
    }

    /// Records the end of a hold without a message.
    pub(super) fn end_hold(&mut self, spec: &LockSpec, now: Instant) {
        if let Some(queue) = self.queue(spec)
            && queue.keeps_subscribed == KeepsSubscribed::WhileHeld
        {
            queue.keeps_subscribed = KeepsSubscribed::No;
            self.forget_if_unused(spec, now);
        }
    }

    /// Removes the queue of a lock, if it has no waiter and the client need not listen any more.
    fn forget_if_unused(&mut self, spec: &LockSpec, now: Instant) {
        let Some(queue) = self.queue(spec) else {
            return;
        };
        if queue.is_over(now) {
            self.forget(spec);
        } else if let KeepsSubscribed::Until(until) = queue.keeps_subscribed
            && queue.waiters.is_empty()
        {
            self.poll_by(spec, until, now);
        }
    }

    /// Takes the channels to unsubscribe from. The caller unsubscribes in the order of the changes
    /// here.
    pub(super) fn take_unneeded(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.unneeded)
    }

    /// Takes the locks that this client has, as far as it knows, although a message announced
    /// another client's release.
    pub(super) fn take_contradicted(&mut self) -> Vec<Arc<LockSpec>> {
        std::mem::take(&mut self.contradicted)
    }

    /// Takes the locks that were granted although no message had announced a release.
    pub(super) fn take_unheard(&mut self) -> Vec<Arc<LockSpec>> {
        std::mem::take(&mut self.unheard)
    }

    /// Takes the locks whose writers have left, and may have left an intent.
    pub(super) fn take_withdrawn(&mut self) -> Vec<Arc<LockSpec>> {
        std::mem::take(&mut self.withdrawn)
    }

    /// Takes the intents that are due, with their lengths.
    pub(super) fn take_due_intents(&mut self, now: Instant) -> Vec<(Arc<LockSpec>, Duration)> {
        std::iter::from_fn(|| self.intents.take_due(now)).collect()
    }

    /// Records that the server refused an intent of a writer.
    pub(super) fn record_intent_refusal(
        &mut self,
        name: &Arc<str>,
        has_no_readers: bool,
        now: Instant,
    ) {
        self.intents.record_refusal(name, has_no_readers, now);
    }

    /// The number of channels with a waiter or a subscription.
    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether this client listens to `channel`, or is about to.
    pub(super) fn listens(&self, channel: &Bytes) -> bool {
        self.channels.contains_key(channel)
    }

    /// Removes the queue of a lock without waiters.
    fn forget(&mut self, spec: &LockSpec) {
        let Some(queues) = self.channels.get_mut(&spec.channel) else {
            return;
        };
        let index = queues.iter().position(|queue| queue.is_of(spec));
        let queue = index.map(|index| queues.swap_remove(index));
        if queues.is_empty() {
            self.channels.remove(&spec.channel);
            self.unneeded.push(spec.channel.clone());
        }
        if let Some(mut queue) = queue {
            queue.set_poll(None, &mut self.polls);
        }
    }

    /// Handles a message on `channel`. It wakes all waiters only where all may acquire: of writers,
    /// one at a time tries (P-W9).
    pub(super) fn handle_message(&mut self, channel: &Bytes, wake: Wake, now: Instant) -> Vec<S> {
        let mut notified = Vec::new();
        let mut stand_back = Vec::new();
        for queue in self.channels.get_mut(channel).into_iter().flatten() {
            let key = queue.key.clone();
            let spec = key.spec();
            let all = wake == Wake::All && !spec.mode.excludes_readers();
            let wake = if all { Wake::All } else { Wake::One };
            if !all && queue.absorb_echo(now) {
                continue;
            }
            if queue.keeps_subscribed == KeepsSubscribed::WhileHeld {
                self.contradicted.push(key.arc().clone());
            }
            let until = self.yields.record_foreign_release(spec, now);
            queue.end_rest();
            match until {
                Some(until) if spec.has_local_queue() => {
                    queue.rest(until);
                    stand_back.push((key, until));
                }
                _ => notified.extend(queue.wake(wake)),
            }
        }
        for (key, until) in stand_back {
            self.poll_by(key.spec(), until, now);
        }
        notified
    }

    /// The first waiter of each lock.
    pub(super) fn foremost(&self) -> impl Iterator<Item = (&Arc<LockSpec>, &S)> {
        let queues = self.channels.values().flatten();
        queues.filter_map(|queue| Some((queue.key.arc(), &queue.waiters.front()?.signal)))
    }

    /// All waiters of all locks.
    pub(super) fn all_waiters(&self) -> Vec<S> {
        let queues = self.channels.values().flatten();
        let waiters = queues.flat_map(|queue| &queue.waiters);
        waiters.map(|waiter| waiter.signal.clone()).collect()
    }

    /// Wakes all waiters: messages may have been missed.
    pub(super) fn wake_all(&mut self) -> Vec<S> {
        self.wake_all_where(|_| true)
    }

    /// Wakes all waiters of the channels that are `concerned`.
    pub(super) fn wake_all_where(&mut self, concerned: impl Fn(&Bytes) -> bool) -> Vec<S> {
        let channels = self.channels.iter_mut();
        let queues = channels.filter(|(channel, _)| concerned(channel));
        queues
            .flat_map(|(_, queues)| queues)
            .flat_map(|queue| {
                queue.echoes.forget();
                queue.end_rest();
                queue.wake(Wake::All)
            })
            .collect()
    }

    /// Wakes one writer, because an intent found the lock free, and no message announced that.
    /// Redisson publishes none when a reader leaves a lease that ends much earlier than the waiters
    /// were told.
    pub(super) fn wake_for_free_lock(&mut self, spec: &LockSpec, now: Instant) -> Vec<S> {
        self.intents.record_refusal(&spec.name, false, now);
        let queue = self.queue(spec);
        // A client that stands back asks when that is over.
        let queue = queue.filter(|queue| queue.rests_until(now).is_none());
        queue.map_or_else(Vec::new, |queue| queue.wake(Wake::One))
    }

    /// The time of the next poll or intent.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = [self.next_poll(), self.intents.next_due()];
        due.into_iter().flatten().min()
    }

    pub(super) fn next_poll(&self) -> Option<Instant> {
        self.polls.next()
    }

    /// Takes the waiters whose poll is due at `now`. The next poll of each queue comes after the
    /// poll interval at the latest, whatever becomes of this one.
    pub(super) fn notify_due(&mut self, now: Instant) -> Vec<S> {
        let mut notified = Vec::new();
        while let Some((key, ())) = self.polls.pop_due(now) {
            if let Some((queue, all)) = self.queue_and_polls(key.spec()) {
                if queue.is_over(now) {
                    self.forget(key.spec());
                    continue;
                }
                if let Some(until) = queue.rests_until(now) {
                    // Another client has acquired the lock in between: this client stands back for
                    // longer.
                    queue.set_poll(Some(until), all);
                    continue;
                }
                let mut next = now + queue.max_poll_interval;
                if let KeepsSubscribed::Until(until) = queue.keeps_subscribed
                    && queue.waiters.is_empty()
                {
                    next = next.min(until);
                }
                let rested = queue.end_rest();
                let polls = queue.polls;
                // Without a parked waiter, one with an attempt under way tries again after its
                // refusal.
                let wake = match rested && key.spec().grant_wakes_next {
                    true => Wake::All,
                    false => Wake::One,
                };
                notified.extend(queue.wake(wake));
                queue.polls = polls + 1;
                queue.set_poll(Some(next), all);
            }
        }
        notified
    }
}

/// The poll interval of a lock's waiters.
pub(super) fn max_poll_interval(spec: &LockSpec, configured: Duration) -> Duration {
    match spec.announced {
        true => configured,
        false => configured.min(UNANNOUNCED_POLL_INTERVAL),
    }
}

/// The pause of a refused waiter until the next poll: until the holder's lease ends, for the
/// doubling pause at least, and for the poll interval at most.
fn pause(remaining: Option<Duration>, polls: u32, longest: Duration) -> Duration {
    let doubled = SHORTEST_POLL_PAUSE.saturating_mul(1 << polls.min(16));
    let lease_over = remaining.map_or(longest, |remaining| remaining + SERVER_CLOCK_STEP);
    lease_over.max(doubled.min(LONGEST_POLL_PAUSE)).min(longest)
}

#[cfg(test)]
#[path = "waiters_tests.rs"]
mod tests;
