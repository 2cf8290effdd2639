//! What a client believes about one semaphore, and what it does about it: a machine without I/O, as that of a [lock](super).
//!
//! An event records what it tells, and nothing else. Then [`Pool::settle`] derives what to send, which tasks to wake and whether to
//! listen, by these tables.
//!
//! The client's *news* are how many permits were left, as the last message or answer told. They are *sure* until something may have
//! happened that no message tells: a reconnection, the begin of a subscription, or the poll interval without a message.
//! An answer to a request that was under way when such news came may be older. It never lowers them, and does not make them sure.
//!
//! # The caller that asks
//!
//! | | caller | asks |
//! | --- | --- | --- |
//! | A0 | one that comes | at once, unless it waits, and a parked caller wants no more than it |
//! | A1 | a parked one, in the order of their arrival | if the news leave enough beside what is asked for already |
//! | A2 | the first parked one | if the news are not sure, and no request for permits is under way |
//!
//! A caller for many permits thus holds up no caller for few. The table of [`attempts`] says what an answer does.
//!
//! # Spare permits
//!
//! Permits are spare when their guard ends, when their caller has gone, and when a task does not take them in time.
//!
//! | | permits | then |
//! | --- | --- | --- |
//! | P1 | within the window of their grant, and a parked caller wants no more | pass to it, without a request |
//! | P2 | the rest | are released |
//!
//! A release is repeated until it is executed. In doubt it is given up after a time, as an acquisition in doubt is.

mod answers;
pub mod attempts;
pub mod check;
pub mod facts;
pub mod grants;
pub mod queue;
mod rules;
#[cfg(test)]
mod tests;

use super::{keys::WaiterKey, listener::Listener, time::Time};
use attempts::{AttemptKey, Attempts, Kind, Sent, Stage};
use facts::{Ask, Effects, Facts, Request};
use grants::{GrantKey, GrantState, Grants, Spare};
use queue::{Outcome, Queue, State};

/// What the last message or answer told of the permits that are left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct News {
    left: i64,
    is_sure: bool,
    until: Time,
}

/// All that a client knows of one semaphore.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pool<W> {
    attempts: Attempts,
    grants: Grants,
    /// Permits for which nothing has been done yet.
    spares: Vec<Spare>,
    queue: Queue<W>,
    news: News,
    listener: Listener,
}

impl<W> Default for Pool<W> {
    fn default() -> Self {
        Self {
            attempts: Attempts::default(),
            grants: Grants::default(),
            spares: Vec::new(),
            queue: Queue::default(),
            news: News::default(),
            listener: Listener::default(),
        }
    }
}

// Calls of tasks.
impl<W> Pool<W> {
    /// A caller asks for permits. It gets its outcome by [`take`](Self::take).
    pub fn enter(&mut self, facts: &Facts<'_>, ask: Ask, out: &mut Effects<W>) -> WaiterKey {
        self.expire(facts, out);
        let key = self.queue.add(ask, State::Stalled);
        self.ask_or_park(key, ask, out);
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
        self.expire(facts, out);
        let waiter = self.queue.get(key)?;
        let ask = Ask {
            permits: waiter.permits,
            waits: waiter.waits,
        };
        let outcome = match waiter.state {
            State::Given(grant) => {
                self.grants.take(grant);
                Outcome::Permits(grant)
            }
            State::Over(outcome) => outcome,
            state => {
                if state == State::Stalled {
                    self.ask_or_park(key, ask, out);
                }
                self.queue.set_waker(key, waker);
                self.settle(facts, out);
                return None;
            }
        };
        self.queue.remove(key);
        self.settle(facts, out);
        Some(outcome)
    }

    /// A caller has gone. What it asked for is released if no other caller wants it; a release goes on.
    pub fn leave(&mut self, facts: &Facts<'_>, key: WaiterKey, out: &mut Effects<W>) {
        self.expire(facts, out);
        if let Some((attempt_key, attempt)) = self.attempts.for_waiter(key) {
            attempt.for_waiter = None;
            let is_unsent = attempt.stage == Stage::Queued && attempt.doubt.is_none();
            if attempt.kind == Kind::Acquire && is_unsent {
                self.attempts.remove(attempt_key);
            }
        }
        if let Some(State::Given(grant)) = self.queue.remove(key).map(|waiter| waiter.state) {
            self.spare(grant, None);
        }
        self.settle(facts, out);
    }

    /// A guard ends. `waits`: its caller waits for the release, as a waiter.
    pub fn end(
        &mut self,
        facts: &Facts<'_>,
        grant: GrantKey,
        waits: bool,
        out: &mut Effects<W>,
    ) -> Option<WaiterKey> {
        self.expire(facts, out);
        let waiter = waits.then(|| self.add_ending());
        self.spare(grant, waiter);
        self.settle(facts, out);
        waiter
    }

    /// A guard ends, and leaves its permits taken.
    pub fn leak(&mut self, grant: GrantKey) {
        self.grants.remove(grant);
    }

    /// A release of permits without a guard. They pass to no task in memory: nothing tells when they were acquired.
    pub fn release(&mut self, facts: &Facts<'_>, permits: u32, out: &mut Effects<W>) -> WaiterKey {
        self.expire(facts, out);
        let waiter = self.add_ending();
        self.spares.push(Spare {
            permits,
            window: Time::default(),
            for_waiter: Some(waiter),
        });
        self.settle(facts, out);
        waiter
    }
}

// Events of the connections, and of the clock.
impl<W> Pool<W> {
    /// A batch leaves: the request of its attempt, if that is still wanted.
    pub fn build(
        &mut self,
        facts: &Facts<'_>,
        key: AttemptKey,
        out: &mut Effects<W>,
    ) -> Option<Request> {
        self.expire(facts, out);
        let attempt = self.attempts.get_mut(key);
        let queued = attempt.filter(|attempt| attempt.stage == Stage::Queued);
        let request = queued.map(|attempt| {
            attempt.stage = Stage::Sent(Sent {
                at: facts.now,
                is_outdated: false,
            });
            let permits = attempt.permits;
            match attempt.kind {
                Kind::Acquire => Request::Acquire { permits },
                Kind::Release => Request::Release { permits },
            }
        });
        self.settle(facts, out);
        request
    }

    /// A message: so many permits are left.
    pub fn message(&mut self, facts: &Facts<'_>, left: i64, out: &mut Effects<W>) {
        self.expire(facts, out);
        self.outdate();
        self.news = News {
            left,
            is_sure: true,
            until: facts.now + facts.limits.poll,
        };
        self.settle(facts, out);
    }

    /// The server has confirmed the subscription. A release may have come before it.
    pub fn subscribed(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        self.expire(facts, out);
        self.listener.confirm();
        self.doubt_news();
        self.settle(facts, out);
    }

    /// Requests have a new connection: the server may have other data.
    pub fn reconnected(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        self.expire(facts, out);
        self.doubt_news();
        self.settle(facts, out);
    }

    /// A time of [`look_at`](Self::look_at) has come.
    pub fn tick(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        self.expire(facts, out);
        let is_late = |since: Time| (since + facts.limits.pick_up).has_come(facts.now);
        while let Some((grant, waiter)) = self.grants.find_given(is_late) {
            self.queue.set(waiter, State::Stalled);
            self.spare(grant, None);
        }
        self.settle(facts, out);
    }

    /// The next time at which [`tick`](Self::tick) finds something to do. What an answer or a batch decides has no time.
    pub fn look_at(&self, facts: &Facts<'_>) -> Option<Time> {
        let limits = facts.limits;
        let of_grants = self
            .grants
            .all()
            .filter_map(|(_, grant)| match grant.state {
                GrantState::Given { since, .. } => Some(since + limits.pick_up),
                GrantState::Guarded => None,
            });
        let of_attempts = self.attempts.all().flat_map(|(_, attempt)| {
            let gives_up = attempt.doubt.map(|since| since + limits.longest_doubt);
            match attempt.stage {
                Stage::Sent(_) => [None, None],
                Stage::Queued => [gives_up, None],
                Stage::Resting { until } => [gives_up, Some(until)],
            }
        });
        let polls = self.queue.has_parked() && self.news.is_sure;
        let of_news = polls.then_some(self.news.until);
        let times = of_attempts.flatten().chain(of_news);
        times.chain(of_grants).min()
    }
}

impl<W> Pool<W> {
    fn add_ending(&mut self) -> WaiterKey {
        let ask = Ask {
            permits: 0,
            waits: false,
        };
        self.queue.add(ask, State::Ending)
    }

    /// The permits of a task have lost it.
    fn spare(&mut self, grant: GrantKey, for_waiter: Option<WaiterKey>) {
        let spare = self.grants.remove(grant).map(|grant| Spare {
            permits: grant.permits,
            window: grant.window,
            for_waiter,
        });
        self.spares.extend(spare);
    }

    /// Something has happened that no message told.
    fn doubt_news(&mut self) {
        self.news.is_sure = false;
        self.outdate();
    }

    /// The answers to requests under way may be older than what is known now.
    fn outdate(&mut self) {
        for (_, attempt) in self.attempts.all_mut() {
            if let Stage::Sent(sent) = &mut attempt.stage {
                sent.is_outdated = true;
            }
        }
    }
}
