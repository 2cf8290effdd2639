//! Groups: acquires several locks, all of them or a majority.
//!
//! A round tries all locks at once. If it gets too few, the group releases them, waits for the lock
//! that refused, and begins the next round with that one. Locks that are wanted all the time are
//! seldom free together. From the second round on, a group that needs all its locks therefore keeps
//! some of those that it has for a moment ([`KEPT_FOR`]), and waits for the rest meanwhile.
//!
//! All groups have their members in one order: by name, and by the caller's order for one name on
//! several servers. A group keeps the members that precede the first missing one, and waits for
//! that one next. So whatever it waits for, it holds only members that
//! precede it, and groups do not wait for each other in a circle. Owners that acquire single locks
//! in another order end such a circle with the moment, which is short and random. It is also a part
//! of the shortest lease, and that part grows from round to round: a group that has waited for long
//! prevails over one that has just arrived.

use std::time::Duration;

use futures_util::{
    future::join_all,
    stream::{FuturesUnordered, StreamExt},
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use super::{
    Engine, EngineHandle,
    acquire::GRACE,
    attempt::AttemptOutcome,
    hold_guard::{HoldGuard, OnFailure},
    request::{AcquireRequest, Deadline},
    runtime,
};
use crate::{
    error::Error,
    redis::SendPermit,
    wire::{Lease, Released},
};

/// How long a group keeps its acquired members while it waits for the rest, at most. Bounded as
/// well by a twentieth of the shortest lease for each round so far, and by a quarter of that lease.
const KEPT_FOR: Duration = Duration::from_millis(250);
const KEPT_PART: u32 = 20;
const MOST_KEPT_PARTS: u32 = 5;
/// How long a majority waits for one lock that refused, before it tries all locks again: it may do
/// without that one.
const MAJORITY_WAIT: Duration = Duration::from_secs(1);
/// Pause before a majority asks again after a round with too few answers.
const UNREACHED_PAUSE: Duration = Duration::from_millis(200);
/// How long a round waits for the rest once it has a majority, besides the time that the majority
/// took. Half of the majority's remaining validity bounds the sum.
const STRAGGLERS_WAIT: Duration = Duration::from_millis(10);
/// Shortest time that a member of a majority has to answer.
const MIN_TIMEOUT: Duration = Duration::from_millis(50);

/// A lock of a group.
pub(crate) struct Member {
    pub(crate) engine: EngineHandle,
    pub(crate) request: AcquireRequest,
}

/// A hold on one of the locks of a group.
pub(crate) struct HeldMember {
    /// The index of the member.
    index: usize,
    pub(crate) hold: HoldGuard,
    engine: EngineHandle,
}

impl HeldMember {
    /// The runtime of the client's tasks.
    pub(crate) fn runtime(&self) -> &Handle {
        self.engine.runtime()
    }
}

/// The members of a group, and how many of them it needs.
pub(crate) struct Group<'a> {
    pub(crate) members: &'a [Member],
    pub(crate) need: usize,
}

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
        self.refusals > group.spare()
    }

    /// The error of the group, if more members failed than it can do without, or the grants ended
    /// too early. A lasting error goes first.
    fn error(&self, group: &Group<'_>) -> Option<Error> {
        if self.failures.len() > group.spare() {
            let lasting = |error: &&Error| !matches!(error, Error::Unavailable { .. });
            let reported = self.failures.iter().find(lasting).or(self.failures.first());
            return reported.cloned();
        }
        let slow = "the locks were taken too slowly for their lease, or lost meanwhile";
        self.is_too_slow.then(|| Error::unavailable(slow))
    }
}

impl Group<'_> {
    fn is_majority(&self) -> bool {
        self.spare() > 0
    }

    /// How many members the group can do without.
    fn spare(&self) -> usize {
        self.members.len() - self.need
    }

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
            let is_refused = awaited.is_some() && first.is_none() && !self.is_majority();
            if is_refused && deadline.is_over() {
                return Ok(None);
            }
            let keeping_rounds = if self.is_majority() { 0 } else { rounds };
            let missed = match self.round(first, deadline, keeping_rounds).await {
                Ok(taken) => return Ok(Some(taken)),
                Err(missed) => missed,
            };
            let error = missed.error(self);
            let is_last = matches!(deadline, Deadline::Once) || deadline.is_over();
            let alone = missed.unreached.filter(|_| !self.is_majority());
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
                    let waits_on = awaited.is_some() && !self.is_majority();
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
                None => pause(deadline, UNREACHED_PAUSE).await,
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
            let most = Duration::from_millis(5 << rounds.min(5));
            pause(deadline, most.mul_f64(fastrand::f64())).await;
        }
        let index = self.first_side(index);
        let Member { engine, request } = &self.members[index];
        let deadline = match self.is_majority() {
            true => Deadline::Until(deadline.earlier(Instant::now() + MAJORITY_WAIT)),
            false => deadline,
        };
        match engine.acquire(request, deadline).await {
            Ok(hold) => Ok(hold.map(|hold| self.part(index, hold))),
            // The next round counts the failure.
            Err(_) if self.is_majority() => Ok(None),
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
                let longest = match self.is_majority() {
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
        let engine = self.members[index].engine.clone();
        HeldMember {
            index,
            hold,
            engine,
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
        if valid_until(&taken, self.need).is_some_and(|until| Instant::now() < until) {
            return Ok(taken);
        }
        missed.is_too_slow = taken.len() >= self.need;
        give_back(taken, deadline).await;
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
        give_back(beyond, until).await;
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

    /// Makes all attempts at once. Once there is a majority, the rest has little time left.
    async fn try_all(
        &self,
        first: Option<HeldMember>,
        deadline: Deadline,
        missed: &mut Missed,
    ) -> Vec<HeldMember> {
        let skipped = first.as_ref().map(|part| part.index);
        let mut taken = Vec::from_iter(first);
        let began = Instant::now();
        let mut attempts = self.attempts(skipped, deadline);
        let mut until = None;
        loop {
            let next = async {
                match until {
                    Some(until) => timeout_at(until, attempts.next()).await.ok().flatten(),
                    None => attempts.next().await,
                }
            };
            let Some((index, outcome)) = next.await else {
                // Attempts under way continue in the background, and give back what they are
                // granted.
                return taken;
            };
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
            if self.is_majority()
                && until.is_none()
                && let Some(valid_until) = valid_until(&taken, self.need)
            {
                let left = valid_until.saturating_duration_since(Instant::now());
                let longest = STRAGGLERS_WAIT + began.elapsed();
                until = Some(Instant::now() + longest.min(left / 2));
            }
        }
    }

    fn attempts(
        &self,
        skipped: Option<usize>,
        deadline: Deadline,
    ) -> FuturesUnordered<impl Future<Output = (usize, Result<AttemptOutcome, Error>)>> {
        let rest = || {
            let members = self.members.iter().enumerate();
            members.filter(|(index, _)| Some(*index) != skipped)
        };
        let send_permits =
            send_permits(rest().map(|(_, member)| (&member.engine, &*member.request.spec.name)));
        let is_majority = self.is_majority();
        let attempts = rest()
            .zip(send_permits)
            .map(move |((index, member), permit)| {
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
                    let attempt = engine.try_until(request, None, until, None, permit);
                    (index, attempt.await)
                }
            });
        attempts.collect()
    }
}

/// How long a group keeps its acquired members, given its shortest lease and its rounds so far.
fn longest_kept(lease: Duration, rounds: u32) -> Duration {
    let part = lease / KEPT_PART * rounds.min(MOST_KEPT_PARTS);
    part.min(KEPT_FOR)
}

/// Sleeps for `time`, but not beyond the deadline.
async fn pause(deadline: Deadline, time: Duration) {
    let until = deadline.earlier(Instant::now() + time);
    tokio::time::sleep_until(until).await;
}

/// How long one server of a majority may take to answer: short beside the lease, because the leases
/// of acquired members run meanwhile.
fn majority_wait(engine: &Engine, lease: &Lease) -> Duration {
    (lease.duration / 50)
        .max(MIN_TIMEOUT)
        .min(engine.config.command_wait)
}

/// The end of the time in which `need` of the holds are valid; `None` if fewer are valid now.
pub(crate) fn valid_until(parts: &[HeldMember], need: usize) -> Option<Instant> {
    let now = Instant::now();
    let live = parts
        .iter()
        .filter(|part| part.hold.tenure().lost_reason(now).is_none());
    let mut until: Vec<_> = live.map(|part| part.hold.valid_until()).collect();
    until.sort_unstable_by(|a, b| b.cmp(a));
    until.get(need - 1).copied()
}

/// Releases members of a group that is not acquired. At the deadline, the releases continue in the
/// background.
async fn give_back(parts: Vec<HeldMember>, deadline: Deadline) {
    let released = release_all(parts, OnFailure::Log);
    match deadline {
        Deadline::Until(deadline) => drop(timeout_at(deadline + GRACE, released).await),
        Deadline::Once | Deadline::Never => drop(released.await),
    }
}

/// Releases every hold, also after a failure, and returns the result of each.
pub(crate) async fn release_all(
    parts: Vec<HeldMember>,
    on_failure: OnFailure,
) -> Vec<Result<Released, Error>> {
    let names: Vec<_> = parts
        .iter()
        .map(|part| part.hold.tenure().name().clone())
        .collect();
    let send_permits = send_permits(
        parts
            .iter()
            .zip(&names)
            .map(|(part, name)| (&part.engine, &**name)),
    );
    let releases = parts.into_iter().zip(send_permits).map(|(part, permit)| {
        let HeldMember { hold, engine, .. } = part;
        (engine, hold.release_from(permit, on_failure))
    });
    // A blocking caller uses the timers of one client's runtime, which ends with the last of these.
    let (_engines, releases): (Vec<_>, Vec<_>) = releases.unzip();
    join_all(releases).await
}

/// Permits for operations on several locks: operations of one client share a batch. A second
/// operation on one name gets none, because it has to wait for the first.
pub(crate) fn send_permits<'a>(
    locks: impl Iterator<Item = (&'a EngineHandle, &'a str)>,
) -> Vec<Option<SendPermit>> {
    let locks: Vec<_> = locks.collect();
    let mut send_permits: Vec<Option<SendPermit>> = locks.iter().map(|_| None).collect();
    let mut seen = crate::hash::HashSet::default();
    let mut by_client: crate::hash::HashMap<_, Vec<usize>> = Default::default();
    for (index, (engine, name)) in locks.iter().enumerate() {
        if seen.insert((engine.id, *name)) {
            by_client.entry(engine.id).or_default().push(index);
        }
    }
    for indices in by_client.values().filter(|indices| indices.len() > 1) {
        let engine = locks[indices[0]].0;
        for (index, permit) in indices
            .iter()
            .zip(engine.batcher.send_permits(indices.len()))
        {
            send_permits[*index] = Some(permit);
        }
    }
    send_permits
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
        assert_eq!(kept(30_000, 1), KEPT_FOR);
    }
}
