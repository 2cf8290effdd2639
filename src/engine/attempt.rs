//! One attempt to acquire a lock: it is repeated until there is an answer, also when its caller has been dropped.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

use super::{
    BoxFuture, CallError, Engine, PASSING_PAUSE,
    detach::{Caller, DetachOnDrop},
    holds::{Grant, LocalRef, OwnerEntryRef, Tenure},
    refused,
    release::Held,
    request::AcquireRequest,
};
use crate::{
    error::{Error, LostReason},
    owner::OwnerId,
    redis::SendPermit,
    wire::{AcquireArgs, AcquireOutcome, HoldMode, LockSpec, Refusal, Wait, script::Acknowledged},
};

/// How one try went.
pub(super) enum AttemptOutcome {
    Granted(Held),
    Busy {
        remaining: Option<Duration>,
    },
    /// No answer in the time that there was.
    Unanswered {
        reason: String,
    },
}

/// One of the tries of a wait, as the script of a fair lock is sent it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// When the one before it was made, on the same connection.
    pub(super) last: Option<Instant>,
    pub(super) nudge: bool,
}

impl Attempt {
    fn as_sent(self, sent: Instant) -> Wait {
        Wait {
            since_last: self.last.map_or(Duration::ZERO, |last| {
                (sent - last).max(Duration::from_millis(1))
            }),
            nudge: self.nudge,
        }
    }
}

impl Engine {
    /// One attempt, which is sent at once if it has a `permit` in the batch.
    ///
    /// No `async fn`: its future would store the arguments twice, and every waiting task has such a future.
    pub(super) fn try_until(
        self: &Arc<Self>,
        request: &AcquireRequest,
        until: Instant,
        wait: Option<Attempt>,
        permit: Option<SendPermit>,
    ) -> impl Future<Output = Result<AttemptOutcome, Error>> + use<'_> {
        let caller = Caller::default();
        let attempt = attempt(self.clone(), request.clone(), wait, permit, caller.clone());
        let attempt = DetachOnDrop::new(self, caller.clone(), attempt);
        timeout_at(until, attempt).map(move |tried| match tried {
            Ok(tried) => tried,
            Err(_) if self.is_closed() => Err(Error::Closed),
            Err(_) => Ok(AttemptOutcome::Unanswered {
                reason: caller.reason().unwrap_or_else(|| NO_ANSWER.into()),
            }),
        })
    }

    /// Whether too few replicas have acknowledged, and the settings ask for them.
    pub(super) fn is_short(&self, acknowledged: Option<Acknowledged>) -> bool {
        let short = acknowledged.is_some_and(|acknowledged| !acknowledged.is_enough());
        short && self.config.check_replicas
    }

    /// Takes a grant into the books, unless it cannot be relied upon any more.
    fn note_grant(
        self: &Arc<Self>,
        slot: &OwnerEntryRef,
        local: Option<&LocalRef>,
        request: &AcquireRequest,
        tenure: Option<Arc<Tenure>>,
        sent: Instant,
        token: Option<i64>,
    ) -> Option<Held> {
        let readers = || self.slots.readers(&request.spec.name);
        let readers = self.shares(request).then(readers);
        let grant = Grant {
            spec: &request.spec,
            owner: request.owner,
            local,
            readers: readers.as_ref(),
            row_ends: Instant::now() + self.config.local_hand_off,
            sent,
            lease: &request.lease,
            watched: request.watched,
            durability: request.durability,
            token,
        };
        let (tenure, id) = match self.slots.grant(slot, tenure, grant) {
            Ok((tenure, id, old)) => {
                if let Some(old) = old.filter(|old| old.live_count() > 0) {
                    self.lose(&old, LostReason::Gone);
                }
                (tenure, id)
            }
            Err(in_the_way) => {
                // One of the two is not true any more.
                self.verify(Vec::from_iter(in_the_way));
                return None;
            }
        };
        let kind = request.spec.protocol.kind();
        let seen = tenure.seen();
        seen.begin(|| self.gauges.holds(kind, tenure.since));
        self.wakeups.asked(&request.spec, true);
        self.watch(&tenure);
        Some(Held::new(self.clone(), tenure, id))
    }

    /// Completes once there is a connection, or when `caller` (if there is one) has given up or the client has closed.
    async fn reachable(&self, spec: &LockSpec, caller: Option<&Caller>) {
        let given_up = async {
            match caller {
                Some(caller) => tokio::select! {
                    () = caller.gone() => {}
                    () = self.closed.cancelled() => {}
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.batcher.ready(spec) => {}
            () = given_up => {}
        }
    }

    /// Refuses a hold that the owner may not have besides those that it has: the server need not be asked.
    fn may_add(
        self: &Arc<Self>,
        slot: &OwnerEntryRef,
        request: &AcquireRequest,
        tenure: Option<&Tenure>,
    ) -> Result<(), Error> {
        let Some(tenure) = tenure else {
            return self.may_wait(&request.spec, slot.key().1);
        };
        let name = tenure.name().clone();
        match request.spec.protocol.most_holds() {
            1 => Err(Error::AlreadyHeld { name }),
            most if tenure.count_of(request.owner) >= most => {
                Err(Error::TooManyHolds { name, most })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a writer that has a read hold, which it counts on: it would wait for itself (P-RW3).
    pub(super) fn may_wait(self: &Arc<Self>, spec: &LockSpec, owner: OwnerId) -> Result<(), Error> {
        let reading = || self.live_tenure(spec, HoldMode::Read, owner);
        let waits_for_itself = spec.count == HoldMode::Write
            && reading().is_some_and(|reading| reading.live_count_of(owner.owner()) > 0);
        match waits_for_itself {
            true => Err(Error::WouldDeadlock {
                name: spec.name.clone(),
            }),
            false => Ok(()),
        }
    }

    /// What the owner holds now; what the clock has ended is ended here as well.
    fn live_tenure(
        self: &Arc<Self>,
        spec: &LockSpec,
        count: HoldMode,
        owner: OwnerId,
    ) -> Option<Arc<Tenure>> {
        self.live(self.slots.tenure(spec, count, owner)?)
    }

    fn live(self: &Arc<Self>, tenure: Arc<Tenure>) -> Option<Arc<Tenure>> {
        let Some(reason) = tenure.lost(Instant::now()) else {
            return Some(tenure);
        };
        self.lose(&tenure, reason);
        None
    }

    /// Decides how an owner asks for the lock at this moment.
    fn standing(
        self: &Arc<Self>,
        local: Option<&LocalRef>,
        slot: &OwnerEntryRef,
        request: &AcquireRequest,
    ) -> Standing {
        let owner = OwnerId::new(self.id, request.owner);
        let Some(local) = local else {
            return self.standing_of_reader(slot, request);
        };
        let row = local.row();
        let live = row.and_then(|(holder, tenure)| Some((holder, self.live(tenure)?)));
        let Some((holder, tenure)) = live else {
            return match slot.key().1 == owner {
                true => Standing::Asks,
                false => Standing::Elsewhere(self.slot(&request.spec, request.owner)),
            };
        };
        let is_lent = tenure.slot().key().1 == owner;
        if holder == request.owner {
            return match tenure.slot().key() == slot.key() {
                true => Standing::Adds(tenure),
                false => Standing::Elsewhere(tenure.slot().clone()),
            };
        }
        // What has a queue on the server takes its place there, but not by a name that another task uses.
        if request.spec.has_one_holder() || is_lent {
            return Standing::Behind(tenure);
        }
        Standing::Asks
    }

    /// The same, of a reader.
    fn standing_of_reader(
        self: &Arc<Self>,
        slot: &OwnerEntryRef,
        request: &AcquireRequest,
    ) -> Standing {
        let own = self.slot(&request.spec, request.owner);
        let live = |tenure: Option<_>| tenure.and_then(|tenure| self.live(tenure));
        let tenure = match live(own.reading()) {
            Some(tenure) => Some(tenure),
            // The server counts more for those that read under its field.
            None => live(own.sent()),
        };
        match tenure {
            Some(tenure) if tenure.slot().key() == slot.key() => Standing::Adds(tenure),
            Some(tenure) => Standing::Elsewhere(tenure.slot().clone()),
            None if own.key() == slot.key() => Standing::Asks,
            None => Standing::Elsewhere(own),
        }
    }
}

/// How an owner asks for a hold.
enum Standing {
    /// For its first hold.
    Asks,
    /// For one more hold of its tenure.
    Adds(Arc<Tenure>),
    /// By another entry: the tenure stands on the server under another owner's field.
    Elsewhere(OwnerEntryRef),
    /// Not at all: another owner of this client holds the lock.
    Behind(Arc<Tenure>),
}

fn too_few(spec: &LockSpec, acknowledged: Option<Acknowledged>) -> Error {
    Error::Replication {
        name: spec.name.clone(),
        acknowledged: acknowledged.map_or(0, |acknowledged| acknowledged.by),
        wanted: acknowledged.map_or(0, |acknowledged| acknowledged.wanted),
    }
}

/// The release publishes, and would be refused.
fn no_right(spec: &LockSpec) -> Error {
    let channel = String::from_utf8_lossy(&spec.channel);
    Error::Redis {
        message: format!(
            "NOPERM this user may not publish to {channel:?}, and so could not release the lock: docs/operations.md \
             lists the rights that it needs"
        ),
    }
}

const NO_ANSWER: &str =
    "the server did not answer; what it may have granted is given back when it can be reached";

const OUTDATED: &str = "the lock was granted, and the grant was over when the answer arrived: the lease is too short for the time an answer takes";

/// Asks the server for the next hold of an owner, as often as it takes to get an answer. A dropped attempt is carried on
/// ([`DetachOnDrop`]); a hold that its caller no longer takes is given back.
fn attempt(
    engine: Arc<Engine>,
    request: AcquireRequest,
    wait: Option<Attempt>,
    permit: Option<SendPermit>,
    caller: Caller,
) -> impl Future<Output = Result<AttemptOutcome, Error>> + Send {
    let slot = engine.slot(&request.spec, request.owner);
    let local = engine.slots.local(&request.spec);
    attempt_as(engine, slot, local, request, wait, permit, caller)
}

/// The same, by another owner entry.
fn attempt_elsewhere(
    engine: Arc<Engine>,
    slot: OwnerEntryRef,
    local: Option<LocalRef>,
    request: AcquireRequest,
    wait: Option<Attempt>,
    permit: Option<SendPermit>,
    caller: Caller,
) -> BoxFuture<Result<AttemptOutcome, Error>> {
    Box::pin(attempt_as(
        engine, slot, local, request, wait, permit, caller,
    ))
}

#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async fn has its arguments twice, and thousands may be on their way"
)]
fn attempt_as(
    engine: Arc<Engine>,
    slot: OwnerEntryRef,
    local: Option<LocalRef>,
    request: AcquireRequest,
    mut wait: Option<Attempt>,
    mut permit: Option<SendPermit>,
    caller: Caller,
) -> impl Future<Output = Result<AttemptOutcome, Error>> + Send {
    async move {
        if engine.is_closed() {
            return Err(Error::Closed);
        }
        let op_lock = slot.take_op_lock().await;
        engine.release_all_dropped(&request.spec, &slot).await;
        // An earlier sending was not answered, and may have been granted.
        let mut doubt = false;
        let done = loop {
            if !engine.batcher.is_ready(&request.spec) {
                // Nothing has been sent that would have to be taken back.
                let caller = (!doubt).then_some(&caller);
                Box::pin(engine.reachable(&request.spec, caller)).await;
            }
            if let Some(asking) = engine.batcher.may_announce(&request.spec)
                && !asking.await
            {
                break Err(no_right(&request.spec));
            }
            if engine.is_closed() {
                break Err(Error::Closed);
            }
            if caller.is_gone() {
                break Ok(AttemptOutcome::Unanswered {
                    reason: NO_ANSWER.into(),
                });
            }
            let tenure = match engine.standing(local.as_ref(), &slot, &request) {
                Standing::Asks => None,
                Standing::Adds(tenure) => Some(tenure),
                Standing::Behind(other) => {
                    if let Err(error) =
                        engine.may_wait(&request.spec, OwnerId::new(engine.id, request.owner))
                    {
                        break Err(error);
                    }
                    let left = other
                        .valid_until()
                        .saturating_duration_since(Instant::now());
                    break Ok(AttemptOutcome::Busy {
                        remaining: Some(left),
                    });
                }
                Standing::Elsewhere(other) => {
                    if doubt {
                        Box::pin(engine.give_back(&request.spec, &slot)).await;
                    }
                    drop(op_lock);
                    let elsewhere =
                        attempt_elsewhere(engine, other, local, request, wait, permit, caller);
                    return elsewhere.await;
                }
            };
            if let Err(error) = engine.may_add(&slot, &request, tenure.as_deref()) {
                break Err(error);
            }
            if wait.is_some() {
                slot.has_place.store(true, Ordering::Relaxed);
            }
            let holds = tenure.as_ref().map_or(0, |tenure| tenure.on_server()) + 1;
            let sent = Instant::now();
            let message = {
                let owner = OwnerId::new(engine.id, request.owner);
                let claim = AcquireArgs {
                    owner: &slot.owner,
                    lease: &request.lease,
                    holds,
                    fresh: !doubt,
                    writes: request.spec.count == HoldMode::Read
                        && engine
                            .live_tenure(&request.spec, HoldMode::Write, owner)
                            .is_some(),
                    wait: wait.map(|wait| wait.as_sent(sent)),
                };
                request.spec.protocol.acquire(&request.spec, &claim)
            };
            let permit = permit.take();
            let answer = engine
                .batcher
                .run_from(permit, message, request.durability)
                .await;
            let acknowledged = answer.as_ref().ok().and_then(|reply| reply.acknowledged);
            let refusal = match answer {
                Ok(reply) => match request.spec.protocol.attempt(reply) {
                    Ok(AcquireOutcome::Granted { .. }) if engine.is_short(acknowledged) => {
                        Box::pin(engine.give_back(&request.spec, &slot)).await;
                        return Err(too_few(&request.spec, acknowledged));
                    }
                    // A closed client renews no hold.
                    Ok(AcquireOutcome::Granted { .. }) if engine.is_closed() => {
                        Box::pin(engine.give_back(&request.spec, &slot)).await;
                        return Err(Error::Closed);
                    }
                    Ok(AcquireOutcome::Granted { token }) => {
                        if let Some(mut held) =
                            engine.note_grant(&slot, local.as_ref(), &request, tenure, sent, token)
                        {
                            held.acknowledged = acknowledged.map(|acknowledged| acknowledged.by);
                            // The grant has ended it. The next try in this slot begins after this turn.
                            slot.has_place.store(false, Ordering::Relaxed);
                            if !caller.is_gone() {
                                return Ok(AttemptOutcome::Granted(held));
                            }
                            // Released in this turn: the owner's next operation would count it as a hold.
                            drop(held);
                            engine.release_all_dropped(&request.spec, &slot).await;
                            return Ok(AttemptOutcome::Unanswered {
                                reason: NO_ANSWER.into(),
                            });
                        }
                        caller.tell(OUTDATED);
                        Box::pin(engine.give_back(&request.spec, &slot)).await;
                        // It had its turn: as one that had never waited, it goes behind the waiters that are told now.
                        wait = wait.map(|wait| Attempt { last: None, ..wait });
                        continue;
                    }
                    Ok(AcquireOutcome::Busy { remaining }) => {
                        engine.wakeups.asked(&request.spec, false);
                        if let Some(local) = &local {
                            local.refused(sent.elapsed());
                        }
                        return Ok(AttemptOutcome::Busy { remaining });
                    }
                    Ok(AcquireOutcome::Gone) => {
                        if let Some(tenure) = tenure {
                            engine.lose(&tenure, LostReason::Gone);
                        }
                        continue;
                    }
                    Err(refusal) => refusal,
                },
                Err(CallError::Unanswered { reason }) => {
                    caller.tell(&reason);
                    doubt = true;
                    wait = wait.map(|wait| Attempt { last: None, ..wait });
                    continue;
                }
                Err(CallError::Refused(refusal)) => refusal,
                Err(CallError::Closed) => return Err(Error::Closed),
            };
            let Refusal::Transient { message } = refusal else {
                break Err(refused(&request.spec, refusal));
            };
            caller.tell(&message);
            tokio::time::sleep(PASSING_PAUSE).await;
        };
        if doubt {
            Box::pin(engine.give_back(&request.spec, &slot)).await;
        }
        done
    }
}
