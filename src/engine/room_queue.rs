//! The subscribed waiters of one client for one lock, and their states. Pure.

use std::{cmp::Ordering, collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{deadline_queue::DeadlineQueue, echoes::Echoes};
use crate::wire::{HoldMode, LockSpec, message::Wake};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WaiterId(pub(super) u64);

/// The key of a queue: a lock, and for a read-write lock its side. A message thus wakes one reader
/// and one writer.
#[derive(Debug, Clone)]
pub(super) struct Key(Arc<LockSpec>);

impl Key {
    pub(super) fn spec(&self) -> &LockSpec {
        &self.0
    }

    pub(super) fn arc(&self) -> &Arc<LockSpec> {
        &self.0
    }

    fn parts(&self) -> (&Bytes, &str, HoldMode) {
        (&self.0.channel, &self.0.name, self.0.mode)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

/// The waiters of one lock, in the order of their arrival.
#[derive(Debug)]
pub(super) struct RoomQueue<S> {
    pub(super) key: Key,
    /// The interval at which a waiter asks without a message.
    pub(super) max_poll_interval: Duration,
    pub(super) waiters: VecDeque<RoomWaiter<S>>,
    pub(super) poll_at: Option<Instant>,
    /// Polls since the last message.
    pub(super) polls: u32,
    pub(super) echoes: Echoes,
    /// The end of the time in which the waiters leave the lock to other clients.
    rest_until: Option<Instant>,
    /// Whether the subscription is confirmed: messages arrive.
    pub(super) listens: bool,
    /// Whether a waiter has subscribed, or has failed to.
    pub(super) has_subscribed: bool,
    /// Whether this client stays subscribed without a waiter.
    pub(super) keeps_subscribed: KeepsSubscribed,
}

/// Whether a client stays subscribed without a waiter. A client that comes back to a contended lock
/// again and again then receives the messages of all releases by other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepsSubscribed {
    No,
    /// The client stays subscribed for as long as it holds the lock.
    WhileHeld,
    Until(Instant),
}

#[derive(Debug)]
pub(super) struct RoomWaiter<S> {
    pub(super) id: WaiterId,
    pub(super) state: WaiterState,
    pub(super) signal: S,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaiterState {
    /// The waiter asks the server, or is about to.
    Trying,
    /// The waiter asks, but this client has released the lock since the attempt began: a refusal
    /// will be out of date.
    Echoed,
    /// The waiter asks, but an event has arrived since the attempt began: a refusal will be out of
    /// date, and perhaps a grant.
    Outdated,
    /// The waiter was refused, and waits to be notified.
    Parked,
    /// The waiter was notified, and has not begun an attempt.
    Notified,
}

impl<S: Clone> RoomWaiter<S> {
    /// Wakes the waiter: it tries, or tries again if its attempt under way is refused.
    pub(super) fn wake(&mut self) -> Option<S> {
        match self.state {
            WaiterState::Trying | WaiterState::Echoed => self.state = WaiterState::Outdated,
            WaiterState::Parked => {
                self.state = WaiterState::Notified;
                return Some(self.signal.clone());
            }
            WaiterState::Outdated | WaiterState::Notified => {}
        }
        None
    }
}

impl<S> RoomQueue<S> {
    pub(super) fn new(spec: &Arc<LockSpec>, max_poll_interval: Duration) -> Self {
        Self {
            key: Key(spec.clone()),
            max_poll_interval,
            // Most queues have one waiter.
            waiters: VecDeque::with_capacity(1),
            poll_at: None,
            polls: 0,
            echoes: Echoes::default(),
            rest_until: None,
            listens: false,
            has_subscribed: false,
            keeps_subscribed: KeepsSubscribed::No,
        }
    }

    /// Whether there is no waiter, and this client need not stay subscribed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.waiters.is_empty()
            && match self.keeps_subscribed {
                KeepsSubscribed::No => true,
                KeepsSubscribed::WhileHeld => false,
                KeepsSubscribed::Until(until) => until <= now,
            }
    }

    /// Makes the waiters leave the lock to other clients until `until`.
    pub(super) fn rest(&mut self, until: Instant) {
        self.rest_until = Some(until);
    }

    pub(super) fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.rest_until.filter(|until| *until > now)
    }

    /// Moves the next poll among `all` to `at`; `None` removes it.
    pub(super) fn set_poll(&mut self, at: Option<Instant>, all: &mut DeadlineQueue<Key>) {
        all.set(self.key.clone(), &mut self.poll_at, at, || ());
    }

    /// Ends the time in which the waiters leave the lock to other clients. Returns whether there
    /// was one.
    pub(super) fn end_rest(&mut self) -> bool {
        self.rest_until.take().is_some()
    }

    pub(super) fn is_of(&self, spec: &LockSpec) -> bool {
        self.key.0.mode == spec.mode && self.key.0.name == spec.name
    }
}

impl<S: Clone> RoomQueue<S> {
    /// Returns whether a message is this client's echo, or older. Parked waiters need not see it.
    /// An attempt under way may have reached the server before the release, so its refusal will be
    /// out of date.
    pub(super) fn absorb_echo(&mut self, now: Instant) -> bool {
        let is_echo = self.echoes.absorb(now);
        if is_echo {
            self.polls = 0;
            self.mark_trying(1, WaiterState::Echoed);
        }
        is_echo
    }

    /// Wakes one waiter, or all. A waiter with an attempt under way sees the event when it is
    /// refused.
    ///
    /// One waiter is the first that is parked, or else the first with an attempt under way. If all
    /// of those tried again, each release would cost as many attempts as there are.
    pub(super) fn wake(&mut self, wake: Wake) -> Vec<S> {
        self.polls = 0;
        let notified = self.notify(wake);
        if notified.is_empty() || wake == Wake::All {
            self.mark_trying(most(wake), WaiterState::Outdated);
        }
        notified
    }

    fn mark_trying(&mut self, most: usize, as_what: WaiterState) {
        let trying = self
            .waiters
            .iter_mut()
            .filter(|waiter| matches!(waiter.state, WaiterState::Trying | WaiterState::Echoed));
        for waiter in trying.take(most) {
            waiter.state = as_what;
        }
    }

    fn notify(&mut self, wake: Wake) -> Vec<S> {
        let parked = self
            .waiters
            .iter_mut()
            .filter(|waiter| waiter.state == WaiterState::Parked);
        parked
            .take(most(wake))
            .map(|waiter| {
                waiter.state = WaiterState::Notified;
                waiter.signal.clone()
            })
            .collect()
    }

    pub(super) fn waiter(&mut self, id: WaiterId) -> Option<&mut RoomWaiter<S>> {
        // Waiters stand in the order of their ids.
        let index = self.waiters.binary_search_by_key(&id, |waiter| waiter.id);
        index.ok().and_then(|index| self.waiters.get_mut(index))
    }
}

fn most(wake: Wake) -> usize {
    match wake {
        Wake::One => 1,
        Wake::All => usize::MAX,
    }
}
