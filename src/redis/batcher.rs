//! The engine at the [dispatch](super::dispatch): a caller's future waits for the answer.
//!
//! At a low load, the future sends its operation at once and alone. At a higher load, its operation joins a batch.

use std::{future::poll_fn, sync::Arc, task::Poll};

use bytes::Bytes;
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    Answered, BoxFuture, CallError, HashSlot, Redis,
    dispatch::{BatchKey, Complete, Dispatch, batch_key, call::call_all, together},
    load::{CountedInLoad, Load},
};
use crate::{
    durability::Durability,
    error::{Error, NO_CONNECTION},
    gauges::Batches,
    wire::{LockSpec, Request, script::Operation},
};

/// Largest load of the client at which an operation is sent alone; also the limit per lane. A higher load is batched.
const MOST_ALONE: usize = 2;
/// Lone operations per lane that report when they are sent. A batch cannot report that moment.
const MOST_WITH_CALLBACK: usize = 8;

/// The way of every operation to Redis.
pub(crate) struct Batcher {
    dispatch: Dispatch<Asked>,
    load: Load,
    batches: Batches,
}

/// An operation whose caller waits for the answer, until it drops the receiver.
struct Asked {
    operation: Operation,
    answer: oneshot::Sender<Result<Answered, CallError>>,
}

impl Complete for Asked {
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn build(&mut self) -> Option<Operation> {
        self.is_wanted()
            .then(|| std::mem::take(&mut self.operation))
    }

    fn complete(self, answer: Result<Answered, CallError>) {
        let _ = self.answer.send(answer);
    }
}

impl Batcher {
    pub(crate) fn new(redis: Arc<dyn Redis>, runtime: Handle) -> Self {
        Self {
            dispatch: Dispatch::new(redis, runtime),
            load: Load::default(),
            batches: Batches::new(),
        }
    }

    pub(crate) fn redis(&self) -> &Arc<dyn Redis> {
        self.dispatch.redis()
    }

    /// Runs one operation, alone or in a batch.
    ///
    /// A drop of the future does not recall an operation that was sent.
    pub(crate) fn run(
        &self,
        request: Request,
        durability: Durability,
    ) -> impl Future<Output = Result<Answered, CallError>> {
        self.run_in_lane(request, durability, None::<fn()>)
    }

    /// As [`run`](Self::run). Calls `on_sent` once every later request is certain to follow this operation. Never calls it for a
    /// batched or unsent operation.
    pub(crate) fn run_with_callback<S: FnOnce()>(
        &self,
        request: Request,
        durability: Durability,
        on_sent: S,
    ) -> impl Future<Output = Result<Answered, CallError>> + use<'_, S> {
        self.run_in_lane(request, durability, Some(on_sent))
    }

    fn run_in_lane<S: FnOnce()>(
        &self,
        request: Request,
        durability: Durability,
        on_sent: Option<S>,
    ) -> impl Future<Output = Result<Answered, CallError>> + use<'_, S> {
        let slot = self.slot_of(&request);
        let lane = self.dispatch.lane(request.script, slot, durability);
        async move {
            let (_counted, load) = CountedInLoad::new(&self.load);
            let most_alone = match on_sent {
                _ if together::holds_back(self.redis()) => 0,
                // Operations that wait for replicas gather on their own connection.
                _ if durability.waits(self.redis().replicas(slot)) => usize::MAX,
                Some(_) => MOST_WITH_CALLBACK,
                None => self.most_alone(load),
            };
            let operation = request.parts;
            if let Some(_lone) = lane.begin_lone(most_alone) {
                self.batches.sent(1);
                let call = self
                    .redis()
                    .call(lane.script, Arc::new([operation]), durability);
                let mut replies = call_then(call, on_sent).await?;
                return replies.pop().ok_or(CallError::Closed);
            }
            let (answer, reply) = oneshot::channel();
            drop(lane.submit(Asked { operation, answer }));
            reply.await.unwrap_or(Err(CallError::Closed))
        }
    }

    /// How many lone operations a lane may have under way at this load.
    fn most_alone(&self, load: usize) -> usize {
        match load {
            ..=MOST_ALONE => MOST_ALONE,
            // In a lane per slot, operations seldom meet.
            _ if self.redis().queues_by_slot() => 1,
            _ => 0,
        }
    }

    /// The operations on their way.
    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    /// The runtime of the carriers.
    pub(crate) fn runtime(&self) -> &Handle {
        self.dispatch.runtime()
    }

    /// Runs `future` on the runtime of the carriers. Boxed, so that one type of task is compiled instead of one for each caller.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let future: BoxFuture<()> = Box::pin(future);
        self.runtime().spawn(future);
    }

    /// Runs requests with one batch key in one call, at once.
    pub(crate) async fn run_batch(
        &self,
        requests: Vec<Request>,
        durability: Durability,
    ) -> Vec<Result<Answered, CallError>> {
        let Some(script) = requests.first().map(|request| request.script) else {
            return Vec::new();
        };
        let operations = requests.into_iter().map(|request| request.parts).collect();
        call_all(&**self.redis(), script, operations, durability).await
    }

    fn slot_of(&self, request: &Request) -> HashSlot {
        let key = request.parts.first().map_or(&[][..], |key| &**key);
        self.redis().slot(key)
    }

    /// Requests with equal batch keys may travel together.
    pub(crate) fn batch_key(&self, request: &Request, durability: Durability) -> BatchKey {
        batch_key(request.script, self.slot_of(request), durability)
    }

    /// The number of replicas of the server of `spec`, including replicas that are down.
    pub(crate) fn replicas(&self, spec: &LockSpec) -> usize {
        self.redis().replicas(self.redis().slot(&spec.key))
    }

    /// The server of `spec`, if the client knows it.
    pub(crate) fn server_of(&self, spec: &LockSpec) -> Option<String> {
        self.redis().server_of(self.redis().slot(&spec.key))
    }

    /// The error for calls about `key` without an answer: names the server, and the cause if the client knows it. An outage has one
    /// text, whatever the `reason` of the caller.
    pub(crate) fn unavailable(
        &self,
        key: &Bytes,
        durability: Durability,
        reason: impl Into<String>,
    ) -> Error {
        self.unavailable_at(self.redis().slot(key), durability, reason.into())
    }

    /// The same for calls to all servers.
    pub(crate) fn any_unavailable(&self, reason: impl Into<String>) -> Error {
        let is_troubled =
            |slot: &HashSlot| self.redis().trouble(*slot, Durability::Local).is_some();
        let slot = self.slots().find(is_troubled).unwrap_or_default();
        self.unavailable_at(slot, Durability::Local, reason.into())
    }

    /// The error of a lazy client that the server has refused from the start is that of a client that connects at once.
    fn unavailable_at(&self, slot: HashSlot, durability: Durability, reason: String) -> Error {
        if let Some(refused) = self.redis().refused_start() {
            return refused;
        }
        let trouble = self.redis().trouble(slot, durability);
        let reason = match self.redis().is_ready(slot, durability) {
            true => reason,
            false => NO_CONNECTION.to_owned(),
        };
        let reason = match self.redis().server_of(slot) {
            Some(server) if !reason.contains(&server) => format!("{reason} (server {server})"),
            _ => reason,
        };
        Error::unavailable_by(reason, trouble)
    }

    /// Asks whether releases of `spec` may publish: the server's words if they may not. `None` if the client knows that they may.
    pub(crate) fn refused_message(&self, spec: &LockSpec) -> Option<BoxFuture<Option<String>>> {
        self.redis().refused_message(&spec.key, &spec.channel)
    }

    /// Completes once calls of `durability` have a connection to the server of `spec`.
    pub(crate) async fn ready(&self, spec: &LockSpec, durability: Durability) {
        self.redis()
            .ready(self.redis().slot(&spec.key), durability)
            .await;
    }

    /// Whether every slot is served, by a server to which there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        self.redis().is_connected()
    }

    /// Completes when all servers have answered.
    pub(crate) fn ping(&self) -> BoxFuture<Result<(), CallError>> {
        self.redis().ping()
    }

    /// All slots of the set-up.
    fn slots(&self) -> std::ops::Range<HashSlot> {
        match self.redis().is_cluster() {
            true => 0..super::SLOTS,
            false => 0..1,
        }
    }

    /// Whether [`ready`](Self::ready) would complete at once.
    pub(crate) fn is_ready_for(&self, spec: &LockSpec, durability: Durability) -> bool {
        self.redis()
            .is_ready(self.redis().slot(&spec.key), durability)
    }

    /// The same for calls that wait for no replica.
    pub(crate) fn is_ready(&self, spec: &LockSpec) -> bool {
        self.is_ready_for(spec, Durability::Local)
    }
}

/// Runs `call`, and calls `on_sent` after its first poll: by then the call is in its connection's queue, or even answered.
async fn call_then<T>(mut call: BoxFuture<T>, on_sent: Option<impl FnOnce()>) -> T {
    let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    if let Some(on_sent) = on_sent {
        on_sent();
    }
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => call.await,
    }
}

impl std::fmt::Debug for Batcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// A call that is answered at its first poll also calls `on_sent`.
    #[test]
    fn first_poll_of_a_call_reports_that_it_is_sent() {
        let sent = std::cell::Cell::new(0);
        let on_sent = || Some(|| sent.set(sent.get() + 1));
        let answered_at_once = call_then(Box::pin(std::future::ready(1)), on_sent());
        assert_eq!(sent.get(), 0);
        assert_eq!((answered_at_once.now_or_never(), sent.get()), (Some(1), 1));
        let mut unanswered = Box::pin(call_then::<()>(Box::pin(std::future::pending()), on_sent()));
        assert_eq!(((&mut unanswered).now_or_never(), sent.get()), (None, 2));
    }
}
