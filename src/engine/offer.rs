//! A lock that goes from one task of this process to the next without being free in between.
//!
//! Who releases a last hold *offers* it to the one who is to try next, and who has the server hand it over instead: one
//! operation, which wakes nobody else. An offer that is not taken is a release. Neither of the two depends on the other's
//! being polled: what the heir takes, a task carries to its end, and what nobody takes in time is released by another.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::{CallError, Engine, holds::Tenure, room};
use crate::{
    durability::Durability,
    redis::Seat,
    wire::{Refusal, Reply, Request},
};

/// How a waiter is told to try.
pub(super) type Signal = room::Signal<Box<Offer>>;

/// The only hold of its giver, who releases it. Dropped before it is taken, it is released.
pub(super) struct Offer {
    engine: Arc<Engine>,
    pub(super) tenure: Arc<Tenure>,
    /// To the giver.
    answer: Option<Sender>,
}

type Sender = oneshot::Sender<Result<Reply, CallError>>;

/// What the first sending of a try goes with.
pub(super) enum Along {
    Nothing,
    /// Others, in one call.
    Seat(Seat),
    /// A release, if this has been told of an offer.
    Offer(Arc<Signal>),
}

impl Offer {
    /// An offer, and what its giver hears of it: the answer to its release, by itself or with an acquisition.
    pub(super) fn new(
        engine: &Arc<Engine>,
        tenure: &Arc<Tenure>,
    ) -> (
        Box<Self>,
        impl Future<Output = Result<Reply, CallError>> + use<>,
    ) {
        let (answer, answered) = oneshot::channel();
        let offer = Self {
            engine: engine.clone(),
            tenure: tenure.clone(),
            answer: Some(answer),
        };
        (Box::new(offer), or_closed(answered))
    }

    /// Hands it over by this request, whether or not the future that is returned is polled: sent late, it would take a
    /// later hold of the giver's.
    pub(super) fn take(
        mut self: Box<Self>,
        request: Request,
        durability: Durability,
    ) -> impl Future<Output = Result<Reply, CallError>> {
        let (answer, answered) = oneshot::channel();
        let engine = self.engine.clone();
        engine.lanes.spawn(async move {
            let done = self.engine.lanes.run(request, durability).await;
            self.answered(&done);
            let _ = answer.send(done);
        });
        or_closed(answered)
    }

    fn answered(&mut self, done: &Result<Reply, CallError>) {
        let refusal = match done {
            Ok(reply) => reply.clone().outcome().err(),
            Err(CallError::Refused(refusal)) => Some(refusal.clone()),
            Err(_) => None,
        };
        match refusal {
            None => {
                if let Some(answer) = self.answer.take() {
                    let _ = answer.send(done.clone());
                }
            }
            Some(Refusal::Passing { .. }) => {}
            // A right is missing, say. To ask each time would make turns longer.
            Some(_) => self.engine.wakeups.cannot_offer(&self.tenure.place),
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else {
            return;
        };
        let (engine, tenure) = (self.engine.clone(), self.tenure.clone());
        engine.wakeups.not_taken(&tenure.place);
        self.engine.jobs.push(async move {
            let (place, owner) = (&tenure.place, &tenure.slot().owner);
            let release = place.wire.release(place, owner, None, 0);
            let released = engine.lanes.run(release, Durability::Local).await;
            if let Ok(reply) = &released
                && reply.is_done()
            {
                engine.wakeups.released_unheard(place);
                engine.wakeups.released(place, reply);
            }
            let _ = answer.send(released);
        });
    }
}

/// What is received, or that nobody can answer any more.
fn or_closed(
    answered: oneshot::Receiver<Result<Reply, CallError>>,
) -> impl Future<Output = Result<Reply, CallError>> {
    answered.map(|answer| answer.unwrap_or(Err(CallError::Closed)))
}

impl Along {
    pub(super) fn is_offer(&self) -> bool {
        matches!(self, Along::Offer(_))
    }

    /// At the time of sending.
    pub(super) fn board(&mut self) -> (Option<Seat>, Option<Box<Offer>>) {
        match std::mem::replace(self, Along::Nothing) {
            Along::Nothing => (None, None),
            Along::Seat(seat) => (Some(seat), None),
            Along::Offer(signal) => (None, signal.set_offer(None)),
        }
    }
}
