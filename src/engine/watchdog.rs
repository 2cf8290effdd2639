//! The watchdog: renews holds in time, and notifies holders of a loss.
//!
//! A renewal is due when a third of the lease has passed since the previous one was sent. It is
//! repeated after a thirtieth of the lease until it succeeds, so several attempts fit into each
//! third. Renewals that are nearly due go along, in batches. The end of the validity is a deadline
//! of the same timer: past it the tenure is lost, whatever the server says (invariant 2). A
//! reconnection verifies all tenures, so that a loss shows at once and not after a lease.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{MutexGuard, Notify},
    time::{Instant, sleep},
};

use super::{
    CallError, Engine,
    alarm::Alarm,
    hold_set::Duty,
    long_holds::HoldLooks,
    retry::longer_pause,
    tenure::Tenure,
    time_limits::{LONGEST_LOOK_UP_PAUSE, TRANSIENT_PAUSE},
};
use crate::{
    durability::Durability,
    error::LostReason,
    gauges::RenewalEnd,
    hash::HashSet,
    redis::{Answered, HashSlot},
    wire::{Lease, Presence, Refusal, Request, presence},
};

/// The watchdog's timer, and its notice of reconnections.
#[derive(Default)]
pub(super) struct Watchdog {
    alarm: Alarm<Arc<Tenure>>,
    reconnected: Notify,
}

impl Watchdog {
    /// Schedules the next look at `tenure`, or removes it if it needs none.
    fn set(&self, tenure: &Arc<Tenure>) {
        let (at, entry) = (|| tenure.next_duty(), || tenure.clone());
        self.alarm
            .set(tenure.number, &tenure.next_deadline, at, entry);
    }

    /// Removes `tenure`: it needs no more looks.
    pub(super) fn forget(&self, tenure: &Tenure) {
        let (never, entry) = (|| None, || unreachable!());
        self.alarm
            .set(tenure.number, &tenure.next_deadline, never, entry);
    }

    pub(super) fn notify_reconnected(&self) {
        self.reconnected.notify_one();
    }
}

/// A renewal to be sent.
struct Renewal {
    tenure: Arc<Tenure>,
    /// The watchdog's lease, if a hold has it.
    lease: Option<Lease>,
    /// The pause before its repetition, if it verifies the tenure: a cause other than the clock has the server asked, such as a reconnection.
    verifies: Option<Duration>,
}

/// Tenures that are still to be verified.
#[derive(Default)]
struct Unverified {
    tenures: Vec<Arc<Tenure>>,
    pause: Duration,
}

impl Unverified {
    /// Adds the tenure of a verification, unless another one follows already.
    fn add(&mut self, renewal: &Renewal) {
        if let Some(pause) = renewal.verifies
            && renewal.tenure.begin_look_up()
        {
            self.tenures.push(renewal.tenure.clone());
            self.pause = self.pause.max(pause);
        }
    }
}

/// A renewal that is sent, with the operation lock if that is free.
type Turn<'a> = (&'a Renewal, Option<MutexGuard<'a, ()>>);

impl Engine {
    /// Schedules the watchdog's next look at `tenure`, by its present state.
    pub(super) fn watch(&self, tenure: &Arc<Tenure>) {
        self.watchdog.set(tenure);
    }

    /// Ends `tenure`: notifies its holders, and stops its renewal. Returns `false` if it had ended.
    pub(super) fn lose(self: &Arc<Self>, tenure: &Arc<Tenure>, reason: LostReason) -> bool {
        let is_news = tenure.lose(reason);
        if is_news {
            let name = &tenure.spec.name;
            let is_failure = !reason.is_end_of_client();
            match is_failure
                .then(|| self.log_limits.losses.may_log())
                .flatten()
            {
                Some(suppressed) => {
                    let server = self.batcher.server_of(&tenure.spec);
                    let groups = tenure.groups().unwrap_or_default();
                    let group = groups.iter().rev().find_map(|group| group.state());
                    tracing::warn!(%name, %reason, server, group, suppressed, "a hold was lost");
                }
                None => tracing::debug!(%name, %reason, "a hold was lost"),
            }
            self.gauges.record_loss(tenure.spec.protocol.kind(), reason);
            self.wake_after_loss(&tenure.spec);
            if reason == LostReason::Expired {
                if self.is_closed() {
                    self.record_unreleased(tenure, tenure.owners());
                }
                if tenure.server_may_keep_it() {
                    self.give_back_later(tenure.clone());
                }
            }
        }
        self.watchdog.forget(tenure);
        is_news
    }

    /// Renews what is due, until the engine has ended.
    pub(super) async fn keep_renewed(self: Arc<Self>) {
        let mut looks = HoldLooks::new(&self.config);
        loop {
            tokio::select! {
                () = self.watchdog.alarm.wait_or(|holds| looks.next(holds)) => {
                    self.renew_due();
                    self.look_at_holds(&mut looks);
                }
                () = self.watchdog.reconnected.notified() => self.verify_all(),
                () = self.permits_due() => self.renew_permits(),
                () = self.ended.cancelled() => return,
            }
        }
    }

    fn renew_due(self: &Arc<Self>) {
        let now = Instant::now();
        let mut renewals = Vec::new();
        // Includes renewals that are nearly due, which `duty` lets join the batch.
        for tenure in self
            .watchdog
            .alarm
            .due(now + self.options.lease.duration / 60)
        {
            match tenure.duty(now) {
                Duty::Lost(reason) => {
                    self.lose(&tenure, reason);
                }
                Duty::Renew(lease) => {
                    self.watch(&tenure);
                    renewals.push(Renewal {
                        tenure,
                        lease: Some(lease),
                        verifies: None,
                    });
                }
                Duty::Wait => self.watch(&tenure),
                Duty::Over => {}
            }
        }
        self.send_all(renewals);
    }

    /// Verifies all tenures after a reconnection: a hold that is gone is lost now, not after a
    /// lease.
    fn verify_all(self: &Arc<Self>) {
        self.verify(self.owners.tenures(None));
    }

    /// As [`verify_all`](Self::verify_all), for the tenures in these slots.
    pub(super) fn verify_in(self: &Arc<Self>, slots: &HashSet<HashSlot>) {
        let redis = self.batcher.redis();
        let mut tenures = self.owners.tenures(None);
        tenures.retain(|tenure| slots.contains(&redis.slot(&tenure.spec.key)));
        self.verify(tenures);
    }

    /// Asks the server whether these tenures are still there. They are not handed off before the
    /// answer.
    pub(super) fn verify(self: &Arc<Self>, tenures: Vec<Arc<Tenure>>) {
        self.verify_before(TRANSIENT_PAUSE, tenures);
    }

    /// Verifies a tenure whose holds have just changed, if there was a reconnection after the first `reconnections`: its verification
    /// did not know the change.
    pub(super) fn verify_since(self: &Arc<Self>, reconnections: u64, tenure: &Arc<Tenure>) {
        if self.wakeups.reconnections() != reconnections {
            self.verify(vec![tenure.clone()]);
        }
    }

    /// As [`verify`](Self::verify), with the `pause` before a repetition.
    fn verify_before(self: &Arc<Self>, pause: Duration, tenures: Vec<Arc<Tenure>>) {
        let now = Instant::now();
        let renewals = tenures.into_iter().map(|tenure| {
            let tenure = tenure.end_hand_off();
            tenure.set_renew_at(now);
            let lease = match tenure.duty(now) {
                Duty::Renew(lease) => Some(lease),
                _ => None,
            };
            self.watch(&tenure);
            Renewal {
                tenure,
                lease,
                verifies: Some(pause),
            }
        });
        self.send_all(renewals.collect());
    }

    /// Sends renewals of one script, slot and durability in batches. Each batch is a task of its
    /// own: an error of one concerns no other (P-R1), and a silent node delays no other (P-R5).
    fn send_all(self: &Arc<Self>, renewals: Vec<Renewal>) {
        // A `BTreeMap`, so that a simulation repeats the order.
        let mut by_key: BTreeMap<_, (Durability, Vec<(Renewal, Request)>)> = BTreeMap::new();
        for renewal in renewals {
            let durability = self.durability_of(&renewal.tenure);
            let request = renewal.request();
            let (script, slot, _) = self.batcher.batch_key(&request, durability);
            let entry = by_key.entry((script, slot, durability.key()));
            let (_, renewals) = entry.or_insert_with(|| (durability, Vec::new()));
            renewals.push((renewal, request));
        }
        let most = self.config.watchdog_batch_size;
        for (durability, mut renewals) in by_key.into_values() {
            while !renewals.is_empty() {
                let rest = renewals.split_off(renewals.len().min(most));
                let batch = std::mem::replace(&mut renewals, rest);
                // On the client's runtime: an attempt in a caller's future may ask for it.
                self.batcher.spawn(self.clone().renew(batch, durability));
            }
        }
    }

    pub(super) fn durability_of(&self, tenure: &Tenure) -> Durability {
        match self.config.check_replicas {
            true => tenure.durability(self.batcher.replicas(&tenure.spec)),
            false => Durability::Local,
        }
    }

    async fn renew(self: Arc<Self>, batch: Vec<(Renewal, Request)>, durability: Durability) {
        let (renewals, requests): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let (mut put_off, mut refused) = (Unverified::default(), Unverified::default());
        let due = renewals.iter().zip(requests);
        let turns = due.filter_map(|(renewal, request)| {
            if !renewal.is_due() {
                return None;
            }
            let turn = renewal.take_turn(request);
            // The answer to that operation may be older than the cause of the verification.
            if turn.is_none() {
                put_off.add(renewal);
            }
            turn
        });
        let (turns, requests): (Vec<Turn<'_>>, Vec<_>) = turns.unzip();
        // Not after the batch, which may wait for replicas.
        self.verify_later(put_off);
        // A renewal that waited for a connection could reach the owner's next hold. The
        // reconnection verifies all tenures.
        if let Some((first, _)) = turns.first()
            && self.batcher.is_ready_for(&first.tenure.spec, durability)
        {
            let sent = Instant::now();
            let answers = self.batcher.run_batch(requests, durability).await;
            for ((renewal, _op_lock), answer) in turns.iter().zip(answers) {
                if self.handle_answer(renewal, sent, answer) {
                    refused.add(renewal);
                }
            }
        }
        self.verify_later(refused);
    }

    /// Verifies tenures again, after a pause.
    fn verify_later(self: &Arc<Self>, unverified: Unverified) {
        let Unverified { tenures, pause } = unverified;
        if tenures.is_empty() {
            return;
        }
        let engine = self.clone();
        self.batcher.spawn(async move {
            let pausing = engine.ended.run_until_cancelled(sleep(pause));
            if pausing.await.is_some() {
                tenures.iter().for_each(|tenure| tenure.end_look_up());
                engine.verify_before(longer_pause(pause).min(LONGEST_LOOK_UP_PAUSE), tenures);
            }
        });
    }

    /// Returns whether the server has refused the renewal, and a repetition may succeed.
    fn handle_answer(
        self: &Arc<Self>,
        renewal: &Renewal,
        sent: Instant,
        answer: Result<Answered, CallError>,
    ) -> bool {
        match answer {
            Ok(answered) => {
                let short = self.shortfall(answered.acknowledged.as_ref()).is_some();
                self.handle_renewal_answer(renewal, sent, presence(answered.reply), short);
            }
            Err(CallError::Refused(refusal)) => {
                let may_pass = matches!(refusal, Refusal::Transient { .. });
                self.handle_renewal_answer(renewal, sent, Err(refusal), false);
                return may_pass;
            }
            Err(CallError::Unanswered { .. }) => {
                self.gauges.record_renewal(RenewalEnd::Unanswered);
                let tenure = &renewal.tenure;
                // The server may have executed it, and keep the lock after a loss.
                if renewal.is_write() {
                    tenure.set_server_may_keep_it();
                    if tenure.lost_reason(Instant::now()) == Some(LostReason::Expired) {
                        self.give_back_later(tenure.clone());
                    }
                }
            }
            Err(CallError::Closed) => {}
        }
        false
    }

    fn handle_renewal_answer(
        self: &Arc<Self>,
        renewal: &Renewal,
        sent: Instant,
        answer: Result<Presence, Refusal>,
        short: bool,
    ) {
        let Renewal { tenure, lease, .. } = renewal;
        match answer {
            // With too few acknowledgements, the validity may end as it would without the renewal.
            Ok(Presence::Present) if short => {
                self.gauges.record_renewal(RenewalEnd::TooFewReplicas);
                let tenure = &tenure.end_hand_off();
                tenure.set_server_may_keep_it();
                tenure.set_renew_at(Instant::now() + self.options.lease.duration / 30);
                self.watch(tenure);
            }
            Ok(Presence::Present) => {
                if let Some(lease) = lease {
                    self.gauges.record_renewal(RenewalEnd::Renewed);
                    tenure.record_renewal(sent, lease);
                    self.watch(tenure);
                    // The answer came too late for the holders, and the server has a new lease.
                    if tenure.lost_reason(Instant::now()) == Some(LostReason::Expired) {
                        tenure.set_server_may_keep_it();
                        self.give_back_later(tenure.clone());
                    }
                }
            }
            Ok(Presence::Absent) | Err(Refusal::WrongKind { .. }) => {
                if self.record_absence(tenure) {
                    self.gauges.record_renewal(RenewalEnd::Gone);
                }
            }
            Err(refusal) => {
                self.gauges.record_renewal(RenewalEnd::Refused);
                let name = &tenure.spec.name;
                match self.log_limits.refusals.may_log_about(refusal.message()) {
                    Some(suppressed) => {
                        tracing::warn!(%name, ?refusal, suppressed, "a renewal was refused");
                    }
                    None => tracing::debug!(%name, ?refusal, "a renewal was refused"),
                }
            }
        }
    }
}

impl Renewal {
    /// Whether its holds have not ended since the renewal was made.
    fn is_due(&self) -> bool {
        match self.lease {
            Some(_) => self.tenure.is_watched(),
            None => self.tenure.next_duty().is_some(),
        }
    }

    /// Whether its request has the server set a lease.
    fn is_write(&self) -> bool {
        self.lease.is_some() || self.tenure.rest(Instant::now()).is_some()
    }

    /// Takes its turn, unless the tenure puts it off: without the operation lock, another operation is under way, perhaps the last release.
    fn take_turn(&self, request: Request) -> Option<(Turn<'_>, Request)> {
        let tenure = &self.tenure;
        let op_lock = tenure.entry().op_lock.try_lock().ok();
        if !tenure.may_renew(op_lock.is_some()) {
            return None;
        }
        if self.verifies.is_none() {
            return Some(((self, op_lock), request));
        }
        if op_lock.is_none() && self.is_write() {
            // Over another connection, this rest may arrive after a release that leaves a shorter lease.
            tenure.set_server_may_keep_it();
        }
        // Built anew: an operation may have changed the rest since.
        Some(((self, op_lock), self.request()))
    }

    /// A verification sends the rest of the lease: a failover may have lost the request that set it, and not the hold.
    fn request(&self) -> Request {
        let rest = self.verifies.map(|_| self.tenure.rest(Instant::now()));
        let leases = [self.lease.as_ref(), rest.as_ref().and_then(Option::as_ref)];
        let lease = leases.into_iter().flatten();
        let lease = lease.max_by_key(|lease| lease.duration);
        let spec = &self.tenure.spec;
        spec.protocol.renew(spec, &self.tenure.entry().field, lease)
    }
}

#[cfg(test)]
#[path = "watchdog_tests.rs"]
mod tests;
