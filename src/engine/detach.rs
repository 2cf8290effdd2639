//! Futures that outlive their caller (invariant 3).
//!
//! A caller may drop an operation at any await point, also after its request was sent.
//! [`DetachOnDrop`] runs the operation inside the caller's future. If it is dropped before its end,
//! its box moves to the release task, which polls it to completion and drops the output. The drop
//! of a hold that was granted meanwhile releases it. An operation that ends normally spawns no
//! task.
//!
//! The caller's runtime may end before the operation, and a timer of an ended runtime panics. An
//! operation therefore uses the timers of [`timers`](crate::timers).

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::poll;
use pin_project_lite::pin_project;
use tokio::{
    sync::{Notify, oneshot},
    task::unconstrained,
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{BoxFuture, Engine};
use crate::{error::Error, sync::lock};

pin_project! {
    /// A future that may outlive its caller, and the deadline of that caller. All of it is in one
    /// box, so a waiting task stores a pointer.
    struct Detachable<F: ?Sized> {
        begun: bool,
        // Notified of the drop.
        caller: Option<Caller>,
        engine: Arc<Engine>,
        // A closing client waits for detached futures.
        _closing: TaskTrackerToken,
        // None once the caller has gone.
        #[pin]
        timer: Option<Sleep>,
        #[pin]
        future: F,
    }
}

type BoxDetachable<T> = Pin<Box<Detachable<dyn Future<Output = T> + Send>>>;

/// A future that continues in the background when it is dropped before its end (invariant 3). It
/// yields `None` at its deadline, and its caller drops it then.
///
/// It runs inside its caller's own future: an operation that ends normally spawns no task.
pub(super) struct DetachOnDrop<T: Send + 'static>(Option<BoxDetachable<T>>);

/// The state that a future and its caller share.
#[derive(Debug, Clone, Default)]
pub(super) struct Caller(Arc<CallerState>);

#[derive(Debug, Default)]
struct CallerState {
    is_gone: AtomicBool,
    /// The future only waits for a task, which goes on by itself.
    has_task: AtomicBool,
    gone: Notify,
    reason: Mutex<Option<String>>,
}

impl Caller {
    /// Whether the caller of the future has been dropped.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    /// Records that the future only waits for a task from now on, and need not be detached
    /// itself.
    pub(super) fn set_has_task(&self) {
        self.0.has_task.store(true, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.0.is_gone.store(true, Ordering::Relaxed);
        self.0.gone.notify_one();
    }

    /// Completes when the caller of the future has been dropped.
    pub(super) async fn gone(&self) {
        if !self.is_gone() {
            self.0.gone.notified().await;
        }
    }

    /// Sets the reason why there is no answer yet.
    pub(super) fn set_reason(&self, reason: &str) {
        *lock(&self.0.reason) = Some(reason.to_owned());
    }

    pub(super) fn reason(&self) -> Option<String> {
        lock(&self.0.reason).clone()
    }
}

impl<T: Send + 'static> DetachOnDrop<T> {
    pub(super) fn new(
        engine: &Arc<Engine>,
        until: Instant,
        caller: Caller,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Self::boxed(engine, until, Some(caller), future)
    }

    /// As [`new`](Self::new), but the future runs even if it is dropped before its first poll.
    pub(super) fn always(
        engine: &Arc<Engine>,
        until: Instant,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Self::boxed(engine, until, None, future)
    }

    fn boxed(
        engine: &Arc<Engine>,
        until: Instant,
        caller: Option<Caller>,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Self(Some(Box::pin(Detachable {
            begun: caller.is_none(),
            caller,
            engine: engine.clone(),
            _closing: engine.tasks.token(),
            timer: Some(sleep_until(until)),
            future,
        })))
    }
}

impl Engine {
    /// Runs `future` as a task of its own. For operations under a lent field: in a caller's future
    /// that is not polled, they would delay another owner's operations. A result that no caller
    /// takes is dropped.
    pub(super) async fn run_as_task<T: Send + 'static>(
        self: &Arc<Self>,
        mut future: BoxFuture<Result<T, Error>>,
    ) -> Result<T, Error> {
        // Its first poll takes or awaits the operation lock, so the owner's next operation follows.
        if let Poll::Ready(result) = poll!(&mut future) {
            return result;
        }
        let (done, result) = oneshot::channel();
        let guard = self.final_requests.guard();
        // Boxed, so that one type of task is compiled instead of one for each result.
        let task: BoxFuture<()> = Box::pin(async move {
            drop(done.send(future.await));
            guard.finished();
        });
        self.tasks.spawn_on(task, self.runtime());
        (result.await).unwrap_or_else(|_| Err(self.closed_error()))
    }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        // A poll after the end panics, as for the future of an `async fn`.
        let detachable = self.0.as_mut().expect("polled after its end");
        let detachable = detachable.as_mut().project();
        *detachable.begun = true;
        if let Poll::Ready(output) = detachable.future.poll(context) {
            self.0 = None;
            return Poll::Ready(Some(output));
        }
        let Some(timer) = detachable.timer.as_pin_mut() else {
            return Poll::Pending;
        };
        // A future that uses up its task's budget must not put off its deadline, so the timer is
        // unconstrained.
        pin!(unconstrained(timer)).poll(context).map(|()| None)
    }
}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let Some(mut detachable) = self.0.take().filter(|detachable| detachable.begun) {
            detachable.as_mut().project().timer.set(None);
            // A closing client waits until the holds of the future have been given back.
            let _closing = detachable.engine.tasks.token();
            if let Some(caller) = &detachable.caller {
                caller.leave();
                // The task goes on by itself. A result that it has sent already is dropped with
                // this future, now.
                if caller.0.has_task.load(Ordering::Relaxed) {
                    return;
                }
            }
            let engine = detachable.engine.clone();
            // The output is dropped: a hold is given back.
            engine.jobs.push(async move {
                drop(poll_fn(|context| detachable.as_mut().project().future.poll(context)).await);
            });
        }
    }
}
