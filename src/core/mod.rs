//! What a client believes about one lock, and what it does about it: a machine without I/O.
//!
//! An event comes in with the time and the client's facts; [`Effects`] come out. An event records what it tells, and nothing else.
//! Then [`Machine::settle`] derives what to send, which tasks to wake and whether to listen, by the tables of this folder. The machine holds
//! plain data: a state can be copied, compared and explored.
//!
//! The client's *belief* is how many holds the server counts in an owner's field at most. What it *wants* is the number of live holds
//! there. Where the belief exceeds the want, a release is due, whatever the cause: a guard has ended, a future was dropped, an answer
//! was lost.
//!
//! # The operation of a field
//!
//! The first row that fits. A request under way is waited for; one that waits for its batch gives way.
//!
//! | | if | then |
//! | --- | --- | --- |
//! | F1 | the belief exceeds the want | release down to the want |
//! | F2 | a waiter may ask under this field | acquire one more than the live holds |
//! | F3 | the server's queue may have the owner, and no waiter of it is left | abandon the place |
//! | F4 | a caller extends its hold, or a renewal or a verification is due | renew |
//!
//! An operation rests after a passing refusal. A release that rests lets the rows below it wait; another operation gives way to them.
//!
//! F1 waits for three things: until [`free_after`](field::Field::free_after) after a loss by the clock; while an acquire is in
//! doubt, or its hold has no taker, and a waiter would ask for the same; and after a refusal.
//!
//! # The waiter that may ask
//!
//! | the client has | may ask |
//! | --- | --- |
//! | a tenure | a waiter of its holder, under its field |
//! | none | the first waiter, and those that only try, each under its owner's field, behind every due release |
//!
//! Behind a release: after its answer, or on the same connection right after it.
//!
//! At a fair lock the server keeps the queue. The first waiter of each owner asks under its owner's field, whatever the client has.
//!
//! # The end of the last hold
//!
//! The tenure passes to the first waiter, without a request, if its window is open, the client renews it, more than half of its lease
//! is left, and nothing but a renewal is under way. Else it ends, and F1 applies.

pub mod answers;
pub mod check;
pub mod closing;
pub mod facts;
pub mod field;
pub mod keys;
pub mod latch;
pub mod listener;
mod passing;
pub mod permits;
pub mod place;
pub mod records;
mod rules;
pub mod tenure;
#[cfg(test)]
mod tests;
pub mod time;
pub mod waiters;

use std::time::Duration;

use facts::{Ask, Effects, Facts, Request};
use field::{Field, Op, Sent};
use keys::{Channel, HoldKey, Kind, OpKey, Owner, WaiterKey};
use listener::Listener;
use tenure::{HoldState, Holds, Tenure};
use time::Time;
use waiters::{Outcome, State, Waiters};

/// All that a client knows of one lock of an exclusive kind.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Machine<W> {
    /// In the order of their owners.
    fields: Vec<Field>,
    tenure: Option<Tenure>,
    holds: Holds,
    waiters: Waiters<W>,
    listener: Listener,
    /// Counts the operations that gave way while they waited for their batch.
    superseded: u32,
}

impl<W> Default for Machine<W> {
    fn default() -> Self {
        Self {
            fields: Vec::new(),
            tenure: None,
            holds: Holds::default(),
            waiters: Waiters::default(),
            listener: Listener::default(),
            superseded: 0,
        }
    }
}

/// What came of a guard's end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ended {
    /// The next task of this client has the lock, or other holds of the owner remain without a request.
    Released,
    /// A release is due.
    Pending,
    /// The hold was gone before.
    Lost,
}

// Calls of tasks.
impl<W> Machine<W> {
    /// A caller asks for the lock. It gets its outcome by [`take`](Self::take).
    pub fn enter(&mut self, facts: &Facts<'_>, ask: Ask, out: &mut Effects<W>) -> WaiterKey {
        self.expire(facts);
        let key = self.waiters.enter(ask);
        self.settle(facts, out);
        key
    }

    /// A caller is polled: its outcome, if there is one. Its waker is kept otherwise.
    pub fn take(
        &mut self,
        facts: &Facts<'_>,
        key: WaiterKey,
        waker: W,
        out: &mut Effects<W>,
    ) -> Option<Outcome> {
        self.expire(facts);
        let outcome = match self.waiters.get(key)?.state {
            State::Given(hold) => {
                self.holds.take(hold);
                Outcome::Hold(hold)
            }
            State::Over(outcome) => outcome,
            state => {
                if state == State::Stalled {
                    self.waiters.set(key, State::Queued);
                }
                self.waiters.set_waker(key, waker);
                self.settle(facts, out);
                return None;
            }
        };
        self.waiters.remove(key);
        self.settle(facts, out);
        Some(outcome)
    }

    /// A caller has gone. What it asked for is released if no other caller wants it.
    pub fn leave(&mut self, facts: &Facts<'_>, key: WaiterKey, out: &mut Effects<W>) {
        self.expire(facts);
        self.forget_caller(key);
        if let Some(State::Given(hold)) = self.waiters.remove(key).map(|waiter| waiter.state) {
            self.end_hold(hold, facts, out);
        }
        self.settle(facts, out);
    }

    /// A caller extends a hold to `lease` from now on, unless it lasts longer. It waits for its outcome, unless the hold is lost.
    pub fn extend(
        &mut self,
        facts: &Facts<'_>,
        hold: HoldKey,
        lease: Duration,
        out: &mut Effects<W>,
    ) -> Option<WaiterKey> {
        self.expire(facts);
        let tenure = self.tenure.filter(|_| self.holds.is_live(hold));
        let waiter = tenure.map(|tenure| self.waiters.add_extending(tenure.holder, hold, lease));
        self.settle(facts, out);
        waiter
    }

    /// A guard ends. `waits`: its caller waits for the answer to the release, as a waiter.
    pub fn end(
        &mut self,
        facts: &Facts<'_>,
        key: HoldKey,
        waits: bool,
        out: &mut Effects<W>,
    ) -> (Ended, Option<WaiterKey>) {
        self.expire(facts);
        let is_live = self
            .holds
            .get(key)
            .is_some_and(|hold| hold.state != HoldState::Lost);
        let Some(tenure) = self.tenure.filter(|_| is_live) else {
            self.holds.remove(key);
            self.settle(facts, out);
            return (Ended::Lost, None);
        };
        if self.end_hold(key, facts, out) {
            self.settle(facts, out);
            return (Ended::Released, None);
        }
        let rest = self.live(tenure.field);
        let waiter = waits.then(|| self.waiters.add_ending(tenure.holder, tenure.field, rest));
        self.settle(facts, out);
        (Ended::Pending, waiter)
    }
}

// Events of the connections, and of the clock.
impl<W> Machine<W> {
    /// A batch leaves: the request of its operation, if that is still wanted.
    pub fn build(
        &mut self,
        facts: &Facts<'_>,
        key: OpKey,
        out: &mut Effects<W>,
    ) -> Option<Request> {
        self.expire(facts);
        let index = self.find(key.field);
        let index = index.filter(|index| self.fields[*index].op == Some(Op::Queued(key)));
        let request = index.and_then(|index| {
            self.fields[index].op = None;
            let next = self.next(index, self.may_ask(facts), facts);
            let what = next.filter(|what| what.kind() == key.kind)?;
            Some(self.send(index, what, facts))
        });
        self.settle(facts, out);
        request
    }

    /// Every later request on the connection of this operation follows it.
    pub fn written(&mut self, facts: &Facts<'_>, owner: Owner, out: &mut Effects<W>) {
        self.expire(facts);
        if let Some(sent) = self
            .find(owner)
            .and_then(|index| self.fields[index].sent_mut())
        {
            sent.is_written = true;
        }
        self.settle(facts, out);
    }

    /// A message on a channel of the lock.
    pub fn message(&mut self, facts: &Facts<'_>, channel: Channel, out: &mut Effects<W>) {
        self.expire(facts);
        // At a fair lock, a message tells the head of the queue that the lock is free, and a holder nothing.
        let is_plain = channel == Channel::Lock;
        let is_foreign = is_plain && !self.listener.take_echo(facts.now);
        for sent in self.asks_mut(channel) {
            sent.is_outdated = true;
            sent.is_doubtful |= is_foreign;
        }
        match &mut self.tenure {
            Some(tenure) if is_foreign => tenure.verify(facts.now),
            _ if is_foreign || !is_plain => self.ask_again(channel),
            _ => {}
        }
        self.settle(facts, out);
    }

    /// The server has confirmed the subscription to a channel. A release may have come before it.
    pub fn subscribed(&mut self, facts: &Facts<'_>, channel: Channel, out: &mut Effects<W>) {
        self.expire(facts);
        if let Some(listener) = self.listener_mut(channel) {
            listener.confirm();
        }
        self.asks_mut(channel)
            .for_each(|sent| sent.is_outdated = true);
        self.ask_again(channel);
        self.settle(facts, out);
    }

    /// Requests have a new connection: the server may have lost what it knew.
    pub fn reconnected(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        self.expire(facts);
        self.listener.forget_echoes();
        if let Some(tenure) = &mut self.tenure {
            tenure.verify(facts.now);
        }
        self.ask_again(Channel::Lock);
        self.settle(facts, out);
    }

    /// A time of [`look_at`](Self::look_at) has come.
    pub fn tick(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        self.expire(facts);
        let now = facts.now;
        self.waiters.unpark(|_| true, |until| until.has_come(now));
        let is_late = |since: Time| (since + facts.limits.pick_up).has_come(now);
        while let Some((hold, waiter)) = self.holds.find_given(is_late) {
            self.waiters.set(waiter, State::Stalled);
            self.end_hold(hold, facts, out);
        }
        self.settle(facts, out);
    }

    /// The next time at which [`tick`](Self::tick) finds something to do. What an answer or a batch decides has no time.
    pub fn look_at(&self, facts: &Facts<'_>) -> Option<Time> {
        let limits = facts.limits;
        let of_waiters = self
            .waiters
            .in_line()
            .filter_map(|(_, waiter)| match waiter.state {
                State::Parked { until } => Some(until),
                _ => None,
            });
        let of_holds = self.holds.live().filter_map(|(_, hold)| match hold.state {
            HoldState::Given { since, .. } => Some(since + limits.pick_up),
            _ => None,
        });
        let of_fields = self.fields.iter().flat_map(|field| {
            let free = (field.free_after > facts.now).then_some(field.free_after);
            [free, field.ends(), field.rests_until()]
        });
        let of_tenure = self.tenure.iter().flat_map(|tenure| {
            let is_idle = self
                .field(tenure.field)
                .is_some_and(|field| field.op.is_none() && !field.puts_off_renewals());
            let asks = is_idle && self.is_asked_about(tenure);
            [Some(tenure.valid_until), asks.then_some(tenure.ask_at)]
        });
        let times = of_fields.chain(of_tenure).flatten();
        times.chain(of_waiters).chain(of_holds).min()
    }
}

impl<W> Machine<W> {
    /// The request under way for a caller that has gone has no taker.
    fn forget_caller(&mut self, key: WaiterKey) {
        let sent = self.fields.iter_mut().filter_map(Field::sent_mut);
        for waiter in sent.filter_map(|sent| sent.what.waiter_mut()) {
            *waiter = waiter.filter(|waiter| *waiter != key);
        }
    }

    /// The lock may be free: the waiters that listen there ask again, each in its turn.
    fn ask_again(&mut self, channel: Channel) {
        self.waiters.unpark(|owner| hears(owner, channel), |_| true);
    }

    /// The acquires under way of the owners that listen there.
    fn asks_mut(&mut self, channel: Channel) -> impl Iterator<Item = &mut Sent> {
        let fields = self.fields.iter_mut();
        let fields = fields.filter(move |field| hears(field.owner, channel));
        let sent = fields.filter_map(Field::sent_mut);
        sent.filter(|sent| sent.kind() == Kind::Acquire)
    }

    fn listener_mut(&mut self, channel: Channel) -> Option<&mut Listener> {
        match channel {
            Channel::Lock => Some(&mut self.listener),
            Channel::Of(owner) => {
                let field = self.find(owner).map(|index| &mut self.fields[index])?;
                field.place.as_mut().map(|place| &mut place.listener)
            }
        }
    }

    fn find(&self, owner: Owner) -> Option<usize> {
        self.fields
            .binary_search_by_key(&owner, |field| field.owner)
            .ok()
    }
}

fn hears(owner: Owner, channel: Channel) -> bool {
    channel == Channel::Lock || channel == Channel::Of(owner)
}
