//! Requests that are sent after the end of a client's runtime.
//!
//! A runtime may end before its client does. The client's tasks and connections end with it, and a
//! guard that `main` drops last would keep its lock for a whole lease. The requests therefore
//! travel on a connection of their own, by a thread with a runtime of its own. The thread that
//! drops the runtime or the guard waits for them, for [`FINAL_REQUESTS_WAIT`] at most.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use futures_util::future::join_all;
use tokio::runtime::{Builder, Handle};

use super::{Engine, tenure::Tenure, time_limits::FINAL_REQUESTS_WAIT};
use crate::{
    config::Config,
    durability::Durability,
    error::LostReason,
    redis::{self, Batcher, Target},
    sync::lock,
    wire::Request,
};

/// The final requests of a client, and how to reach its server.
pub(super) struct FinalRequests {
    target: Target,
    /// Whether the runtime has dropped an unfinished task.
    has_begun_to_end: Arc<AtomicBool>,
    /// Whether the runtime has ended without a shutdown.
    is_due: AtomicBool,
    /// The server could not be reached in time: it is not tried again.
    is_unreachable: AtomicBool,
    /// Requests of tasks that ended with the runtime, or lost their connection because of its end.
    pending: Mutex<Vec<Request>>,
}

/// Belongs to the release task, the last of a client's tasks. A drop before [`Engine::ended`] means
/// that the runtime has ended: it sends the final requests.
pub(super) struct RuntimeEndGuard(pub(super) Arc<Engine>);

impl Drop for RuntimeEndGuard {
    fn drop(&mut self) {
        if !self.0.ended.is_cancelled() {
            self.0.handle_runtime_end();
        }
    }
}

/// Belongs to a task of the client. A drop before [`finished`](Self::finished) means that the runtime has begun to end.
pub(super) struct TaskGuard(Option<Arc<AtomicBool>>);

impl TaskGuard {
    pub(super) fn finished(mut self) {
        self.0 = None;
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        // The runtime goes on after a task that panics.
        if let Some(has_begun_to_end) = self.0.take().filter(|_| !thread::panicking()) {
            has_begun_to_end.store(true, Ordering::Release);
        }
    }
}

impl FinalRequests {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            has_begun_to_end: Arc::default(),
            is_due: AtomicBool::new(false),
            is_unreachable: AtomicBool::new(false),
            pending: Mutex::default(),
        }
    }

    /// Adds a request, to be sent at the end of the runtime.
    pub(super) fn add(&self, request: Request) {
        lock(&self.pending).push(request);
    }

    pub(super) fn guard(&self) -> TaskGuard {
        TaskGuard(Some(self.has_begun_to_end.clone()))
    }

    /// Whether the runtime ends tasks: one was dropped, or its connection ended before the client closed any.
    pub(super) fn are_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    pub(super) fn are_near(&self) -> bool {
        self.has_begun_to_end.load(Ordering::Acquire) || !lock(&self.pending).is_empty()
    }

    /// Sends the requests on a new connection, by a new thread, and waits for that.
    fn send(&self, requests: Vec<Request>, config: &Config) {
        let (target, config) = (self.target.clone(), config.clone());
        let (done, sent) = mpsc::channel();
        let thread = thread::Builder::new().spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let sending = async {
                    tokio::time::timeout(FINAL_REQUESTS_WAIT, run(target, &config, requests)).await
                };
                let _ = done.send(runtime.block_on(sending).is_ok_and(|connected| connected));
            }
        });
        let is_sent = thread.is_ok() && sent.recv_timeout(FINAL_REQUESTS_WAIT) == Ok(true);
        if !is_sent {
            self.is_unreachable.store(true, Ordering::Relaxed);
            tracing::warn!(
                "guards that were dropped as the runtime ended are not released: their leases end them"
            );
        }
    }
}

/// Returns whether there was a connection.
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
    /// Closes the client after the end of its runtime: notifies holders and waiters, and releases
    /// dropped guards. Without tasks, no hold is renewed and no waiter woken.
    fn handle_runtime_end(self: &Arc<Self>) {
        self.final_requests.is_due.store(true, Ordering::Relaxed);
        self.close();
        // Not awaited: the part that the call does at once is enough.
        drop(self.batcher.redis().close());
        let tenures = self.owners.tenures(None);
        for tenure in &tenures {
            self.record_unreleased(tenure, tenure.live_owners());
            self.lose(tenure, LostReason::RuntimeEnded);
        }
        self.release_without_tasks(&tenures);
        self.ended.cancel();
    }

    /// Releases the holds without a guard, except leaked ones, if the runtime has ended.
    pub(super) fn release_without_tasks(&self, tenures: &[Arc<Tenure>]) {
        self.run_without_tasks(|| tenures.iter().filter_map(final_release).collect());
    }

    /// Adds a request whose task ended before the answer. It is sent at the end of the runtime, or
    /// now if that has ended. Returns `false` if neither is left, after a shutdown.
    pub(super) fn add_final_request(&self, request: Request) -> bool {
        self.final_requests.add(request);
        self.run_without_tasks(Vec::new) || !self.ended.is_cancelled()
    }

    /// Sends these requests and the pending ones, if the runtime has ended. Returns whether it has.
    fn run_without_tasks(&self, requests: impl FnOnce() -> Vec<Request>) -> bool {
        let final_requests = &self.final_requests;
        let is_due = final_requests.is_due.load(Ordering::Relaxed)
            && final_requests.target.is_reached_from_anywhere();
        if !is_due || final_requests.is_unreachable.load(Ordering::Relaxed) {
            return is_due;
        }
        let mut requests = requests();
        requests.append(&mut lock(&final_requests.pending));
        if !requests.is_empty() {
            final_requests.send(requests, &self.config);
        }
        is_due
    }
}

/// The release that leaves the server the holds that have a guard or were leaked. `None` if there
/// is nothing to release, or if the tenure was lost for another reason than the close.
fn final_release(tenure: &Arc<Tenure>) -> Option<Request> {
    let reason = tenure.lost_reason(tokio::time::Instant::now());
    let (live, is_ours) = (
        tenure.live_count(),
        reason.is_none_or(LostReason::is_end_of_client),
    );
    (is_ours && live < tenure.most_on_server()).then(|| tenure.release_request(live))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a panic, the client closes in the usual way.
    #[test]
    fn task_that_is_dropped_unfinished_shows_the_end_of_the_runtime_and_one_that_panics_does_not() {
        let has_begun = Arc::<AtomicBool>::default();
        let guard = || TaskGuard(Some(has_begun.clone()));
        guard().finished();
        let panicking = guard();
        let ended = thread::spawn(move || {
            let _guard = panicking;
            panic!("the test has a task panic");
        });
        assert!(ended.join().is_err());
        assert!(!has_begun.load(Ordering::Acquire));
        drop(guard());
        assert!(has_begun.load(Ordering::Acquire));
    }
}
