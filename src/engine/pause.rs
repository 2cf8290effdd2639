//! What passes between two tries: a wait to be told, or for a lock that is polled, some time.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    Engine,
    acquire::{Ask, Limit},
    wakeup::Waiting,
};
use crate::{back_off::Spinning, owner::OwnerId};

pub(super) enum Pause {
    Listening(Waiting),
    Spinning {
        spinning: Spinning,
        remaining: Option<Duration>,
    },
}

impl Pause {
    /// Instead of a first try: where others of this process wait for what one of them has, or is to have next. An owner
    /// that holds the lock already asks, or is about to hold it, and so does everybody whom the server will not answer.
    pub(super) fn behind(engine: &Arc<Engine>, ask: &Ask) -> Option<Self> {
        let waits = engine.wakeups.is_awaited() && ask.back_off.is_none() && ask.wire.hands_over();
        if !waits || !engine.lanes.is_ready(&ask.place) {
            return None;
        }
        let slot = engine.slot(&ask.place, ask.owner);
        if slot.tenure(ask.place.count).is_some() || slot.turn.try_lock().is_err() {
            return None;
        }
        Waiting::behind(engine, &ask.place).map(Pause::Listening)
    }

    /// After the first refusal. Completes when it is time for the second try.
    pub(super) async fn begin(engine: &Arc<Engine>, ask: &Ask, limit: Limit) -> Self {
        if let Some(back_off) = &ask.back_off {
            let mut pause = Pause::Spinning {
                spinning: Spinning::new(back_off),
                remaining: None,
            };
            pause.over(limit).await;
            return pause;
        }
        let owner = OwnerId::new(engine.id, ask.owner).field();
        let place = ask.wire.listens_at(&ask.place, &owner);
        let (waiting, subscribed) = Waiting::begin(engine, &place);
        // Refused, or slow: then polling has to do, which needs no subscription.
        let longest = Instant::now() + engine.config.poll_floor;
        let _ = timeout_at(limit.earlier(longest), subscribed).await;
        Pause::Listening(waiting)
    }

    /// A try begins.
    pub(super) fn trying(&self) {
        if let Pause::Listening(waiting) = self {
            waiting.trying();
        }
    }

    /// The try was refused. Says whether to try again at once.
    pub(super) fn refused(&mut self, answered: Option<Duration>) -> bool {
        match self {
            Pause::Listening(waiting) => waiting.refused(answered),
            Pause::Spinning { remaining, .. } => {
                *remaining = answered;
                false
            }
        }
    }

    /// Completes when it is time to try again, at the limit at the latest. Says whether it is time.
    pub(super) async fn over(&mut self, limit: Limit) -> bool {
        match self {
            Pause::Listening(waiting) => match limit {
                Limit::Until(deadline) => timeout_at(deadline, waiting.told()).await.is_ok(),
                _ => {
                    waiting.told().await;
                    true
                }
            },
            Pause::Spinning {
                spinning,
                remaining,
            } => {
                let delay = spinning.next_delay();
                // The server counts in whole milliseconds.
                let lease_over = remaining.map(|remaining| remaining + Duration::from_millis(1));
                let over = Instant::now() + lease_over.map_or(delay, |over| over.min(delay));
                let until = limit.earlier(over);
                sleep_until(until).await;
                until == over
            }
        }
    }

    /// The lock was granted, until then.
    pub(super) fn granted(self, until: Instant) {
        if let Pause::Listening(waiting) = self {
            waiting.granted(until);
        }
    }
}
