//! Wake-ups: connects messages, reconnections and polls to the waiters of a client.
//!
//! [`Waiters`] decides which waiter is woken, and [`WaitingRoom`] notifies it. A [`Waiting`] is one
//! waiter, from its subscription to the end of its wait.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use super::{
    BoxFuture, CallError, Engine, Event, Events, echoes::Ticket, hold_guard::HoldGuard,
    local_wait::Signal, request::Deadline, room::WaitingRoom, room_queue::WaiterId, tenure::Tenure,
    waiters::Waiters, yielding::Neighbours,
};
use crate::{
    durability::Durability,
    gauges::WakeUp,
    owner::Owner,
    redis::Redis,
    wire::{LockSpec, Reply, listeners, message, reply::Outcome},
};

/// The waiters of one client that listen for releases.
pub(super) struct Wakeups {
    room: WaitingRoom<HoldGuard>,
    /// Whether other clients have waited for any lock lately. If not, no operation takes the mutex
    /// for a yield.
    any_neighbours: AtomicBool,
    redis: Arc<dyn Redis>,
    reconnections: AtomicU64,
}

impl Wakeups {
    /// How often the connection for scripts has been replaced.
    pub(super) fn reconnections(&self) -> u64 {
        self.reconnections.load(Ordering::Relaxed)
    }

    pub(super) fn new(redis: Arc<dyn Redis>, max_poll_interval: Duration, yields: bool) -> Self {
        let connection = redis.clone();
        let unsubscribe = move |channel| connection.unsubscribe(channel);
        Self {
            room: WaitingRoom::new(Waiters::new(max_poll_interval, yields), unsubscribe),
            any_neighbours: AtomicBool::new(false),
            redis,
            reconnections: AtomicU64::new(0),
        }
    }

    /// Completes when the client waits for any lock.
    pub(super) async fn awaited(&self) {
        self.room.awaited().await;
    }

    /// Calls `inspect` with the first waiter of each lock.
    pub(super) fn foremost(&self, mut inspect: impl FnMut(&Arc<LockSpec>, &Signal)) {
        let waiters = self.room.waiters();
        waiters
            .foremost()
            .for_each(|(spec, signal)| inspect(spec, signal));
    }

    /// Notifies all waiters, which see that the client is closed.
    pub(super) fn close(&self) {
        self.room.notify(|waiters| waiters.all_waiters());
    }

    /// Whether the client waits for any lock, or listens.
    pub(super) fn is_awaited(&self) -> bool {
        self.room.is_awaited()
    }

    /// Subscribes at `spec` for as long as this client has the lock, if it `is_held` now. The
    /// future completes at the confirmation.
    pub(super) fn listen_while(
        &self,
        spec: &Arc<LockSpec>,
        is_held: impl FnOnce() -> bool,
    ) -> Option<BoxFuture<Result<(), CallError>>> {
        self.room.change(|waiters| {
            // `is_held` is called under the mutex that a release takes: the release sees the
            // listener, or is seen here.
            let is_new = is_held() && waiters.stay_subscribed(spec);
            is_new.then(|| self.redis.subscribe(spec.channel.clone()))
        })
    }

    /// Records that the subscription at `spec` is confirmed.
    pub(super) fn record_subscription(&self, spec: &LockSpec) {
        self.room.waiters().record_subscription(spec, true);
    }

    /// The end of the yield in which the lock at `spec` is left to other clients.
    pub(super) fn yields_until(&self, spec: &LockSpec) -> Option<Instant> {
        if !self.any_neighbours.load(Ordering::Relaxed) {
            return None;
        }
        self.room.waiters().yields.until(spec, Instant::now())
    }

    /// Begins the wait of a polling task for the end of a yield. Returns that end.
    pub(super) fn begin_yield_wait(&self, spec: &LockSpec) -> Option<Instant> {
        if !self.any_neighbours.load(Ordering::Relaxed) {
            return None;
        }
        self.room.waiters().yields.begin_wait(spec, Instant::now())
    }

    /// Records the grant of `tenure` at `spec`.
    pub(super) fn record_grant(&self, spec: &LockSpec, tenure: &Tenure) {
        if self.any_neighbours.load(Ordering::Relaxed) {
            let (mut waiters, now) = (self.room.waiters(), Instant::now());
            waiters.record_grant(spec, || tenure.is_held(), now);
        }
    }

    /// Records a refusal at `spec`.
    pub(super) fn record_refusal(&self, spec: &LockSpec) {
        if self.any_neighbours.load(Ordering::Relaxed) {
            self.room.waiters().yields.record_refusal(spec);
        }
    }

    /// Notifies waiters of `owner`, which has acquired the lock without a wait. Their queue is that
    /// of `listens`.
    pub(super) fn notify_waiters_of_owner(&self, listens: &LockSpec, owner: Owner) {
        let is_of_owner = |other: &Arc<Signal>| other.owner == owner;
        self.room
            .notify(|waiters| waiters.wake_waiters_of_owner(listens, None, is_of_owner));
    }

    /// Records the answered release of a last hold at `spec`, without a waiter to be notified.
    pub(super) fn record_release(&self, spec: &Arc<LockSpec>, reply: &Reply) {
        // A release without a listener, here or elsewhere, changes nothing.
        let known = self.any_neighbours.load(Ordering::Relaxed) || self.is_awaited();
        if spec.has_queue() || !known && self.surely_unheard(spec, reply) {
            return;
        }
        self.finish_release(spec, None, None, Some(reply));
    }

    /// Records the end of a last hold at `spec` without an answered release.
    pub(super) fn end_hold(&self, spec: &LockSpec) {
        if self.is_awaited() {
            self.room
                .change(|waiters| waiters.end_hold(spec, Instant::now()));
        }
    }

    /// Whether the reply proves that no client listens.
    fn surely_unheard(&self, spec: &LockSpec, reply: &Reply) -> bool {
        spec.announced && self.redis.counts_listeners() && listeners(reply) == 0
    }

    /// Finishes a release. A yield begins if it is `due`; `None` if no task waits for the lock here.
    /// Without a `reply`, the release may not have been published.
    fn finish_release(
        &self,
        spec: &Arc<LockSpec>,
        ticket: Option<Ticket>,
        due: Option<bool>,
        reply: Option<&Reply>,
    ) {
        self.room.change_and_notify(|waiters| {
            let now = Instant::now();
            let alone = due.is_none();
            let due = due.unwrap_or_else(|| waiters.yields.is_due(spec, 0, now));
            let heard = reply.map(|reply| self.neighbours(waiters, spec, reply));
            let notified = waiters.finish_release(spec, ticket, heard, (due, alone), now);
            let any = !waiters.yields.is_empty();
            self.any_neighbours.store(any, Ordering::Relaxed);
            notified
        });
    }

    /// The other clients that received the message of a release.
    fn neighbours(
        &self,
        waiters: &Waiters<Arc<Signal>>,
        spec: &LockSpec,
        reply: &Reply,
    ) -> Neighbours {
        if !spec.announced {
            return Neighbours::Polling;
        }
        if !self.redis.counts_listeners() {
            return Neighbours::Uncounted;
        }
        // The client's own writers are neighbours of its readers, so a read release counts this
        // client too.
        let own = !spec.mode.is_shared() && waiters.listens(&spec.channel);
        match listeners(reply).saturating_sub(own.into()) {
            0 => Neighbours::None,
            others => Neighbours::Listening(u32::try_from(others).unwrap_or(u32::MAX)),
        }
    }
}

/// A waiter on a subscribed channel. Dropping it ends the wait, and with the last one the subscription.
pub(super) struct Waiting {
    engine: Arc<Engine>,
    spec: Arc<LockSpec>,
    id: WaiterId,
    signal: Arc<Signal>,
    /// The subscription is confirmed when this completes. The waiter waits for it once.
    subscribing: Option<BoxFuture<Result<(), CallError>>>,
    /// Whether a yield is under way, and the waiter has not asked yet.
    yields: bool,
    /// The tenure of the waiter's grant.
    granted: Option<Arc<Tenure>>,
}

impl Waiting {
    /// Begins to wait, and to subscribe.
    pub(super) fn begin(engine: &Arc<Engine>, spec: &Arc<LockSpec>, signal: Arc<Signal>) -> Self {
        let wakeups = &engine.wakeups;
        let (id, subscribed) = wakeups.room.change(|waiters| {
            let id = waiters.join(spec, signal.clone());
            // Called under the mutex, as is the end of the last wait: the server receives
            // subscriptions and their ends in the order of joins and leaves.
            (id, wakeups.redis.subscribe(spec.channel.clone()))
        });
        Self::new(engine, spec, id, signal, Some(subscribed), false)
    }

    fn new(
        engine: &Arc<Engine>,
        spec: &Arc<LockSpec>,
        id: WaiterId,
        signal: Arc<Signal>,
        subscribing: Option<BoxFuture<Result<(), CallError>>>,
        yields: bool,
    ) -> Self {
        engine.gauges.add_waiter(spec.protocol.kind());
        Self {
            engine: engine.clone(),
            spec: spec.clone(),
            id,
            signal,
            subscribing,
            yields,
            granted: None,
        }
    }

    /// Begins to wait for the end of a yield, and to subscribe. Returns `None` without a yield.
    pub(super) fn yielding(
        engine: &Arc<Engine>,
        spec: &Arc<LockSpec>,
        signal: Arc<Signal>,
    ) -> Option<Self> {
        let wakeups = &engine.wakeups;
        let join = |waiters: &mut Waiters<_>| {
            let (id, listens) = waiters.join_yielding(spec, signal.clone(), Instant::now())?;
            let subscribed = (!listens).then(|| wakeups.redis.subscribe(spec.channel.clone()));
            Some((id, subscribed))
        };
        let (id, subscribed) = wakeups.room.change(join)?;
        Some(Self::new(engine, spec, id, signal, subscribed, true))
    }

    /// Returns whether the waiter has not asked yet, and must wait for the end of a yield. True
    /// once.
    pub(super) fn take_yield(&mut self) -> bool {
        std::mem::take(&mut self.yields)
    }

    /// Whether the waiter still has to wait for [`subscribed`](Self::subscribed).
    pub(super) fn is_subscribing(&self) -> bool {
        self.subscribing.is_some()
    }

    /// Completes when the subscription is confirmed or refused, and after the poll interval at the
    /// latest. Polling, which needs no subscription, has to do then.
    pub(super) async fn subscribed(&mut self, deadline: Deadline) {
        let Some(subscribed) = self.subscribing.take() else {
            return;
        };
        let longest = Instant::now() + self.engine.config.max_poll_interval;
        // A refused subscription is like a slow one: polling has to do.
        let subscribed = self.engine.refusing.run_until_cancelled(subscribed);
        let done = timeout_at(deadline.earlier(longest), subscribed).await;
        // A caller that timed out does not record a subscription result.
        if done.is_ok() || Instant::now() >= longest {
            let done = matches!(done, Ok(Some(Ok(()))));
            let room = &self.engine.wakeups.room;
            room.waiters().record_subscription(&self.spec, done);
        }
    }

    /// Begins an attempt.
    pub(super) fn begin_attempt(&self) {
        let mut waiters = self.engine.wakeups.room.waiters();
        waiters.begin_attempt(&self.spec, self.id);
    }

    /// Records a refusal. Returns whether to try again at once.
    pub(super) fn record_refusal(&self, remaining: Option<Duration>) -> bool {
        let room = &self.engine.wakeups.room;
        room.record_refusal(&self.spec, self.id, remaining, Instant::now())
    }

    /// Completes when the waiter is notified.
    pub(super) fn notified(&mut self) -> impl Future<Output = ()> + use<'_> {
        self.signal.notified()
    }

    /// Records the grant of `tenure`: no notification is passed on.
    pub(super) fn record_grant(&mut self, tenure: &Arc<Tenure>) {
        self.granted = Some(tenure.clone());
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Self {
            engine,
            spec,
            id,
            signal,
            granted,
            ..
        } = self;
        engine.gauges.remove_waiter(spec.protocol.kind());
        let room = &engine.wakeups.room;
        let until = granted.as_ref().map(|tenure| tenure.valid_until());
        let is_held = || granted.as_ref().is_some_and(|tenure| tenure.is_held());
        let mut left = room.leave(spec, *id, signal, until, is_held, Instant::now());
        for spec in &left.withdrawn {
            engine.intend(spec, Duration::ZERO);
        }
        engine.verify_contradicted(std::mem::take(&mut left.contradicted));
        for spec in &left.unheard {
            engine.look_for_other_listeners(spec);
        }
    }
}

/// The release of a last hold of a lock with waiters.
///
/// After a drop without an answer, the release may not have been published.
pub(super) struct FreeingRelease<'a> {
    wakeups: &'a Wakeups,
    spec: &'a Arc<LockSpec>,
    ticket: Option<Ticket>,
    /// Whether a yield begins with the answer. `None` if no task waits for the lock here: the
    /// answer decides then.
    due: Option<bool>,
}

impl<'a> FreeingRelease<'a> {
    /// Begins a release that is about to be sent: its message may arrive at any time from then on.
    /// `waiting` tasks wait for the lock in the local queue.
    pub(super) fn begin(wakeups: &'a Wakeups, spec: &'a Arc<LockSpec>, waiting: usize) -> Self {
        let (mut waiters, now) = (wakeups.room.waiters(), Instant::now());
        Self {
            wakeups,
            spec,
            ticket: waiters.begin_release(spec, now),
            due: (waiting > 0).then(|| {
                let yields = &mut waiters.yields;
                yields.has_neighbours(spec) && yields.is_due(spec, waiting, now)
            }),
        }
    }

    /// Whether the lock is left to other clients after the release.
    pub(super) fn yields(&self) -> bool {
        self.due == Some(true)
    }

    /// Finishes the release, which the server has answered.
    pub(super) fn finish(mut self, reply: &Reply) {
        match (self.ticket.take(), self.due) {
            (None, None) => self.wakeups.record_release(self.spec, reply),
            (ticket, due) => {
                self.wakeups
                    .finish_release(self.spec, ticket, due, Some(reply));
            }
        }
    }
}

impl Drop for FreeingRelease<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.wakeups
                .finish_release(self.spec, Some(ticket), Some(false), None);
        }
    }
}

impl Engine {
    /// Wakes a waiter at `spec` after a hold of this client was lost: there may be no message.
    pub(super) fn wake_after_loss(&self, spec: &LockSpec) {
        if self.wakeups.is_awaited() {
            let record_loss = |waiters: &mut Waiters<_>| waiters.record_loss(spec, Instant::now());
            self.wakeups.room.change_and_notify(record_loss);
        }
    }

    /// Handles the events of the connections, and wakes waiters without a message, until the engine has ended.
    pub(super) async fn keep_waking(self: Arc<Self>, mut events: Events) {
        let mut looking = pin!(self.watch_long_waits());
        let mut looking_after = pin!(self.watch_contended_locks());
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.handle_event(event),
                    None => return,
                },
                () = self.wakeups.room.due() => {
                    let (notified, intents) = self.wakeups.room.notify_due(Instant::now());
                    self.gauges.record_wake_ups(WakeUp::Poll, notified);
                    for (spec, length) in intents {
                        self.intend(&spec, length);
                    }
                }
                () = self.synchronizers.due() => self.notify_due_synchronizers(),
                () = &mut looking => {}
                () = &mut looking_after => {}
                () = self.ended.cancelled() => return,
            }
        }
    }

    /// Sets an intent, which keeps new readers out for `length`; zero withdraws it. If that fails,
    /// the writer waits as it would without intents.
    fn intend(self: &Arc<Self>, spec: &Arc<LockSpec>, length: Duration) {
        let Some(intend) = spec.protocol.intend().filter(|_| !self.is_closed()) else {
            return;
        };
        let (engine, request) = (self.clone(), intend(spec, length));
        let spec = spec.clone();
        self.batcher.spawn(async move {
            let answer = engine.batcher.run(request, Durability::Local).await;
            let outcome =
                answer.and_then(|answered| answered.reply.outcome().map_err(CallError::Refused));
            let (room, now) = (&engine.wakeups.room, Instant::now());
            match outcome {
                Ok(Outcome::Done(_)) => {}
                Ok(Outcome::Absent) => {
                    let notified = room.notify(|waiters| waiters.wake_for_free_lock(&spec, now));
                    engine.gauges.record_wake_ups(WakeUp::Poll, notified);
                }
                Ok(Outcome::Busy { remaining }) => {
                    let has_no_readers = remaining < 0;
                    room.waiters()
                        .record_intent_refusal(&spec.name, has_no_readers, now);
                }
                Err(_) => room.waiters().record_intent_refusal(&spec.name, true, now),
            }
        });
    }

    fn handle_event(self: &Arc<Self>, event: Event) {
        self.synchronizers.handle_event(&event);
        let mut contradicted = Vec::new();
        let cause = match &event {
            Event::Message { .. } => WakeUp::Message,
            _ => WakeUp::Reconnection,
        };
        let notified = self.wakeups.room.notify(|waiters| match event {
            Event::Message { channel, payload } => match message::read(&payload) {
                Some(wake) => {
                    let notified = waiters.handle_message(&channel, wake, Instant::now());
                    contradicted = waiters.take_contradicted();
                    notified
                }
                None => Vec::new(),
            },
            Event::MessagesMissed => waiters.wake_all(),
            Event::Reconnected => {
                self.wakeups.reconnections.fetch_add(1, Ordering::Relaxed);
                self.watchdog.notify_reconnected();
                waiters.wake_all()
            }
            // Other waiters are left alone: perhaps one slot of many has moved, and many may follow
            // it.
            Event::Moved(slots) => {
                self.wakeups.reconnections.fetch_add(1, Ordering::Relaxed);
                self.verify_in(&slots);
                waiters.wake_all_where(|channel| slots.contains(&self.wakeups.redis.slot(channel)))
            }
            Event::MissedIn(slots) => {
                waiters.wake_all_where(|channel| slots.contains(&self.wakeups.redis.slot(channel)))
            }
        });
        self.gauges.record_wake_ups(cause, notified);
        self.verify_contradicted(contradicted);
    }

    /// Looks for clients that announce their releases where this one does not listen, because a
    /// lock was free and no message had said so. A cluster has two ways to publish.
    fn look_for_other_listeners(self: &Arc<Self>, spec: &Arc<LockSpec>) {
        if self.is_closed() || !self.wakeups.redis.is_cluster() {
            return;
        }
        // Asked and logged once a minute at most.
        let Some(_) = self.log_limits.mixed_publishing.may_log() else {
            return;
        };
        let Some(asked) = self.wakeups.redis.heard_elsewhere(&spec.channel) else {
            return;
        };
        let name = spec.name.clone();
        self.batcher.spawn(async move {
            if asked.await {
                tracing::warn!(
                    %name,
                    "other clients listen for releases in shards while this one does not, or the other way round: both \
                     wait for the poll interval; use one setting of sharded_pubsub (Redisson: shardedSubscriptionMode)"
                );
            }
        });
    }

    /// Verifies holds that another client may have forced open: they are not handed off before the
    /// server has confirmed them.
    fn verify_contradicted(self: &Arc<Self>, specs: Vec<Arc<LockSpec>>) {
        for spec in specs {
            self.verify(Vec::from_iter(self.owners.present(&spec.name, spec.mode)));
        }
    }
}
