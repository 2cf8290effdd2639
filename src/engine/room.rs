//! The subscribed waiters of one client, behind one mutex. Any thread may change them, and notifies
//! the waiters that the change concerns.
//!
//! Decisions are those of [`Waiters`]. Waiters are notified after the mutex is released
//! ([`ToNotify`]).

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
    room_queue::WaiterId,
    time_limits::PICK_UP,
    waiters::{ParkDecision, Waiters},
};
use crate::{
    owner::Owner,
    sync::{AtomicUsize, Mutex, MutexGuard, Notify, Ordering, lock, timeout_at},
    wire::LockSpec,
};

/// The notification of a waiter, and the hold that is handed to it, if any.
///
/// Each waiting task has one, so it is small: tests/memory counts the bytes.
pub(super) struct Signal<O> {
    /// The owner that waits, and the start of its wait.
    pub(super) owner: Owner,
    pub(super) since: Instant,
    inbox: Mutex<Inbox<O>>,
}

struct Inbox<O> {
    /// The time of the notification, if the task has not been polled since.
    notified_at: Option<Instant>,
    /// The waker of a task that waits to be notified. `None` while the task is about something
    /// else, such as an attempt.
    waker: Option<Waker>,
    /// The hold that was handed to the waiter. Boxed: one waiter of many has a hold, for a moment.
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

    /// Completes at a notification. One that no poll has seen stays for the next call.
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
        // Dropped after the mutex is released: this may be the last reference to a task.
        drop(old);
        match is_notified {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Whether the task waits to be notified.
    pub(super) fn waits(&self) -> bool {
        lock(&self.inbox).waker.is_some()
    }

    /// Hands a hold to the waiter. The caller notifies it afterwards.
    pub(super) fn give(&self, hold: O) {
        lock(&self.inbox).hold = Some(Box::new(hold));
    }

    /// Takes the hold that was handed to the waiter. It must be dropped where no mutex is held.
    pub(super) fn take(&self) -> Option<O> {
        let hold = lock(&self.inbox).hold.take();
        hold.map(|hold| *hold)
    }

    /// Whether the waiter has a hold that its task has not taken.
    pub(super) fn has_hold(&self) -> bool {
        lock(&self.inbox).hold.is_some()
    }

    /// Whether the waiter was notified, and its task has not been polled since.
    #[cfg(test)]
    pub(super) fn is_notified(&self) -> bool {
        lock(&self.inbox).notified_at.is_some()
    }

    /// Whether a waiting task was notified [`PICK_UP`] ago or earlier, and has not been polled
    /// since: it may never be.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
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

/// The waiters of a client that listen for releases. `O` is a hold that may be handed to a waiter.
pub(super) struct WaitingRoom<O> {
    waiters: Mutex<Waiters<Arc<Signal<O>>>>,
    /// The number of channels with a waiter or a subscription, for readers without the mutex.
    count: AtomicUsize,
    earlier: Notify,
    /// Notified when the first waiter arrives.
    awaited: Notify,
    unsubscribe: Box<dyn Fn(Bytes) + Send + Sync>,
}

/// The work that a leaving waiter leaves to its caller. The drop passes on a notification that the
/// waiter has not used.
pub(super) struct Left<O> {
    /// Locks whose intents are to be withdrawn.
    pub(super) withdrawn: Vec<Arc<LockSpec>>,
    /// Locks that this client has, as far as it knows, although a message contradicts that.
    pub(super) contradicted: Vec<Arc<LockSpec>>,
    /// Locks that were granted although no message had announced a release.
    pub(super) unheard: Vec<Arc<LockSpec>>,
    _notified: ToNotify<O>,
}

impl<O> WaitingRoom<O> {
    /// `unsubscribe` is called under the mutex, so that the server receives subscriptions and their
    /// ends in the order of joins and leaves.
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

    /// Locks the waiters, for a change that adds or removes no waiter and makes no poll earlier.
    pub(super) fn waiters(&self) -> MutexGuard<'_, Waiters<Arc<Signal<O>>>> {
        lock(&self.waiters)
    }

    /// Whether the client waits for any lock, or listens.
    pub(super) fn is_awaited(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Completes when the client has a waiter, or has had one since the last completion. Only one
    /// task may wait.
    pub(super) async fn awaited(&self) {
        if !self.is_awaited() {
            self.awaited.notified().await;
        }
    }

    /// Changes the waiters. Unsubscribes where that leaves no listener, and wakes the polling task
    /// if the next poll is now earlier.
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

    /// Notifies the waiters that `wake` returns, and returns their number. It does not wake the
    /// task that waits for [`due`](Self::due): only that task may make a poll earlier here.
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
        self.change(|waiters| waiters.record_refusal(spec, id, remaining, now))
            == ParkDecision::TryAgain
    }

    /// Removes a waiter, which was `granted` the lock until that time, or gives up. After a grant,
    /// other waiters of the same owner re-enter. `is_held` is called under the mutex that the report
    /// of a loss takes.
    pub(super) fn leave(
        &self,
        spec: &LockSpec,
        id: WaiterId,
        signal: &Signal<O>,
        granted: Option<Instant>,
        is_held: impl FnOnce() -> bool,
        now: Instant,
    ) -> Left<O> {
        self.change(|waiters| {
            let mut notified = Vec::new();
            if let Some(until) = granted {
                waiters.poll_after_grant(spec, until, now);
                notified = waiters
                    .wake_waiters_of_owner(spec, Some(id), |other| other.owner == signal.owner);
            }
            notified.extend(waiters.leave(spec, id, granted.is_some(), is_held, now));
            Left {
                withdrawn: waiters.take_withdrawn(),
                contradicted: waiters.take_contradicted(),
                unheard: waiters.take_unheard(),
                _notified: notified.into_iter().collect(),
            }
        })
    }

    /// Completes when a [`notify_due`](Self::notify_due) is due. Only one task may wait.
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

    /// Notifies the waiters whose poll is due. Returns their number, and the intents that are due,
    /// with their lengths.
    pub(super) fn notify_due(&self, now: Instant) -> (usize, Vec<(Arc<LockSpec>, Duration)>) {
        let (notified, intents) =
            self.change(|waiters| (waiters.notify_due(now), waiters.take_due_intents(now)));
        let count = notified.len();
        drop(notified.into_iter().collect::<ToNotify<O>>());
        (count, intents)
    }
}
