//! The wait between two attempts: for a notification, or for a spin lock the back-off.

use std::{future::ready, pin::Pin, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::Either};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    BoxFuture, Engine,
    local_wait::{LocalEntry, Signal},
    request::{AcquireRequest, Deadline},
    tenure::Tenure,
    time_limits::SERVER_CLOCK_STEP,
    wakeup::Waiting,
};
use crate::{back_off::Spinning, gauges::WaiterGauge, owner::OwnerId};

/// The wait between two attempts. Boxed by its owner: of a client's tasks that wait for one lock,
/// only the asker has one.
pub(super) enum Pause {
    Listening(Waiting),
    Spinning {
        spinning: Spinning,
        remaining: Option<Duration>,
        _waiter: Option<WaiterGauge>,
    },
}

impl Engine {
    /// The end of the yield that an owner waits for before it asks. An owner with holds of the
    /// lock, or with an operation under way, asks at once.
    fn yields_until(self: &Arc<Self>, request: &AcquireRequest) -> Option<Instant> {
        let until = self.wakeups.yields_until(&request.spec)?;
        let owner = OwnerId::new(self.id, request.owner);
        (!self.owners.concerns(&request.spec, owner)).then_some(until)
    }

    /// Leaves the lock to clients that poll: completes at the end of the yield, at the deadline, or
    /// when the client closes. `None` without a yield, or for a kind that announces its releases.
    pub(super) fn yield_to_pollers(
        self: &Arc<Self>,
        request: &AcquireRequest,
        deadline: Deadline,
    ) -> Option<BoxFuture<()>> {
        if request.spec.announced {
            return None;
        }
        self.yields_until(request)?;
        let until = deadline.earlier(self.wakeups.begin_yield_wait(&request.spec)?);
        let refusing = self.refusing.clone();
        Some(Box::pin(async move {
            let _: Option<()> = refusing.run_until_cancelled(sleep_until(until)).await;
        }))
    }
}

impl Pause {
    /// Begins the wait before the first attempt, if a yield is due.
    pub(super) fn before(
        engine: &Arc<Engine>,
        request: &AcquireRequest,
        local_entry: Option<&LocalEntry>,
    ) -> Option<Box<Self>> {
        // Waiters of a kind without announced releases cannot rely on a message to end a yield:
        // `Engine::yield_to_pollers` has waited already.
        let until = engine
            .yields_until(request)
            .filter(|_| request.spec.announced);
        until?;
        let signal = signal(request, local_entry);
        let waiting = Waiting::yielding(engine, &request.spec, signal.clone())?;
        if let Some(local_entry) = local_entry {
            local_entry.set_listener(&signal);
        }
        Some(Box::new(Pause::Listening(waiting)))
    }

    /// Begins the wait after the first refusal.
    pub(super) fn begin(
        engine: &Arc<Engine>,
        request: &AcquireRequest,
        local_entry: Option<&LocalEntry>,
        remaining: Option<Duration>,
    ) -> Box<Self> {
        if let Some(back_off) = &request.back_off {
            return Box::new(Pause::Spinning {
                spinning: Spinning::new(back_off),
                remaining,
                _waiter: engine.gauges.waiter(request.spec.protocol.kind()),
            });
        }
        let owner = OwnerId::new(engine.id, request.owner).field();
        let spec = request.spec.protocol.listens_at(&request.spec, &owner);
        let signal = signal(request, local_entry);
        if let Some(local_entry) = local_entry {
            local_entry.set_listener(&signal);
        }
        Box::new(Pause::Listening(Waiting::begin(engine, &spec, signal)))
    }

    /// Begins an attempt.
    pub(super) fn begin_attempt(&self) {
        if let Pause::Listening(waiting) = self {
            waiting.begin_attempt();
        }
    }

    /// Records a refusal. Returns whether to try again at once.
    pub(super) fn record_refusal(&mut self, answered: Option<Duration>) -> bool {
        match self {
            Pause::Listening(waiting) => waiting.record_refusal(answered),
            Pause::Spinning { remaining, .. } => {
                *remaining = answered;
                false
            }
        }
    }

    /// Waits for the next attempt. Returns `false` if the deadline ended the wait without one. A
    /// closing client ends the wait at once.
    ///
    /// Every waiting task stores this future, so rare or short-lived parts are boxed: timers above
    /// all.
    pub(super) fn wait_for_next_attempt<'a>(
        &'a mut self,
        engine: &'a Engine,
        local_entry: Option<&LocalEntry>,
        deadline: Deadline,
    ) -> impl Future<Output = bool> + Send + use<'a> {
        let boxed: BoxedPause<'a> = match (self, deadline) {
            (Pause::Listening(waiting), Deadline::Once | Deadline::Never) => {
                return Either::Left(listen(waiting));
            }
            (Pause::Listening(waiting), Deadline::Until(until)) => {
                Box::pin(listen_until(waiting, until))
            }
            // The last attempt was made at the deadline.
            (Pause::Spinning { .. }, deadline) if deadline.is_over() => Box::pin(ready(false)),
            (
                Pause::Spinning {
                    spinning,
                    remaining,
                    ..
                },
                deadline,
            ) => {
                let delay = spinning.next_delay();
                let lease_over = remaining.map(|remaining| remaining + SERVER_CLOCK_STEP);
                let pause = lease_over.map_or(delay, |over| over.min(delay));
                let until = deadline.earlier(Instant::now() + pause);
                if let Some(local_entry) = local_entry {
                    local_entry.schedule_attempt(until);
                }
                let slept = engine.refusing.run_until_cancelled(sleep_until(until));
                Box::pin(slept.map(|_| true))
            }
        };
        Either::Right(boxed)
    }

    /// Records the grant of `tenure`.
    pub(super) fn record_grant(&mut self, tenure: &Arc<Tenure>) {
        if let Pause::Listening(waiting) = self {
            waiting.record_grant(tenure);
        }
    }
}

type BoxedPause<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// The wait of a subscribed waiter without a deadline.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async fn stores its arguments twice"
)]
fn listen(waiting: &mut Waiting) -> impl Future<Output = bool> + Send {
    async move {
        let yields = waiting.take_yield();
        // The first wait is for the confirmation of the subscription, and not for a message: the
        // lock may have been released before.
        if yields || !waiting.is_subscribing() {
            waiting.notified().await;
        }
        if !yields && waiting.is_subscribing() {
            Box::pin(waiting.subscribed(Deadline::Never)).await;
        }
        true
    }
}

/// As [`listen`], with a deadline. Returns `false` if the deadline ended the wait, unless the
/// waiter has not asked yet.
async fn listen_until(waiting: &mut Waiting, until: Instant) -> bool {
    let yields = waiting.take_yield();
    if yields || !waiting.is_subscribing() {
        let notified = timeout_at(until, waiting.notified()).await;
        // A notification may have come during the last attempt.
        if notified.is_err() || Instant::now() >= until {
            return yields;
        }
    }
    if !yields && waiting.is_subscribing() {
        waiting.subscribed(Deadline::Until(until)).await;
    }
    true
}

/// The signal of the asker: that of its wait in the local queue, if it has waited there.
fn signal(request: &AcquireRequest, local_entry: Option<&LocalEntry>) -> Arc<Signal> {
    local_entry
        .and_then(LocalEntry::signal)
        .unwrap_or_else(|| Signal::new(request.owner))
}
