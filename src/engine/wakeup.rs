//! Wakes those who wait, and asks for those who hear nothing.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    BoxFuture, CallError, Engine, Event, Events,
    ask::Limit,
    queue::WaiterId,
    turns::{Published, Ticket},
    waiters::{Rest, Waiters},
};
use crate::{
    redis::Redis,
    wire::{Place, Reply, message, told_others},
};

type Signal = Arc<Notify>;

/// The waiters of one client.
pub(super) struct Wakeups {
    waiters: Mutex<Waiters<Signal>>,
    /// How many there are, for those who need not know more.
    count: AtomicUsize,
    redis: Arc<dyn Redis>,
    earlier: Notify,
    reconnections: AtomicU64,
}

impl Wakeups {
    /// How often the connection for scripts has been replaced.
    pub(super) fn reconnections(&self) -> u64 {
        self.reconnections.load(Ordering::Relaxed)
    }

    pub(super) fn new(redis: Arc<dyn Redis>, poll_floor: Duration) -> Self {
        Self {
            waiters: Mutex::new(Waiters::new(poll_floor)),
            count: AtomicUsize::new(0),
            redis,
            earlier: Notify::new(),
            reconnections: AtomicU64::new(0),
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters<Signal>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody waits for any lock.
    pub(super) fn is_awaited(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Does something to the waiters that may make the next poll an earlier one.
    fn change<T>(&self, change: impl FnOnce(&mut Waiters<Signal>) -> T) -> T {
        let mut waiters = self.waiters();
        let before = waiters.next_poll();
        let changed = change(&mut waiters);
        let earlier = waiters
            .next_poll()
            .is_some_and(|next| before.is_none_or(|before| next < before));
        drop(waiters);
        if earlier {
            self.earlier.notify_one();
        }
        changed
    }
}

fn tell(signals: Vec<Signal>) {
    for signal in signals {
        signal.notify_one();
    }
}

/// A waiter on a subscribed channel. Dropping it ends the wait, and with the last one the subscription.
pub(super) struct Waiting {
    engine: Arc<Engine>,
    place: Arc<Place>,
    id: WaiterId,
    signal: Signal,
    /// Completes when messages are sure to arrive; waited for once.
    subscribing: Option<BoxFuture<Result<(), CallError>>>,
    /// Until when it was granted the lock.
    granted: Option<Instant>,
}

impl Waiting {
    /// Begins to wait, and to subscribe.
    pub(super) fn begin(engine: &Arc<Engine>, place: &Arc<Place>) -> Self {
        let signal = Signal::default();
        let wakeups = &engine.wakeups;
        let mut waiters = wakeups.waiters();
        let id = waiters.join(place, signal.clone());
        // Under the same lock as the end of the last wait: wishes reach the server in the order of joins and leaves.
        let subscribed = wakeups.redis.subscribe(place.channel.clone());
        drop(waiters);
        Self::new(engine, place, id, signal, Some(subscribed))
    }

    /// Begins to wait without having tried, where others wait for one of ours to release the lock. They have subscribed.
    pub(super) fn behind(engine: &Arc<Engine>, place: &Arc<Place>) -> Option<Self> {
        let signal = Signal::default();
        let join =
            |waiters: &mut Waiters<_>| waiters.join_behind(place, signal.clone(), Instant::now());
        let id = engine.wakeups.change(join)?;
        Some(Self::new(engine, place, id, signal, None))
    }

    fn new(
        engine: &Arc<Engine>,
        place: &Arc<Place>,
        id: WaiterId,
        signal: Signal,
        subscribing: Option<BoxFuture<Result<(), CallError>>>,
    ) -> Self {
        engine.wakeups.count.fetch_add(1, Ordering::Relaxed);
        Self {
            engine: engine.clone(),
            place: place.clone(),
            id,
            signal,
            subscribing,
            granted: None,
        }
    }

    /// Whether [`subscribed`](Self::subscribed) is still to be waited for.
    pub(super) fn is_subscribing(&self) -> bool {
        self.subscribing.is_some()
    }

    /// Completes when messages are sure to arrive, or polling has to do, which needs no subscription.
    pub(super) async fn subscribed(&mut self, limit: Limit) {
        if let Some(subscribed) = self.subscribing.take() {
            let longest = Instant::now() + self.engine.config.poll_floor;
            // Refused, it is as when it is slow.
            let _ = timeout_at(limit.earlier(longest), subscribed).await;
        }
    }

    /// A try begins.
    pub(super) fn trying(&self) {
        self.engine.wakeups.waiters().trying(&self.place, self.id);
    }

    /// The try was refused. Says whether to try again at once.
    pub(super) fn refused(&self, remaining: Option<Duration>) -> bool {
        let refused = |waiters: &mut Waiters<_>| {
            waiters.refused(&self.place, self.id, remaining, Instant::now())
        };
        self.engine.wakeups.change(refused) == Rest::TryAgain
    }

    /// Completes when it is time to try again.
    pub(super) async fn told(&mut self) {
        self.signal.notified().await;
    }

    /// The lock was granted until then: nothing is passed on.
    pub(super) fn granted(&mut self, until: Instant) {
        self.granted = Some(until);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let wakeups = &self.engine.wakeups;
        wakeups.count.fetch_sub(1, Ordering::Relaxed);
        let passed_on = wakeups.change(|waiters| {
            if let Some(until) = self.granted {
                waiters.taken(&self.place, until, Instant::now());
            }
            let granted = self.granted.is_some();
            let (passed_on, last) = waiters.leave(&self.place, self.id, granted);
            if last {
                wakeups.redis.unsubscribe(self.place.channel.clone());
            }
            passed_on
        });
        tell(passed_on);
    }
}

/// The release of a last hold, as those here are concerned who wait for the lock.
///
/// Dropped without an answer, the release is not known to have published.
pub(super) struct Handing<'a> {
    wakeups: &'a Wakeups,
    place: &'a Place,
    ticket: Option<Ticket>,
}

impl<'a> Handing<'a> {
    pub(super) fn new(wakeups: &'a Wakeups, place: &'a Place) -> Self {
        Self {
            wakeups,
            place,
            ticket: None,
        }
    }

    /// The release is on its way, and what is sent from now on goes behind it.
    pub(super) fn sent(&mut self) {
        if !self.wakeups.is_awaited() {
            return;
        }
        let released = |waiters: &mut Waiters<_>| waiters.released(self.place, Instant::now());
        if let Some((ticket, told)) = self.wakeups.change(released) {
            self.ticket = Some(ticket);
            tell(told);
        }
    }

    /// The server released the lock.
    pub(super) fn answered(mut self, reply: &Reply) {
        // Those who ask for a lock that is not announced do not listen.
        let counted = self.wakeups.redis.counts_listeners() && self.place.announced;
        let others = told_others(reply) || !counted;
        self.end(Some(Published { others }));
    }

    fn end(&mut self, published: Option<Published>) {
        if let Some(ticket) = self.ticket.take() {
            let now = Instant::now();
            let answered =
                |waiters: &mut Waiters<_>| waiters.answered(self.place, ticket, published, now);
            tell(self.wakeups.change(answered));
        }
    }
}

impl Drop for Handing<'_> {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl Engine {
    /// What one of us had at `place` is gone: those here who wait for its release need not.
    pub(super) fn tell_of_loss(&self, place: &Place) {
        if self.wakeups.is_awaited() {
            tell(self.wakeups.waiters().gone(place));
        }
    }

    /// Passes on what happens on the connections, and tells those who hear nothing, until the engine has ended.
    pub(super) async fn keep_waking(self: Arc<Self>, mut events: Events) {
        loop {
            let next = self.wakeups.waiters().next_poll();
            let poll = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.happened(event),
                    None => return,
                },
                () = poll => {
                    let told = self.wakeups.waiters().poll(Instant::now());
                    tell(told);
                }
                () = self.wakeups.earlier.notified() => {}
                () = self.ended.cancelled() => return,
            }
        }
    }

    fn happened(self: &Arc<Self>, event: Event) {
        let mut waiters = self.wakeups.waiters();
        let told = match event {
            Event::Message { channel, payload } => match message::read(&payload) {
                Some(wake) => waiters.message(&channel, wake, Instant::now()),
                None => Vec::new(),
            },
            Event::MessagesMissed => waiters.missed(),
            Event::Reconnected => {
                self.wakeups.reconnections.fetch_add(1, Ordering::Relaxed);
                self.watchdog.reconnected();
                waiters.missed()
            }
            // One slot of many, perhaps, and many may be on their way: all the others are left in peace.
            Event::Moved(slots) => {
                self.wakeups.reconnections.fetch_add(1, Ordering::Relaxed);
                self.verify_in(&slots);
                waiters.missed_where(|channel| slots.contains(&self.wakeups.redis.slot(channel)))
            }
            Event::MissedIn(slots) => {
                waiters.missed_where(|channel| slots.contains(&self.wakeups.redis.slot(channel)))
            }
        };
        drop(waiters);
        tell(told);
    }
}
