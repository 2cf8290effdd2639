//! What holds after each event.

use std::time::Duration;

use super::{
    super::time::Time,
    Pool,
    attempts::{Attempt, AttemptKey, Kind, Stage},
    facts::{Effects, Facts},
    grants::{GrantState, Grants},
    queue::{Queue, State},
};

impl<W> Pool<W> {
    /// The first invariant that does not hold.
    pub fn broken(&self, facts: &Facts<'_>) -> Option<&'static str> {
        let rules: [(bool, &'static str); 5] = [
            (
                self.spares.is_empty() && self.next_asker().is_none(),
                "spare permits, or a caller whose turn has come, wait for nothing",
            ),
            (
                self.attempts_have_waiters(),
                "a caller and its attempt do not know each other",
            ),
            (
                self.given_have_waiters(),
                "a caller and its permits do not know each other",
            ),
            (
                !self.queue.has_parked() || !self.listener.is_off(),
                "a caller is parked, and the client does not listen",
            ),
            (
                self.attempts.all().all(|(_, attempt)| {
                    let gives_up =
                        |since: Time| (since + facts.limits.longest_doubt).has_come(facts.now);
                    matches!(attempt.stage, Stage::Sent(_)) || !attempt.doubt.is_some_and(gives_up)
                }),
                "an attempt is repeated although the server may have forgotten it",
            ),
        ];
        rules
            .iter()
            .find(|(holds, _)| !holds)
            .map(|(_, rule)| *rule)
    }

    fn attempts_have_waiters(&self) -> bool {
        let attempts = || self.attempts.all().map(|(_, attempt)| attempt);
        let kind_of = |state| match state {
            State::Asking => Some(Kind::Acquire),
            State::Ending => Some(Kind::Release),
            _ => None,
        };
        let waiters_are_known = self.queue.all().all(|(key, waiter)| {
            let own = attempts().filter(|attempt| attempt.for_waiter == Some(key));
            let kinds: Vec<Kind> = own.map(|attempt| attempt.kind).collect();
            kinds == Vec::from_iter(kind_of(waiter.state))
        });
        let mut known = attempts().filter_map(|attempt| attempt.for_waiter);
        waiters_are_known && known.all(|key| self.queue.get(key).is_some())
    }

    fn given_have_waiters(&self) -> bool {
        let has_waiter = self.grants.all().all(|(key, grant)| match grant.state {
            GrantState::Given { to, .. } => self
                .queue
                .get(to)
                .is_some_and(|waiter| waiter.state == State::Given(key)),
            GrantState::Guarded => true,
        });
        has_waiter
            && self.queue.all().all(|(_, waiter)| match waiter.state {
                State::Given(key) => self.grants.get(key).is_some(),
                _ => true,
            })
    }

    /// Whether a tick leaves a time that has come: a timer would have no end.
    pub fn spins(&self, facts: &Facts<'_>) -> bool
    where
        W: Clone,
    {
        let is_due = |pool: &Self| {
            let next = pool.look_at(facts);
            next.is_some_and(|at| at.has_come(facts.now))
        };
        let after_tick = || {
            let mut pool = self.clone();
            pool.tick(facts, &mut Effects::default());
            pool
        };
        is_due(self) && is_due(&after_tick())
    }

    pub fn attempts(&self) -> impl Iterator<Item = (AttemptKey, &Attempt)> {
        self.attempts.all()
    }

    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    pub fn queue(&self) -> &Queue<W> {
        &self.queue
    }

    /// How many permits were left, as far as the client knows, and whether that is sure.
    pub fn news(&self) -> (i64, bool) {
        (self.news.left, self.news.is_sure)
    }

    pub fn listens(&self) -> bool {
        !self.listener.is_off()
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.attempts.is_empty()
            && self.grants.all().next().is_none()
            && self.queue.all().next().is_none()
            && !self.listens()
    }

    /// Forgets what no rule reads: two states that differ by it are one. The server forgets its results of other attempts than those
    /// under way, whose numbers are 1 from now on.
    pub fn forget(&mut self) {
        self.grants.forget();
        self.queue.forget();
        self.attempts.forget();
        if !self.news.is_sure {
            self.news.until = Time::default();
        }
    }

    /// The state as it is `passed` later, for a clock that stands still at `now`.
    pub fn rebase(&mut self, passed: Duration, now: Time, oldest: Time) {
        let of_ends = |time: Time| time.rebased(passed, now);
        let of_begins = |time: Time| time.rebased(passed, oldest);
        self.grants.rebase(of_ends, of_begins);
        self.news.until = of_ends(self.news.until);
        for (_, attempt) in self.attempts.all_mut() {
            attempt.doubt = attempt.doubt.map(of_begins);
            match &mut attempt.stage {
                Stage::Queued => {}
                Stage::Sent(sent) => sent.at = of_begins(sent.at),
                Stage::Resting { until } => *until = of_ends(*until),
            }
        }
    }
}
