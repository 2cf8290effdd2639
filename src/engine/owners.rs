//! The owners of this client at their locks: an entry for each owner and lock in use, and what the client's tasks share of a lock.
//!
//! An entry serialises the requests of one owner, by its operation lock. A tenure is renewed and released as the
//! owner that acquired it from the server, whose entry it keeps, even when it has been handed to another owner: the field is lent,
//! and until the tenure is over its own owner sends nothing as itself ([`OwnerEntryRef`] is what a request is made with).

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    hold_guard::HoldGuard,
    hold_set::HoldId,
    local::LocalLock,
    readers::{Readers, ReadersRef},
    request::AcquireRequest,
    tenure::Tenure,
    uses::{Use, UseTable},
};
use crate::{
    gauges::HolderGauge,
    owner::{Owner, OwnerId},
    sync::{Mutex, lock},
    wire::{HoldMode, LockProtocol, LockSpec},
};

/// One owner at one lock: its operations come one after the other, and so do its tenures.
pub(crate) struct OwnerEntry {
    /// The owner as it travels.
    pub(super) owner: Bytes,
    /// Held while an operation is on its way (invariant 4).
    pub(super) op_lock: tokio::sync::Mutex<()>,
    /// What the owner reads by, while it has read holds.
    pub(super) reading: Mutex<Option<Reading>>,
    /// The read holds that are sent under its field: its own, or those of other readers of the client.
    pub(super) sent: Mutex<Option<Arc<Tenure>>>,
    /// How many of the owner's acquisitions have a place in the lock's queue.
    pub(super) queued: AtomicUsize,
    /// The server may have given the owner a place there.
    pub(super) may_be_queued: AtomicBool,
}

/// The tenure by which an owner reads.
pub(super) struct Reading {
    pub(super) tenure: Arc<Tenure>,
    /// Where that is sent under another owner's field: the owner's entry, to which the tenure does not lead, and its gauge.
    pub(super) _joined: Option<(OwnerEntryRef, Option<HolderGauge>)>,
}

impl Reading {
    /// Whether `owner` relies on this tenure, which is not `granted`.
    pub(super) fn is_beside(
        &self,
        granted: Option<&Arc<Tenure>>,
        owner: Owner,
        now: Instant,
    ) -> bool {
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
        (tenure.entry().key() == entry.key()).then_some(tenure)
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
            (tenure.entry().key() == entry.key()).then_some(tenure)
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

    pub(super) fn next_number(&self) -> u64 {
        self.tenures.fetch_add(1, Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty() && self.locals.is_empty() && self.readers.is_empty()
    }
}

impl OwnerEntry {
    pub(super) fn new(owner: OwnerId) -> Self {
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
