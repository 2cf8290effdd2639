//! The holds under one field of a lock's hash: how many, of which owners, and until when. Pure.
//!
//! All holds belong to one owner, except for readers. A reader may *join* a read hold of another
//! owner of the client without a request, so there may be more holds than the server counts.
//!
//! A set is valid until [`valid_until`](HoldSet::valid_until). A confirmed renewal moves that time
//! into the future; a release that leaves a shorter lease moves it back, before it is sent. Past it
//! the holds are lost, whatever the server says later (invariant 2).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    loss::{GroupHold, HoldSignals},
    time_limits::{DRIFT, SHARED_HOLD_STALE_AFTER},
};
use crate::{error::LostReason, owner::Owner, wire::Lease};

/// The allowance for clock drift over a lease: the validity ends that much before the server's
/// lease.
fn drift_allowance(lease: Duration) -> Duration {
    lease / 100 + DRIFT
}

/// The end of the validity of a hold that was requested at `sent`.
pub(super) fn validity(sent: Instant, lease: &Lease) -> Instant {
    sent + lease
        .duration
        .saturating_sub(drift_allowance(lease.duration))
}

/// The number of a hold in its [`HoldSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HoldId(u64);

#[derive(Debug)]
struct Hold {
    id: HoldId,
    owner: Owner,
    lease: Lease,
    /// The watchdog renews the hold, because no lease was asked for.
    watched: bool,
    /// The end of the validity by its own lease. Another hold of the same owner may keep the lock
    /// for longer.
    until: Instant,
    /// The end of the lease that the server was told; an extension makes it later than `lease`
    /// would.
    server_until: Instant,
    phase: Phase,
    /// Made for the first task that watches the hold; most holds have none.
    signals: Option<Box<HoldSignals>>,
    /// The group that has acquired the hold.
    group: Option<Arc<GroupHold>>,
}

impl Hold {
    fn is_of(&self, group: Option<&Arc<GroupHold>>) -> bool {
        self.group.as_ref().map(Arc::as_ptr) == group.map(Arc::as_ptr)
    }

    /// Renews the hold by its lease, which was sent to the server at `sent`.
    fn renew_from(&mut self, sent: Instant) {
        self.until = self.until.max(validity(sent, &self.lease));
        self.server_until = self.server_until.max(sent + self.lease.duration);
    }

    /// Whether an extension makes the server keep the hold for longer than its lease.
    fn is_extended(&self, now: Instant) -> bool {
        self.server_until > now + self.lease.duration
    }

    /// The lease that a request at `now` must send so as not to shorten the hold.
    fn lease_at(&self, now: Instant) -> Lease {
        let left = self.server_until.saturating_duration_since(now);
        let longer = (left > self.lease.duration).then(|| Lease::new(left).ok());
        longer.flatten().unwrap_or_else(|| self.lease.clone())
    }
}

/// The phases of a hold, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Guarded,
    /// The hold has no guard: `Lock::unlock` releases it.
    Leaked,
    /// The guard was dropped: the release task, or the owner's next operation, releases the hold.
    Dropped,
    /// The release waits for readers that are about to join, and the renewal has stopped. The hold
    /// will still be released, so another hold may end without a request and leave the release to
    /// this one.
    Leaving,
    /// The release is under way.
    Ending,
}

impl Phase {
    /// Whether the hold has a guard or was leaked.
    fn is_live(self) -> bool {
        matches!(self, Phase::Guarded | Phase::Leaked)
    }
}

/// The holds under one field, in the order of their acquisition.
#[derive(Debug)]
pub(super) struct HoldSet {
    /// A set nearly always has one hold.
    holds: SmallVec<[Hold; 1]>,
    ids: u64,
    /// Upper bound of the server's count. Holds that joined do not count. Only an answered release lowers it: a cancelled release may be
    /// unsent.
    pub(super) most_on_server: u32,
    /// The end of the time in which further readers of the client may join.
    open_until: Option<Instant>,
    /// Whether a reader has joined.
    is_joined: bool,
    /// The end of the validity: that of the longest hold, or later.
    pub(super) valid_until: Instant,
    /// The time of the next renewal, if any hold is watched.
    pub(super) renew_at: Instant,
    /// The time of the server's last confirmation of the holds.
    pub(super) seen_at: Instant,
    /// The time of the last verification because of a reader that left.
    looked_up: Instant,
    /// The send time of the latest release that left a lease in force. That lease may be shorter
    /// than the lease of a renewal that was sent before.
    last_shortening: Option<Instant>,
    /// The loss that was reported. Expiry counts only in [`lost_reason`](Self::lost_reason).
    pub(super) reported_loss: Option<LostReason>,
}

/// The watchdog's next action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Renew with this lease.
    Renew(Lease),
    /// Notify the holders of the loss.
    Lost(LostReason),
    /// Nothing is due yet.
    Wait,
    /// Nothing will be due any more.
    Over,
}

impl HoldSet {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            holds: SmallVec::new(),
            ids: 0,
            most_on_server: 0,
            open_until: None,
            is_joined: false,
            valid_until: now,
            renew_at: now,
            seen_at: now,
            looked_up: now,
            last_shortening: None,
            reported_loss: None,
        }
    }

    /// Adds a hold that the server granted to a request sent at `sent`.
    pub(super) fn grant(
        &mut self,
        owner: Owner,
        sent: Instant,
        lease: &Lease,
        watched: bool,
    ) -> HoldId {
        self.ids += 1;
        self.most_on_server += 1;
        let id = HoldId(self.ids);
        let until = validity(sent, lease);
        self.holds.push(Hold {
            id,
            owner,
            lease: lease.clone(),
            watched,
            until,
            server_until: sent + lease.duration,
            phase: Phase::Guarded,
            signals: None,
            group: None,
        });
        self.valid_until = self.valid_until.max(until);
        if watched {
            self.renew_at = sent + lease.duration / 3;
        }
        id
    }

    /// Lets further readers of the client join, until `until`.
    pub(super) fn open(&mut self, until: Instant) {
        self.open_until = Some(until);
    }

    /// Lets no further reader join.
    pub(super) fn close(&mut self) {
        self.open_until = None;
    }

    /// Adds a hold of another reader of the client. Sends nothing. Requires a hold that is renewed, with more than half of its lease left.
    /// The flag asks the caller to schedule a renewal.
    pub(super) fn join(&mut self, owner: Owner, now: Instant) -> Option<(HoldId, bool)> {
        if !self.is_open(now) {
            return None;
        }
        let mut alike = self.holds.iter();
        let alike = alike.find(|hold| hold.watched && !hold.is_extended(now))?;
        let left = alike.until.saturating_duration_since(now);
        if 2 * left <= alike.lease.duration {
            return None;
        }
        let is_first = self.watched().is_none();
        self.ids += 1;
        let id = HoldId(self.ids);
        let hold = Hold {
            id,
            owner,
            lease: alike.lease.clone(),
            phase: Phase::Guarded,
            signals: None,
            group: None,
            ..*alike
        };
        self.holds.push(hold);
        self.is_joined = true;
        Some((id, is_first))
    }

    pub(super) fn is_open(&self, now: Instant) -> bool {
        let in_time = self.open_until.is_some_and(|until| now < until);
        in_time && self.reported_loss.is_none()
    }

    /// Whether readers have joined, and further readers may.
    pub(super) fn is_joined(&self, now: Instant) -> bool {
        self.is_joined && self.is_open(now)
    }

    /// Removes `id` without a request. Requires a remaining live hold that is renewed, and at least as many remaining holds as the server
    /// counts. Returns how many are left to the owner of `id`.
    pub(super) fn leave(&mut self, id: HoldId, now: Instant) -> Option<(Owner, u32)> {
        // Most sets have one hold.
        if self.holds.len() < 2 || self.lost_reason(now).is_some() {
            return None;
        }
        let index = self.holds.iter().position(|hold| hold.id == id)?;
        let Hold { watched, owner, .. } = self.holds[index];
        // Without a release, the server would keep the remaining holds until the end of the
        // extension.
        if self.holds[index].is_extended(now) {
            return None;
        }
        let others = || self.holds.iter().filter(|hold| hold.id != id);
        let remaining = others().filter(|hold| hold.phase != Phase::Ending);
        let stays = |phase: Phase| phase.is_live() || phase == Phase::Leaving;
        let stays = others().any(|hold| hold.watched && stays(hold.phase));
        if !watched || !stays || (remaining.count() as u32) < self.most_on_server {
            return None;
        }
        self.holds.remove(index);
        Some((owner, self.count_of(owner)))
    }

    /// Returns whether the server was last asked about the holds long ago. The caller asks it then.
    pub(super) fn begin_check_if_stale(&mut self, now: Instant) -> bool {
        let asked = self.seen_at.max(self.looked_up);
        let is_stale = now.saturating_duration_since(asked) >= SHARED_HOLD_STALE_AFTER;
        if is_stale {
            self.looked_up = now;
        }
        is_stale
    }

    /// Replaces the only hold, if it is `id`, by a hold of `owner` with the same lease. Requires the watchdog's lease, not extended, with more
    /// than half of it left.
    pub(super) fn hand_off(
        &mut self,
        id: HoldId,
        owner: Owner,
        now: Instant,
    ) -> Option<(Self, HoldId)> {
        let [hold] = &self.holds[..] else {
            return None;
        };
        let left = self.valid_until.saturating_duration_since(now);
        let lease = hold.lease.duration;
        let passes = hold.id == id && hold.watched && self.reported_loss.is_none();
        if !passes || left > lease || 2 * left <= lease {
            return None;
        }
        let next = Self {
            holds: std::mem::take(&mut self.holds),
            ..*self
        };
        let mut next = next;
        next.ids += 1;
        let passed = HoldId(next.ids);
        for hold in &mut next.holds {
            (hold.id, hold.owner) = (passed, owner);
            hold.phase = Phase::Guarded;
            hold.signals = None;
            hold.group = None;
        }
        Some((next, passed))
    }

    pub(super) fn count(&self) -> u32 {
        self.holds.len() as u32
    }

    pub(super) fn live_count(&self) -> u32 {
        let live = self.holds.iter().filter(|hold| hold.phase.is_live());
        live.count() as u32
    }

    /// Whether a hold of `group` has a guard or was leaked.
    pub(super) fn has_live_hold_of(&self, group: &Arc<GroupHold>) -> bool {
        let mut live = self.holds.iter().filter(|hold| hold.phase.is_live());
        live.any(|hold| hold.is_of(Some(group)))
    }

    pub(super) fn set_group(&mut self, id: HoldId, group: Arc<GroupHold>) {
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == id) {
            hold.group = Some(group);
        }
    }

    /// The group of each hold; `None` if a hold has none.
    pub(super) fn groups(&self) -> Option<Vec<Arc<GroupHold>>> {
        self.holds.iter().map(|hold| hold.group.clone()).collect()
    }

    fn holds_of(&self, owner: Owner) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(move |hold| hold.owner == owner)
    }

    pub(super) fn count_of(&self, owner: Owner) -> u32 {
        self.holds_of(owner).count() as u32
    }

    pub(super) fn live_count_of(&self, owner: Owner) -> u32 {
        self.holds_of(owner)
            .filter(|hold| hold.phase.is_live())
            .count() as u32
    }

    pub(super) fn owner_of(&self, id: HoldId) -> Option<Owner> {
        let hold = self.holds.iter().find(|hold| hold.id == id);
        hold.map(|hold| hold.owner)
    }

    /// The lease of `id`, and whether the watchdog renews it.
    pub(super) fn terms_of(&self, id: HoldId) -> Option<(Lease, bool)> {
        let hold = self.holds.iter().find(|hold| hold.id == id);
        hold.map(|hold| (hold.lease.clone(), hold.watched))
    }

    /// The signals of `id` for tasks that watch it.
    pub(super) fn signals(&mut self, id: HoldId) -> Option<&HoldSignals> {
        let hold = self.holds.iter_mut().find(|hold| hold.id == id)?;
        Some(hold.signals.get_or_insert_default())
    }

    /// The tokens of all holds that tasks watch, to be cancelled at the loss.
    pub(super) fn loss_tokens(&self) -> Vec<CancellationToken> {
        let signals = self.holds.iter().filter_map(|hold| hold.signals.as_ref());
        signals.map(|signals| signals.lost()).collect()
    }

    /// The owners, each once.
    pub(super) fn owners(&self) -> BTreeSet<Owner> {
        self.holds.iter().map(|hold| hold.owner).collect()
    }

    pub(super) fn set_phase(&mut self, id: HoldId, phase: Phase) {
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == id) {
            hold.phase = hold.phase.max(phase);
        }
    }

    /// The latest wanted group of which `owner` has leaked its hold here.
    pub(super) fn leaked_group(
        &self,
        owner: Owner,
        is_wanted: impl Fn(&GroupHold) -> bool,
    ) -> Option<Arc<GroupHold>> {
        let holds = self.holds_of(owner);
        let leaked = holds.filter(|hold| hold.phase == Phase::Leaked);
        let groups = leaked.filter_map(|hold| hold.group.as_ref());
        let wanted = groups.filter(|group| is_wanted(group));
        wanted.max_by_key(|group| group.number).cloned()
    }

    /// Takes a leaked hold of `owner` for its release: that of `group`, or the latest without a group, or else the latest. A majority may be
    /// held without this member, so another hold does not replace its own.
    pub(super) fn take_leaked(
        &mut self,
        owner: Owner,
        group: Option<&Arc<GroupHold>>,
    ) -> Option<HoldId> {
        let is_owned = |hold: &Hold| hold.owner == owner;
        let taken = self.take(Phase::Leaked, |hold| is_owned(hold) && hold.is_of(group));
        match group.is_none_or(|group| group.needs_all()) {
            true => taken.or_else(|| self.take(Phase::Leaked, is_owned)),
            false => taken,
        }
    }

    /// Takes the latest dropped hold for its release.
    pub(super) fn take_dropped(&mut self) -> Option<HoldId> {
        self.take(Phase::Dropped, |_| true)
    }

    fn take(&mut self, phase: Phase, is_wanted: impl Fn(&Hold) -> bool) -> Option<HoldId> {
        let mut latest = self.holds.iter_mut().rev();
        let hold = latest.find(|hold| hold.phase == phase && is_wanted(hold))?;
        hold.phase = Phase::Ending;
        Some(hold.id)
    }

    /// As [`take`](Self::take), for the dropped hold `id`. Returns whether there was one.
    pub(super) fn take_if_dropped(&mut self, id: HoldId) -> bool {
        let is_dropped = |hold: &&mut Hold| hold.id == id && hold.phase == Phase::Dropped;
        let hold = self.holds.iter_mut().find(is_dropped);
        hold.map(|hold| hold.phase = Phase::Ending).is_some()
    }

    /// The end of the validity of `id` by its own lease. It never moves back.
    pub(super) fn hold_valid_until(&self, id: HoldId) -> Option<Instant> {
        let hold = self.holds.iter().find(|hold| hold.id == id);
        hold.map(|hold| hold.until)
    }

    /// Returns the server's count and the longest lease, from `now`, that remain without `id`. `None` counts all holds.
    pub(super) fn remaining_without(
        &self,
        id: Option<HoldId>,
        now: Instant,
    ) -> (u32, Option<Lease>) {
        let rest = || self.holds.iter().filter(|hold| Some(hold.id) != id);
        let lease = rest()
            .map(|hold| hold.lease_at(now))
            .max_by_key(|lease| lease.duration);
        (self.most_on_server.min(rest().count() as u32), lease)
    }

    /// Prepares a release that is sent at `sent` and leaves `lease` in force: from now on, holders
    /// may rely on nothing longer.
    pub(super) fn begin_shortening(&mut self, sent: Instant, lease: &Lease) {
        self.valid_until = self.valid_until.min(validity(sent, lease));
        self.last_shortening = Some(sent);
    }

    /// Records that the release sent at `sent` has set `lease` for all remaining holds. Returns
    /// `false` if they have expired meanwhile: they stay lost.
    #[must_use]
    pub(super) fn finish_shortening(&mut self, sent: Instant, lease: &Lease, now: Instant) -> bool {
        if self.lost_reason(now).is_some() {
            return false;
        }
        self.valid_until = self.valid_until.max(validity(sent, lease));
        for hold in &mut self.holds {
            hold.renew_from(sent);
        }
        true
    }

    /// The rest of the longest lease of the live holds, as the server was told. `None` for lost holds.
    pub(super) fn rest(&self, now: Instant) -> Option<Lease> {
        let live = self.holds.iter().filter(|hold| hold.phase.is_live());
        let until = live.map(|hold| hold.server_until).max()?;
        let is_valid = self.lost_reason(now).is_none();
        let left = until.saturating_duration_since(now).max(Lease::MIN);
        is_valid.then(|| Lease::new(left).ok()).flatten()
    }

    pub(super) fn remove(&mut self, id: HoldId) {
        self.holds.retain(|hold| hold.id != id);
    }

    /// The longest lease of the holds that the watchdog renews.
    pub(super) fn watched(&self) -> Option<&Lease> {
        let watched = self
            .holds
            .iter()
            .filter(|hold| hold.watched && hold.phase.is_live());
        watched
            .map(|hold| &hold.lease)
            .max_by_key(|lease| lease.duration)
    }

    /// Returns the action that is due at `now`. A renewal that is nearly due counts as due: it
    /// joins the batch.
    pub(super) fn duty(&mut self, now: Instant) -> Duty {
        if self.holds.is_empty() || self.reported_loss.is_some() {
            return Duty::Over;
        }
        if let Some(reason) = self.lost_reason(now) {
            return Duty::Lost(reason);
        }
        let Some(lease) = self.watched().cloned() else {
            return Duty::Wait;
        };
        if self.renew_at > now + lease.duration / 60 {
            return Duty::Wait;
        }
        // A renewal without success is repeated after a thirtieth of the lease.
        self.renew_at = now + lease.duration / 30;
        Duty::Renew(lease)
    }

    /// The time of the next [`duty`](Self::duty).
    pub(super) fn next_duty(&self) -> Option<Instant> {
        if self.holds.is_empty() || self.reported_loss.is_some() {
            None
        } else if self.watched().is_some() {
            Some(self.renew_at.min(self.valid_until))
        } else {
            Some(self.valid_until)
        }
    }

    /// Records a renewal that was sent at `sent`. Ignores it if the holds have expired, or if a release was sent later.
    pub(super) fn record_renewal(&mut self, sent: Instant, lease: &Lease, now: Instant) {
        self.seen_at = now;
        let overtaken = self
            .last_shortening
            .is_some_and(|shortened| sent <= shortened);
        if self.lost_reason(now).is_none() && !overtaken {
            self.valid_until = self.valid_until.max(validity(sent, lease));
            for hold in self.holds.iter_mut().filter(|hold| hold.watched) {
                hold.renew_from(sent);
            }
            if let Some(watched) = self.watched() {
                self.renew_at = sent + watched.duration / 3;
            }
        }
    }

    /// Records an extension of `id` that was sent at `sent`. Returns an error if the holds have
    /// expired meanwhile: they stay lost.
    pub(super) fn extend(
        &mut self,
        id: HoldId,
        sent: Instant,
        lease: &Lease,
        now: Instant,
    ) -> Result<(), LostReason> {
        if let Some(reason) = self.lost_reason(now) {
            return Err(reason);
        }
        let until = validity(sent, lease);
        self.valid_until = self.valid_until.max(until);
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == id) {
            if !hold.watched && lease.duration > hold.lease.duration {
                hold.lease = lease.clone();
            }
            hold.until = hold.until.max(until);
            hold.server_until = hold.server_until.max(sent + lease.duration);
        }
        Ok(())
    }

    pub(super) fn lost_reason(&self, now: Instant) -> Option<LostReason> {
        let expired = (now >= self.valid_until).then_some(LostReason::Expired);
        self.reported_loss.or(expired)
    }
}

#[cfg(test)]
#[path = "hold_set_tests.rs"]
mod tests;
