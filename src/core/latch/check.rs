//! What holds after each event.

use std::time::Duration;

use super::{super::time::Time, Facts, Latch, Mark, State, Waiter, WaiterKey};

impl<W> Latch<W> {
    /// The first invariant that does not hold.
    pub fn broken(&self, facts: &Facts) -> Option<&'static str> {
        let is_sent = self.look.is_some_and(|look| look.sent.is_some());
        let rules: [(bool, &'static str); 3] = [
            (
                !self.is_look_due(facts),
                "a look is due, and none is under way",
            ),
            (
                is_sent || !self.has(State::Asking),
                "a caller waits for an answer, and no look is under way",
            ),
            (
                !self.has(State::Parked) || !self.listener.is_off(),
                "a caller is parked, and the client does not listen",
            ),
        ];
        rules
            .iter()
            .find(|(holds, _)| !holds)
            .map(|(_, rule)| *rule)
    }

    pub fn waiters(&self) -> impl Iterator<Item = (WaiterKey, &Waiter<W>)> {
        let waiters = self.waiters.all();
        waiters.map(|(number, waiter)| (WaiterKey(number), waiter))
    }

    /// The look under way, and whether it was sent.
    pub fn look(&self) -> Option<(Mark, bool)> {
        self.look.map(|look| (look.mark, look.sent.is_some()))
    }

    pub fn listens(&self) -> bool {
        !self.listener.is_off()
    }

    pub fn is_idle(&self) -> bool {
        self.waiters().next().is_none() && self.look.is_none() && !self.listens()
    }

    /// The marks that the machine compares.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        let unmarked = self.waiters().filter(|(_, waiter)| !waiter.is_marked);
        let of_waiters = unmarked.filter_map(|(_, waiter)| waiter.mark);
        of_waiters.chain(self.look.map(|look| look.mark))
    }

    /// Forgets what no rule reads, and gives the marks the names of `map`, which keeps their order. The last one is `last`.
    pub fn forget(&mut self, map: impl Fn(Mark) -> Mark, last: Mark) {
        self.waiters.forget();
        self.last_mark = last;
        for waiter in self.waiters.all_mut() {
            waiter.mark = waiter.mark.filter(|_| !waiter.is_marked).map(&map);
        }
        if let Some(look) = &mut self.look {
            look.mark = map(look.mark);
        }
    }

    /// The state as it is `passed` later, for a clock that stands still at `now`.
    pub fn rebase(&mut self, passed: Duration, now: Time) {
        let until = self.closed_until.rebased(passed, now);
        self.closed_until = match until.has_come(now) {
            true => Time::default(),
            false => until,
        };
    }
}
