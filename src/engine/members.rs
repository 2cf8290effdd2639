//! The members of a group, its holds, and the one rule by which a group waits for its members.
//!
//! A group that can do without some members waits for a majority of answers, and then for a short grace. The rest goes on in
//! the background: a dead server is the fault that such a group exists for. A group that needs all its members waits for all.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::{
    runtime::Handle,
    task::unconstrained,
    time::{Instant, timeout_at},
};

use super::{
    Engine, EngineHandle,
    hold_guard::{HoldGuard, OnFailure},
    loss::{GroupHold, MemberId},
    request::AcquireRequest,
    time_limits::{SHORTEST_MEMBER_WAIT, STRAGGLERS_WAIT},
};
use crate::{
    durability::Durability,
    error::Error,
    hash::HashSet,
    owner::OwnerId,
    redis::{self, Clients},
    wire::{Lease, LockSpec, Released},
};

/// How many members a group has, and how many it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota {
    pub(crate) members: usize,
    pub(crate) need: usize,
}

impl Quota {
    /// How many members the group can do without.
    pub(crate) fn spare(self) -> usize {
        self.members - self.need
    }

    pub(crate) fn is_majority(self) -> bool {
        self.spare() > 0
    }
}

/// A lock of a group.
pub(crate) struct Member {
    pub(crate) engine: EngineHandle,
    pub(crate) request: AcquireRequest,
}

/// The members of a group, and how many of them it needs.
pub(crate) struct Group<'a> {
    pub(crate) members: &'a [Member],
    pub(crate) quota: Quota,
}

/// The number of the next hold of a group.
static HOLDS: AtomicU64 = AtomicU64::new(0);

/// Makes the holds of `parts` know their group.
pub(crate) fn join_group(parts: &[HeldMember], group: &Group<'_>) {
    let tenures = parts.iter().map(|part| part.hold.tenure());
    let group = Arc::new(GroupHold {
        number: HOLDS.fetch_add(1, Ordering::Relaxed),
        members: group.member_ids(),
        tenures: tenures.map(Arc::downgrade).collect(),
        need: group.quota.need,
        answer_wait: longest_answer_wait(parts, group.quota),
    });
    for HeldMember { hold, .. } in parts {
        hold.tenure().join_group(hold.id(), group.clone());
    }
}

impl Group<'_> {
    /// The members in an order that does not depend on the caller's.
    fn member_ids(&self) -> Vec<MemberId> {
        let members = self.members.iter();
        let mut ids: Vec<_> = members
            .map(|Member { engine, request }| {
                (engine.id, request.spec.key.clone(), request.spec.mode)
            })
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The latest hold of the group that its owner has leaked. Two majorities of one owner may have different members.
    pub(crate) fn latest_leaked(&self) -> Option<Arc<GroupHold>> {
        let ids = self.member_ids();
        let is_ours = |group: &GroupHold| group.members == ids && group.need == self.quota.need;
        let leaked = self.members.iter().filter_map(|member| {
            let Member { engine, request } = member;
            let owner = OwnerId::new(engine.id, request.owner);
            let spec = &request.spec;
            let tenure = engine.owners.tenure(spec, spec.mode, owner)?;
            tenure.hold_set().leaked_group(request.owner, is_ours)
        });
        leaked.max_by_key(|group| group.number)
    }
}

/// The longest time that a member has to answer; `None` if the group cannot do without one.
pub(crate) fn longest_answer_wait(parts: &[HeldMember], quota: Quota) -> Option<Duration> {
    let longest = parts.iter().map(|part| part.answer_wait).max();
    longest.filter(|_| quota.is_majority())
}

/// A hold on one of the locks of a group.
pub(crate) struct HeldMember {
    /// The index of the member.
    pub(super) index: usize,
    pub(crate) hold: HoldGuard,
    pub(super) engine: EngineHandle,
    /// How long its server has to answer, if a majority suffices.
    pub(super) answer_wait: Duration,
}

impl HeldMember {
    pub(crate) fn client(&self) -> &EngineHandle {
        &self.engine
    }

    /// The runtime of the client's tasks.
    pub(crate) fn runtime(&self) -> &Handle {
        self.engine.runtime()
    }

    /// The error of an operation that its server has not answered.
    pub(crate) fn no_answer(&self) -> Error {
        let spec = &self.hold.tenure().spec;
        self.engine.timeout_error(spec, Durability::Local)
    }
}

/// Records answers until they decide the operation, and then those that come within a short grace, for `most` in all. The remaining
/// futures are dropped: operations of members continue in the background. Operations of one client leave together.
///
/// `record` takes the answer of a member. Once the answers decide, it returns the longest grace.
pub(crate) async fn gather<'a, T>(
    clients: impl Iterator<Item = &'a EngineHandle>,
    mut answers: FuturesUnordered<impl Future<Output = (usize, T)>>,
    most: Option<Duration>,
    mut record: impl FnMut(usize, T) -> Option<Duration>,
) {
    let began = Instant::now();
    let mut until = most.map(|most| began + most);
    let mut is_decided = false;
    let shared = shared(clients);
    loop {
        let next = next_answers(&mut answers, &shared);
        let next = match until {
            Some(until) => timeout_at(until, next).await.unwrap_or_default(),
            None => next.await,
        };
        if next.is_empty() {
            return;
        }
        for (index, answer) in next {
            let longest = record(index, answer);
            if let Some(longest) = longest.filter(|_| !is_decided) {
                is_decided = true;
                let grace = Instant::now() + longest.min(STRAGGLERS_WAIT + began.elapsed());
                until = Some(until.map_or(grace, |until| until.min(grace)));
            }
        }
    }
}

/// The clients that several members have. The requests of clients of their own need not wait for each other.
fn shared<'a>(clients: impl Iterator<Item = &'a EngineHandle>) -> Clients {
    let mut seen = HashSet::default();
    let again = clients.filter(|client| !seen.insert(client.id));
    again
        .map(|client| redis::address(client.batcher.redis()))
        .collect()
}

/// The next answers, all that are there; none if no future is left. What the futures send to `shared` clients in one poll leaves
/// together.
async fn next_answers<T>(
    answers: &mut FuturesUnordered<impl Future<Output = T>>,
    shared: &Clients,
) -> Vec<T> {
    let polling = poll_fn(|context| {
        let ready = || match answers.poll_next_unpin(context) {
            Poll::Ready(answer) => answer,
            Poll::Pending => None,
        };
        let all_ready = || std::iter::from_fn(ready).collect();
        let next: Vec<T> = redis::send_together(shared, all_ready);
        match next.is_empty() && !answers.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(next),
        }
    });
    // The members of a large group would use up their task's budget, and the rest would leave later.
    unconstrained(polling).await
}

/// How long one server of a majority may take to answer: short beside the lease, because the leases of acquired members run
/// meanwhile.
pub(super) fn majority_wait(engine: &Engine, lease: &Lease) -> Duration {
    (lease.duration / 50)
        .max(SHORTEST_MEMBER_WAIT)
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

/// Releases every hold, also after a failure, and returns the result of each.
pub(crate) async fn release_all(
    parts: Vec<HeldMember>,
    quota: Quota,
    on_failure: OnFailure,
) -> Vec<Result<Released, Error>> {
    let member = |part: &HeldMember| (part.engine.clone(), part.hold.tenure().spec.clone());
    // A blocking caller uses the timers of one client's runtime, which ends with the last of these handles.
    let members: Vec<_> = parts.iter().map(member).collect();
    let releases = parts.into_iter().map(|part| part.hold.release(on_failure));
    let members = members.iter().map(|(engine, spec)| (engine, &**spec));
    results_of(releases, members, quota).await
}

/// The results of the releases of `members`, by the rule of [`gather`]. A release decides nothing until it ends the hold.
pub(crate) async fn results_of<'a>(
    releases: impl Iterator<Item = impl Future<Output = Result<Released, Error>>>,
    members: impl Iterator<Item = (&'a EngineHandle, &'a LockSpec)>,
    quota: Quota,
) -> Vec<Result<Released, Error>> {
    let numbered = |(index, release)| async move { (index, release.await) };
    let members: Vec<_> = members.collect();
    let releases: FuturesUnordered<_> = releases.enumerate().map(numbered).collect();
    let mut results: Vec<_> = (0..releases.len()).map(|_| None).collect();
    let mut held = releases.len();
    let is_decided = |held| quota.is_majority() && held <= quota.spare();
    // A round may have taken so few members that no answer is needed.
    let most = is_decided(held).then_some(STRAGGLERS_WAIT);
    let clients = members.iter().map(|(engine, _)| *engine);
    gather(clients, releases, most, |index, result| {
        held -= usize::from(has_no_hold(&result));
        results[index] = Some(result);
        is_decided(held).then_some(Duration::MAX)
    })
    .await;
    let late = |(engine, spec): (&EngineHandle, &LockSpec)| {
        let no_answer = engine.timeout_error(spec, Durability::Local);
        no_answer.with_note("the release goes on in the background")
    };
    let results = results.into_iter().zip(members);
    results
        .map(|(result, member)| result.unwrap_or_else(|| Err(late(member))))
        .collect()
}

/// Whether the owner has no such hold any more.
fn has_no_hold(release: &Result<Released, Error>) -> bool {
    matches!(
        release,
        Ok(_) | Err(Error::Lost { .. } | Error::NotHeld { .. })
    )
}

/// The result of a group from those of its releases.
///
/// Returns an error if fewer than `need` members were held before the release, or if more than `spare` members may still be held. A
/// loss is reported before any other error.
pub(crate) fn summed_up(
    releases: Vec<Result<Released, Error>>,
    quota: Quota,
) -> Result<Released, Error> {
    let (mut held_before, mut unreleased, mut left) = (0, 0, 0);
    let mut worst = None;
    for release in releases {
        held_before += usize::from(release.is_ok() || !has_no_hold(&release));
        unreleased += usize::from(!has_no_hold(&release));
        match release {
            Ok(Released::Fully) => {}
            Ok(Released::StillHeld { holds }) => left = left.max(holds),
            Err(lost @ Error::Lost { .. }) if !matches!(worst, Some(Error::Lost { .. })) => {
                worst = Some(lost);
            }
            Err(error) => worst = worst.or(Some(error)),
        }
    }
    match worst {
        Some(error) if held_before < quota.need || unreleased > quota.spare() => Err(error),
        _ if left > 0 => Ok(Released::StillHeld { holds: left }),
        _ => Ok(Released::Fully),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn answers_that_are_there_come_at_once_and_none_at_the_end() {
        for shared in [Clients::default(), Clients::from([0])] {
            let (send, late) = oneshot::channel();
            // More than a task's budget.
            let early = (0..300).map(|number| {
                let (send, answer) = oneshot::channel();
                send.send(number).unwrap();
                answer
            });
            let mut answers: FuturesUnordered<_> = early.chain([late]).collect();
            assert_eq!(next_answers(&mut answers, &shared).await.len(), 300);
            let none_yet = next_answers(&mut answers, &shared).now_or_never();
            assert_eq!(none_yet, None);
            send.send(300).unwrap();
            assert_eq!(next_answers(&mut answers, &shared).await, [Ok(300)]);
            assert_eq!(next_answers(&mut answers, &shared).await, []);
        }
    }
}
