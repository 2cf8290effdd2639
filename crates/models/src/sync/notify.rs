//! `tokio::sync::Notify`, by its documentation.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use super::{Mutex, lock};

/// At most one permit, and waiters in the order of their first polls.
#[derive(Default)]
pub(crate) struct Notify(Mutex<State>);

#[derive(Default)]
struct State {
    permit: bool,
    waiters: VecDeque<(u64, Waker)>,
    /// Waiters that were notified and not polled since.
    notified: Vec<u64>,
    ids: u64,
}

impl State {
    fn notify_one(&mut self) -> Option<Waker> {
        match self.waiters.pop_front() {
            Some((id, waker)) => {
                self.notified.push(id);
                Some(waker)
            }
            None => {
                self.permit = true;
                None
            }
        }
    }

    fn take_notification(&mut self, id: u64) -> bool {
        let index = self.notified.iter().position(|notified| *notified == id);
        index
            .map(|index| self.notified.swap_remove(index))
            .is_some()
    }
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        let waker = lock(&self.0).notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        Notified {
            notify: self,
            id: None,
        }
    }
}

/// Completes with a permit, or when it is notified. Its drop passes an unused notification on.
pub(crate) struct Notified<'a> {
    notify: &'a Notify,
    /// The number of the waiter, after its first poll.
    id: Option<u64>,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.notify.0);
        let waker = context.waker().clone();
        match self.id {
            None if std::mem::take(&mut state.permit) => return Poll::Ready(()),
            None => {
                state.ids += 1;
                let id = state.ids;
                state.waiters.push_back((id, waker));
                drop(state);
                self.id = Some(id);
            }
            Some(id) => {
                if state.take_notification(id) {
                    drop(state);
                    self.id = None;
                    return Poll::Ready(());
                }
                if let Some(waiter) = state.waiters.iter_mut().find(|waiter| waiter.0 == id) {
                    waiter.1 = waker;
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else {
            return;
        };
        let mut state = lock(&self.notify.0);
        state.waiters.retain(|waiter| waiter.0 != id);
        let passed_on = match state.take_notification(id) {
            true => state.notify_one(),
            false => None,
        };
        drop(state);
        if let Some(waker) = passed_on {
            waker.wake();
        }
    }
}
