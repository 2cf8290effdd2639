//! Releases holds.

use std::sync::{Arc, atomic::Ordering};

use futures_util::future::join_all;
use tokio::{sync::mpsc, task::yield_now, time::Instant};

use super::{BoxFuture, CallError, Engine, SHUTDOWN_WAIT, runtime};
use crate::{
    durability::Durability,
    engine::{
        final_requests::RuntimeEndGuard, hold_guard::released, hold_set::HoldId,
        owners::OwnerEntryRef, retry::Retry, tenure::Tenure, wakeup::LastRelease,
    },
    error::{Error, LostReason},
    owner::{Owner, OwnerId},
    redis::SendPermit,
    wire::{Lease, LockSpec, Presence, Refusal, Released, Reply, Request, presence},
};

/// How often the last reader to leave has ready tasks go first.
const MOST_YIELDS: u32 = 4;

/// A job for the release task: it makes its own way to the end once polled.
type Job = BoxFuture<()>;

/// The queue of the release task.
pub(super) struct Jobs(mpsc::UnboundedSender<Option<Job>>);

pub(super) type QueuedJobs = mpsc::UnboundedReceiver<Option<Job>>;

impl Jobs {
    pub(super) fn new() -> (Self, QueuedJobs) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Says whether there is a release task to do it: not when the client is shut down, or its runtime is gone.
    pub(super) fn push(&self, job: impl Future<Output = ()> + Send + 'static) -> bool {
        self.0.send(Some(Box::pin(job))).is_ok()
    }

    /// No more jobs after those that are queued.
    pub(super) fn finish(&self) {
        let _ = self.0.send(None);
    }
}

/// What a release leaves on the server, and how it is sent first.
struct Release<'a> {
    spec: &'a Arc<LockSpec>,
    entry: &'a OwnerEntryRef,
    /// How many holds remain, and their lease.
    holds: u32,
    lease: Option<Lease>,
    permit: Option<SendPermit>,
    /// The tenure that ends, if other tasks wait for the lock.
    awaited_tenure: Option<&'a Arc<Tenure>>,
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
            permit: None,
            awaited_tenure: None,
        }
    }
}

impl Engine {
    /// Runs the jobs until there are to be no more, then winds up.
    pub(super) async fn keep_releasing(
        self: Arc<Self>,
        _runtime_end: RuntimeEndGuard,
        mut jobs: QueuedJobs,
    ) {
        while let Some(Some(job)) = jobs.recv().await {
            self.tasks.spawn(job);
        }
        self.tasks.close();
        let rest = self.run_rest(&mut jobs);
        if tokio::time::timeout(SHUTDOWN_WAIT, rest).await.is_err() {
            tracing::warn!("a lock client closes although not all releases were answered");
        }
        self.wind_up().await;
    }

    /// Runs the jobs that the last jobs make: an attempt that is granted after all is given back.
    async fn run_rest(&self, jobs: &mut QueuedJobs) {
        loop {
            tokio::select! {
                biased;
                job = jobs.recv() => match job {
                    Some(Some(job)) => drop(self.tasks.spawn(job)),
                    Some(None) => {}
                    None => return,
                },
                // The last of them may have made one meanwhile.
                () = self.tasks.wait() => match jobs.try_recv() {
                    Ok(job) => drop(job.map(|job| self.tasks.spawn(job))),
                    // A task may have begun another release since.
                    Err(_) if !self.tasks.is_empty() => {}
                    Err(_) => return,
                },
            }
        }
    }

    /// Releases a hold, whether or not the future that is returned is polled to its end.
    pub(super) async fn release(
        self: &Arc<Self>,
        tenure: Arc<Tenure>,
        id: HoldId,
        permit: Option<SendPermit>,
    ) -> Result<Released, Error> {
        tenure.mark_leaving(id);
        if let Some(left) = tenure.leave(id) {
            return Ok(released(left));
        }
        // Known without a request, and without waiting for those on their way.
        if let Some(reason) = tenure.lost_reason(Instant::now()) {
            let error = tenure.lost_error(reason);
            if tenure.may_outlive_its_holders(Instant::now()) {
                self.give_back_later(tenure);
            }
            return Err(error);
        }
        let until = tenure.valid_until();
        let release = self.clone().run_release(tenure.clone(), id, permit);
        match self.finish_within(&tenure.spec, release).await {
            Err(error @ Error::Unavailable { .. }) => {
                let reason = unexpected_loss(&tenure, until);
                Err(reason.map_or(error, |reason| tenure.lost_error(reason)))
            }
            done => done,
        }
    }

    /// Asks the server about a tenure that a reader has left, if its last answer is old. A release would have shown a loss.
    pub(super) fn verify_if_stale(self: &Arc<Self>, tenure: &Arc<Tenure>) {
        if tenure.begin_check_if_stale(Instant::now()) {
            let (engine, tenure) = (self.clone(), tenure.clone());
            self.jobs.push(async move { engine.verify(vec![tenure]) });
        }
    }

    /// Releases the latest hold of `owner` that has no guard.
    pub(crate) async fn release_leaked(
        self: &Arc<Self>,
        spec: &LockSpec,
        owner: Owner,
        permit: Option<SendPermit>,
    ) -> Result<Released, Error> {
        runtime::check()?;
        let leaked = self
            .owners
            .tenure(spec, spec.mode, OwnerId::new(self.id, owner))
            .and_then(|tenure| {
                let id = tenure.take_leaked(owner)?;
                Some((tenure, id))
            });
        let Some((tenure, id)) = leaked else {
            return Err(Error::NotHeld {
                name: spec.name.clone(),
            });
        };
        self.release(tenure, id, permit).await
    }

    /// Releases `id`, sending as often as it takes. Renewal has stopped before (invariant 6).
    ///
    /// There is no time limit in here: what has been sent may yet be run, and until its answer is in, or its connection
    /// is known to be gone, the owner's next operation on the lock must not overtake it (P-A4).
    async fn run_release(
        self: Arc<Self>,
        tenure: Arc<Tenure>,
        id: HoldId,
        permit: Option<SendPermit>,
    ) -> Result<Released, Error> {
        for _ in 0..MOST_YIELDS {
            if !tenure.is_about_to_be_joined() {
                break;
            }
            yield_now().await;
            if let Some(left) = tenure.leave(id) {
                return Ok(released(left));
            }
        }
        tenure.mark_ending(id);
        match tenure.is_lent() {
            true => {
                let engine = self.clone();
                let release = Box::pin(engine.lock_and_release(tenure, id, permit));
                self.run_as_task(release).await
            }
            false => self.lock_and_release(tenure, id, permit).await,
        }
    }

    async fn lock_and_release(
        self: Arc<Self>,
        tenure: Arc<Tenure>,
        id: HoldId,
        permit: Option<SendPermit>,
    ) -> Result<Released, Error> {
        let _op_lock = tenure.entry().take_op_lock().await;
        self.release_all_dropped(&tenure.spec, tenure.entry()).await;
        self.release_locked(&tenure, id, permit).await
    }

    async fn release_locked(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        id: HoldId,
        permit: Option<SendPermit>,
    ) -> Result<Released, Error> {
        // Other readers may have come since.
        if let Some(left) = tenure.leave(id) {
            return Ok(released(left));
        }
        let sent = Instant::now();
        if let Some(reason) = tenure.lost_reason(sent) {
            self.lose(tenure, reason);
            if tenure.may_outlive_its_holders(sent) {
                // Boxed, as it is seldom needed, and large.
                Box::pin(self.give_back(&tenure.spec, tenure.entry())).await;
            }
            return Err(tenure.lost_error(reason));
        }
        let until = tenure.valid_until();
        let left = tenure.begin_release(Some(id), sent);
        let mut release = Release::new(&tenure.spec, tenure.entry(), left.clone());
        if release.holds > 0 {
            // Those that remain may have to be told earlier than before.
            self.watch(tenure);
        }
        release.permit = permit;
        release.awaited_tenure = (release.holds == 0 && self.is_awaited(tenure)).then_some(tenure);
        let over = || unexpected_loss(tenure, until).is_some();
        let sending = self.send_release(release, over);
        match sending.await {
            Ok(Presence::Present) => {
                let owner = tenure.owner_of(id);
                self.record_release(tenure, Some(id), sent, &left);
                let left = tenure.count_of(owner);
                if left == 0 {
                    self.record_released(tenure, owner);
                }
                Ok(released(left))
            }
            Ok(Presence::Absent) => {
                self.lose(tenure, LostReason::Gone);
                Err(tenure.lost_error(LostReason::Gone))
            }
            Err(error) => {
                if left.0 == 0 {
                    self.wakeups.end_hold(&tenure.spec);
                }
                if error == Error::Closed {
                    // The runtime may be ending around this task, with the connection gone before: its final requests are those of
                    // the tenures, and then those that are added here.
                    self.final_requests
                        .add(release_to(&tenure.spec, tenure.entry(), left.0));
                }
                // As far as is known, the server counts it still.
                let on_server = tenure.on_server();
                // A shutdown reports what is left when the client closes, unless another task has waited for its release.
                if !self.is_closed() || !tenure.has_entry() {
                    self.record_unreleased(tenure, [(tenure.owner_of(id), 1)]);
                    self.record_release(tenure, Some(id), sent, &(on_server, None));
                }
                Err(error)
            }
        }
    }

    /// Whether other tasks wait for the lock of `tenure`.
    fn is_awaited(&self, tenure: &Tenure) -> bool {
        let is_queued = || tenure.local().is_some_and(|local| local.waiting() > 0);
        tenure.spec.has_one_holder() && (self.wakeups.is_awaited() || is_queued())
    }

    /// Records a release that was sent at `sent` and has left so many holds with that lease.
    fn record_release(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        id: Option<HoldId>,
        sent: Instant,
        (holds, lease): &(u32, Option<Lease>),
    ) {
        tenure.finish_release(id, sent, *holds, lease.as_ref());
        self.watch(tenure);
        // Their loss may have been told before the release gave the server a new lease for them.
        if *holds > 0 && tenure.may_live_on() && tenure.lost_reason(Instant::now()).is_some() {
            self.give_back_later(tenure.clone());
        }
    }

    /// Releases a hold whose guard was dropped. The caller has the operation lock.
    pub(super) async fn release_dropped(self: &Arc<Self>, tenure: &Arc<Tenure>, id: HoldId) {
        match self.release_locked(tenure, id, None).await {
            Ok(_) | Err(Error::Lost { .. }) => {}
            Err(error) => {
                let name = &tenure.spec.name;
                match self.lines.left.may_log() {
                    Some(suppressed) => {
                        tracing::warn!(%name, error = %error.in_full(), suppressed, "a dropped guard's lock was not released");
                    }
                    None => {
                        tracing::debug!(%name, error = %error.in_full(), "a dropped guard's lock was not released")
                    }
                }
            }
        }
    }

    /// Releases what the owner has dropped and the release task has not reached yet: an owner that drops its guard and
    /// locks again gives other owners their chance in between. The caller has the operation lock.
    pub(super) async fn release_all_dropped(
        self: &Arc<Self>,
        spec: &LockSpec,
        entry: &OwnerEntryRef,
    ) {
        if self.dropped.is_empty() {
            return;
        }
        while let Some((tenure, id)) = self.owners.take_dropped(spec, entry) {
            // Boxed, as it is seldom needed, and large.
            Box::pin(self.release_dropped(&tenure, id)).await;
        }
    }

    /// Releases a last hold of a lock with other waiters. Where a later request is sure to be executed after it, the next of
    /// this client's tasks asks at once, unless a yield to other clients is due.
    async fn release_to_waiters(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        permit: Option<SendPermit>,
    ) -> Result<Reply, CallError> {
        let spec = &tenure.spec;
        let mut unanswered = Unanswered(Some((self, tenure)));
        let waiting = tenure.local().map_or(0, |local| local.waiting());
        let last_release = LastRelease::begin(&self.wakeups, spec, waiting);
        let release = spec.protocol.release(spec, &tenure.entry().owner, None, 0);
        // The order of a batch is not known beforehand; and a release that waits for replicas has a connection of its own, on which
        // an attempt could overtake it.
        let is_first =
            permit.is_none() && tenure.durability(self.batcher.replicas(spec)) == Durability::Local;
        let is_ours = !last_release.yields()
            && tenure
                .local()
                .is_none_or(|local| local.begin_release(Instant::now()));
        let answer = match is_first && is_ours {
            true => {
                let sent = || tenure.let_next_ask();
                self.batcher
                    .run_telling(release, Durability::Local, sent)
                    .await
            }
            false => {
                self.batcher
                    .run_from(permit, release, Durability::Local)
                    .await
            }
        };
        unanswered.0 = None;
        let reply = answer?.reply;
        if reply.is_done() {
            last_release.finish(&reply);
        }
        Ok(reply)
    }

    /// Sends `release` as often as it takes, unless what is left is `over` anyway; says whether there was anything to release.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn has its arguments twice, and it is moved to the heap for every release"
    )]
    fn send_release<'a>(
        self: &'a Arc<Self>,
        mut release: Release<'a>,
        over: impl Fn() -> bool + Send + 'a,
    ) -> impl Future<Output = Result<Presence, Error>> + Send + 'a {
        async move {
            let mut retry = Retry::default();
            loop {
                let answer = match release.awaited_tenure.take() {
                    Some(tenure) => self.release_to_waiters(tenure, release.permit.take()).await,
                    None => self.send_once(&mut release).await,
                };
                let error = match release_presence(answer) {
                    // An earlier sending may have done it: the lease had not run out then.
                    Ok(Presence::Absent) if retry.is_in_doubt() && release.holds == 0 => {
                        self.wakeups.end_hold(release.spec);
                        return Ok(Presence::Present);
                    }
                    Ok(presence) => return Ok(presence),
                    Err(error) => error,
                };
                let again = retry.again(&release.spec.name, error)?;
                if !retry.is_in_doubt() && over() {
                    return Err(again.into_error());
                }
                again.pause().await;
            }
        }
    }

    async fn send_once(&self, release: &mut Release<'_>) -> Result<Reply, CallError> {
        let (spec, holds) = (release.spec, release.holds);
        let owner = &release.entry.owner;
        let request = (spec.protocol).release(spec, owner, release.lease.as_ref(), holds);
        let sending = self
            .batcher
            .run_from(release.permit.take(), request, Durability::Local);
        let reply = sending.await?.reply;
        if holds == 0 && reply.is_done() {
            self.wakeups.record_release(spec, &reply);
        }
        Ok(reply)
    }

    /// Releases what was held until the client closed, if that was asked for. What is not released is reported.
    pub(super) async fn release_held(self: &Arc<Self>, tenures: Vec<Arc<Tenure>>) {
        let is_asked_for = self.releases_held.load(Ordering::Acquire);
        let releases = tenures.into_iter().map(|tenure| async move {
            let release = Release::new(&tenure.spec, tenure.entry(), (0, None));
            let release = self.send_release(release, || false);
            let is_released = is_asked_for
                && !tenure.is_left_to_lease()
                && tokio::time::timeout(SHUTDOWN_WAIT, release)
                    .await
                    .is_ok_and(|released| released.is_ok());
            let is_meant_to_stay = is_asked_for && tenure.is_left_to_lease();
            if !is_released && !is_meant_to_stay {
                self.record_unreleased(&tenure, tenure.owners());
            }
        });
        join_all(releases).await;
    }

    /// Takes back, in its turn, what the clock has ended on this side of the connection.
    pub(super) fn give_back_later(self: &Arc<Self>, tenure: Arc<Tenure>) {
        let engine = self.clone();
        self.jobs.push(async move {
            let entry = tenure.entry();
            let _op_lock = entry.take_op_lock().await;
            if engine.owners.sent_by(&tenure.spec, entry).is_none() {
                engine.give_back(&tenure.spec, entry).await;
            }
        });
    }

    /// Releases what an attempt may have been granted that no caller wants or can rely on. The owner's other holds
    /// stay. The caller has the operation lock.
    pub(super) async fn give_back(self: &Arc<Self>, spec: &Arc<LockSpec>, entry: &OwnerEntryRef) {
        let live = self
            .owners
            .sent_by(spec, entry)
            .filter(|tenure| tenure.lost_reason(Instant::now()).is_none());
        if live.is_some() && spec.protocol.most_holds() == 1 {
            // There is nothing besides, and its release would take no account of what is to be left.
            return;
        }
        let sent = Instant::now();
        // The lease of what is taken back may be longer than theirs.
        let left = live.as_ref().map(|tenure| tenure.begin_release(None, sent));
        let left = left.unwrap_or_default();
        let release = Release::new(spec, entry, left.clone());
        // A server in passing trouble, such as a failover, is given the time that it has for everybody else.
        let until = Instant::now() + self.config.outage_wait;
        let given_back = self.send_release(release, || Instant::now() >= until);
        match (given_back.await, live) {
            (Ok(Presence::Present), Some(tenure)) => {
                self.record_release(&tenure, None, sent, &left)
            }
            (Ok(Presence::Absent), Some(tenure)) => self.lose(&tenure, LostReason::Gone),
            (Ok(_), None) => {}
            (Err(error), _) => {
                let name = &spec.name;
                match self.lines.left.may_log() {
                    Some(suppressed) => {
                        tracing::warn!(%name, error = %error.in_full(), suppressed, "an unwanted hold was left to its lease");
                    }
                    None => {
                        tracing::debug!(%name, error = %error.in_full(), "an unwanted hold was left to its lease")
                    }
                }
            }
        }
    }
}

/// A last release that may have given way to the next waiter, whose tenure is then in no table. Its task is dropped before the answer only
/// as its runtime ends.
struct Unanswered<'a>(Option<(&'a Arc<Engine>, &'a Arc<Tenure>)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((engine, tenure)) = self.0.filter(|(_, tenure)| !tenure.has_entry()) {
            engine.add_final_request(release_to(&tenure.spec, tenure.entry(), 0));
        }
    }
}

/// A release that leaves `holds`.
fn release_to(spec: &LockSpec, entry: &OwnerEntryRef, holds: u32) -> Request {
    spec.protocol.release(spec, &entry.owner, None, holds)
}

/// What the server answered to a release.
fn release_presence(answer: Result<Reply, CallError>) -> Result<Presence, CallError> {
    match presence(answer?) {
        Err(Refusal::WrongKind { .. }) => Ok(Presence::Absent),
        presence => presence.map_err(CallError::Refused),
    }
}

/// Why `tenure` is lost, if not merely by the release of one of its holds, before which it was counted on until `until`: a
/// release that is not executed leaves the server the longer lease.
fn unexpected_loss(tenure: &Tenure, until: Instant) -> Option<LostReason> {
    let now = Instant::now();
    let reason = tenure.lost_reason(now)?;
    (reason != LostReason::Expired || now >= until).then_some(reason)
}
