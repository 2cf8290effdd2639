//! One try to take a lock: asks until there is an answer, whatever becomes of whoever wanted it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{FutureExt, future::Either};
use tokio::time::{Instant, timeout_at};

use super::{
    CallError, Engine, PASSING_PAUSE,
    ask::Ask,
    carried::{Caller, Carried},
    holds::{Grant, SlotRef, Tenure},
    offer::Along,
    refused,
    release::Held,
};
use crate::{
    error::{Error, LostReason},
    wire::{Attempt, Claim, Count, Place, Refusal, Wait, script::Acknowledged},
};

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

/// One of the tries of a wait, as a queue on the server is told of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Try {
    /// When the one before it was made, on the same connection.
    pub(super) last: Option<Instant>,
    pub(super) nudge: bool,
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
    /// One try, whose first sending goes `along` with others.
    ///
    /// No `async fn`, whose future would have its arguments twice, and is part of what everybody holds who waits.
    pub(super) fn try_until(
        self: &Arc<Self>,
        ask: &Ask,
        until: Instant,
        wait: Option<Try>,
        along: Along,
    ) -> impl Future<Output = Result<Tried, Error>> + use<'_> {
        let caller = Caller::default();
        let slot = self.slot(&ask.place, ask.owner);
        let attempt = attempt(self.clone(), slot, ask.clone(), wait, along, caller.clone());
        let attempt = Carried::new(self, caller.clone(), attempt);
        timeout_at(until, attempt).map(move |tried| match tried {
            Ok(tried) => tried,
            Err(_) if self.is_closed() => Err(Error::Closed),
            Err(_) => Ok(Tried::Unanswered {
                reason: caller.reason().unwrap_or_else(|| NO_ANSWER.into()),
            }),
        })
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
            sent,
            lease: &ask.lease,
            watched: ask.watched,
            durability: ask.durability,
            token,
        };
        let (tenure, id) = self.slots.grant(slot, tenure, grant)?;
        self.wakeups.asked(&ask.place, true);
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
        match ask.place.wire.most_holds() {
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

fn too_few(place: &Place, acknowledged: Option<Acknowledged>) -> Error {
    Error::Replication {
        name: place.name.clone(),
        acknowledged: acknowledged.map_or(0, |acknowledged| acknowledged.by),
        wanted: acknowledged.map_or(0, |acknowledged| acknowledged.wanted),
    }
}

/// The release publishes, and would be refused.
fn no_right(place: &Place) -> Error {
    let channel = String::from_utf8_lossy(&place.channel);
    Error::Redis {
        message: format!(
            "NOPERM this user may not publish to {channel:?}, and so could not release the lock: docs/operations.md \
             lists the rights that it needs"
        ),
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
    mut along: Along,
    caller: Caller,
) -> impl Future<Output = Result<Tried, Error>> + Send {
    async move {
        if engine.is_closed() {
            return Err(Error::Closed);
        }
        if along.is_offer() && slot.turn.try_lock().is_err() {
            // Whoever has to wait itself does not let others wait for it.
            drop(along.board());
        }
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
            if let Some(asking) = engine.lanes.may_announce(&ask.place)
                && !asking.await
            {
                break Err(no_right(&ask.place));
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
            if wait.is_some() {
                slot.has_place.store(true, Ordering::Relaxed);
            }
            let holds = tenure.as_ref().map_or(0, |tenure| tenure.count()) + 1;
            let sent = Instant::now();
            let (seat, offer) = along.board();
            // A first hold can be handed over, by the connection that the release would take.
            let hand_over = offer.and_then(|offer| Some((offer, ask.place.wire.hand_over()?)));
            let hand_over = hand_over.filter(|(offer, _)| {
                let another = offer.tenure.slot().owner != slot.owner;
                another && holds == 1 && !engine.lanes.waits(&ask.place, ask.durability)
            });
            let answer = {
                let claim = Claim {
                    owner: &slot.owner,
                    lease: &ask.lease,
                    holds,
                    fresh: !doubt,
                    writes: ask.place.count == Count::Read
                        && engine.live_tenure(&slot, Count::Write).is_some(),
                    wait: wait.map(|wait| wait.as_sent(sent)),
                };
                match hand_over {
                    Some((offer, hand_over)) => {
                        let giver = &offer.tenure.slot().owner;
                        let request = hand_over(&ask.place, &claim, giver);
                        Either::Left(offer.take(request, ask.durability))
                    }
                    None => {
                        let request = ask.place.wire.acquire(&ask.place, &claim);
                        Either::Right(engine.lanes.run_from(seat, request, ask.durability))
                    }
                }
            };
            let handed_over = matches!(answer, Either::Left(_));
            let answer = answer.await;
            let done = matches!(&answer, Ok(reply) if reply.is_done());
            if handed_over && !done && !matches!(answer, Err(CallError::Unanswered { .. })) {
                // Nothing was done: it has not been asked for yet.
                continue;
            }
            let acknowledged = answer.as_ref().ok().and_then(|reply| reply.acknowledged);
            let refusal = match answer {
                Ok(reply) => match ask.place.wire.attempt(reply) {
                    Ok(Attempt::Granted { .. }) if engine.is_short(acknowledged) => {
                        Box::pin(engine.give_back(&ask.place, &slot)).await;
                        return Err(too_few(&ask.place, acknowledged));
                    }
                    // Nobody would look after it.
                    Ok(Attempt::Granted { .. }) if engine.is_closed() => {
                        Box::pin(engine.give_back(&ask.place, &slot)).await;
                        return Err(Error::Closed);
                    }
                    Ok(Attempt::Granted { token }) => {
                        if let Some(mut held) = engine.note_grant(&slot, &ask, tenure, sent, token)
                        {
                            held.acknowledged = acknowledged.map(|acknowledged| acknowledged.by);
                            if !caller.is_gone() {
                                return Ok(Tried::Granted(held));
                            }
                            // Released in this turn: the owner's next operation would count it as a hold.
                            drop(held);
                            engine.release_all_dropped(&slot).await;
                            return Ok(Tried::Unanswered {
                                reason: NO_ANSWER.into(),
                            });
                        }
                        Box::pin(engine.give_back(&ask.place, &slot)).await;
                        continue;
                    }
                    Ok(Attempt::Busy { remaining }) => {
                        engine.wakeups.asked(&ask.place, false);
                        return Ok(Tried::Busy { remaining });
                    }
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
            Box::pin(engine.give_back(&ask.place, &slot)).await;
        }
        done
    }
}
