//! The holds that the report of a shutdown lists: their leases end them, and nothing else does.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{Engine, owners::OwnerEntryRef, request::AcquireRequest, tenure::Tenure};
use crate::{
    held_lock::Unreleased,
    owner::{Owner, OwnerId},
    sync::{Mutex, lock},
    wire::{HoldMode, LockSpec},
};

/// Most entries in the report.
const MOST: usize = 1_000;

/// Holds of one owner under one field of the server.
struct Entry {
    field: Bytes,
    /// The sides of a read-write lock have a field each.
    mode: HoldMode,
    holds: Unreleased,
}

/// The holds of one client that are not released.
#[derive(Default)]
pub(super) struct UnreleasedHolds {
    entries: Mutex<Vec<Entry>>,
    /// Whether there are entries: a release reads this without the mutex.
    any: AtomicBool,
}

impl UnreleasedHolds {
    /// Changes the entries.
    fn change(&self, change: impl FnOnce(&mut Vec<Entry>)) {
        let mut entries = lock(&self.entries);
        change(&mut entries);
        self.any.store(!entries.is_empty(), Ordering::Relaxed);
    }

    /// Takes the entries that were valid when the shutdown `began`. The server may keep a hold whose
    /// validity has ended since.
    pub(super) fn take(&self, began: Instant) -> Vec<Unreleased> {
        let mut taken = Vec::new();
        self.change(|entries| taken.append(entries));
        let holds = taken.into_iter().map(|entry| entry.holds);
        holds
            .filter(|holds| holds.until > began.into_std())
            .collect()
    }
}

impl Engine {
    /// Records holds of each owner of `tenure` that stay on the server until its lease ends.
    pub(super) fn record_unreleased(
        &self,
        tenure: &Tenure,
        owners: impl IntoIterator<Item = (Owner, u32)>,
    ) {
        let recorded = owners.into_iter().map(|(owner, holds)| Entry {
            field: tenure.entry().field.clone(),
            mode: tenure.spec.mode,
            holds: Unreleased {
                name: tenure.spec.name.clone(),
                owner: OwnerId::new(self.id, owner),
                holds,
                until: tenure.valid_until().into_std(),
            },
        });
        self.unreleased.change(|entries| {
            self.remove_ended(entries);
            let room = MOST.saturating_sub(entries.len());
            entries.extend(recorded.take(room));
        });
    }

    /// Removes the holds under a field that the server has deleted, or counts anew.
    pub(super) fn record_released(&self, spec: &LockSpec, entry: &OwnerEntryRef, mode: HoldMode) {
        if self.unreleased.any.load(Ordering::Relaxed) {
            let is_there = |old: &Entry| {
                old.holds.name == spec.name && old.field == entry.field && old.mode == mode
            };
            self.unreleased.change(|entries| {
                self.remove_ended(entries);
                entries.retain(|old| !is_there(old));
            });
        }
    }

    /// Removes what a grant has replaced: the first hold of a tenure counts the field anew, and a
    /// read hold removes write holds from the server that it does not rely on.
    pub(super) fn record_replaced(
        self: &Arc<Self>,
        request: &AcquireRequest,
        entry: &OwnerEntryRef,
        is_first: bool,
    ) {
        if !self.unreleased.any.load(Ordering::Relaxed) {
            return;
        }
        let (spec, mode) = (&request.spec, request.spec.mode);
        if is_first {
            self.record_released(spec, entry, mode);
        }
        let owner = OwnerId::new(self.id, request.owner);
        let exclusive = mode.beside().filter(|_| mode.is_shared());
        let is_over = |mode: &HoldMode| self.live_tenure(spec, *mode, owner).is_none();
        if let Some(writes) = exclusive.filter(is_over) {
            self.record_released(spec, entry, writes);
        }
    }

    /// Removes the holds that have ended, so that they take no room in the report.
    pub(super) fn remove_ended_holds(&self) {
        self.unreleased.change(|entries| self.remove_ended(entries));
    }

    /// Removes the holds that have ended. Keeps them once the client is closed, because `take`
    /// selects by the start of the shutdown.
    fn remove_ended(&self, entries: &mut Vec<Entry>) {
        if !self.is_closed() {
            let now = Instant::now().into_std();
            entries.retain(|entry| entry.holds.until > now);
        }
    }
}
