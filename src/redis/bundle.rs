//! Operations of one group: they travel in one call per batch key, not one per operation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use super::{
    Answered, CallError, Redis,
    batch::{BatchKey, batch_key, call_all},
    time_limits::BUNDLE_WAIT,
};
use crate::{durability::Durability, timers, wire::Request};

/// The most operations of one call. More than in a batch: these operations have waited for each other anyway.
const MOST_TOGETHER: usize = 128;

struct PendingOp {
    request: Request,
    key: BatchKey,
    answer: oneshot::Sender<Result<Answered, CallError>>,
}

struct Bundle {
    redis: Arc<dyn Redis>,
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    /// Permits that are neither used nor dropped.
    open: usize,
    waiting: Vec<PendingOp>,
    /// When the last operation came.
    last: Instant,
}

/// The permit to send one operation in the bundle.
pub(crate) struct SendPermit(Arc<Bundle>);

/// Returns `count` permits. Their operations leave when the last permit is used or dropped.
pub(super) fn send_permits(
    redis: &Arc<dyn Redis>,
    runtime: &Handle,
    count: usize,
) -> Vec<SendPermit> {
    let bundle = Arc::new(Bundle {
        redis: redis.clone(),
        runtime: runtime.clone(),
        state: Mutex::new(State {
            open: count,
            waiting: Vec::new(),
            last: Instant::now(),
        }),
    });
    (0..count).map(|_| SendPermit(bundle.clone())).collect()
}

impl SendPermit {
    /// Runs one operation with the rest of the bundle.
    ///
    /// A drop of the future does not recall an operation that was sent.
    pub(crate) async fn run(
        self,
        request: Request,
        durability: Durability,
    ) -> Result<Answered, CallError> {
        let bundle = self.0.clone();
        let (answer, mut reply) = oneshot::channel();
        bundle.add(request, durability, answer);
        drop(self);
        while bundle.waits() {
            let latest = bundle.state().last + BUNDLE_WAIT;
            tokio::select! {
                biased;
                reply = &mut reply => return reply.unwrap_or(Err(CallError::Closed)),
                () = timers::sleep_until(latest) => bundle.flush_by(latest),
            }
        }
        reply.await.unwrap_or(Err(CallError::Closed))
    }
}

impl Drop for SendPermit {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        let last = state.open == 0;
        drop(state);
        if last {
            self.0.flush();
        }
    }
}

impl Bundle {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(
        &self,
        request: Request,
        durability: Durability,
        answer: oneshot::Sender<Result<Answered, CallError>>,
    ) {
        let key = batch_key(&*self.redis, &request, durability);
        let mut state = self.state();
        state.waiting.push(PendingOp {
            request,
            key,
            answer,
        });
        state.last = Instant::now();
    }

    fn waits(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Sends the waiting operations, unless another one has come since.
    fn flush_by(&self, latest: Instant) {
        if self.state().last + BUNDLE_WAIT <= latest {
            self.flush();
        }
    }

    /// Sends the waiting operations.
    fn flush(&self) {
        let mut waiting = std::mem::take(&mut self.state().waiting);
        while let Some(first) = waiting.first() {
            let key = first.key;
            let same_key: Vec<_> = waiting
                .extract_if(.., |op| op.key == key)
                .take(MOST_TOGETHER)
                .collect();
            self.runtime.spawn(carry(self.redis.clone(), same_key));
        }
    }
}

async fn carry(redis: Arc<dyn Redis>, pending: Vec<PendingOp>) {
    let Some(first) = pending.first() else {
        return;
    };
    let (script, (.., durability)) = (first.request.script, first.key);
    let (operations, answers): (Vec<_>, Vec<_>) = pending
        .into_iter()
        .map(|op| (op.request.parts, op.answer))
        .unzip();
    let replies = call_all(&*redis, script, operations, durability).await;
    for (answer, reply) in answers.into_iter().zip(replies) {
        let _ = answer.send(reply);
    }
}
