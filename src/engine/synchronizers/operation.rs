//! Requests of semaphores and latches: their repetition, and their end in the background.

use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use super::{
    super::{
        CallError, Engine, Request,
        attempt::no_messages,
        detach::{Caller, DetachOnDrop},
        retry::Retry,
        runtime,
    },
    attempts::Ongoing,
    remaining::Remaining,
};
use crate::{
    durability::Durability,
    error::{Cause, Error, NO_ANSWER},
    sync::lock,
    timers,
    wire::{
        Refusal,
        reply::{Detail, Outcome},
        sync_spec::{Attempt, SyncSpec},
    },
};

/// What follows for the caller from an operation without an answer.
const CONTINUES: &str = "the operation goes on in the background";
/// The reason behind the words of the server.
const REFUSED: &str = "the server refuses the operation, which goes on in the background";
const FORGOTTEN: &str = "the server forgets soon whether it executed the operation: check the count before a repetition";

/// The answer to a request.
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// The time before the first sending that the server may have executed.
    pub(super) sent: Instant,
}

/// The error for the server's last answer, if that was a refusal.
type LastRefusal = Mutex<Option<Error>>;

/// A request that is completed once it has begun, whatever becomes of its task.
struct Operation {
    engine: Arc<Engine>,
    spec: Arc<SyncSpec>,
    request: Request,
    sendings: Sendings,
    /// Whether it releases permits. If the runtime's end takes its connection, nothing else would
    /// release them.
    gives_back: bool,
    /// Gone when no caller waits for the result.
    caller: Weak<LastRefusal>,
    is_over: bool,
    ongoing: Ongoing,
}

impl Operation {
    fn new(
        engine: &Arc<Engine>,
        spec: &Arc<SyncSpec>,
        request: impl FnOnce(&Attempt) -> Request,
    ) -> Self {
        let ongoing = engine.synchronizers.attempts.begin();
        let request = request(&ongoing.attempt);
        Self::of(engine, spec, request, ongoing)
    }

    fn of(engine: &Arc<Engine>, spec: &Arc<SyncSpec>, request: Request, ongoing: Ongoing) -> Self {
        let longest_doubt = engine.synchronizers.attempts.longest_doubt();
        Self {
            engine: engine.clone(),
            spec: spec.clone(),
            request,
            sendings: Sendings {
                retry: Retry::of_release(),
                ..Sendings::new(Some(longest_doubt))
            },
            gives_back: false,
            caller: Weak::new(),
            is_over: false,
            ongoing,
        }
    }

    fn giving_back(mut self, what: GivenBack) -> Self {
        self.gives_back = true;
        let outage = self.engine.config.outage_wait;
        let (longest_doubt, longest_refused) = match what {
            GivenBack::Number => (self.sendings.longest_doubt, outage),
            GivenBack::NumberOfGuard => (self.sendings.longest_doubt, Duration::MAX),
            GivenBack::Ids => (None, outage),
            GivenBack::IdOfGuard { lasts } => (None, lasts.max(outage)),
        };
        self.sendings.longest_doubt = longest_doubt;
        self.sendings.longest_refused = longest_refused;
        self
    }

    async fn run(mut self) -> Result<Outcome, Error> {
        let (engine, spec) = (&self.engine, &self.spec);
        let sendings = &mut self.sendings;
        let (request, caller) = (&self.request, &self.caller);
        let answered = engine.until_answered_or_given_up(spec, request, sendings, caller);
        let answered = answered.await;
        // The runtime may be ending, and the connection may have ended before this task. The drop
        // then adds a final request.
        self.is_over = !self.gives_back || answered != Err(Error::Closed);
        match &answered {
            Ok(Outcome::Done(Detail::Number(left))) if self.gives_back => {
                let left = Remaining::plain(*left);
                engine.synchronizers.record_answer(spec, left);
            }
            Err(error) if self.gives_back && self.is_over && self.caller.strong_count() == 0 => {
                engine.log_unreleased(spec, error);
            }
            _ => {}
        }
        answered
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.sendings.may_be_forgotten() {
            let error = self
                .engine
                .no_answer(&self.spec, NO_ANSWER)
                .with_note(FORGOTTEN);
            self.engine.log_unreleased(&self.spec, &error);
            return;
        }
        self.ongoing.sent_later();
        if !self.engine.add_final_request(self.request.clone()) {
            self.engine
                .log_unreleased(&self.spec, &self.engine.closed_error());
        }
    }
}

/// What a release of permits names.
pub(super) enum GivenBack {
    /// A number: a repetition that the server does not recognise would add it again.
    Number,
    /// The same for permits of a guard, which no other call can release.
    NumberOfGuard,
    /// Ids: a repetition finds them gone.
    Ids,
    /// The id of a guard, whose permit lasts for this long.
    IdOfGuard { lasts: Duration },
}

/// The sendings of a request. The server knows an attempt for longer than the `longest_doubt`: a
/// repetition after that would be executed again. `None` for a request that may be.
pub(super) struct Sendings {
    retry: Retry,
    longest_doubt: Option<Duration>,
    /// How long the server may refuse the request, except in words of a failover or a start.
    longest_refused: Duration,
    /// When the first sending began. It may have waited for a batch since then.
    begun: Option<Instant>,
}

impl Sendings {
    fn new(longest_doubt: Option<Duration>) -> Self {
        Self {
            retry: Retry::default(),
            longest_doubt,
            longest_refused: Duration::ZERO,
            begun: None,
        }
    }

    /// The end of the time for repetitions. `None` if no sending is in doubt.
    fn repeated_until(&self) -> Option<Instant> {
        Some(self.retry.in_doubt_since()? + self.longest_doubt?)
    }

    async fn not_repeated_any_more(&self) {
        match self.repeated_until() {
            Some(until) => timers::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    /// Whether the server may have forgotten that it executed the request, for all that this client
    /// knows without the answer that it waits for.
    fn may_be_forgotten(&self) -> bool {
        let since = self.retry.in_doubt_since().or(self.begun);
        let longest = since.zip(self.longest_doubt);
        longest.is_some_and(|(since, longest)| since.elapsed() >= longest)
    }
}

impl Engine {
    /// Runs a request until it is answered, in the background if the caller goes. `request` gets an
    /// attempt, by which the server recognises a repetition.
    pub(crate) async fn run_operation(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        request: impl FnOnce(&Attempt) -> Request,
    ) -> Result<Option<Detail>, Error> {
        self.check_open()?;
        runtime::check()?;
        self.run_detached(Operation::new(self, spec, request)).await
    }

    /// As [`run_operation`](Self::run_operation), for a request that releases permits. In a client that is closed meanwhile, it ends
    /// in a final request.
    pub(super) async fn run_release_of_permits(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        what: GivenBack,
        request: impl FnOnce(&Attempt) -> Request,
    ) -> Result<Option<Detail>, Error> {
        runtime::check()?;
        let operation = Operation::new(self, spec, request).giving_back(what);
        self.run_detached(operation).await
    }

    async fn run_detached(
        self: &Arc<Self>,
        mut operation: Operation,
    ) -> Result<Option<Detail>, Error> {
        let spec = operation.spec.clone();
        let caller = Arc::<LastRefusal>::default();
        operation.caller = Arc::downgrade(&caller);
        let until = Instant::now() + self.config.command_wait;
        match DetachOnDrop::always(self, until, operation.run()).await {
            Some(Ok(Outcome::Done(detail))) => Ok(Some(detail)),
            Some(Ok(_)) => Ok(None),
            Some(Err(error)) => Err(self.explained(error)),
            None => {
                let refused = lock(&caller).take();
                Err(match refused {
                    // The server may still execute it: the caller must not take the words for the end.
                    Some(Error::Redis { message }) => {
                        Error::unavailable_by(REFUSED, Some(Arc::new(Cause::server(&*message))))
                    }
                    Some(error) => error,
                    None => self.no_answer(&spec, NO_ANSWER).with_note(CONTINUES),
                })
            }
        }
    }

    /// Runs a request that changes nothing the second time.
    pub(crate) async fn run_query(
        self: &Arc<Self>,
        spec: &SyncSpec,
        request: Request,
    ) -> Result<Option<Detail>, Error> {
        runtime::check()?;
        self.check_open()?;
        let caller = Caller::default();
        let answer = self.until_answered(spec, request, Some(&caller), None);
        let answer = timeout_at(Instant::now() + self.config.command_wait, answer).await;
        match answer.map(|answer| answer.map(|answer| answer.outcome)) {
            Ok(Ok(Outcome::Done(detail))) => Ok(Some(detail)),
            Ok(Ok(_)) => Ok(None),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.no_reply(spec, &caller)),
        }
    }

    /// Queues the release of dropped permits.
    pub(super) fn give_back_permits(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        what: GivenBack,
        request: impl FnOnce(&Attempt) -> Request,
    ) {
        let released = Operation::new(self, spec, request).giving_back(what).run();
        // If there is no release task any more, the drop of the operation adds a final request.
        let _: bool = self.jobs.push(async move { drop(released.await) });
    }

    /// As [`give_back_permits`](Self::give_back_permits), and waits for the answer. A failure is
    /// logged.
    #[cfg(feature = "blocking")]
    pub(super) async fn give_back_permits_now(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        what: GivenBack,
        request: impl FnOnce(&Attempt) -> Request,
    ) {
        let released = Operation::new(self, spec, request).giving_back(what).run();
        let until = Instant::now() + self.config.command_wait;
        drop(DetachOnDrop::always(self, until, released).await);
    }

    fn log_unreleased(&self, spec: &SyncSpec, error: &Error) {
        let name = &spec.name;
        match self.log_limits.failed_releases.may_log_about(error) {
            Some(suppressed) => {
                tracing::warn!(%name, %error, suppressed, "permits were not given back")
            }
            None => tracing::debug!(%name, %error, "permits were not given back"),
        }
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        match self.is_closed() {
            true => Err(self.closed_error()),
            false => Ok(()),
        }
    }

    /// As [`check_open`](Self::check_open), for what a client that begins to shut down refuses.
    pub(crate) fn check_accepts(&self) -> Result<(), Error> {
        match self.refuses() {
            true => Err(self.closed_error()),
            false => Ok(()),
        }
    }

    /// Checks that scripts may publish: otherwise the server would refuse the release of what is
    /// acquired.
    pub(super) async fn may_announce(&self, spec: &SyncSpec) -> Result<(), Error> {
        let redis = self.batcher.redis();
        if let Some(asking) = redis.refused_message(&spec.key, &spec.channel)
            && let Some(words) = asking.await
        {
            return Err(no_messages(&spec.channel, &words));
        }
        Ok(())
    }

    /// Sends a request until it is answered. Before the first sending, a caller that has gone ends
    /// it. A request that must not be executed twice has a `longest_doubt`.
    pub(super) async fn until_answered(
        &self,
        spec: &SyncSpec,
        request: Request,
        caller: Option<&Caller>,
        longest_doubt: Option<Duration>,
    ) -> Result<Answer, Error> {
        let mut sendings = Sendings::new(longest_doubt);
        loop {
            let caller_before = caller.filter(|_| !sendings.retry.is_in_doubt());
            let sending = self.send_when_ready(spec, &request, caller_before, &mut sendings);
            let answer = sending.await.inspect_err(|error| {
                // Permits of an attempt in doubt may be acquired, and no caller releases them.
                if sendings.repeated_until().is_some() {
                    self.log_unreleased(spec, error);
                }
            })?;
            match answer {
                Ok(Answer { outcome, sent }) => {
                    let sent = sendings.retry.in_doubt_since().unwrap_or(sent);
                    return Ok(Answer { outcome, sent });
                }
                Err(error) => {
                    let again = sendings.retry.again(&spec.name, error)?;
                    caller
                        .into_iter()
                        .for_each(|caller| caller.set_reason(again.reason()));
                    again.pause().await;
                }
            }
        }
    }

    /// As [`until_answered`](Self::until_answered), for a release, which must not be executed twice.
    /// A request that is not in doubt waits for as long as the server cannot be reached. Without
    /// memory at the server, it waits for as long as an outage may take.
    async fn until_answered_or_given_up(
        &self,
        spec: &SyncSpec,
        request: &Request,
        sendings: &mut Sendings,
        caller: &Weak<LastRefusal>,
    ) -> Result<Outcome, Error> {
        let mut refused_since = None;
        loop {
            let sending = self.send_when_ready(spec, request, None, sendings);
            let error = match sending.await? {
                Ok(answer) => return Ok(answer.outcome),
                Err(error) => error,
            };
            let again = sendings.retry.again(&spec.name, error)?;
            let refusal = again.refusal();
            if let Some(refusal) = refusal.filter(|refusal| !refusal.is_of_failover()) {
                let since = *refused_since.get_or_insert_with(Instant::now);
                let may_pass = matches!(refusal, Refusal::Transient { .. })
                    || refusal.message().contains("OOM");
                let longest = match may_pass {
                    true => sendings.longest_refused.max(self.config.outage_wait),
                    false => sendings.longest_refused,
                };
                if since.elapsed() >= longest {
                    return Err(self.last_error(&spec.key, &spec.name, again));
                }
            }
            if let Some(caller) = caller.upgrade() {
                *lock(&caller) = again.refused_error(&spec.name);
            }
            self.log_repeated_release(&spec.name, &again);
            again.pause().await;
        }
    }

    /// Sends a request once there is a connection, unless the caller has gone before.
    async fn send_when_ready(
        &self,
        spec: &SyncSpec,
        request: &Request,
        caller: Option<&Caller>,
        sendings: &mut Sendings,
    ) -> Result<Result<Answer, CallError>, Error> {
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
                () = sendings.not_repeated_any_more() => {
                    return Err(self.no_answer(spec, NO_ANSWER).with_note(FORGOTTEN));
                }
                () = self.ended.cancelled() => return Err(Error::Closed),
            }
        }
        if caller.is_some_and(Caller::is_gone) {
            return Err(self.no_answer(spec, NO_ANSWER).with_note(CONTINUES));
        }
        let sent = Instant::now();
        sendings.begun.get_or_insert(sent);
        let answer = match sendings.repeated_until() {
            None => self.batcher.run(request.clone(), Durability::Local).await,
            // Not in a batch: the end of this future recalls a call that waits for a connection.
            Some(_) => {
                let repeated = self
                    .batcher
                    .run_batch(vec![request.clone()], Durability::Local);
                tokio::select! {
                    biased;
                    // The next connection reports that a call is unanswered, however late that is.
                    () = sendings.not_repeated_any_more() => {
                        return Err(self.no_answer(spec, NO_ANSWER).with_note(FORGOTTEN));
                    }
                    mut answers = repeated => answers.pop().unwrap_or(Err(CallError::Closed)),
                }
            }
        };
        Ok(answer.and_then(|answered| {
            let outcome = answered.reply.outcome().map_err(CallError::Refused)?;
            Ok(Answer { outcome, sent })
        }))
    }

    /// The error of a query without an answer in time: has the words of the server's last refusal, if there was one.
    pub(super) fn no_reply(&self, spec: &SyncSpec, caller: &Caller) -> Error {
        self.no_answer(spec, caller.reason().unwrap_or_else(|| NO_ANSWER.into()))
    }

    pub(super) fn no_answer(&self, spec: &SyncSpec, reason: impl Into<String>) -> Error {
        self.batcher
            .unavailable(&spec.key, Durability::Local, reason)
    }
}

pub(super) fn unexpected_answer(outcome: Outcome) -> Error {
    Error::Redis {
        message: format!("the script returned an unknown reply: {outcome:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the runtime's end, the client may not know that the sending it waits for was executed.
    #[tokio::test(start_paused = true)]
    async fn sending_without_an_answer_may_be_forgotten_after_the_longest_doubt() {
        let doubt = Duration::from_secs(60);
        let [mut sendings, mut of_ids] = [Some(doubt), None].map(Sendings::new);
        timers::sleep(doubt).await;
        assert!(!sendings.may_be_forgotten(), "nothing was sent");
        let now = Instant::now();
        (sendings.begun, of_ids.begun) = (Some(now), Some(now));
        assert!(!sendings.may_be_forgotten());
        timers::sleep(doubt).await;
        assert!(sendings.may_be_forgotten() && !of_ids.may_be_forgotten());
    }
}
