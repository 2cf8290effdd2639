//! Questions about a lock, and what their answers tell of the client's own holds.
//!
//! If an answer does not contain one of the client's holds, that hold is lost from then on. A hold that waits for replicas has a
//! connection of its own, which may follow a failover sooner than that of the questions: the server is asked again there.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Engine, hold_guard::HoldGuard, refusal_error, tenure::Tenure};
use crate::{
    durability::Durability,
    error::{Error, LostReason},
    owner::{Owner, OwnerId},
    wire::{
        HoldMode, Inspection, KEPT, LockSpec, Presence, Refusal,
        holders::{self, Holder, Waiter},
        presence,
    },
};

/// A question that is about to be sent. Its answer is news only of tenures that the server granted before `sent`.
struct Question<'a> {
    spec: &'a LockSpec,
    /// The modes that it asks about.
    modes: &'a [HoldMode],
    sent: Instant,
}

impl HoldGuard {
    /// Asks the server whether it has the hold.
    pub(crate) async fn check(&self) -> Result<(), Error> {
        let (engine, tenure) = (self.engine(), self.tenure());
        if let Some(reason) = tenure.lost_reason(Instant::now()) {
            return Err(tenure.lost_error(reason));
        }
        let spec = &tenure.spec;
        let ask = async |durability| {
            let request = spec.protocol.renew(spec, &tenure.entry().field, None);
            engine.call_by(spec, request, durability, true).await
        };
        let mut answer = presence(ask(Durability::Local).await?);
        if answer != Ok(Presence::Present) && engine.is_durable(tenure) {
            answer = presence(ask(engine.durability_of(tenure)).await?);
        }
        engine.lose_if_absent(tenure, answer)?;
        // The clock may have ended the hold meanwhile.
        match tenure.lost_reason(Instant::now()) {
            Some(reason) => Err(tenure.lost_error(reason)),
            None => Ok(()),
        }
    }
}

impl Engine {
    pub(crate) async fn inspect(
        self: &Arc<Self>,
        spec: &LockSpec,
        owner: Owner,
    ) -> Result<Inspection, Error> {
        self.wait_for_dropped_guards(&spec.name).await;
        let id = OwnerId::new(self.id, owner);
        // A hold that was handed off, or that readers share, is in another owner's field.
        let tenure = match spec.mode.is_shared() {
            true => self.owners.enter(&spec.name, id).read_tenure(),
            false => self.owners.tenure(spec, spec.mode, id),
        };
        let field = match &tenure {
            Some(tenure) => tenure.entry().field.clone(),
            None => id.field(),
        };
        let question = Question::begin(spec, std::slice::from_ref(&spec.mode));
        let reply = self
            .call(spec, spec.protocol.inspect(spec, &field), true)
            .await?;
        let answer = spec.protocol.inspection(reply);
        let has = |answer: &Inspection, tenure: &Tenure| match tenure.entry().field == field {
            true => answer.holds > 0,
            false => answer.locked,
        };
        let mut inspection = self.end_absent_tenures(&question, tenure.as_ref(), answer, has)?;
        // The server does not count the holds of readers that joined, and counts all under one field together.
        if let Some(tenure) = tenure.filter(|tenure| tenure.is_shared())
            && inspection.holds > 0
        {
            inspection.holds = tenure.count_of(owner);
        }
        Ok(inspection)
    }

    /// Returns the state of the lock on the server. Its `holds` are those of a job that is done.
    pub(crate) async fn inspect_job(&self, spec: &LockSpec) -> Result<Inspection, Error> {
        let request = spec.protocol.inspect(spec, &KEPT);
        let reply = self.call(spec, request, true).await?;
        let seen = spec.protocol.inspection(reply);
        seen.map_err(|refusal| refusal_error(&spec.name, refusal))
    }

    /// Whether the lock is kept because its job is done. An error leaves that open.
    pub(super) async fn is_job_done(&self, spec: &LockSpec) -> bool {
        let seen = self.inspect_job(spec).await;
        seen.is_ok_and(|seen| seen.holds > 0)
    }

    /// Returns the holders of the lock, from the server.
    pub(crate) async fn holders(self: &Arc<Self>, spec: &LockSpec) -> Result<Vec<Holder>, Error> {
        self.wait_for_dropped_guards(&spec.name).await;
        let question = Question::begin(spec, spec.mode.together());
        let reply = self.call(spec, spec.protocol.holders(spec), true).await?;
        let has = |holders: &Vec<Holder>, tenure: &Tenure| {
            let writes = tenure.spec.mode == HoldMode::Write;
            let is_it = |holder: &Holder| {
                holder.owner.as_bytes() == &tenure.entry().field[..] && holder.writes == writes
            };
            holders.len() >= holders::MOST_LISTED || holders.iter().any(is_it)
        };
        let mut holders = self.end_absent_tenures(&question, None, holders::holders(reply), has)?;
        self.describe(spec, &mut holders).await;
        Ok(holders)
    }

    /// Ends the tenures that the server does not have, by its answer to `question`: `known`, and those that are present now. `has` says
    /// whether an answer shows a tenure.
    fn end_absent_tenures<A>(
        self: &Arc<Self>,
        question: &Question<'_>,
        known: Option<&Arc<Tenure>>,
        answer: Result<A, Refusal>,
        has: impl Fn(&A, &Tenure) -> bool,
    ) -> Result<A, Error> {
        let Question { spec, modes, sent } = question;
        // Each reader with a lease of its own has a tenure. They are in no table by the lock's name.
        let present = match modes.contains(&HoldMode::Read) {
            true => self.owners.tenures(Some(&spec.name)),
            false => Vec::from_iter(self.owners.present(&spec.name, spec.mode)),
        };
        let asked = |tenure: &Arc<Tenure>| {
            modes.contains(&tenure.spec.mode) && tenure.granted_at() <= *sent
        };
        for tenure in known.cloned().into_iter().chain(present).filter(asked) {
            let is_there = match &answer {
                Ok(answer) => has(answer, &tenure),
                // Another kind's data: that of a tenure of another kind is in its place.
                Err(Refusal::WrongKind { .. }) => {
                    tenure.spec.protocol.kind() != spec.protocol.kind()
                }
                Err(_) => true,
            };
            if is_there {
                continue;
            }
            match self.is_durable(&tenure) {
                true => self.verify(vec![tenure]),
                false => drop(self.record_absence(&tenure)),
            }
        }
        answer.map_err(|refusal| refusal_error(&spec.name, refusal))
    }

    /// Whether the renewals of `tenure` wait for replicas, and so have a connection of their own.
    fn is_durable(&self, tenure: &Tenure) -> bool {
        let listed = self.batcher.replicas(&tenure.spec);
        self.durability_of(tenure).waits(listed)
    }

    /// Loses the tenure if its holds are no longer on the server.
    pub(super) fn lose_if_absent(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        answer: Result<Presence, Refusal>,
    ) -> Result<(), Error> {
        match answer {
            Ok(Presence::Present) => Ok(()),
            Ok(Presence::Absent) | Err(Refusal::WrongKind { .. }) => {
                self.record_absence(tenure);
                Err(tenure.lost_error(LostReason::Gone))
            }
            Err(refusal) => Err(refusal_error(&tenure.spec.name, refusal)),
        }
    }

    /// Records that the server has nothing under the field of `tenure`, which it had granted before it was asked. Returns whether that ends
    /// a hold.
    pub(super) fn record_absence(self: &Arc<Self>, tenure: &Arc<Tenure>) -> bool {
        let tenure = tenure.end_hand_off();
        if tenure.live_count() > 0 {
            let reason = tenure.lost_reason(Instant::now());
            self.lose(&tenure, reason.unwrap_or(LostReason::Gone));
            return true;
        }
        if tenure.is_freeing() {
            // Its release has been executed, and the releasing future may never be polled again. A release that is still to be sent would
            // end the owner's next hold.
            tenure.let_next_ask();
        }
        false
    }

    /// Returns the waiters in the lock's fair queue, the next to be served first.
    pub(crate) async fn waiters(&self, spec: &LockSpec) -> Result<Vec<Waiter>, Error> {
        let Some(request) = spec.protocol.waiters(spec) else {
            return Ok(Vec::new());
        };
        let reply = self.call(spec, request, true).await?;
        holders::waiters(reply).map_err(|refusal| refusal_error(&spec.name, refusal))
    }

    /// Returns the hold count of `owner` without a request. It excludes holds that the owner can no
    /// longer rely on.
    pub(crate) fn known_holds(self: &Arc<Self>, spec: &LockSpec, owner: Owner) -> u32 {
        let tenure = self
            .owners
            .tenure(spec, spec.mode, OwnerId::new(self.id, owner));
        let live = tenure.filter(|tenure| tenure.lost_reason(Instant::now()).is_none());
        live.map_or(0, |tenure| tenure.live_count_of(owner))
    }
}

impl<'a> Question<'a> {
    fn begin(spec: &'a LockSpec, modes: &'a [HoldMode]) -> Self {
        Self {
            spec,
            modes,
            sent: Instant::now(),
        }
    }
}
