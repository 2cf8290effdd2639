//! The acquire loop, which is the same for every kind of lock.
//!
//! The first attempt is sent at once. A refused waiter subscribes, waits for the confirmation, and
//! tries again, because the lock may have been released before. From then on it waits for a
//! notification before each attempt (invariant 5). [`Pause`] is the wait between two attempts: for
//! a notification, or for a spin lock the back-off.
//!
//! The asker alone asks for a lock with a local queue ([`local_lock`](super::local_lock)).
//! The loop therefore begins with the wait in the queue, and returns there if the task is refused
//! while another one is the asker.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Engine,
    attempt::{AttemptOutcome, PriorAttempt},
    fair_queue::FairQueueEntry,
    hold_guard::HoldGuard,
    local_wait::{Admission, LocalEntry},
    pause::Pause,
    request::{AcquireRequest, Deadline},
    runtime,
    time_limits::LATE_GRANT_WAIT,
};
use crate::{
    durability::Durability,
    error::{Error, NO_ANSWER, NO_CONNECTION},
};

/// The attempts of one wait. An attempt at a fair lock sends the time since the previous one.
struct AttemptHistory {
    last: Option<Instant>,
    /// The time of the last attempt that made the script notify the head of the queue.
    head_notified: Option<Instant>,
    /// The number of reconnections at the last attempt.
    reconnections: u64,
}

impl AttemptHistory {
    fn new(engine: &Engine) -> Self {
        Self {
            last: None,
            head_notified: None,
            reconnections: engine.wakeups.reconnections(),
        }
    }

    /// Begins the next attempt. Once per poll interval, it also makes the script notify the head of
    /// the queue.
    fn next(&mut self, engine: &Engine) -> PriorAttempt {
        let now = Instant::now();
        let notify_head = self
            .head_notified
            .is_none_or(|last| now >= last + engine.config.max_poll_interval);
        if notify_head {
            self.head_notified = Some(now);
        }
        let reconnections = engine.wakeups.reconnections();
        // After a reconnection, the server may be another one, which does not know the last
        // attempt.
        let last = self.last.replace(now);
        let last = last.filter(|_| self.reconnections == reconnections);
        self.reconnections = reconnections;
        PriorAttempt { last, notify_head }
    }
}

/// One call of a task that wants a lock. Every waiting task stores one, so its fields are small or
/// boxed (docs/benchmarks.md, memory per waiting task).
struct Acquisition<'a> {
    engine: &'a Arc<Engine>,
    request: &'a AcquireRequest,
    deadline: Deadline,
    /// The task's entry in the local queue, for a lock that has one.
    local_entry: Option<LocalEntry>,
    /// The task's entry in a fair queue on the server.
    queued: Option<Box<FairQueueEntry>>,
    /// The wait between two attempts. Made at the first refusal, or at the start if a yield is due.
    pause: Option<Box<Pause>>,
    attempts: Option<Box<AttemptHistory>>,
    next: Next,
    has_asked: bool,
    /// Another owner held the lock when this client last heard of it.
    was_busy: bool,
}

/// The next step of an acquisition.
enum Next {
    /// Enter the local queue, if the lock has one.
    Enqueue,
    /// Pause before an attempt.
    Pause,
    Attempt,
}

/// Whether an acquisition goes on, or ends with a hold or without one.
type Flow = ControlFlow<Option<HoldGuard>>;

impl Acquisition<'_> {
    async fn run(&mut self) -> Result<Option<HoldGuard>, Error> {
        runtime::check()?;
        if self.engine.may_share(self.request)
            && let Some(hold) = Box::pin(self.engine.join_in_turn(self.request)).await
        {
            self.engine.notify_waiters_of_owner(&hold);
            return Ok(Some(hold));
        }
        self.wait_for_dropped_guards().await?;
        loop {
            let flow = match self.next {
                Next::Enqueue => self.enter().await?,
                Next::Pause => self.wait_for_next_attempt().await?,
                Next::Attempt => {
                    let outcome = self.attempt().await.inspect_err(|error| {
                        if let Some(local_entry) = &mut self.local_entry {
                            local_entry.record_failure(error);
                        }
                    });
                    let outcome = outcome?;
                    if self.asks_for_job(&outcome)
                        // Boxed, because it is rare and large.
                        && Box::pin(self.engine.is_job_done(&self.request.spec)).await
                    {
                        return Ok(None);
                    }
                    self.after_attempt(outcome)?
                }
            };
            if let Flow::Break(done) = flow {
                return Ok(done);
            }
        }
    }

    /// Waits for the releases of the client's dropped guards of this lock. If they are not answered
    /// in time, a call that does not wait for the lock fails, and a waiter goes on.
    async fn wait_for_dropped_guards(&mut self) -> Result<(), Error> {
        // The clock is not read in the usual case.
        if self.engine.dropped.is_empty() {
            return Ok(());
        }
        let name = &self.request.spec.name;
        let until = (self.deadline).earlier(Instant::now() + self.engine.config.command_wait);
        if let Some(released) = self.engine.dropped.wait_for(name, until)
            && !released.await
            && !self.deadline.waits()
        {
            let engine = self.engine;
            return Err(engine.unavailable(&self.request.spec, Durability::Local, NO_ANSWER));
        }
        Ok(())
    }

    /// Waits in the local queue until the task may ask the server.
    async fn enter(&mut self) -> Result<Flow, Error> {
        // A statement of its own, so that the future does not store the result.
        let entry = (self.engine).enter_queue(self.request, &mut self.local_entry)?;
        if let Some(entry) = entry {
            let turn = (self.engine).wait_in_queue(self.request, entry, &self.deadline);
            match turn.await? {
                Admission::Ask => {}
                Admission::Reenter => self.local_entry = None,
                Admission::Acquired(hold) => return Ok(Flow::Break(Some(hold))),
                Admission::TimedOut => return Ok(Flow::Break(None)),
            }
        }
        if !self.has_asked {
            self.prepare().await;
        }
        self.next = match self.pause {
            Some(_) => Next::Pause,
            None => Next::Attempt,
        };
        Ok(Flow::Continue(()))
    }

    /// Prepares the first attempt. If a yield to polling clients is due, waits for its end first.
    async fn prepare(&mut self) {
        if let Some(left) = (self.engine).yield_to_pollers(self.request, self.deadline) {
            left.await;
        }
        let (engine, request) = (self.engine, self.request);
        self.queued = FairQueueEntry::enter(engine, request);
        self.pause = Pause::before(engine, request, self.local_entry.as_ref());
        let counts = request.spec.counts_attempts();
        self.attempts = counts.then(|| Box::new(AttemptHistory::new(engine)));
        self.was_busy = (self.local_entry.as_ref()).is_some_and(LocalEntry::has_waited);
    }

    /// Waits until the next attempt is due.
    async fn wait_for_next_attempt(&mut self) -> Result<Flow, Error> {
        self.next = Next::Attempt;
        let (engine, local_entry) = (self.engine, self.local_entry.as_ref());
        let Some(pause) = &mut self.pause else {
            return Ok(Flow::Continue(()));
        };
        // A closing client notifies the waiters that are registered; a later one sees here that the client has closed.
        let is_time = engine.refuses()
            || pause
                .wait_for_next_attempt(engine, local_entry, self.deadline)
                .await;
        if engine.refuses() {
            return Err(engine.closed_error());
        }
        if is_time {
            return Ok(Flow::Continue(()));
        }
        match self.has_asked || engine.batcher.is_ready(&self.request.spec) {
            true => Ok(Flow::Break(None)),
            false => {
                Err(engine.unavailable(&self.request.spec, self.request.durability, NO_CONNECTION))
            }
        }
    }

    /// Makes one attempt at the server, or joins another reader of the client.
    async fn attempt(&mut self) -> Result<AttemptOutcome, Error> {
        let (engine, request) = (self.engine, self.request);
        // Another client's release woke the asker although this client has the lock: a forced unlock may have ended the tenure.
        if self.has_asked
            && let Some(tenure) = self.local_entry.as_ref().and_then(LocalEntry::tenure)
        {
            engine.verify(vec![tenure]);
        }
        let until = engine.answer_deadline(self.deadline);
        let load = engine.batcher.load();
        if load.is_crowded() {
            Box::pin(load.wait_for_capacity(until)).await;
        }
        if let Some(pause) = &self.pause {
            pause.begin_attempt();
        }
        if let Some(local_entry) = &self.local_entry {
            local_entry.begin_attempt();
        }
        let attempts = self.attempts.as_mut();
        let next = attempts.map(|attempts| attempts.next(engine));
        self.has_asked = true;
        match engine.may_share(request) {
            true => Box::pin(engine.try_shared(request, self.deadline, until, next)).await,
            false => {
                let local = self.local_entry.as_ref().map(LocalEntry::local);
                engine.try_until(request, local, until, next).await
            }
        }
    }

    /// Whether a refusal may end the wait, because the job of the lock is done.
    fn asks_for_job(&self, outcome: &AttemptOutcome) -> bool {
        let is_busy = matches!(outcome, AttemptOutcome::Busy { .. });
        is_busy && self.request.ends_when_done && self.deadline.waits()
    }

    /// Decides what comes after an attempt.
    fn after_attempt(&mut self, outcome: AttemptOutcome) -> Result<Flow, Error> {
        match outcome {
            AttemptOutcome::Granted(hold) => {
                match &mut self.pause {
                    Some(pause) => pause.record_grant(hold.tenure()),
                    None => self.engine.notify_waiters_of_owner(&hold),
                }
                if let Some(queued) = self.queued.take() {
                    queued.disarm();
                }
                Ok(Flow::Break(Some(hold)))
            }
            AttemptOutcome::Busy { remaining } => Ok(self.after_refusal(remaining)),
            // The last reply was a refusal: the wait times out without an error.
            AttemptOutcome::Unanswered { .. }
                if self.pause.is_some() && self.was_busy && self.deadline.is_over() =>
            {
                Ok(Flow::Break(None))
            }
            AttemptOutcome::Unanswered { reason } => {
                let (engine, request) = (self.engine, self.request);
                // The attempt may have waited for a release of the same owner.
                let entry = engine.owner_entry(&request.spec, request.owner);
                let reason = match entry.refused_release() {
                    Some(refused) => format!("a release is refused: {}", refused.cause()),
                    None => reason,
                };
                let error = engine.unavailable(&request.spec, request.durability, reason);
                if let Some(local_entry) = &mut self.local_entry {
                    local_entry.record_failure(&error);
                }
                Err(error)
            }
        }
    }

    fn after_refusal(&mut self, remaining: Option<Duration>) -> Flow {
        if self.pause.is_none() && !self.deadline.waits() {
            return Flow::Break(None);
        }
        self.was_busy = true;
        let is_asker = self.local_entry.as_ref().is_some_and(LocalEntry::is_asker);
        if self.request.spec.has_local_queue() && !is_asker {
            // The task is not the asker: its owner had the lock, or another waiter has become the asker meanwhile. It enqueues again.
            (self.pause, self.local_entry) = (None, None);
            self.next = Next::Enqueue;
            return Flow::Continue(());
        }
        self.next = Next::Pause;
        match &mut self.pause {
            Some(pause) => {
                if pause.record_refusal(remaining) && !self.deadline.is_over() {
                    self.next = Next::Attempt;
                }
            }
            pause @ None => {
                let (request, entry) = (self.request, self.local_entry.as_ref());
                *pause = Some(Pause::begin(self.engine, request, entry, remaining));
            }
        }
        Flow::Continue(())
    }
}

impl Engine {
    /// Acquires the lock. Returns `None` if another owner still had it at the deadline.
    pub(crate) fn acquire<'a>(
        self: &'a Arc<Self>,
        request: &'a AcquireRequest,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Option<HoldGuard>, Error>> + Send + use<'a> {
        let mut acquisition = Acquisition {
            engine: self,
            request,
            deadline,
            local_entry: None,
            queued: None,
            pause: None,
            attempts: None,
            next: match deadline.waits() {
                true => Next::Enqueue,
                false => Next::Attempt,
            },
            has_asked: false,
            was_busy: false,
        };
        async move { acquisition.run().await }
    }
}

impl Engine {
    /// Notifies other waiters of the holder's owner, such as a branch of the same task: they re-enter.
    pub(super) fn notify_waiters_of_owner(&self, hold: &HoldGuard) {
        if self.wakeups.is_awaited() {
            let tenure = hold.tenure();
            let spec = &tenure.spec;
            let listens = spec.protocol.listens_at(spec, &tenure.entry().field);
            self.wakeups.notify_waiters_of_owner(&listens, hold.owner());
        }
    }

    /// The time until which an attempt waits for its answer: the caller's deadline and [`LATE_GRANT_WAIT`],
    /// bounded by `outage_wait`. A call that does not wait for the lock has `command_wait`.
    pub(super) fn answer_deadline(&self, deadline: Deadline) -> Instant {
        let now = Instant::now();
        match deadline {
            Deadline::Once => now + self.config.command_wait,
            Deadline::Until(deadline) => {
                (deadline.max(now) + LATE_GRANT_WAIT).min(now + self.config.outage_wait)
            }
            Deadline::Never => now + self.config.outage_wait,
        }
    }
}
