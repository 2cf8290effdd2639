//! The waiters at each semaphore or latch, and which of them asks next. Pure.
//!
//! A waiter is parked once the server has refused it, and asks again when it is notified. A
//! message, or the answer to any call of this client, tells how many permits are left. As many
//! parked waiters are then notified as find enough, in the order of their arrival. A waiter for
//! more permits than there are does not hold up those behind it.
//!
//! A notified waiter that has not asked yet will find the permits that it was notified of, so its
//! share is left out of the next count. What the waiter learns, or leaves behind, is counted again:
//! no permit is left unused.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};

use crate::{
    engine::time_limits::{PERMITS_PICK_UP, PICK_UP},
    hash::HashMap,
    wire::sync_spec::SyncSpec,
};

/// The messages on a latch's channel: it was opened, or has a new count.
const OPENED: i64 = 0;
const BEGUN: i64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaiterId(u64);

/// The permits or the opening that a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Wanted {
    Permits(u32),
    /// Permits with ids. A message may announce fewer than are left: for some additions, Redisson
    /// publishes only the number that it added.
    Ids(u32),
    /// The opening of a latch. After the message `mark`, any opening counts.
    Opening {
        mark: i64,
        is_marked: bool,
    },
}

impl Wanted {
    pub(super) fn permits(self) -> i64 {
        match self {
            Wanted::Permits(permits) | Wanted::Ids(permits) => permits.into(),
            Wanted::Opening { .. } => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The waiter asks the server. An event since its attempt began makes a refusal `outdated`.
    Asking { outdated: bool },
    /// The waiter is parked until it is notified.
    Parked,
    /// The waiter was notified at that time, and has not asked yet.
    Notified(Instant),
    /// The waiter was notified and is not polled. The permits that it was notified of went to the
    /// next waiters.
    Stalled,
    /// The waiter was handed its permits at `since`. They may be handed on until the end of the
    /// hand-off window.
    Given {
        since: Instant,
        hand_off_until: Instant,
    },
    /// The wait is over; the server need not be asked.
    Over,
}

#[derive(Debug)]
struct SyncWaiter {
    id: WaiterId,
    wanted: Wanted,
    since: Instant,
    state: State,
    signal: Arc<Notify>,
}

impl SyncWaiter {
    fn notify(&mut self, state: State) {
        self.state = state;
        self.signal.notify_one();
    }

    /// Wakes the waiter: an attempt may succeed.
    fn wake(&mut self, now: Instant) {
        match &mut self.state {
            State::Asking { outdated } => *outdated = true,
            State::Parked => self.notify(State::Notified(now)),
            State::Notified(_) | State::Stalled | State::Given { .. } | State::Over => {}
        }
    }

    fn needs(&self) -> i64 {
        self.wanted.permits()
    }

    /// The permits that the waiter is about to ask for. A waiter that is not polled does not count
    /// for long.
    fn share(&self, now: Instant) -> i64 {
        match self.state {
            State::Notified(since) if now < since + PICK_UP => self.needs(),
            _ => 0,
        }
    }
}

/// The longest wait at a semaphore or a latch.
pub(in super::super) struct LongWait {
    pub(in super::super) spec: Arc<SyncSpec>,
    pub(super) wanted: Wanted,
    pub(in super::super) since: Instant,
    /// The last release that this client heard of, if only a release can end the wait.
    pub(super) last_release: Option<Instant>,
}

/// The work that a leaving waiter leaves to its caller.
pub(super) struct Left {
    /// Whether the channel has no waiter any more.
    pub(super) is_last: bool,
    /// Permits that were handed to it and that it has not taken, with the end of their hand-off
    /// window.
    pub(super) given: Option<(u32, Instant)>,
}

/// The waiters of one semaphore or latch.
#[derive(Debug)]
struct Queue {
    spec: Arc<SyncSpec>,
    waiters: VecDeque<SyncWaiter>,
    /// The time at which a waiter asks without a message.
    poll_at: Instant,
    /// How many permits were left at the last message or answer.
    left: i64,
    /// When this client last heard of a release.
    last_release: Instant,
    /// Whether some acquired permit ends by itself.
    has_end: bool,
    /// The time of the check whether waiters that were notified, or handed permits, have been
    /// polled.
    come_by: Option<Instant>,
}

impl Queue {
    fn next_poll(&self) -> Instant {
        let come_by = self.come_by.unwrap_or(self.poll_at);
        come_by.min(self.poll_at)
    }

    /// Records how many permits are left, and notifies parked waiters for those without a taker.
    fn record_left(&mut self, left: i64, now: Instant) {
        if left > self.left {
            self.last_release = now;
        }
        self.left = left;
        let notified: i64 = self.waiters.iter().map(|waiter| waiter.share(now)).sum();
        self.hand_off(left.saturating_sub(notified), now);
    }

    fn hand_off(&mut self, mut left: i64, now: Instant) {
        let parked = self.waiters.iter_mut();
        for waiter in parked.filter(|waiter| waiter.state == State::Parked) {
            if left <= 0 {
                break;
            }
            // An opening needs no permits, and no number of them brings it about.
            if (1..=left).contains(&waiter.needs()) {
                left -= waiter.needs();
                waiter.notify(State::Notified(now));
                self.come_by.get_or_insert(now + PERMITS_PICK_UP);
            }
        }
    }

    fn handle_message(&mut self, number: i64, now: Instant) {
        // A count is set only while the latch is open. If Redisson deletes the count, this message
        // alone tells of the opening.
        let is_opening = [OPENED, BEGUN].contains(&number);
        for waiter in &mut self.waiters {
            let needs = waiter.needs();
            match (&mut waiter.wanted, &mut waiter.state) {
                (Wanted::Permits(_), State::Asking { outdated }) => *outdated |= needs <= number,
                (Wanted::Ids(_), State::Asking { outdated }) => *outdated |= number > 0,
                (Wanted::Permits(_) | Wanted::Ids(_), _) => {}
                (
                    Wanted::Opening {
                        is_marked: true, ..
                    },
                    _,
                ) if is_opening => {
                    waiter.notify(State::Over);
                }
                (Wanted::Opening { .. }, _) if is_opening => {
                    waiter.wake(now);
                }
                (Wanted::Opening { mark, is_marked }, _) => *is_marked |= number == *mark,
            }
        }
        if number > 0 {
            self.last_release = now;
        }
        self.record_left(number, now);
        // One waiter for more permits than this asks; what it learns is counted for all.
        let mut waiters = self.waiters.iter_mut();
        let is_unsure = |waiter: &SyncWaiter| {
            matches!(waiter.wanted, Wanted::Ids(_)) && waiter.needs() > number
        };
        if number > 0
            && let Some(first) = waiters.find(|waiter| is_unsure(waiter))
            && first.state == State::Parked
        {
            first.notify(State::Notified(now));
            self.come_by.get_or_insert(now + PERMITS_PICK_UP);
        }
    }

    /// A waiter that is not polled goes to the end of the queue. Permits that it was handed are
    /// taken back; permits that it was notified of go to the next waiters.
    fn requeue_stalled_waiters(
        &mut self,
        now: Instant,
        untaken_permits: &mut Vec<(Arc<SyncSpec>, u32, Instant)>,
    ) {
        self.come_by = None;
        let (mut stalled, mut next, mut untaken) = (Vec::new(), None::<Instant>, 0);
        for at in 0..self.waiters.len() {
            let waiter = &mut self.waiters[at];
            let (since, hand_off_until) = match waiter.state {
                State::Given {
                    since,
                    hand_off_until,
                } => (since, Some(hand_off_until)),
                State::Notified(since) => (since, None),
                _ => continue,
            };
            let end = since + PERMITS_PICK_UP;
            if end > now {
                next = Some(next.map_or(end, |next| next.min(end)));
                continue;
            }
            stalled.push(waiter.id);
            match (hand_off_until, waiter.wanted) {
                (Some(hand_off_until), Wanted::Permits(permits)) => {
                    waiter.state = State::Parked;
                    untaken_permits.push((self.spec.clone(), permits, hand_off_until));
                }
                _ => {
                    waiter.state = State::Stalled;
                    untaken += waiter.needs();
                }
            }
        }
        for id in stalled {
            let at = self.waiters.iter().position(|waiter| waiter.id == id);
            let waiter = at.and_then(|at| self.waiters.remove(at));
            self.waiters.extend(waiter);
        }
        self.come_by = next;
        self.hand_off(untaken, now);
    }

    fn waiter(&mut self, id: WaiterId) -> Option<&mut SyncWaiter> {
        self.waiters.iter_mut().find(|waiter| waiter.id == id)
    }
}

/// All waiters of a client, by channel. Two names can share a channel, as `a` and `{a}` do.
#[derive(Debug)]
pub(super) struct Waiters {
    channels: HashMap<Bytes, Vec<Queue>>,
    max_poll_interval: Duration,
    ids: u64,
}

impl Waiters {
    pub(super) fn new(max_poll_interval: Duration) -> Self {
        Self {
            channels: HashMap::default(),
            max_poll_interval,
            ids: 0,
        }
    }

    fn queue(&mut self, spec: &SyncSpec) -> Option<&mut Queue> {
        let mut queues = self.channels.get_mut(&spec.channel)?.iter_mut();
        queues.find(|queue| queue.spec.key == spec.key)
    }

    fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.channels.values_mut().flatten()
    }

    /// Whether a parked waiter wants no more than this. It would have been notified, so an earlier
    /// attempt is of no use.
    pub(super) fn would_wait(&mut self, spec: &SyncSpec, wanted: Wanted) -> bool {
        let mut waiters = self
            .queue(spec)
            .into_iter()
            .flat_map(|queue| &queue.waiters);
        waiters.any(|waiter| waiter.state == State::Parked && waiter.needs() <= wanted.permits())
    }

    /// Adds a task, which asks at once or enqueues `behind` the waiters that
    /// [wait](Self::would_wait).
    pub(super) fn join(
        &mut self,
        spec: &Arc<SyncSpec>,
        wanted: Wanted,
        behind: bool,
        signal: Arc<Notify>,
        now: Instant,
    ) -> WaiterId {
        self.ids += 1;
        let id = WaiterId(self.ids);
        let poll_at = now + self.max_poll_interval;
        if self.queue(spec).is_none() {
            let queues = self.channels.entry(spec.channel.clone()).or_default();
            queues.push(Queue {
                spec: spec.clone(),
                waiters: VecDeque::new(),
                poll_at,
                left: 0,
                last_release: now,
                has_end: false,
                come_by: None,
            });
        }
        let waiters = self.queue(spec).map(|queue| &mut queue.waiters);
        waiters.into_iter().for_each(|waiters| {
            waiters.push_back(SyncWaiter {
                id,
                wanted,
                since: now,
                state: match behind {
                    true => State::Parked,
                    false => State::Notified(now),
                },
                signal: signal.clone(),
            });
        });
        id
    }

    pub(super) fn state(&mut self, spec: &SyncSpec, id: WaiterId) -> State {
        let waiter = self.queue(spec).and_then(|queue| queue.waiter(id));
        // A waiter is in its queue from its join to its leave.
        waiter.map_or(State::Over, |waiter| waiter.state)
    }

    /// Returns the state of the waiter, which takes what it was handed.
    pub(super) fn take(&mut self, spec: &SyncSpec, id: WaiterId) -> State {
        let state = self.state(spec, id);
        if let State::Given { .. } = state {
            self.mark_served(spec, id);
        }
        state
    }

    pub(super) fn begin_attempt(&mut self, spec: &SyncSpec, id: WaiterId) {
        if let Some(queue) = self.queue(spec)
            && let Some(waiter) = queue.waiter(id)
            && matches!(
                waiter.state,
                State::Parked | State::Notified(_) | State::Stalled
            )
        {
            waiter.state = State::Asking { outdated: false };
        }
    }

    /// Records a refusal. The next poll is at the nearest end of a permit, when an attempt may
    /// succeed.
    pub(super) fn record_refusal(
        &mut self,
        spec: &SyncSpec,
        id: WaiterId,
        end: Option<Instant>,
        now: Instant,
    ) {
        let poll_at = now + self.max_poll_interval;
        if let Some(queue) = self.queue(spec) {
            queue.poll_at = end.map_or(poll_at, |end| end.min(poll_at));
            queue.has_end = end.is_some();
            if let Some(waiter) = queue.waiter(id)
                && let State::Asking { outdated } = waiter.state
            {
                waiter.state = match outdated {
                    true => State::Notified(now),
                    false => State::Parked,
                };
            }
        }
    }

    /// Records how many permits are left, and when the next one ends, from an answer of the server.
    pub(super) fn record_left(
        &mut self,
        spec: &SyncSpec,
        left: i64,
        end: Option<Instant>,
        now: Instant,
    ) {
        if let Some(queue) = self.queue(spec) {
            queue.record_left(left, now);
            queue.poll_at = end.map_or(queue.poll_at, |end| end.min(queue.poll_at));
        }
    }

    /// Hands permits to waiters that want no more than there are. Returns how many are left.
    pub(super) fn give(
        &mut self,
        spec: &SyncSpec,
        permits: u32,
        hand_off_until: Instant,
        now: Instant,
    ) -> u32 {
        let Some(queue) = self.queue(spec) else {
            return permits;
        };
        let mut left = permits;
        queue.last_release = now;
        let parked = queue.waiters.iter_mut();
        for waiter in parked.filter(|waiter| waiter.state == State::Parked) {
            let Wanted::Permits(wanted) = waiter.wanted else {
                continue;
            };
            if let Some(rest) = left.checked_sub(wanted) {
                left = rest;
                waiter.notify(State::Given {
                    since: now,
                    hand_off_until,
                });
            }
            if left == 0 {
                break;
            }
        }
        if left < permits {
            queue.come_by.get_or_insert(now + PERMITS_PICK_UP);
        }
        left
    }

    /// Marks the waiter as served: it has what it wanted.
    pub(super) fn mark_served(&mut self, spec: &SyncSpec, id: WaiterId) {
        if let Some(waiter) = self.queue(spec).and_then(|queue| queue.waiter(id)) {
            waiter.state = State::Over;
        }
    }

    /// Removes a waiter.
    pub(super) fn leave(&mut self, spec: &SyncSpec, id: WaiterId, now: Instant) -> Left {
        let mut left = Left {
            is_last: false,
            given: None,
        };
        let Some(queue) = self.queue(spec) else {
            return left;
        };
        let at = queue.waiters.iter().position(|waiter| waiter.id == id);
        if let Some(waiter) = at.and_then(|at| queue.waiters.remove(at)) {
            match (waiter.state, waiter.wanted) {
                // The permits that the waiter was notified of, or is about to learn of, go to the
                // next waiters.
                (State::Notified(_) | State::Asking { .. }, _) => {
                    queue.hand_off(waiter.needs(), now);
                }
                (State::Given { hand_off_until, .. }, Wanted::Permits(permits)) => {
                    left.given = Some((permits, hand_off_until));
                }
                _ => {}
            }
        }
        if queue.waiters.is_empty() {
            let queues = self.channels.entry(spec.channel.clone()).or_default();
            queues.retain(|queue| !queue.waiters.is_empty());
            left.is_last = queues.is_empty();
            if left.is_last {
                self.channels.remove(&spec.channel);
            }
        }
        left
    }

    /// Handles a message, which is a number.
    pub(super) fn handle_message(&mut self, channel: &Bytes, number: i64, now: Instant) {
        let queues = self.channels.get_mut(channel).into_iter().flatten();
        queues.for_each(|queue| queue.handle_message(number, now));
    }

    /// Wakes all waiters: the latch was found open.
    pub(super) fn record_open(&mut self, spec: &SyncSpec, now: Instant) {
        let queue = self.queue(spec).into_iter();
        let waiters = queue.flat_map(|queue| &mut queue.waiters);
        waiters.for_each(|waiter| waiter.wake(now));
    }

    /// Wakes the waiters of these channels: messages may have been missed.
    pub(super) fn wake_where(&mut self, is_one: impl Fn(&Bytes) -> bool, now: Instant) {
        let channels = self.channels.iter_mut();
        let queues = channels.filter(|(channel, _)| is_one(channel));
        let waiters = queues
            .flat_map(|(_, queues)| queues)
            .flat_map(|queue| &mut queue.waiters);
        waiters.for_each(|waiter| waiter.wake(now));
    }

    /// The time of the next poll at `spec`.
    pub(super) fn next_poll_at(&mut self, spec: &SyncSpec) -> Option<Instant> {
        self.queue(spec).map(|queue| queue.next_poll())
    }

    pub(super) fn next_poll(&self) -> Option<Instant> {
        self.channels.values().flatten().map(Queue::next_poll).min()
    }

    /// Notifies the first parked waiter of each queue without a message for long. Returns permits
    /// that were handed to tasks which have not taken them; the caller hands them on.
    pub(super) fn notify_due(&mut self, now: Instant) -> Vec<(Arc<SyncSpec>, u32, Instant)> {
        let mut untaken_permits = Vec::new();
        for queue in self.queues() {
            if queue.come_by.is_some_and(|at| at <= now) {
                queue.requeue_stalled_waiters(now, &mut untaken_permits);
            }
        }
        let poll_at = now + self.max_poll_interval;
        for queue in self.queues().filter(|queue| queue.poll_at <= now) {
            queue.poll_at = poll_at;
            let mut waiters = queue.waiters.iter_mut();
            if let Some(first) = waiters.find(|waiter| waiter.state == State::Parked) {
                first.notify(State::Notified(now));
                queue.come_by.get_or_insert(now + PERMITS_PICK_UP);
            }
        }
        untaken_permits
    }

    /// The longest wait at each semaphore and latch that has lasted for `least`.
    pub(super) fn long_waits(&self, least: Duration, now: Instant) -> Vec<LongWait> {
        let queues = self.channels.values().flatten();
        let longest = queues.filter_map(|queue| {
            let waiter = queue.waiters.iter().min_by_key(|waiter| waiter.since)?;
            let needs_release = !queue.has_end && waiter.wanted.permits() > 0;
            Some(LongWait {
                spec: queue.spec.clone(),
                wanted: waiter.wanted,
                since: waiter.since,
                last_release: needs_release.then_some(queue.last_release),
            })
        });
        longest
            .filter(|wait| now.saturating_duration_since(wait.since) >= least)
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }
}

#[cfg(test)]
#[path = "waiters_tests.rs"]
mod tests;
