//! The one loop that takes a lock, for every kind: try, subscribe, try again, wait, try again.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Engine,
    attempt::{AttemptOutcome, History},
    fair_queue::FairQueueEntry,
    pause::Pause,
    release::Held,
    request::{AcquireRequest, Deadline},
    row::{Admission, LocalEntry},
    runtime,
};
use crate::error::Error;

/// How long after its caller's deadline an answer that is on its way is still awaited: a lock that was granted at the
/// last moment is not reported as busy (P-A12).
const GRACE: Duration = Duration::from_millis(100);

/// The tries of one wait. The script of a fair lock is sent the time since the last one.
struct AttemptHistory {
    last: Option<Instant>,
    nudged: Option<Instant>,
    /// How often the connection had been replaced at the last try.
    reconnections: u64,
}

impl AttemptHistory {
    fn new(engine: &Engine) -> Self {
        Self {
            last: None,
            nudged: None,
            reconnections: engine.wakeups.reconnections(),
        }
    }

    /// The next try begins. Once per poll floor it also has the script notify the head of the queue.
    fn next(&mut self, engine: &Engine) -> History {
        let now = Instant::now();
        let nudge = self
            .nudged
            .is_none_or(|last| now >= last + engine.config.poll_floor);
        if nudge {
            self.nudged = Some(now);
        }
        let reconnections = engine.wakeups.reconnections();
        // On another connection there may be another server, which knows nothing of the last try.
        let last = self.last.replace(now);
        let last = last.filter(|_| self.reconnections == reconnections);
        self.reconnections = reconnections;
        History { last, nudge }
    }
}

impl Engine {
    /// Takes the lock. Returns `None` if it was still taken at the deadline.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn stores its arguments twice, and every waiting task has one"
    )]
    pub(crate) fn acquire<'a>(
        self: &'a Arc<Self>,
        request: &'a AcquireRequest,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Option<Held>, Error>> + Send + use<'a> {
        async move {
            runtime::check()?;
            if self.shares(request)
                && let Some(held) = Box::pin(self.join_in_turn(request)).await
            {
                self.entered(&held);
                return Ok(Some(held));
            }
            let waits = !matches!(deadline, Deadline::Once);
            let until = deadline.earlier(Instant::now() + self.config.command_wait);
            if let Some(released) = self.dropped.released(&request.spec.name, until)
                && !released.await
                && !waits
            {
                let reason = "the release of a dropped guard was not answered in time";
                return Err(self.unavailable(&request.spec, reason));
            }
            // What a waiting task stores is small, or boxed: see docs/benchmarks.md, memory per waiting task.
            let mut local_entry = None;
            let (mut in_line, mut pause, mut tries) = (None, None, None);
            let (mut enters, mut rests, mut has_asked, mut was_busy) = (waits, true, false, false);
            loop {
                if enters && self.enter_row(request, &mut local_entry)? {
                    let turn = self.wait_for_turn(request, &mut local_entry, &deadline);
                    match turn.await? {
                        Admission::Asks => {}
                        Admission::Adds => local_entry = None,
                        Admission::Has(held) => return Ok(Some(held)),
                        Admission::TimedOut => return Ok(None),
                    }
                }
                if enters && !has_asked {
                    if let Some(left) = self.leaves_to_pollers(request, deadline) {
                        left.await;
                    }
                    in_line = FairQueueEntry::enter(self, request);
                    pause = Pause::before(self, request, local_entry.as_ref());
                    let counts = request.spec.counts_tries();
                    tries = counts.then(|| Box::new(AttemptHistory::new(self)));
                    was_busy = local_entry.as_ref().is_some_and(LocalEntry::has_waited);
                }
                enters = false;
                if let Some(pause) = &mut pause
                    && rests
                {
                    // A closing client notifies the waiters that are registered; a later one sees here that the client has closed.
                    let is_time =
                        self.is_closed() || pause.over(self, local_entry.as_ref(), deadline).await;
                    if self.is_closed() {
                        return Err(Error::Closed);
                    }
                    if !is_time {
                        if !has_asked && !self.batcher.is_ready(&request.spec) {
                            let reason = "there is no connection, and the lock was not asked for";
                            return Err(self.unavailable(&request.spec, reason));
                        }
                        return Ok(None);
                    }
                }
                // It was woken by a release that is not of this client: a tenure of its own may have been forced open.
                if has_asked && let Some(tenure) = local_entry.as_ref().and_then(LocalEntry::tenure)
                {
                    self.verify(vec![tenure]);
                }
                if self.batcher.is_crowded() {
                    let limit = self.answer_deadline(deadline);
                    Box::pin(self.batcher.lets_answers_come(limit)).await;
                }
                pause.iter().for_each(|pause| pause.trying());
                if let Some(local_entry) = &local_entry {
                    local_entry.asks();
                }
                let next = tries.as_mut().map(|tries| tries.next(self));
                has_asked = true;
                let tried = match self.shares(request) {
                    true => Box::pin(self.read_along(request, deadline, next)).await,
                    false => {
                        let until = self.answer_deadline(deadline);
                        self.try_until(request, until, next, None).await
                    }
                };
                let tried = tried.inspect_err(|error| {
                    if let Some(local_entry) = &mut local_entry {
                        local_entry.failed(error);
                    }
                });
                match (tried?, &mut pause) {
                    (AttemptOutcome::Granted(held), pause) => {
                        match pause {
                            Some(pause) => pause.granted(held.tenure().valid_until()),
                            None => self.entered(&held),
                        }
                        if let Some(in_line) = in_line {
                            in_line.served();
                        }
                        return Ok(Some(held));
                    }
                    (AttemptOutcome::Busy { .. }, None) if !waits => return Ok(None),
                    // It has asked out of turn, as its owner had the lock, or has taken too long: it waits as all do.
                    (AttemptOutcome::Busy { .. }, _)
                        if request.spec.has_one_holder()
                            && !local_entry.as_ref().is_some_and(LocalEntry::has_turn) =>
                    {
                        (pause, local_entry) = (None, None);
                        (enters, was_busy, rests) = (true, true, true);
                    }
                    (AttemptOutcome::Busy { remaining }, None) => {
                        was_busy = true;
                        pause = Some(Pause::begin(self, request, local_entry.as_ref(), remaining));
                    }
                    (AttemptOutcome::Busy { remaining }, Some(pause)) => {
                        was_busy = true;
                        rests = !pause.refused(remaining) || deadline.is_over();
                    }
                    // It was busy when last heard of.
                    (AttemptOutcome::Unanswered { .. }, Some(_))
                        if was_busy && deadline.is_over() =>
                    {
                        return Ok(None);
                    }
                    (AttemptOutcome::Unanswered { reason }, _) => {
                        let error = self.unavailable(&request.spec, reason);
                        if let Some(local_entry) = &mut local_entry {
                            local_entry.failed(&error);
                        }
                        return Err(error);
                    }
                }
            }
        }
    }

    /// A lock was taken without a wait. Another branch of the same task may wait for it.
    pub(super) fn entered(&self, held: &Held) {
        if self.wakeups.is_awaited() {
            let tenure = held.tenure();
            let spec = &tenure.spec;
            let listens = spec.protocol.listens_at(spec, &tenure.slot().owner);
            self.wakeups.entered(&listens, held.owner());
        }
    }

    /// Until when an answer is waited for: as long as the caller's deadline and the settings for an unreachable server allow.
    pub(super) fn answer_deadline(&self, deadline: Deadline) -> Instant {
        let now = Instant::now();
        match deadline {
            Deadline::Once => now + self.config.command_wait,
            Deadline::Until(deadline) => {
                (deadline.max(now) + GRACE).min(now + self.config.outage_wait)
            }
            Deadline::Never => now + self.config.outage_wait,
        }
    }
}
