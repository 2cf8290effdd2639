//! A wait for permits or for an opening: ask, join the waiters, subscribe, ask again, wait for a
//! notification.

use std::sync::Arc;

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    super::{
        CallError, Engine,
        detach::{Caller, DetachOnDrop},
        request::Deadline,
        runtime,
    },
    Synchronizers,
    remaining::Remaining,
    waiters::{State, WaiterId, Waiters, Wanted},
};
use crate::{
    error::{Error, NO_ANSWER},
    redis::BoxFuture,
    sync::MutexGuard,
    wire::sync_spec::SyncSpec,
};

/// The outcome of an attempt.
pub(super) enum AttemptOutcome<T> {
    Granted(T, Remaining),
    Busy(Remaining),
    Unanswered { reason: String },
}

/// A waiter, from its join to its leave.
pub(super) struct Waiting<'a> {
    engine: &'a Arc<Engine>,
    spec: &'a Arc<SyncSpec>,
    id: WaiterId,
    signal: Arc<Notify>,
    /// Completes when the subscription is confirmed.
    subscribed: Option<BoxFuture<Result<(), CallError>>>,
}

impl<'a> Waiting<'a> {
    pub(super) fn begin(engine: &'a Arc<Engine>, spec: &'a Arc<SyncSpec>, wanted: Wanted) -> Self {
        Self::join(engine, spec, wanted, engine.synchronizers.waiters(), false)
    }

    /// Joins behind waiters that wait for no more permits, if there are any.
    pub(super) fn begin_behind(
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
        let synchronizers = &engine.synchronizers;
        let signal = Arc::new(Notify::new());
        let id = waiters.join(spec, wanted, behind, signal.clone(), Instant::now());
        // Called under the mutex, as is the end of the last wait: the server receives subscriptions
        // and their ends in the order of joins and leaves.
        let subscribed = synchronizers.redis.subscribe(spec.channel.clone());
        drop(waiters);
        synchronizers.earlier.notify_one();
        synchronizers.begun.notify_one();
        Self {
            engine,
            spec,
            id,
            signal,
            subscribed: Some(subscribed),
        }
    }

    fn synchronizers(&self) -> &'a Synchronizers {
        &self.engine.synchronizers
    }

    /// Completes when the waiter must ask, or need not any more. Returns `None` at the deadline.
    pub(super) async fn notified(&mut self, deadline: Deadline) -> Option<State> {
        if let Some(subscribed) = self.subscribed.take() {
            let longest = deadline.earlier(Instant::now() + self.engine.config.max_poll_interval);
            let subscribed = self.engine.refusing.run_until_cancelled(subscribed);
            // If the subscription is refused or slow, polling has to do.
            let _ = timeout_at(longest, subscribed).await;
        }
        loop {
            let state = self.synchronizers().waiters().take(self.spec, self.id);
            if !matches!(state, State::Parked) || self.engine.refuses() {
                return Some(state);
            }
            let notified = self.signal.notified();
            match deadline {
                Deadline::Until(deadline) => timeout_at(deadline, notified).await.ok()?,
                _ => notified.await,
            }
        }
    }

    pub(super) fn begin_attempt(&self) {
        self.synchronizers()
            .waiters()
            .begin_attempt(self.spec, self.id);
    }

    pub(super) fn record_refusal(&self, rest: Remaining) {
        self.synchronizers().change(self.spec, |waiters| {
            waiters.record_refusal(self.spec, self.id, rest.end, Instant::now());
            waiters.record_left(self.spec, rest.left, rest.end, Instant::now());
        });
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let synchronizers = self.synchronizers();
        let left = synchronizers.change(self.spec, |waiters| {
            let left = waiters.leave(self.spec, self.id, Instant::now());
            if left.is_last {
                synchronizers.redis.unsubscribe(self.spec.channel.clone());
            }
            left
        });
        if let Some((permits, hand_off_until)) = left.given {
            drop(self.engine.permit_guard(self.spec, permits, hand_off_until));
        }
    }
}

impl Engine {
    /// Runs the acquire loop of both kinds of semaphores.
    pub(super) async fn acquire_by<T, F>(
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
        let synchronizers = &self.synchronizers;
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
            self.check_accepts()?;
            // A closing client waits until permits that were granted meanwhile are given back.
            let _closing = self.tasks.token();
            let caller = Caller::default();
            let (until, attempt) = (self.answer_deadline(deadline), try_once(caller.clone()));
            let outcome = match DetachOnDrop::new(self, until, caller.clone(), attempt).await {
                Some(outcome) => outcome.map_err(|error| self.explained(error))?,
                None => AttemptOutcome::Unanswered {
                    reason: caller.reason().unwrap_or_else(|| NO_ANSWER.into()),
                },
            };
            match (outcome, &waiting) {
                (AttemptOutcome::Granted(..), _) if self.is_closed() => {
                    return Err(self.closed_error());
                }
                (AttemptOutcome::Granted(held, rest), waiting) => {
                    if let Some(waiting) = waiting {
                        synchronizers.waiters().mark_served(spec, waiting.id);
                    }
                    synchronizers.record_answer(spec, rest);
                    return Ok(Some(held));
                }
                (AttemptOutcome::Busy(_), None) if !waits => return Ok(None),
                (AttemptOutcome::Busy(rest), None) => {
                    self.warn_of_missing_permits(spec, wanted, rest);
                    was_busy = true;
                    waiting = Some(Waiting::begin(self, spec, wanted));
                }
                (AttemptOutcome::Busy(rest), Some(waiting)) => {
                    self.warn_of_missing_permits(spec, wanted, rest);
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
}
