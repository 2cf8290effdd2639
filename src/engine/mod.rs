//! The engine: acquires locks, waits for them, renews them and releases them.
//!
//! Decisions are plain functions and tables that take the time as an argument. Tasks of a few lines
//! act on them.
//!
//! | part | decides | acts |
//! | --- | --- | --- |
//! | [`acquire`], [`attempt`], [`pause`] | - | the one loop that acquires a lock, for every kind |
//! | [`request`] | - | what an acquisition asks for, and its deadline |
//! | [`standing`] | how an owner may ask for a hold, and under which owner's field | - |
//! | [`grant`] | whether a grant becomes a hold | records it in a tenure |
//! | [`retry`] | when a request that failed is sent again | - |
//! | [`loss`] | - | notifies holders of a loss, on any runtime |
//! | [`extend`] | - | extends a hold, reads the leader of an election |
//! | [`fair_queue`] | - | removes entries of ended waits from fair queues |
//! | [`group`] | - | acquires several locks, all or a majority |
//! | [`members`] | which answers decide an operation of a group | - |
//! | [`hold_guard`], [`release`], [`detach`] | - | releases holds; completes what a dropped future began |
//! | [`final_requests`] | - | releases dropped holds when the runtime has ended |
//! | [`unreleased`] | which holds the report of a shutdown lists | - |
//! | [`long_waits`], [`long_holds`] | - | logs a task that waits or holds for long; shows the oldest to gauges |
//! | [`holder_details`] | - | names the clients of holders, and says since when they hold |
//! | [`dropped`] | - | makes later operations wait for the releases of dropped guards |
//! | [`local_lock`], [`local_wait`] | which task of this client has a lock, and which is next | hands it off |
//! | [`readers`] | - | lets readers of this client share a hold |
//! | [`owners`], [`hold_set`], [`tenure`], [`uses`] | which owner has which holds, and until when | - |
//! | [`deadline_queue`], [`alarm`], [`watchdog`] | what is due | renews, and notifies holders of a loss |
//! | [`telemetry`] | - | shows acquisitions and holds to gauges and spans |
//! | [`runtime`], [`own_thread`] | whether a runtime suffices for a client | runs a client on a thread of its own |
//! | [`waiters`], [`room_queue`], [`echoes`], [`room`], [`wakeup`] | which waiter is woken | subscribes, and polls for waiters without a message |
//! | [`synchronizers`] | which waiter of a semaphore or latch is notified | acquires permits, waits, releases them |
//! | [`yielding`], [`intents`] | when a lock is left to other clients, or to a writer | - |
//! | [`time_limits`] | how long each of these waits | - |

mod acquire;
mod alarm;
mod attempt;
mod deadline_queue;
mod detach;
mod dropped;
mod echoes;
mod extend;
mod fair_queue;
mod final_requests;
mod grant;
mod group;
mod hold_guard;
mod hold_set;
mod holder_details;
mod intents;
mod local_lock;
mod local_wait;
mod long_holds;
mod long_waits;
mod loss;
mod members;
mod own_thread;
mod owners;
mod pause;
mod queries;
mod readers;
mod release;
mod request;
mod retry;
mod room;
mod room_queue;
mod runtime;
mod standing;
mod synchronizers;
mod telemetry;
mod tenure;
mod time_limits;
mod unreleased;
mod uses;
mod waiters;
mod wakeup;
mod watchdog;
mod yielding;

use std::{
    ops::Deref,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{runtime::Handle, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::{NoContext, Timestamp, Uuid};

pub(crate) use hold_guard::{HoldGuard, OnFailure};
pub(crate) use loss::{cancel_at_the_loss_of_group, loss_of, loss_of_group, lost_reason};
pub(crate) use members::{
    Group, HeldMember, Member, Quota, gather, join_group, longest_answer_wait, release_all,
    results_of, summed_up, valid_until,
};
pub(crate) use request::{AcquireOptions, AcquireRequest, Deadline, Subject};
#[cfg(feature = "blocking")]
pub(crate) use runtime::PollsHere;
pub(crate) use synchronizers::{ExpirablePermitGuard, PermitGuard};
pub(crate) use tenure::Tenure;

use crate::{
    config::Config,
    durability::Durability,
    error::{Cause, Error, LostReason, NO_ANSWER},
    gauges::Gauges,
    held_lock::{HeldLock, ShutdownReport},
    owner::{Owner, OwnerId},
    rate_limit::RateLimit,
    redis::{self, Answered, Batcher, BoxFuture, CallError, Event, Events, Target},
    simulation,
    sync::lock,
    timers,
    wire::{
        Lease, LockProtocol, LockSpec, Presence, Reply, Request, name, presence,
        sync_spec::SyncSpec,
    },
};
use detach::DetachOnDrop;
use dropped::PendingReleases;
use final_requests::{FinalRequests, RuntimeEndGuard};
use holder_details::KnownClients;
use local_wait::ContendedLocks;
use own_thread::OwnThread;
use owners::{OwnerEntryRef, OwnerTable};
use release::JobQueue;
use retry::{Retry, refusal_error};
use synchronizers::Synchronizers;
use time_limits::HOLDERS_LOOKED_FOR_EVERY;
use unreleased::UnreleasedHolds;
use wakeup::Wakeups;
use watchdog::Watchdog;

/// The state and the background tasks of one client.
pub(crate) struct Engine {
    pub(crate) id: Uuid,
    pub(crate) config: Config,
    /// The options of acquisitions whose handles set none.
    pub(crate) options: Arc<AcquireOptions>,
    batcher: Batcher,
    owners: OwnerTable,
    watchdog: Watchdog,
    wakeups: Wakeups,
    contended: ContendedLocks,
    synchronizers: Synchronizers,
    jobs: JobQueue,
    final_requests: FinalRequests,
    log_limits: LogLimits,
    gauges: Gauges,
    dropped: Arc<PendingReleases>,
    /// Cancelled when the client begins to refuse acquisitions: at the close, or before it.
    refusing: CancellationToken,
    /// A copy of `refusing` without a mutex: the token has one, for which all tasks would contend.
    refuses: AtomicBool,
    known_clients: KnownClients,
    closed: CancellationToken,
    /// A copy of `closed`, as `refuses`.
    is_closed: AtomicBool,
    tasks: TaskTracker,
    /// Has a token of each permit with a guard.
    permit_holders: TaskTracker,
    /// Cancelled at the end of the shutdown, or of the runtime: the remaining background tasks then
    /// end.
    ended: CancellationToken,
    unreleased: UnreleasedHolds,
    /// The shutdown releases the holds that are left.
    releases_held: AtomicBool,
}

/// Returns the id of a client. Its time tells other clients how old the holds can be. Its random bits come from the operating system,
/// so that copies of a process differ (P-T10).
fn new_client_id() -> Uuid {
    match simulation::id() {
        Some(id) => uuid::Builder::from_random_bytes(id.to_le_bytes()).into_uuid(),
        None => Uuid::new_v7(Timestamp::now(NoContext)),
    }
}

/// Limits of log lines about events that may concern many holds at once.
struct LogLimits {
    losses: RateLimit,
    refusals: RateLimit,
    failed_releases: RateLimit,
    campaigns: RateLimit,
    deadlocks: RateLimit,
    slow_holds: RateLimit,
    slow_waits: RateLimit,
    mixed_publishing: RateLimit,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            losses: RateLimit::new(2),
            refusals: RateLimit::new(1),
            failed_releases: RateLimit::new(1),
            campaigns: RateLimit::new(1),
            deadlocks: RateLimit::new(1),
            slow_holds: RateLimit::new(60),
            slow_waits: RateLimit::new(60),
            mixed_publishing: RateLimit::new(1),
        }
    }
}

/// A reference to the engine. After the drop of the last one, the background tasks run the queued
/// releases and end.
#[derive(Clone)]
pub(crate) struct EngineHandle(Arc<EngineLifetime>);

struct EngineLifetime(Arc<Engine>, Option<OwnThread>);

impl Deref for EngineHandle {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.0.0
    }
}

impl Drop for EngineLifetime {
    fn drop(&mut self) {
        self.0.jobs.finish();
        // Waits for the thread, if there is one.
        self.1.take();
    }
}

impl EngineHandle {
    /// Connects, and starts the background tasks on the current runtime.
    pub(crate) async fn start(target: Target, config: Config) -> Result<Self, Error> {
        Self::start_with(target, config, None).await
    }

    async fn start_with(
        target: Target,
        mut config: Config,
        thread: Option<OwnThread>,
    ) -> Result<Self, Error> {
        let mut target = target;
        let watchdog_lease = config.check()?;
        if let (false, Err(reason)) = (
            config.name_prefix.is_empty(),
            name::check(&config.name_prefix),
        ) {
            return Err(Error::config(format!(
                "name_prefix cannot begin the name of a lock: {reason}"
            )));
        }
        runtime::check_drivers(target.is_reached_from_anywhere())?;
        let id = new_client_id();
        target.name_connections(&config.connection_name(id));
        let final_requests = FinalRequests::new(target.clone());
        let connected = redis::connect(target, &config).await?;
        Ok(Self::start_on(
            id,
            connected,
            final_requests,
            config,
            watchdog_lease,
            thread,
        ))
    }

    fn start_on(
        id: Uuid,
        (redis, events): redis::Connected,
        final_requests: FinalRequests,
        config: Config,
        watchdog_lease: Lease,
        thread: Option<OwnThread>,
    ) -> Self {
        let (jobs, queued) = JobQueue::new();
        let options = AcquireOptions {
            lease: watchdog_lease,
            watched: true,
            back_off: None,
            durability: config.durability,
            ends_when_done: false,
            refused: None,
        };
        let engine = Arc::new(Engine {
            id,
            options: Arc::new(options),
            batcher: Batcher::new(redis.clone(), Handle::current()),
            synchronizers: Synchronizers::new(redis.clone(), id, &config),
            wakeups: Wakeups::new(redis, config.max_poll_interval, config.yield_to_others),
            config,
            owners: OwnerTable::default(),
            contended: ContendedLocks::default(),
            watchdog: Watchdog::default(),
            jobs,
            final_requests,
            log_limits: LogLimits::default(),
            gauges: Gauges::new(),
            dropped: Arc::default(),
            refusing: CancellationToken::new(),
            refuses: AtomicBool::new(false),
            known_clients: KnownClients::default(),
            closed: CancellationToken::new(),
            is_closed: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            permit_holders: TaskTracker::new(),
            ended: CancellationToken::new(),
            unreleased: UnreleasedHolds::default(),
            releases_held: AtomicBool::new(false),
        });
        let batcher = &engine.batcher;
        batcher.spawn(engine.clone().keep_renewed());
        batcher.spawn(engine.clone().keep_waking(events));
        // Made before the spawn: the runtime may end before the task's first poll, and the guard
        // must be dropped then too.
        let runtime_end = RuntimeEndGuard(engine.clone());
        batcher.spawn(engine.clone().run_jobs(runtime_end, queued));
        Self(Arc::new(EngineLifetime(engine, thread)))
    }
}

impl Engine {
    fn owner_entry(self: &Arc<Self>, spec: &LockSpec, owner: Owner) -> OwnerEntryRef {
        self.owners.enter(&spec.name, OwnerId::new(self.id, owner))
    }

    /// Completes when the guards of the lock `name` that were dropped before this call are
    /// released, or after `command_wait`.
    async fn wait_for_dropped_guards(&self, name: &str) {
        let until = Instant::now() + self.config.command_wait;
        // Without a runtime there is no timer to wait with, and the call that follows fails.
        if runtime::check().is_ok()
            && let Some(released) = self.dropped.wait_for(name, until)
        {
            let _: bool = released.await;
        }
    }

    /// Returns the spec and the options for a handle on `name`. Handles share the spec of a lock in
    /// use.
    pub(crate) fn subject(&self, name: Arc<str>, protocol: &'static dyn LockProtocol) -> Subject {
        let known = self.owners.spec(&name, protocol);
        Subject {
            spec: known.unwrap_or_else(|| Arc::new(self.spec(name, protocol))),
            options: self.options.clone(),
        }
    }

    /// The key of `name`.
    pub(crate) fn key_of(&self, name: &Arc<str>) -> Arc<str> {
        match &*self.config.name_prefix {
            "" => name.clone(),
            prefix => [prefix, name].concat().into(),
        }
    }

    /// Only the keys have the prefix of the client's names.
    fn spec(&self, name: Arc<str>, protocol: &'static dyn LockProtocol) -> LockSpec {
        let key = self.key_of(&name);
        LockSpec {
            name,
            ..protocol.spec(key, &self.config)
        }
    }

    /// The runtime of the client's tasks.
    pub(crate) fn runtime(&self) -> &Handle {
        self.batcher.runtime()
    }

    /// Returns why no lock can have this name: it or its key is invalid, or its channel has another
    /// slot of the cluster.
    pub(crate) fn check_name(&self, name: &Arc<str>) -> Result<(), &'static str> {
        name::check(name)?;
        let key = self.key_of(name);
        // The prefix has been checked.
        if key.len() > name::MAX_NAME {
            return Err("with Config::name_prefix it is longer than 65536 bytes");
        }
        if self.batcher.redis().is_cluster() && !name::shares_slot(&key) {
            return Err(
                "its braces, or those of Config::name_prefix, put the lock and its channel into different slots of the cluster",
            );
        }
        Ok(())
    }

    /// Returns why no latch can have this spec: its braces put its channel into another slot, where
    /// the server refuses sharded messages.
    pub(crate) fn check_latch(&self, spec: &SyncSpec) -> Result<(), &'static str> {
        let redis = self.batcher.redis();
        let is_sharded = redis.is_cluster() && redis.counts_listeners();
        match is_sharded && redis.slot(&spec.key) != redis.slot(&spec.channel) {
            true => {
                Err("its braces put the latch and its channel into different slots of the cluster")
            }
            false => Ok(()),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Why the client has ended. The connections of a runtime may end before the task that closes the client.
    fn end_reason(&self) -> LostReason {
        match self.refuses() && !self.final_requests.are_due() {
            true => LostReason::Closed,
            false => LostReason::RuntimeEnded,
        }
    }

    /// The error of operations after the end of the client.
    pub(crate) fn closed_error(&self) -> Error {
        match self.end_reason() {
            LostReason::RuntimeEnded => Error::RuntimeEnded,
            _ => Error::Closed,
        }
    }

    /// Whether `error` says no more than that the runtime of the client ends.
    fn is_runtime_end(&self, error: &Error) -> bool {
        *error == Error::Closed && self.end_reason() == LostReason::RuntimeEnded
    }

    /// `error`, or for a closed client the error that says why.
    fn explained(&self, error: Error) -> Error {
        match error {
            Error::Closed => self.closed_error(),
            error => error,
        }
    }

    /// Whether the client refuses acquisitions, because a shutdown has begun.
    pub(crate) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Acquire)
    }

    /// Completes when a shutdown begins.
    pub(crate) async fn refusing(&self) {
        self.refusing.cancelled().await;
    }

    /// Refuses acquisitions from now on, and ends waits. Holders keep their holds.
    fn refuse(&self) {
        self.refuses.store(true, Ordering::Release);
        self.refusing.cancel();
        self.wakeups.close();
        self.synchronizers.close();
        self.notify_contended();
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.closed.cancel();
        self.refuse();
    }

    /// Sends a request until it is answered, for at most `command_wait`. If an answer is lost and
    /// the request may not be `repeated`, returns an error that says so.
    async fn call(
        &self,
        spec: &LockSpec,
        request: Request,
        repeated: bool,
    ) -> Result<Reply, Error> {
        self.call_by(spec, request, Durability::Local, repeated)
            .await
    }

    /// As [`call`](Self::call), on the connection for this durability.
    async fn call_by(
        &self,
        spec: &LockSpec,
        request: Request,
        durability: Durability,
        repeated: bool,
    ) -> Result<Reply, Error> {
        runtime::check()?;
        let refusal = Mutex::new(None);
        let answered = async {
            let mut retry = Retry::default();
            loop {
                let error = match self.send(&request, durability).await {
                    Ok(answered) => return Ok(answered.reply),
                    Err(_) if self.is_closed() => return Err(self.closed_error()),
                    Err(error) => error,
                };
                let again =
                    (retry.again(&spec.name, error)).map_err(|error| self.explained(error))?;
                if retry.is_in_doubt() && !repeated {
                    let error = self.unavailable(spec, durability, again.reason());
                    return Err(
                        error.with_note("the server may or may not have executed the request")
                    );
                }
                if again.refusal().is_some() {
                    *lock(&refusal) = Some(Arc::new(Cause::server(again.reason())));
                }
                again.pause().await;
            }
        };
        let limit = self.config.command_wait;
        let answer = timers::timeout(limit, answered).await;
        match answer.unwrap_or_else(|_| Err(self.timeout_error(spec, durability))) {
            // No connection has failed: the cause is the server's last transient error, if there
            // was one.
            Err(Error::Unavailable {
                reason,
                cause: None,
            }) => Err(Error::unavailable_by(reason, lock(&refusal).take())),
            done => done,
        }
    }

    /// Sends a request once, and waits for the replicas that `durability` requires. A transient
    /// error within the script is an error here.
    async fn send(&self, request: &Request, durability: Durability) -> Result<Answered, CallError> {
        let answered = self.batcher.run(request.clone(), durability).await?;
        match answered.reply.transient() {
            Some(refusal) => Err(CallError::Refused(refusal)),
            None => Ok(answered),
        }
    }

    /// The error for a request about `spec` without an answer. Its cause is the trouble of the
    /// connection, if that is known.
    fn unavailable(
        &self,
        spec: &LockSpec,
        durability: Durability,
        reason: impl Into<String>,
    ) -> Error {
        self.batcher.unavailable(&spec.key, durability, reason)
    }

    /// Runs `future` to its end, even if the caller is dropped. Returns its result, or an error
    /// after `command_wait`.
    ///
    /// Not an `async fn`, which would reserve space for `future` besides its box.
    fn finish_within<T: Send + 'static>(
        self: &Arc<Self>,
        spec: &LockSpec,
        durability: Durability,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> {
        let until = Instant::now() + self.config.command_wait;
        DetachOnDrop::always(self, until, future).map(move |done| {
            let done = done.unwrap_or_else(|| Err(self.timeout_error(spec, durability)));
            done.map_err(|error| self.explained(error))
        })
    }

    /// The error for a request without an answer within `command_wait`.
    fn timeout_error(&self, spec: &LockSpec, durability: Durability) -> Error {
        self.unavailable(spec, durability, NO_ANSWER)
    }

    /// Returns how long the slowest server takes to answer.
    pub(crate) async fn ping(&self) -> Result<Duration, Error> {
        runtime::check()?;
        let (began, limit) = (Instant::now(), self.config.command_wait);
        let pinged = async {
            match self.is_closed() {
                true => Err(CallError::Closed),
                false => self.batcher.ping().await,
            }
        };
        match tokio::time::timeout(limit, pinged).await {
            Ok(Ok(())) => Ok(began.elapsed()),
            Ok(Err(CallError::Closed)) => Err(self.closed_error()),
            Ok(Err(CallError::Unanswered { reason, .. })) => {
                Err(self.batcher.any_unavailable(&*reason))
            }
            // PING reads no key, so the error names no lock.
            Ok(Err(CallError::Refused(refusal))) => Err(refusal_error(&"".into(), refusal)),
            Err(_) => Err(self.batcher.any_unavailable(NO_ANSWER)),
        }
    }

    /// Returns the tenures with valid holds that have a guard or were leaked.
    fn live_tenures(&self, now: Instant) -> Vec<Arc<Tenure>> {
        let mut tenures = self.owners.tenures(None);
        tenures.retain(|tenure| tenure.lost_reason(now).is_none() && tenure.live_count() > 0);
        tenures
    }

    /// Returns the valid holds that have a guard or were leaked.
    pub(crate) fn held(&self) -> Vec<HeldLock> {
        let mut tenures = self.live_tenures(Instant::now());
        tenures.sort_by_key(|tenure| tenure.since);
        let held = tenures.iter().flat_map(|tenure| {
            let owners = tenure.live_owners().into_iter();
            owners.map(|(owner, holds)| HeldLock {
                name: tenure.spec.name.clone(),
                owner: OwnerId::new(self.id, owner),
                holds,
                since: tenure.since.into_std(),
                valid_until: tenure.valid_until().into_std(),
            })
        });
        held.collect()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.batcher.is_connected()
    }

    /// Frees the lock, whichever owner holds it; returns whether it was held.
    pub(crate) async fn force_release(self: &Arc<Self>, spec: &LockSpec) -> Result<bool, Error> {
        self.wait_for_dropped_guards(&spec.name).await;
        let before = self.owners.tenures(Some(&spec.name));
        // Not repeated: a second sending could free the lock of an owner that acquired it in
        // between.
        let reply = self
            .call(spec, spec.protocol.force_release(spec), false)
            .await?;
        let freed = presence(reply).map_err(|refusal| refusal_error(&spec.name, refusal))?
            == Presence::Present;
        // Holders in other clients notice the loss later; holders of this client, now. A read side is not freed under a writer.
        let knows =
            |tenure: &Tenure| freed || tenure.spec.mode == spec.mode && !spec.mode.is_shared();
        for tenure in before.iter().filter(|tenure| knows(tenure)) {
            self.record_absence(tenure);
        }
        self.owners.readers(&spec.name).close();
        // The server may have granted these before it executed the forced release.
        self.verify(self.owners.tenures(Some(&spec.name)));
        Ok(freed)
    }

    /// Shuts the client down: see [`LockClient::shutdown`](crate::LockClient::shutdown).
    pub(crate) async fn shutdown(&self) -> ShutdownReport {
        self.remove_ended_holds();
        self.close();
        let began = Instant::now();
        self.jobs.finish();
        self.ended.cancelled().await;
        ShutdownReport {
            unreleased: self.unreleased.take(began),
        }
    }

    /// As [`shutdown`](Self::shutdown), and releases the holds that are left.
    pub(crate) async fn shutdown_and_release(&self) -> ShutdownReport {
        self.releases_held.store(true, Ordering::Release);
        self.shutdown().await
    }

    /// As [`shutdown_and_release`](Self::shutdown_and_release), once no hold is left, or after `wait`. Refuses acquisitions from its
    /// call on.
    pub(crate) async fn shutdown_within(&self, wait: Duration) -> ShutdownReport {
        self.refuse();
        // A client that has closed has no holders, and without a runtime there are no timers.
        if !self.is_closed() && runtime::check().is_ok() {
            let without_holders = self.closed.run_until_cancelled(self.without_holders());
            // A longer wait is more than clocks can count.
            let _ = timers::timeout(wait.min(Lease::MAX), without_holders).await;
        }
        self.shutdown_and_release().await
    }

    /// Completes when neither a lock nor a permit is held. Holds have no count of their own, which each acquisition would change:
    /// this looks for them again and again.
    async fn without_holders(&self) {
        // A request that was sent before the shutdown may be granted meanwhile.
        while !self.permit_holders.is_empty() || !self.live_tenures(Instant::now()).is_empty() {
            timers::sleep(HOLDERS_LOOKED_FOR_EVERY).await;
        }
    }

    /// Runs the last steps of a shutdown, when no release can be queued any more.
    async fn wind_up(self: &Arc<Self>) {
        self.close();
        let mut tenures = self.owners.tenures(None);
        tenures.retain(|tenure| self.lose(tenure, LostReason::Closed));
        let is_silent = self.release_held(tenures).await;
        let closing = self.batcher.redis().close();
        // A majority does not wait for a silent server again: its connections end in the background.
        if !is_silent {
            closing.await;
        }
        self.ended.cancel();
    }
}
