//! The engine: acquire, wait, renew, release. Each part is a table that decides and a task that acts.
//!
//! | part | decides | acts |
//! | --- | --- | --- |
//! | [`acquire`], [`attempt`], [`pause`] | - | the one loop that acquires a lock, for every kind |
//! | [`standing`] | in whose name an owner asks for a hold, if it may | - |
//! | [`retry`] | when a request that failed is sent again | - |
//! | [`loss`] | - | notifies holders of a loss, on any runtime |
//! | [`extend`] | - | extends a hold, reads the leader of an election |
//! | [`fair_queue`] | - | gives up entries in fair queues |
//! | [`group`] | - | acquires several locks, all or a majority |
//! | [`hold_guard`], [`release`], [`detach`] | - | releases holds; completes what a dropped future began |
//! | [`final_requests`] | - | releases dropped holds when the runtime has ended |
//! | [`long_waits`] | - | logs a task that waits for long, and the holder |
//! | [`dropped`] | - | keeps later operations behind the releases of dropped guards |
//! | [`local`], [`local_queue`] | which of this client's tasks has a lock, and which is next | hands it on |
//! | [`hold_set`], [`tenure`], [`uses`] | what is held, and until when | - |
//! | [`deadline_queue`], [`alarm`], [`watchdog`] | what is due | renews, and notifies holders of a loss |
//! | [`telemetry`] | - | shows acquisitions and holds to gauges and spans |
//! | [`runtime`], [`own_thread`] | what a client needs of a runtime | gives it a runtime of its own |
//! | [`waiters`], [`queue`], [`echoes`], [`room`], [`wakeup`] | which waiter is woken | subscribes, and asks for waiters without a message |
//! | [`synchronizers`] | which waiter of a semaphore or latch is notified | takes permits, waits, gives them back |
//! | [`yielding`], [`intents`] | when a lock is left to other clients, or to a writer | - |

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
mod intents;
mod local;
mod local_queue;
mod long_waits;
mod loss;
mod own_thread;
mod owners;
mod pause;
mod queue;
mod readers;
mod release;
mod request;
mod retry;
mod room;
mod runtime;
mod standing;
mod synchronizers;
mod telemetry;
mod tenure;
mod uses;
mod waiters;
mod wakeup;
mod watchdog;
mod yielding;

use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{runtime::Handle, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

pub(crate) use group::{Group, Member, Part, release_all, send_permits, valid_until};
pub(crate) use hold_guard::HoldGuard;
pub(crate) use loss::{cancel_at_the_end, elsewhere, loss_of, loss_of_group, lost_reason};
pub(crate) use request::{AcquireOptions, AcquireRequest, Deadline, Subject, Then};
pub(crate) use synchronizers::{ExpirablePermitGuard, PermitGuard};
pub(crate) use tenure::Tenure;

use crate::{
    config::Config,
    durability::Durability,
    error::{Cause, Error, LostReason},
    gauges::Gauges,
    held_lock::{HeldLock, ShutdownReport, Unreleased},
    owner::{Owner, OwnerId},
    redis::{self, Answered, Batcher, BoxFuture, CallError, Event, Events, Target},
    seldom::Seldom,
    sync::lock,
    wire::{
        Inspection, Lease, LockProtocol, LockSpec, Presence, Refusal, Reply, Request,
        holders::{self, Holder, Waiter},
        name, presence,
    },
};
use detach::DetachOnDrop;
use dropped::DroppedGuards;
use final_requests::{FinalRequests, RuntimeEndGuard};
use local_queue::ContendedLocks;
use own_thread::OwnThread;
use owners::{OwnerEntryRef, OwnerTable};
use release::Jobs;
use retry::{Retry, refusal_error};
use synchronizers::Synchronizers;
use wakeup::Wakeups;
use watchdog::Watchdog;

/// How long a shutdown waits for releases to be answered.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(5);
/// The longest report of what could not be released.
const MOST_REPORTED: usize = 1_000;

/// Everything that one client has going on.
pub(crate) struct Engine {
    pub(crate) id: Uuid,
    pub(crate) config: Config,
    /// On which locks are taken unless their handles say otherwise.
    pub(crate) options: Arc<AcquireOptions>,
    batcher: Batcher,
    owners: OwnerTable,
    watchdog: Watchdog,
    wakeups: Wakeups,
    contended: ContendedLocks,
    synchronizers: Synchronizers,
    jobs: Jobs,
    final_requests: FinalRequests,
    lines: LogLines,
    gauges: Gauges,
    dropped: Arc<DroppedGuards>,
    closed: CancellationToken,
    /// Whether `closed` has been cancelled: a token answers from behind a lock, which all tasks would share.
    is_closed: AtomicBool,
    tasks: TaskTracker,
    /// Cancelled when the tasks have ended.
    ended: CancellationToken,
    unreleased: Mutex<Vec<Unreleased>>,
    /// Whether a shutdown releases what is still held.
    releases_held: AtomicBool,
    /// Whether `unreleased` is worth a look.
    any_unreleased: AtomicBool,
}

/// What may happen to many holds at once, and is not logged for each.
struct LogLines {
    lost: Seldom,
    refused: Seldom,
    left: Seldom,
    deadlocks: Seldom,
    slow_waits: Seldom,
    elsewhere: Seldom,
}

impl Default for LogLines {
    fn default() -> Self {
        Self {
            lost: Seldom::new(2),
            refused: Seldom::new(1),
            left: Seldom::new(1),
            deadlocks: Seldom::new(1),
            slow_waits: Seldom::new(60),
            elsewhere: Seldom::new(1),
        }
    }
}

/// A use of the engine. With the last one, its tasks end once they have released what was queued.
#[derive(Clone)]
pub(crate) struct EngineHandle(Arc<Life>);

struct Life(Arc<Engine>, Option<OwnThread>);

impl Deref for EngineHandle {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.0.0
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.jobs.finish();
        // Waits for the thread, if there is one.
        self.1.take();
    }
}

impl EngineHandle {
    /// Connects, and starts the tasks on the present runtime.
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
        let id = target.client_id.unwrap_or_else(Uuid::new_v4);
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
        let (jobs, queued) = Jobs::new();
        let options = AcquireOptions {
            lease: watchdog_lease,
            watched: true,
            back_off: None,
            durability: config.durability,
            refused: None,
        };
        let engine = Arc::new(Engine {
            id,
            options: Arc::new(options),
            batcher: Batcher::new(redis.clone(), Handle::current()),
            synchronizers: Synchronizers::new(redis.clone(), id, &config),
            wakeups: Wakeups::new(redis, config.poll_floor, config.yield_to_others),
            config,
            owners: OwnerTable::default(),
            contended: ContendedLocks::default(),
            watchdog: Watchdog::default(),
            jobs,
            final_requests,
            lines: LogLines::default(),
            gauges: Gauges::new(),
            dropped: Arc::default(),
            closed: CancellationToken::new(),
            is_closed: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
            unreleased: Mutex::default(),
            releases_held: AtomicBool::new(false),
            any_unreleased: AtomicBool::new(false),
        });
        tokio::spawn(engine.clone().keep_renewed());
        tokio::spawn(engine.clone().keep_waking(events));
        // Made here, as the runtime may end before the task has begun.
        let runtime_end = RuntimeEndGuard(engine.clone());
        tokio::spawn(engine.clone().keep_releasing(runtime_end, queued));
        Self(Arc::new(Life(engine, thread)))
    }
}

impl Engine {
    fn owner_entry(self: &Arc<Self>, spec: &LockSpec, owner: Owner) -> OwnerEntryRef {
        self.owners.enter(&spec.name, OwnerId::new(self.id, owner))
    }

    /// Completes when the guards of the lock `name` that were dropped until now are released, after `command_wait` at the
    /// latest.
    async fn wait_for_dropped_guards(&self, name: &str) {
        let until = Instant::now() + self.config.command_wait;
        if let Some(released) = self.dropped.wait_for(name, until) {
            let _: bool = released.await;
        }
    }

    /// What a handle on the lock `name` is about.
    pub(crate) fn subject(&self, name: Arc<str>, protocol: &'static dyn LockProtocol) -> Subject {
        let known = self.owners.spec(&name, protocol);
        Subject {
            spec: known.unwrap_or_else(|| Arc::new(protocol.spec(name, &self.config))),
            options: self.options.clone(),
        }
    }

    /// Where the client's tasks run.
    pub(crate) fn runtime(&self) -> &Handle {
        self.batcher.runtime()
    }

    /// Refuses a name that no lock here can have, with the reason.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), &'static str> {
        name::check(name)?;
        if self.batcher.redis().is_cluster() && !name::shares_slot(name) {
            return Err(
                "its braces put the lock and its channel into different slots of the cluster",
            );
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.closed.cancel();
        self.wakeups.close();
        self.synchronizers.close();
        self.notify_contended();
    }

    /// Runs a request until it is answered or `command_wait` is over. One that may not be `repeated` when its answer was
    /// lost is then left in doubt.
    async fn ask(&self, spec: &LockSpec, request: Request, repeated: bool) -> Result<Reply, Error> {
        let answered = self.ask_for(spec, request, repeated, Durability::Local);
        Ok(answered.await?.reply)
    }

    /// The same, with a wait for replicas.
    async fn ask_for(
        &self,
        spec: &LockSpec,
        request: Request,
        repeated: bool,
        durability: Durability,
    ) -> Result<Answered, Error> {
        runtime::check()?;
        let refusal = Mutex::new(None);
        let answered = async {
            let mut retry = Retry::default();
            loop {
                let error = match self.batcher.run(request.clone(), durability).await {
                    Ok(answered) => return Ok(answered),
                    Err(_) if self.is_closed() => return Err(Error::Closed),
                    Err(error) => error,
                };
                let again = retry.again(&spec.name, error)?;
                if retry.is_in_doubt() && !repeated {
                    return Err(Error::unavailable(format!(
                        "{}; whether it was done before that is not known",
                        again.reason
                    )));
                }
                if let Some(message) = again.refusal() {
                    *lock(&refusal) = Some(Arc::new(Cause::server(message)));
                }
                again.pause().await;
            }
        };
        let limit = self.config.command_wait;
        let answer = tokio::time::timeout(limit, answered).await;
        match answer.unwrap_or_else(|_| Err(self.timeout_error(spec))) {
            // The connection is well, and what the server says is no answer.
            Err(Error::Unavailable {
                reason,
                cause: None,
            }) => Err(Error::unavailable_by(reason, lock(&refusal).take())),
            done => done,
        }
    }

    /// That there was no answer about `spec`, and why, as far as the connections know.
    fn unavailable(&self, spec: &LockSpec, reason: impl Into<String>) -> Error {
        Error::unavailable_by(reason, self.batcher.trouble(spec))
    }

    /// Runs `future` to its end, and says what came of it, or that Redis did not answer in time.
    ///
    /// No `async fn`: that would store `future` on its way into its box.
    fn finish_within<T: Send + 'static>(
        self: &Arc<Self>,
        spec: &LockSpec,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> {
        let until = Instant::now() + self.config.command_wait;
        DetachOnDrop::always(self, until, future)
            .map(|done| done.unwrap_or_else(|| Err(self.timeout_error(spec))))
    }

    /// The error when Redis did not answer in time.
    fn timeout_error(&self, spec: &LockSpec) -> Error {
        let limit = self.config.command_wait;
        self.unavailable(spec, format!("no answer within {limit:?}"))
    }

    pub(crate) async fn inspect(&self, spec: &LockSpec, owner: Owner) -> Result<Inspection, Error> {
        self.wait_for_dropped_guards(&spec.name).await;
        let id = OwnerId::new(self.id, owner);
        // What was passed on to it, or what it shares with other readers, is there in another name.
        let tenure = match spec.mode.is_shared() {
            true => {
                let entry = self.owners.enter(&spec.name, id);
                entry.reading().or_else(|| entry.sent())
            }
            false => self.owners.tenure(spec, spec.mode, id),
        };
        let field = match &tenure {
            Some(tenure) => tenure.entry().owner.clone(),
            None => id.field(),
        };
        let reply = self
            .ask(spec, spec.protocol.inspect(spec, &field), true)
            .await?;
        let mut inspection = spec
            .protocol
            .inspection(reply)
            .map_err(|refusal| refusal_error(&spec.name, refusal))?;
        // Of a shared one, the server counts a part.
        if let Some(tenure) = tenure.filter(|tenure| tenure.is_shared())
            && inspection.holds > 0
        {
            inspection.holds = tenure.count_of(owner);
        }
        Ok(inspection)
    }

    /// The holders of the lock, as the server knows them.
    pub(crate) async fn holders(&self, spec: &LockSpec) -> Result<Vec<Holder>, Error> {
        self.wait_for_dropped_guards(&spec.name).await;
        let reply = self.ask(spec, spec.protocol.holders(spec), true).await?;
        holders::holders(reply).map_err(|refusal| refusal_error(&spec.name, refusal))
    }

    /// The waiters in the lock's fair queue, the next to be served first.
    pub(crate) async fn waiters(&self, spec: &LockSpec) -> Result<Vec<Waiter>, Error> {
        let Some(request) = spec.protocol.waiters(spec) else {
            return Ok(Vec::new());
        };
        let reply = self.ask(spec, request, true).await?;
        holders::waiters(reply).map_err(|refusal| refusal_error(&spec.name, refusal))
    }

    /// How long the slowest server takes to answer.
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
            Ok(Err(CallError::Closed)) => Err(Error::Closed),
            Ok(Err(CallError::Unanswered { reason })) => {
                Err(Error::unavailable_by(&*reason, self.batcher.any_trouble()))
            }
            Ok(Err(CallError::Refused(refusal))) => Err(match refusal {
                Refusal::Transient { message } => {
                    let cause = Cause::server(&*message);
                    Error::unavailable_by(message, Some(Arc::new(cause)))
                }
                Refusal::Failed { message } | Refusal::WrongKind { found: message } => {
                    Error::Redis { message }
                }
            }),
            Err(_) => Err(Error::unavailable_by(
                format!("no answer within {limit:?}"),
                self.batcher.any_trouble(),
            )),
        }
    }

    /// What `owner` holds as far as this process knows: never more than it may rely on.
    pub(crate) fn known_holds(self: &Arc<Self>, spec: &LockSpec, owner: Owner) -> u32 {
        let tenure = self
            .owners
            .tenure(spec, spec.mode, OwnerId::new(self.id, owner));
        let live = tenure.filter(|tenure| tenure.lost_reason(Instant::now()).is_none());
        live.map_or(0, |tenure| tenure.live_count_of(owner))
    }

    /// All holds that a guard, or a leaked hold, relies on.
    pub(crate) fn held(&self) -> Vec<HeldLock> {
        let now = Instant::now();
        let mut tenures = self.owners.tenures(None);
        tenures.retain(|tenure| tenure.lost_reason(now).is_none() && tenure.live_count() > 0);
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
        // Sent twice, it could free the lock of an owner that acquired it in between.
        let reply = self
            .ask(spec, spec.protocol.force_release(spec), false)
            .await?;
        let freed = presence(reply).map_err(|refusal| refusal_error(&spec.name, refusal))?
            == Presence::Present;
        // Holders elsewhere find out at their next renewal; ours need not wait.
        if freed {
            for tenure in before {
                self.lose(&tenure.end_hand_off(), LostReason::Gone);
            }
        }
        self.owners.readers(&spec.name).close();
        // What was granted meanwhile may have been before it.
        self.verify(self.owners.tenures(Some(&spec.name)));
        Ok(freed)
    }

    /// Ends everything: see [`LockClient::shutdown`](crate::LockClient::shutdown).
    pub(crate) async fn shutdown(&self) -> ShutdownReport {
        self.close();
        self.jobs.finish();
        self.ended.cancelled().await;
        let mut unreleased = std::mem::take(&mut *self.unreleased());
        // A hold that has ended by now needs no release.
        unreleased.retain(|hold| hold.until > Instant::now().into_std());
        ShutdownReport { unreleased }
    }

    /// The same, and releases what is still held.
    pub(crate) async fn shutdown_and_release(&self) -> ShutdownReport {
        self.releases_held.store(true, Ordering::Release);
        self.shutdown().await
    }

    /// The last steps, once no more releases can be queued.
    async fn wind_up(self: &Arc<Self>) {
        self.close();
        let tenures = self.owners.tenures(None);
        for tenure in &tenures {
            self.lose(tenure, LostReason::Closed);
        }
        self.release_held(tenures).await;
        self.batcher.redis().close().await;
        self.ended.cancel();
    }

    /// Records that so many holds of each owner of `tenure` stay on the server until its lease ends.
    fn record_unreleased(&self, tenure: &Tenure, owners: impl IntoIterator<Item = (Owner, u32)>) {
        let mut unreleased = self.unreleased();
        // A hold whose lease has ended concerns no owner any more.
        let now = Instant::now().into_std();
        unreleased.retain(|old| old.until > now);
        let left = owners.into_iter().map(|(owner, holds)| Unreleased {
            name: tenure.spec.name.clone(),
            owner: OwnerId::new(self.id, owner),
            holds,
            until: tenure.valid_until().into_std(),
        });
        let room = MOST_REPORTED.saturating_sub(unreleased.len());
        unreleased.extend(left.take(room));
        self.any_unreleased
            .store(!unreleased.is_empty(), Ordering::Relaxed);
    }

    /// Records that `owner` has since released all that it holds of `tenure`.
    fn record_released(&self, tenure: &Tenure, owner: Owner) {
        if self.any_unreleased.load(Ordering::Relaxed) {
            let (name, owner) = (&tenure.spec.name, OwnerId::new(self.id, owner));
            self.unreleased()
                .retain(|old| old.name != *name || old.owner != owner);
        }
    }

    fn unreleased(&self) -> std::sync::MutexGuard<'_, Vec<Unreleased>> {
        self.unreleased
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
