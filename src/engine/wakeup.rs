//! Wakes those who wait, and asks for those who hear nothing.

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
    BoxFuture, CallError, Engine, Event, Events,
    ask::Limit,
    holds::Tenure,
    offer::{Along, Offer, Signal},
    queue::WaiterId,
    room::{ToTell, WaitingRoom},
    turns::Ticket,
    waiters::Waiters,
    yielding::Neighbours,
};
use crate::{
    durability::Durability,
    owner::Owner,
    redis::Redis,
    wire::{Count, Place, Reply, listeners, message, script::Outcome},
};

/// The waiters of one client.
pub(super) struct Wakeups {
    room: WaitingRoom<Box<Offer>>,
    /// Whether other clients have waited for any lock lately.
    any_neighbours: AtomicBool,
    redis: Arc<dyn Redis>,
    reconnections: AtomicU64,
}

impl Wakeups {
    /// How often the connection for scripts has been replaced.
    pub(super) fn reconnections(&self) -> u64 {
        self.reconnections.load(Ordering::Relaxed)
    }

    pub(super) fn new(redis: Arc<dyn Redis>, poll_floor: Duration, yields: bool) -> Self {
        let connection = redis.clone();
        let unsubscribe = move |channel| connection.unsubscribe(channel);
        Self {
            room: WaitingRoom::new(Waiters::new(poll_floor, yields), unsubscribe),
            any_neighbours: AtomicBool::new(false),
            redis,
            reconnections: AtomicU64::new(0),
        }
    }

    /// An offer of the lock at `place` came to nothing.
    pub(super) fn not_taken(&self, place: &Place) {
        self.room.waiters().not_taken(place);
    }

    /// A last hold at `place` has been released, of which nobody here was told.
    pub(super) fn released_unheard(&self, place: &Place) {
        self.room.tell(|waiters| waiters.released_unheard(place));
    }

    /// The server does not hand over the lock at `place`.
    pub(super) fn cannot_offer(&self, place: &Place) {
        self.room.waiters().cannot_offer(place);
    }

    /// Completes when the client waits for any lock.
    pub(super) async fn awaited(&self) {
        self.room.awaited().await;
    }

    /// The locks that somebody has waited for all this time, and who.
    pub(super) fn waiting_for(&self, longest: Duration) -> Vec<(Arc<str>, Owner)> {
        let waiters = self.room.waiters();
        let foremost = waiters.foremost();
        let long = foremost.filter(|(_, signal)| signal.since.elapsed() >= longest);
        long.map(|(place, signal)| (place.name.clone(), signal.owner))
            .collect()
    }

    /// Everybody is to see that the client is closed.
    pub(super) fn close(&self) {
        self.room.tell(|waiters| waiters.everybody());
    }

    /// Whether the client waits for any lock, or listens.
    pub(super) fn is_awaited(&self) -> bool {
        self.room.is_awaited()
    }

    /// Until when the lock at `place` is left to other clients.
    pub(super) fn yields_until(&self, place: &Place) -> Option<Instant> {
        if !self.any_neighbours.load(Ordering::Relaxed) {
            return None;
        }
        self.room.waiters().yields.until(place, Instant::now())
    }

    /// A task that polls is about to ask for the lock at `place`. Says until when it leaves it to other clients.
    pub(super) fn keep_yield(&self, place: &Place) -> Option<Instant> {
        if !self.any_neighbours.load(Ordering::Relaxed) {
            return None;
        }
        self.room.waiters().yields.keep(place, Instant::now())
    }

    /// This client was granted the lock at `place`, or was refused.
    pub(super) fn asked(&self, place: &Place, granted: bool) {
        if self.any_neighbours.load(Ordering::Relaxed) {
            let (mut waiters, now) = (self.room.waiters(), Instant::now());
            match granted {
                true => waiters.holds(place, now),
                false => waiters.yields.refused(place),
            }
        }
    }

    /// `owner` was granted a first hold without having waited; others of the same may wait where it `listens`.
    pub(super) fn entered(&self, listens: &Place, owner: Owner) {
        let is_its = |other: &Arc<Signal>| other.owner == owner;
        self.room
            .tell(|waiters| waiters.entered(listens, None, is_its));
    }

    /// The last hold at `place` was released, of which no waiter here was told.
    pub(super) fn released(&self, place: &Arc<Place>, reply: &Reply) {
        // Where nobody listens, here or elsewhere, nothing changes.
        let known = self.any_neighbours.load(Ordering::Relaxed) || self.is_awaited();
        if place.has_queue() || !known && self.surely_unheard(place, reply) {
            return;
        }
        self.answered(place, None, Some(reply));
    }

    /// A last hold at `place` is over, or given up, although no release of it was answered.
    pub(super) fn hold_is_over(&self, place: &Place) {
        if self.is_awaited() {
            self.room
                .change(|waiters| waiters.hold_is_over(place, Instant::now()));
        }
    }

    /// Whether no client listens, as far as the reply says.
    fn surely_unheard(&self, place: &Place, reply: &Reply) -> bool {
        place.announced && self.redis.counts_listeners() && listeners(reply) == 0
    }

    /// A release was answered, or is not known to have published.
    fn answered(&self, place: &Arc<Place>, ticket: Option<Ticket>, reply: Option<&Reply>) {
        self.room.change_and_tell(|waiters| {
            let heard = reply.map(|reply| self.neighbours(waiters, place, reply));
            let told = waiters.answered(place, ticket, heard, Instant::now());
            let any = !waiters.yields.is_empty();
            self.any_neighbours.store(any, Ordering::Relaxed);
            told
        });
    }

    /// Who besides this client heard of a release.
    fn neighbours(
        &self,
        waiters: &Waiters<Arc<Signal>>,
        place: &Place,
        reply: &Reply,
    ) -> Neighbours {
        if !place.announced {
            return Neighbours::Polling;
        }
        if !self.redis.counts_listeners() {
            return Neighbours::Uncounted;
        }
        // Its own writers are neighbours to a client's readers.
        let own = place.count != Count::Read && waiters.listens(&place.channel);
        match listeners(reply).saturating_sub(own.into()) {
            0 => Neighbours::None,
            others => Neighbours::Listening(u32::try_from(others).unwrap_or(u32::MAX)),
        }
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
    /// The lock is left to other clients, and the waiter has not asked yet. It may have to subscribe.
    Yielding(Option<BoxFuture<Result<(), CallError>>>),
    /// As soon as another one has subscribed, who was before it.
    OfAnother,
}

impl Waiting {
    /// Begins to wait, and to subscribe.
    pub(super) fn begin(engine: &Arc<Engine>, place: &Arc<Place>, owner: Owner) -> Self {
        let signal = Signal::of(owner);
        let wakeups = &engine.wakeups;
        let (id, subscribed) = wakeups.room.change(|waiters| {
            let id = waiters.join(place, signal.clone());
            waiters.asks(place, Instant::now());
            // Under the same lock as the end of the last wait: wishes reach the server in the order of joins and leaves.
            (id, wakeups.redis.subscribe(place.channel.clone()))
        });
        Self::new(engine, place, id, signal, Hearing::Subscribing(subscribed))
    }

    /// Begins to wait without trying, or without trying again, where others of ours do, or one of them has the lock.
    pub(super) fn behind(
        engine: &Arc<Engine>,
        place: &Arc<Place>,
        owner: Owner,
        remaining: Option<Duration>,
    ) -> Option<Self> {
        let signal = Signal::of(owner);
        let join = |waiters: &mut Waiters<_>| {
            waiters.join_behind(place, signal.clone(), remaining, Instant::now())
        };
        let (id, listens) = engine.wakeups.room.change(join)?;
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
        Self {
            engine: engine.clone(),
            place: place.clone(),
            id,
            signal,
            hearing,
            granted: None,
        }
    }

    /// Begins to wait for the end of a yield, and to subscribe.
    pub(super) fn yielding(engine: &Arc<Engine>, place: &Arc<Place>, owner: Owner) -> Option<Self> {
        let signal = Signal::of(owner);
        let wakeups = &engine.wakeups;
        let join = |waiters: &mut Waiters<_>| {
            let (id, listens) = waiters.join_yielding(place, signal.clone(), Instant::now())?;
            let subscribed = (!listens).then(|| wakeups.redis.subscribe(place.channel.clone()));
            Some((id, subscribed))
        };
        let (id, subscribed) = wakeups.room.change(join)?;
        let hearing = Hearing::Yielding(subscribed);
        Some(Self::new(engine, place, id, signal, hearing))
    }

    /// Whether it has not asked yet, and is to wait for the end of a yield. Says so once.
    pub(super) fn takes_yield(&mut self) -> bool {
        let hearing = std::mem::replace(&mut self.hearing, Hearing::Sure);
        let (yields, hearing) = match hearing {
            Hearing::Yielding(Some(subscribed)) => (true, Hearing::Subscribing(subscribed)),
            Hearing::Yielding(None) => (true, Hearing::Sure),
            hearing => (false, hearing),
        };
        self.hearing = hearing;
        yields
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
            Hearing::Sure | Hearing::Yielding(None) => return,
            Hearing::Subscribing(subscribed) | Hearing::Yielding(Some(subscribed)) => subscribed,
            Hearing::OfAnother if wakeups.room.waiters().has_subscribed(&self.place) => return,
            Hearing::OfAnother => wakeups.redis.subscribe(self.place.channel.clone()),
        };
        let longest = Instant::now() + self.engine.config.poll_floor;
        // Refused, it is as when it is slow.
        let subscribed = self.engine.closed.run_until_cancelled(subscribed);
        let done = timeout_at(limit.earlier(longest), subscribed).await;
        // Who has no time left says nothing of it.
        if done.is_ok() || Instant::now() >= longest {
            let done = matches!(done, Ok(Some(Ok(()))));
            wakeups.room.waiters().subscribed(&self.place, done);
        }
    }

    /// At the limit: whether to ask all the same, as nobody here is sure to hear of a release.
    pub(super) fn asks_at_last(&mut self) -> bool {
        match std::mem::replace(&mut self.hearing, Hearing::Sure) {
            Hearing::OfAnother => !self
                .engine
                .wakeups
                .room
                .waiters()
                .has_subscribed(&self.place),
            _ => false,
        }
    }

    /// A try begins. Says what it goes with.
    pub(super) fn trying(&self) -> Along {
        self.engine
            .wakeups
            .room
            .waiters()
            .trying(&self.place, self.id);
        Along::Offer(self.signal.clone())
    }

    /// The try was refused. Says whether to try again at once.
    pub(super) fn refused(&self, remaining: Option<Duration>) -> bool {
        let room = &self.engine.wakeups.room;
        room.refused(&self.place, self.id, remaining, Instant::now())
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
        let Self {
            engine,
            place,
            id,
            signal,
            granted,
            ..
        } = self;
        let room = &engine.wakeups.room;
        let (withdrawn, passed_on) = room.leave(place, *id, signal, *granted, Instant::now());
        for place in withdrawn {
            engine.intend(&place, Duration::ZERO);
        }
        drop(passed_on);
    }
}

/// The release of a last hold, as those here are concerned who wait for the lock.
///
/// Dropped without an answer, the release is not known to have published.
pub(super) struct Handing<'a> {
    wakeups: &'a Wakeups,
    place: &'a Arc<Place>,
    ticket: Option<Ticket>,
}

impl<'a> Handing<'a> {
    pub(super) fn new(wakeups: &'a Wakeups, place: &'a Arc<Place>) -> Self {
        Self {
            wakeups,
            place,
            ticket: None,
        }
    }

    /// The release is about to be sent: its message may be here as soon as it is. What is returned tells those who are to
    /// try when it is dropped, once what they send goes behind the release.
    pub(super) fn sending(&mut self) -> ToTell<Box<Offer>> {
        let (ticket, told) = self.wakeups.room.releasing(self.place, Instant::now());
        self.ticket = ticket;
        told
    }

    /// The release is about to be sent, on a way on which no try can follow it: those here who wait rest if a yield is due,
    /// and otherwise wait for the message.
    pub(super) fn resting(&mut self) {
        let rests = |waiters: &mut Waiters<_>| waiters.rests(self.place, Instant::now());
        self.ticket = self.wakeups.room.change(rests);
    }

    /// The server released the lock.
    pub(super) fn answered(mut self, reply: &Reply) {
        match self.ticket.take() {
            Some(ticket) => self.wakeups.answered(self.place, Some(ticket), Some(reply)),
            None => {
                if self.wakeups.is_awaited() {
                    self.wakeups.released_unheard(self.place);
                }
                self.wakeups.released(self.place, reply);
            }
        }
    }
}

impl Drop for Handing<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.wakeups.answered(self.place, Some(ticket), None);
        }
    }
}

impl Engine {
    /// Offers a last hold to the one who is to have it next, if that is to be one of ours. What is answered is the answer to
    /// its release.
    pub(super) fn offer(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
    ) -> Option<impl Future<Output = Result<Reply, CallError>> + use<>> {
        let (place, now) = (&tenure.place, Instant::now());
        self.wakeups
            .room
            .offer(place, now, || Offer::new(self, tenure))
    }

    /// What one of us had at `place` is gone: those here who wait for its release need not.
    pub(super) fn tell_of_loss(&self, place: &Place) {
        if self.wakeups.is_awaited() {
            let gone = |waiters: &mut Waiters<_>| waiters.gone(place, Instant::now());
            self.wakeups.room.change_and_tell(gone);
        }
    }

    /// Passes on what happens on the connections, and tells those who hear nothing, until the engine has ended.
    pub(super) async fn keep_waking(self: Arc<Self>, mut events: Events) {
        let mut looking = pin!(self.look_for_deadlocks());
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.happened(event),
                    None => return,
                },
                () = self.wakeups.room.due() => {
                    for (place, length) in self.wakeups.room.poll(Instant::now()) {
                        self.intend(&place, length);
                    }
                }
                () = &mut looking => {}
                () = self.ended.cancelled() => return,
            }
        }
    }

    /// Keeps new readers out for so long, or no longer. Where that fails, the writer waits as it would have.
    fn intend(self: &Arc<Self>, place: &Place, length: Duration) {
        let Some(intend) = place.wire.intend().filter(|_| !self.is_closed()) else {
            return;
        };
        let (engine, request) = (self.clone(), intend(place, length));
        let name = place.name.clone();
        self.lanes.spawn(async move {
            let answer = engine.lanes.run(request, Durability::Local).await;
            let outcome = answer.and_then(|reply| reply.outcome().map_err(CallError::Refused));
            if !matches!(outcome, Ok(Outcome::Done(_))) {
                let nobody_reads = !matches!(outcome, Ok(Outcome::Busy { .. }));
                let mut waiters = engine.wakeups.room.waiters();
                waiters.intent_not_left(&name, nobody_reads, Instant::now());
            }
        });
    }

    fn happened(self: &Arc<Self>, event: Event) {
        self.wakeups.room.tell(|waiters| match event {
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
        });
    }
}
