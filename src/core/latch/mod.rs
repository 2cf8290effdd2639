//! What a client believes about one latch, and what it does about it: a machine without I/O, as that of a [lock](super).
//!
//! A wait ends when the latch has been open at some moment since it began. A look asks the server for all callers that have come
//! before it was sent. It publishes its mark if the latch is closed: an opening that is announced after the mark of a caller's first
//! look came after the caller, whatever the server says of the latch by then.
//!
//! A caller's state:
//!
//! | state | meaning | leaves by |
//! | --- | --- | --- |
//! | New | no look was sent since it came | a look leaves: Asking |
//! | Asking | its first look is under way | open: Over; closed: Parked, or Over if it only tries; unanswered: New |
//! | Parked | the latch was closed | open, or an opening after its mark: Over |
//! | Over | has its outcome | its next poll |
//!
//! Looks:
//!
//! | | if no look is under way, and | then |
//! | --- | --- | --- |
//! | K1 | a caller is New | look |
//! | K2 | a caller is Parked, and that the latch is closed is not sure | look |
//!
//! That it is closed is sure from the answer to a look until something may have opened it: a message without a mark before it,
//! the begin of a subscription, a reconnection, or the poll interval without a look. If that came while the look was under way,
//! its answer may be older, and makes nothing sure. A refusal is an outcome of all callers that waited for the answer.

pub mod check;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{keys::WaiterKey, listener::Listener, records::Records, time::Time};

/// What the client knows beside the latch.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub now: Time,
    /// How long it counts that the latch was closed. If too short, callers ask in vain; if too long, a lost message costs as much.
    pub poll: Duration,
}

/// The number of a look. The shell publishes a random mark for it, which no other client has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mark(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    Open,
    Closed,
    Refused,
    Unanswered,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// The latch was opened, or has a new count, which needs an open one.
    Opening,
    /// A look of this client.
    Mark(Mark),
}

/// How a wait ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    Open,
    Closed,
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    New,
    Asking,
    Parked,
    Over(Outcome),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiter<W> {
    pub waits: bool,
    pub state: State,
    /// Its first look.
    mark: Option<Mark>,
    /// A message has told that this look, or a later one, was executed.
    pub is_marked: bool,
    waker: Option<W>,
}

/// A look that waits for its batch, or was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Look {
    mark: Mark,
    sent: Option<Sent>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Sent {
    /// The latch may have been opened since.
    is_outdated: bool,
}

/// What the shell does after an event, in this order. The machine never waits for any of it.
#[derive(Clone, Debug)]
pub struct Effects<W> {
    /// A look that travels: [`Latch::build`] tells whether it is still wanted when its batch leaves.
    pub look: Option<Mark>,
    /// Whether to subscribe to the channel, or to unsubscribe from it.
    pub listen: Option<bool>,
    /// Wakers of tasks that can go on.
    pub wake: Vec<W>,
}

impl<W> Default for Effects<W> {
    fn default() -> Self {
        Self {
            look: None,
            listen: None,
            wake: Vec::new(),
        }
    }
}

/// All that a client knows of one latch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Latch<W> {
    waiters: Records<Waiter<W>>,
    look: Option<Look>,
    last_mark: Mark,
    /// Until then it is sure that the latch is closed.
    closed_until: Time,
    listener: Listener,
}

impl<W> Default for Latch<W> {
    fn default() -> Self {
        Self {
            waiters: Records::default(),
            look: None,
            last_mark: Mark::default(),
            closed_until: Time::default(),
            listener: Listener::default(),
        }
    }
}

impl<W> Latch<W> {
    /// A caller comes. `waits`: it waits for an opening. It gets its outcome by [`take`](Self::take).
    pub fn enter(&mut self, facts: &Facts, waits: bool, out: &mut Effects<W>) -> WaiterKey {
        let number = self.waiters.add(Waiter {
            waits,
            state: State::New,
            mark: None,
            is_marked: false,
            waker: None,
        });
        self.settle(facts, out);
        WaiterKey(number)
    }

    /// A caller is polled: its outcome, if there is one. Its waker is kept otherwise.
    pub fn take(
        &mut self,
        facts: &Facts,
        key: WaiterKey,
        waker: W,
        out: &mut Effects<W>,
    ) -> Option<Outcome> {
        let waiter = self.waiters.get_mut(key.0)?;
        let State::Over(outcome) = waiter.state else {
            waiter.waker = Some(waker);
            return None;
        };
        self.waiters.remove(key.0);
        self.settle(facts, out);
        Some(outcome)
    }

    /// A caller has gone.
    pub fn leave(&mut self, facts: &Facts, key: WaiterKey, out: &mut Effects<W>) {
        self.waiters.remove(key.0);
        self.settle(facts, out);
    }

    /// A batch leaves: whether its look is still wanted.
    pub fn build(&mut self, facts: &Facts, mark: Mark, out: &mut Effects<W>) -> bool {
        let is_next = |look: &Look| look.mark == mark && look.sent.is_none();
        let is_wanted = self.look.as_ref().is_some_and(is_next) && self.waits().next().is_some();
        if is_wanted {
            let sent = Some(Sent { is_outdated: false });
            self.look = Some(Look { mark, sent });
            for waiter in self.waits_mut().filter(|waiter| waiter.state == State::New) {
                waiter.state = State::Asking;
                waiter.mark.get_or_insert(mark);
            }
        } else if self.look.as_ref().is_some_and(is_next) {
            self.look = None;
        }
        self.settle(facts, out);
        is_wanted
    }

    /// The answer to the look that was sent.
    pub fn answer(&mut self, facts: &Facts, answer: Answer, out: &mut Effects<W>) {
        let Some(sent) = self.look.and_then(|look| look.sent) else {
            return;
        };
        self.look = None;
        let is_new = |waiter: &Waiter<W>| waiter.state == State::New;
        match answer {
            Answer::Open => self.finish(Outcome::Open, |waiter| !is_new(waiter), out),
            Answer::Refused => self.finish(Outcome::Refused, |waiter| !is_new(waiter), out),
            Answer::Closed => {
                let tries = |waiter: &Waiter<W>| waiter.state == State::Asking && !waiter.waits;
                self.finish(Outcome::Closed, tries, out);
                self.set_asking(State::Parked);
                if !sent.is_outdated {
                    self.closed_until = facts.now + facts.poll;
                }
            }
            Answer::Unanswered => self.set_asking(State::New),
        }
        self.settle(facts, out);
    }

    pub fn message(&mut self, facts: &Facts, message: Message, out: &mut Effects<W>) {
        match message {
            Message::Opening => {
                self.doubt();
                self.finish(Outcome::Open, |waiter| waiter.is_marked, out);
            }
            Message::Mark(mark) => {
                for waiter in self.waits_mut() {
                    waiter.is_marked |= waiter.mark.is_some_and(|first| first <= mark);
                }
            }
        }
        self.settle(facts, out);
    }

    /// The server has confirmed the subscription. An opening may have come before it.
    pub fn subscribed(&mut self, facts: &Facts, out: &mut Effects<W>) {
        self.listener.confirm();
        self.doubt();
        self.settle(facts, out);
    }

    /// Requests have a new connection: the server may have other data.
    pub fn reconnected(&mut self, facts: &Facts, out: &mut Effects<W>) {
        self.doubt();
        self.settle(facts, out);
    }

    /// A time of [`look_at`](Self::look_at) has come.
    pub fn tick(&mut self, facts: &Facts, out: &mut Effects<W>) {
        self.settle(facts, out);
    }

    /// The next time at which [`tick`](Self::tick) finds something to do.
    pub fn look_at(&self) -> Option<Time> {
        let waits = self.look.is_none() && self.has(State::Parked);
        waits.then_some(self.closed_until)
    }
}

impl<W> Latch<W> {
    /// Derives the effects of the facts.
    fn settle(&mut self, facts: &Facts, out: &mut Effects<W>) {
        let has_waiting = self.waits().any(|waiter| waiter.waits);
        out.listen = self
            .listener
            .settle(has_waiting, has_waiting)
            .or(out.listen);
        if self.is_look_due(facts) {
            self.last_mark.0 += 1;
            let mark = self.last_mark;
            self.look = Some(Look { mark, sent: None });
            out.look = Some(mark);
        }
    }

    /// K1 and K2.
    fn is_look_due(&self, facts: &Facts) -> bool {
        let is_sure = !self.closed_until.has_come(facts.now);
        self.look.is_none() && (self.has(State::New) || self.has(State::Parked) && !is_sure)
    }

    /// The latch may have been opened.
    fn doubt(&mut self) {
        self.closed_until = Time::default();
        if let Some(sent) = self.look.as_mut().and_then(|look| look.sent.as_mut()) {
            sent.is_outdated = true;
        }
    }

    fn has(&self, state: State) -> bool {
        self.waits().any(|waiter| waiter.state == state)
    }

    /// The callers without an outcome.
    fn waits(&self) -> impl Iterator<Item = &Waiter<W>> {
        let waiters = self.waiters.all().map(|(_, waiter)| waiter);
        waiters.filter(|waiter| !matches!(waiter.state, State::Over(_)))
    }

    fn waits_mut(&mut self) -> impl Iterator<Item = &mut Waiter<W>> {
        let waiters = self.waiters.all_mut();
        waiters.filter(|waiter| !matches!(waiter.state, State::Over(_)))
    }

    fn set_asking(&mut self, state: State) {
        for waiter in self
            .waits_mut()
            .filter(|waiter| waiter.state == State::Asking)
        {
            waiter.state = state;
        }
    }

    fn finish(
        &mut self,
        outcome: Outcome,
        chosen: impl Fn(&Waiter<W>) -> bool,
        out: &mut Effects<W>,
    ) {
        for waiter in self.waits_mut().filter(|waiter| chosen(waiter)) {
            waiter.state = State::Over(outcome);
            out.wake.extend(waiter.waker.take());
        }
    }
}
