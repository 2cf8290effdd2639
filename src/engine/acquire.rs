//! The one loop that takes a lock, for every kind: try, subscribe, try again, wait, try again.

use std::{ops::Deref, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

use super::{
    CallError, Engine, PASSING_PAUSE,
    carried::{Caller, Carried},
    holds::{Grant, SlotRef, Tenure},
    line::InLine,
    pause::Pause,
    refused,
    release::Held,
};
use crate::{
    back_off::BackOff,
    durability::Durability,
    error::{Error, LostReason},
    owner::Owner,
    redis::Seat,
    wire::{Attempt, Claim, Count, Lease, Place, Refusal, Wait, Wire, script::Acknowledged},
};

/// How long after its caller's limit an answer that is on its way is still waited for: a lock that was granted at the
/// last moment is not reported as busy (P-A12).
const GRACE: Duration = Duration::from_millis(100);

/// What a handle asks for in each of its uses.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) place: Arc<Place>,
    pub(crate) wire: &'static dyn Wire,
    pub(crate) lease: Lease,
    /// The lease is the watchdog's.
    pub(crate) watched: bool,
    /// How it is polled, for a lock that is.
    pub(crate) back_off: Option<BackOff>,
    pub(crate) durability: Durability,
    /// Why no lock is taken on these terms.
    pub(crate) refused: Option<Box<Error>>,
}

/// What is asked for.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) terms: Arc<Terms>,
    pub(crate) owner: Owner,
}

impl Terms {
    /// With another lease, which is not renewed.
    pub(crate) fn set_lease(&mut self, lease: Result<Lease, Error>) {
        self.watched = false;
        match lease {
            Ok(lease) => (self.lease, self.refused) = (lease, None),
            Err(error) => self.refused = Some(Box::new(error)),
        }
    }
}

impl Ask {
    pub(crate) fn new(terms: Arc<Terms>, owner: Owner) -> Result<Self, Error> {
        match &terms.refused {
            Some(error) => Err(Error::clone(error)),
            None => Ok(Self { terms, owner }),
        }
    }
}

impl Deref for Ask {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
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
pub(super) enum Tried {
    Granted(Held),
    Busy {
        remaining: Option<Duration>,
    },
    /// No answer in the time that there was.
    Unanswered {
        reason: String,
    },
}

/// The tries of one wait, as a queue on the server is told of them.
struct Tries {
    last: Option<Instant>,
    nudged: Option<Instant>,
    /// How often the connection had been replaced at the last try.
    reconnections: u64,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Try {
    last: Option<Instant>,
    nudge: bool,
}

impl Tries {
    fn new(engine: &Engine) -> Self {
        Self {
            last: None,
            nudged: None,
            reconnections: engine.wakeups.reconnections(),
        }
    }

    /// The next try begins. The one whose turn it is is told so once per poll floor.
    fn next(&mut self, engine: &Engine) -> Try {
        let now = Instant::now();
        let nudge = self
            .nudged
            .is_none_or(|last| now >= last + engine.config.poll_floor);
        if nudge {
            self.nudged = Some(now);
        }
        let reconnections = engine.wakeups.reconnections();
        // On another connection there may be another server, which knows nothing of the last try.
        let last = self.last.replace(now);
        let last = last.filter(|_| self.reconnections == reconnections);
        self.reconnections = reconnections;
        Try { last, nudge }
    }
}

impl Try {
    fn as_sent(self, sent: Instant) -> Wait {
        Wait {
            since_last: self.last.map_or(Duration::ZERO, |last| {
                (sent - last).max(Duration::from_millis(1))
            }),
            nudge: self.nudge,
        }
    }
}

impl Engine {
    /// Takes the lock, or answers `None` when it was still taken at the limit.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        ask: &Ask,
        limit: Limit,
    ) -> Result<Option<Held>, Error> {
        let waits = !matches!(limit, Limit::Once);
        let in_line = waits.then(|| InLine::enter(self, ask)).flatten();
        let mut pause = waits.then(|| Pause::behind(self, ask)).flatten();
        let mut tries = Tries::new(self);
        let mut rests = true;
        loop {
            if let Some(pause) = &mut pause {
                // Boxed, as what is seldom needed should make no future larger.
                if rests && !self.unless_closed(Box::pin(pause.over(limit))).await? {
                    if tries.last.is_none() && !self.lanes.is_ready(&ask.place) {
                        let reason =
                            "there is no connection, and the lock was not asked for".into();
                        return Err(Error::Unavailable { reason });
                    }
                    return Ok(None);
                }
                pause.trying();
            }
            let next = waits.then(|| tries.next(self));
            let tried = self.try_until(ask, self.patience(limit), next, None);
            match (tried.await?, &mut pause) {
                (Tried::Granted(held), pause) => {
                    if let Some(pause) = pause {
                        pause.granted(held.tenure().valid_until());
                    }
                    if let Some(in_line) = in_line {
                        in_line.served();
                    }
                    return Ok(Some(held));
                }
                (Tried::Busy { .. }, None) if !waits => return Ok(None),
                (Tried::Busy { remaining }, None) => {
                    pause = Some(Pause::begin(self, ask, remaining));
                }
                (Tried::Busy { remaining }, Some(pause)) => {
                    rests = !pause.refused(remaining) || limit.is_over();
                }
                // It was busy when last heard of.
                (Tried::Unanswered { .. }, Some(_)) if limit.is_over() => return Ok(None),
                (Tried::Unanswered { reason }, _) => return Err(Error::Unavailable { reason }),
            }
        }
    }

    fn unless_closed<T>(
        &self,
        future: impl Future<Output = T>,
    ) -> impl Future<Output = Result<T, Error>> {
        let done = self.closed.run_until_cancelled(future);
        done.map(|done| done.ok_or(Error::Closed))
    }

    /// Until when an answer is waited for: as long as the limit and our patience with an unreachable server allow.
    pub(super) fn patience(&self, limit: Limit) -> Instant {
        let now = Instant::now();
        match limit {
            Limit::Once => now + self.config.command_wait,
            Limit::Until(deadline) => {
                (deadline.max(now) + GRACE).min(now + self.config.outage_wait)
            }
            Limit::Never => now + self.config.outage_wait,
        }
    }

    /// One try. A `seat` is for its first sending.
    pub(super) async fn try_until(
        self: &Arc<Self>,
        ask: &Ask,
        until: Instant,
        wait: Option<Try>,
        seat: Option<Seat>,
    ) -> Result<Tried, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let caller = Caller::default();
        let slot = self.slot(&ask.place, ask.owner);
        let attempt = attempt(self.clone(), slot, ask.clone(), wait, seat, caller.clone());
        match timeout_at(until, Carried::new(self, caller.clone(), attempt)).await {
            Ok(tried) => tried,
            Err(_) if self.is_closed() => Err(Error::Closed),
            Err(_) => Ok(Tried::Unanswered {
                reason: caller.reason().unwrap_or_else(|| NO_ANSWER.into()),
            }),
        }
    }

    /// Too few replicas have it, for those who care.
    pub(super) fn is_short(&self, acknowledged: Option<Acknowledged>) -> bool {
        let short = acknowledged.is_some_and(|acknowledged| !acknowledged.is_enough());
        short && self.config.check_replicas
    }

    /// Takes a grant into the books, unless it cannot be relied upon any more.
    fn note_grant(
        self: &Arc<Self>,
        slot: &SlotRef,
        ask: &Ask,
        tenure: Option<Arc<Tenure>>,
        sent: Instant,
        token: Option<i64>,
    ) -> Option<Held> {
        let grant = Grant {
            place: &ask.place,
            wire: ask.wire,
            sent,
            lease: &ask.lease,
            watched: ask.watched,
            durability: ask.durability,
            token,
        };
        let (tenure, id) = slot.grant(tenure, grant)?;
        self.watch(&tenure);
        Some(Held::new(self.clone(), tenure, id))
    }

    /// Completes once there is a connection, or when `caller`, if there is one, or everybody has given up.
    async fn reachable(&self, place: &Place, caller: Option<&Caller>) {
        let given_up = async {
            match caller {
                Some(caller) => tokio::select! {
                    () = caller.gone() => {}
                    () = self.closed.cancelled() => {}
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.lanes.ready(place) => {}
            () = given_up => {}
        }
    }

    /// Refuses a hold that the owner may not have besides those that it has: the server need not be asked.
    fn may_add(
        self: &Arc<Self>,
        slot: &SlotRef,
        ask: &Ask,
        tenure: Option<&Tenure>,
    ) -> Result<(), Error> {
        let Some(tenure) = tenure else {
            // It would wait for itself (P-RW3).
            let reads = ask.place.count == Count::Write
                && self
                    .live_tenure(slot, Count::Read)
                    .is_some_and(|reading| reading.live_count() > 0);
            return match reads {
                true => Err(Error::WouldDeadlock {
                    name: ask.place.name.clone(),
                }),
                false => Ok(()),
            };
        };
        let name = tenure.name().clone();
        match ask.wire.most_holds() {
            1 => Err(Error::AlreadyHeld { name }),
            most if tenure.count() >= most => Err(Error::TooManyHolds { name, most }),
            _ => Ok(()),
        }
    }

    /// What the owner holds now; what the clock has ended is ended here as well.
    fn live_tenure(self: &Arc<Self>, slot: &SlotRef, count: Count) -> Option<Arc<Tenure>> {
        let tenure = slot.tenure(count)?;
        let Some(reason) = tenure.lost(Instant::now()) else {
            return Some(tenure);
        };
        self.lose(&tenure, reason);
        None
    }
}

impl Limit {
    /// A wait of that long. What no clock can count has no end.
    pub(crate) fn of(wait: Duration) -> Self {
        if wait.is_zero() {
            Limit::Once
        } else if wait > Lease::MAX {
            Limit::Never
        } else {
            Limit::Until(Instant::now() + wait)
        }
    }

    pub(super) fn is_over(self) -> bool {
        matches!(self, Limit::Until(deadline) if Instant::now() >= deadline)
    }

    pub(super) fn earlier(self, than: Instant) -> Instant {
        match self {
            Limit::Until(deadline) => deadline.min(than),
            _ => than,
        }
    }
}

fn too_few(place: &Place, acknowledged: Option<Acknowledged>) -> Error {
    Error::Replication {
        name: place.name.clone(),
        acknowledged: acknowledged.map_or(0, |acknowledged| acknowledged.by),
        wanted: acknowledged.map_or(0, |acknowledged| acknowledged.wanted),
    }
}

const NO_ANSWER: &str =
    "the server did not answer; what it may have granted is given back when it can be reached";

/// Asks the server for the next hold of an owner, as often as it takes to get an answer. Whoever drops this before its
/// end has it carried on ([`Carried`]); a hold that nobody takes is given back when it is dropped.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async fn has its arguments twice, and thousands may be on their way"
)]
fn attempt(
    engine: Arc<Engine>,
    slot: SlotRef,
    ask: Ask,
    mut wait: Option<Try>,
    mut seat: Option<Seat>,
    caller: Caller,
) -> impl Future<Output = Result<Tried, Error>> + Send {
    async move {
        let _turn = slot.take_turn().await;
        engine.release_all_dropped(&slot).await;
        // An earlier sending was not answered, and may have been granted.
        let mut doubt = false;
        let done = loop {
            if !engine.lanes.is_ready(&ask.place) {
                // Nothing has been sent that would have to be taken back.
                let caller = (!doubt).then_some(&caller);
                Box::pin(engine.reachable(&ask.place, caller)).await;
            }
            if engine.is_closed() {
                break Err(Error::Closed);
            }
            if caller.is_gone() {
                break Ok(Tried::Unanswered {
                    reason: NO_ANSWER.into(),
                });
            }
            let tenure = engine.live_tenure(&slot, ask.place.count);
            if let Err(error) = engine.may_add(&slot, &ask, tenure.as_deref()) {
                break Err(error);
            }
            let holds = tenure.as_ref().map_or(0, |tenure| tenure.count()) + 1;
            let sent = Instant::now();
            let request = {
                let claim = Claim {
                    owner: &slot.owner,
                    lease: &ask.lease,
                    holds,
                    fresh: !doubt,
                    writes: ask.place.count == Count::Read
                        && engine.live_tenure(&slot, Count::Write).is_some(),
                    wait: wait.map(|wait| wait.as_sent(sent)),
                };
                ask.wire.acquire(&ask.place, &claim)
            };
            let answer = engine
                .lanes
                .run_from(seat.take(), request, ask.durability)
                .await;
            let acknowledged = answer.as_ref().ok().and_then(|reply| reply.acknowledged);
            let refusal = match answer {
                Ok(reply) => match ask.wire.attempt(reply) {
                    Ok(Attempt::Granted { .. }) if engine.is_short(acknowledged) => {
                        Box::pin(engine.give_back(&ask.place, ask.wire, &slot)).await;
                        return Err(too_few(&ask.place, acknowledged));
                    }
                    // Nobody would look after it.
                    Ok(Attempt::Granted { .. }) if engine.is_closed() => {
                        Box::pin(engine.give_back(&ask.place, ask.wire, &slot)).await;
                        return Err(Error::Closed);
                    }
                    Ok(Attempt::Granted { token }) => {
                        if let Some(mut held) = engine.note_grant(&slot, &ask, tenure, sent, token)
                        {
                            held.acknowledged = acknowledged.map(|acknowledged| acknowledged.by);
                            return Ok(Tried::Granted(held));
                        }
                        Box::pin(engine.give_back(&ask.place, ask.wire, &slot)).await;
                        continue;
                    }
                    Ok(Attempt::Busy { remaining }) => return Ok(Tried::Busy { remaining }),
                    Ok(Attempt::Gone) => {
                        if let Some(tenure) = tenure {
                            engine.lose(&tenure, LostReason::Gone);
                        }
                        continue;
                    }
                    Err(refusal) => refusal,
                },
                Err(CallError::Unanswered { reason }) => {
                    caller.tell(&reason);
                    doubt = true;
                    wait = wait.map(|wait| Try { last: None, ..wait });
                    continue;
                }
                Err(CallError::Refused(refusal)) => refusal,
                Err(CallError::Closed) => return Err(Error::Closed),
            };
            let Refusal::Passing { message } = refusal else {
                break Err(refused(&ask.place, refusal));
            };
            caller.tell(&message);
            tokio::time::sleep(PASSING_PAUSE).await;
        };
        if doubt {
            Box::pin(engine.give_back(&ask.place, ask.wire, &slot)).await;
        }
        done
    }
}
