//! Batches: several operations with one batch key travel in one call.
//!
//! A call costs a system call at both ends, more than the server needs to run a script. At a low load, each caller's future sends its
//! operation at once and alone. At a higher load, operations queue in the lane of their batch key
//! ([`batch_queue`](super::batch_queue)) and travel in batches. Tasks of the lane, its carriers, send the batches. A caller that
//! is not polled therefore delays no other.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    task::Poll,
};

use bytes::Bytes;
use futures_util::future::Either;
use tokio::runtime::Handle;

use super::{
    Answered, BoxFuture, CallError, HashSlot, Redis,
    batch::{BatchKey, batch_key, call_all},
    batch_queue::{Admission, Queue},
    bundle::{self, SendPermit},
    load::{CountedInLoad, Load},
};
use crate::{
    durability::Durability,
    error::{Error, NO_CONNECTION},
    gauges::Batches,
    hash::HashMap,
    wire::{
        LockSpec, Request,
        script::{Operation, Script},
    },
};

/// Largest load of the client at which an operation is sent alone; also the limit per lane. A higher load is batched.
const MOST_ALONE: usize = 2;
/// Lone operations per lane that report when they are sent. A batch cannot report that moment.
const MOST_WITH_CALLBACK: usize = 8;

/// The way of every operation to Redis.
pub(crate) struct Batcher {
    redis: Arc<dyn Redis>,
    runtime: Handle,
    lanes: RwLock<HashMap<BatchKey, Arc<Lane>>>,
    load: Load,
    batches: Batches,
}

/// The operations of one batch key.
struct Lane {
    script: &'static Script,
    slot: HashSlot,
    durability: Durability,
    queue: Mutex<Queue<Operation, Result<Answered, CallError>>>,
}

impl Batcher {
    pub(crate) fn new(redis: Arc<dyn Redis>, runtime: Handle) -> Self {
        Self {
            redis,
            runtime,
            lanes: RwLock::default(),
            load: Load::default(),
            batches: Batches::new(),
        }
    }

    pub(crate) fn redis(&self) -> &Arc<dyn Redis> {
        &self.redis
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
        let lane = self.lane(&request, durability);
        async move {
            let (_counted, load) = CountedInLoad::new(&self.load);
            let most_alone = match on_sent {
                // Operations that wait for replicas gather on their own connection.
                _ if durability.waits(self.redis.replicas(lane.slot)) => usize::MAX,
                Some(_) => MOST_WITH_CALLBACK,
                None => self.most_alone(load),
            };
            let admission = lane.locked().admit(request.parts, most_alone);
            match admission {
                Admission::Alone(operation) => {
                    let _leave = LoneOperation(&lane);
                    self.batches.sent(1);
                    let call = self
                        .redis
                        .call(lane.script, Arc::new([operation]), durability);
                    let mut replies = call_then(call, on_sent).await?;
                    replies.pop().ok_or(CallError::Closed)
                }
                Admission::Queued { reply, carrier } => {
                    if carrier {
                        self.runtime
                            .spawn(carry(Carrier::of(lane), self.redis.clone()));
                    }
                    reply.await.unwrap_or(Err(CallError::Closed))
                }
            }
        }
    }

    /// How many lone operations a lane may have under way at this load.
    fn most_alone(&self, load: usize) -> usize {
        match load {
            ..=MOST_ALONE => MOST_ALONE,
            // In a lane per slot, operations seldom meet.
            _ if self.redis.queues_by_slot() => 1,
            _ => 0,
        }
    }

    /// The operations on their way.
    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    /// The runtime of the carriers.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs `future` on the runtime of the carriers. Boxed, so that one type of task is compiled instead of one for each caller.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let future: BoxFuture<()> = Box::pin(future);
        self.runtime.spawn(future);
    }

    /// Permits to send `count` operations together.
    pub(crate) fn send_permits(&self, count: usize) -> Vec<SendPermit> {
        bundle::send_permits(&self.redis, &self.runtime, count)
    }

    /// Runs one operation in the bundle of its permit, or without a permit as [`run`](Self::run).
    pub(crate) fn run_by_permit(
        &self,
        permit: Option<SendPermit>,
        request: Request,
        durability: Durability,
    ) -> impl Future<Output = Result<Answered, CallError>> {
        match permit {
            // Boxed: it is the larger future, and only groups use it.
            Some(permit) => Either::Left(Box::pin(permit.run(request, durability))),
            None => Either::Right(self.run(request, durability)),
        }
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
        call_all(&*self.redis, script, operations, durability).await
    }

    fn lane(&self, request: &Request, durability: Durability) -> Arc<Lane> {
        let key = self.batch_key(request, durability);
        if let Some(lane) = self
            .lanes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return lane.clone();
        }
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(key).or_insert_with(|| {
            Arc::new(Lane {
                script: request.script,
                slot: key.1,
                durability,
                queue: Mutex::default(),
            })
        });
        lane.clone()
    }

    /// Requests with equal batch keys may travel together.
    pub(crate) fn batch_key(&self, request: &Request, durability: Durability) -> BatchKey {
        batch_key(&*self.redis, request, durability)
    }

    /// The number of replicas of the server of `spec`, including replicas that are down.
    pub(crate) fn replicas(&self, spec: &LockSpec) -> usize {
        self.redis.replicas(self.redis.slot(&spec.key))
    }

    /// The server of `spec`, if the client knows it.
    pub(crate) fn server_of(&self, spec: &LockSpec) -> Option<String> {
        self.redis.server_of(self.redis.slot(&spec.key))
    }

    /// The error for calls about `key` without an answer: names the server, and the cause if the client knows it. An outage has one
    /// text, whatever the `reason` of the caller.
    pub(crate) fn unavailable(
        &self,
        key: &Bytes,
        durability: Durability,
        reason: impl Into<String>,
    ) -> Error {
        self.unavailable_at(self.redis.slot(key), durability, reason.into())
    }

    /// The same for calls to all servers.
    pub(crate) fn any_unavailable(&self, reason: impl Into<String>) -> Error {
        let is_troubled = |slot: &HashSlot| self.redis.trouble(*slot, Durability::Local).is_some();
        let slot = self.slots().find(is_troubled).unwrap_or_default();
        self.unavailable_at(slot, Durability::Local, reason.into())
    }

    /// The error of a lazy client that the server has refused from the start is that of a client that connects at once.
    fn unavailable_at(&self, slot: HashSlot, durability: Durability, reason: String) -> Error {
        if let Some(refused) = self.redis.refused_start() {
            return refused;
        }
        let trouble = self.redis.trouble(slot, durability);
        let reason = match self.redis.is_ready(slot, durability) {
            true => reason,
            false => NO_CONNECTION.to_owned(),
        };
        let reason = match self.redis.server_of(slot) {
            Some(server) if !reason.contains(&server) => format!("{reason} (server {server})"),
            _ => reason,
        };
        Error::unavailable_by(reason, trouble)
    }

    /// Asks whether releases of `spec` may publish: the server's words if they may not. `None` if the client knows that they may.
    pub(crate) fn refused_message(&self, spec: &LockSpec) -> Option<BoxFuture<Option<String>>> {
        self.redis.refused_message(&spec.key, &spec.channel)
    }

    /// Completes once calls of `durability` have a connection to the server of `spec`.
    pub(crate) async fn ready(&self, spec: &LockSpec, durability: Durability) {
        self.redis
            .ready(self.redis.slot(&spec.key), durability)
            .await;
    }

    /// Whether every slot is served, by a server to which there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        self.redis.is_connected()
    }

    /// Completes when all servers have answered.
    pub(crate) fn ping(&self) -> BoxFuture<Result<(), CallError>> {
        self.redis.ping()
    }

    /// All slots of the set-up.
    fn slots(&self) -> std::ops::Range<HashSlot> {
        match self.redis.is_cluster() {
            true => 0..super::SLOTS,
            false => 0..1,
        }
    }

    /// Whether [`ready`](Self::ready) would complete at once.
    pub(crate) fn is_ready_for(&self, spec: &LockSpec, durability: Durability) -> bool {
        self.redis.is_ready(self.redis.slot(&spec.key), durability)
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

impl Lane {
    fn locked(&self) -> MutexGuard<'_, Queue<Operation, Result<Answered, CallError>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lone operation under way.
struct LoneOperation<'a>(&'a Lane);

impl Drop for LoneOperation<'_> {
    fn drop(&mut self) {
        self.0.locked().alone_is_over();
    }
}

/// A task that sends the batches of a lane. A drop before `is_done` means that the runtime has ended, so the lane closes.
struct Carrier {
    lane: Arc<Lane>,
    is_done: bool,
}

impl Carrier {
    fn of(lane: Arc<Lane>) -> Self {
        Self {
            lane,
            is_done: false,
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        if !self.is_done {
            self.lane.locked().close();
        }
    }
}

/// Sends batches until the lane is empty or has enough other carriers.
async fn carry(mut carrier: Carrier, redis: Arc<dyn Redis>) {
    let lane = carrier.lane.clone();
    loop {
        // An answered caller may send its next request. `yield_now` lets such requests join the batch.
        tokio::task::yield_now().await;
        if !redis.is_ready(lane.slot, lane.durability) {
            redis.ready(lane.slot, lane.durability).await;
        }
        let Some(batch) = lane.locked().flush() else {
            break;
        };
        let (operations, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let replies = call_all(&*redis, lane.script, operations, lane.durability).await;
        for (answer, reply) in answers.into_iter().zip(replies) {
            let _ = answer.send(reply);
        }
        if !lane.locked().come_back() {
            break;
        }
    }
    carrier.is_done = true;
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
