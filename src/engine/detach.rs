//! Carrying on what a dropped future had begun.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::{
    sync::{Notify, oneshot},
    task::unconstrained,
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Engine;
use crate::error::Error;

pin_project! {
    /// A future that may be carried on, and until when its caller waits for it. All of it is in one box: a waiting task has a pointer.
    struct Carried<F: ?Sized> {
        begun: bool,
        // Told of the drop.
        caller: Option<Caller>,
        engine: Arc<Engine>,
        // A client that closes waits for what is carried on.
        _closing: TaskTrackerToken,
        // None once the caller has gone.
        #[pin]
        timer: Option<Sleep>,
        #[pin]
        future: F,
    }
}

type BoxCarried<T> = Pin<Box<Carried<dyn Future<Output = T> + Send>>>;

/// A future that is carried on when it is dropped before its end (invariant 3). It completes with `None` at its deadline, and is to be
/// dropped then.
///
/// It runs inside its caller's own future: no task is spawned on the way that ends well.
pub(super) struct DetachOnDrop<T: Send + 'static>(Option<BoxCarried<T>>);

/// What a carried future and its caller let each other know.
#[derive(Debug, Clone, Default)]
pub(super) struct Caller(Arc<CallerState>);

#[derive(Debug, Default)]
struct CallerState {
    is_gone: AtomicBool,
    /// A task carries on what the future waits for.
    has_task: AtomicBool,
    gone: Notify,
    reason: Mutex<Option<String>>,
}

impl Caller {
    /// Whether the caller of the future has been dropped.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }

    /// Notes that the future waits for a task from now on, and need not be carried on itself.
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

    /// Sets why there is no answer yet.
    pub(super) fn set_reason(&self, reason: &str) {
        *self.reason_slot() = Some(reason.to_owned());
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.reason_slot().clone()
    }

    fn reason_slot(&self) -> MutexGuard<'_, Option<String>> {
        self.0.reason.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// As [`new`](Self::new), but a drop before the first poll does not prevent it.
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
        Self(Some(Box::pin(Carried {
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
    /// Runs what keeps another owner's operations waiting, so that a caller that is not polled does not. A result that no caller takes
    /// is dropped.
    pub(super) async fn run_as_task<T: Send + 'static>(
        self: &Arc<Self>,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (done, result) = oneshot::channel();
        let task = async move { drop(done.send(future.await)) };
        self.tasks.spawn_on(task, self.runtime());
        result.await.unwrap_or(Err(Error::Closed))
    }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        // As any future of an `async fn`.
        let carried = self.0.as_mut().expect("polled after its end");
        let carried = carried.as_mut().project();
        *carried.begun = true;
        if let Poll::Ready(output) = carried.future.poll(context) {
            self.0 = None;
            return Poll::Ready(Some(output));
        }
        let Some(timer) = carried.timer.as_pin_mut() else {
            return Poll::Pending;
        };
        // A future that uses up its task's budget does not put off its deadline.
        pin!(unconstrained(timer)).poll(context).map(|()| None)
    }
}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let Some(mut carried) = self.0.take().filter(|carried| carried.begun) {
            carried.as_mut().project().timer.set(None);
            // A client that closes waits until what the future holds has been given back.
            let _closing = carried.engine.tasks.token();
            if let Some(caller) = &carried.caller {
                caller.leave();
                // What its task has sent is dropped with it, now.
                if caller.0.has_task.load(Ordering::Relaxed) {
                    return;
                }
            }
            let engine = carried.engine.clone();
            // What the future yields is dropped in its turn: a hold is given back.
            engine.jobs.push(async move {
                drop(poll_fn(|context| carried.as_mut().project().future.poll(context)).await);
            });
        }
    }
}
