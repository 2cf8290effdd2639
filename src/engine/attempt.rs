//! One attempt to acquire a lock.
//!
//! The request is repeated until the server answers it, which invariant 4 makes harmless. An
//! attempt outlives its caller (invariant 3): it goes on in the background until no request is in
//! doubt, and a hold that is granted then is released.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::time::Instant;

use super::{
    CallError, Engine,
    detach::{Caller, DetachOnDrop},
    grant::Grant,
    hold_guard::HoldGuard,
    owners::{LocalRef, OwnerEntryRef},
    request::AcquireRequest,
    retry::Retry,
    standing::Standing,
    tenure::Tenure,
    time_limits::SERVER_CLOCK_STEP,
};
use crate::{
    durability::Acknowledged,
    error::{Error, LostReason, NO_ANSWER, NO_CONNECTION},
    owner::OwnerId,
    server_text,
    wire::{AcquireArgs, AcquireOutcome, LockSpec, Request, Wait},
};

pub(super) const OUTDATED: &str = "it was granted, and the grant was over when the answer arrived: the lease is too short for the time an answer takes";

/// The outcome of an attempt.
pub(super) enum AttemptOutcome {
    Granted(HoldGuard),
    Busy {
        remaining: Option<Duration>,
    },
    /// The server did not answer in time.
    Unanswered {
        reason: String,
    },
}

/// The previous attempt, for the script of a fair lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct PriorAttempt {
    /// The time of the previous attempt, if it was made on the same connection.
    pub(super) last: Option<Instant>,
    pub(super) notify_head: bool,
}

impl PriorAttempt {
    fn to_wait(self, sent: Instant) -> Wait {
        Wait {
            since_last: self
                .last
                .map_or(Duration::ZERO, |last| (sent - last).max(SERVER_CLOCK_STEP)),
            notify_head: self.notify_head,
        }
    }
}

/// An attempt of one owner at its next hold.
struct Attempt {
    engine: Arc<Engine>,
    request: AcquireRequest,
    local: Option<LocalRef>,
    prior: Option<PriorAttempt>,
    caller: Caller,
}

/// How an attempt under one owner entry ends.
enum Ended {
    /// The owner's tenure uses the field of this entry: the attempt continues there.
    UnderOtherEntry(OwnerEntryRef),
    Done(AttemptOutcome),
}

impl Attempt {
    /// Sends the request until it is answered. If the caller has been dropped ([`DetachOnDrop`]), a
    /// granted hold is released.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn has its arguments twice, and thousands may be on their way"
    )]
    fn run(mut self) -> impl Future<Output = Result<AttemptOutcome, Error>> + Send {
        async move {
            let engine = self.engine.clone();
            let entry = engine.owner_entry(&self.request.spec, self.request.owner);
            let entry = match entry.is_lent() {
                true => entry,
                false => match self.run_under(&entry).await? {
                    Ended::Done(outcome) => return Ok(outcome),
                    Ended::UnderOtherEntry(other) => other,
                },
            };
            self.caller.set_has_task();
            engine.run_as_task(Box::pin(self.run_from(entry))).await
        }
    }

    /// Continues [`run`](Self::run) under `entry`, whose field is lent.
    async fn run_from(mut self, mut entry: OwnerEntryRef) -> Result<AttemptOutcome, Error> {
        loop {
            match self.run_under(&entry).await? {
                Ended::Done(outcome) => return Ok(outcome),
                Ended::UnderOtherEntry(other) => entry = other,
            }
        }
    }

    /// Runs the attempt under one owner entry. The owner's other operations wait meanwhile.
    async fn run_under(&mut self, entry: &OwnerEntryRef) -> Result<Ended, Error> {
        if self.engine.refuses() {
            return Err(self.engine.closed_error());
        }
        // Checked before the operation lock, which the other owner needs: this future may wait for
        // a connection with it, and not be polled.
        if let Some(other) = self.borrower(entry) {
            return self.busy_behind(&other);
        }
        let _op_lock = entry.take_op_lock().await;
        let spec = &self.request.spec;
        self.engine.release_all_dropped(spec, entry).await;
        let mut retry = Retry::default();
        let ended = loop {
            if let Some(ended) = self.step(entry, &mut retry).await.transpose() {
                break ended;
            }
        };
        if retry.is_in_doubt() {
            self.give_back(entry).await;
        }
        ended
    }

    /// Sends the request once. Returns `None` if it is to be sent again.
    async fn step(
        &mut self,
        entry: &OwnerEntryRef,
        retry: &mut Retry,
    ) -> Result<Option<Ended>, Error> {
        if !self.can_be_sent(retry.is_in_doubt()).await? {
            return Ok(Some(unanswered()));
        }
        let (engine, request) = (&self.engine, &self.request);
        let tenure = match engine.standing(self.local.as_ref(), entry, request) {
            Standing::FirstHold => None,
            Standing::Reentry(tenure) => Some(tenure),
            Standing::UnderOtherEntry(other) => return Ok(Some(Ended::UnderOtherEntry(other))),
            Standing::HeldByOther(other) => return self.busy_behind(&other).map(Some),
        };
        engine.may_add(entry, request, tenure.as_deref())?;
        if self.prior.is_some() {
            entry.may_be_queued.store(true, Ordering::Relaxed);
        }
        let reconnections = engine.wakeups.reconnections();
        let sent = Instant::now();
        let acquire = self.build_request(entry, tenure.as_deref(), sent);
        let answer = engine.batcher.run(acquire, request.durability).await;
        let acknowledged = answer
            .as_ref()
            .ok()
            .and_then(|answer| answer.acknowledged.clone());
        let outcome = answer.and_then(|answer| {
            let outcome = request.spec.protocol.attempt(answer.reply);
            outcome.map_err(CallError::Refused)
        });
        match outcome {
            Ok(AcquireOutcome::Granted { token }) => {
                retry.settle();
                let handled = self.handle_grant(entry, tenure, sent, token, acknowledged);
                let ended = handled.await?;
                // A reconnection has verified the tenures of that moment, and this one was not
                // among them.
                let engine = &self.engine;
                if let Some(Ended::Done(AttemptOutcome::Granted(hold))) = &ended {
                    engine.verify_since(reconnections, hold.tenure());
                }
                Ok(ended)
            }
            Ok(AcquireOutcome::Busy { remaining }) => {
                retry.settle();
                engine.wakeups.record_refusal(&request.spec);
                if let Some(local) = &self.local {
                    local.record_refusal(sent.elapsed());
                }
                Ok(Some(Ended::Done(AttemptOutcome::Busy { remaining })))
            }
            Ok(AcquireOutcome::Gone) => {
                if let Some(tenure) = tenure {
                    engine.lose(&tenure, LostReason::Gone);
                    engine.give_back_rest(&tenure, tenure.most_on_server());
                }
                Ok(None)
            }
            Err(error) => {
                let again = retry.again(&self.request.spec.name, error)?;
                self.caller.set_reason(again.reason());
                if retry.is_in_doubt() {
                    self.forget_last();
                }
                again.pause().await;
                Ok(None)
            }
        }
    }

    /// Waits for a connection. Returns `false` if the caller has gone.
    async fn can_be_sent(&self, in_doubt: bool) -> Result<bool, Error> {
        let (engine, spec) = (&self.engine, &self.request.spec);
        let durability = self.request.durability;
        if !engine.batcher.is_ready_for(spec, durability) {
            // A hold in doubt has to be given back, so without a caller the wait goes on.
            let may_give_up = !in_doubt;
            let set_reason = |reason| {
                if may_give_up {
                    self.caller.set_reason(reason);
                }
            };
            set_reason(NO_CONNECTION);
            let connected = async {
                tokio::select! {
                    () = engine.batcher.ready(spec, durability) => {}
                    () = self.caller.gone(), if may_give_up => {}
                    () = engine.refusing.cancelled(), if may_give_up => {}
                }
            };
            Box::pin(connected).await;
            set_reason(NO_ANSWER);
        }
        if spec.protocol.needs_messages()
            && let Some(asking) = engine.batcher.refused_message(spec)
            && let Some(words) = asking.await
        {
            return Err(no_messages(&spec.channel, &words));
        }
        if engine.refuses() {
            return Err(engine.closed_error());
        }
        Ok(!self.caller.is_gone())
    }

    /// The tenure of another owner under the field of `entry`.
    fn borrower(&self, entry: &OwnerEntryRef) -> Option<Arc<Tenure>> {
        let (holder, tenure) = self.local.as_ref()?.current()?;
        let is_lent = holder != self.request.owner && tenure.entry().key() == entry.key();
        (is_lent && tenure.lost_reason(Instant::now()).is_none()).then_some(tenure)
    }

    /// Returns a refusal without a request: another owner of this client has the lock.
    fn busy_behind(&self, other: &Tenure) -> Result<Ended, Error> {
        let owner = OwnerId::new(self.engine.id, self.request.owner);
        self.engine.may_wait(&self.request.spec, owner)?;
        let left = other
            .valid_until()
            .saturating_duration_since(Instant::now());
        Ok(Ended::Done(AttemptOutcome::Busy {
            remaining: Some(left),
        }))
    }

    fn build_request(
        &self,
        entry: &OwnerEntryRef,
        tenure: Option<&Tenure>,
        sent: Instant,
    ) -> Request {
        let (engine, request) = (&self.engine, &self.request);
        let owner = OwnerId::new(engine.id, request.owner);
        let mode = request.spec.mode;
        let exclusive = mode.beside().filter(|_| mode.is_shared());
        let writes = exclusive.and_then(|mode| engine.live_tenure(&request.spec, mode, owner));
        if let Some(writing) = &writes {
            // One key has both holds, and lives by the longer lease. Marked before the send,
            // because the write hold may end before the answer.
            writing.set_server_may_keep_it();
        }
        let args = AcquireArgs {
            owner: &entry.field,
            lease: &request.lease,
            holds: tenure.map_or(0, Tenure::most_on_server) + 1,
            writes: writes.is_some(),
            relies: tenure.is_some_and(|tenure| tenure.live_count_of(request.owner) > 0),
            wait: self.prior.map(|prior| prior.to_wait(sent)),
        };
        request.spec.protocol.acquire(&request.spec, &args)
    }

    /// Handles a grant. Gives the hold back if the client cannot rely on it, or the caller has
    /// gone.
    async fn handle_grant(
        &mut self,
        entry: &OwnerEntryRef,
        tenure: Option<Arc<Tenure>>,
        sent: Instant,
        token: Option<i64>,
        acknowledged: Option<Acknowledged>,
    ) -> Result<Option<Ended>, Error> {
        if let Err(error) = self.check_grant(acknowledged.as_ref()) {
            self.give_back(entry).await;
            return Err(error);
        }
        let acknowledged = acknowledged.map(|acknowledged| acknowledged.by);
        let Some(mut hold) = self.record_grant(entry, tenure, sent, token, acknowledged) else {
            self.caller.set_reason(OUTDATED);
            self.give_back(entry).await;
            // The release notifies the next waiter. This attempt enqueues behind it, as a first attempt.
            self.forget_last();
            return Ok(None);
        };
        hold.acknowledged = acknowledged;
        // The grant removed the owner's entry from the server's queue. The owner's next attempt starts after this one.
        entry.may_be_queued.store(false, Ordering::Relaxed);
        if !self.caller.is_gone() {
            return Ok(Some(Ended::Done(AttemptOutcome::Granted(hold))));
        }
        // Released under this operation lock: the owner's next operation would count it as a hold.
        drop(hold);
        let spec = &self.request.spec;
        self.engine.release_all_dropped(spec, entry).await;
        Ok(Some(unanswered()))
    }

    /// Refuses a grant that too few replicas have acknowledged, and any grant to a closed client,
    /// which renews no hold.
    fn check_grant(&self, acknowledged: Option<&Acknowledged>) -> Result<(), Error> {
        if let Some(short) = self.engine.shortfall(acknowledged) {
            return Err(replication_error(&self.request.spec, short));
        }
        match self.engine.is_closed() {
            true => Err(self.engine.closed_error()),
            false => Ok(()),
        }
    }

    /// Records a grant as a hold. Returns `None` if it can no longer be relied upon.
    fn record_grant(
        &self,
        entry: &OwnerEntryRef,
        tenure: Option<Arc<Tenure>>,
        sent: Instant,
        token: Option<i64>,
        acknowledged: Option<u32>,
    ) -> Option<HoldGuard> {
        let (engine, request) = (&self.engine, &self.request);
        let is_first = tenure.is_none();
        let readers = || engine.owners.readers(&request.spec.name);
        let readers = engine.may_share(request).then(readers);
        let now = Instant::now();
        let grant = Grant {
            spec: &request.spec,
            owner: request.owner,
            local: self.local.as_ref(),
            readers: readers.as_ref(),
            hand_off_until: now + engine.config.local_hand_off,
            sent,
            answered: now,
            lease: &request.lease,
            watched: request.watched,
            durability: request.durability,
            acknowledged,
            token,
        };
        // A hold of another owner on the other side of a read-write lock contradicts the grant.
        let beside = request.spec.mode.beside().filter(|_| is_first);
        let beside = beside
            .and_then(|mode| engine.owners.present(&request.spec.name, mode))
            .filter(|other| other.entry().key() != entry.key());
        let (tenure, id, old) = engine
            .owners
            .grant(entry, tenure, grant)
            // The grant and a tenure in its way contradict each other: the server is asked about
            // the tenure.
            .map_err(|in_the_way| engine.verify(Vec::from_iter(in_the_way)))
            .ok()?;
        if let Some(old) = old.filter(|old| old.live_count() > 0) {
            engine.lose(&old, LostReason::Gone);
        }
        if let Some(other) = beside.filter(|other| other.live_count() > 0) {
            engine.verify(vec![other]);
        }
        engine.record_replaced(request, entry, is_first);
        let kind = request.spec.protocol.kind();
        let telemetry = tenure.telemetry();
        telemetry.begin(|| engine.gauges.holder(kind, tenure.since));
        engine.wakeups.record_grant(&request.spec, &tenure);
        engine.watch(&tenure);
        Some(HoldGuard::new(engine.clone(), tenure, id))
    }

    // Boxed, because it is rare and large.
    async fn give_back(&self, entry: &OwnerEntryRef) {
        let AcquireRequest { spec, .. } = &self.request;
        Box::pin(
            self.engine
                .give_back(spec, entry, Some(&self.request.lease)),
        )
        .await;
    }

    /// Forgets the previous attempt: the server may have forgotten it, or counted it already.
    fn forget_last(&mut self) {
        if let Some(prior) = &mut self.prior {
            prior.last = None;
        }
    }
}

impl Engine {
    /// Makes one attempt. `local` is the local lock, if the caller has looked it up.
    ///
    /// Not an `async fn`: its future would store the arguments twice, and every waiting task has
    /// such a future.
    pub(super) fn try_until(
        self: &Arc<Self>,
        request: &AcquireRequest,
        local: Option<LocalRef>,
        until: Instant,
        prior: Option<PriorAttempt>,
    ) -> impl Future<Output = Result<AttemptOutcome, Error>> + use<'_> {
        let caller = Caller::default();
        let attempt = Attempt {
            engine: self.clone(),
            request: request.clone(),
            local: local.or_else(|| self.owners.local(&request.spec)),
            prior,
            caller: caller.clone(),
        };
        let attempt = DetachOnDrop::new(self, until, caller.clone(), attempt.run());
        attempt.map(move |outcome| match outcome {
            Some(outcome) => outcome.map_err(|error| self.explained(error)),
            None if self.is_closed() => Err(self.closed_error()),
            None => Ok(AttemptOutcome::Unanswered {
                reason: caller.reason().unwrap_or_else(|| NO_ANSWER.into()),
            }),
        })
    }

    /// The acknowledgements of a write, if they are too few and `check_replicas` is set.
    pub(super) fn shortfall<'a>(
        &self,
        acknowledged: Option<&'a Acknowledged>,
    ) -> Option<&'a Acknowledged> {
        acknowledged.filter(|by| !by.is_enough() && self.config.check_replicas)
    }
}

fn unanswered() -> Ended {
    Ended::Done(AttemptOutcome::Unanswered {
        reason: NO_ANSWER.into(),
    })
}

/// The error for a write that too few replicas have acknowledged.
pub(super) fn replication_error(spec: &LockSpec, short: &Acknowledged) -> Error {
    if let Some(words) = &short.refused {
        return Error::Redis {
            message: format!(
                "{words} (the answer to WAIT: this server does not wait for the replicas that the lock's durability \
                 demands; use Durability::Auto or Durability::Local here, or grant the right to WAIT)"
            ),
        };
    }
    Error::Replication {
        name: spec.name.clone(),
        acknowledged: short.by,
        wanted: short.wanted,
        connected: short.connected,
    }
}

/// The error where scripts may not publish: the server would refuse the release too.
pub(super) fn no_messages(channel: &[u8], words: &str) -> Error {
    let channel = server_text::shown(&String::from_utf8_lossy(channel));
    Error::Redis {
        message: format!(
            "{words} (scripts may not publish to `{channel}`, so the release would fail, and nothing was acquired: grant the rights of \
             docs/operations.md, or use an end point with PUBLISH in scripts; only the spin lock needs no message)"
        ),
    }
}
