//! The local queue at work ([`local`](super::local)): a task waits until it may ask the server or is handed the lock, and a holder
//! hands the lock to the next task.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    Engine,
    hold_guard::HoldGuard,
    hold_set::HoldId,
    local::{Entered, EntryId, Step},
    owners::LocalRef,
    request::{AcquireRequest, Deadline},
    room::{self, PICK_UP},
    telemetry::End,
    tenure::Tenure,
    waiters::poll_floor,
};
use crate::{error::Error, owner::OwnerId};

/// How a waiter is notified.
pub(super) type Signal = room::Signal<HoldGuard>;

/// The locks with a local queue. One background task looks after all of them.
#[derive(Default)]
pub(super) struct ContendedLocks {
    locks: Mutex<Vec<LocalRef>>,
    changed: Notify,
    begun: Notify,
}

impl ContendedLocks {
    fn locks(&self) -> std::sync::MutexGuard<'_, Vec<LocalRef>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, local: &LocalRef) {
        self.locks().push(local.clone());
        self.changed.notify_one();
        self.begun.notify_one();
    }

    /// Completes when there are any.
    pub(super) async fn awaited(&self) {
        if self.locks().is_empty() {
            self.begun.notified().await;
        }
    }

    /// Looks after them all. Says when to look again, and what the server is to be asked about.
    fn look(&self, engine: &Engine, now: Instant) -> (Option<Instant>, Vec<Arc<Tenure>>) {
        let mut next = None;
        let mut to_verify = Vec::new();
        let mut over = Vec::new();
        let mut withdrawn = Vec::new();
        let mut notified = Vec::new();
        let mut marks = Vec::new();
        self.locks().retain(|local| {
            let pause = |tenure: &Arc<Tenure>| poll_floor(&tenure.spec, engine.config.poll_floor);
            let can_ask = |request: &AcquireRequest| engine.batcher.is_ready(&request.spec);
            let mark = |hold: &HoldGuard| marks.push(hold.mark_dropped());
            let look = local.look(now, pause, can_ask, mark);
            to_verify.extend(look.to_verify);
            withdrawn.extend(look.withdrawn);
            notified.push(look.notified);
            next = [next, look.next].into_iter().flatten().min();
            if look.next.is_none() {
                over.push(local.clone());
            }
            look.next.is_some()
        });
        // A hold that was not picked up is handed to the next waiter, or released.
        drop((withdrawn, notified, over, marks));
        (next, to_verify)
    }
}

/// An entry in the local queue, of a waiter or of the asker. Its drop notifies the next waiter.
pub(super) struct LocalEntry {
    local: LocalRef,
    id: EntryId,
    signal: Option<Arc<Signal>>,
    /// Why the server was not asked, or has not answered.
    error: Option<Box<Error>>,
}

/// What a task does when its wait in the local queue is over.
pub(super) enum Admission {
    /// It asks the server: as the asker of the local queue, if the lock has one.
    Ask,
    /// It asks the server out of turn, as its owner holds the lock already. If it is refused all the same, it comes back.
    Reenter,
    /// It has the lock, handed on by another task of this client.
    Acquired(HoldGuard),
    /// Its deadline is over.
    TimedOut,
}

impl LocalEntry {
    /// Sets how the task is notified while it is the asker.
    pub(super) fn set_listener(&self, signal: &Arc<Signal>) {
        self.local.set_listener(self.id, signal, Instant::now());
    }

    /// The tenure of the lock that this client has, as far as it knows.
    pub(super) fn tenure(&self) -> Option<Arc<Tenure>> {
        self.local.current().map(|(_, tenure)| tenure)
    }

    /// Whether it is still this task that asks.
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

    /// Whether the lock was taken while it waited for its turn, or was when last heard of.
    pub(super) fn has_waited(&self) -> bool {
        let since = self.signal.as_ref().map(|signal| signal.since);
        since.is_some_and(|since| self.local.was_busy_since(since))
    }

    /// The signal by which it was notified before.
    pub(super) fn signal(&self) -> Option<Arc<Signal>> {
        self.signal.clone()
    }

    /// What a waiter does whose deadline is over.
    fn timed_out(&self) -> Result<Admission, Error> {
        if let Some(hold) = self.signal.as_ref().and_then(|signal| signal.take()) {
            return Ok(Admission::Acquired(hold));
        }
        match self.has_waited() {
            true => Ok(Admission::TimedOut),
            false => Err(Error::unavailable(
                "the lock could not be asked for in time",
            )),
        }
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
        // What it was passed and has not taken goes to the next.
        let passed = self.signal.as_ref();
        drop(passed.and_then(|signal| signal.take()));
        drop(notified);
    }
}

impl Engine {
    /// Enters the local queue, if the lock has one. Says whether the task is to [wait](Self::wait_in_queue) there, or to ask at once:
    /// without an entry if its owner holds the lock already.
    pub(super) fn enter_queue(
        self: &Arc<Self>,
        request: &AcquireRequest,
        entry: &mut Option<LocalEntry>,
    ) -> Result<bool, Error> {
        let Some(local) = self
            .owners
            .local(&request.spec)
            .filter(|_| request.spec.has_one_holder())
        else {
            return Ok(false);
        };
        let current = local.current();
        if current.is_none_or(|(owner, _)| owner != request.owner) {
            self.may_wait(&request.spec, OwnerId::new(self.id, request.owner))?;
        }
        let waits = || (request.clone(), Signal::new(request.owner));
        let (id, signal) = match local.enter(request.owner, waits) {
            Entered::AlreadyHolds => return Ok(false),
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
        *entry = Some(LocalEntry {
            local,
            id,
            signal,
            error: None,
        });
        Ok(waits)
    }

    /// Waits in the local queue, until this task may ask the server or has the lock.
    ///
    /// No `async fn`, and no timer that is not boxed: every task that waits in a local queue has this future.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn stores its arguments twice"
    )]
    pub(super) fn wait_in_queue<'a>(
        self: &'a Arc<Self>,
        request: &'a AcquireRequest,
        entry: &'a mut Option<LocalEntry>,
        deadline: &'a Deadline,
    ) -> impl Future<Output = Result<Admission, Error>> + Send + use<'a> {
        async move {
            let _waiter = self.gauges.waiter(request.spec.protocol.kind());
            loop {
                let Some(entry) = &mut *entry else {
                    return Ok(Admission::Ask);
                };
                let is_turn = match self.admission(entry)? {
                    None => false,
                    Some(Admission::Ask) => true,
                    Some(other) => return Ok(other),
                };
                if is_turn {
                    if let Some(until) = entry.local.take_rest() {
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
                    return entry.timed_out();
                }
            }
        }
    }

    /// What a waiter of the local queue is to do now, if its wait is over.
    fn admission(&self, entry: &mut LocalEntry) -> Result<Option<Admission>, Error> {
        // A closing client notifies the waiters that are registered; a later one sees here that the client has closed.
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let Some(signal) = &entry.signal else {
            return Ok(Some(Admission::Ask));
        };
        match entry.local.next_step(entry.id, signal) {
            Step::Wait => Ok(None),
            Step::Acquired(hold) => Ok(Some(Admission::Acquired(hold))),
            // No task has had an answer for this long, and this one has waited for as long.
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

    /// Hands a last hold to the first waiter of the local queue, if it may be handed on. Returns whether it was: then the hold is gone,
    /// and the server has not heard of it.
    pub(super) fn hand_off(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        id: HoldId,
        acknowledged: Option<u32>,
    ) -> bool {
        let Some(local) = tenure
            .local()
            .filter(|_| tenure.spec.protocol.hands_off_locally())
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
            // Asked here, as a client that closes looks after this for holds that were passed and not picked up.
            if self.is_closed() || !alike || !tenure.is_durable_enough(request.durability, listed())
            {
                return None;
            }
            // Whatever is on its way in the name of the field is to be over.
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

    /// Keeps waiters from being stuck behind a notified task that is not polled, for as long as this is polled itself. All local queues
    /// are looked at, so there is a pause between two looks however often locks are handed on.
    pub(super) async fn watch_contended_locks(self: &Arc<Self>) {
        loop {
            let changed = self.contended.changed.notified();
            let now = Instant::now();
            let (next, to_verify) = self.contended.look(self, now);
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

    /// Asks the server about a tenure behind which tasks have waited for long. It may have been forced open, which they are to learn as if
    /// they asked the server themselves.
    fn verify_long_held(self: &Arc<Self>, tenure: Arc<Tenure>) {
        let spec = tenure.spec.clone();
        let is_held = || tenure.has_entry();
        let listening = match spec.announced {
            true => self.wakeups.listen_while(&spec, is_held),
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
        drop(self.owners.locals(|_, local| [local.close()]));
    }
}
