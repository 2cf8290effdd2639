//! What holds after each event.

use std::time::Duration;

use super::{
    Machine,
    facts::{Effects, Facts},
    field::{Field, Op, What},
    keys::{Channel, Kind, Owner},
    tenure::{HoldState, Holds, Tenure, Window},
    time::Time,
    waiters::{State, Waiter, Waiters},
};

impl<W> Machine<W> {
    /// The first invariant that does not hold.
    pub fn broken(&self, facts: &Facts<'_>) -> Option<&'static str> {
        let rules: [(bool, &'static str); 6] = [
            (
                self.believes_its_holds(facts),
                "live holds exceed the belief",
            ),
            (
                self.releases_what_is_not_wanted(facts),
                "the belief exceeds the want, and no release is due",
            ),
            (
                self.first_goes_on(facts),
                "the first waiter of a free lock neither asks nor is parked",
            ),
            (
                self.leaves_its_places(),
                "a place without a waiter is not being left",
            ),
            (
                self.asks_have_waiters(),
                "a waiter and its request do not know each other",
            ),
            (
                self.given_have_waiters(),
                "a waiter and its hold do not know each other",
            ),
        ];
        rules
            .iter()
            .find(|(holds, _)| !holds)
            .map(|(_, rule)| *rule)
    }

    fn believes_its_holds(&self, facts: &Facts<'_>) -> bool {
        self.tenure.is_none_or(|tenure| {
            let field = self.find(tenure.field).map(|index| &self.fields[index]);
            tenure.valid_until.has_come(facts.now)
                || field.is_some_and(|field| self.holds.count() <= field.most())
        })
    }

    fn releases_what_is_not_wanted(&self, facts: &Facts<'_>) -> bool {
        self.fields
            .iter()
            .all(|field| field.does().is_some() || !self.is_release_due(field, facts))
    }

    fn first_goes_on(&self, facts: &Facts<'_>) -> bool {
        // Without a tenure, a waiter may have to wait for another owner's release, and at a lock that is not fair for its ask.
        let is_busy = |owner| {
            self.fields.iter().any(|field| match field.does() {
                None => false,
                Some(_) if field.owner == owner => true,
                Some(Kind::Acquire) => self.tenure.is_none() && !facts.limits.is_fair,
                Some(_) => self.tenure.is_none(),
            })
        };
        let goes_on = |waiter: &Waiter<W>| {
            matches!(waiter.state, State::Parked { .. }) || is_busy(waiter.owner)
        };
        match facts.limits.is_fair {
            true => self.waiters.in_line().all(|(key, waiter)| {
                let first = self.waiters.first_of(waiter.owner).map(|(key, _)| key);
                first != Some(key) || goes_on(waiter)
            }),
            false => {
                let first = self.waiters.first();
                self.tenure.is_some() || first.is_none_or(|(_, first)| goes_on(first))
            }
        }
    }

    fn leaves_its_places(&self) -> bool {
        self.fields.iter().all(|field| {
            field.does().is_some()
                || !field.is_placed()
                || self.waiters.first_of(field.owner).is_some()
        })
    }

    fn asks_have_waiters(&self) -> bool {
        let asked_for = |key| {
            let asks = self
                .fields
                .iter()
                .filter_map(|field| match field.sent()?.what {
                    What::Acquire { for_waiter, .. } => for_waiter,
                    _ => None,
                });
            asks.filter(|waiter| *waiter == key).count()
        };
        let asks = self
            .waiters
            .all()
            .all(|(key, waiter)| asked_for(key) == usize::from(waiter.state == State::Asking));
        let mut sent = self.fields.iter().filter_map(Field::sent);
        let is_known = |mut what: What| match what.waiter_mut() {
            Some(Some(key)) => self.waiters.get(*key).is_some_and(|waiter| {
                matches!(waiter.state, State::Asking | State::Extending { .. })
            }),
            _ => true,
        };
        asks && sent.all(|sent| is_known(sent.what))
    }

    fn given_have_waiters(&self) -> bool {
        let has_waiter = self.holds.live().all(|(key, hold)| match hold.state {
            HoldState::Given { to, .. } => self
                .waiters
                .get(to)
                .is_some_and(|waiter| waiter.state == State::Given(key)),
            _ => true,
        });
        has_waiter
            && self.waiters.all().all(|(_, waiter)| match waiter.state {
                State::Given(key) => self.holds.get(key).is_some(),
                _ => true,
            })
    }

    /// Whether a tick leaves a time that has come: a timer would have no end.
    pub fn spins(&self, facts: &Facts<'_>) -> bool
    where
        W: Clone,
    {
        let is_due = |machine: &Self| {
            let next = machine.look_at(facts);
            next.is_some_and(|at| at.has_come(facts.now))
        };
        let after_tick = || {
            let mut machine = self.clone();
            machine.tick(facts, &mut Effects::default());
            machine
        };
        is_due(self) && is_due(&after_tick())
    }

    /// Whether an operation of this kind is under way or waits for its batch.
    pub fn does(&self, owner: Owner, kind: Kind) -> bool {
        let field = self.find(owner).map(|index| &self.fields[index]);
        field.and_then(|field| field.op).map(Op::kind) == Some(kind)
    }

    pub fn tenure(&self) -> Option<&Tenure> {
        self.tenure.as_ref()
    }

    pub fn field(&self, owner: Owner) -> Option<&Field> {
        self.find(owner).map(|index| &self.fields[index])
    }

    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The live holds under a field, and those that a guard has.
    pub fn live_holds(&self, owner: Owner) -> (u32, u32) {
        let guarded = self
            .holds
            .live()
            .filter(|(_, hold)| hold.state == HoldState::Guarded);
        match self.live(owner) {
            0 => (0, 0),
            live => (live, guarded.count() as u32),
        }
    }

    pub fn waiters(&self) -> &Waiters<W> {
        &self.waiters
    }

    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// The channels to which the client listens, or has asked to.
    pub fn channels(&self) -> impl Iterator<Item = Channel> {
        let of_lock = (!self.listener.is_off()).then_some(Channel::Lock);
        let own = self.fields.iter().filter(|field| {
            let place = field.place.as_ref();
            place.is_some_and(|place| !place.listener.is_off())
        });
        of_lock
            .into_iter()
            .chain(own.map(|field| Channel::Of(field.owner)))
    }

    pub fn listens(&self) -> bool {
        self.channels().next().is_some()
    }

    /// Forgets what no rule reads: two states that differ by it are one. Returns whether all requests under way are of this epoch, which
    /// is then called 0.
    pub fn forget(&mut self, epoch: u32) -> bool {
        self.holds.forget();
        self.waiters.forget();
        if !self
            .fields
            .iter()
            .any(|field| matches!(field.op, Some(Op::Queued(_))))
        {
            self.superseded = 0;
        }
        let places = self
            .fields
            .iter_mut()
            .filter_map(|field| field.place.as_mut());
        places.for_each(|place| place.forget(epoch));
        let sent = self.fields.iter().filter_map(Field::sent);
        let is_current = sent.into_iter().all(|sent| sent.epoch == epoch);
        if is_current {
            let sent = self.fields.iter_mut().filter_map(Field::sent_mut);
            sent.for_each(|sent| sent.epoch = 0);
            let places = self
                .fields
                .iter_mut()
                .filter_map(|field| field.place.as_mut());
            places.for_each(|place| place.renumber());
        }
        is_current
    }

    /// The owners of whose holds a release is due, or under way: the client has left a lock that the server may count as held.
    pub fn owing(&self, facts: &Facts<'_>) -> impl Iterator<Item = Owner> {
        let owing = self.fields.iter().filter(|field| {
            let asks = field
                .sent()
                .is_some_and(|sent| sent.kind() == Kind::Acquire);
            !asks && self.want(field) == 0 && self.is_release_due(field, facts)
        });
        owing.map(|field| field.owner)
    }

    /// Whether the next message is that of an own release.
    pub fn expects_echo(&self, now: Time) -> bool {
        self.listener.clone().take_echo(now)
    }

    /// The state as it is `passed` later, for a clock that stands still at `now`: two states that differ by the time alone are equal.
    pub fn rebase(&mut self, passed: Duration, now: Time, oldest: Time) {
        let of_ends = |time: Time| time.rebased(passed, now);
        let of_begins = |time: Time| time.rebased(passed, oldest);
        self.fields
            .iter_mut()
            .for_each(|field| field.rebase(of_ends, of_begins));
        if let Some(tenure) = &mut self.tenure {
            tenure.valid_until = of_ends(tenure.valid_until);
            tenure.ask_at = of_ends(tenure.ask_at);
            if let Window::Open { until } = &mut tenure.window {
                *until = of_ends(*until);
                if until.has_come(now) {
                    tenure.window = Window::Closed;
                }
            }
        }
        self.holds.rebase(of_ends, of_begins);
        self.waiters.rebase(of_ends);
        self.listener.rebase(of_ends, now);
    }
}
