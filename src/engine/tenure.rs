//! What each owner in this process holds: an entry for each owner and lock in use, and a tenure for as long as it is held.
//!
//! An entry serialises the requests of one owner, by its operation lock. A tenure is renewed and released as the
//! owner that acquired it from the server, whose entry it keeps, even when it has been handed to another owner: the field is lent,
//! and until the tenure is over its own owner sends nothing as itself ([`OwnerEntryRef`] is what a request is made with).
//!
//! Readers share: while the time is not over for which a client may pass on what it has, its other readers join the tenure
//! of the one that has asked the server last ([`readers`](super::readers)). The entry of each leads to that tenure.

use std::{
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    hold_guard::HoldGuard,
    hold_set::{Duty, HoldId, HoldSet, Phase, validity},
    local::{Current, LocalLock},
    readers::{Readers, ReadersRef},
    request::{AcquireRequest, Then},
    telemetry::{End, TenureTelemetry},
    uses::{Use, UseTable},
};
use crate::{
    durability::Durability,
    error::{Error, LostReason},
    gauges::HolderGauge,
    owner::{Owner, OwnerId},
    sync::{Mutex, MutexGuard, lock},
    wire::{HoldMode, Lease, LockProtocol, LockSpec},
};

/// One owner at one lock: its operations come one after the other, and so do its tenures.
pub(crate) struct OwnerEntry {
    /// The owner as it travels.
    pub(super) owner: Bytes,
    /// Held while an operation is on its way (invariant 4).
    pub(super) op_lock: tokio::sync::Mutex<()>,
    /// What the owner reads by, while it has read holds.
    reading: Mutex<Option<Reading>>,
    /// The read holds that are sent under its field: its own, or those of other readers of the client.
    sent: Mutex<Option<Arc<Tenure>>>,
    /// How many of the owner's acquisitions have a place in the lock's queue.
    pub(super) queued: AtomicUsize,
    /// The server may have given the owner a place there.
    pub(super) may_be_queued: AtomicBool,
}

/// The tenure by which an owner reads.
struct Reading {
    tenure: Arc<Tenure>,
    /// Where that is sent under another owner's field: the owner's entry, to which the tenure does not lead, and its gauge.
    _joined: Option<(OwnerEntryRef, Option<HolderGauge>)>,
}

impl Reading {
    /// Whether `owner` relies on this tenure, which is not `granted`.
    fn is_beside(&self, granted: Option<&Arc<Tenure>>, owner: Owner, now: Instant) -> bool {
        granted.is_none_or(|granted| granted.number != self.tenure.number)
            && self.tenure.lost_reason(now).is_none()
            && self.tenure.count_of(owner) > 0
    }
}

/// A lock's name, and an owner.
type OwnerEntryKey = (Arc<str>, OwnerId);

/// The use of an entry.
pub(crate) type OwnerEntryRef = Use<OwnerEntryKey, OwnerEntry>;

/// A lock's name, and for what one of several locks of that name is meant.
type LocalKey = (Arc<str>, HoldMode);

/// What the tasks of a client share of a lock, and its spec for the handles that are made meanwhile.
#[derive(Default)]
pub(super) struct Local {
    lock: LocalLock<Arc<Tenure>, AcquireRequest, HoldGuard>,
    spec: Option<Arc<LockSpec>>,
}

impl Deref for Local {
    type Target = LocalLock<Arc<Tenure>, AcquireRequest, HoldGuard>;

    fn deref(&self) -> &Self::Target {
        &self.lock
    }
}

/// The use of a lock that one owner has at a time.
pub(super) type LocalRef = Use<LocalKey, Local>;

/// All entries that are in use.
#[derive(Default)]
pub(crate) struct OwnerTable {
    table: Arc<UseTable<OwnerEntryKey, OwnerEntry>>,
    locals: Arc<UseTable<LocalKey, Local>>,
    readers: Arc<UseTable<Arc<str>, Readers>>,
    /// How many tenures there have been.
    tenures: AtomicU64,
}

impl OwnerTable {
    /// The entry of `owner` on the lock `name`.
    pub(super) fn enter(&self, name: &Arc<str>, owner: OwnerId) -> OwnerEntryRef {
        let entry = || OwnerEntry::new(owner);
        self.table.enter((name.clone(), owner), entry)
    }

    /// What the tasks of this client share of a lock. Readers have none: they hold the lock side by side.
    pub(super) fn local(&self, spec: &Arc<LockSpec>) -> Option<LocalRef> {
        let key = || (spec.name.clone(), spec.mode);
        let local = || Local {
            lock: LocalLock::default(),
            spec: Some(spec.clone()),
        };
        (!spec.mode.is_shared()).then(|| self.locals.enter(key(), local))
    }

    /// The spec of the lock `name`, if a task of this client holds the lock or waits for it: the handles of many waiting tasks have one in
    /// common.
    pub(super) fn spec(
        &self,
        name: &Arc<str>,
        protocol: &dyn LockProtocol,
    ) -> Option<Arc<LockSpec>> {
        let key = (name.clone(), protocol.mode());
        let spec = self.locals.peek(&key, |local| local.spec.clone()).flatten();
        spec.filter(|spec| spec.protocol.kind() == protocol.kind())
    }

    /// What the readers of this client share of a lock.
    pub(super) fn readers(&self, name: &Arc<str>) -> ReadersRef {
        self.readers.enter(name.clone(), Readers::default)
    }

    /// What `owner` holds in this mode.
    pub(super) fn tenure(
        &self,
        spec: &LockSpec,
        mode: HoldMode,
        owner: OwnerId,
    ) -> Option<Arc<Tenure>> {
        if mode.is_shared() {
            return self.enter(&spec.name, owner).reading();
        }
        let local = self.locals.enter((spec.name.clone(), mode), Local::default);
        let (holder, tenure) = local.current()?;
        (holder == owner.owner()).then_some(tenure)
    }

    /// What is held by the use of this entry, by whichever owner.
    pub(super) fn sent_by(&self, spec: &LockSpec, entry: &OwnerEntryRef) -> Option<Arc<Tenure>> {
        if spec.mode.is_shared() {
            return entry.sent();
        }
        let key = (spec.name.clone(), spec.mode);
        let (_, tenure) = self.locals.enter(key, Local::default).current()?;
        (tenure.entry.key() == entry.key()).then_some(tenure)
    }

    /// A hold by the use of this entry whose guard is gone, to be released by the caller.
    pub(super) fn take_dropped(
        &self,
        spec: &LockSpec,
        entry: &OwnerEntryRef,
    ) -> Option<(Arc<Tenure>, HoldId)> {
        let held = spec.mode.together().iter().filter_map(|mode| {
            if mode.is_shared() {
                return entry.sent();
            }
            let key = (spec.name.clone(), *mode);
            let (_, tenure) = self.locals.enter(key, Local::default).current()?;
            (tenure.entry.key() == entry.key()).then_some(tenure)
        });
        let mut dropped = held.filter_map(|tenure| {
            let id = tenure.take_dropped()?;
            Some((tenure, id))
        });
        dropped.next()
    }

    /// What this process holds on `name` now, or on everything.
    pub(super) fn tenures(&self, name: Option<&str>) -> Vec<Arc<Tenure>> {
        let is_named = |found: &str| name.is_none_or(|name| *found == *name);
        // What is cloned here is not dropped here: it might be the last use of what is being looked through.
        let mut tenures = self.locals.collect(|(name, _), local| {
            let current = is_named(name).then(|| local.current()).flatten();
            current.map(|(_, tenure)| tenure)
        });
        tenures.extend(self.table.collect(|(name, _), entry| {
            let sent = || entry.sent();
            is_named(name).then(sent).flatten()
        }));
        tenures
    }

    /// Whether `owner` has anything at the lock, or is about to.
    pub(super) fn concerns(&self, spec: &LockSpec, owner: OwnerId) -> bool {
        let held = |mode: &HoldMode| self.tenure(spec, *mode, owner).is_some();
        spec.mode.together().iter().any(held)
            || self.enter(&spec.name, owner).op_lock.try_lock().is_err()
    }

    /// What `find` returns in the locks that one owner has at a time. They are locked meanwhile: `find` must not end a use.
    pub(super) fn locals<T, I: IntoIterator<Item = T>>(
        &self,
        find: impl Fn(&Arc<str>, &Local) -> I,
    ) -> Vec<T> {
        self.locals.collect(|(name, _), local| find(name, local))
    }

    fn next_number(&self) -> u64 {
        self.tenures.fetch_add(1, Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty() && self.locals.is_empty() && self.readers.is_empty()
    }
}

impl OwnerEntry {
    fn new(owner: OwnerId) -> Self {
        Self {
            owner: owner.field(),
            op_lock: tokio::sync::Mutex::new(()),
            reading: Mutex::default(),
            sent: Mutex::default(),
            queued: AtomicUsize::new(0),
            may_be_queued: AtomicBool::new(false),
        }
    }

    /// The tenure by which its owner reads.
    pub(super) fn reading(&self) -> Option<Arc<Tenure>> {
        let reading = lock(&self.reading);
        reading.as_ref().map(|reading| reading.tenure.clone())
    }

    /// The read tenure that is sent under its field.
    pub(super) fn sent(&self) -> Option<Arc<Tenure>> {
        lock(&self.sent).clone()
    }

    /// Whether other owners rely on what is sent under its field.
    pub(super) fn is_lent(&self) -> bool {
        self.sent().is_some_and(|tenure| tenure.is_lent())
    }

    /// Completes when the owner's other operations are done.
    pub(super) async fn take_op_lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        match self.op_lock.try_lock() {
            Ok(op_lock) => op_lock,
            // Boxed, as it is seldom needed.
            Err(_) => Box::pin(self.op_lock.lock()).await,
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
        let Grant {
            spec,
            owner,
            local,
            readers,
            hand_off_until,
            sent,
            lease,
            watched,
            durability,
            acknowledged,
            token,
        } = grant;
        let now = Instant::now();
        let reader = OwnerId::new(entry.key().1.client(), owner);
        let reader = (spec.mode.is_shared()).then(|| self.enter(&spec.name, reader));
        let mut reading = reader.as_ref().map(|reader| lock(&reader.reading));
        // It has joined another tenure meanwhile. The owner's next attempt adds to that.
        if (reading.as_deref().and_then(Option::as_ref))
            .is_some_and(|reading| reading.is_beside(tenure.as_ref(), owner, now))
        {
            return Err(None);
        }
        if let Some(tenure) = tenure {
            let mut hold_set = tenure.hold_set();
            // What the clock has ended is not brought back: its holders may have been told already.
            if hold_set.lost_reason(now).is_none() {
                let id = hold_set.grant(owner, sent, lease, watched);
                hold_set.seen_at = now;
                // Set while the holds are locked: a loss that comes next finds it.
                let old = (reader.as_ref().zip(reading.as_deref_mut()))
                    .map(|(reader, reading)| tenure.attach_reader(reader, reading));
                drop((hold_set, reading));
                drop(old);
                tenure.record_reentry(token, durability);
                return Ok((tenure, id, None));
            }
            let reason = hold_set.reported_loss;
            drop(hold_set);
            // Forced open, or closed: what was granted before that is gone as well.
            if reason.is_some_and(|reason| reason != LostReason::Expired) {
                return Err(None);
            }
            // The loss takes this lock.
            drop(reading);
            tenure.lose(LostReason::Expired);
            reading = reader.as_ref().map(|reader| lock(&reader.reading));
        }
        if now >= validity(sent, lease) {
            return Err(None);
        }
        let mut readers = readers;
        if spec.mode.is_shared()
            && (spec.mode.beside())
                .and_then(|exclusive| self.tenure(spec, exclusive, entry.key().1))
                .is_some()
        {
            // No other owner reads beside a writer.
            readers = None;
        }
        let mut hold_set = HoldSet::new(sent);
        let id = hold_set.grant(owner, sent, lease, watched);
        hold_set.seen_at = now;
        if readers.is_some() {
            hold_set.open(hand_off_until);
        }
        // Under a lent field, it is another owner's than the entry's.
        let holder = OwnerId::new(entry.key().1.client(), owner);
        let tenure = Arc::new(Tenure {
            acknowledged,
            fence: token.map(OnceLock::from).unwrap_or_default(),
            local: local.cloned(),
            readers: readers.cloned(),
            ..Tenure::new(
                entry,
                holder,
                spec,
                hold_set,
                smallvec![durability],
                self.next_number(),
            )
        });
        let Some(local) = local else {
            let read = (reader.as_ref().zip(reading.as_deref_mut()))
                .map(|(reader, reading)| tenure.attach_reader(reader, reading));
            drop(reading);
            let sent = lock(&entry.sent).replace(tenure.clone());
            drop((read, sent));
            drop(readers.and_then(|readers| readers.share(&tenure)));
            // A loss may have come before all of this was there to be found.
            if tenure.hold_set().reported_loss.is_some() {
                tenure.leave_entry();
            }
            return Ok((tenure, id, None));
        };
        if spec.mode.excludes_readers() {
            // Whatever this client knows of readers is over.
            self.readers(&spec.name).close();
        }
        let is_over =
            |other: &Arc<Tenure>| other.live_count() == 0 || other.hold_set().seen_at < sent;
        let (notified, old) = local
            .record_grant(tenure.current(), hand_off_until, is_over)
            .map_err(Some)?;
        drop(notified);
        Ok((tenure, id, old))
    }

    /// Makes the tenure of the next owner when the owner of `old` hands its only hold off. Returns it with its hold.
    pub(super) fn make_successor(
        &self,
        old: &Tenure,
        id: HoldId,
        next: &AcquireRequest,
        now: Instant,
    ) -> Option<(Arc<Tenure>, HoldId)> {
        let (hold_set, id) = old.hold_set().hand_off(id, next.owner, now)?;
        let durability = lock(&old.durability).clone();
        let owner = OwnerId::new(old.owner.client(), next.owner);
        let number = self.next_number();
        let tenure = Tenure {
            local: old.local.clone(),
            granted_as: old.granted_as,
            may_live_on: AtomicBool::new(old.may_live_on()),
            ..Tenure::new(&old.entry, owner, &next.spec, hold_set, durability, number)
        };
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
        if !is_free(&entry) || tenure.is_lent_to(owner) && !is_free(&tenure.entry) {
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

/// By what the holders are told that have asked for it.
#[derive(Debug, Default)]
struct LossSignals {
    /// Of the loss.
    token: CancellationToken,
    /// That it may come earlier.
    shortened: Arc<Notify>,
}

/// One owner's unbroken time on one lock: from its first hold to the release of its last, or to the loss of all.
pub(crate) struct Tenure {
    /// Of the owner that took it from the server.
    entry: OwnerEntryRef,
    /// The present owner; of readers that share it, the one that took it from the server.
    owner: OwnerId,
    local: Option<LocalRef>,
    readers: Option<ReadersRef>,
    pub(super) spec: Arc<LockSpec>,
    hold_set: Mutex<HoldSet>,
    /// Cancelled at the loss; made at the first call that asks for it.
    loss_signals: Mutex<Option<LossSignals>>,
    /// Those that its holds were acquired with, each once.
    durability: Mutex<SmallVec<[Durability; 1]>>,
    /// How many replicas had acknowledged its first hold, if they were waited for.
    pub(super) acknowledged: Option<u32>,
    /// The fencing token of the first hold that had one.
    fence: OnceLock<i64>,
    pub(super) since: Instant,
    /// Said to have been waited for by another owner of this client, for so long that it may be waiting itself.
    is_suspected: AtomicBool,
    /// Its lease is to end it, also when the client shuts down and releases what it holds.
    is_left_to_lease: AtomicBool,
    /// Different from every other tenure's of this client.
    pub(super) number: u64,
    /// The number of the tenure that was granted by the server, and from which this one has been passed on.
    granted_as: u64,
    /// When the watchdog looks at it next. Written under the lock of the watchdog's queue.
    pub(super) next_deadline: Mutex<Option<Instant>>,
    /// The last renewal was put off, as the turn was taken.
    put_off: AtomicBool,
    /// The server may keep it beyond what its holders count on.
    may_live_on: AtomicBool,
    telemetry: TenureTelemetry,
}

impl Tenure {
    fn new(
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
            hold_set: Mutex::new(hold_set),
            loss_signals: Mutex::new(None),
            durability: Mutex::new(durability),
            acknowledged: None,
            fence: OnceLock::new(),
            since: Instant::now(),
            is_suspected: AtomicBool::new(false),
            is_left_to_lease: AtomicBool::new(false),
            number,
            granted_as: number,
            put_off: AtomicBool::new(false),
            may_live_on: AtomicBool::new(false),
            next_deadline: Mutex::new(None),
            telemetry: TenureTelemetry::default(),
        }
    }

    pub(super) fn current(self: &Arc<Self>) -> Current<Arc<Self>> {
        Current {
            owner: self.owner.owner(),
            tenure: self.clone(),
            number: self.number,
        }
    }

    /// Lets the next waiter ask: the release has been sent, and later requests follow it.
    pub(super) fn let_next_ask(&self) {
        if let Some(local) = &self.local {
            drop(local.end_tenure(self.number));
        }
    }

    /// Ends the hand-off window of its grant: it is handed off, and joined, no more. Returns the present tenure of that grant.
    pub(super) fn end_hand_off(self: &Arc<Self>) -> Arc<Self> {
        if self.is_shared() {
            self.close_to_readers();
        }
        let now = self.local.as_ref().and_then(|local| local.end_hand_off());
        now.filter(|now| now.granted_as == self.granted_as)
            .unwrap_or_else(|| self.clone())
    }

    /// Whether it is still what its owner has.
    pub(super) fn has_entry(&self) -> bool {
        match &self.local {
            Some(local) => local
                .current()
                .is_some_and(|(_, tenure)| tenure.number == self.number),
            None => true,
        }
    }

    pub(super) fn local(&self) -> Option<&LocalRef> {
        self.local.as_ref()
    }

    /// Whether a task with this durability may have what was acquired for another one, where so many replicas are listed.
    pub(super) fn is_durable_enough(&self, durability: Durability, listed: usize) -> bool {
        let required = lock(&self.durability);
        let strictest = |more: Option<&Durability>| {
            Durability::strictest(required.iter().chain(more).copied(), listed)
        };
        strictest(Some(&durability)) == strictest(None)
    }

    fn hold_set(&self) -> MutexGuard<'_, HoldSet> {
        lock(&self.hold_set)
    }

    pub(super) fn telemetry(&self) -> &TenureTelemetry {
        &self.telemetry
    }

    pub(super) fn entry(&self) -> &OwnerEntryRef {
        &self.entry
    }

    /// How durable its renewals are to be, where so many replicas are listed.
    pub(super) fn durability(&self, listed: usize) -> Durability {
        let of_renewals = |durability: &Durability| durability.of_renewals();
        Durability::strictest(lock(&self.durability).iter().map(of_renewals), listed)
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.spec.name
    }

    /// The fencing token that all holds of this tenure show.
    pub(crate) fn fence(&self) -> Option<i64> {
        self.fence.get().copied()
    }

    /// Records an inner hold. The token of the outermost hold stays (P-M6).
    fn record_reentry(&self, token: Option<i64>, durability: Durability) {
        let mut durabilities = lock(&self.durability);
        if !durabilities.contains(&durability) {
            durabilities.push(durability);
        }
        drop(durabilities);
        if let Some(token) = token {
            let _ = self.fence.set(token);
        }
    }

    /// How many holds the server counts.
    pub(super) fn on_server(&self) -> u32 {
        self.hold_set().on_server()
    }

    /// Whether readers of several owners may have it.
    pub(super) fn is_shared(&self) -> bool {
        self.readers.is_some()
    }

    pub(super) fn count_of(&self, owner: Owner) -> u32 {
        self.hold_set().count_of(owner)
    }

    /// The holds of `owner` that a guard, or a leaked hold, relies on.
    pub(super) fn live_count_of(&self, owner: Owner) -> u32 {
        self.hold_set().live_count_of(owner)
    }

    /// Each owner, and how many holds it has.
    pub(super) fn owners(&self) -> Vec<(Owner, u32)> {
        let hold_set = self.hold_set();
        let owners = hold_set.owners().into_iter();
        owners
            .map(|owner| (owner, hold_set.count_of(owner)))
            .collect()
    }

    /// Each owner that relies on it, and how many holds it has.
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

    /// Ends `id` without a word to the server, if other readers of the client stay by the same tenure. Returns how many holds are left to
    /// its owner.
    pub(super) fn leave(&self, id: HoldId) -> Option<u32> {
        // Only readers share a tenure.
        self.readers.as_ref()?;
        let (owner, left) = self.hold_set().leave(id, Instant::now())?;
        if left == 0 {
            self.detach_reader(owner);
        }
        Some(left)
    }

    /// Returns whether the caller is to ask the server about the remaining holds, whose last confirmation is old.
    pub(super) fn begin_check_if_stale(&self, now: Instant) -> bool {
        self.hold_set().begin_check_if_stale(now)
    }

    /// Lets no further reader of the client join.
    pub(super) fn close_to_readers(&self) {
        self.hold_set().close();
    }

    /// Whether other readers of the client are about to join it, as far as can be known.
    pub(super) fn is_about_to_be_joined(&self) -> bool {
        let Some(readers) = &self.readers else {
            return false;
        };
        let hold_set = self.hold_set();
        let now = Instant::now();
        hold_set.is_joined(now) || readers.has_waiters() && hold_set.is_open(now)
    }

    /// Whether readers rely on it whose field is not the one that it is sent under.
    pub(super) fn is_lent(&self) -> bool {
        let own = self.entry.key().1.owner();
        self.is_shared() && self.hold_set().owners().iter().any(|owner| *owner != own)
    }

    /// Whether it is sent under the field of another owner.
    fn is_lent_to(&self, owner: OwnerId) -> bool {
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

    /// Makes this the tenure by which the owner of `entry` reads. Returns the one before, to be dropped without a lock.
    fn attach_reader(
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

    /// Ends the reading of `owner` by this tenure, unless the owner has a hold of it again.
    fn detach_reader(&self, owner: Owner) {
        let entry = self.entry_of(owner);
        let mut reading = lock(&entry.reading);
        let old = reading.take_if(|reading| {
            let hold_set = self.hold_set();
            reading.tenure.number == self.number
                && (hold_set.reported_loss.is_some() || hold_set.count_of(owner) == 0)
        });
        drop(reading);
        // Dropped here, outside of the lock: it may be the last use of the tenure.
        drop(old);
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.hold_set().valid_until
    }

    /// Until when the hold `id` lasts by its own lease.
    pub(super) fn hold_valid_until(&self, id: HoldId) -> Option<Instant> {
        self.hold_set().hold_valid_until(id)
    }

    /// Whether the holds are gone, by what is known and by the clock.
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
        then: Then,
    ) -> Result<(), LostReason> {
        self.hold_set()
            .extend(id, sent, lease, then, Instant::now())
    }

    pub(super) fn leak(&self, id: HoldId) {
        self.hold_set().set_phase(id, Phase::Leaked);
    }

    pub(super) fn take_leaked(&self, owner: Owner) -> Option<HoldId> {
        self.hold_set().take(Phase::Leaked, Some(owner))
    }

    /// Marks `id` as being released: it is renewed no more. Readers may still join, and make the release unnecessary.
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

    fn take_dropped(&self) -> Option<HoldId> {
        self.hold_set().take(Phase::Dropped, None)
    }

    /// Whether `id` is still to be released, which the caller now does.
    pub(super) fn take_if_dropped(&self, id: HoldId) -> bool {
        self.hold_set().take_if_dropped(id)
    }

    /// The holds that a guard, or a leaked hold, relies on.
    pub(super) fn live_count(&self) -> u32 {
        self.hold_set().live_count()
    }

    /// What a release is to leave behind, as of `sent`: all but `id`, if there is one.
    pub(super) fn begin_release(&self, id: Option<HoldId>, sent: Instant) -> (u32, Option<Lease>) {
        let mut hold_set = self.hold_set();
        let (holds, lease) = hold_set.remaining_without(id, sent);
        if holds == 0 {
            hold_set.close();
        }
        if let Some(lease) = &lease {
            hold_set.begin_shortening(sent, lease);
        }
        drop(hold_set);
        if let Some(signals) = &*lock(&self.loss_signals) {
            signals.shortened.notify_waiters();
        }
        (holds, lease)
    }

    /// The release that was sent at `sent` has been done, and has left `holds` and `lease` in force.
    pub(super) fn finish_release(
        &self,
        id: Option<HoldId>,
        sent: Instant,
        holds: u32,
        lease: Option<&Lease>,
    ) {
        let mut hold_set = self.hold_set();
        hold_set.set_on_server(holds);
        let owner = id.and_then(|id| hold_set.owner_of(id));
        if let Some(id) = id {
            hold_set.remove(id);
        }
        // No replica has been waited for: what it prolongs is not as durable as the hold.
        let may_prolong = || self.durability(0) == Durability::Local;
        if let Some(lease) = lease
            && !(may_prolong() && hold_set.finish_shortening(sent, lease, Instant::now()))
        {
            self.set_may_live_on();
        }
        let over = hold_set.count() == 0;
        drop(hold_set);
        if over {
            self.telemetry.end(End::Released);
            self.leave_entry();
        }
        if let Some(owner) = owner.filter(|_| self.readers.is_some()) {
            self.detach_reader(owner);
        }
    }

    pub(super) fn duty(&self, now: Instant) -> Duty {
        self.hold_set().duty(now)
    }

    /// Whether its lease has ended by this process's clock, which is ahead of the server's, and no holder relies on it any more: the
    /// server may keep it for another hundredth of the lease.
    pub(super) fn may_outlive_its_holders(&self, now: Instant) -> bool {
        let hold_set = self.hold_set();
        hold_set.live_count() == 0 && hold_set.lost_reason(now) == Some(LostReason::Expired)
    }

    /// Notes that the server may have a longer lease than the holders count on.
    pub(super) fn set_may_live_on(&self) {
        self.may_live_on.store(true, Ordering::Relaxed);
    }

    /// Whether the server may keep it although its lease is over.
    pub(super) fn may_live_on(&self) -> bool {
        self.may_live_on.load(Ordering::Relaxed)
    }

    /// Whether a renewal may go ahead, given whether it has the operation lock: it is put off once and not twice. A future that
    /// is kept and never polled keeps the operation lock indefinitely.
    pub(super) fn may_renew(&self, has_op_lock: bool) -> bool {
        self.put_off.swap(!has_op_lock, Ordering::Relaxed) || has_op_lock
    }

    /// Marks the tenure as suspected of a deadlock. Returns whether that is new.
    pub(super) fn mark_suspected(&self) -> bool {
        !self.is_suspected.swap(true, Ordering::Relaxed)
    }

    /// Leaves the tenure to its lease: a shutdown does not release it.
    pub(crate) fn leave_to_lease(&self) {
        self.is_left_to_lease.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_left_to_lease(&self) -> bool {
        self.is_left_to_lease.load(Ordering::Relaxed)
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
        drop(hold_set);
        self.telemetry.end(End::Lost(reason.into()));
        self.leave_entry();
        if let Some(signals) = &*lock(&self.loss_signals) {
            signals.token.cancel();
        }
        true
    }

    /// Cancelled when the holds are lost.
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

    /// Completes when the time for which it may be relied upon has become shorter, from now on.
    pub(super) fn shortened(&self) -> OwnedNotified {
        let shortened = lock(&self.loss_signals)
            .get_or_insert_default()
            .shortened
            .clone();
        shortened.notified_owned()
    }

    /// Separates the tenure from its entry: the owner's next operation on this lock begins a new tenure, and waiters of this client may
    /// ask the server.
    fn leave_entry(&self) {
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
                let mut sent = lock(&self.entry.sent);
                sent.take_if(|sent| sent.number == self.number)
            }
        };
        // Dropped here, outside of the lock: it may be the last use of the entry.
        drop(old);
    }
}

#[cfg(test)]
#[path = "tenure_tests.rs"]
mod tests;
