//! What the server grants becomes a hold: one more of its owner's tenure, or the first of a new tenure.
//!
//! Readers share: while the time is not over for which a client may pass on what it has, its other readers join the tenure
//! of the one that has asked the server last ([`readers`](super::readers)). The entry of each leads to that tenure.

use std::sync::{Arc, OnceLock};

use smallvec::smallvec;
use tokio::time::Instant;

use super::{
    hold_set::{HoldId, HoldSet, validity},
    owners::{LocalRef, OwnerEntry, OwnerEntryRef, OwnerTable, Reading},
    readers::ReadersRef,
    request::AcquireRequest,
    tenure::Tenure,
};
use crate::{
    durability::Durability,
    error::LostReason,
    gauges::HolderGauge,
    owner::{Owner, OwnerId},
    sync::lock,
    wire::{Lease, LockSpec},
};

/// A tenure, its latest hold, and the tenure that it has taken the place of.
type Granted = (Arc<Tenure>, HoldId, Option<Arc<Tenure>>);

/// What was granted.
pub(super) struct Grant<'a> {
    pub(super) spec: &'a Arc<LockSpec>,
    pub(super) owner: Owner,
    pub(super) local: Option<&'a LocalRef>,
    /// The readers that may join it.
    pub(super) readers: Option<&'a ReadersRef>,
    /// Until when it may be passed on, or joined.
    pub(super) hand_off_until: Instant,
    pub(super) sent: Instant,
    pub(super) lease: &'a Lease,
    pub(super) watched: bool,
    pub(super) durability: Durability,
    pub(super) acknowledged: Option<u32>,
    pub(super) token: Option<i64>,
}

impl Grant<'_> {
    /// Adds a hold to `tenure`. Returns `None` if that has expired.
    fn reenter(
        &self,
        tenure: Arc<Tenure>,
        reader: Option<&OwnerEntryRef>,
    ) -> Result<Option<Granted>, Option<Arc<Tenure>>> {
        let now = Instant::now();
        let mut reading = reader.map(|reader| lock(&reader.reading));
        let current = reading.as_deref().and_then(Option::as_ref);
        // The owner has joined another tenure meanwhile. Its next attempt adds to that.
        if current.is_some_and(|current| current.is_beside(Some(&tenure), self.owner, now)) {
            return Err(None);
        }
        let mut hold_set = tenure.hold_set();
        // What the clock has ended is not brought back: its holders may have been told already.
        if hold_set.lost_reason(now).is_none() {
            let id = hold_set.grant(self.owner, self.sent, self.lease, self.watched);
            hold_set.seen_at = now;
            // Set while the holds are locked: a loss that comes next finds it.
            let old = (reader.zip(reading.as_deref_mut()))
                .map(|(reader, reading)| tenure.attach_reader(reader, reading));
            drop((hold_set, reading));
            drop(old);
            tenure.record_reentry(self.token, self.durability);
            return Ok(Some((tenure, id, None)));
        }
        let reason = hold_set.reported_loss;
        // The loss takes both locks.
        drop((hold_set, reading));
        match reason {
            None | Some(LostReason::Expired) => {
                tenure.lose(LostReason::Expired);
                Ok(None)
            }
            // Forced open, or closed: what was granted before that is gone as well.
            Some(_) => Err(None),
        }
    }
}

impl OwnerTable {
    /// Notes a hold of `entry` that the server granted: one more of `tenure`, or the first of a new one. Returns as well the tenure of
    /// another owner that it follows, of which this client had not heard that it is over. The hold cannot be relied upon if `None`
    /// is returned instead, or another tenure, which is in its way: which of the two is true is not known.
    pub(super) fn grant(
        &self,
        entry: &OwnerEntryRef,
        tenure: Option<Arc<Tenure>>,
        grant: Grant<'_>,
    ) -> Result<Granted, Option<Arc<Tenure>>> {
        // Under a lent field, it is another owner's than the entry's.
        let holder = OwnerId::new(entry.key().1.client(), grant.owner);
        let spec = grant.spec;
        let reader = (spec.mode.is_shared()).then(|| self.enter(&spec.name, holder));
        if let Some(tenure) = tenure
            && let Some(granted) = grant.reenter(tenure, reader.as_ref())?
        {
            return Ok(granted);
        }
        if Instant::now() >= validity(grant.sent, grant.lease) {
            return Err(None);
        }
        match reader {
            Some(reader) => self.begin_shared(entry, &reader, &grant),
            None => self.begin_exclusive(entry, &grant),
        }
    }

    /// The first hold of a reader.
    fn begin_shared(
        &self,
        entry: &OwnerEntryRef,
        reader: &OwnerEntryRef,
        grant: &Grant<'_>,
    ) -> Result<Granted, Option<Arc<Tenure>>> {
        let spec = grant.spec;
        let is_writing = (spec.mode.beside())
            .and_then(|exclusive| self.tenure(spec, exclusive, entry.key().1))
            .is_some();
        // No other owner reads beside a writer.
        let readers = grant.readers.filter(|_| !is_writing);
        let mut reading = lock(&reader.reading);
        let now = Instant::now();
        if (reading.as_ref()).is_some_and(|current| current.is_beside(None, grant.owner, now)) {
            return Err(None);
        }
        let (tenure, id) = self.begin(entry, grant, readers);
        let read = tenure.attach_reader(reader, &mut reading);
        drop(reading);
        let sent = lock(&entry.sent).replace(tenure.clone());
        drop((read, sent));
        drop(readers.and_then(|readers| readers.share(&tenure)));
        // A loss may have come before all of this was there to be found.
        if tenure.hold_set().reported_loss.is_some() {
            tenure.leave_entry();
        }
        Ok((tenure, id, None))
    }

    /// The first hold of an exclusive owner.
    fn begin_exclusive(
        &self,
        entry: &OwnerEntryRef,
        grant: &Grant<'_>,
    ) -> Result<Granted, Option<Arc<Tenure>>> {
        let (tenure, id) = self.begin(entry, grant, None);
        if grant.spec.mode.excludes_readers() {
            // Whatever this client knows of readers is over.
            self.readers(&grant.spec.name).close();
        }
        let Some(local) = grant.local else {
            return Ok((tenure, id, None));
        };
        let is_over =
            |other: &Arc<Tenure>| other.live_count() == 0 || other.hold_set().seen_at < grant.sent;
        let (notified, old) = local
            .record_grant(tenure.current(), grant.hand_off_until, is_over)
            .map_err(Some)?;
        drop(notified);
        Ok((tenure, id, old))
    }

    /// A new tenure with its first hold, which `readers` may join.
    fn begin(
        &self,
        entry: &OwnerEntryRef,
        grant: &Grant<'_>,
        readers: Option<&ReadersRef>,
    ) -> (Arc<Tenure>, HoldId) {
        let mut hold_set = HoldSet::new(grant.sent);
        let id = hold_set.grant(grant.owner, grant.sent, grant.lease, grant.watched);
        hold_set.seen_at = Instant::now();
        if readers.is_some() {
            hold_set.open(grant.hand_off_until);
        }
        let holder = OwnerId::new(entry.key().1.client(), grant.owner);
        let durability = smallvec![grant.durability];
        let number = self.next_number();
        let mut tenure = Tenure::new(entry, holder, grant.spec, hold_set, durability, number);
        tenure.acknowledged = grant.acknowledged;
        tenure.fence = grant.token.map(OnceLock::from).unwrap_or_default();
        (tenure.local, tenure.readers) = (grant.local.cloned(), readers.cloned());
        (Arc::new(tenure), id)
    }

    /// Makes the tenure of the next owner when the owner of `old` hands its only hold off. Returns it with its hold.
    pub(super) fn make_successor(
        &self,
        old: &Tenure,
        id: HoldId,
        next: &AcquireRequest,
        now: Instant,
    ) -> Option<(Arc<Tenure>, HoldId)> {
        let (tenure, id) = old.make_successor(id, next, now, self.next_number())?;
        Some((Arc::new(tenure), id))
    }

    /// Has `owner` read by the tenure that `readers` share, without a word to the server, if that is open and `fits`. Says as well whether
    /// the watchdog has to be told.
    pub(super) fn join(
        &self,
        readers: &ReadersRef,
        owner: OwnerId,
        fits: impl FnOnce(&Tenure) -> bool,
        holder: impl FnOnce() -> Option<HolderGauge>,
    ) -> Option<(Arc<Tenure>, HoldId, bool)> {
        let entry = self.enter(readers.key(), owner);
        let mut reading = lock(&entry.reading);
        let tenure = readers.shared()?;
        // A nested acquisition asks the server, and so finds out whether the outer hold is there.
        if reading.is_some() || !fits(&tenure) {
            return None;
        }
        let mut hold_set = tenure.hold_set();
        // An attempt of its own that is on its way may make a tenure of its own. A request that is on its way under the field may be a
        // future that is not polled any more: the reader could not leave then. Both are looked at while the holds are locked, so that
        // readers that join do not see each other's look.
        let is_free = |entry: &OwnerEntry| entry.op_lock.try_lock().is_ok();
        if !is_free(&entry) || tenure.is_lent_to(owner) && !is_free(tenure.entry()) {
            return None;
        }
        let (id, is_first) = hold_set.join(owner.owner(), Instant::now())?;
        drop(hold_set);
        *reading = Some(Reading {
            _joined: tenure.is_lent_to(owner).then(|| (entry.clone(), holder())),
            tenure: tenure.clone(),
        });
        Some((tenure, id, is_first))
    }
}

#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;
