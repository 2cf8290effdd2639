//! The waiters of one client behind one lock. Any thread changes them, and tells those whom the change concerns.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    queue::WaiterId,
    turns::Ticket,
    waiters::{Rest, Waiters},
};
use crate::{
    owner::Owner,
    sync::{AtomicUsize, Mutex, MutexGuard, Notify, Ordering, lock, timeout_at},
    wire::Place,
};

/// How a waiter is told to try, and the hold that it is offered, if any.
pub(super) struct Signal<O> {
    /// For whom it waits, and since when.
    pub(super) owner: Owner,
    pub(super) since: Instant,
    told: Notify,
    offer: Mutex<Option<O>>,
}

impl<O> Signal<O> {
    pub(super) fn of(owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            owner,
            since: Instant::now(),
            told: Notify::new(),
            offer: Mutex::new(None),
        })
    }

    fn tell(&self) {
        self.told.notify_one();
    }

    /// Completes when the waiter is to try.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    /// Replaces the offer that it is to be told of. An offer must be dropped where the waiters are not locked.
    pub(super) fn set_offer(&self, offer: Option<O>) -> Option<O> {
        std::mem::replace(&mut *lock(&self.offer), offer)
    }
}

/// Waiters that are told when this is dropped.
pub(super) struct ToTell<O>(Vec<Arc<Signal<O>>>);

impl<O> Drop for ToTell<O> {
    fn drop(&mut self) {
        for signal in std::mem::take(&mut self.0) {
            signal.tell();
        }
    }
}

/// All that wait. `O` is an offer.
pub(super) struct WaitingRoom<O> {
    waiters: Mutex<Waiters<Arc<Signal<O>>>>,
    /// At how many locks there are any, or the client listens, for tasks that need not know more.
    count: AtomicUsize,
    earlier: Notify,
    /// Told of the first.
    awaited: Notify,
    unsubscribe: Box<dyn Fn(Bytes) + Send + Sync>,
}

impl<O> WaitingRoom<O> {
    /// `unsubscribe` is called with the lock taken: the server hears of joins and leaves in their order.
    pub(super) fn new(
        waiters: Waiters<Arc<Signal<O>>>,
        unsubscribe: impl Fn(Bytes) + Send + Sync + 'static,
    ) -> Self {
        Self {
            waiters: Mutex::new(waiters),
            count: AtomicUsize::new(0),
            earlier: Notify::new(),
            awaited: Notify::new(),
            unsubscribe: Box::new(unsubscribe),
        }
    }

    /// For what makes no waiter join or leave, and no poll earlier.
    pub(super) fn waiters(&self) -> MutexGuard<'_, Waiters<Arc<Signal<O>>>> {
        lock(&self.waiters)
    }

    /// Whether the client waits for any lock, or listens.
    pub(super) fn is_awaited(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Completes when the client waits, or has begun to since this last did. One task waits.
    pub(super) async fn awaited(&self) {
        if !self.is_awaited() {
            self.awaited.notified().await;
        }
    }

    /// Changes the waiters. The next poll may become an earlier one.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Waiters<Arc<Signal<O>>>) -> T) -> T {
        let mut waiters = self.waiters();
        let before = waiters.next_due();
        let changed = change(&mut waiters);
        for channel in waiters.take_unneeded() {
            (self.unsubscribe)(channel);
        }
        let before_all = self.count.swap(waiters.len(), Ordering::Relaxed) == 0;
        let is_first = before_all && waiters.len() > 0;
        let earlier = waiters
            .next_due()
            .is_some_and(|next| before.is_none_or(|before| next < before));
        drop(waiters);
        if is_first {
            self.awaited.notify_one();
        }
        if earlier {
            self.earlier.notify_one();
        }
        changed
    }

    /// As [`change`](Self::change), and tells those that the change returns.
    pub(super) fn change_and_tell(
        &self,
        change: impl FnOnce(&mut Waiters<Arc<Signal<O>>>) -> Vec<Arc<Signal<O>>>,
    ) {
        drop(ToTell(self.change(change)));
    }

    /// Tells the waiters that `wake` returns. Only the task that waits for [`due`](Self::due) may make a poll earlier here.
    pub(super) fn tell(
        &self,
        wake: impl FnOnce(&mut Waiters<Arc<Signal<O>>>) -> Vec<Arc<Signal<O>>>,
    ) {
        let told = wake(&mut self.waiters());
        drop(ToTell(told));
    }

    /// A try of `id` was refused. Says whether to try again at once.
    pub(super) fn refused(
        &self,
        place: &Place,
        id: WaiterId,
        remaining: Option<Duration>,
        now: Instant,
    ) -> bool {
        self.change(|waiters| waiters.refused(place, id, remaining, now)) == Rest::TryAgain
    }

    /// A waiter goes, which was `granted` the lock until then, or gives up. Others of its owner have the lock with it. What it
    /// was told, and made no use of, is passed on when what is returned is dropped. Returns locks at which an intent is to be withdrawn as well.
    pub(super) fn leave(
        &self,
        place: &Place,
        id: WaiterId,
        signal: &Signal<O>,
        granted: Option<Instant>,
        now: Instant,
    ) -> (Vec<Arc<Place>>, ToTell<O>) {
        let (told, withdrawn) = self.change(|waiters| {
            let mut told = Vec::new();
            if let Some(until) = granted {
                waiters.taken(place, until, now);
                told = waiters.entered(place, Some(id), |other| other.owner == signal.owner);
            }
            told.extend(waiters.leave(place, id, granted.is_some(), now));
            (told, waiters.take_withdrawn())
        });
        // From here on the waiter is offered nothing.
        drop(signal.set_offer(None));
        (withdrawn, ToTell(told))
    }

    /// The last hold at `place` is about to be released. What is returned tells those who are to try behind the release.
    pub(super) fn releasing(&self, place: &Place, now: Instant) -> (Option<Ticket>, ToTell<O>) {
        if !self.is_awaited() {
            return (None, ToTell(Vec::new()));
        }
        let (ticket, told) = self.change(|waiters| waiters.released(place, now)).unzip();
        (ticket, ToTell(told.unwrap_or_default()))
    }

    /// Offers the last hold at `place` to the waiter that is to have it next, if one is to. `offer` makes the offer, and
    /// what is returned with it.
    pub(super) fn offer<A>(
        &self,
        place: &Place,
        now: Instant,
        offer: impl FnOnce() -> (O, A),
    ) -> Option<A> {
        let offered = self.change(|waiters| {
            let heir = waiters.hand_over(place, now)?;
            let (offer, answered) = offer();
            // In one step with its being told: from then on it may leave, and take the offer along.
            let replaced = heir.set_offer(Some(offer));
            Some((heir, replaced, answered))
        });
        let (heir, replaced, answered) = offered?;
        drop(replaced);
        heir.tell();
        Some(answered)
    }

    /// Completes when there is something to do ([`poll`](Self::poll)). One task waits.
    pub(super) async fn due(&self) {
        loop {
            let next = self.waiters().next_due();
            let earlier = self.earlier.notified();
            let Some(next) = next else {
                earlier.await;
                continue;
            };
            if timeout_at(next, earlier).await.is_err() {
                return;
            }
        }
    }

    /// Tells those who have heard nothing for long, and withdraws offers that are not taken. Returns the locks at which a
    /// writer is to leave an intent, and for how long.
    pub(super) fn poll(&self, now: Instant) -> Vec<(Arc<Place>, Duration)> {
        let (told, late, intents) =
            self.change(|waiters| (waiters.poll(now), waiters.late(now), waiters.intents(now)));
        drop(ToTell(told));
        late.into_iter().for_each(|heir| drop(heir.set_offer(None)));
        intents
    }
}
