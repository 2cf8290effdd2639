//! Wakes those who wait, and asks for those who hear nothing.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::{
    BoxFuture, CallError, Engine, Event, Events,
    waiters::{Rest, WaiterId, Waiters},
};
use crate::{
    redis::Redis,
    wire::{Place, message},
};

type Signal = Arc<Notify>;

/// The waiters of one client.
pub(super) struct Wakeups {
    waiters: Mutex<Waiters<Signal>>,
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
            redis,
            earlier: Notify::new(),
            reconnections: AtomicU64::new(0),
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters<Signal>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
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
    granted: bool,
}

impl Waiting {
    /// Begins to wait; the future completes when messages are sure to arrive.
    pub(super) fn begin(
        engine: &Arc<Engine>,
        place: &Arc<Place>,
    ) -> (Self, BoxFuture<Result<(), CallError>>) {
        let signal = Signal::default();
        let wakeups = &engine.wakeups;
        let mut waiters = wakeups.waiters();
        let id = waiters.join(place, signal.clone());
        // Under the same lock as the end of the last wait: wishes reach the server in the order of joins and leaves.
        let subscribed = wakeups.redis.subscribe(place.channel.clone());
        drop(waiters);
        let waiting = Self {
            engine: engine.clone(),
            place: place.clone(),
            id,
            signal,
            granted: false,
        };
        (waiting, subscribed)
    }

    /// A try begins.
    pub(super) fn trying(&self) {
        self.engine.wakeups.waiters().trying(&self.place, self.id);
    }

    /// The try was refused. Says whether to try again at once.
    pub(super) fn refused(&self, remaining: Option<Duration>) -> bool {
        let wakeups = &self.engine.wakeups;
        let mut waiters = wakeups.waiters();
        let before = waiters.next_poll();
        let rest = waiters.refused(&self.place, self.id, remaining, Instant::now());
        let earlier = waiters
            .next_poll()
            .is_some_and(|next| before.is_none_or(|before| next < before));
        drop(waiters);
        if earlier {
            wakeups.earlier.notify_one();
        }
        rest == Rest::TryAgain
    }

    /// Completes when it is time to try again.
    pub(super) async fn told(&self) {
        self.signal.notified().await;
    }

    /// The lock was granted: nothing is passed on.
    pub(super) fn granted(mut self) {
        self.granted = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let wakeups = &self.engine.wakeups;
        let mut waiters = wakeups.waiters();
        let (passed_on, last) = waiters.leave(&self.place, self.id, self.granted);
        if last {
            wakeups.redis.unsubscribe(self.place.channel.clone());
        }
        drop(waiters);
        tell(passed_on);
    }
}

impl Engine {
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
                Some(wake) => waiters.message(&channel, wake),
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
