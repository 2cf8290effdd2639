//! Requests that are sent when the runtime that a client was made on ends before the client does. Its tasks are gone then, and
//! with them its connections: a guard that `main` drops last would keep its lock for a whole lease.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use futures_util::future::join_all;
use tokio::runtime::{Builder, Handle};

use super::{Engine, tenure::Tenure};
use crate::{
    config::Config,
    durability::Durability,
    error::LostReason,
    redis::{self, Batcher, Target},
    wire::Request,
};

/// The most that the end of a runtime, or the drop of a guard after it, is held up. A server that can be reached takes
/// milliseconds, and one that cannot is tried once: so this may be long enough for a busy machine.
const LONGEST_SEND: Duration = Duration::from_secs(5);

/// Requests that are sent without the runtime, and the way to the server.
pub(super) struct FinalRequests {
    target: Target,
    /// Whether the runtime has ended without a shutdown.
    is_due: AtomicBool,
    /// A server that could not be reached in time is not tried again.
    is_unreachable: AtomicBool,
    /// What tasks had begun that ended with the runtime, or lost their connection to its end.
    pending: Mutex<Vec<Request>>,
}

/// Belongs to the last of a client's tasks. Its drop before their end means that the runtime has ended: it sends the final requests.
pub(super) struct RuntimeEndGuard(pub(super) Arc<Engine>);

impl Drop for RuntimeEndGuard {
    fn drop(&mut self) {
        if !self.0.ended.is_cancelled() {
            self.0.handle_runtime_end();
        }
    }
}

impl FinalRequests {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            is_due: AtomicBool::new(false),
            is_unreachable: AtomicBool::new(false),
            pending: Mutex::default(),
        }
    }

    /// Takes over a request for the end of the runtime.
    pub(super) fn add(&self, request: Request) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.push(request);
    }

    fn take_pending(&self) -> Vec<Request> {
        std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends these on a connection of their own, by a thread of its own, and waits for that.
    fn send(&self, requests: Vec<Request>, config: &Config) {
        let (target, config) = (self.target.clone(), config.clone());
        let (done, sent) = mpsc::channel();
        let thread = thread::Builder::new().spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let sending = async {
                    tokio::time::timeout(LONGEST_SEND, run(target, &config, requests)).await
                };
                let _ = done.send(runtime.block_on(sending).is_ok_and(|connected| connected));
            }
        });
        let is_sent = thread.is_ok() && sent.recv_timeout(LONGEST_SEND) == Ok(true);
        if !is_sent {
            self.is_unreachable.store(true, Ordering::Relaxed);
            tracing::warn!(
                "guards that were dropped as the runtime ended are not released: their leases end them"
            );
        }
    }
}

/// Says whether there was a connection.
async fn run(target: Target, config: &Config, requests: Vec<Request>) -> bool {
    let Ok((redis, _events)) = redis::connect(target, config).await else {
        return false;
    };
    let batcher = Batcher::new(redis.clone(), Handle::current());
    let answers = requests
        .into_iter()
        .map(|request| batcher.run(request, Durability::Local));
    join_all(answers).await;
    redis.close().await;
    true
}

impl Engine {
    /// Ends what needs tasks: holders and waiters are notified of the loss, no hold is renewed, no waiter woken. Dropped guards are
    /// released.
    fn handle_runtime_end(self: &Arc<Self>) {
        self.final_requests.is_due.store(true, Ordering::Relaxed);
        self.close();
        // The part of it that completes without being awaited is enough.
        drop(self.batcher.redis().close());
        let tenures = self.owners.tenures(None);
        for tenure in &tenures {
            self.record_unreleased(tenure, tenure.live_owners());
            self.lose(tenure, LostReason::Closed);
        }
        self.release_without_tasks(&tenures);
        self.ended.cancel();
    }

    /// Releases the holds that no guard relies on any more, if the runtime has ended and its tasks with it.
    pub(super) fn release_without_tasks(&self, tenures: &[Arc<Tenure>]) {
        self.run_without_tasks(|| tenures.iter().filter_map(final_release).collect());
    }

    /// Takes over a request whose task ended before it was answered, for the end of the runtime or at once if that has ended. Says
    /// whether there is anything left that runs it.
    pub(super) fn add_final_request(&self, request: Request) -> bool {
        self.final_requests.add(request);
        self.run_without_tasks(Vec::new) || !self.ended.is_cancelled()
    }

    /// Sends these and what is pending, if the runtime has ended and its tasks with it. Returns whether it has.
    fn run_without_tasks(&self, requests: impl FnOnce() -> Vec<Request>) -> bool {
        let final_requests = &self.final_requests;
        let is_due = final_requests.is_due.load(Ordering::Relaxed)
            && final_requests.target.is_reached_from_anywhere();
        if !is_due || final_requests.is_unreachable.load(Ordering::Relaxed) {
            return is_due;
        }
        let mut requests = requests();
        requests.extend(final_requests.take_pending());
        if !requests.is_empty() {
            final_requests.send(requests, &self.config);
        }
        is_due
    }
}

/// The release that leaves the server with the holds that a guard still relies on.
fn final_release(tenure: &Arc<Tenure>) -> Option<Request> {
    let reason = tenure.lost_reason(tokio::time::Instant::now());
    let (live, is_ours) = (
        tenure.live_count(),
        reason.is_none_or(|reason| reason == LostReason::Closed),
    );
    let (spec, entry) = (&tenure.spec, tenure.entry());
    (is_ours && live < tenure.on_server())
        .then(|| spec.protocol.release(spec, &entry.owner, None, live))
}
