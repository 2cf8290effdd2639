//! Groups: acquires several locks, all of them or a majority.
//!
//! A round tries all locks at once. If it gets too few, the group releases them, waits for the lock
//! that refused, and begins the next round with that one. Locks that are wanted all the time are
//! seldom free together. From the second round on, a group that needs all its locks therefore keeps
//! some of those that it has for a moment ([`MEMBERS_KEPT_FOR`]), and waits for the rest meanwhile.
//!
//! All groups have their members in one order: by name, and by the caller's order for one name on
//! several servers. A group keeps the members that precede the first missing one, and waits for
//! that one next. So whatever it waits for, it holds only members that
//! precede it, and groups do not wait for each other in a circle. Owners that acquire single locks
//! in another order end such a circle with the moment, which is short and random. It is also a part
//! of the shortest lease, and that part grows from round to round: a group that has waited for long
//! prevails over one that has just arrived.

use std::time::Duration;

use futures_util::{future::join_all, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

use super::{
    attempt::AttemptOutcome,
    hold_guard::{HoldGuard, OnFailure},
    members::{Group, HeldMember, Member, gather, majority_wait, release_all, valid_until},
    request::Deadline,
    runtime,
    time_limits::{
        COLLISION_PAUSE, LATE_GRANT_WAIT, MEMBERS_KEPT_FOR, REFUSED_MEMBER_WAIT,
        TOO_FEW_ANSWERS_PAUSE,
    },
};
use crate::error::Error;

const KEPT_PART: u32 = 20;
const MOST_KEPT_PARTS: u32 = 5;

/// The smaller index: the order is that of the group, not of the answers.
fn first_of(known: Option<usize>, index: usize) -> Option<usize> {
    Some(known.map_or(index, |known| known.min(index)))
}

/// The result of a round that acquired too few members.
#[derive(Default)]
struct Missed {
    /// The first member that another owner holds.
    refused: Option<usize>,
    /// How many members are held by other owners.
    refusals: usize,
    /// The first member that did not answer in time.
    unreached: Option<usize>,
    /// The errors of the members that failed.
    failures: Vec<Error>,
    /// Enough members were acquired, and some of them ended before the last one was granted.
    is_too_slow: bool,
}

impl Missed {
    fn add_failure(&mut self, index: usize, error: Error) {
        if matches!(error, Error::Unavailable { .. }) {
            self.unreached = first_of(self.unreached, index);
        }
        self.failures.push(error);
    }

    /// Adds a member that another owner holds.
    fn add_refusal(&mut self, index: usize) {
        self.refused = first_of(self.refused, index);
        self.refusals += 1;
    }

    /// Whether other owners hold so many members that the group cannot be acquired, however many servers answer.
    fn is_busy(&self, group: &Group<'_>) -> bool {
        self.refusals > group.quota.spare()
    }

    /// The error of the group, if more members failed than it can do without, or the grants ended
    /// too early. A lasting error goes first.
    fn error(&self, group: &Group<'_>) -> Option<Error> {
        if self.failures.len() > group.quota.spare() {
            let lasting = |error: &&Error| !matches!(error, Error::Unavailable { .. });
            let reported = self.failures.iter().find(lasting).or(self.failures.first());
            return reported.cloned();
        }
        let slow = "the locks were taken too slowly for their lease, or lost meanwhile";
        self.is_too_slow.then(|| Error::unavailable(slow))
    }
}

impl Group<'_> {
    /// Acquires enough of the locks. Returns `None` if other owners still held too many at the
    /// deadline.
    pub(crate) async fn acquire(
        &self,
        deadline: Deadline,
    ) -> Result<Option<Vec<HeldMember>>, Error> {
        runtime::check()?;
        self.wait_for_dropped_guards(deadline).await;
        // The yields of the members began together, so one wait, for the longest, covers them all.
        let mut awaited = self.longest_yield().filter(|_| deadline.waits());
        let mut rounds = 0;
        let mut failing_since = None;
        let mut was_busy = false;
        loop {
            let first = match awaited {
                Some(index) => self.wait_for(index, deadline, rounds).await?,
                None => None,
            };
            // A majority has waited for one of its members, so it asks all of them at its deadline.
            let is_refused = awaited.is_some() && first.is_none() && !self.quota.is_majority();
            if is_refused && deadline.is_over() {
                return Ok(None);
            }
            let keeping_rounds = if self.quota.is_majority() { 0 } else { rounds };
            let missed = match self.round(first, deadline, keeping_rounds).await {
                Ok(taken) => return Ok(Some(taken)),
                Err(missed) => missed,
            };
            let error = missed.error(self);
            let is_last = matches!(deadline, Deadline::Once) || deadline.is_over();
            let alone = missed.unreached.filter(|_| !self.quota.is_majority());
            awaited = match (missed.refused, alone) {
                (Some(refused), Some(alone)) => Some(refused.min(alone)),
                (refused, alone) => refused.or(alone),
            };
            match error {
                Some(error @ Error::Unavailable { .. }) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    let answer_wait = self.members[0].engine.config.outage_wait;
                    if is_last && was_busy {
                        // As for a single lock: the last answer was a refusal, so the wait times
                        // out without an error.
                        return Ok(None);
                    }
                    // A group that needs an unreached member waits on: `wait_for` fails when that
                    // member has not answered for `outage_wait`.
                    let waits_on = awaited.is_some() && !self.quota.is_majority();
                    if is_last || !waits_on && since.elapsed() >= answer_wait {
                        return Err(error);
                    }
                }
                Some(error) => return Err(error),
                None if is_last => return Ok(None),
                None => failing_since = None,
            }
            was_busy |= missed.is_busy(self);
            match awaited {
                Some(_) => rounds += 1,
                None => pause(deadline, TOO_FEW_ANSWERS_PAUSE).await,
            }
        }
    }

    /// Acquires a member that refused or did not answer. Returns `None` at the deadline, or when a
    /// majority had better try all members again.
    async fn wait_for(
        &self,
        index: usize,
        deadline: Deadline,
        rounds: u32,
    ) -> Result<Option<HeldMember>, Error> {
        if rounds > 1 {
            // A random pause keeps two groups that have collided from colliding again and again.
            let most = COLLISION_PAUSE * (1 << (rounds.min(5) - 2));
            pause(deadline, most.mul_f64(fastrand::f64())).await;
        }
        let index = self.first_side(index);
        let Member { engine, request } = &self.members[index];
        let deadline = match self.quota.is_majority() {
            true => Deadline::Until(deadline.earlier(Instant::now() + REFUSED_MEMBER_WAIT)),
            false => deadline,
        };
        match engine.acquire(request, deadline).await {
            Ok(hold) => Ok(hold.map(|hold| self.part(index, hold))),
            // The next round counts the failure.
            Err(_) if self.quota.is_majority() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first member of the same client and name. An owner that reads may not write, so a group
    /// with both sides of a lock waits for the write side, also when the read side is awaited.
    fn first_side(&self, index: usize) -> usize {
        let Member { engine, request } = &self.members[index];
        let is_same = |member: &Member| {
            (member.engine.id, &member.request.spec.name) == (engine.id, &request.spec.name)
        };
        self.members.iter().position(is_same).unwrap_or(index)
    }

    /// Waits for dropped guards, as for a single lock. A majority does not wait for a server
    /// without a connection, and for any server only as long as for an answer.
    async fn wait_for_dropped_guards(&self, deadline: Deadline) {
        let dropped = self
            .members
            .iter()
            .filter_map(|Member { engine, request }| {
                let longest = match self.quota.is_majority() {
                    true if !engine.batcher.is_ready(&request.spec) => return None,
                    true => majority_wait(engine, &request.lease),
                    false => engine.config.command_wait,
                };
                let until = deadline.earlier(Instant::now() + longest);
                engine.dropped.wait_for(&request.spec.name, until)
            });
        join_all(dropped).await;
    }

    /// The member with the longest yield, if any has one.
    fn longest_yield(&self) -> Option<usize> {
        let yields = self.members.iter().enumerate();
        let until = yields.filter_map(|(index, Member { engine, request })| {
            Some((engine.wakeups.yields_until(&request.spec)?, index))
        });
        until.max().map(|(_, index)| index)
    }

    fn part(&self, index: usize, hold: HoldGuard) -> HeldMember {
        let Member { engine, request } = &self.members[index];
        HeldMember {
            index,
            hold,
            engine: engine.clone(),
            answer_wait: majority_wait(engine, &request.lease),
        }
    }

    /// Tries every lock but the `first`, which is held already. With `keeping_rounds`, keeps what it
    /// has for a moment and waits for the rest. Releases what it has if that is too little.
    async fn round(
        &self,
        first: Option<HeldMember>,
        deadline: Deadline,
        keeping_rounds: u32,
    ) -> Result<Vec<HeldMember>, Missed> {
        let mut missed = Missed::default();
        let mut taken = self.try_all(first, deadline, &mut missed).await;
        if keeping_rounds > 0 && missed.failures.is_empty() {
            self.wait_for_remaining(&mut taken, deadline, keeping_rounds)
                .await;
        }
        taken.sort_by_key(|part| part.index);
        if valid_until(&taken, self.quota.need).is_some_and(|until| Instant::now() < until) {
            return Ok(taken);
        }
        missed.is_too_slow = taken.len() >= self.quota.need;
        self.give_back(taken, deadline).await;
        Err(missed)
    }

    /// Waits for the missing locks, one after the other, for a moment in all. The caller counts the
    /// result.
    async fn wait_for_remaining(
        &self,
        taken: &mut Vec<HeldMember>,
        deadline: Deadline,
        keeping_rounds: u32,
    ) {
        // Members beyond the first missing one are given back: a group that waits holds only members
        // that precede the awaited one, so groups do not wait for each other in a circle.
        let is_taken = |index| taken.iter().any(|part: &HeldMember| part.index == index);
        let first_missing = (0..self.members.len()).find(|index| !is_taken(*index));
        let first_missing = first_missing.unwrap_or(self.members.len());
        let beyond = taken.extract_if(.., |part| part.index > first_missing);
        let beyond = Vec::from_iter(beyond);
        let leases = self
            .members
            .iter()
            .map(|member| member.request.lease.duration);
        let longest = longest_kept(leases.min().unwrap_or_default(), keeping_rounds);
        // A random moment, so that two groups that wait for each other do not give up together.
        let moment = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
        let until = Deadline::Until(deadline.earlier(Instant::now() + moment));
        self.give_back(beyond, until).await;
        if taken.is_empty() {
            return;
        }
        for index in first_missing..self.members.len() {
            if until.is_over() {
                return;
            }
            let Member { engine, request } = &self.members[index];
            match engine.acquire(request, until).await {
                Ok(Some(hold)) => taken.push(self.part(index, hold)),
                _ => return,
            }
        }
    }

    /// Makes all attempts at once. Half of a majority's remaining validity bounds the grace of the rest, which gives back what it is
    /// granted later.
    async fn try_all(
        &self,
        first: Option<HeldMember>,
        deadline: Deadline,
        missed: &mut Missed,
    ) -> Vec<HeldMember> {
        let skipped = first.as_ref().map(|part| part.index);
        let mut taken = Vec::from_iter(first);
        let members = self.members.iter().enumerate();
        let asked = members.filter(|(index, _)| Some(*index) != skipped);
        let clients = asked.map(|(_, member)| &member.engine);
        let attempts = self.attempts(skipped, deadline);
        gather(clients, attempts, None, |index, outcome| {
            match outcome {
                Ok(AttemptOutcome::Granted(hold)) => {
                    self.members[index].engine.notify_waiters_of_owner(&hold);
                    taken.push(self.part(index, hold));
                }
                Ok(AttemptOutcome::Busy { .. }) => missed.add_refusal(index),
                Ok(AttemptOutcome::Unanswered { reason }) => {
                    let Member { engine, request } = &self.members[index];
                    missed.add_failure(
                        index,
                        engine.unavailable(&request.spec, request.durability, reason),
                    );
                }
                Err(error) => missed.add_failure(index, error),
            }
            let majority = self.quota.is_majority();
            let until = majority.then(|| valid_until(&taken, self.quota.need))??;
            Some(until.saturating_duration_since(Instant::now()) / 2)
        })
        .await;
        taken
    }

    /// Releases members of a group that is not acquired. At the deadline, the releases continue in the background.
    async fn give_back(&self, parts: Vec<HeldMember>, deadline: Deadline) {
        let released = release_all(parts, self.quota, OnFailure::Log);
        match deadline {
            Deadline::Until(deadline) => {
                drop(timeout_at(deadline + LATE_GRANT_WAIT, released).await)
            }
            Deadline::Once | Deadline::Never => drop(released.await),
        }
    }

    fn attempts(
        &self,
        skipped: Option<usize>,
        deadline: Deadline,
    ) -> FuturesUnordered<impl Future<Output = (usize, Result<AttemptOutcome, Error>)>> {
        let members = self.members.iter().enumerate();
        let is_majority = self.quota.is_majority();
        let attempts = members
            .filter(move |(index, _)| Some(*index) != skipped)
            .map(move |(index, member)| {
                let Member { engine, request } = member;
                let answer_wait = if !is_majority {
                    engine.config.command_wait
                } else if engine.batcher.is_ready(&request.spec) {
                    majority_wait(engine, &request.lease)
                } else {
                    Duration::ZERO
                };
                let until = engine
                    .answer_deadline(deadline)
                    .min(Instant::now() + answer_wait);
                async move {
                    let attempt = engine.try_until(request, None, until, None);
                    (index, attempt.await)
                }
            });
        attempts.collect()
    }
}

/// How long a group keeps its acquired members, given its shortest lease and its rounds so far.
fn longest_kept(lease: Duration, rounds: u32) -> Duration {
    let part = lease / KEPT_PART * rounds.min(MOST_KEPT_PARTS);
    part.min(MEMBERS_KEPT_FOR)
}

/// Sleeps for `time`, but not beyond the deadline.
async fn pause(deadline: Deadline, time: Duration) {
    let until = deadline.earlier(Instant::now() + time);
    tokio::time::sleep_until(until).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_keeps_its_members_for_longer_from_round_to_round() {
        let millis = Duration::from_millis;
        let kept = |lease, rounds| longest_kept(millis(lease), rounds);
        assert_eq!(kept(100, 0), Duration::ZERO);
        assert_eq!(kept(100, 1), millis(5));
        assert_eq!(kept(100, 4), millis(20));
        assert_eq!(kept(100, 9), millis(25));
        assert_eq!(kept(30_000, 1), MEMBERS_KEPT_FOR);
    }
}
