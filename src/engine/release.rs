//! Releases of holds, and the release task, which completes what dropped futures and guards leave.
//!
//! A release first stops the renewal of its hold (invariant 6). It takes the owner's operation
//! lock, and is sent until the server answers. A release names the hold count that remains, so a
//! repetition is harmless (invariant 4). A server that refuses it does not end it either, whatever
//! its words: a forgotten release would keep the lock until its lease ends. It runs in its caller's future; if that is dropped, it
//! moves to the release task. The task spawns each job and never waits for it. After the last job
//! it winds up the client.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{sync::mpsc, time::Instant};

use super::{
    BoxFuture, CallError, Engine, runtime,
    time_limits::{MAJORITY_SHUTDOWN_WAIT, SHUTDOWN_WAIT},
};
use crate::{
    durability::Durability,
    engine::{
        final_requests::RuntimeEndGuard,
        hold_guard::{OnFailure, released},
        hold_set::HoldId,
        loss::GroupHold,
        owners::OwnerEntryRef,
        retry::Retry,
        tenure::{Tenure, keep_request},
        wakeup::FreeingRelease,
    },
    error::{Error, LostReason},
    owner::{Owner, OwnerId},
    wire::{Lease, LockSpec, Presence, Refusal, Released, Reply, presence},
};

/// How often the last reader to leave yields to ready tasks.
const MOST_YIELDS: u32 = 4;

/// A job for the release task, which spawns it.
type Job = BoxFuture<()>;

/// The queue of the release task.
pub(super) struct JobQueue(mpsc::UnboundedSender<Option<Job>>);

pub(super) type QueuedJobs = mpsc::UnboundedReceiver<Option<Job>>;

impl JobQueue {
    pub(super) fn new() -> (Self, QueuedJobs) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Queues a job. Returns `false` if there is no release task any more, because the client is
    /// shut down or its runtime has ended.
    pub(super) fn push(&self, job: impl Future<Output = ()> + Send + 'static) -> bool {
        self.0.send(Some(Box::pin(job))).is_ok()
    }

    /// Ends the queue behind the jobs that it has.
    pub(super) fn finish(&self) {
        let _ = self.0.send(None);
    }
}

/// A release: what it leaves on the server.
struct Release<'a> {
    spec: &'a Arc<LockSpec>,
    entry: &'a OwnerEntryRef,
    /// How many holds remain, and their lease.
    holds: u32,
    lease: Option<Lease>,
    /// The tenure whose hold is released. `None` if the hold has no tenure.
    tenure: Option<&'a Arc<Tenure>>,
    /// Whether the tenure ends, and other tasks wait for the lock.
    is_awaited: bool,
    /// The time until which the lock is kept after the last hold.
    kept_until: Option<Instant>,
}

impl<'a> Release<'a> {
    fn new(
        spec: &'a Arc<LockSpec>,
        entry: &'a OwnerEntryRef,
        (holds, lease): (u32, Option<Lease>),
    ) -> Self {
        Self {
            spec,
            entry,
            holds,
            lease,
            tenure: None,
            is_awaited: false,
            kept_until: None,
        }
    }

    /// Whether an unanswered sending may have released the last hold, although a later one finds
    /// none. A sending that began after the validity may have found the lease ended, and another
    /// owner in its place.
    fn may_be_done(&self, retry: &Retry) -> bool {
        let is_in_time = |began| {
            self.tenure
                .is_none_or(|tenure| began < tenure.valid_until())
        };
        self.holds == 0 && retry.in_doubt_since().is_some_and(is_in_time)
    }
}

impl Engine {
    /// Runs the jobs until the queue ends, then winds up.
    pub(super) async fn run_jobs(
        self: Arc<Self>,
        _runtime_end: RuntimeEndGuard,
        mut jobs: QueuedJobs,
    ) {
        while let Some(Some(job)) = jobs.recv().await {
            self.run_job(job);
        }
        self.tasks.close();
        let rest = self.run_remaining(&mut jobs);
        if tokio::time::timeout(SHUTDOWN_WAIT, rest).await.is_err() {
            tracing::warn!("a lock client closes although not all releases were answered");
        } else if self.final_requests.are_near() {
            // Another thread of the runtime has ended the jobs. The guard sends the final requests.
            return;
        }
        self.wind_up().await;
    }

    fn run_job(&self, job: Job) {
        let guard = self.final_requests.guard();
        let task: BoxFuture<()> = Box::pin(async move {
            job.await;
            guard.finished();
        });
        self.tasks.spawn(task);
    }

    /// Runs the jobs that the last jobs queue: an attempt that is granted late is given back.
    async fn run_remaining(&self, jobs: &mut QueuedJobs) {
        loop {
            tokio::select! {
                biased;
                job = jobs.recv() => match job {
                    Some(Some(job)) => self.run_job(job),
                    Some(None) => {}
                    None => return,
                },
                // The last task may have queued a job meanwhile.
                () = self.tasks.wait() => match jobs.try_recv() {
                    Ok(job) => job.into_iter().for_each(|job| self.run_job(job)),
                    // A task may have begun another release since.
                    Err(_) if !self.tasks.is_empty() => {}
                    Err(_) => return,
                },
            }
        }
    }

    /// Releases a hold, even if the returned future is dropped.
    pub(super) async fn release(
        self: &Arc<Self>,
        tenure: Arc<Tenure>,
        id: HoldId,
        on_failure: OnFailure,
    ) -> Result<Released, Error> {
        tenure.mark_leaving(id);
        if let Some(left) = tenure.leave(id) {
            return Ok(released(left));
        }
        // A known loss needs no request, and need not wait for requests under way.
        if let Some(reason) = tenure.lost_reason(Instant::now()) {
            // The watchdog may not have noticed yet.
            self.lose(&tenure, reason);
            let error = tenure.lost_error(reason);
            if tenure.needs_late_release(Instant::now()) {
                self.give_back_later(tenure);
            }
            return Err(error);
        }
        let until = tenure.valid_until();
        let release = self.clone().run_release(tenure.clone(), id, on_failure);
        let finished = self.finish_within(&tenure.spec, Durability::Local, release);
        match finished.await {
            Err(error @ (Error::Unavailable { .. } | Error::Redis { .. })) => {
                Err(match unexpected_loss(&tenure, until) {
                    Some(reason) => tenure.lost_error(reason),
                    None => tenure.entry().refused_release().unwrap_or(error),
                })
            }
            done => done,
        }
    }

    /// Verifies a tenure that a reader has left without a request, if the server's last answer is
    /// old. A release would have shown a loss.
    pub(super) fn verify_if_stale(self: &Arc<Self>, tenure: &Arc<Tenure>) {
        if tenure.begin_check_if_stale(Instant::now()) {
            let (engine, tenure) = (self.clone(), tenure.clone());
            self.jobs.push(async move { engine.verify(vec![tenure]) });
        }
    }

    /// Releases a hold of `owner` that has no guard: that of `group`, or the latest without a group, or else the latest.
    pub(crate) async fn release_leaked(
        self: &Arc<Self>,
        spec: &LockSpec,
        owner: Owner,
        group: Option<&Arc<GroupHold>>,
    ) -> Result<Released, Error> {
        runtime::check()?;
        let leaked = self
            .owners
            .tenure(spec, spec.mode, OwnerId::new(self.id, owner))
            .and_then(|tenure| {
                let id = tenure.take_leaked(owner, group)?;
                Some((tenure, id))
            });
        let Some((tenure, id)) = leaked else {
            return Err(Error::NotHeld {
                name: spec.name.clone(),
            });
        };
        self.release(tenure, id, OnFailure::Return).await
    }

    /// Releases `id`, and sends the request until it is answered. The renewal has stopped before
    /// (invariant 6).
    ///
    /// There is no time limit here: the server may yet execute a request that was sent. The owner's
    /// next operation on the lock must not overtake it before its answer arrives, or its connection
    /// is known to be gone (P-A4).
    async fn run_release(
        self: Arc<Self>,
        tenure: Arc<Tenure>,
        id: HoldId,
        on_failure: OnFailure,
    ) -> Result<Released, Error> {
        for _ in 0..MOST_YIELDS {
            if !tenure.is_about_to_be_joined() {
                break;
            }
            runtime::yield_now().await;
            if let Some(left) = tenure.leave(id) {
                return Ok(released(left));
            }
        }
        tenure.mark_ending(id);
        match tenure.is_lent() {
            true => {
                let engine = self.clone();
                let release = Box::pin(engine.release_with_op_lock(tenure, id, on_failure));
                self.run_as_task(release).await
            }
            false => self.release_with_op_lock(tenure, id, on_failure).await,
        }
    }

    async fn release_with_op_lock(
        self: Arc<Self>,
        tenure: Arc<Tenure>,
        id: HoldId,
        on_failure: OnFailure,
    ) -> Result<Released, Error> {
        let _op_lock = tenure.entry().take_op_lock().await;
        self.release_all_dropped(&tenure.spec, tenure.entry()).await;
        self.release_under_op_lock(&tenure, id, on_failure).await
    }

    async fn release_under_op_lock(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        id: HoldId,
        on_failure: OnFailure,
    ) -> Result<Released, Error> {
        // Other readers may have joined since.
        if let Some(left) = tenure.leave(id) {
            return Ok(released(left));
        }
        let sent = Instant::now();
        if let Some(reason) = tenure.lost_reason(sent) {
            self.lose(tenure, reason);
            if tenure.needs_late_release(sent) {
                // Boxed, because it is rare and large.
                Box::pin(self.give_back(&tenure.spec, tenure.entry(), None)).await;
            }
            return Err(tenure.lost_error(reason));
        }
        let until = tenure.valid_until();
        let reconnections = self.wakeups.reconnections();
        let left = tenure.begin_release(Some(id), sent);
        let mut release = Release::new(&tenure.spec, tenure.entry(), left.clone());
        if release.holds > 0 {
            // The validity of the remaining holds may end earlier than before.
            self.watch(tenure);
        }
        if release.holds == 0 {
            tenure.set_is_freeing();
        }
        release.tenure = Some(tenure);
        release.kept_until = tenure.kept_until();
        release.is_awaited =
            release.holds == 0 && release.kept_until.is_none() && self.is_awaited(tenure);
        let over = || unexpected_loss(tenure, until).is_some();
        let sending = self.send_release(release, &over);
        match sending.await {
            Ok(Presence::Present) => {
                let owner = tenure.owner_of(id);
                self.record_release(tenure, Some(id), sent, &left);
                if left.0 == 0 {
                    // The hold may have been lost since the answer, and recorded as unreleased.
                    self.record_released(&tenure.spec, tenure.entry(), tenure.spec.mode);
                } else {
                    self.verify_since(reconnections, tenure);
                }
                Ok(released(tenure.count_of(owner)))
            }
            Ok(Presence::Absent) => {
                let reason = tenure.lost_reason(Instant::now());
                let reason = reason.unwrap_or(LostReason::Gone);
                self.lose(tenure, reason);
                self.give_back_rest(tenure, left.0);
                Err(tenure.lost_error(reason))
            }
            Err(error) => {
                if left.0 == 0 {
                    self.wakeups.end_hold(&tenure.spec);
                }
                if error == Error::Closed {
                    // The runtime may be ending, and the connection may have ended before this
                    // task. The final requests are the releases of the tenures, and then the
                    // requests that are added here.
                    self.final_requests.add(tenure.release_request(left.0));
                }
                // The server still counts the hold, as far as this client knows.
                let most_on_server = tenure.most_on_server();
                // A closing client reports the present tenures, and those that it loses. This one
                // is reported here if the client is open, or if the tenure has made way for the
                // next waiter.
                let is_reported = tenure.is_current() || tenure.has_reported_loss();
                if !self.is_closed() || !is_reported {
                    self.record_unreleased(tenure, [(tenure.owner_of(id), 1)]);
                    self.record_release(tenure, Some(id), sent, &(most_on_server, None));
                }
                // The end of the runtime sends the release.
                if on_failure == OnFailure::Log && !self.is_runtime_end(&error) {
                    self.log_failed_release(&tenure.spec, &error);
                }
                Err(error)
            }
        }
    }

    /// Whether other tasks wait for the lock of `tenure`.
    fn is_awaited(&self, tenure: &Tenure) -> bool {
        let is_queued = || (tenure.local.as_ref()).is_some_and(|local| local.waiting() > 0);
        tenure.spec.has_local_queue() && (self.wakeups.is_awaited() || is_queued())
    }

    /// Records a release that was sent at `sent` and has left this many holds, with that lease.
    fn record_release(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        id: Option<HoldId>,
        sent: Instant,
        (holds, lease): &(u32, Option<Lease>),
    ) {
        tenure.finish_release(id, sent, *holds, lease.as_ref());
        self.watch(tenure);
        // The remaining holds may have been reported as lost before the release gave the server a
        // new lease for them.
        if *holds > 0 && tenure.server_may_keep_it() && tenure.lost_reason(Instant::now()).is_some()
        {
            self.give_back_later(tenure.clone());
        }
    }

    /// Releases a hold whose guard was dropped. The caller has the operation lock.
    pub(super) async fn release_dropped(self: &Arc<Self>, tenure: &Arc<Tenure>, id: HoldId) {
        let released = self.release_under_op_lock(tenure, id, OnFailure::Log);
        drop(released.await);
    }

    fn log_failed_release(&self, spec: &LockSpec, error: &Error) {
        let name = &spec.name;
        match self.log_limits.failed_releases.may_log_about(error) {
            Some(suppressed) => {
                tracing::warn!(%name, %error, suppressed, "a dropped guard's lock was not released");
            }
            None => {
                tracing::debug!(%name, %error, "a dropped guard's lock was not released")
            }
        }
    }

    /// Releases the owner's dropped holds that the release task has not reached yet. An owner that
    /// drops its guard and locks again must not re-enter: other owners get their chance in between.
    /// The caller has the operation lock.
    pub(super) async fn release_all_dropped(
        self: &Arc<Self>,
        spec: &LockSpec,
        entry: &OwnerEntryRef,
    ) {
        if self.dropped.is_empty() {
            return;
        }
        while let Some((tenure, id)) = self.owners.take_dropped(spec, entry) {
            // Boxed, because it is rare and large.
            Box::pin(self.release_dropped(&tenure, id)).await;
        }
    }

    /// Releases a last hold of a lock that other tasks wait for. Where the server is sure to
    /// execute a later request after the release, this client's next task asks before the answer,
    /// unless a yield to other clients is due.
    async fn release_to_waiters(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
    ) -> Result<Reply, CallError> {
        let spec = &tenure.spec;
        let mut unanswered = Unanswered(Some((self, tenure)));
        let waiting = (tenure.local.as_ref()).map_or(0, |local| local.waiting());
        let freeing_release = FreeingRelease::begin(&self.wakeups, spec, waiting);
        let release = spec.protocol.release(spec, &tenure.entry().field, None, 0);
        // The order of a batch is not known beforehand. An acquisition that waits for replicas
        // travels on another connection, where it could overtake the release.
        let listed = self.batcher.replicas(spec);
        let is_first = !tenure.next_may_wait(self.config.durability, listed);
        let is_ours = !freeing_release.yields()
            && tenure
                .local
                .as_ref()
                .is_none_or(|local| local.begin_release(Instant::now()));
        let answer = match is_first && is_ours {
            true => {
                let sent = || tenure.let_next_ask();
                self.batcher
                    .run_with_callback(release, Durability::Local, sent)
                    .await
            }
            false => self.batcher.run(release, Durability::Local).await,
        };
        unanswered.0 = None;
        let reply = answer?.reply;
        if reply.is_done() {
            freeing_release.finish(&reply);
        }
        Ok(reply)
    }

    /// Sends `release` until the server executes it, whatever the server answers before. Gives up
    /// when the holds are `over`, unless a sending is in doubt. Returns whether there was a hold to release.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn has its arguments twice, and it is moved to the heap for every release"
    )]
    fn send_release<'a>(
        self: &'a Arc<Self>,
        mut release: Release<'a>,
        over: &'a (dyn Fn() -> bool + Sync),
    ) -> impl Future<Output = Result<Presence, Error>> + Send + 'a {
        async move {
            let mut retry = Retry::of_release();
            loop {
                let is_first = std::mem::take(&mut release.is_awaited);
                let answer = match release.tenure.filter(|_| is_first) {
                    Some(tenure) => self.release_to_waiters(tenure).await,
                    None => self.send_once(&release).await,
                };
                let error = match release_presence(answer) {
                    Ok(presence) => {
                        if release.holds == 0 {
                            self.record_released(release.spec, release.entry, release.spec.mode);
                        }
                        if retry.was_refused() {
                            release.entry.set_refused_release(None);
                        }
                        if presence == Presence::Absent && release.may_be_done(&retry) {
                            self.wakeups.end_hold(release.spec);
                            return Ok(Presence::Present);
                        }
                        return Ok(presence);
                    }
                    Err(error) => error,
                };
                release.entry.set_refused_release(None);
                let again = retry.again(&release.spec.name, error)?;
                // A refusal answers the earlier sendings too: their connection is closed.
                if over() && (again.refusal().is_some() || !retry.is_in_doubt()) {
                    return Err(self.last_error(&release.spec.key, &release.spec.name, again));
                }
                let refused = again.refused_error(&release.spec.name);
                release.entry.set_refused_release(refused);
                self.log_repeated_release(&release.spec.name, &again);
                again.pause().await;
            }
        }
    }

    async fn send_once(&self, release: &Release<'_>) -> Result<Reply, CallError> {
        let (spec, holds) = (release.spec, release.holds);
        let request = (release.kept_until.filter(|_| holds == 0))
            .and_then(|until| keep_request(spec, &release.entry.field, until))
            .unwrap_or_else(|| {
                let owner = &release.entry.field;
                (spec.protocol).release(spec, owner, release.lease.as_ref(), holds)
            });
        let reply = self.batcher.run(request, Durability::Local).await?.reply;
        if holds == 0 && reply.is_done() {
            self.wakeups.record_release(spec, &reply);
        }
        Ok(reply)
    }

    /// Releases the holds that are left when the client closes, if the shutdown asks for it.
    /// Reports the holds that are not released. Returns whether a member of a RedLock was not released in its time.
    pub(super) async fn release_held(self: &Arc<Self>, tenures: Vec<Arc<Tenure>>) -> bool {
        let is_asked_for = self.releases_held.load(Ordering::Acquire);
        let releases = tenures.into_iter().map(|tenure| async move {
            let wait = self.wait_for_last_release(&tenure);
            let mut release = Release::new(&tenure.spec, tenure.entry(), (0, None));
            release.kept_until = tenure.kept_until();
            let release = self.send_release(release, &|| false);
            let is_released = is_asked_for
                && tokio::time::timeout(wait, release)
                    .await
                    .is_ok_and(|released| released.is_ok());
            if !is_released {
                self.record_unreleased(&tenure, tenure.owners());
            }
            is_asked_for && !is_released && wait < SHUTDOWN_WAIT
        });
        join_all(releases).await.contains(&true)
    }

    /// How long a shutdown waits for the release of `tenure`. As in an acquisition, a majority waits for a server only as long
    /// as for an answer, and not for one without a connection.
    fn wait_for_last_release(&self, tenure: &Tenure) -> Duration {
        let groups = tenure.groups().unwrap_or_default();
        let waits: Option<Vec<_>> = groups.iter().map(|group| group.answer_wait).collect();
        match waits.and_then(|waits| waits.into_iter().max()) {
            Some(_) if !self.batcher.is_ready(&tenure.spec) => Duration::ZERO,
            Some(wait) => wait.min(MAJORITY_SHUTDOWN_WAIT),
            None => SHUTDOWN_WAIT,
        }
    }

    /// Queues the release of a lost tenure that the server may keep: its validity has ended by this client's clock, or some of its
    /// holds are left.
    pub(super) fn give_back_later(self: &Arc<Self>, tenure: Arc<Tenure>) {
        let engine = self.clone();
        self.jobs.push(async move {
            let entry = tenure.entry();
            let _op_lock = entry.take_op_lock().await;
            if engine
                .owners
                .tenure_under_field(tenure.spec.mode, entry)
                .is_none()
            {
                engine.give_back(&tenure.spec, entry, None).await;
            }
        });
    }

    /// Queues the release of what the server may have left of a lost tenure: it has fewer than `holds` holds, as after a failover.
    pub(super) fn give_back_rest(self: &Arc<Self>, tenure: &Arc<Tenure>, holds: u32) {
        if holds > 1 {
            self.give_back_later(tenure.clone());
        }
    }

    /// Releases a hold that an attempt may have been granted, and that no caller takes or can rely
    /// on. The owner's other holds stay. The caller has the operation lock. `lease` is that of the
    /// grant, unless it is over.
    pub(super) async fn give_back(
        self: &Arc<Self>,
        spec: &Arc<LockSpec>,
        entry: &OwnerEntryRef,
        lease: Option<&Lease>,
    ) {
        let live = self
            .owners
            .tenure_under_field(spec.mode, entry)
            .filter(|tenure| tenure.lost_reason(Instant::now()).is_none());
        if live.is_some() && spec.protocol.most_holds() == 1 {
            // An owner of this kind has one hold at most, so there is no second one. A release here
            // ignores the remaining count, and would end the live hold.
            return;
        }
        let (sent, reconnections) = (Instant::now(), self.wakeups.reconnections());
        // The hold that is given back may have a longer lease than the live ones.
        let left = live.as_ref().map(|tenure| tenure.begin_release(None, sent));
        let left = left.unwrap_or_default();
        let release = Release::new(spec, entry, left.clone());
        // A server that refuses, as in a failover, gets as much time as for any other request, and
        // until the lease ends the hold.
        let lasts = lease.map_or(Duration::ZERO, |lease| lease.duration);
        let until = Instant::now() + self.config.outage_wait.max(lasts);
        let is_over = || Instant::now() >= until;
        let given_back = self.send_release(release, &is_over);
        match (given_back.await, live) {
            (Ok(Presence::Present), Some(tenure)) => {
                self.record_release(&tenure, None, sent, &left);
                self.verify_since(reconnections, &tenure);
            }
            (Ok(Presence::Absent), Some(tenure)) => {
                self.lose(&tenure, LostReason::Gone);
                self.give_back_rest(&tenure, left.0);
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                let name = &spec.name;
                match self.log_limits.failed_releases.may_log_about(&error) {
                    Some(suppressed) => {
                        tracing::warn!(%name, %error, suppressed, "a granted hold that no task uses was not released");
                    }
                    None => {
                        tracing::debug!(%name, %error, "a granted hold that no task uses was not released")
                    }
                }
            }
        }
    }
}

/// A last release without an answer. Its tenure may have made way for the next waiter, and is in no
/// table then. The task is dropped before the answer only when its runtime ends: this adds the
/// final request.
struct Unanswered<'a>(Option<(&'a Arc<Engine>, &'a Arc<Tenure>)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((engine, tenure)) = self.0.filter(|(_, tenure)| !tenure.is_current()) {
            engine.add_final_request(tenure.release_request(0));
        }
    }
}

/// The server's answer to a release. A key of another kind has no hold.
fn release_presence(answer: Result<Reply, CallError>) -> Result<Presence, CallError> {
    match presence(answer?) {
        Err(Refusal::WrongKind { .. }) => Ok(Presence::Absent),
        presence => presence.map_err(CallError::Refused),
    }
}

/// The reason for a loss of `tenure` that the release itself has not caused. A release shortens the
/// validity before it is sent; a release that is not executed leaves the server the longer lease,
/// on which holders relied until `until`.
fn unexpected_loss(tenure: &Tenure, until: Instant) -> Option<LostReason> {
    let now = Instant::now();
    let reason = tenure.lost_reason(now)?;
    (reason != LostReason::Expired || now >= until).then_some(reason)
}
