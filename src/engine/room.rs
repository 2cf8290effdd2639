//! The waiters of one client behind one lock. Any thread changes them, and notifies the waiters that a change concerns.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    queue::WaiterId,
    waiters::{Rest, Waiters},
};
use crate::{
    owner::Owner,
    sync::{AtomicUsize, Mutex, MutexGuard, Notify, Ordering, lock, timeout_at},
    wire::LockSpec,
};

/// How long a notified task may take to be polled.
pub(super) const PICK_UP: Duration = Duration::from_millis(2);

/// How a waiter is notified to try, and the hold that it is passed, if any.
///
/// Each waiting task has one, so it is small: tests/memory counts the bytes.
pub(super) struct Signal<O> {
    /// The owner that waits, and since when.
    pub(super) owner: Owner,
    pub(super) since: Instant,
    inbox: Mutex<Inbox<O>>,
}

struct Inbox<O> {
    /// When it was notified, if its task has not been polled since.
    notified_at: Option<Instant>,
    /// Its task waits to be notified; otherwise it is about something else, such as asking the server.
    waker: Option<Waker>,
    /// Boxed: one waiter of many has a hold, for a moment.
    hold: Option<Box<O>>,
}

impl<O> Signal<O> {
    pub(super) fn new(owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            owner,
            since: Instant::now(),
            inbox: Mutex::new(Inbox {
                notified_at: None,
                waker: None,
                hold: None,
            }),
        })
    }

    fn notify(&self) {
        let mut inbox = lock(&self.inbox);
        if inbox.notified_at.is_none() {
            inbox.notified_at = Some(Instant::now());
            let waker = inbox.waker.clone();
            drop(inbox);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Completes when the waiter is to try. A notification that no poll has seen stays for the next call.
    pub(super) fn notified(&self) -> impl Future<Output = ()> + use<'_, O> {
        poll_fn(|context| self.poll_notified(context))
    }

    fn poll_notified(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut inbox = lock(&self.inbox);
        let is_notified = inbox.notified_at.take().is_some();
        let is_known = |known: &Waker| known.will_wake(context.waker());
        let old = match is_notified {
            true => inbox.waker.take(),
            false if inbox.waker.as_ref().is_some_and(is_known) => None,
            false => inbox.waker.replace(context.waker().clone()),
        };
        drop(inbox);
        // Dropped here, outside of the lock: it may be the last use of a task.
        drop(old);
        match is_notified {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Whether its task waits to be notified.
    pub(super) fn waits(&self) -> bool {
        lock(&self.inbox).waker.is_some()
    }

    /// Passes it a hold; the notification follows.
    pub(super) fn give(&self, hold: O) {
        lock(&self.inbox).hold = Some(Box::new(hold));
    }

    /// The hold that it was passed, which must be dropped where nothing is locked.
    pub(super) fn take(&self) -> Option<O> {
        let hold = lock(&self.inbox).hold.take();
        hold.map(|hold| *hold)
    }

    /// Whether it has a hold that its task has not taken.
    pub(super) fn has_hold(&self) -> bool {
        lock(&self.inbox).hold.is_some()
    }

    /// Whether it was notified, and its task has not been polled since.
    #[cfg(test)]
    pub(super) fn is_notified(&self) -> bool {
        lock(&self.inbox).notified_at.is_some()
    }

    /// Whether that was so long ago, for one that waits, that it may never be.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let inbox = lock(&self.inbox);
        let notified_at = inbox.notified_at.filter(|_| inbox.waker.is_some());
        notified_at.is_some_and(|notified| notified + PICK_UP <= now)
    }
}

/// Waiters that are notified when this is dropped.
pub(super) struct ToNotify<O>(SmallVec<[Arc<Signal<O>>; 1]>);

impl<O> ToNotify<O> {
    pub(super) fn none() -> Self {
        Self(SmallVec::new())
    }

    pub(super) fn extend(&mut self, others: impl IntoIterator<Item = Arc<Signal<O>>>) {
        self.0.extend(others);
    }
}

impl<O> FromIterator<Arc<Signal<O>>> for ToNotify<O> {
    fn from_iter<I: IntoIterator<Item = Arc<Signal<O>>>>(signals: I) -> Self {
        Self(signals.into_iter().collect())
    }
}

impl<O> Drop for ToNotify<O> {
    fn drop(&mut self) {
        for signal in std::mem::take(&mut self.0) {
            signal.notify();
        }
    }
}

/// All that listen. `O` is a hold that one of them may be passed.
pub(super) struct WaitingRoom<O> {
    waiters: Mutex<Waiters<Arc<Signal<O>>>>,
    /// At how many locks there are any, or the client listens, for tasks that need not know more.
    count: AtomicUsize,
    earlier: Notify,
    /// Told of the first.
    awaited: Notify,
    unsubscribe: Box<dyn Fn(Bytes) + Send + Sync>,
}

/// What a waiter that goes leaves to be done. A notification that it made no use of is passed on when this is dropped.
pub(super) struct Left<O> {
    /// Locks at which an intent is to be withdrawn.
    pub(super) withdrawn: Vec<Arc<LockSpec>>,
    /// Locks that this client has, by what it knows, and of which a message says otherwise.
    pub(super) contradicted: Vec<Arc<LockSpec>>,
    /// Locks that were granted although no release was heard of.
    pub(super) unheard: Vec<Arc<LockSpec>>,
    _notified: ToNotify<O>,
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

    /// As [`change`](Self::change), and notifies the waiters that the change returns.
    pub(super) fn change_and_notify(
        &self,
        change: impl FnOnce(&mut Waiters<Arc<Signal<O>>>) -> Vec<Arc<Signal<O>>>,
    ) {
        drop(self.change(change).into_iter().collect::<ToNotify<O>>());
    }

    /// Tells the waiters that `wake` returns, and says how many. Only the task that waits for [`due`](Self::due) may make a poll earlier here.
    pub(super) fn notify(
        &self,
        wake: impl FnOnce(&mut Waiters<Arc<Signal<O>>>) -> Vec<Arc<Signal<O>>>,
    ) -> usize {
        let notified = wake(&mut self.waiters());
        let count = notified.len();
        drop(notified.into_iter().collect::<ToNotify<O>>());
        count
    }

    /// Records a refused attempt of `id`. Returns whether to try again at once.
    pub(super) fn record_refusal(
        &self,
        spec: &LockSpec,
        id: WaiterId,
        remaining: Option<Duration>,
        now: Instant,
    ) -> bool {
        self.change(|waiters| waiters.record_refusal(spec, id, remaining, now)) == Rest::TryAgain
    }

    /// Removes a waiter, which was `granted` the lock until then, or gives up. Waiters of its owner have the lock with it.
    pub(super) fn leave(
        &self,
        spec: &LockSpec,
        id: WaiterId,
        signal: &Signal<O>,
        granted: Option<Instant>,
        now: Instant,
    ) -> Left<O> {
        self.change(|waiters| {
            let mut notified = Vec::new();
            if let Some(until) = granted {
                waiters.poll_after_grant(spec, until, now);
                notified = waiters
                    .wake_waiters_of_owner(spec, Some(id), |other| other.owner == signal.owner);
            }
            notified.extend(waiters.leave(spec, id, granted.is_some(), now));
            Left {
                withdrawn: waiters.take_withdrawn(),
                contradicted: waiters.take_contradicted(),
                unheard: waiters.take_unheard(),
                _notified: notified.into_iter().collect(),
            }
        })
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

    /// Notifies the waiters that have heard nothing for long. Returns their number, and the locks at which a writer is to leave an
    /// intent and for how long.
    pub(super) fn poll(&self, now: Instant) -> (usize, Vec<(Arc<LockSpec>, Duration)>) {
        let (notified, intents) =
            self.change(|waiters| (waiters.poll(now), waiters.take_due_intents(now)));
        let count = notified.len();
        drop(notified.into_iter().collect::<ToNotify<O>>());
        (count, intents)
    }
}
