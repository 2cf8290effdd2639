//! A clock that only the model moves, and its timers.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

use super::{Mutex, lock};

loom::lazy_static! {
    static ref CLOCK: Arc<Clock> = Arc::new(Clock::new());
}

/// The time of a model.
pub(crate) struct Clock {
    /// An arbitrary start: no decision depends on it.
    begun: Instant,
    state: Mutex<State>,
}

struct State {
    now: Instant,
    timers: Vec<(Instant, Waker)>,
}

impl Clock {
    fn new() -> Self {
        let begun = Instant::now();
        Self {
            begun,
            state: Mutex::new(State {
                now: begun,
                timers: Vec::new(),
            }),
        }
    }

    /// The clock of the running model.
    pub(crate) fn get() -> Arc<Self> {
        CLOCK.clone()
    }

    /// The time `seconds` after the start.
    pub(crate) fn at(&self, seconds: u64) -> Instant {
        self.begun + Duration::from_secs(seconds)
    }

    pub(crate) fn now(&self) -> Instant {
        lock(&self.state).now
    }

    /// Moves the clock to `now`, and wakes the due timers.
    pub(crate) fn advance(&self, now: Instant) {
        let mut state = lock(&self.state);
        state.now = now;
        let (due, later) = std::mem::take(&mut state.timers)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        state.timers = later;
        drop(state);
        let due: Vec<(Instant, Waker)> = due;
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// As tokio's `timeout_at`: polls the future before the timer.
pub(crate) async fn timeout_at<F: Future>(at: Instant, future: F) -> Result<F::Output, ()> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        let clock = Clock::get();
        let mut state = lock(&clock.state);
        if state.now >= at {
            return Poll::Ready(Err(()));
        }
        state.timers.push((at, context.waker().clone()));
        Poll::Pending
    })
    .await
}
