//! Grants of the server become holds: one more of the owner's tenure, or the first of a new tenure.
//!
//! Readers share. Within the hand-off window of a grant, other readers of the client join the
//! tenure of the reader that asked the server last ([`readers`](super::readers)). The entry of each
//! reader refers to that tenure.
//!
//! Answers may contradict what the client knows, because a lease has ended or a lock was forced
//! open meanwhile. A grant that cannot be relied upon is refused here, and the caller gives it
//! back.

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
    gauges::HolderGauge,
    owner::{Owner, OwnerId},
    sync::lock,
    wire::{Lease, LockSpec},
};

/// A tenure, its new hold, and another owner's tenure that it replaces.
type Granted = (Arc<Tenure>, HoldId, Option<Arc<Tenure>>);

/// A grant by the server, with the terms of its request.
pub(super) struct Grant<'a> {
    pub(super) spec: &'a Arc<LockSpec>,
    pub(super) owner: Owner,
    /// The local lock; `None` for readers, which hold the lock side by side.
    pub(super) local: Option<&'a LocalRef>,
    /// The readers that may join it.
    pub(super) readers: Option<&'a ReadersRef>,
    /// The end of the hand-off window.
    pub(super) hand_off_until: Instant,
    pub(super) sent: Instant,
    /// The time of the answer.
    pub(super) answered: Instant,
    pub(super) lease: &'a Lease,
    pub(super) watched: bool,
    pub(super) durability: Durability,
    pub(super) acknowledged: Option<u32>,
    pub(super) token: Option<i64>,
}

impl Grant<'_> {
    /// Adds a hold to `tenure`. Returns `None` if that is lost: the server has counted the new hold
    /// together with the lost ones.
    fn reenter(&self, tenure: Arc<Tenure>, reader: Option<&OwnerEntryRef>) -> Option<Granted> {
        let mut reading = reader.map(|reader| lock(&reader.reading));
        let current = reading.as_deref().and_then(Option::as_ref);
        let is_beside =
            |current: &Reading| current.is_beside(Some(&tenure), self.owner, Instant::now());
        // The owner has joined another tenure meanwhile. Its next attempt re-enters that one.
        if current.is_some_and(is_beside) {
            return None;
        }
        let mut hold_set = tenure.hold_set();
        // Read while the holds are locked: a holder that has seen the loss saw it before. A lost
        // tenure stays lost.
        let now = Instant::now();
        if hold_set.lost_reason(now).is_some() {
            return None;
        }
        let id = hold_set.grant(self.owner, self.sent, self.lease, self.watched);
        hold_set.seen_at = now;
        // Set while the holds are locked, so that a later loss finds it.
        let old = (reader.zip(reading.as_deref_mut()))
            .map(|(reader, reading)| tenure.attach_reader(reader, reading));
        drop((hold_set, reading));
        drop(old);
        tenure.record_reentry(self.token, self.durability);
        Some((tenure, id, None))
    }
}

impl OwnerTable {
    /// Records a hold that the server granted under the field of `entry`: one more of `tenure`, or
    /// the first of a new one. Also returns another owner's tenure that has ended without the
    /// client's knowledge.
    ///
    /// # Errors
    ///
    /// The hold cannot be relied upon. An error with a tenure names the one in its way: either that
    /// tenure or the grant is out of date, and only the server knows which.
    pub(super) fn grant(
        &self,
        entry: &OwnerEntryRef,
        tenure: Option<Arc<Tenure>>,
        grant: Grant<'_>,
    ) -> Result<Granted, Option<Arc<Tenure>>> {
        if let Some(tenure) = tenure {
            // Under a lent field, the entry is not that of the owner.
            let owner = OwnerId::new(entry.key().1.client(), grant.owner);
            let reader = (grant.local.is_none()).then(|| self.enter(&grant.spec.name, owner));
            return grant.reenter(tenure, reader.as_ref()).ok_or(None);
        }
        if grant.answered >= validity(grant.sent, grant.lease) {
            return Err(None);
        }
        match grant.local {
            Some(local) => self.begin_exclusive(entry, local, &grant),
            None => self.begin_shared(entry, &grant),
        }
    }

    /// Begins a tenure with the first hold of a reader.
    fn begin_shared(
        &self,
        entry: &OwnerEntryRef,
        grant: &Grant<'_>,
    ) -> Result<Granted, Option<Arc<Tenure>>> {
        let spec = grant.spec;
        let is_writing = (spec.mode.beside())
            .and_then(|exclusive| self.tenure(spec, exclusive, entry.key().1))
            .is_some();
        // A writer's own read holds are not shared: no other owner reads beside a writer.
        let readers = grant.readers.filter(|_| !is_writing);
        let mut reading = lock(&entry.reading);
        let now = Instant::now();
        if (reading.as_ref()).is_some_and(|current| current.is_beside(None, grant.owner, now)) {
            return Err(None);
        }
        let (tenure, id) = self.begin(entry, grant, readers);
        let read = tenure.attach_reader(entry, &mut reading);
        drop(reading);
        let sent = lock(&entry.under_field).replace(tenure.clone());
        drop((read, sent));
        drop(readers.and_then(|readers| readers.share(&tenure)));
        // A loss before this point has not found the references that were set above.
        if tenure.hold_set().reported_loss.is_some() {
            tenure.leave_local_lock();
        }
        Ok((tenure, id, None))
    }

    /// Begins a tenure with the first hold of an exclusive owner.
    fn begin_exclusive(
        &self,
        entry: &OwnerEntryRef,
        local: &LocalRef,
        grant: &Grant<'_>,
    ) -> Result<Granted, Option<Arc<Tenure>>> {
        let (tenure, id) = self.begin(entry, grant, None);
        if grant.spec.mode.excludes_readers() {
            // A grant that excludes readers proves that the shared read tenure has ended.
            self.readers(&grant.spec.name).close();
        }
        let is_over =
            |other: &Arc<Tenure>| other.live_count() == 0 || other.hold_set().seen_at < grant.sent;
        let (notified, old) = local
            .record_grant(tenure.current(), grant.hand_off_until, is_over)
            .map_err(Some)?;
        drop(notified);
        Ok((tenure, id, old))
    }

    /// Makes a tenure with its first hold. Owners of `readers` may join it.
    fn begin(
        &self,
        entry: &OwnerEntryRef,
        grant: &Grant<'_>,
        readers: Option<&ReadersRef>,
    ) -> (Arc<Tenure>, HoldId) {
        let mut hold_set = HoldSet::new(grant.sent);
        let id = hold_set.grant(grant.owner, grant.sent, grant.lease, grant.watched);
        hold_set.seen_at = grant.answered;
        if readers.is_some() {
            hold_set.open(grant.hand_off_until);
        }
        debug_assert_eq!(entry.key().1.owner(), grant.owner);
        let durability = smallvec![grant.durability];
        let number = self.next_number();
        let mut tenure = Tenure::new(
            entry,
            entry.key().1,
            grant.spec,
            hold_set,
            durability,
            number,
        );
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

    /// Adds `owner` to the tenure that `readers` share, without a request, if the tenure is open
    /// and `fits`. The flag asks the caller to schedule a renewal.
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
        // A nested acquisition asks the server, and so verifies the outer hold.
        if reading.is_some() || !fits(&tenure) {
            return None;
        }
        let mut hold_set = tenure.hold_set();
        // The reader's own attempt, if one is under way, may begin another tenure. A request under
        // the shared field may belong to a future that is never polled again: the reader could not
        // leave then. Both operation locks are tried while the holds are locked, so that concurrent
        // joins do not meet there.
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
