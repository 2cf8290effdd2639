//! The one loop that takes a lock, for every kind: try, subscribe, try again, wait, try again.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    CallError, Engine, PASSING_PAUSE,
    holds::{Grant, SlotRef, Tenure},
    refused,
    release::{Carried, Dropped, Held},
    wakeup::Waiting,
};
use crate::{
    error::{Error, LostReason},
    owner::Owner,
    wire::{Attempt, Lease, Place, Refusal, Wire},
};

/// How long after its caller's limit an answer that is on its way is still waited for: a lock that was granted at the
/// last moment is not reported as busy (P-A12).
const GRACE: Duration = Duration::from_millis(100);

/// What is asked for.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) place: Arc<Place>,
    pub(crate) wire: &'static dyn Wire,
    pub(crate) owner: Owner,
    pub(crate) lease: Lease,
    /// The lease is the watchdog's.
    pub(crate) watched: bool,
}

/// How long to wait for a lock that is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// Not at all.
    Once,
    Until(Instant),
    Never,
}

/// How one try went.
enum Tried {
    Granted(Held),
    Busy {
        remaining: Option<Duration>,
    },
    /// No answer in the time that there was.
    Unanswered,
}

impl Engine {
    /// Takes the lock, or answers `None` when it was still taken at the limit.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        ask: &Ask,
        limit: Limit,
    ) -> Result<Option<Held>, Error> {
        match self.try_within(ask, limit).await? {
            Tried::Granted(held) => return Ok(Some(held)),
            Tried::Unanswered => return Err(no_answer()),
            Tried::Busy { .. } if matches!(limit, Limit::Once) => return Ok(None),
            Tried::Busy { .. } => {}
        }
        let waiting = async {
            let (waiting, subscribed) = Waiting::begin(self, &ask.place);
            // Refused, or slow: then polling has to do, which needs no subscription.
            let _ = timeout(self.config.poll_floor, subscribed).await;
            self.wait_and_try(ask, limit, waiting).await
        };
        let waited = async {
            match limit {
                // An answer that is on its way then has its grace in `try_within`.
                Limit::Until(deadline) => timeout_at(deadline + 2 * GRACE, waiting)
                    .await
                    .unwrap_or(Ok(None)),
                _ => waiting.await,
            }
        };
        self.closed
            .run_until_cancelled(waited)
            .await
            .unwrap_or(Err(Error::Closed))
    }

    async fn wait_and_try(
        self: &Arc<Self>,
        ask: &Ask,
        limit: Limit,
        waiting: Waiting,
    ) -> Result<Option<Held>, Error> {
        loop {
            let seen = waiting.trying();
            match self.try_within(ask, limit).await? {
                Tried::Granted(held) => {
                    waiting.granted();
                    return Ok(Some(held));
                }
                Tried::Busy { remaining }
                    if waiting.refused(seen, remaining) && !is_over(limit) =>
                {
                    continue;
                }
                Tried::Busy { .. } => {}
                // It was busy when last heard of; for longer than that, it is not known.
                Tried::Unanswered => {
                    return if is_over(limit) {
                        Ok(None)
                    } else {
                        Err(no_answer())
                    };
                }
            }
            match limit {
                Limit::Until(deadline) => {
                    if timeout_at(deadline, waiting.told()).await.is_err() {
                        return Ok(None);
                    }
                }
                _ => waiting.told().await,
            }
        }
    }

    /// One try, for as long as the limit and our patience with an unreachable server allow.
    async fn try_within(self: &Arc<Self>, ask: &Ask, limit: Limit) -> Result<Tried, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let now = Instant::now();
        let until = match limit {
            Limit::Once => now + self.config.command_wait,
            Limit::Until(deadline) => {
                (deadline.max(now) + GRACE).min(now + self.config.outage_wait)
            }
            Limit::Never => now + self.config.outage_wait,
        };
        let dropped = Dropped::default();
        let attempt = attempt(
            self.clone(),
            self.slot(&ask.place, ask.owner),
            ask.clone(),
            dropped.clone(),
        );
        match timeout_at(until, Carried::new(self, dropped, attempt)).await {
            Ok(tried) => tried,
            Err(_) => Ok(Tried::Unanswered),
        }
    }
}

fn is_over(limit: Limit) -> bool {
    matches!(limit, Limit::Until(deadline) if Instant::now() >= deadline)
}

fn no_answer() -> Error {
    Error::unavailable(
        "the server did not answer; what it may have granted is given back when it can be reached",
    )
}

/// Asks the server for the next hold of an owner, as often as it takes to get an answer. Whoever drops this before its
/// end has it carried on ([`Carried`]); a hold that nobody takes is given back when it is dropped.
async fn attempt(
    engine: Arc<Engine>,
    slot: SlotRef,
    ask: Ask,
    dropped: Dropped,
) -> Result<Tried, Error> {
    let _turn = slot.turn.lock().await;
    // An earlier sending was not answered, and may have been granted.
    let mut doubt = false;
    loop {
        if !engine.lanes.redis().is_ready() {
            engine.lanes.redis().ready().await;
        }
        let tenure = live_tenure(&engine, &slot);
        let before = tenure.as_ref().map_or(0, |tenure| tenure.count());
        if dropped.is_set() {
            if doubt {
                engine
                    .give_back(&ask.place, ask.wire, &slot, &ask.lease, before)
                    .await;
            }
            return Ok(Tried::Unanswered);
        }
        let sent = Instant::now();
        let request = ask
            .wire
            .acquire(&ask.place, &slot.owner, &ask.lease, before + 1);
        let refusal = match engine.lanes.run(request).await {
            Ok(reply) => match ask.wire.attempt(reply) {
                Ok(Attempt::Granted) => match engine.note_grant(&slot, &ask, tenure, sent) {
                    Some(held) => return Ok(Tried::Granted(held)),
                    None => {
                        engine
                            .give_back(&ask.place, ask.wire, &slot, &ask.lease, before)
                            .await;
                        continue;
                    }
                },
                Ok(Attempt::Busy { remaining }) => return Ok(Tried::Busy { remaining }),
                Ok(Attempt::Gone) => {
                    if let Some(tenure) = tenure {
                        engine.lose(&tenure, LostReason::Gone);
                    }
                    continue;
                }
                Err(refusal) => refusal,
            },
            Err(CallError::Unanswered { .. }) => {
                doubt = true;
                continue;
            }
            Err(CallError::Refused(refusal)) => refusal,
            Err(CallError::Closed) => return Err(Error::Closed),
        };
        match refusal {
            Refusal::Passing { .. } => tokio::time::sleep(PASSING_PAUSE).await,
            refusal => {
                if doubt {
                    engine
                        .give_back(&ask.place, ask.wire, &slot, &ask.lease, before)
                        .await;
                }
                return Err(refused(&ask.place, refusal));
            }
        }
    }
}

/// What the owner holds now; what the clock has ended is ended here as well.
fn live_tenure(engine: &Engine, slot: &SlotRef) -> Option<Arc<Tenure>> {
    let tenure = slot.tenure()?;
    let Some(reason) = tenure.lost(Instant::now()) else {
        return Some(tenure);
    };
    engine.lose(&tenure, reason);
    None
}

impl Engine {
    /// Takes a grant into the books, unless its answer took so long that it cannot be relied upon any more.
    fn note_grant(
        self: &Arc<Self>,
        slot: &SlotRef,
        ask: &Ask,
        tenure: Option<Arc<Tenure>>,
        sent: Instant,
    ) -> Option<Held> {
        let grant = Grant {
            place: &ask.place,
            wire: ask.wire,
            sent,
            lease: &ask.lease,
            watched: ask.watched,
        };
        let (tenure, id) = slot.grant(tenure, grant)?;
        self.watch(&tenure);
        Some(Held::new(self.clone(), tenure, id))
    }
}
