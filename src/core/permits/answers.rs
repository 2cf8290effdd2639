//! Answers: the table of [`attempts`](super::attempts), row by row.

use super::{
    super::keys::WaiterKey,
    Pool,
    attempts::{Attempt, AttemptKey, Kind, Sent, Stage},
    facts::{Answer, Effects, Facts},
    grants::Spare,
    queue::{Outcome, State},
};

impl<W> Pool<W> {
    /// The answer to the sending of an attempt that is under way.
    pub fn answer(
        &mut self,
        facts: &Facts<'_>,
        key: AttemptKey,
        answer: Answer,
        out: &mut Effects<W>,
    ) {
        self.expire(facts, out);
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        let Stage::Sent(sent) = attempt.stage else {
            return;
        };
        match answer {
            Answer::Done { left } => {
                let attempt = *attempt;
                self.attempts.remove(key);
                self.learn(left, &sent, facts);
                self.executed(&attempt, facts, out);
            }
            Answer::Busy { left } => {
                let (waiter, needs) = (attempt.for_waiter, i64::from(attempt.permits));
                self.attempts.remove(key);
                // Whatever the server says: fewer than it was asked for.
                self.learn(left.min(needs - 1), &sent, facts);
                self.too_few(waiter, out);
            }
            Answer::Refused => {
                attempt.stage = Stage::Resting {
                    until: facts.now + facts.limits.pause,
                };
                if attempt.kind == Kind::Acquire {
                    let waiter = attempt.for_waiter.take();
                    if attempt.doubt.is_none() {
                        self.attempts.remove(key);
                    }
                    self.finish(waiter, Outcome::Refused, out);
                }
            }
            Answer::Unanswered => {
                attempt.doubt.get_or_insert(sent.at);
                attempt.stage = Stage::Queued;
                out.send.push(key);
            }
        }
        // A doubt may have lasted long enough.
        self.expire(facts, out);
        self.settle(facts, out);
    }

    fn executed(&mut self, attempt: &Attempt, facts: &Facts<'_>, out: &mut Effects<W>) {
        let spare = Spare {
            permits: attempt.permits,
            window: facts.now + facts.limits.window,
            for_waiter: None,
        };
        match (attempt.kind, attempt.for_waiter) {
            (Kind::Acquire, Some(waiter)) => self.give(waiter, spare, facts, out),
            (Kind::Acquire, None) => self.spares.push(spare),
            (Kind::Release, waiter) => self.finish(waiter, Outcome::Released, out),
        }
    }

    fn too_few(&mut self, waiter: Option<WaiterKey>, out: &mut Effects<W>) {
        let Some(key) = waiter else { return };
        match self.queue.get(key).is_some_and(|waiter| waiter.waits) {
            true => self.queue.set(key, State::Parked),
            false => self.finish(waiter, Outcome::Busy, out),
        }
    }

    /// Records how many permits an answer says are left. One that may be older than the news does not lower them.
    fn learn(&mut self, left: i64, sent: &Sent, facts: &Facts<'_>) {
        if sent.is_outdated {
            self.news.left = self.news.left.max(left);
            return;
        }
        self.news.left = left;
        self.news.is_sure = true;
        self.news.until = facts.now + facts.limits.poll;
    }
}
