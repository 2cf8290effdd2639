//! A tenure: one owner's unbroken possession of a lock. It ends with the last release, the loss or a
//! local hand-off. Readers of one client may share one.
//!
//! A tenure has one or more holds ([`HoldSet`]). It keeps the [entry](OwnerEntry) of the owner to
//! which the server granted the lock, and renews and releases under that owner's field. A hand-off
//! in memory ends a tenure and begins its successor with the same entry, so the field on the server
//! stays as it is. A lost tenure never comes back: the owner's next acquisition begins another one.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    hold_set::{Duty, HoldId, HoldSet, Phase},
    local_lock::Current,
    loss::{GroupHold, HoldSignals},
    owners::{LocalRef, OwnerEntry, OwnerEntryRef, Reading},
    readers::ReadersRef,
    request::AcquireRequest,
    telemetry::{End, TenureTelemetry},
};
use crate::{
    durability::Durability,
    error::{Error, LostReason},
    owner::{Owner, OwnerId},
    sync::{Mutex, MutexGuard, lock},
    wire::{Lease, LockSpec, Request},
};

/// The signals for holders that watch for a loss.
#[derive(Debug, Default)]
struct LossSignals {
    /// Cancelled at the loss.
    token: CancellationToken,
    /// Notified when a release shortens the validity: timers for its end must be reset.
    shortened: Arc<Notify>,
}

/// One owner's unbroken possession of a lock.
pub(crate) struct Tenure {
    /// The entry of the owner to which the server granted the lock. After a hand-off, `owner` is
    /// another one.
    entry: OwnerEntryRef,
    /// The present owner. For readers that share the tenure, the owner to which the server granted
    /// it.
    owner: OwnerId,
    pub(super) local: Option<LocalRef>,
    pub(super) readers: Option<ReadersRef>,
    pub(super) spec: Arc<LockSpec>,
    hold_set: Mutex<HoldSet>,
    /// Made for the first holder that watches for a loss; most holders do not.
    loss_signals: Mutex<Option<LossSignals>>,
    /// The durabilities with which its holds were acquired, each once.
    durability: Mutex<SmallVec<[Durability; 1]>>,
    /// The number of replicas that acknowledged the first hold, if its acquisition waited for
    /// replicas.
    pub(super) acknowledged: Option<u32>,
    /// The fencing token of the first hold that has one.
    pub(super) fence: OnceLock<i64>,
    pub(super) since: Instant,
    /// A deadlock is suspected, because another owner of this client has waited for long. Set once,
    /// so that the suspicion is logged once.
    is_suspected: AtomicBool,
    /// The time until which the release of the last hold keeps the lock, because its job is done.
    kept_until: OnceLock<Instant>,
    /// Unique among the tenures of this client.
    pub(super) number: u64,
    /// The number of the tenure that the server granted, and the time of its answer. Hand-offs copy them from tenure to tenure.
    grant_number: u64,
    granted_at: Instant,
    /// The time of the watchdog's next look at this tenure. Written under the mutex of its queue.
    pub(super) next_deadline: Mutex<Option<Instant>>,
    /// The last renewal was put off, because another operation had the operation lock.
    was_postponed: AtomicBool,
    /// The release that frees the lock is about to be sent. Its operation lock is kept until the
    /// answer.
    is_freeing: AtomicBool,
    /// A look-up will follow one that the server refused, or that was put off.
    look_up_follows: AtomicBool,
    /// The server may keep the lock for longer than its holders rely on it. When the tenure
    /// expires, the client then releases it.
    server_may_keep_it: AtomicBool,
    telemetry: TenureTelemetry,
}

impl Tenure {
    /// Makes a tenure that begins with the server's confirmation of its first hold.
    pub(super) fn new(
        entry: &OwnerEntryRef,
        owner: OwnerId,
        spec: &Arc<LockSpec>,
        hold_set: HoldSet,
        durability: SmallVec<[Durability; 1]>,
        number: u64,
    ) -> Self {
        Self {
            entry: entry.clone(),
            owner,
            local: None,
            readers: None,
            spec: spec.clone(),
            since: hold_set.seen_at,
            granted_at: hold_set.seen_at,
            hold_set: Mutex::new(hold_set),
            loss_signals: Mutex::new(None),
            durability: Mutex::new(durability),
            acknowledged: None,
            fence: OnceLock::new(),
            is_suspected: AtomicBool::new(false),
            kept_until: OnceLock::new(),
            number,
            grant_number: number,
            was_postponed: AtomicBool::new(false),
            is_freeing: AtomicBool::new(false),
            look_up_follows: AtomicBool::new(false),
            server_may_keep_it: AtomicBool::new(false),
            next_deadline: Mutex::new(None),
            telemetry: TenureTelemetry::default(),
        }
    }

    /// Makes the tenure of the owner that is handed the only hold of this one. Returns it with that
    /// hold, or `None` if [`HoldSet::hand_off`] refuses.
    pub(super) fn make_successor(
        &self,
        id: HoldId,
        next: &AcquireRequest,
        now: Instant,
        number: u64,
    ) -> Option<(Self, HoldId)> {
        let (hold_set, id) = self.hold_set().hand_off(id, next.owner, now)?;
        let durability = lock(&self.durability).clone();
        let owner = OwnerId::new(self.owner.client(), next.owner);
        let successor = Self {
            local: self.local.clone(),
            since: now,
            grant_number: self.grant_number,
            granted_at: self.granted_at,
            server_may_keep_it: AtomicBool::new(self.server_may_keep_it()),
            ..Self::new(&self.entry, owner, &next.spec, hold_set, durability, number)
        };
        Some((successor, id))
    }

    pub(super) fn current(self: &Arc<Self>) -> Current<Arc<Self>> {
        Current {
            owner: self.owner.owner(),
            tenure: self.clone(),
            number: self.number,
        }
    }

    /// Lets the next waiter ask: the release has been sent, and the server executes later requests
    /// after it.
    pub(super) fn let_next_ask(&self) {
        if let Some(local) = &self.local {
            drop(local.end_tenure(self.number));
        }
    }

    /// Ends the hand-off window: no waiter is handed this grant, and no reader joins it. Returns
    /// the tenure that has the grant now, which may be a successor of this one.
    pub(super) fn end_hand_off(self: &Arc<Self>) -> Arc<Self> {
        if self.is_shared() {
            self.close_to_readers();
        }
        let now = self.local.as_ref().and_then(|local| local.end_hand_off());
        now.filter(|now| now.grant_number == self.grant_number)
            .unwrap_or_else(|| self.clone())
    }

    /// Whether it is still the present tenure of its local lock. Always true for readers, which
    /// have no local lock.
    pub(super) fn is_current(&self) -> bool {
        match &self.local {
            Some(local) => local
                .current()
                .is_some_and(|(_, tenure)| tenure.number == self.number),
            None => true,
        }
    }

    /// Whether it is neither lost nor released.
    pub(super) fn is_held(&self) -> bool {
        let hold_set = self.hold_set();
        let has_holds = hold_set.reported_loss.is_none() && hold_set.live_count() > 0;
        drop(hold_set);
        has_holds && self.is_current()
    }

    /// Whether a task that requires `durability` may join or take over this tenure, where `listed`
    /// replicas are known.
    pub(super) fn is_durable_enough(&self, durability: Durability, listed: usize) -> bool {
        let required = lock(&self.durability);
        let strictest = |more: Option<&Durability>| {
            Durability::strictest(required.iter().chain(more).copied(), listed)
        };
        strictest(Some(&durability)) == strictest(None)
    }

    /// Locks the holds.
    pub(super) fn hold_set(&self) -> MutexGuard<'_, HoldSet> {
        lock(&self.hold_set)
    }

    pub(super) fn join_group(&self, id: HoldId, group: Arc<GroupHold>) {
        self.hold_set().set_group(id, group);
    }

    /// The groups that have its holds, if a group has each of them.
    pub(super) fn groups(&self) -> Option<Vec<Arc<GroupHold>>> {
        self.hold_set().groups()
    }

    pub(super) fn telemetry(&self) -> &TenureTelemetry {
        &self.telemetry
    }

    pub(super) fn entry(&self) -> &OwnerEntryRef {
        &self.entry
    }

    /// The durability of its holds, where `listed` replicas are known.
    pub(super) fn strictest_durability(&self, listed: usize) -> Durability {
        Durability::strictest(lock(&self.durability).iter().copied(), listed)
    }

    /// The durability of its renewals, where `listed` replicas are known.
    pub(super) fn durability(&self, listed: usize) -> Durability {
        let of_renewals = |durability: &Durability| durability.of_renewals();
        Durability::strictest(lock(&self.durability).iter().map(of_renewals), listed)
    }

    /// Whether the acquisition of the client's next task may wait for replicas, where `listed` are
    /// known. A task that is still to come may be like those that have come, or have the `default`.
    pub(super) fn next_may_wait(&self, default: Durability, listed: usize) -> bool {
        let waits = |durability: &Durability| durability.waits(listed);
        let next_waits = |local: &LocalRef| local.may_be_next(|request| waits(&request.durability));
        waits(&default)
            || lock(&self.durability).iter().any(waits)
            || self.local.as_ref().is_some_and(next_waits)
    }

    /// The time at which the server confirmed what it granted last to the owner of the field, before any hand-off.
    pub(super) fn granted_at(&self) -> Instant {
        self.granted_at
    }

    /// The time of the confirmation of its first hold.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.spec.name
    }

    pub(crate) fn key(&self) -> &str {
        self.spec.key()
    }

    /// The fencing token of all holds of this tenure.
    pub(crate) fn fence(&self) -> Option<i64> {
        self.fence.get().copied()
    }

    /// Records an inner hold. The token of the outermost hold stays (P-M6).
    pub(super) fn record_reentry(&self, token: Option<i64>, durability: Durability) {
        let mut durabilities = lock(&self.durability);
        if !durabilities.contains(&durability) {
            durabilities.push(durability);
        }
        drop(durabilities);
        if let Some(token) = token {
            let _ = self.fence.set(token);
        }
    }

    /// The hold count on the server, or an upper bound of it.
    pub(super) fn most_on_server(&self) -> u32 {
        self.hold_set().most_on_server
    }

    /// Whether readers of several owners may share it.
    pub(super) fn is_shared(&self) -> bool {
        self.readers.is_some()
    }

    /// Whether its holds are read holds.
    pub(super) fn is_reading(&self) -> bool {
        self.local.is_none()
    }

    pub(super) fn count_of(&self, owner: Owner) -> u32 {
        self.hold_set().count_of(owner)
    }

    /// Counts the holds of `owner` that have a guard or were leaked.
    pub(super) fn live_count_of(&self, owner: Owner) -> u32 {
        self.hold_set().live_count_of(owner)
    }

    /// The owners, each with its hold count.
    pub(super) fn owners(&self) -> Vec<(Owner, u32)> {
        let hold_set = self.hold_set();
        let owners = hold_set.owners().into_iter();
        owners
            .map(|owner| (owner, hold_set.count_of(owner)))
            .collect()
    }

    /// The owners of holds that have a guard or were leaked, each with the count of those.
    pub(super) fn live_owners(&self) -> Vec<(Owner, u32)> {
        let hold_set = self.hold_set();
        let owners = hold_set.owners().into_iter();
        let counted = owners.map(|owner| (owner, hold_set.live_count_of(owner)));
        counted.filter(|(_, holds)| *holds > 0).collect()
    }

    pub(super) fn owner_of(&self, id: HoldId) -> Owner {
        let owner = self.hold_set().owner_of(id);
        owner.unwrap_or(self.owner.owner())
    }

    /// Ends `id` without a request, if the remaining readers of the client keep the tenure. Returns
    /// the hold count that is left to its owner.
    pub(super) fn leave(&self, id: HoldId) -> Option<u32> {
        // Only readers share a tenure.
        self.readers.as_ref()?;
        let (owner, left) = self.hold_set().leave(id, Instant::now())?;
        if left == 0 {
            self.detach_reader(owner);
        }
        Some(left)
    }

    /// Returns whether the server's last confirmation of the holds is old: the caller then verifies
    /// them.
    pub(super) fn begin_check_if_stale(&self, now: Instant) -> bool {
        self.hold_set().begin_check_if_stale(now)
    }

    /// Lets no further reader of the client join.
    pub(super) fn close_to_readers(&self) {
        self.hold_set().close();
    }

    /// Whether further readers of the client may be about to join: the tenure is open, and readers
    /// have joined or wait.
    pub(super) fn is_about_to_be_joined(&self) -> bool {
        let Some(readers) = &self.readers else {
            return false;
        };
        let hold_set = self.hold_set();
        let now = Instant::now();
        hold_set.is_joined(now) || readers.has_waiters() && hold_set.is_open(now)
    }

    /// Whether it has holds of an owner other than that of its field.
    pub(super) fn is_lent(&self) -> bool {
        let own = self.entry.key().1.owner();
        match self.is_shared() {
            true => self.hold_set().owners().iter().any(|owner| *owner != own),
            false => self.is_lent_to(self.owner),
        }
    }

    /// Whether its field belongs to an owner other than `owner`.
    pub(super) fn is_lent_to(&self, owner: OwnerId) -> bool {
        self.entry.key().1 != owner
    }

    /// The entry of an owner that has holds of it.
    fn entry_of(&self, owner: Owner) -> OwnerEntryRef {
        let owner = OwnerId::new(self.owner.client(), owner);
        let name = self.entry.key().0.clone();
        match self.is_lent_to(owner) {
            true => self.entry.beside((name, owner), || OwnerEntry::new(owner)),
            false => self.entry.clone(),
        }
    }

    /// Makes this the tenure of the read holds of `entry`'s owner. Returns the previous one, to be
    /// dropped after `reading` is unlocked.
    pub(super) fn attach_reader(
        self: &Arc<Self>,
        entry: &OwnerEntryRef,
        reading: &mut Option<Reading>,
    ) -> Option<Reading> {
        let is_known = |reading: &Reading| reading.tenure.number == self.number;
        if reading.as_ref().is_some_and(is_known) {
            return None;
        }
        let is_lent = self.is_lent_to(entry.key().1);
        reading.replace(Reading {
            tenure: self.clone(),
            _joined: is_lent.then(|| (entry.clone(), None)),
        })
    }

    /// Detaches `owner` from this tenure, unless the owner has acquired a hold of it again.
    fn detach_reader(&self, owner: Owner) {
        let entry = self.entry_of(owner);
        let mut reading = lock(&entry.reading);
        let old = reading.take_if(|reading| {
            let hold_set = self.hold_set();
            reading.tenure.number == self.number
                && (hold_set.reported_loss.is_some() || hold_set.count_of(owner) == 0)
        });
        drop(reading);
        // Dropped after the mutex is released: this may be the last reference to the tenure.
        drop(old);
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.hold_set().valid_until
    }

    /// The end of the validity of hold `id` by its own lease.
    pub(super) fn hold_valid_until(&self, id: HoldId) -> Option<Instant> {
        self.hold_set().hold_valid_until(id)
    }

    /// The reason of the loss, reported or by the clock; `None` while the holds are valid.
    pub(crate) fn lost_reason(&self, now: Instant) -> Option<LostReason> {
        self.hold_set().lost_reason(now)
    }

    pub(crate) fn lost_error(&self, reason: LostReason) -> Error {
        Error::Lost {
            name: self.spec.name.clone(),
            reason,
            result: None,
        }
    }

    /// Records an extension of `id` that was sent at `sent`.
    pub(super) fn record_extension(
        &self,
        id: HoldId,
        sent: Instant,
        lease: &Lease,
    ) -> Result<(), LostReason> {
        self.hold_set().extend(id, sent, lease, Instant::now())
    }

    pub(super) fn leak(&self, id: HoldId) {
        self.hold_set().set_phase(id, Phase::Leaked);
    }

    pub(super) fn take_leaked(
        &self,
        owner: Owner,
        group: Option<&Arc<GroupHold>>,
    ) -> Option<HoldId> {
        self.hold_set().take_leaked(owner, group)
    }

    /// Marks `id` as being released: its renewal stops. Readers may still join, and make the
    /// release unnecessary.
    pub(super) fn mark_leaving(&self, id: HoldId) {
        let phase = match self.is_shared() {
            true => Phase::Leaving,
            false => Phase::Ending,
        };
        self.hold_set().set_phase(id, phase);
    }

    /// Marks `id` as ending: its release is sent next.
    pub(super) fn mark_ending(&self, id: HoldId) {
        self.hold_set().set_phase(id, Phase::Ending);
    }

    /// Marks `id` as dropped: its renewal stops. The release task, or the owner's next operation, releases it.
    pub(super) fn mark_dropped(&self, id: HoldId) {
        self.hold_set().set_phase(id, Phase::Dropped);
    }

    pub(super) fn take_dropped(&self) -> Option<HoldId> {
        self.hold_set().take_dropped()
    }

    /// Returns whether `id` is dropped and not released yet. The caller then releases it.
    pub(super) fn take_if_dropped(&self, id: HoldId) -> bool {
        self.hold_set().take_if_dropped(id)
    }

    /// Counts the holds that have a guard or were leaked.
    pub(super) fn live_count(&self) -> u32 {
        self.hold_set().live_count()
    }

    /// Prepares a release that is sent at `sent`. Returns the hold count and the lease that it
    /// leaves: those of all holds without `id`. From now on, holders may rely on that lease only.
    pub(super) fn begin_release(&self, id: Option<HoldId>, sent: Instant) -> (u32, Option<Lease>) {
        let mut hold_set = self.hold_set();
        let (holds, lease) = hold_set.remaining_without(id, sent);
        if let Some(lease) = &lease {
            hold_set.begin_shortening(sent, lease);
        }
        drop(hold_set);
        if let Some(signals) = &*lock(&self.loss_signals) {
            signals.shortened.notify_waiters();
        }
        (holds, lease)
    }

    /// Records that the release sent at `sent` was executed, and has left `holds` and `lease` on
    /// the server.
    pub(super) fn finish_release(
        &self,
        id: Option<HoldId>,
        sent: Instant,
        holds: u32,
        lease: Option<&Lease>,
    ) {
        let mut hold_set = self.hold_set();
        hold_set.most_on_server = holds;
        let owner = id.and_then(|id| hold_set.owner_of(id));
        if let Some(id) = id {
            hold_set.remove(id);
        }
        // A release waits for no replica. If the holds require replicas, its lease extends no
        // validity.
        let may_prolong = || self.durability(0) == Durability::Local;
        if let Some(lease) = lease
            && !(may_prolong() && hold_set.finish_shortening(sent, lease, Instant::now()))
        {
            self.set_server_may_keep_it();
        }
        let over = hold_set.count() == 0;
        drop(hold_set);
        if over {
            self.telemetry.end(End::Released);
            self.leave_local_lock();
        }
        if let Some(owner) = owner.filter(|_| self.is_reading()) {
            self.detach_reader(owner);
        }
    }

    pub(super) fn duty(&self, now: Instant) -> Duty {
        self.hold_set().duty(now)
    }

    /// Whether its validity has ended and no hold has a guard or was leaked. The server may keep
    /// the lock for another hundredth of the lease.
    pub(super) fn needs_late_release(&self, now: Instant) -> bool {
        let hold_set = self.hold_set();
        hold_set.live_count() == 0 && hold_set.lost_reason(now) == Some(LostReason::Expired)
    }

    /// Records that the release that frees the lock is about to be sent.
    pub(super) fn set_is_freeing(&self) {
        self.is_freeing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_freeing(&self) -> bool {
        self.is_freeing.load(Ordering::Relaxed)
    }

    /// Returns whether no look-up follows yet. The caller schedules one then.
    pub(super) fn begin_look_up(&self) -> bool {
        !self.look_up_follows.swap(true, Ordering::Relaxed)
    }

    pub(super) fn end_look_up(&self) {
        self.look_up_follows.store(false, Ordering::Relaxed);
    }

    /// Records that the server may have a longer lease than the holders rely on.
    pub(super) fn set_server_may_keep_it(&self) {
        self.server_may_keep_it.store(true, Ordering::Relaxed);
    }

    /// Whether the server may keep the lock after the end of the validity.
    pub(super) fn server_may_keep_it(&self) -> bool {
        self.server_may_keep_it.load(Ordering::Relaxed)
    }

    /// Whether a renewal or a verification may be sent. Without the operation lock, it is put off once and not twice:
    /// a future that is never polled may keep the operation lock indefinitely.
    pub(super) fn may_renew(&self, has_op_lock: bool) -> bool {
        self.was_postponed.swap(!has_op_lock, Ordering::Relaxed) || has_op_lock
    }

    /// Marks the tenure as suspected of a deadlock. Returns whether that is new.
    pub(super) fn mark_suspected(&self) -> bool {
        !self.is_suspected.swap(true, Ordering::Relaxed)
    }

    /// Has the release of the last hold keep the lock until that time.
    pub(crate) fn keep_until(&self, until: Instant) {
        let _ = self.kept_until.set(until);
    }

    /// The request that leaves `holds`, without a change of their lease. After the last hold it keeps the lock, if that is due.
    pub(super) fn release_request(&self, holds: u32) -> Request {
        let (spec, field) = (&self.spec, &self.entry.field);
        let until = self.kept_until().filter(|_| holds == 0);
        let kept = until.and_then(|until| keep_request(spec, field, until));
        kept.unwrap_or_else(|| spec.protocol.release(spec, field, None, holds))
    }

    pub(super) fn kept_until(&self) -> Option<Instant> {
        self.kept_until.get().copied()
    }

    /// Whether any hold is renewed.
    pub(super) fn is_watched(&self) -> bool {
        let hold_set = self.hold_set();
        hold_set.reported_loss.is_none() && hold_set.watched().is_some()
    }

    pub(super) fn next_duty(&self) -> Option<Instant> {
        self.hold_set().next_duty()
    }

    /// Sets when the next renewal is due.
    pub(super) fn set_renew_at(&self, at: Instant) {
        self.hold_set().renew_at = at;
    }

    /// The rest of the longest lease of its live holds, for a request at `now`.
    pub(super) fn rest(&self, now: Instant) -> Option<Lease> {
        self.hold_set().rest(now)
    }

    pub(super) fn record_renewal(&self, sent: Instant, lease: &Lease) {
        self.hold_set().record_renewal(sent, lease, Instant::now());
    }

    /// Ends all holds and notifies their holders. Returns whether the loss is new.
    pub(super) fn lose(&self, reason: LostReason) -> bool {
        let mut hold_set = self.hold_set();
        if hold_set.reported_loss.is_some() {
            return false;
        }
        hold_set.reported_loss = Some(reason);
        let tokens = hold_set.loss_tokens();
        drop(hold_set);
        self.telemetry.end(End::Lost(reason.into()));
        self.leave_local_lock();
        if let Some(signals) = &*lock(&self.loss_signals) {
            signals.token.cancel();
        }
        for token in tokens {
            token.cancel();
        }
        true
    }

    /// Whether [`lose`](Self::lose) has been called.
    pub(super) fn has_reported_loss(&self) -> bool {
        self.hold_set().reported_loss.is_some()
    }

    /// Returns a token that is cancelled at the loss.
    pub(crate) fn token(&self) -> CancellationToken {
        let token = lock(&self.loss_signals)
            .get_or_insert_default()
            .token
            .clone();
        if self.hold_set().reported_loss.is_some() {
            token.cancel();
        }
        token
    }

    /// Returns two tokens: one is cancelled if `id` is lost before its release, and the other at the
    /// end of `id`.
    pub(super) fn hold_tokens(&self, id: HoldId) -> (CancellationToken, CancellationToken) {
        let mut hold_set = self.hold_set();
        let is_lost = hold_set.reported_loss.is_some();
        let tokens = |signals: &HoldSignals| (signals.lost(), signals.ended());
        let (lost, ended) = hold_set.signals(id).map(tokens).unwrap_or_default();
        drop(hold_set);
        if is_lost {
            lost.cancel();
        }
        (lost, ended)
    }

    /// Completes at the next release that shortens the validity.
    pub(super) fn shortened(&self) -> OwnedNotified {
        let shortened = lock(&self.loss_signals)
            .get_or_insert_default()
            .shortened
            .clone();
        shortened.notified_owned()
    }

    /// Separates the tenure from its entry: the owner's next operation on this lock begins a new tenure, and waiters of this client may
    /// ask the server.
    pub(super) fn leave_local_lock(&self) {
        let old = match &self.local {
            Some(local) => {
                drop(local.end_tenure(self.number));
                None
            }
            None => {
                if let Some(readers) = &self.readers {
                    drop(readers.forget(self.number));
                }
                let mut owners = self.hold_set().owners();
                owners.insert(self.owner.owner());
                owners
                    .into_iter()
                    .for_each(|owner| self.detach_reader(owner));
                let mut sent = lock(&self.entry.under_field);
                sent.take_if(|sent| sent.number == self.number)
            }
        };
        // Dropped after the mutex is released: this may be the last use of the entry.
        drop(old);
    }
}

/// The request that ends the last hold under `field` and keeps the lock. `None` if that time is over.
pub(super) fn keep_request(spec: &LockSpec, field: &Bytes, until: Instant) -> Option<Request> {
    let rest = until.checked_duration_since(Instant::now())?;
    let lease = Lease::new(rest.max(Lease::MIN)).ok()?;
    (!rest.is_zero())
        .then(|| spec.protocol.keep(spec, field, &lease))
        .flatten()
}
