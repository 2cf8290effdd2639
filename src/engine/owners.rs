//! The owners of this client at their locks: an entry for each owner and lock in use, and the state
//! that the client's tasks share of a lock.
//!
//! An entry serialises the requests of one owner by its operation lock (invariant 4). A request
//! needs an [`OwnerEntryRef`]. A tenure keeps the entry of the owner to which the server granted
//! it, and is renewed and released under that owner's field. After a hand-off in memory, the field
//! is *lent*: the tenure has another owner, and the field's own owner sends nothing as itself until
//! the tenure is over.

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
    local_lock::LocalLock,
    readers::{Readers, ReadersRef},
    request::AcquireRequest,
    tenure::Tenure,
    uses::{Use, UseTable},
};
use crate::{
    error::Error,
    gauges::HolderGauge,
    owner::{Owner, OwnerId},
    sync::{Mutex, lock},
    wire::{HoldMode, LockProtocol, LockSpec},
};

/// One owner at one lock: its operations follow each other, and so do its tenures.
pub(crate) struct OwnerEntry {
    /// The name of the owner's field on the server.
    pub(super) field: Bytes,
    /// Held while an operation is under way (invariant 4).
    pub(super) op_lock: tokio::sync::Mutex<()>,
    /// The tenure of the owner's read holds, while it has any.
    pub(super) reading: Mutex<Option<Reading>>,
    /// The read tenure under the owner's field: its own, or that of other readers of the client.
    pub(super) under_field: Mutex<Option<Arc<Tenure>>>,
    /// The number of the owner's acquisitions that may have an entry in the fair queue.
    pub(super) queued: AtomicUsize,
    /// The server may have an entry of the owner in the fair queue.
    pub(super) may_be_queued: AtomicBool,
    refused_release: Mutex<Option<Box<Error>>>,
}

/// The tenure of an owner's read holds.
pub(super) struct Reading {
    pub(super) tenure: Arc<Tenure>,
    /// For a tenure under another owner's field: the entry of the reader, which the tenure does not
    /// keep, and the reader's gauge.
    pub(super) _joined: Option<(OwnerEntryRef, Option<HolderGauge>)>,
}

impl Reading {
    /// Whether `owner` relies on this tenure, and it is not `granted`.
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

/// A reference to an entry.
pub(crate) type OwnerEntryRef = Use<OwnerEntryKey, OwnerEntry>;

/// A lock's name and hold mode, which tells locks of one name apart.
type LocalKey = (Arc<str>, HoldMode);

/// The state that the tasks of a client share of a lock. Handles that are made meanwhile share its
/// spec.
pub(super) struct Local {
    lock: LocalLock<Arc<Tenure>, AcquireRequest, HoldGuard>,
    pub(super) spec: Arc<LockSpec>,
}

impl Deref for Local {
    type Target = LocalLock<Arc<Tenure>, AcquireRequest, HoldGuard>;

    fn deref(&self) -> &Self::Target {
        &self.lock
    }
}

/// A reference to the local state of a lock that one owner holds at a time.
pub(super) type LocalRef = Use<LocalKey, Local>;

/// All entries that are in use.
#[derive(Default)]
pub(crate) struct OwnerTable {
    table: Arc<UseTable<OwnerEntryKey, OwnerEntry>>,
    locals: Arc<UseTable<LocalKey, Local>>,
    readers: Arc<UseTable<Arc<str>, Readers>>,
    /// The number of the next tenure.
    tenures: AtomicU64,
}

impl OwnerTable {
    /// The entry of `owner` on the lock `name`.
    pub(super) fn enter(&self, name: &Arc<str>, owner: OwnerId) -> OwnerEntryRef {
        let entry = || OwnerEntry::new(owner);
        self.table.enter((name.clone(), owner), entry)
    }

    /// The local state of a lock. `None` for readers, which hold the lock side by side.
    pub(super) fn local(&self, spec: &Arc<LockSpec>) -> Option<LocalRef> {
        let key = || (spec.name.clone(), spec.mode);
        let local = || Local {
            lock: LocalLock::default(),
            spec: spec.clone(),
        };
        (!spec.mode.is_shared()).then(|| self.locals.enter(key(), local))
    }

    /// The spec of the lock `name`, if a task of this client holds the lock or waits for it: the
    /// handles of many waiting tasks share one spec.
    pub(super) fn spec(
        &self,
        name: &Arc<str>,
        protocol: &dyn LockProtocol,
    ) -> Option<Arc<LockSpec>> {
        let key = (name.clone(), protocol.mode());
        let spec = self.locals.peek(&key, |local| local.spec.clone());
        spec.filter(|spec| spec.protocol.kind() == protocol.kind())
    }

    /// The state that the readers of this client share of a lock.
    pub(super) fn readers(&self, name: &Arc<str>) -> ReadersRef {
        self.readers.enter(name.clone(), Readers::default)
    }

    /// The tenure of `owner` in this mode.
    pub(super) fn tenure(
        &self,
        spec: &LockSpec,
        mode: HoldMode,
        owner: OwnerId,
    ) -> Option<Arc<Tenure>> {
        if mode.is_shared() {
            return self.enter(&spec.name, owner).reading();
        }
        let (holder, tenure) = self.current(&spec.name, mode)?;
        (holder == owner.owner()).then_some(tenure)
    }

    /// The tenure of the exclusive lock `name` in this mode, and its owner.
    fn current(&self, name: &Arc<str>, mode: HoldMode) -> Option<(Owner, Arc<Tenure>)> {
        // The clone is returned and not dropped under the table's lock: its drop could be the last
        // use of an entry.
        let key = (name.clone(), mode);
        self.locals.peek(&key, |local| local.current()).flatten()
    }

    /// The present tenure of the lock `name` in this mode, whichever owner has it; of readers, the shared one.
    pub(super) fn present(&self, name: &Arc<str>, mode: HoldMode) -> Option<Arc<Tenure>> {
        match mode.is_shared() {
            true => self.readers(name).shared(),
            false => self.current(name, mode).map(|(_, tenure)| tenure),
        }
    }

    /// The tenure in this mode under the field of this entry, whichever owner has it.
    pub(super) fn tenure_under_field(
        &self,
        mode: HoldMode,
        entry: &OwnerEntryRef,
    ) -> Option<Arc<Tenure>> {
        if mode.is_shared() {
            return entry.tenure_under_field();
        }
        let (_, tenure) = self.current(&entry.key().0, mode)?;
        (tenure.entry().key() == entry.key()).then_some(tenure)
    }

    /// Takes a dropped hold under the field of this entry. The caller releases it.
    pub(super) fn take_dropped(
        &self,
        spec: &LockSpec,
        entry: &OwnerEntryRef,
    ) -> Option<(Arc<Tenure>, HoldId)> {
        spec.mode.together().iter().find_map(|mode| {
            let tenure = self.tenure_under_field(*mode, entry)?;
            let id = tenure.take_dropped()?;
            Some((tenure, id))
        })
    }

    /// The present tenures of this client on `name`, or on all locks.
    pub(super) fn tenures(&self, name: Option<&str>) -> Vec<Arc<Tenure>> {
        let is_named = |found: &str| name.is_none_or(|name| *found == *name);
        // The clones are returned and not dropped here: a drop could be the last use of an entry,
        // and lock the table that is being read.
        let mut tenures = self.locals.collect(|(name, _), local| {
            let current = is_named(name).then(|| local.current()).flatten();
            current.map(|(_, tenure)| tenure)
        });
        tenures.extend(self.table.collect(|(name, _), entry| {
            let sent = || entry.tenure_under_field();
            is_named(name).then(sent).flatten()
        }));
        tenures
    }

    /// Whether `owner` has a tenure of the lock, or an operation under way.
    pub(super) fn concerns(&self, spec: &LockSpec, owner: OwnerId) -> bool {
        let held = |mode: &HoldMode| self.tenure(spec, *mode, owner).is_some();
        spec.mode.together().iter().any(held)
            || self.enter(&spec.name, owner).op_lock.try_lock().is_err()
    }

    /// The results of `find` for the local state of each lock. The table is locked meanwhile:
    /// `find` must not end a use.
    pub(super) fn locals<T, I: IntoIterator<Item = T>>(
        &self,
        find: impl Fn(&Local) -> I,
    ) -> Vec<T> {
        self.locals.collect(|_, local| find(local))
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
            field: owner.field(),
            op_lock: tokio::sync::Mutex::new(()),
            reading: Mutex::default(),
            under_field: Mutex::default(),
            queued: AtomicUsize::new(0),
            may_be_queued: AtomicBool::new(false),
            refused_release: Mutex::default(),
        }
    }

    /// Sets the error of callers that wait behind a release of this owner; `None` once the server
    /// has executed the release.
    pub(super) fn set_refused_release(&self, error: Option<Error>) {
        *lock(&self.refused_release) = error.map(Box::new);
    }

    /// The error for the server's last answer, while it refuses a release of this owner.
    pub(super) fn refused_release(&self) -> Option<Error> {
        lock(&self.refused_release).as_deref().cloned()
    }

    /// The tenure of the owner's read holds.
    pub(super) fn reading(&self) -> Option<Arc<Tenure>> {
        let reading = lock(&self.reading);
        reading.as_ref().map(|reading| reading.tenure.clone())
    }

    /// The read tenure under the owner's field.
    pub(super) fn tenure_under_field(&self) -> Option<Arc<Tenure>> {
        lock(&self.under_field).clone()
    }

    /// The read tenure that a request of the owner concerns: its own, or that under its field.
    pub(super) fn read_tenure(&self) -> Option<Arc<Tenure>> {
        self.reading().or_else(|| self.tenure_under_field())
    }

    /// Whether another owner has read holds under this field.
    pub(super) fn is_lent(&self) -> bool {
        self.tenure_under_field()
            .is_some_and(|tenure| tenure.is_lent())
    }

    /// Takes the operation lock, when the owner's other operations are done.
    pub(super) async fn take_op_lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        match self.op_lock.try_lock() {
            Ok(op_lock) => op_lock,
            // Boxed, because it is rare.
            Err(_) => Box::pin(self.op_lock.lock()).await,
        }
    }
}
