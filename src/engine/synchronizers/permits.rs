//! Permits with an id: their validity, their renewal, and how a holder learns of a loss.
//!
//! A permit has a validity like a hold, from before the request was sent. Renewals and ends are
//! deadlines of one [`Alarm`], which the watchdog's task serves.

use std::{
    future::pending,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

use super::{
    super::{
        BoxFuture, CallError, Engine, alarm::Alarm, attempt::OUTDATED, detach::Caller,
        hold_set::validity, loss::elsewhere, request::Deadline, runtime,
    },
    attempts,
    operation::{GivenBack, unexpected_answer},
    remaining::Remaining,
    waiters::Wanted,
    waiting::AttemptOutcome,
};
use crate::{
    durability::Durability,
    error::{Error, LostReason},
    sync::{AtomicU64, Mutex, Ordering, lock},
    wire::{
        Lease, Refusal,
        permit::{self, Id},
        reply::{Detail, Outcome},
        sync_spec::{Attempt, SyncSpec},
    },
};

/// The permits of a client by the time of their next duty.
#[derive(Default)]
pub(super) struct Permits {
    alarm: Alarm<Arc<Permit>>,
    numbers: AtomicU64,
}

/// One permit of a guard.
struct Permit {
    number: u64,
    /// Its number among the held permits.
    held: u64,
    next_deadline: Mutex<Option<Instant>>,
    spec: Arc<SyncSpec>,
    id: Id,
    /// The lease; `None` without an end.
    lease: Option<Lease>,
    is_renewed: bool,
    validity: Mutex<Validity>,
    /// Notified when the guard was released, dropped or leaked.
    over: Notify,
    /// Cancelled at the loss. Made for the first holder that watches for it.
    lost: OnceLock<CancellationToken>,
}

/// The validity of a permit. Pure.
#[derive(Debug)]
struct Validity {
    /// The end of the validity; `None` without one.
    until: Option<Instant>,
    renew_at: Option<Instant>,
    /// Whether a renewal is under way.
    is_renewing: bool,
    lost: Option<LostReason>,
    /// Whether the guard was released, dropped or leaked.
    is_over: bool,
}

/// The next action for a permit.
#[derive(Debug, PartialEq, Eq)]
enum Duty {
    Renew,
    Lose,
    Wait,
}

impl Validity {
    fn new(sent: Instant, lease: Option<&Lease>, is_renewed: bool) -> Self {
        let mut new = Self {
            until: None,
            renew_at: None,
            is_renewing: false,
            lost: None,
            is_over: false,
        };
        if let Some(lease) = lease {
            new.until = Some(validity(sent, lease));
            new.renew_at = is_renewed.then(|| sent + lease.duration / 3);
        }
        new
    }

    /// The reason of the loss, reported or by the clock.
    fn lost_reason(&self, now: Instant) -> Option<LostReason> {
        let is_past = self.until.is_some_and(|until| until <= now);
        self.lost.or(is_past.then_some(LostReason::Expired))
    }

    /// The end of the validity, for as long as there is a guard.
    fn live_until(&self) -> Option<Instant> {
        self.until.filter(|_| !self.is_over)
    }

    fn next_duty(&self) -> Option<Instant> {
        let is_live = !self.is_over && self.lost.is_none();
        let times = self.until.into_iter().chain(self.renew_at);
        times.min().filter(|_| is_live)
    }

    fn duty(&mut self, now: Instant, lease: &Lease) -> Duty {
        if self.next_duty().is_none() {
            return Duty::Wait;
        }
        if self.lost_reason(now).is_some() {
            return Duty::Lose;
        }
        match &mut self.renew_at {
            Some(at) if *at <= now => {
                // Repeated soon until an answer says otherwise: several times before the end.
                *at = now + lease.duration / 30;
                match std::mem::replace(&mut self.is_renewing, true) {
                    true => Duty::Wait,
                    false => Duty::Renew,
                }
            }
            _ => Duty::Wait,
        }
    }

    /// Records a renewal. A lost permit stays lost (invariant 2).
    fn record_renewal(&mut self, sent: Instant, lease: &Lease) {
        if self.lost_reason(Instant::now()).is_none() {
            self.until = self.until.max(Some(validity(sent, lease)));
            self.renew_at = Some(sent + lease.duration / 3);
        }
    }
}

impl Permit {
    fn validity(&self) -> crate::sync::MutexGuard<'_, Validity> {
        lock(&self.validity)
    }

    /// How its guard releases it: until it ends by itself.
    fn given_back(&self) -> GivenBack {
        let lasts = self.lease.as_ref().map(|lease| lease.duration);
        GivenBack::IdOfGuard {
            lasts: lasts.unwrap_or(Duration::MAX),
        }
    }

    fn lost(&self, engine: &Engine) -> Option<LostReason> {
        let mut validity = self.validity();
        let lost = validity.lost_reason(Instant::now());
        if lost.is_none() && engine.is_closed() {
            validity.lost = Some(engine.end_reason());
        }
        lost.or(validity.lost)
    }

    fn token(&self, engine: &Engine) -> &CancellationToken {
        self.lost.get_or_init(|| engine.closed.child_token())
    }
}

/// A permit of an expirable semaphore, given back when this is dropped.
pub(crate) struct ExpirablePermitGuard {
    engine: Arc<Engine>,
    permit: Arc<Permit>,
    is_armed: bool,
    /// A shutdown may wait for it.
    _holder: TaskTrackerToken,
}

impl ExpirablePermitGuard {
    pub(super) fn new(
        engine: &Arc<Engine>,
        spec: &Arc<SyncSpec>,
        id: Id,
        sent: Instant,
        lease: Option<&Lease>,
        is_renewed: bool,
    ) -> Self {
        let (permits, held) = (&engine.synchronizers.permits, &engine.synchronizers.held);
        let permit = Arc::new(Permit {
            held: held.add(&spec.name, 1, Instant::now()),
            number: permits.numbers.fetch_add(1, Ordering::Relaxed),
            next_deadline: Mutex::new(None),
            spec: spec.clone(),
            id,
            lease: lease.cloned(),
            is_renewed,
            validity: Mutex::new(Validity::new(sent, lease, is_renewed)),
            over: Notify::new(),
            lost: OnceLock::new(),
        });
        permits.watch(&permit);
        Self {
            engine: engine.clone(),
            permit,
            is_armed: true,
            _holder: engine.permit_holders.token(),
        }
    }

    pub(crate) fn id(&self) -> &Id {
        &self.permit.id
    }

    pub(crate) fn spec(&self) -> &SyncSpec {
        &self.permit.spec
    }

    /// The end of the validity; `None` without one.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        self.permit.validity().until
    }

    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        self.permit.lost(&self.engine)
    }

    pub(super) fn has_expired(&self) -> bool {
        let lost = self.permit.validity().lost_reason(Instant::now());
        lost.is_some()
    }

    /// Completes when the permit is lost. On another runtime than the client's, a timer there ends
    /// the wait as well.
    pub(crate) async fn lost(&self) -> LostReason {
        let mut notified = pin!(self.permit.token(&self.engine).cancelled());
        loop {
            if let Some(reason) = self.lost_reason() {
                return reason;
            }
            let here = elsewhere(self.engine.runtime());
            let until = here.and_then(|_| self.valid_until());
            let ended = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = &mut notified => {}
                () = ended => {}
            }
        }
    }

    /// Returns a token that is cancelled when the permit is lost.
    pub(crate) fn token(&self) -> CancellationToken {
        let token = self.permit.token(&self.engine).child_token();
        if self.lost_reason().is_some() {
            token.cancel();
        } else if let Some(here) = elsewhere(self.engine.runtime()) {
            let task: BoxFuture<()> =
                Box::pin(cancel_at_the_end(self.permit.clone(), token.clone()));
            here.spawn(task);
        }
        token
    }

    /// Ends the renewal of the permit, and the tasks of its tokens.
    fn end(&mut self) {
        self.is_armed = false;
        self.permit.validity().is_over = true;
        self.permit.over.notify_waiters();
        let synchronizers = &self.engine.synchronizers;
        synchronizers.held.remove(self.permit.held);
        synchronizers.permits.watch(&self.permit);
    }

    pub(crate) fn leak(mut self) {
        self.end();
    }

    /// Releases the permit. Returns whether it was still there.
    pub(crate) async fn release(mut self) -> Result<bool, Error> {
        runtime::check()?;
        self.engine.check_open()?;
        // Before the release: a renewal after it would be of no use (invariant 6).
        self.end();
        let (engine, permit) = (self.engine.clone(), self.permit.clone());
        let what = permit.given_back();
        engine.give_ids(&permit.spec, what, &[permit.id]).await
    }

    /// Releases the permit for a caller that discards the error: a failure is logged.
    #[cfg(feature = "blocking")]
    pub(crate) async fn release_or_log(mut self) {
        // The drop of this guard adds a final request.
        if self.engine.is_closed() {
            return;
        }
        self.end();
        let Permit { spec, id, .. } = &*self.permit;
        let release = |attempt: &Attempt| permit::release(spec, &[*id], attempt);
        self.engine
            .give_back_permits_now(spec, self.permit.given_back(), release)
            .await;
    }
}

impl Drop for ExpirablePermitGuard {
    fn drop(&mut self) {
        if self.is_armed {
            self.end();
            let Permit { spec, id, .. } = &*self.permit;
            let release = |attempt: &Attempt| permit::release(spec, &[*id], attempt);
            self.engine
                .give_back_permits(spec, self.permit.given_back(), release);
        }
    }
}

/// Cancels `token` when the clock ends the permit, unless its guard ends before.
async fn cancel_at_the_end(permit: Arc<Permit>, token: CancellationToken) {
    loop {
        // Registered before the validity is read: an end in between is not missed.
        let over = permit.over.notified();
        let Some(until) = permit.validity().live_until() else {
            return;
        };
        let ended = timeout_at(until, token.run_until_cancelled(over)).await;
        if ended.is_ok() {
            return;
        }
        if permit.validity().lost_reason(Instant::now()).is_some() {
            return token.cancel();
        }
    }
}

impl Permits {
    /// Schedules the next duty of `permit`, or removes it if it has none.
    fn watch(&self, permit: &Arc<Permit>) {
        let (at, entry) = (|| permit.validity().next_duty(), || permit.clone());
        self.alarm
            .set(permit.number, &permit.next_deadline, at, entry);
    }

    /// Completes when a permit is due. Only one task may wait.
    pub(super) async fn due(&self) {
        self.alarm.wait().await;
    }
}

impl Engine {
    /// Acquires permits of an expirable semaphore for `lease`. Returns `None` if there were too few
    /// at the deadline.
    pub(crate) async fn acquire_ids(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        permits: u32,
        lease: Option<Lease>,
        is_renewed: bool,
        deadline: Deadline,
    ) -> Result<Option<Vec<ExpirablePermitGuard>>, Error> {
        if permits == 0 {
            self.check_accepts()?;
            return Ok(Some(Vec::new()));
        }
        let try_once = |caller: Caller| {
            let (engine, spec, lease) = (self.clone(), spec.clone(), lease.clone());
            async move {
                engine.may_announce(&spec).await?;
                let lease = lease.as_ref();
                loop {
                    let ids: Vec<_> = (0..permits).map(|_| attempts::permit_id()).collect();
                    let request = permit::acquire(&spec, &ids, lease);
                    let answer = engine
                        .until_answered(&spec, request, Some(&caller), None)
                        .await?;
                    let Outcome::Done(Detail::Numbers(numbers)) = &answer.outcome else {
                        return Err(unexpected_answer(answer.outcome));
                    };
                    let &[is_granted, left, nearest, in_all] = &numbers[..] else {
                        return Err(unexpected_answer(answer.outcome));
                    };
                    let rest = Remaining::with_end(left, nearest, in_all);
                    if is_granted == 0 {
                        return Ok(AttemptOutcome::Busy(rest));
                    }
                    let held = ids.into_iter().map(|id| {
                        ExpirablePermitGuard::new(
                            &engine,
                            &spec,
                            id,
                            answer.sent,
                            lease,
                            is_renewed,
                        )
                    });
                    let held = Vec::from_iter(held);
                    if held.iter().all(|permit| !permit.has_expired()) {
                        return Ok(AttemptOutcome::Granted(held, rest));
                    }
                    caller.set_reason(OUTDATED);
                }
            }
        };
        // Permits with an id are not handed off: each has an end of its own.
        let given = |_| unreachable!("permits with ids are never handed off");
        let wanted = Wanted::Ids(permits);
        self.acquire_by(spec, wanted, deadline, try_once, given)
            .await
    }

    /// Releases permits by their ids. Returns whether all were there and had not ended; otherwise
    /// none is released.
    pub(crate) async fn release_ids(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        ids: &[Id],
    ) -> Result<bool, Error> {
        self.check_open()?;
        self.give_ids(spec, GivenBack::Ids, ids).await
    }

    async fn give_ids(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        what: GivenBack,
        ids: &[Id],
    ) -> Result<bool, Error> {
        let release = |attempt: &Attempt| permit::release(spec, ids, attempt);
        let released = self.run_release_of_permits(spec, what, release);
        Ok(released.await?.is_some())
    }

    /// Completes when permits are to be [renewed or lost](Self::renew_permits).
    pub(in super::super) async fn permits_due(&self) {
        self.synchronizers.permits.due().await;
    }

    pub(in super::super) fn renew_permits(self: &Arc<Self>) {
        // A closed client renews nothing, and its tokens tell the holders.
        let (permits, now) = (&self.synchronizers.permits, Instant::now());
        for permit in permits.alarm.due(now) {
            let lease = permit.lease.clone().filter(|_| !self.is_closed());
            let Some(lease) = lease else {
                continue;
            };
            let duty = permit.validity().duty(now, &lease);
            match duty {
                Duty::Lose => self.lose_permit(&permit, LostReason::Expired),
                Duty::Wait => permits.watch(&permit),
                Duty::Renew => {
                    permits.watch(&permit);
                    self.batcher.spawn(self.clone().renew_permit(permit, lease));
                }
            }
        }
    }

    async fn renew_permit(self: Arc<Self>, permit: Arc<Permit>, lease: Lease) {
        let redis = self.batcher.redis();
        // A renewal does not wait for a connection: the next one has a send time of its own.
        if redis.is_ready(redis.slot(&permit.spec.key), Durability::Local) {
            let sent = Instant::now();
            let request = permit::extend(&permit.spec, &permit.id, Some(&lease));
            let answer = self.batcher.run(request, Durability::Local).await;
            match answer.and_then(|answered| answered.reply.outcome().map_err(CallError::Refused)) {
                Ok(Outcome::Done(_)) => permit.validity().record_renewal(sent, &lease),
                Ok(_) | Err(CallError::Refused(Refusal::WrongKind { .. })) => {
                    self.lose_permit(&permit, LostReason::Gone);
                }
                Err(CallError::Refused(refusal)) => {
                    let name = &permit.spec.name;
                    match self.log_limits.refusals.may_log_about(refusal.message()) {
                        Some(suppressed) => {
                            tracing::warn!(%name, ?refusal, suppressed, "a renewal was refused");
                        }
                        None => tracing::debug!(%name, ?refusal, "a renewal was refused"),
                    }
                }
                Err(CallError::Unanswered { .. } | CallError::Closed) => {}
            }
        }
        permit.validity().is_renewing = false;
        self.synchronizers.permits.watch(&permit);
    }

    /// Notifies the holder of the permit, and stops its renewal.
    fn lose_permit(&self, permit: &Arc<Permit>, reason: LostReason) {
        {
            let mut validity = permit.validity();
            // A released permit may be gone because of that.
            if validity.is_over || validity.lost.is_some() {
                return;
            }
            validity.lost = Some(reason);
        }
        self.synchronizers.held.remove(permit.held);
        let name = &permit.spec.name;
        // A permit without renewal ends as its holder has asked for: that is no warning.
        match permit
            .is_renewed
            .then(|| self.log_limits.losses.may_log())
            .flatten()
        {
            Some(suppressed) => tracing::warn!(%name, %reason, suppressed, "a permit was lost"),
            None => tracing::debug!(%name, %reason, "a permit was lost"),
        }
        if let Some(token) = permit.lost.get() {
            token.cancel();
        }
        self.synchronizers.permits.watch(permit);
    }
}
