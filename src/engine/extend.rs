//! Lengthening a hold because its holder says so, and what elections write beside it.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Engine, carried::DetachOnDrop, holding::HoldId, holds::Tenure, refused, release::Held, runtime,
};
use crate::{
    error::{Error, LostReason},
    wire::{Lease, LockSpec, Presence, election, presence},
};

/// What becomes of the renewals of a hold that is extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// They go on, if there are any.
    Renewed,
    /// They end: the hold lasts for the lease.
    Fixed,
}

impl Held {
    /// Has the hold last for `lease` from now on, unless it lasts longer anyway.
    pub(crate) async fn extend(&self, lease: Lease, then: Then) -> Result<(), Error> {
        let (engine, tenure) = (self.engine(), self.tenure());
        let extending = engine
            .clone()
            .extend(tenure.clone(), self.id(), lease, then);
        // Its turn is over when its answer is there, and nobody sends as this owner before.
        let extending = DetachOnDrop::certain(engine, extending);
        engine.within(&tenure.place, extending).await
    }

    /// Writes down that the holder leads, as `identity`.
    pub(crate) async fn announce(&self, token: i64, identity: &str) -> Result<(), Error> {
        let (engine, tenure) = (self.engine(), self.tenure());
        let place = &tenure.place;
        let request = election::announce(place, &tenure.slot().owner, token, identity);
        let reply = engine.ask(place, request, true).await?;
        engine.is_there(
            tenure,
            presence(reply).map_err(|refusal| refused(place, refusal))?,
        )
    }
}

impl Engine {
    async fn extend(
        self: Arc<Self>,
        tenure: Arc<Tenure>,
        id: HoldId,
        lease: Lease,
        then: Then,
    ) -> Result<(), Error> {
        runtime::check()?;
        let _turn = tenure.slot().take_turn().await;
        let sent = Instant::now();
        if let Some(reason) = tenure.lost(sent) {
            return Err(tenure.lost_error(reason));
        }
        // The server may do it although nobody hears of that.
        tenure.lives_on();
        let place = &tenure.place;
        let request = place.wire.renew(place, &tenure.slot().owner, Some(&lease));
        let durability = tenure.durability(self.lanes.replicas(place));
        let reply = self.ask_for(place, request, true, durability).await?;
        if let Some(short) = reply.acknowledged.filter(|by| !by.is_enough()) {
            return Err(Error::Replication {
                name: place.name.clone(),
                acknowledged: short.by,
                wanted: short.wanted,
            });
        }
        let there = presence(reply).map_err(|refusal| refused(place, refusal))?;
        self.is_there(&tenure, there)?;
        if let Err(reason) = tenure.extended(id, sent, &lease, then) {
            return Err(tenure.lost_error(reason));
        }
        self.watch(&tenure);
        Ok(())
    }

    /// What is no longer on the server is lost.
    fn is_there(self: &Arc<Self>, tenure: &Arc<Tenure>, there: Presence) -> Result<(), Error> {
        if there == Presence::Absent {
            self.lose(&tenure.end_row(), LostReason::Gone);
            return Err(tenure.lost_error(LostReason::Gone));
        }
        Ok(())
    }

    /// Who leads by the election at `place`: a token and an identity.
    pub(crate) async fn leader(&self, place: &LockSpec) -> Result<Option<(i64, String)>, Error> {
        self.dropped_guards_released(&place.name).await;
        let reply = self.ask(place, election::leader(place), true).await?;
        election::led_by(reply).map_err(|refusal| refused(place, refusal))
    }
}
