//! What is left to do when the runtime that a client was made on ends before the client does. Its tasks are gone then, and
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
const MOST: Duration = Duration::from_secs(5);

/// How to release without the runtime.
pub(super) struct LastWords {
    target: Target,
    /// Whether the runtime has ended without a shutdown.
    is_due: AtomicBool,
    /// A server that could not be reached in time is not tried again.
    is_vain: AtomicBool,
    /// What tasks had begun that ended with the runtime, or lost their connection to its end.
    owed: Mutex<Vec<Request>>,
}

/// Goes with the last of a client's tasks. Dropped before they have come to their end, it does what is left to do.
pub(super) struct Survivor(pub(super) Arc<Engine>);

impl Drop for Survivor {
    fn drop(&mut self) {
        if !self.0.ended.is_cancelled() {
            self.0.runtime_has_ended();
        }
    }
}

impl LastWords {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            is_due: AtomicBool::new(false),
            is_vain: AtomicBool::new(false),
            owed: Mutex::default(),
        }
    }

    /// Takes over a request for the end of the runtime.
    pub(super) fn owe(&self, request: Request) {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        owed.push(request);
    }

    fn take_owed(&self) -> Vec<Request> {
        std::mem::take(&mut *self.owed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has these run on a connection of their own, by a thread of its own, and waits for that.
    fn say(&self, requests: Vec<Request>, config: &Config) {
        let (target, config) = (self.target.clone(), config.clone());
        let (done, said) = mpsc::channel();
        let speaks = thread::Builder::new().spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let saying =
                    async { tokio::time::timeout(MOST, run(target, &config, requests)).await };
                let _ = done.send(runtime.block_on(saying).is_ok_and(|connected| connected));
            }
        });
        let is_said = speaks.is_ok() && said.recv_timeout(MOST) == Ok(true);
        if !is_said {
            self.is_vain.store(true, Ordering::Relaxed);
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
    fn runtime_has_ended(self: &Arc<Self>) {
        self.last_words.is_due.store(true, Ordering::Relaxed);
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
        self.run_without_tasks(|| tenures.iter().filter_map(left_behind).collect());
    }

    /// Takes over a request whose task ended before it was answered, for the end of the runtime or at once if that has ended. Says
    /// whether there is anything left that runs it.
    pub(super) fn owe(&self, request: Request) -> bool {
        self.last_words.owe(request);
        self.run_without_tasks(Vec::new) || !self.ended.is_cancelled()
    }

    /// Runs these and what is owed, if the runtime has ended and its tasks with it. Returns whether it has.
    fn run_without_tasks(&self, requests: impl FnOnce() -> Vec<Request>) -> bool {
        let words = &self.last_words;
        let is_due =
            words.is_due.load(Ordering::Relaxed) && words.target.is_reached_from_anywhere();
        if !is_due || words.is_vain.load(Ordering::Relaxed) {
            return is_due;
        }
        let mut requests = requests();
        requests.extend(words.take_owed());
        if !requests.is_empty() {
            words.say(requests, &self.config);
        }
        is_due
    }
}

/// The release that leaves the server with the holds that a guard still relies on.
fn left_behind(tenure: &Arc<Tenure>) -> Option<Request> {
    let reason = tenure.lost_reason(tokio::time::Instant::now());
    let (live, is_ours) = (
        tenure.live_count(),
        reason.is_none_or(|reason| reason == LostReason::Closed),
    );
    let (spec, entry) = (&tenure.spec, tenure.entry());
    (is_ours && live < tenure.on_server())
        .then(|| spec.protocol.release(spec, &entry.owner, None, live))
}
