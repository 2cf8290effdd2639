//! What follows from the facts: the tables of [`core`](super).

use std::time::Duration;

use super::{
    Machine,
    facts::{Effects, Facts, Request, Terms},
    field::{Extension, Field, Op, Sent, What},
    keys::{Channel, Kind, OpKey, Owner, WaiterKey},
    tenure::{Tenure, Window},
    waiters::{Outcome, State, Waiter},
};

impl<W> Machine<W> {
    /// Derives the effects of the facts.
    pub(super) fn settle(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        if !facts.is_open {
            self.turn_away(facts, out);
        }
        if let Some(tenure) = self.tenure {
            // A refusal says no more: whatever ends this tenure, the first waiter asks.
            let is_beside = |owner| !facts.limits.is_fair || owner == tenure.holder;
            self.waiters.unpark(is_beside, |_| true);
            while let Some(key) = self.waiters.find_trying_beside(tenure.holder) {
                out.wake
                    .extend(self.waiters.finish(key, State::Over(Outcome::Busy)));
            }
        }
        self.answer_ends(out);
        self.settle_channels(facts, out);
        let may_ask = self.may_ask(facts);
        if may_ask {
            self.add_fields(facts);
        }
        for index in 0..self.fields.len() {
            self.queue(index, may_ask, facts, out);
        }
        self.fields.retain(|field| !field.is_idle());
    }

    /// Subscribes where a waiter is parked, and unsubscribes where none may wait.
    fn settle_channels(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        if !facts.limits.is_fair {
            let is_used = !self.waiters.is_line_empty() || self.tenure.is_some();
            let listens = self.listener.settle(self.waiters.has_parked(), is_used);
            out.listen
                .extend(listens.map(|listens| (Channel::Lock, listens)));
            return;
        }
        for field in &mut self.fields {
            let Some(place) = &mut field.place else {
                continue;
            };
            let is_parked = self.waiters.is_parked(field.owner);
            let waits = self.waiters.first_of(field.owner).is_some();
            let listens = place.listener.settle(is_parked, waits);
            out.listen
                .extend(listens.map(|listens| (Channel::Of(field.owner), listens)));
            if place.is_idle() && !waits {
                field.place = None;
            }
        }
    }

    /// Adds the fields under which waiters ask now.
    fn add_fields(&mut self, facts: &Facts<'_>) {
        // A tenure has its field.
        let most = if facts.limits.is_fair { usize::MAX } else { 1 };
        let owners = self
            .waiters
            .first_in_line(most)
            .map(|(_, waiter)| waiter.owner);
        let is_new =
            |owner: &Owner| self.find(*owner).is_none() && self.asker(*owner, facts).is_some();
        let new: Vec<Owner> = owners.filter(is_new).collect();
        for owner in new {
            let place = self
                .fields
                .binary_search_by_key(&owner, |field| field.owner);
            if let Err(place) = place {
                self.fields.insert(place, Field::new(owner));
            }
        }
    }

    /// The waiter that may ask under the field of `owner`. The one that asks already keeps its turn.
    pub(super) fn asker(&self, owner: Owner, facts: &Facts<'_>) -> Option<(WaiterKey, &Waiter<W>)> {
        let is_queued = |(_, waiter): &(WaiterKey, &Waiter<W>)| waiter.state == State::Queued;
        let first = || match facts.limits.is_fair {
            true => self.waiters.first_of(owner),
            false => self
                .waiters
                .first()
                .filter(|(_, first)| first.owner == owner),
        };
        match self.tenure {
            Some(tenure) if tenure.field == owner => {
                self.waiters.of(tenure.holder, false).find(is_queued)
            }
            Some(_) => first().filter(|first| facts.limits.is_fair && is_queued(first)),
            None => first()
                .into_iter()
                .chain(self.waiters.of(owner, true))
                .find(is_queued),
        }
    }

    /// Queues the next operation of a field, unless a request is under way or the same one waits already.
    fn queue(&mut self, index: usize, may_ask: bool, facts: &Facts<'_>, out: &mut Effects<W>) {
        let waiting = match self.fields[index].op {
            Some(Op::Sent(_)) => return,
            Some(Op::Queued(key)) => Some(key.kind),
            None => None,
        };
        let Some(next) = self.next(index, may_ask, facts) else {
            return;
        };
        let kind = next.kind();
        if waiting == Some(kind) {
            return;
        }
        self.superseded += u32::from(waiting.is_some());
        let key = OpKey {
            field: self.fields[index].owner,
            version: self.superseded,
            kind,
        };
        self.fields[index].op = Some(Op::Queued(key));
        out.send.push(key);
    }

    /// The next operation of a field: F1 to F4.
    pub(super) fn next(&self, index: usize, may_ask: bool, facts: &Facts<'_>) -> Option<What> {
        let field = &self.fields[index];
        let here = self.tenure.filter(|tenure| tenure.field == field.owner);
        if self.is_release_due(field, facts) {
            let valid_until = here.map_or(field.valid_until, |tenure| tenure.valid_until);
            return (!field.rests(Kind::Release)).then(|| What::Release {
                holds: self.want(field),
                in_time: !valid_until.has_come(facts.now),
            });
        }
        let may_ask = may_ask && !field.rests(Kind::Acquire);
        if let Some((key, waiter)) = self.asker(field.owner, facts).filter(|_| may_ask) {
            return Some(What::Acquire {
                for_waiter: Some(key),
                terms: waiter.terms,
                holds: self.live(field.owner) + 1,
                waits: waiter.waits,
            });
        }
        let is_left = field.is_placed() && self.waiters.first_of(field.owner).is_none();
        if is_left && !field.rests(Kind::Abandon) {
            return Some(What::Abandon);
        }
        let extends = self.waiters.find_extending(|_| true);
        let extends = extends.map(|(key, hold, lease)| Extension {
            for_waiter: Some(key),
            hold,
            lease,
        });
        let is_due = |tenure: &Tenure| {
            let is_time = tenure.ask_at.has_come(facts.now);
            extends.is_some() || (is_time && self.is_asked_about(tenure))
        };
        here.filter(|tenure| is_due(tenure) && !field.rests(Kind::Renew))
            .map(|_| What::Renew { extends })
    }

    /// Whether the client asks the server about the tenure from time to time.
    pub(super) fn is_asked_about(&self, tenure: &Tenure) -> bool {
        tenure.window == Window::Verifying || self.holds.is_watched()
    }

    /// The holds that the client wants in a field.
    pub(super) fn want(&self, field: &Field) -> u32 {
        self.live(field.owner).min(field.most())
    }

    /// The live holds under a field.
    pub(super) fn live(&self, owner: Owner) -> u32 {
        match self.tenure {
            Some(tenure) if tenure.field == owner => self.holds.count(),
            _ => 0,
        }
    }

    pub(super) fn is_release_due(&self, field: &Field, facts: &Facts<'_>) -> bool {
        let want = self.want(field);
        let may_free = want > 0 || field.free_after.has_come(facts.now);
        let keeps = |terms: Terms| {
            let lease = terms.lease(facts.limits);
            facts.limits.certain_end(facts.now, lease) >= field.until()
        };
        let asker = || self.asker(field.owner, facts);
        // The answer to a release under way decides, and no time before it.
        let releases = field.sent().map(Sent::kind) == Some(Kind::Release);
        let is_wanted = field.is_asked_in_doubt
            && !releases
            && asker().is_some_and(|(_, waiter)| keeps(waiter.terms));
        field.most() > want && may_free && !field.is_given_up && !is_wanted
    }

    /// Whether waiters may ask: without a tenure not before a due release, and one for all unless the server has the queue.
    pub(super) fn may_ask(&self, facts: &Facts<'_>) -> bool {
        let is_no_hindrance = |field: &Field| match field.sent() {
            Some(sent) if sent.kind() == Kind::Acquire => facts.limits.is_fair,
            // A release that leaves holds frees nothing.
            Some(sent) if matches!(sent.what, What::Release { holds: 0, .. }) => {
                sent.is_written && sent.epoch == facts.epoch
            }
            _ => !self.is_release_due(field, facts),
        };
        self.tenure.is_some() || self.fields.iter().all(is_no_hindrance)
    }

    /// Records that the operation leaves now, and returns its request.
    pub(super) fn send(&mut self, index: usize, what: What, facts: &Facts<'_>) -> Request {
        let (now, limits) = (facts.now, facts.limits);
        let (owner, most_before) = (self.fields[index].owner, self.fields[index].most());
        let (lease, request) = match what {
            What::Acquire {
                for_waiter,
                terms,
                holds,
                waits,
            } => {
                let takes_place = limits.is_fair && holds == 1 && waits;
                self.ask(index, for_waiter, terms, holds, takes_place, facts)
            }
            What::Abandon => (Duration::ZERO, Request::Abandon),

            What::Release { holds: 0, .. } => {
                self.listener.expect_echo(now + limits.echo);
                let lease = Duration::ZERO;
                (lease, Request::Release { holds: 0, lease })
            }
            What::Release { holds, .. } => {
                let lease = self.holds.lease_anew(now, limits);
                if let Some(tenure) = self.tenure.as_mut().filter(|tenure| tenure.field == owner) {
                    tenure.valid_until = tenure.valid_until.min(limits.validity(now, lease));
                }
                (lease, Request::Release { holds, lease })
            }
            What::Renew { extends } => {
                let is_watched = self.holds.is_watched();
                let tenure = self.tenure.as_mut().expect("a renewal is due for a tenure");
                tenure.ask_at = now + limits.watched_lease / 30;
                // The rest of the validity: a server that has lost the last extension in a failover gets it again.
                let rest = tenure.valid_until.left(now) + tenure.allowance;
                let lease = match is_watched {
                    true => rest.max(limits.watched_lease),
                    false => rest,
                };
                let lease = extends.map_or(lease, |extends| extends.lease.max(lease));
                (lease, Request::Renew { lease })
            }
        };
        self.fields[index].op = Some(Op::Sent(Sent {
            what,
            at: now,
            lease,
            epoch: facts.epoch,
            most_before,
            is_written: false,
            is_outdated: false,
            is_doubtful: false,
            is_outrun: false,
        }));
        request
    }

    /// Records that an acquire leaves now, and returns its lease and its request.
    fn ask(
        &mut self,
        index: usize,
        for_waiter: Option<WaiterKey>,
        terms: Terms,
        holds: u32,
        takes_place: bool,
        facts: &Facts<'_>,
    ) -> (Duration, Request) {
        let (limits, field) = (facts.limits, &mut self.fields[index]);
        let lease = terms.lease(limits);
        let wait = takes_place.then(|| {
            let place = field.place.get_or_insert_default();
            place.ask(facts.now, facts.epoch, limits.poll)
        });
        field.expect(holds);
        if let Some(key) = for_waiter {
            self.waiters.set(key, State::Asking);
        }
        (lease, Request::Acquire { holds, lease, wait })
    }

    /// Ends the waits for releases that the belief shows to be over, and for extensions of holds that are lost.
    pub(super) fn answer_ends(&mut self, out: &mut Effects<W>) {
        let is_over = |machine: &Self, state: State| match state {
            State::Ending { field, rest } => machine.is_release_over(field, rest),
            _ => false,
        };
        while let Some(key) = self.waiters.find(|waiter| is_over(self, waiter.state)) {
            out.wake
                .extend(self.waiters.finish(key, State::Over(Outcome::Released)));
        }
        let lost = |machine: &Self| {
            let is_lost = |hold| !machine.holds.is_live(hold);
            machine.waiters.find_extending(is_lost)
        };
        while let Some((key, ..)) = lost(self) {
            self.forget_caller(key);
            out.wake
                .extend(self.waiters.finish(key, State::Over(Outcome::Lost)));
        }
    }

    /// Whether the server counts no more holds than a release to `rest` leaves, or than other tasks of the owner have meanwhile.
    fn is_release_over(&self, owner: Owner, rest: u32) -> bool {
        let live = self.live(owner);
        let field = self.find(owner).map(|index| &self.fields[index]);
        field.is_none_or(|field| {
            let asks = field
                .sent()
                .is_some_and(|sent| sent.kind() == Kind::Acquire);
            field.most() <= rest.max(live) && !(live > rest && asks)
        })
    }
}
