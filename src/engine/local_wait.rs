//! The tasks at a local queue ([`local_lock`](super::local_lock)): a task waits until it may ask the server
//! or is handed the lock, and a holder hands the lock to the first waiter.
//!
//! One background task per client checks all contended locks for waiters and askers that are not
//! polled.

use std::sync::{Arc, Mutex};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    Engine,
    hold_guard::HoldGuard,
    hold_set::HoldId,
    local_lock::{Entered, EntryId, Step},
    owners::LocalRef,
    request::{AcquireRequest, Deadline},
    room,
    telemetry::End,
    tenure::Tenure,
    time_limits::PICK_UP,
    waiters::max_poll_interval,
};
use crate::{
    error::{Error, NO_ANSWER},
    owner::OwnerId,
    sync::lock,
};

/// How a waiter is notified.
pub(super) type Signal = room::Signal<HoldGuard>;

/// The locks with a local queue. One background task checks all of them.
#[derive(Default)]
pub(super) struct ContendedLocks {
    locks: Mutex<Vec<LocalRef>>,
    changed: Notify,
    begun: Notify,
}

impl ContendedLocks {
    fn add(&self, local: &LocalRef) {
        lock(&self.locks).push(local.clone());
        self.changed.notify_one();
        self.begun.notify_one();
    }

    /// Completes when a lock has a local queue.
    pub(super) async fn awaited(&self) {
        if lock(&self.locks).is_empty() {
            self.begun.notified().await;
        }
    }

    /// Checks all contended locks. Returns the time of the next check, and the tenures to verify.
    fn check(&self, engine: &Engine, now: Instant) -> (Option<Instant>, Vec<Arc<Tenure>>) {
        let mut next = None;
        let mut to_verify = Vec::new();
        let mut over = Vec::new();
        let mut withdrawn = Vec::new();
        let mut notified = Vec::new();
        let mut marks = Vec::new();
        lock(&self.locks).retain(|local| {
            let pause = |tenure: &Arc<Tenure>| {
                max_poll_interval(&tenure.spec, engine.config.max_poll_interval)
            };
            let can_ask = |request: &AcquireRequest| engine.batcher.is_ready(&request.spec);
            let mark = |hold: &HoldGuard| marks.push(hold.mark_dropped());
            let check = local.check(now, pause, can_ask, mark);
            to_verify.extend(check.to_verify);
            withdrawn.extend(check.withdrawn);
            notified.push(check.notified);
            next = [next, check.next].into_iter().flatten().min();
            if check.next.is_none() {
                over.push(local.clone());
            }
            check.next.is_some()
        });
        // The drop of a withdrawn hold hands it to the next waiter, or releases it. It locks a
        // local queue, so the list is unlocked before.
        drop((withdrawn, notified, over, marks));
        (next, to_verify)
    }
}

/// An entry in the local queue, of a waiter or of the asker. Its drop notifies the next waiter.
pub(super) struct LocalEntry {
    local: LocalRef,
    id: EntryId,
    signal: Option<Arc<Signal>>,
    /// The error of an attempt without an answer, for the next asker.
    error: Option<Box<Error>>,
}

/// The end of a wait in the local queue.
pub(super) enum Admission {
    /// The task asks the server, as the asker if the lock has a local queue.
    Ask,
    /// The task's owner holds the lock already, so the task asks out of turn. If it is refused, it
    /// enqueues again.
    Reenter,
    /// Another task of this client has handed the lock to the task.
    Acquired(HoldGuard),
    /// The deadline has passed.
    TimedOut,
}

impl LocalEntry {
    pub(super) fn local(&self) -> LocalRef {
        self.local.clone()
    }

    /// Sets how the task is notified while it is the asker.
    pub(super) fn set_listener(&self, signal: &Arc<Signal>) {
        self.local.set_listener(self.id, signal, Instant::now());
    }

    /// The client's tenure of the lock, as far as the client knows.
    pub(super) fn tenure(&self) -> Option<Arc<Tenure>> {
        self.local.current().map(|(_, tenure)| tenure)
    }

    /// Whether the task is still the asker.
    pub(super) fn is_asker(&self) -> bool {
        self.local.is_asker(self.id)
    }

    /// Records that the asker sends its attempt at `at`, after a sleep.
    pub(super) fn schedule_attempt(&self, at: Instant) {
        self.local.schedule_attempt(self.id, at);
    }

    /// Records that the asker sends its attempt now.
    pub(super) fn begin_attempt(&self) {
        self.local.begin_attempt(self.id, Instant::now());
    }

    /// Whether the lock was held at some time during the wait, as far as this client knows.
    pub(super) fn has_waited(&self) -> bool {
        let since = self.signal.as_ref().map(|signal| signal.since);
        since.is_some_and(|since| self.local.was_busy_since(since))
    }

    /// The signal of the task's wait in the local queue, if it has waited there.
    pub(super) fn signal(&self) -> Option<Arc<Signal>> {
        self.signal.clone()
    }

    /// The end of a wait at its deadline. A hold that was handed over at the last moment still
    /// counts. `None` if no task could ask the server.
    fn timed_out(&self) -> Option<Admission> {
        if let Some(hold) = self.signal.as_ref().and_then(|signal| signal.take()) {
            return Some(Admission::Acquired(hold));
        }
        self.has_waited().then_some(Admission::TimedOut)
    }

    pub(super) fn record_failure(&mut self, error: &Error) {
        let is_unavailable = matches!(error, Error::Unavailable { .. });
        self.error = is_unavailable.then(|| Box::new(error.clone()));
    }
}

impl Drop for LocalEntry {
    fn drop(&mut self) {
        let notified = self
            .local
            .leave(self.id, self.error.take().map(|error| *error));
        // A hold that was handed to the task, and not taken, goes to the next waiter.
        let passed = self.signal.as_ref();
        drop(passed.and_then(|signal| signal.take()));
        drop(notified);
    }
}

impl Engine {
    /// Enters the local queue, if the lock has one. Returns the entry if the task must
    /// [wait](Self::wait_in_queue) there. Otherwise the task asks at once; it has no entry if its
    /// owner holds the lock already.
    pub(super) fn enter_queue<'a>(
        self: &Arc<Self>,
        request: &AcquireRequest,
        entry: &'a mut Option<LocalEntry>,
    ) -> Result<Option<&'a mut LocalEntry>, Error> {
        let Some(local) = self
            .owners
            .local(&request.spec)
            .filter(|_| request.spec.has_local_queue())
        else {
            return Ok(None);
        };
        let current = local.current();
        if current.is_none_or(|(owner, _)| owner != request.owner) {
            self.may_wait(&request.spec, OwnerId::new(self.id, request.owner))?;
        }
        let waits = || (request.clone(), Signal::new(request.owner));
        let (id, signal) = match local.enter(request.owner, waits) {
            Entered::AlreadyHolds => return Ok(None),
            Entered::Asker(id) => (id, None),
            Entered::Waiter {
                id,
                signal,
                is_first,
            } => {
                if is_first {
                    self.contended.add(&local);
                }
                (id, Some(signal))
            }
        };
        let waits = signal.is_some();
        let entry = entry.insert(LocalEntry {
            local,
            id,
            signal,
            error: None,
        });
        Ok(waits.then_some(entry))
    }

    /// Waits in the local queue, until this task may ask the server or has the lock.
    ///
    /// Not an `async fn`, and every timer is boxed: each task that waits in a local queue stores
    /// this future.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn stores its arguments twice"
    )]
    pub(super) fn wait_in_queue<'a>(
        self: &'a Arc<Self>,
        request: &'a AcquireRequest,
        entry: &'a mut LocalEntry,
        deadline: &'a Deadline,
    ) -> impl Future<Output = Result<Admission, Error>> + Send + use<'a> {
        async move {
            let _waiter = self.gauges.waiter(request.spec.protocol.kind());
            loop {
                let is_turn = match self.admission(entry)? {
                    None => false,
                    Some(Admission::Ask) => true,
                    Some(other) => return Ok(other),
                };
                if is_turn {
                    if let Some(until) = entry.local.take_gap() {
                        Box::pin(sleep_until(deadline.earlier(until))).await;
                    }
                    return Ok(Admission::Ask);
                }
                let Some(signal) = &entry.signal else {
                    return Ok(Admission::Ask);
                };
                let in_time = match deadline {
                    Deadline::Until(deadline) => {
                        let notified = timeout_at(*deadline, signal.notified());
                        Box::pin(notified).await.is_ok()
                    }
                    _ => {
                        signal.notified().await;
                        true
                    }
                };
                if !in_time {
                    return entry.timed_out().ok_or_else(|| {
                        self.unavailable(&request.spec, request.durability, NO_ANSWER)
                    });
                }
            }
        }
    }

    /// Decides whether the wait is over, and how.
    fn admission(&self, entry: &mut LocalEntry) -> Result<Option<Admission>, Error> {
        // A closing client notifies the waiters that are registered; a later one sees here that the client has closed.
        if self.refuses() {
            return Err(self.closed_error());
        }
        let Some(signal) = &entry.signal else {
            return Ok(Some(Admission::Ask));
        };
        match entry.local.next_step(entry.id, signal) {
            Step::Wait => Ok(None),
            Step::Acquired(hold) => Ok(Some(Admission::Acquired(hold))),
            // The server has answered no task for `outage_wait`, and this task has waited for as
            // long.
            Step::Ask(Some((error, since)))
                if since.max(signal.since).elapsed() >= self.config.outage_wait =>
            {
                entry.record_failure(&error);
                Err(error)
            }
            Step::Ask(_) => Ok(Some(Admission::Ask)),
            Step::Reenter => Ok(Some(Admission::Reenter)),
        }
    }

    /// Hands a last hold to the first waiter of the local queue, under the conditions of
    /// docs/design.md, "Hand-off". If it returns true, the hold has another owner, and nothing was
    /// sent.
    pub(super) fn hand_off(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        id: HoldId,
        acknowledged: Option<u32>,
    ) -> bool {
        let Some(local) = tenure
            .local
            .as_ref()
            .filter(|_| tenure.spec.protocol.hands_off_locally() && tenure.kept_until().is_none())
        else {
            return false;
        };
        if self.config.local_hand_off.is_zero() {
            return false;
        }
        let now = Instant::now();
        let mut next = None;
        let passed = local.hand_off(tenure.number, now, |waiter| {
            let request = &waiter.request;
            let alike = request.watched && request.spec.protocol.hands_off_locally();
            let listed = || self.batcher.replicas(&tenure.spec);
            // Checked under the mutex of the local lock: a closing client first sets the flag, then
            // takes the holds that were handed off and not picked up.
            if self.refuses() || !alike || !tenure.is_durable_enough(request.durability, listed()) {
                return None;
            }
            // No request under this field may be under way.
            let _op_lock = tenure.entry().op_lock.try_lock().ok()?;
            let (follower, id) = self.owners.make_successor(tenure, id, request, now)?;
            let mut hold = HoldGuard::new(self.clone(), follower.clone(), id);
            hold.acknowledged = acknowledged;
            next = Some(follower.clone());
            Some((follower.current(), hold))
        });
        let Some(is_new) = passed else {
            return false;
        };
        self.watchdog.forget(tenure);
        tenure.telemetry().end(End::HandedOff);
        let kind = tenure.spec.protocol.kind();
        self.gauges.record_hand_off(kind);
        if let Some(next) = next {
            let telemetry = next.telemetry();
            telemetry.begin(|| self.gauges.holder(kind, next.since));
            self.watch(&next);
        }
        if is_new {
            self.contended.changed.notify_one();
        }
        true
    }

    /// Checks the contended locks, so that no waiter is stuck behind a notified task that is not
    /// polled. Never completes. A check covers all local queues, so checks are at least [`PICK_UP`]
    /// apart, however often locks are handed off.
    pub(super) async fn watch_contended_locks(self: &Arc<Self>) {
        loop {
            let changed = self.contended.changed.notified();
            let now = Instant::now();
            let (next, to_verify) = self.contended.check(self, now);
            for tenure in to_verify {
                self.verify_long_held(tenure);
            }
            match next {
                None => changed.await,
                Some(next) => {
                    let _ = timeout_at(next, changed).await;
                }
            }
            sleep_until(now + PICK_UP).await;
        }
    }

    /// Verifies a tenure that tasks have waited behind for long: a forced release may have ended
    /// it. The client also subscribes while it has the tenure, to hear of one that comes later.
    fn verify_long_held(self: &Arc<Self>, tenure: Arc<Tenure>) {
        let spec = tenure.spec.clone();
        // A tenure whose release is under way ends by that, and nothing would end the subscription.
        let listening = match spec.announced {
            true => self.wakeups.listen_while(&spec, || tenure.is_held()),
            false => None,
        };
        let Some(listening) = listening else {
            self.verify(vec![tenure]);
            return;
        };
        let engine = self.clone();
        self.batcher.spawn(async move {
            let listens = engine.closed.run_until_cancelled(listening).await;
            if matches!(listens, Some(Ok(()))) {
                engine.wakeups.record_subscription(&spec);
            }
            engine.verify(vec![tenure]);
        });
    }

    /// Notifies all waiters, which see that the client is closed.
    pub(super) fn notify_contended(&self) {
        drop(self.owners.locals(|local| [local.close()]));
    }
}
