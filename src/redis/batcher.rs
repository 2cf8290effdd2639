//! Many operations in one call: those that wait for the same script travel in one batch.
//!
//! A call costs a system call here and there, which is more than the server needs to run a script. So while there are few operations,
//! each is sent at once and alone, by its caller's own future; when there are more, they queue
//! ([`batch_queue`](super::batch_queue)) and travel several in a call. These calls are made by tasks of the queue, its
//! carriers, never by one of the callers: a caller that is no longer polled delays no other.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures_util::future::Either;
use tokio::runtime::Handle;

use super::{
    BoxFuture, CallError, HashSlot, Redis,
    batch::{BatchKey, batch_key, call_all},
    batch_queue::{Admission, Queue},
    bundle::{self, SendPermit},
};
use crate::{
    durability::Durability,
    error::Cause,
    gauges::Batches,
    hash::HashMap,
    wire::{
        LockSpec, Reply, Request,
        script::{Operation, Script},
    },
};

/// Operations that callers wait for, in all queues of a client, of which each is sent alone. With more, a batch is
/// faster.
const MOST_ALONE: usize = 2;
/// Operations on their way alone in a queue whose callers are told when they have been sent: in a batch, that moment is
/// not known.
const MOST_NOTIFIED: usize = 8;

/// The way of every operation to Redis.
pub(crate) struct Batcher {
    redis: Arc<dyn Redis>,
    runtime: Handle,
    queues: RwLock<HashMap<BatchKey, Arc<OperationQueue>>>,
    /// Operations that callers wait for.
    load: AtomicUsize,
    batches: Batches,
}

/// The operations that may travel together.
struct OperationQueue {
    script: &'static Script,
    slot: HashSlot,
    durability: Durability,
    queue: Mutex<Queue<Operation, Result<Reply, CallError>>>,
}

impl Batcher {
    pub(crate) fn new(redis: Arc<dyn Redis>, runtime: Handle) -> Self {
        Self {
            redis,
            runtime,
            queues: RwLock::default(),
            load: AtomicUsize::new(0),
            batches: Batches::new(),
        }
    }

    pub(crate) fn redis(&self) -> &Arc<dyn Redis> {
        &self.redis
    }

    /// Runs one operation, alone or in a batch.
    ///
    /// Dropping the future may leave the operation on its way.
    pub(crate) fn run(
        &self,
        request: Request,
        durability: Durability,
    ) -> impl Future<Output = Result<Reply, CallError>> {
        self.run_as(request, durability, None::<fn()>)
    }

    /// As [`run`](Self::run). `sent` is called as soon as it is sure that what is sent from then on goes behind the operation. It
    /// is not called for an operation in a batch, or for one that is never sent.
    pub(crate) fn run_telling<S: FnOnce()>(
        &self,
        request: Request,
        durability: Durability,
        sent: S,
    ) -> impl Future<Output = Result<Reply, CallError>> + use<'_, S> {
        self.run_as(request, durability, Some(sent))
    }

    fn run_as<S: FnOnce()>(
        &self,
        request: Request,
        durability: Durability,
        sent: Option<S>,
    ) -> impl Future<Output = Result<Reply, CallError>> + use<'_, S> {
        let queue = self.queue_of(&request, durability);
        async move {
            let (_waits, load) = Waits::one_more(&self.load);
            let most_alone = match sent {
                // What waits for replicas is gathered on its connection, where its time counts.
                _ if durability.waits(self.redis.replicas(queue.slot)) => usize::MAX,
                Some(_) => MOST_NOTIFIED,
                None => self.most_alone(load),
            };
            let admission = queue.locked().admit(request.parts, most_alone);
            match admission {
                Admission::Alone(operation) => {
                    let _leave = Alone(&queue);
                    self.batches.sent(1);
                    let call = self
                        .redis
                        .call(queue.script, Arc::new([operation]), durability);
                    let mut replies = begin(call, sent).await?;
                    replies.pop().ok_or(CallError::Closed)
                }
                Admission::Queued { reply, carrier } => {
                    if carrier {
                        self.runtime
                            .spawn(carry(Carrier::of(queue), self.redis.clone()));
                    }
                    reply.await.unwrap_or(Err(CallError::Closed))
                }
            }
        }
    }

    /// Operations that may be on their way alone in a queue, at this load.
    fn most_alone(&self, load: usize) -> usize {
        match load {
            ..=MOST_ALONE => MOST_ALONE,
            // It has a queue for each of its slots, in which few ever meet.
            _ if self.redis.is_cluster() => 1,
            _ => 0,
        }
    }

    /// Where the queues are.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs `future` on the runtime that the queues are on.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// The right to send `count` operations together.
    pub(crate) fn send_permits(&self, count: usize) -> Vec<SendPermit> {
        bundle::send_permits(&self.redis, &self.runtime, count)
    }

    /// Runs one operation by a right to send it in a bundle, or else in its queue.
    pub(crate) fn run_from(
        &self,
        permit: Option<SendPermit>,
        request: Request,
        durability: Durability,
    ) -> impl Future<Output = Result<Reply, CallError>> {
        match permit {
            // Boxed, as it is larger than the other, and for groups only.
            Some(permit) => Either::Left(Box::pin(permit.run(request, durability))),
            None => Either::Right(self.run(request, durability)),
        }
    }

    /// Runs requests of one key in one call of their own.
    pub(crate) async fn run_together(
        &self,
        requests: Vec<Request>,
        durability: Durability,
    ) -> Vec<Result<Reply, CallError>> {
        let Some(script) = requests.first().map(|request| request.script) else {
            return Vec::new();
        };
        let operations = requests.into_iter().map(|request| request.parts).collect();
        call_all(&*self.redis, script, operations, durability).await
    }

    fn queue_of(&self, request: &Request, durability: Durability) -> Arc<OperationQueue> {
        let key = self.batch_key(request, durability);
        if let Some(queue) = self
            .queues
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return queue.clone();
        }
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(key).or_insert_with(|| {
            Arc::new(OperationQueue {
                script: request.script,
                slot: key.1,
                durability,
                queue: Mutex::default(),
            })
        });
        queue.clone()
    }

    /// Requests of one key may travel together.
    pub(crate) fn batch_key(&self, request: &Request, durability: Durability) -> BatchKey {
        batch_key(&*self.redis, request, durability)
    }

    /// How many replicas are listed of the server of `spec`, counting those that are down.
    pub(crate) fn replicas(&self, spec: &LockSpec) -> usize {
        self.redis.replicas(self.redis.slot(&spec.key))
    }

    /// Why there are no answers about `spec`, if there are none.
    pub(crate) fn trouble(&self, spec: &LockSpec) -> Option<Arc<Cause>> {
        self.redis.trouble(self.redis.slot(&spec.key))
    }

    /// Whether the user may announce that the lock at `spec` is released; `None` if that is known, or need not be.
    pub(crate) fn may_announce(&self, spec: &LockSpec) -> Option<BoxFuture<bool>> {
        let slot = self.redis.slot(&spec.key);
        self.redis.may_publish(slot, &spec.channel)
    }

    /// Completes once there is a connection to ask about `spec` on.
    pub(crate) async fn ready(&self, spec: &LockSpec) {
        self.redis.ready(self.redis.slot(&spec.key)).await;
    }

    /// Whether all slots can be asked for at once.
    pub(crate) fn is_connected(&self) -> bool {
        self.slots().all(|slot| self.redis.is_ready(slot))
    }

    /// Completes when all servers have answered.
    pub(crate) fn ping(&self) -> BoxFuture<Result<(), CallError>> {
        self.redis.ping()
    }

    /// Why a server does not answer, if one does not.
    pub(crate) fn any_trouble(&self) -> Option<Arc<Cause>> {
        self.slots().find_map(|slot| self.redis.trouble(slot))
    }

    /// All slots that there are.
    fn slots(&self) -> std::ops::Range<HashSlot> {
        match self.redis.is_cluster() {
            true => 0..super::SLOTS,
            false => 0..1,
        }
    }

    /// Whether [`ready`](Self::ready) would complete at once.
    pub(crate) fn is_ready(&self, spec: &LockSpec) -> bool {
        self.redis.is_ready(self.redis.slot(&spec.key))
    }
}

/// Runs `call`, and `then` when it has been polled once: by then it is on its connection's queue, or even answered.
async fn begin<T>(mut call: BoxFuture<T>, then: Option<impl FnOnce()>) -> T {
    let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    if let Some(then) = then {
        then();
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

impl OperationQueue {
    fn locked(&self) -> MutexGuard<'_, Queue<Operation, Result<Reply, CallError>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An operation that its caller waits for.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    /// Counts it, and says how many there are with it.
    fn one_more(load: &'a AtomicUsize) -> (Self, usize) {
        let others = load.fetch_add(1, Ordering::Relaxed);
        (Self(load), others + 1)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An operation that is on its way alone.
struct Alone<'a>(&'a OperationQueue);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.locked().alone_is_over();
    }
}

/// A task that carries what waits in a queue. Dropped before it is done, its runtime has ended, and there will be no other.
struct Carrier {
    queue: Arc<OperationQueue>,
    is_done: bool,
}

impl Carrier {
    fn of(queue: Arc<OperationQueue>) -> Self {
        Self {
            queue,
            is_done: false,
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        if !self.is_done {
            self.queue.locked().close();
        }
    }
}

/// Sends what waits, call after call, until nothing waits or enough carriers are here.
async fn carry(mut carrier: Carrier, redis: Arc<dyn Redis>) {
    let queue = carrier.queue.clone();
    loop {
        // The callers that have just been answered may ask for more: those requests join the batch. Put off like this, until its worker
        // has nothing else to do, a carrier gathers more than at the end of the worker's queue.
        tokio::task::yield_now().await;
        if !redis.is_ready(queue.slot) {
            redis.ready(queue.slot).await;
        }
        let Some(batch) = queue.locked().flush() else {
            break;
        };
        let (operations, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let replies = call_all(&*redis, queue.script, operations, queue.durability).await;
        for (answer, reply) in answers.into_iter().zip(replies) {
            let _ = answer.send(reply);
        }
        if !queue.locked().come_back() {
            break;
        }
    }
    carrier.is_done = true;
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Where the answer is as quick as that, the message is, too: the next waiter must not wait for another batch.
    #[test]
    fn entries_behind_an_operation_go_once_it_is_on_its_way() {
        let sent = std::cell::Cell::new(0);
        let then = || Some(|| sent.set(sent.get() + 1));
        let answered_at_once = begin(Box::pin(std::future::ready(1)), then());
        assert_eq!(sent.get(), 0);
        assert_eq!((answered_at_once.now_or_never(), sent.get()), (Some(1), 1));
        let mut unanswered = Box::pin(begin::<()>(Box::pin(std::future::pending()), then()));
        assert_eq!(((&mut unanswered).now_or_never(), sent.get()), (None, 2));
    }
}
