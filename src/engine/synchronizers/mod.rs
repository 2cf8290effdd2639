//! Semaphores and latches: acquires permits, waits, and releases permits.
//!
//! Permits have no owner, and those of a plain semaphore no lease, so the engine's tenures do not
//! concern them. Synchronizers share with locks the way to Redis, the jobs that outlive a dropped
//! future, and the shape of a wait: ask, subscribe, ask again, wait for a notification. [`waiters`]
//! decides which waiter is notified, and [`permits`] renews permits with an id.

mod attempts;
mod permits;
mod waiters;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

use super::{
    CallError, Engine, Event, Refusal, Request,
    attempt::OUTDATED,
    detach::{Caller, DetachOnDrop},
    request::Deadline,
    retry::{Retry, TRANSIENT_PAUSE},
    runtime,
};
use crate::{
    config::Config,
    durability::Durability,
    error::Error,
    redis::{BoxFuture, Redis},
    sync::{Mutex, MutexGuard, lock},
    wire::{
        Lease, latch,
        permit::{self, Id},
        reply::{Detail, Outcome},
        semaphore,
        sync_spec::{Attempt, SyncSpec},
    },
};
use attempts::{Attempts, Ongoing};
pub(crate) use permits::ExpirablePermitGuard;
use permits::Permits;
use waiters::{State, WaiterId, Waiters, Wanted};

/// The state of a client's semaphores and latches.
pub(super) struct Synchronizers {
    waiters: Mutex<Waiters>,
    /// Notified when the next poll becomes an earlier one.
    earlier: Notify,
    attempts: Attempts,
    permits: Permits,
    redis: Arc<dyn Redis>,
}

impl Synchronizers {
    pub(super) fn new(redis: Arc<dyn Redis>, id: Uuid, config: &Config) -> Self {
        Self {
            waiters: Mutex::new(Waiters::new(config.poll_floor)),
            earlier: Notify::new(),
            attempts: Attempts::new(id, config.outage_wait),
            permits: Permits::default(),
            redis,
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        lock(&self.waiters)
    }

    /// Changes the waiters at `spec`. Wakes the polling task if their next poll is now earlier.
    fn change<T>(&self, spec: &SyncSpec, change: impl FnOnce(&mut Waiters) -> T) -> T {
        let mut waiters = self.waiters();
        let before = waiters.next_poll_at(spec);
        let changed = change(&mut waiters);
        let next = waiters.next_poll_at(spec);
        drop(waiters);
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.earlier.notify_one();
        }
        changed
    }

    /// Handles an event of the connections: wakes the waiters that it concerns.
    pub(super) fn handle_event(&self, event: &Event) {
        let (mut waiters, now) = (self.waiters(), Instant::now());
        if waiters.is_empty() {
            return;
        }
        match event {
            Event::Message { channel, payload } => {
                let number = std::str::from_utf8(payload).ok();
                // A message that no Redisson sends wakes no waiter.
                if let Some(number) = number.and_then(|text| text.parse().ok()) {
                    waiters.handle_message(channel, number, now);
                }
            }
            Event::MessagesMissed | Event::Reconnected => waiters.wake_where(|_| true, now),
            Event::Moved(slots) | Event::MissedIn(slots) => {
                waiters.wake_where(|channel| slots.contains(&self.redis.slot(channel)), now);
            }
        }
    }

    /// Wakes all waiters, which see that the client is closed.
    pub(super) fn close(&self) {
        self.waiters().wake_where(|_| true, Instant::now());
    }

    /// Completes when a [`poll`](Waiters::poll) is due. Only one task may wait.
    pub(super) async fn due(&self) {
        loop {
            let next = self.waiters().next_poll();
            let earlier = self.earlier.notified();
            match next {
                None => earlier.await,
                Some(next) if timeout_at(next, earlier).await.is_err() => return,
                Some(_) => {}
            }
        }
    }

    fn record_answer(&self, spec: &SyncSpec, Remaining { left, end }: Remaining) {
        self.change(spec, |waiters| {
            waiters.record_left(spec, left, end, Instant::now())
        });
    }
}

/// The state of a semaphore, as an answer tells it besides the outcome.
#[derive(Clone, Copy)]
struct Remaining {
    /// The number of permits that are left.
    left: i64,
    /// The end of the acquired permit that ends next.
    end: Option<Instant>,
}

impl Remaining {
    fn plain(left: i64) -> Self {
        Self { left, end: None }
    }

    fn with_end(left: i64, millis: i64) -> Self {
        let millis = u64::try_from(millis).ok();
        let end = |millis: u64| Instant::now() + Duration::from_millis(millis.max(1));
        Self {
            left,
            end: millis.map(end),
        }
    }
}

/// The outcome of an attempt.
enum AttemptOutcome<T> {
    Granted(T, Remaining),
    Busy(Remaining),
    Unanswered { reason: String },
}

/// The answer to a request.
struct Answer {
    outcome: Outcome,
    /// The time before the first sending that the server may have executed.
    sent: Instant,
}

/// A waiter, from its join to its leave.
struct Waiting<'a> {
    engine: &'a Arc<Engine>,
    spec: &'a Arc<SyncSpec>,
    id: WaiterId,
    signal: Arc<Notify>,
    /// Completes when the subscription is confirmed.
    subscribed: Option<BoxFuture<Result<(), CallError>>>,
}

impl<'a> Waiting<'a> {
    fn begin(engine: &'a Arc<Engine>, spec: &'a Arc<SyncSpec>, wanted: Wanted) -> Self {
        Self::join(engine, spec, wanted, engine.synchronizers.waiters(), false)
    }

    /// Joins behind waiters that wait for no more permits, if there are any.
    fn begin_behind(
        engine: &'a Arc<Engine>,
        spec: &'a Arc<SyncSpec>,
        wanted: Wanted,
    ) -> Option<Self> {
        let mut waiters = engine.synchronizers.waiters();
        let waits = waiters.would_wait(spec, wanted);
        waits.then(|| Self::join(engine, spec, wanted, waiters, true))
    }

    fn join(
        engine: &'a Arc<Engine>,
        spec: &'a Arc<SyncSpec>,
        wanted: Wanted,
        mut waiters: MutexGuard<'_, Waiters>,
        behind: bool,
    ) -> Self {
        let all = &engine.synchronizers;
        let signal = Arc::new(Notify::new());
        let id = waiters.join(spec, wanted, behind, signal.clone(), Instant::now());
        // Called under the mutex, as is the end of the last wait: the server receives subscriptions
        // and their ends in the order of joins and leaves.
        let subscribed = all.redis.subscribe(spec.channel.clone());
        drop(waiters);
        all.earlier.notify_one();
        Self {
            engine,
            spec,
            id,
            signal,
            subscribed: Some(subscribed),
        }
    }

    fn all(&self) -> &'a Synchronizers {
        &self.engine.synchronizers
    }

    /// Completes when the waiter must ask, or need not any more. Returns `None` at the deadline.
    async fn notified(&mut self, deadline: Deadline) -> Option<State> {
        if let Some(subscribed) = self.subscribed.take() {
            let longest = deadline.earlier(Instant::now() + self.engine.config.poll_floor);
            let subscribed = self.engine.closed.run_until_cancelled(subscribed);
            // If the subscription is refused or slow, polling has to do.
            let _ = timeout_at(longest, subscribed).await;
        }
        loop {
            let state = self.all().waiters().take(self.spec, self.id);
            if !matches!(state, State::Parked) || self.engine.is_closed() {
                return Some(state);
            }
            let notified = self.signal.notified();
            match deadline {
                Deadline::Until(deadline) => timeout_at(deadline, notified).await.ok()?,
                _ => notified.await,
            }
        }
    }

    fn begin_attempt(&self) {
        self.all().waiters().begin_attempt(self.spec, self.id);
    }

    fn record_refusal(&self, rest: Remaining) {
        self.all().change(self.spec, |waiters| {
            waiters.record_refusal(self.spec, self.id, rest.end, Instant::now());
            waiters.record_left(self.spec, rest.left, rest.end, Instant::now());
        });
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let all = self.all();
        let left = all.change(self.spec, |waiters| {
            let left = waiters.leave(self.spec, self.id, Instant::now());
            if left.is_last {
                all.redis.unsubscribe(self.spec.channel.clone());
            }
            left
        });
        if let Some((permits, hand_off_until)) = left.given {
            drop(self.engine.permit_guard(self.spec, permits, hand_off_until));
        }
    }
}

/// Permits of a semaphore. The drop hands them to waiters of this client within the hand-off
/// window, and releases the rest to the server.
pub(crate) struct PermitGuard {
    engine: Arc<Engine>,
    spec: Arc<SyncSpec>,
    permits: u32,
    /// The end of the hand-off window: other clients may wait too.
    hand_off_until: Instant,
}

impl PermitGuard {
    pub(crate) fn permits(&self) -> u32 {
        self.permits
    }

    pub(crate) fn spec(&self) -> &SyncSpec {
        &self.spec
    }

    /// Leaves the permits taken.
    pub(crate) fn leak(mut self) {
        self.permits = 0;
    }

    /// Hands permits to waiters of this client. Returns the number that is left for the server.
    fn hand_off(&mut self) -> u32 {
        let permits = std::mem::take(&mut self.permits);
        let now = Instant::now();
        if permits == 0 || now >= self.hand_off_until || self.engine.is_closed() {
            return permits;
        }
        let give =
            |waiters: &mut Waiters| waiters.give(&self.spec, permits, self.hand_off_until, now);
        self.engine.synchronizers.change(&self.spec, give)
    }

    pub(crate) async fn release(mut self) -> Result<(), Error> {
        runtime::check()?;
        // On an error the guard is dropped here, which releases the permits unless the client has
        // ended.
        self.engine.check_open()?;
        let permits = self.hand_off();
        if permits == 0 {
            return Ok(());
        }
        let (engine, spec) = (self.engine.clone(), self.spec.clone());
        engine.release_permits(&spec, permits.into()).await
    }
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        let permits = self.hand_off();
        if permits == 0 {
            return;
        }
        let release = |attempt: &Attempt| semaphore::release(&self.spec, permits.into(), attempt);
        self.engine.give_back_permits(&self.spec, release);
    }
}

/// A request that is completed once it has begun, whatever becomes of its task.
struct Operation {
    engine: Arc<Engine>,
    spec: Arc<SyncSpec>,
    request: Request,
    /// Whether it releases permits. If the runtime's end takes its connection, nothing else would
    /// release them.
    gives_back: bool,
    is_over: bool,
    _ongoing: Ongoing,
}

impl Operation {
    fn new(
        engine: &Arc<Engine>,
        spec: &Arc<SyncSpec>,
        request: impl FnOnce(&Attempt) -> Request,
    ) -> Self {
        let ongoing = engine.synchronizers.attempts.begin();
        Self {
            engine: engine.clone(),
            spec: spec.clone(),
            request: request(&ongoing.attempt),
            gives_back: false,
            is_over: false,
            _ongoing: ongoing,
        }
    }

    fn giving_back(mut self) -> Self {
        self.gives_back = true;
        self
    }

    async fn run(mut self) -> Result<Outcome, Error> {
        let (engine, spec) = (&self.engine, &self.spec);
        let answered = engine.until_answered_or_given_up(spec, &self.request).await;
        // The runtime may be ending, and the connection may have ended before this task. The drop
        // then adds a final request.
        self.is_over = !self.gives_back || answered != Err(Error::Closed);
        match &answered {
            Ok(Outcome::Done(Detail::Number(left))) if self.gives_back => {
                let left = Remaining::plain(*left);
                engine.synchronizers.record_answer(spec, left);
            }
            // The caller may have gone.
            Err(error) if self.gives_back && self.is_over => engine.log_unreleased(spec, error),
            _ => {}
        }
        answered
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.is_over && !self.engine.add_final_request(self.request.clone()) {
            self.engine.log_unreleased(&self.spec, &Error::Closed);
        }
    }
}

impl Engine {
    /// Acquires permits of a semaphore. Returns `None` if there were too few at the deadline.
    pub(crate) async fn acquire_permits(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        permits: u32,
        deadline: Deadline,
    ) -> Result<Option<PermitGuard>, Error> {
        if permits == 0 {
            self.check_open()?;
            return Ok(Some(self.permit_guard(spec, 0, Instant::now())));
        }
        let try_once = |caller: Caller| {
            let (engine, spec) = (self.clone(), spec.clone());
            async move {
                engine.may_announce(&spec).await?;
                let ongoing = engine.synchronizers.attempts.begin();
                let request = semaphore::acquire(&spec, permits, &ongoing.attempt);
                let answer = engine.until_answered(&spec, request, Some(&caller)).await?;
                match answer.outcome {
                    Outcome::Done(Detail::Number(left)) => {
                        let hand_off_until = Instant::now() + engine.config.local_hand_off;
                        Ok(AttemptOutcome::Granted(
                            engine.permit_guard(&spec, permits, hand_off_until),
                            Remaining::plain(left),
                        ))
                    }
                    Outcome::Busy { remaining: left } => {
                        Ok(AttemptOutcome::Busy(Remaining::plain(left)))
                    }
                    other => Err(unexpected_answer(other)),
                }
            }
        };
        let given = |hand_off_until| self.permit_guard(spec, permits, hand_off_until);
        let wanted = Wanted::Permits(permits);
        self.acquire_by(spec, wanted, deadline, try_once, given)
            .await
    }

    /// Notifies the waiters whose poll is due, and hands on permits whose waiter is not polled.
    pub(super) fn poll_synchronizers(self: &Arc<Self>) {
        let untaken = self.synchronizers.waiters().poll(Instant::now());
        for (spec, permits, hand_off_until) in untaken {
            drop(self.permit_guard(&spec, permits, hand_off_until));
        }
    }

    fn permit_guard(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        permits: u32,
        hand_off_until: Instant,
    ) -> PermitGuard {
        PermitGuard {
            engine: self.clone(),
            spec: spec.clone(),
            permits,
            hand_off_until,
        }
    }

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
            self.check_open()?;
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
                    let answer = engine.until_answered(&spec, request, Some(&caller)).await?;
                    let Outcome::Done(Detail::Numbers(numbers)) = &answer.outcome else {
                        return Err(unexpected_answer(answer.outcome));
                    };
                    let &[is_granted, left, nearest] = &numbers[..] else {
                        return Err(unexpected_answer(answer.outcome));
                    };
                    let rest = Remaining::with_end(left, nearest);
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

    /// Runs the acquire loop of both kinds of semaphores.
    async fn acquire_by<T, F>(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        wanted: Wanted,
        deadline: Deadline,
        try_once: impl Fn(Caller) -> F,
        given: impl Fn(Instant) -> T,
    ) -> Result<Option<T>, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<AttemptOutcome<T>, Error>> + Send + 'static,
    {
        runtime::check()?;
        let waits = !matches!(deadline, Deadline::Once);
        let all = &self.synchronizers;
        let mut waiting = match waits {
            true => Waiting::begin_behind(self, spec, wanted),
            false => None,
        };
        let mut was_busy = waiting.is_some();
        loop {
            if let Some(waiting) = &mut waiting {
                match waiting.notified(deadline).await {
                    None => return Ok(None),
                    Some(State::Given { hand_off_until, .. }) => {
                        return Ok(Some(given(hand_off_until)));
                    }
                    Some(_) => waiting.begin_attempt(),
                }
            }
            self.check_open()?;
            // A closing client waits until permits that were granted meanwhile are given back.
            let _closing = self.tasks.token();
            let caller = Caller::default();
            let (until, attempt) = (self.answer_deadline(deadline), try_once(caller.clone()));
            let outcome = match DetachOnDrop::new(self, until, caller.clone(), attempt).await {
                Some(outcome) => outcome?,
                None => AttemptOutcome::Unanswered {
                    reason: caller.reason().unwrap_or_else(|| NO_ANSWER.into()),
                },
            };
            match (outcome, &waiting) {
                (AttemptOutcome::Granted(..), _) if self.is_closed() => return Err(Error::Closed),
                (AttemptOutcome::Granted(held, rest), waiting) => {
                    if let Some(waiting) = waiting {
                        all.waiters().mark_served(spec, waiting.id);
                    }
                    all.record_answer(spec, rest);
                    return Ok(Some(held));
                }
                (AttemptOutcome::Busy(_), None) if !waits => return Ok(None),
                (AttemptOutcome::Busy(_), None) => {
                    was_busy = true;
                    waiting = Some(Waiting::begin(self, spec, wanted));
                }
                (AttemptOutcome::Busy(rest), Some(waiting)) => {
                    was_busy = true;
                    waiting.record_refusal(rest);
                }
                (AttemptOutcome::Unanswered { .. }, _) if was_busy && deadline.is_over() => {
                    return Ok(None);
                }
                (AttemptOutcome::Unanswered { reason }, _) => {
                    return Err(self.no_answer(spec, reason));
                }
            }
            // A refusal that a message has made outdated would be followed by another attempt.
            if deadline.is_over() {
                return Ok(None);
            }
        }
    }

    /// Waits until a latch has been open at some moment since the call. Returns whether it was.
    pub(crate) async fn wait_for_opening(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        deadline: Deadline,
    ) -> Result<bool, Error> {
        runtime::check()?;
        let all = &self.synchronizers;
        let mark = attempts::mark();
        let wanted = Wanted::Opening {
            mark,
            is_marked: false,
        };
        let mut waiting = match deadline {
            Deadline::Once => None,
            _ => Some(Waiting::begin(self, spec, wanted)),
        };
        let mut was_closed = false;
        loop {
            if let Some(waiting) = &mut waiting {
                match waiting.notified(deadline).await {
                    Some(State::Over) => return Ok(true),
                    Some(_) => waiting.begin_attempt(),
                    None if was_closed => return Ok(false),
                    None => return Err(self.no_answer(spec, NO_REPLY)),
                }
            }
            self.check_open()?;
            let look = self.until_answered(spec, latch::look(spec, mark), None);
            let looked = timeout_at(self.answer_deadline(deadline), look).await;
            match looked.map(|looked| looked.map(|answer| answer.outcome)) {
                Ok(Ok(Outcome::Done(Detail::Number(count)))) if count <= 0 => {
                    all.waiters().record_open(spec, Instant::now());
                    return Ok(true);
                }
                Ok(Ok(Outcome::Done(Detail::Number(_)))) => match &waiting {
                    Some(waiting) => {
                        was_closed = true;
                        waiting.record_refusal(Remaining::plain(0));
                    }
                    None => return Ok(false),
                },
                Ok(Ok(other)) => return Err(unexpected_answer(other)),
                Ok(Err(error)) => return Err(error),
                Err(_) if was_closed && deadline.is_over() => return Ok(false),
                Err(_) => return Err(self.no_answer(spec, NO_REPLY)),
            }
        }
    }

    /// Runs a request until it is answered, in the background if the caller goes. `request` gets an
    /// attempt, by which the server recognises a repetition.
    pub(crate) async fn run_at(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        request: impl FnOnce(&Attempt) -> Request,
    ) -> Result<Option<Detail>, Error> {
        self.finish(spec, request, |operation| operation).await
    }

    /// As [`run_at`](Self::run_at), for a request that releases permits.
    async fn give_back_at(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        request: impl FnOnce(&Attempt) -> Request,
    ) -> Result<Option<Detail>, Error> {
        self.finish(spec, request, Operation::giving_back).await
    }

    async fn finish(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        request: impl FnOnce(&Attempt) -> Request,
        marked: impl FnOnce(Operation) -> Operation,
    ) -> Result<Option<Detail>, Error> {
        runtime::check()?;
        self.check_open()?;
        let operation = marked(Operation::new(self, spec, request));
        let until = Instant::now() + self.config.command_wait;
        match DetachOnDrop::always(self, until, operation.run()).await {
            Some(Ok(Outcome::Done(detail))) => Ok(Some(detail)),
            Some(Ok(_)) => Ok(None),
            Some(Err(error)) => Err(error),
            None => Err(self.no_answer(spec, NO_ANSWER)),
        }
    }

    /// Runs a request that changes nothing the second time.
    pub(crate) async fn ask_of(
        self: &Arc<Self>,
        spec: &SyncSpec,
        request: Request,
    ) -> Result<Option<Detail>, Error> {
        runtime::check()?;
        self.check_open()?;
        let answer = self.until_answered(spec, request, None);
        let answer = timeout_at(Instant::now() + self.config.command_wait, answer).await;
        match answer.map(|answer| answer.map(|answer| answer.outcome)) {
            Ok(Ok(Outcome::Done(detail))) => Ok(Some(detail)),
            Ok(Ok(_)) => Ok(None),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.no_answer(spec, NO_REPLY)),
        }
    }

    pub(crate) async fn release_permits(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        permits: i64,
    ) -> Result<(), Error> {
        let release = |attempt: &Attempt| semaphore::release(spec, permits, attempt);
        self.give_back_at(spec, release).await.map(drop)
    }

    /// Releases permits by their ids. Returns whether all were there and had not ended; otherwise
    /// none is released.
    pub(crate) async fn release_ids(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        ids: &[Id],
    ) -> Result<bool, Error> {
        let released = self.give_back_at(spec, |attempt| permit::release(spec, ids, attempt));
        Ok(released.await?.is_some())
    }

    /// Queues the release of dropped permits.
    fn give_back_permits(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        request: impl FnOnce(&Attempt) -> Request,
    ) {
        let released = Operation::new(self, spec, request).giving_back().run();
        // If there is no release task any more, the drop of the operation adds a final request.
        let _: bool = self.jobs.push(async move { drop(released.await) });
    }

    fn log_unreleased(&self, spec: &SyncSpec, error: &Error) {
        let name = &spec.name;
        match self.lines.left.may_log() {
            Some(suppressed) => {
                tracing::warn!(%name, error = %error.in_full(), suppressed, "permits were not given back")
            }
            None => tracing::debug!(%name, error = %error.in_full(), "permits were not given back"),
        }
    }

    fn check_open(&self) -> Result<(), Error> {
        match self.is_closed() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Checks that the user may publish: otherwise the server would refuse the release of what is
    /// acquired.
    async fn may_announce(&self, spec: &SyncSpec) -> Result<(), Error> {
        let redis = self.batcher.redis();
        let slot = redis.slot(&spec.key);
        if let Some(asked) = redis.may_publish(slot, &spec.channel)
            && !asked.await
        {
            let channel = String::from_utf8_lossy(&spec.channel);
            return Err(Error::Redis {
                message: format!(
                    "NOPERM this user may not publish to {channel:?}: docs/operations.md lists the rights that it needs"
                ),
            });
        }
        Ok(())
    }

    /// Sends a request until it is answered. Before the first sending, a caller that has gone ends
    /// it.
    async fn until_answered(
        &self,
        spec: &SyncSpec,
        request: Request,
        caller: Option<&Caller>,
    ) -> Result<Answer, Error> {
        let mut retry = Retry::default();
        let mut first_sent = None;
        loop {
            let caller_before = caller.filter(|_| !retry.is_in_doubt());
            if !retry.is_in_doubt() {
                first_sent = None;
            }
            let (sent, answer) = self.ask_at(spec, &request, caller_before).await?;
            let sent = *first_sent.get_or_insert(sent);
            match answer {
                Ok(outcome) => return Ok(Answer { outcome, sent }),
                Err(error) => {
                    let again = retry.again(&spec.name, error)?;
                    caller
                        .into_iter()
                        .for_each(|caller| caller.set_reason(&again.reason));
                    again.pause().await;
                }
            }
        }
    }

    /// As [`until_answered`](Self::until_answered), for a request that must not be executed twice:
    /// it is given up before the server forgets the attempt. A request that is not in doubt waits
    /// for as long as the server cannot be reached, and for as long as an outage may take when the
    /// server has no memory left.
    async fn until_answered_or_given_up(
        &self,
        spec: &SyncSpec,
        request: &Request,
    ) -> Result<Outcome, Error> {
        let longest = self.config.outage_wait;
        let mut until = None;
        let mut retry = Retry::default();
        loop {
            let asking = self.ask_at(spec, request, None);
            let answer = match until {
                None => asking.await?,
                Some(until) => match timeout_at(until, asking).await {
                    Ok(answer) => answer?,
                    Err(_) => {
                        let reason = "the connection broke, and the server forgets soon whether it executed the operation: check the count before a repetition";
                        return Err(self.no_answer(spec, reason));
                    }
                },
            };
            match answer.1 {
                Ok(outcome) => return Ok(outcome),
                Err(CallError::Refused(Refusal::Failed { message })) if message.contains("OOM") => {
                    let until = *until.get_or_insert_with(|| Instant::now() + longest);
                    if Instant::now() >= until {
                        return Err(Error::Redis { message });
                    }
                    tokio::time::sleep(TRANSIENT_PAUSE).await;
                }
                Err(error) => {
                    let again = retry.again(&spec.name, error)?;
                    if retry.is_in_doubt() {
                        until.get_or_insert_with(|| Instant::now() + longest);
                    }
                    again.pause().await;
                }
            }
        }
    }

    /// Sends a request once there is a connection, unless the caller has gone before. Returns the
    /// time before the sending, and the answer.
    async fn ask_at(
        &self,
        spec: &SyncSpec,
        request: &Request,
        caller: Option<&Caller>,
    ) -> Result<(Instant, Result<Outcome, CallError>), Error> {
        let redis = self.batcher.redis();
        let slot = redis.slot(&spec.key);
        if !redis.is_ready(slot, Durability::Local) {
            let gone = async {
                match caller {
                    Some(caller) => caller.gone().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = redis.ready(slot, Durability::Local) => {}
                () = gone => {}
                () = self.ended.cancelled() => return Err(Error::Closed),
            }
        }
        if caller.is_some_and(Caller::is_gone) {
            return Err(self.no_answer(spec, NO_ANSWER));
        }
        let sent = Instant::now();
        let answer = self.batcher.run(request.clone(), Durability::Local).await;
        let answer = answer.and_then(|answered| {
            let outcome = answered.reply.outcome();
            outcome.map_err(CallError::Refused)
        });
        Ok((sent, answer))
    }

    fn no_answer(&self, spec: &SyncSpec, reason: impl Into<String>) -> Error {
        let redis = self.batcher.redis();
        let trouble = redis.trouble(redis.slot(&spec.key), Durability::Local);
        Error::unavailable_by(reason, trouble)
    }
}

const NO_ANSWER: &str =
    "the server did not answer in time; the operation goes on in the background";
const NO_REPLY: &str = "the server did not answer in time";

fn unexpected_answer(outcome: Outcome) -> Error {
    Error::Redis {
        message: format!("the script returned an unknown reply: {outcome:?}"),
    }
}
