//! What follows from the facts: the tables of [`permits`](super).

use super::{
    super::{keys::WaiterKey, time::Time},
    News, Pool,
    attempts::{Attempt, AttemptKey, Kind, Stage},
    facts::{Ask, Effects, Facts},
    grants::{Grant, GrantState, Spare},
    queue::{Outcome, State, Waiter},
};

impl<W> Pool<W> {
    /// Reads the clock before a fact is recorded: what has ended by then has ended before it.
    pub(super) fn expire(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        let (now, limits) = (facts.now, facts.limits);
        self.news.is_sure &= !self.news.until.has_come(now);
        let mut over = Vec::new();
        for (key, attempt) in self.attempts.all_mut() {
            if matches!(attempt.stage, Stage::Sent(_)) {
                continue;
            }
            let is_over = |since: Time| (since + limits.longest_doubt).has_come(now);
            if attempt.doubt.is_some_and(is_over) {
                over.push(key);
            } else if matches!(attempt.stage, Stage::Resting { until } if until.has_come(now)) {
                attempt.stage = Stage::Queued;
                out.send.push(key);
            }
        }
        for key in over {
            self.give_up(key, out);
        }
    }

    /// The server forgets soon whether it has executed the attempt.
    fn give_up(&mut self, key: AttemptKey, out: &mut Effects<W>) {
        let Some(attempt) = self.attempts.remove(key) else {
            return;
        };
        out.forgotten += attempt.permits;
        self.finish(attempt.for_waiter, Outcome::Unknown, out);
    }

    /// Derives the effects of the facts.
    pub(super) fn settle(&mut self, facts: &Facts<'_>, out: &mut Effects<W>) {
        for spare in std::mem::take(&mut self.spares) {
            self.pass_on(spare, facts, out);
        }
        self.ask_parked(out);
        if self.queue.is_line_empty() {
            // Nothing listens any more.
            self.news = News::default();
        }
        let (has_parked, is_used) = (self.queue.has_parked(), !self.queue.is_line_empty());
        out.listen = self.listener.settle(has_parked, is_used).or(out.listen);
    }

    /// P1 and P2.
    fn pass_on(&mut self, spare: Spare, facts: &Facts<'_>, out: &mut Effects<W>) {
        let mut rest = spare.permits;
        if facts.limits.hands_off && !spare.window.has_come(facts.now) {
            let mut takers = Vec::new();
            for (key, waiter) in self.queue.parked() {
                if rest == 0 {
                    break;
                }
                if waiter.permits <= rest {
                    rest -= waiter.permits;
                    takers.push((key, waiter.permits));
                }
            }
            for (key, permits) in takers {
                self.give(key, Spare { permits, ..spare }, facts, out);
            }
        }
        match rest {
            0 => self.finish(spare.for_waiter, Outcome::Released, out),
            permits => self.begin(Kind::Release, permits, spare.for_waiter, out),
        }
    }

    pub(super) fn give(
        &mut self,
        to: WaiterKey,
        spare: Spare,
        facts: &Facts<'_>,
        out: &mut Effects<W>,
    ) {
        let grant = self.grants.add(Grant {
            permits: spare.permits,
            state: GrantState::Given {
                to,
                since: facts.now,
            },
            window: spare.window,
        });
        out.wake.extend(self.queue.finish(to, State::Given(grant)));
    }

    /// A0.
    pub(super) fn ask_or_park(&mut self, key: WaiterKey, ask: Ask, out: &mut Effects<W>) {
        let wants_no_more = |waiter: &Waiter<W>| waiter.permits <= ask.permits;
        let is_behind = ask.waits && self.queue.parked().any(|(_, waiter)| wants_no_more(waiter));
        match is_behind {
            true => self.queue.set(key, State::Parked),
            false => self.ask(key, ask.permits, out),
        }
    }

    /// A1 and A2.
    fn ask_parked(&mut self, out: &mut Effects<W>) {
        while let Some((key, permits)) = self.next_asker() {
            self.ask(key, permits, out);
        }
    }

    /// The parked caller that asks now, and what it asks for.
    pub(super) fn next_asker(&self) -> Option<(WaiterKey, u32)> {
        if !self.queue.has_parked() {
            return None;
        }
        let asked = || self.attempts.all().filter(|(_, attempt)| attempt.asks());
        let under_way: i64 = asked().map(|(_, attempt)| i64::from(attempt.permits)).sum();
        let enough = self.news.left.saturating_sub(under_way);
        let looks = !self.news.is_sure && asked().next().is_none();
        if enough <= 0 && !looks {
            return None;
        }
        let mut parked = self.queue.parked();
        let asker = parked.find(|(_, waiter)| looks || i64::from(waiter.permits) <= enough);
        asker.map(|(key, waiter)| (key, waiter.permits))
    }

    fn ask(&mut self, key: WaiterKey, permits: u32, out: &mut Effects<W>) {
        self.queue.set(key, State::Asking);
        self.begin(Kind::Acquire, permits, Some(key), out);
    }

    fn begin(
        &mut self,
        kind: Kind,
        permits: u32,
        for_waiter: Option<WaiterKey>,
        out: &mut Effects<W>,
    ) {
        let key = self.attempts.begin(Attempt {
            kind,
            permits,
            for_waiter,
            stage: Stage::Queued,
            doubt: None,
        });
        out.send.push(key);
    }

    /// The caller has its outcome.
    pub(super) fn finish(
        &mut self,
        waiter: Option<WaiterKey>,
        outcome: Outcome,
        out: &mut Effects<W>,
    ) {
        if let Some(key) = waiter {
            out.wake
                .extend(self.queue.finish(key, State::Over(outcome)));
        }
    }
}
