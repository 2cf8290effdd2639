//! The begin and the end of holds: how a hold is given, passes on, and is lost.

use super::{
    Machine,
    facts::{Effects, Facts, Terms},
    field::Op,
    keys::{HoldKey, Owner, WaiterKey},
    tenure::{Hold, HoldState, Tenure, Window},
    time::Time,
    waiters::State,
};

impl<W> Machine<W> {
    /// Reads the clock before a fact is recorded: what has ended by then has ended before it.
    pub(super) fn expire(&mut self, facts: &Facts<'_>) {
        if self
            .tenure
            .is_some_and(|tenure| tenure.valid_until.has_come(facts.now))
        {
            self.lose(true);
        }
        for field in &mut self.fields {
            field.expire(facts.now);
        }
    }

    /// The tenure is lost: by the clock, or because the server does not know it.
    pub(super) fn lose(&mut self, by_the_clock: bool) {
        let Some(tenure) = self.tenure.take() else {
            return;
        };
        let given = self.holds.lose();
        self.waiters.put_first(&given);
        if let Some(index) = self.find(tenure.field) {
            let field = &mut self.fields[index];
            field.valid_until = tenure.valid_until;
            if by_the_clock && field.most() > 0 {
                // A grant that comes late does not end the allowance of a hold that was lost before it.
                let free_after = tenure.valid_until + tenure.allowance;
                field.free_after = field.free_after.max(free_after);
            }
        }
    }

    /// A hold of the tenure has ended. Returns whether the next waiter has the lock.
    pub(super) fn end_hold(
        &mut self,
        key: HoldKey,
        facts: &Facts<'_>,
        out: &mut Effects<W>,
    ) -> bool {
        let (Some(hold), Some(tenure)) = (self.holds.remove(key), self.tenure) else {
            return false;
        };
        let index = self.find(tenure.field);
        if let Some(index) = index {
            self.fields[index].is_given_up = false;
        }
        if self.holds.count() > 0 {
            return false;
        }
        if let Some(next) = self.next_holder(&tenure, &hold, facts) {
            self.give(next, Terms::Watched, facts.now, facts, out);
            let holder = self.waiters.get(next).map(|waiter| waiter.owner);
            let tenure = self.tenure.as_mut().expect("it passes");
            tenure.holder = holder.unwrap_or(tenure.holder);
            return true;
        }
        if let Some(index) = index {
            self.fields[index].valid_until = tenure.valid_until;
        }
        self.tenure = None;
        false
    }

    /// The waiter to which a tenure without holds passes.
    pub(super) fn next_holder(
        &self,
        tenure: &Tenure,
        last: &Hold,
        facts: &Facts<'_>,
    ) -> Option<WaiterKey> {
        let field = &self.fields[self.find(tenure.field)?];
        let is_open = matches!(tenure.window, Window::Open { until } if !until.has_come(facts.now));
        let is_quiet = field.op.is_none_or(Op::leaves_leases);
        let is_fresh =
            2 * tenure.valid_until.left(facts.now) > facts.limits.watched_lease - tenure.allowance;
        let may_pass = facts.limits.hands_off
            && is_open
            && is_quiet
            && is_fresh
            && last.may_pass(facts.now, facts.limits);
        self.first_for(may_pass, tenure.field, facts)
    }

    /// The first waiter, if it can be given a hold under `field` that the client renews. At a fair lock it is the owner's.
    pub(super) fn first_for(
        &self,
        may_pass: bool,
        field: Owner,
        facts: &Facts<'_>,
    ) -> Option<WaiterKey> {
        let first = match facts.limits.is_fair {
            true => self.waiters.first_of(field),
            false => self.waiters.first(),
        };
        let (first, waiter) = first.filter(|_| may_pass)?;
        let waits = matches!(waiter.state, State::Queued | State::Parked { .. });
        (waits && waiter.terms == Terms::Watched).then_some(first)
    }

    /// Gives a hold to a waiter; a lease of its own was `sent` then.
    pub(super) fn give(
        &mut self,
        to: WaiterKey,
        terms: Terms,
        sent: Time,
        facts: &Facts<'_>,
        out: &mut Effects<W>,
    ) {
        let hold = self.holds.add(Hold {
            state: HoldState::Given {
                to,
                since: facts.now,
            },
            terms,
            until: match terms {
                Terms::Watched => None,
                Terms::Fixed(lease) => Some(sent + lease),
            },
        });
        out.wake.extend(self.waiters.finish(to, State::Given(hold)));
    }
}
