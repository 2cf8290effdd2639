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
    holds::Tenure,
    offer::{Along, Offer, Signal},
    queue::WaiterId,
    turns::{Published, Ticket},
    waiters::{Rest, Waiters},
};
use crate::{
    redis::Redis,
    wire::{Place, Reply, message, told_others},
};

/// The waiters of one client.
pub(super) struct Wakeups {
    waiters: Mutex<Waiters<Arc<Signal>>>,
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

    fn waiters(&self) -> MutexGuard<'_, Waiters<Arc<Signal>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An offer of the lock at `place` came to nothing.
    pub(super) fn not_taken(&self, place: &Place) {
        self.waiters().not_taken(place);
    }

    /// A last hold at `place` has been released, of which nobody here was told.
    pub(super) fn released_unheard(&self, place: &Place) {
        let told = self.waiters().released_unheard(place);
        tell(told);
    }

    /// The server does not hand over the lock at `place`.
    pub(super) fn cannot_offer(&self, place: &Place) {
        self.waiters().cannot_offer(place);
    }

    /// Everybody is to see that the client is closed.
    pub(super) fn close(&self) {
        let everybody = self.waiters().everybody();
        tell(everybody);
    }

    /// Whether anybody waits for any lock.
    pub(super) fn is_awaited(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Does something to the waiters that may make the next poll an earlier one.
    fn change<T>(&self, change: impl FnOnce(&mut Waiters<Arc<Signal>>) -> T) -> T {
        let mut waiters = self.waiters();
        let before = waiters.next_due();
        let changed = change(&mut waiters);
        let earlier = waiters
            .next_due()
            .is_some_and(|next| before.is_none_or(|before| next < before));
        drop(waiters);
        if earlier {
            self.earlier.notify_one();
        }
        changed
    }
}

fn tell(signals: Vec<Arc<Signal>>) {
    for signal in signals {
        signal.tell();
    }
}

/// A waiter on a subscribed channel. Dropping it ends the wait, and with the last one the subscription.
pub(super) struct Waiting {
    engine: Arc<Engine>,
    place: Arc<Place>,
    id: WaiterId,
    signal: Arc<Signal>,
    hearing: Hearing,
    /// Until when it was granted the lock.
    granted: Option<Instant>,
}

/// Whether a waiter's messages are sure to arrive.
enum Hearing {
    Sure,
    /// When this completes, which is waited for once.
    Subscribing(BoxFuture<Result<(), CallError>>),
    /// As soon as another one has subscribed, who was before it.
    OfAnother,
}

impl Waiting {
    /// Begins to wait, and to subscribe.
    pub(super) fn begin(engine: &Arc<Engine>, place: &Arc<Place>) -> Self {
        let signal = Arc::<Signal>::default();
        let wakeups = &engine.wakeups;
        let mut waiters = wakeups.waiters();
        let id = waiters.join(place, signal.clone());
        waiters.asks(place, Instant::now());
        // Under the same lock as the end of the last wait: wishes reach the server in the order of joins and leaves.
        let subscribed = wakeups.redis.subscribe(place.channel.clone());
        drop(waiters);
        Self::new(engine, place, id, signal, Hearing::Subscribing(subscribed))
    }

    /// Begins to wait without trying, or without trying again, where others of ours do, or one of them has the lock.
    pub(super) fn behind(
        engine: &Arc<Engine>,
        place: &Arc<Place>,
        remaining: Option<Duration>,
    ) -> Option<Self> {
        let signal = Arc::<Signal>::default();
        let join = |waiters: &mut Waiters<_>| {
            waiters.join_behind(place, signal.clone(), remaining, Instant::now())
        };
        let (id, listens) = engine.wakeups.change(join)?;
        let hearing = match listens {
            true => Hearing::Sure,
            false => Hearing::OfAnother,
        };
        Some(Self::new(engine, place, id, signal, hearing))
    }

    fn new(
        engine: &Arc<Engine>,
        place: &Arc<Place>,
        id: WaiterId,
        signal: Arc<Signal>,
        hearing: Hearing,
    ) -> Self {
        engine.wakeups.count.fetch_add(1, Ordering::Relaxed);
        Self {
            engine: engine.clone(),
            place: place.clone(),
            id,
            signal,
            hearing,
            granted: None,
        }
    }

    /// Whether [`subscribed`](Self::subscribed) is still to be waited for.
    pub(super) fn is_subscribing(&self) -> bool {
        matches!(self.hearing, Hearing::Subscribing(_))
    }

    /// Whether messages are sure to arrive, or polling has to do.
    pub(super) fn hears(&self) -> bool {
        matches!(self.hearing, Hearing::Sure)
    }

    /// Completes when messages are sure to arrive, or polling has to do, which needs no subscription.
    pub(super) async fn subscribed(&mut self, limit: Limit) {
        let wakeups = &self.engine.wakeups;
        let subscribed = match std::mem::replace(&mut self.hearing, Hearing::Sure) {
            Hearing::Sure => return,
            Hearing::Subscribing(subscribed) => subscribed,
            Hearing::OfAnother if wakeups.waiters().has_subscribed(&self.place) => return,
            Hearing::OfAnother => wakeups.redis.subscribe(self.place.channel.clone()),
        };
        let longest = Instant::now() + self.engine.config.poll_floor;
        // Refused, it is as when it is slow.
        let subscribed = self.engine.closed.run_until_cancelled(subscribed);
        let done = timeout_at(limit.earlier(longest), subscribed).await;
        // Who has no time left says nothing of it.
        if done.is_ok() || Instant::now() >= longest {
            let done = matches!(done, Ok(Some(Ok(()))));
            wakeups.waiters().subscribed(&self.place, done);
        }
    }

    /// At the limit: whether to ask all the same, as nobody here is sure to hear of a release.
    pub(super) fn asks_at_last(&mut self) -> bool {
        match std::mem::replace(&mut self.hearing, Hearing::Sure) {
            Hearing::OfAnother => !self.engine.wakeups.waiters().has_subscribed(&self.place),
            _ => false,
        }
    }

    /// A try begins. Says what it goes with.
    pub(super) fn trying(&self) -> Along {
        self.engine.wakeups.waiters().trying(&self.place, self.id);
        Along::Offer(self.signal.clone())
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
        self.signal.told().await;
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
        drop(self.signal.set_offer(None));
        tell(passed_on);
    }
}

/// Those who are told when this is dropped.
pub(super) struct ToTell(Vec<Arc<Signal>>);

impl Drop for ToTell {
    fn drop(&mut self) {
        tell(std::mem::take(&mut self.0));
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

    /// The release is about to be sent: its message may be here as soon as it is. What is returned tells those who are to
    /// try when it is dropped, once what they send goes behind the release.
    pub(super) fn sending(&mut self) -> ToTell {
        if !self.wakeups.is_awaited() {
            return ToTell(Vec::new());
        }
        let released = |waiters: &mut Waiters<_>| waiters.released(self.place, Instant::now());
        let released = self.wakeups.change(released);
        let (ticket, told) = released.unzip();
        self.ticket = ticket;
        ToTell(told.unwrap_or_default())
    }

    /// The server released the lock.
    pub(super) fn answered(mut self, reply: &Reply) {
        // Those who ask for a lock that is not announced do not listen.
        let counted = self.wakeups.redis.counts_listeners() && self.place.announced;
        let others = told_others(reply) || !counted;
        if self.ticket.is_none() && self.wakeups.is_awaited() {
            self.wakeups.released_unheard(self.place);
        }
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
    /// Offers a last hold to the one who is to have it next, if that is to be one of ours. What is answered is the answer to
    /// its release.
    pub(super) fn offer(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
    ) -> Option<impl Future<Output = Result<Reply, CallError>> + use<>> {
        let offered = self.wakeups.change(|waiters| {
            let heir = waiters.hand_over(&tenure.place, Instant::now())?;
            let (offer, answered) = Offer::new(self, tenure);
            // In one step with its being told: from then on it may leave, and take the offer along.
            let replaced = heir.set_offer(Some(offer));
            Some((heir, replaced, answered))
        });
        let (heir, replaced, answered) = offered?;
        drop(replaced);
        heir.tell();
        Some(answered)
    }

    /// What one of us had at `place` is gone: those here who wait for its release need not.
    pub(super) fn tell_of_loss(&self, place: &Place) {
        if self.wakeups.is_awaited() {
            tell(self.wakeups.waiters().gone(place));
        }
    }

    /// Passes on what happens on the connections, and tells those who hear nothing, until the engine has ended.
    pub(super) async fn keep_waking(self: Arc<Self>, mut events: Events) {
        loop {
            let next = self.wakeups.waiters().next_due();
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
                    let now = Instant::now();
                    let mut waiters = self.wakeups.waiters();
                    let (told, late) = (waiters.poll(now), waiters.late(now));
                    drop(waiters);
                    tell(told);
                    late.into_iter().for_each(|heir| drop(heir.set_offer(None)));
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
