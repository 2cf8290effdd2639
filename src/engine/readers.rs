//! The readers of one client share a read hold.
//!
//! A read hold that the server granted is *open* in the hand-off window
//! ([`Config::local_hand_off`]): other readers of the client join its tenure in memory, and send
//! nothing. The last reader to leave releases the hold. A client thus costs the server two scripts
//! per window, however many of its tasks read. A writer elsewhere waits for the window, and for the
//! critical sections that began in it.
//!
//! The last reader to leave first yields to ready tasks, if readers have joined before. There is no
//! queue of readers to which it could hand the hold, and tasks that read again and again would
//! otherwise find it gone.
//!
//! After the window, one reader asks the server for the next hold, and readers that arrive
//! meanwhile wait for its answer. They wait for one answer only, and not for long, because the
//! future of the asking reader may be kept and never polled. After that, each reader asks for
//! itself. Only the number of scripts depends on their waiting.
//!
//! [`Config::local_hand_off`]: crate::Config::local_hand_off

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    task::coop::consume_budget,
    time::{Instant, timeout_at},
};

use super::{
    Engine,
    attempt::{AttemptOutcome, PriorAttempt},
    hold_guard::HoldGuard,
    request::{AcquireRequest, Deadline},
    runtime,
    tenure::Tenure,
    time_limits::{LONGEST_READER_WAIT, SHORTEST_READER_WAIT},
    uses::Use,
};
use crate::{
    error::Error,
    owner::OwnerId,
    sync::{AtomicUsize, Mutex, Ordering, lock},
};

/// The state that the readers of one client share of a lock.
#[derive(Default)]
pub(super) struct Readers {
    state: Mutex<State>,
    answered: Notify,
    /// The number of readers that wait for another reader's answer.
    waiting: AtomicUsize,
}

pub(super) type ReadersRef = Use<Arc<str>, Readers>;

#[derive(Default)]
struct State {
    tenure: Option<Arc<Tenure>>,
    /// The number of the reader that asks the server for all.
    asker: Option<u64>,
    askers: u64,
    /// How long the last asker waited for its answer.
    answer_takes: Duration,
}

impl Readers {
    pub(super) fn shared(&self) -> Option<Arc<Tenure>> {
        lock(&self.state).tenure.clone()
    }

    /// Yields to ready tasks: a task that reads again and again would keep them, and waiting readers, from their turn.
    pub(super) async fn yield_to_ready_tasks(&self) {
        match self.has_waiters() {
            true => runtime::yield_now().await,
            false => consume_budget().await,
        }
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Makes `tenure` the shared one, which readers join. Returns the previous one.
    pub(super) fn share(&self, tenure: &Arc<Tenure>) -> Option<Arc<Tenure>> {
        lock(&self.state).tenure.replace(tenure.clone())
    }

    /// Ends the sharing: no reader joins the shared tenure any more.
    pub(super) fn close(&self) {
        let shared = lock(&self.state).tenure.take();
        shared.inspect(|tenure| tenure.close_to_readers());
    }

    /// Ends the sharing of the tenure `number`, which is over. Returns it if it was shared.
    pub(super) fn forget(&self, number: u64) -> Option<Arc<Tenure>> {
        let mut state = lock(&self.state);
        state.tenure.take_if(|tenure| tenure.number == number)
    }
}

/// The role of the reader that asks for all. Its drop notifies the waiting readers.
pub(super) struct Asking {
    readers: ReadersRef,
    number: u64,
    began: Instant,
}

impl Asking {
    /// If another reader asks, returns its number, and for how long to wait for its answer.
    fn begin(readers: &ReadersRef) -> Result<Self, (u64, Duration)> {
        let mut state = lock(&readers.state);
        if let Some(asker) = state.asker {
            return Err((
                asker,
                (2 * state.answer_takes).clamp(SHORTEST_READER_WAIT, LONGEST_READER_WAIT),
            ));
        }
        state.askers += 1;
        state.asker = Some(state.askers);
        Ok(Self {
            readers: readers.clone(),
            number: state.askers,
            began: Instant::now(),
        })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut state = lock(&self.readers.state);
        state.asker.take_if(|asker| *asker == self.number);
        state.answer_takes = self.began.elapsed();
        drop(state);
        // Notified even if another reader asks by now: readers that wait for this one have its
        // answer.
        self.readers.answered.notify_waiters();
    }
}

/// Counts a reader that waits for another reader's answer.
struct WaitingReader<'a>(&'a Readers);

impl<'a> WaitingReader<'a> {
    fn begin(readers: &'a Readers) -> Self {
        readers.waiting.fetch_add(1, Ordering::Relaxed);
        Self(readers)
    }
}

impl Drop for WaitingReader<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Whether a request is that of a reader that may share: its lease is the watchdog's.
    pub(super) fn may_share(&self, request: &AcquireRequest) -> bool {
        request.spec.mode.is_shared() && request.watched && !self.config.local_hand_off.is_zero()
    }

    /// Joins the shared tenure, if it is open.
    pub(super) fn join(
        self: &Arc<Self>,
        readers: &ReadersRef,
        request: &AcquireRequest,
    ) -> Option<HoldGuard> {
        if self.refuses() {
            return None;
        }
        let owner = OwnerId::new(self.id, request.owner);
        let fits = |tenure: &Tenure| {
            tenure.is_durable_enough(request.durability, self.batcher.replicas(&request.spec))
        };
        let kind = request.spec.protocol.kind();
        let holder = || self.gauges.holder(kind, Instant::now());
        let (tenure, id, is_first) = self.owners.join(readers, owner, fits, holder)?;
        if is_first {
            self.watch(&tenure);
        }
        self.gauges.record_hand_off(kind);
        let mut hold = HoldGuard::new(self.clone(), tenure, id);
        hold.acknowledged = hold.tenure().acknowledged;
        Some(hold)
    }

    /// As [`join`](Self::join), after the tasks that are ready.
    pub(super) async fn join_in_turn(
        self: &Arc<Self>,
        request: &AcquireRequest,
    ) -> Option<HoldGuard> {
        let readers = self.owners.readers(&request.spec.name);
        readers.yield_to_ready_tasks().await;
        self.join(&readers, request)
    }

    /// Joins the shared tenure, waits for another reader's answer and joins then, or asks the
    /// server.
    pub(super) async fn try_shared(
        self: &Arc<Self>,
        request: &AcquireRequest,
        deadline: Deadline,
        until: Instant,
        prior: Option<PriorAttempt>,
    ) -> Result<AttemptOutcome, Error> {
        let readers = self.owners.readers(&request.spec.name);
        let mut answered = pin!(readers.answered.notified());
        answered.as_mut().enable();
        if let Some(hold) = self.join(&readers, request) {
            return Ok(AttemptOutcome::Granted(hold));
        }
        let ask = || self.try_until(request, None, until, prior);
        let entry = self.owner_entry(&request.spec, request.owner);
        if entry.read_tenure().is_some() {
            // A re-entry adds to a tenure that was shared before, and does not share it anew.
            return ask().await;
        }
        drop(entry);
        let (asker, longest) = match Asking::begin(&readers) {
            Ok(_asking) => return ask().await,
            Err(other) => other,
        };
        let waiting = WaitingReader::begin(&readers);
        let longest = Instant::now() + longest;
        let answered = timeout_at(until.min(deadline.earlier(longest)), answered).await;
        if answered.is_err() && Instant::now() >= longest {
            // The asking reader may never be polled: readers that arrive later wait for another
            // one.
            lock(&readers.state).asker.take_if(|now| *now == asker);
        }
        let joined = self.join(&readers, request);
        drop(waiting);
        match joined {
            Some(hold) => Ok(AttemptOutcome::Granted(hold)),
            None => ask().await,
        }
    }
}
