//! Answers: the table of [`field`](super::field), row by row.

use super::{
    Machine,
    facts::{Answer, Effects, Facts, Terms},
    field::{Doubt, Extension, Op, Sent, What},
    keys::{Channel, Kind, Owner, WaiterKey},
    tenure::{Tenure, Window},
    time::Time,
    waiters::{Outcome, State},
};

impl<W> Machine<W> {
    /// The answer to the request under way in the field of `owner`.
    pub fn answer(
        &mut self,
        facts: &Facts<'_>,
        owner: Owner,
        answer: Answer,
        out: &mut Effects<W>,
    ) {
        self.expire(facts);
        let Some(index) = self.find(owner) else {
            return;
        };
        let Some(Op::Sent(sent)) = self.fields[index].op else {
            return;
        };
        self.fields[index].op = None;
        match sent.what {
            What::Acquire {
                for_waiter,
                holds,
                waits,
                ..
            } => self.acquired(index, &sent, for_waiter, holds, waits, answer, facts, out),
            What::Release { holds, in_time } => {
                self.released(index, &sent, holds, in_time, answer, facts, out)
            }
            What::Abandon => {
                let field = &mut self.fields[index];
                match answer {
                    Answer::Passing => field.puts_off(&sent, facts.now + facts.limits.retry),
                    Answer::Unanswered => {}
                    _ if sent.epoch != facts.epoch => {}
                    _ => field.leaves_queue(),
                }
            }
            What::Renew { extends } => self.renewed(index, &sent, extends, answer, facts, out),
        }
        self.settle(facts, out);
    }

    #[expect(clippy::too_many_arguments, reason = "a row of the table")]
    fn acquired(
        &mut self,
        index: usize,
        sent: &Sent,
        waiter: Option<WaiterKey>,
        holds: u32,
        waits: bool,
        answer: Answer,
        facts: &Facts<'_>,
        out: &mut Effects<W>,
    ) {
        let (now, limits) = (facts.now, facts.limits);
        let field = &mut self.fields[index];
        match answer {
            Answer::Done => {
                field.counts(holds);
                field.raise(sent.lease, now, limits);
                // The server after a failover may have the place again.
                if sent.epoch == facts.epoch {
                    field.leaves_queue();
                }
                self.granted(index, sent, waiter, holds, facts, out);
            }
            Answer::Busy { remaining } => {
                field.is_refused();
                self.listener.forget_echoes();
                let is_outdated = sent.is_outdated || sent.epoch != facts.epoch;
                if let Some(place) = field.place.as_mut().filter(|_| waits) {
                    place.is_refused(sent.at, sent.epoch, limits.poll);
                }
                if !waits {
                    self.tell(waiter, Outcome::Busy, out);
                    return;
                }
                let Some(key) = waiter else { return };
                let until = now + remaining.unwrap_or(limits.poll).min(limits.poll);
                self.waiters.set(
                    key,
                    if is_outdated {
                        State::Queued
                    } else {
                        State::Parked { until }
                    },
                );
            }
            Answer::Absent => {
                self.lacks(index, holds.saturating_sub(2), facts);
                self.requeue(waiter);
            }
            Answer::Refused => {
                field.raise(sent.lease, now, limits);
                field.loses_its_wait();
                self.tell(waiter, Outcome::Refused, out);
            }
            Answer::Unanswered => {
                field.raise(sent.lease, now, limits);
                field.is_asked_in_doubt = true;
                field.loses_its_wait();
                self.requeue(waiter);
            }
            Answer::Passing => {
                field.puts_off(sent, now + limits.retry);
                self.requeue(waiter);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a row of the table")]
    fn released(
        &mut self,
        index: usize,
        sent: &Sent,
        holds: u32,
        in_time: bool,
        answer: Answer,
        facts: &Facts<'_>,
        out: &mut Effects<W>,
    ) {
        let (now, limits) = (facts.now, facts.limits);
        let field = &mut self.fields[index];
        let owner = field.owner;
        match answer {
            Answer::Done => {
                field.released(holds, sent.lease, now, limits);
                if let Some(tenure) = self
                    .tenure
                    .as_mut()
                    .filter(|tenure| holds > 0 && tenure.field == owner)
                {
                    tenure.prolong(sent.at, sent.lease, limits);
                }
                self.finish_ends(owner, holds, Outcome::Released, out);
                if holds == 0 {
                    self.freed(facts);
                }
            }
            Answer::Absent => {
                let was_done = holds == 0 && field.release_doubt == Some(Doubt::InTime);
                let outcome = if was_done {
                    Outcome::Released
                } else {
                    Outcome::Lost
                };
                self.lacks(index, holds.saturating_sub(1), facts);
                self.finish_ends(owner, holds, outcome, out);
                self.freed(facts);
            }
            Answer::Busy { .. } | Answer::Refused => {
                // A hold that has ended since asks for a release of its own.
                let want = self.want(&self.fields[index]);
                self.fields[index].is_given_up = want >= holds;
                if holds == 0 {
                    // The server announces nothing.
                    self.listener.forget_echoes();
                }
                self.finish_ends(owner, holds, Outcome::Refused, out);
            }
            Answer::Passing => {
                field.puts_off(sent, now + limits.retry);
                if holds == 0 {
                    // The server announces nothing.
                    self.listener.forget_echoes();
                }
            }
            Answer::Unanswered => {
                let doubt = if in_time { Doubt::InTime } else { Doubt::Late };
                field.release_doubt.get_or_insert(doubt);
                if holds > 0 {
                    field.raise(sent.lease, now, limits);
                }
            }
        }
    }

    fn renewed(
        &mut self,
        index: usize,
        sent: &Sent,
        extends: Option<Extension>,
        answer: Answer,
        facts: &Facts<'_>,
        out: &mut Effects<W>,
    ) {
        let caller = extends.and_then(|extends| extends.for_waiter);
        let field = &mut self.fields[index];
        let owner = field.owner;
        match answer {
            Answer::Done => {
                field.raise(sent.lease, facts.now, facts.limits);
                if let Some(tenure) = self.tenure.as_mut().filter(|tenure| tenure.field == owner) {
                    // A server before a failover confirms nothing about the one after it.
                    if tenure.window == Window::Verifying && sent.epoch == facts.epoch {
                        tenure.window = Window::Closed;
                    }
                    tenure.prolong(sent.at, sent.lease, facts.limits);
                    self.outrun(owner);
                    if let Some(extends) = extends {
                        self.holds.extend(extends.hold, sent.at + extends.lease);
                    }
                    self.tell(caller, Outcome::Extended, out);
                }
            }
            Answer::Absent => self.lacks(index, 0, facts),
            Answer::Busy { .. } | Answer::Refused => {
                field.raise(sent.lease, facts.now, facts.limits);
                self.tell(caller, Outcome::Refused, out);
            }
            Answer::Passing => field.puts_off(sent, facts.now + facts.limits.retry),
            Answer::Unanswered => {
                field.raise(sent.lease, facts.now, facts.limits);
                if let Some(tenure) = self.tenure.as_mut().filter(|tenure| tenure.field == owner) {
                    tenure.ask_at = facts.now;
                }
            }
        }
    }

    /// A grant of `holds` holds. A hold without a taker exceeds the want, and is released.
    fn granted(
        &mut self,
        index: usize,
        sent: &Sent,
        waiter: Option<WaiterKey>,
        holds: u32,
        facts: &Facts<'_>,
        out: &mut Effects<W>,
    ) {
        let (now, limits) = (facts.now, facts.limits);
        let owner = self.fields[index].owner;
        let is_stale = sent.epoch != facts.epoch;
        let may_pass = holds == 1
            && self.tenure.is_none()
            && limits.hands_off
            && matches!(
                sent.what,
                What::Acquire {
                    terms: Terms::Watched,
                    ..
                }
            )
            && !sent.is_doubtful
            && !is_stale;
        let Some(taker) = waiter.or_else(|| self.first_for(may_pass, owner, facts)) else {
            // Another task of the owner asks again, if one waits: a release would cost it the turn.
            self.fields[index].is_asked_in_doubt = true;
            return;
        };
        let Some((holder, terms)) = self
            .waiters
            .get(taker)
            .map(|waiter| (waiter.owner, waiter.terms))
        else {
            return;
        };
        if self.tenure.is_some_and(|tenure| tenure.field != owner) {
            // A contradiction. The grant is right unless the tenure was confirmed after the grant was sent.
            if sent.is_outrun {
                if let Some(tenure) = &mut self.tenure {
                    tenure.verify(now);
                }
                self.requeue(Some(taker));
                return;
            }
            self.lose(false);
        }
        let tenure = self.tenure.get_or_insert(Tenure {
            field: owner,
            holder,
            valid_until: Time::default(),
            allowance: std::time::Duration::ZERO,
            ask_at: now,
            window: Window::Open {
                until: now + limits.window,
            },
        });
        tenure.prolong(sent.at, sent.lease, limits);
        if sent.is_doubtful || is_stale {
            tenure.verify(now);
        }
        self.give(taker, terms, sent.at, facts, out);
        self.outrun(owner);
    }

    /// The tenure under `confirmed` is newer than what other fields have asked for.
    fn outrun(&mut self, confirmed: Owner) {
        let others = self
            .fields
            .iter_mut()
            .filter(|field| field.owner != confirmed);
        for sent in others.filter_map(|field| field.sent_mut()) {
            sent.is_outrun |= sent.kind() == Kind::Acquire;
        }
    }

    /// The server counts fewer holds than a request relied on.
    fn lacks(&mut self, index: usize, rest: u32, facts: &Facts<'_>) {
        self.fields[index].lacks(rest, facts.now, facts.limits);
        let owner = self.fields[index].owner;
        if self.tenure.is_some_and(|tenure| tenure.field == owner) {
            self.lose(false);
        }
    }

    /// The lock may be free. The server notifies the head of the queue of a fair lock.
    fn freed(&mut self, facts: &Facts<'_>) {
        if !facts.limits.is_fair {
            self.ask_again(Channel::Lock);
        }
    }

    /// A caller that is still there has its outcome.
    fn tell(&mut self, caller: Option<WaiterKey>, outcome: Outcome, out: &mut Effects<W>) {
        if let Some(key) = caller {
            out.wake
                .extend(self.waiters.finish(key, State::Over(outcome)));
        }
    }

    fn requeue(&mut self, waiter: Option<WaiterKey>) {
        if let Some(key) = waiter {
            self.waiters.set(key, State::Queued);
        }
    }

    /// The callers that wait for a release down to `holds` or fewer have their outcome.
    fn finish_ends(&mut self, owner: Owner, holds: u32, outcome: Outcome, out: &mut Effects<W>) {
        let is_over = |state: State| matches!(state, State::Ending { field, rest } if field == owner && holds <= rest);
        while let Some(key) = self.waiters.find(|waiter| is_over(waiter.state)) {
            out.wake
                .extend(self.waiters.finish(key, State::Over(outcome)));
        }
    }
}
