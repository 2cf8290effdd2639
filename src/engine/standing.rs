//! The standing of an owner at a lock: whether it may ask the server for a hold, and under which
//! owner's field.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Engine,
    owners::{LocalRef, OwnerEntryRef},
    request::AcquireRequest,
    tenure::Tenure,
};
use crate::{
    error::Error,
    owner::OwnerId,
    wire::{HoldMode, LockSpec},
};

/// How an owner asks for a hold.
pub(super) enum Standing {
    /// The owner asks for its first hold.
    FirstHold,
    /// The owner asks for one more hold of its tenure.
    Reentry(Arc<Tenure>),
    /// The owner asks under another entry: its tenure uses another owner's field.
    UnderOtherEntry(OwnerEntryRef),
    /// The owner does not ask: another owner of this client holds the lock.
    HeldByOther(Arc<Tenure>),
}

impl Engine {
    /// Refuses a hold beyond the kind's maximum, without a request.
    pub(super) fn may_add(
        self: &Arc<Self>,
        entry: &OwnerEntryRef,
        request: &AcquireRequest,
        tenure: Option<&Tenure>,
    ) -> Result<(), Error> {
        let Some(tenure) = tenure else {
            return self.may_wait(&request.spec, entry.key().1);
        };
        let name = tenure.name().clone();
        match request.spec.protocol.most_holds() {
            1 => Err(Error::AlreadyHeld { name }),
            // The script looks at that many holds under a field, whichever owners have them.
            most if tenure.most_on_server() >= most => Err(Error::TooManyHolds { name, most }),
            _ => Ok(()),
        }
    }

    /// Refuses a writer that has a live read hold: it would wait for itself (P-RW3).
    pub(super) fn may_wait(self: &Arc<Self>, spec: &LockSpec, owner: OwnerId) -> Result<(), Error> {
        let shared = spec.mode.beside().filter(|mode| mode.is_shared());
        let reading = shared.and_then(|mode| self.live_tenure(spec, mode, owner));
        let waits_for_itself =
            reading.is_some_and(|reading| reading.live_count_of(owner.owner()) > 0);
        match waits_for_itself {
            true => Err(Error::WouldDeadlock {
                name: spec.name.clone(),
            }),
            false => Ok(()),
        }
    }

    /// Returns the owner's live tenure. Reports an expired tenure as lost.
    pub(super) fn live_tenure(
        self: &Arc<Self>,
        spec: &LockSpec,
        mode: HoldMode,
        owner: OwnerId,
    ) -> Option<Arc<Tenure>> {
        self.live(self.owners.tenure(spec, mode, owner)?)
    }

    fn live(self: &Arc<Self>, tenure: Arc<Tenure>) -> Option<Arc<Tenure>> {
        let Some(reason) = tenure.lost_reason(Instant::now()) else {
            return Some(tenure);
        };
        self.lose(&tenure, reason);
        None
    }

    /// Decides how an owner asks for the lock at this moment.
    pub(super) fn standing(
        self: &Arc<Self>,
        local: Option<&LocalRef>,
        entry: &OwnerEntryRef,
        request: &AcquireRequest,
    ) -> Standing {
        let owner = OwnerId::new(self.id, request.owner);
        let Some(local) = local else {
            return self.standing_of_reader(entry, request);
        };
        let current = local.current();
        let live = current.and_then(|(holder, tenure)| Some((holder, self.live(tenure)?)));
        if let Some((holder, tenure)) = live {
            if holder == request.owner {
                return match tenure.entry().key() == entry.key() {
                    true => Standing::Reentry(tenure),
                    false => Standing::UnderOtherEntry(tenure.entry().clone()),
                };
            }
            // A fair lock enqueues on the server. An owner whose field another task's tenure uses must wait instead.
            let is_lent = tenure.entry().key().1 == owner;
            if request.spec.has_local_queue() || is_lent {
                return Standing::HeldByOther(tenure);
            }
        }
        match entry.key().1 == owner {
            true => Standing::FirstHold,
            false => Standing::UnderOtherEntry(self.owner_entry(&request.spec, request.owner)),
        }
    }

    /// As [`standing`](Self::standing), for a reader.
    fn standing_of_reader(
        self: &Arc<Self>,
        entry: &OwnerEntryRef,
        request: &AcquireRequest,
    ) -> Standing {
        let own = self.owner_entry(&request.spec, request.owner);
        let live = |tenure: Option<_>| tenure.and_then(|tenure| self.live(tenure));
        let tenure = match live(own.reading()) {
            Some(tenure) => Some(tenure),
            // Another reader's tenure may use this owner's field. A new hold then adds to that tenure.
            None => live(own.tenure_under_field()),
        };
        match tenure {
            Some(tenure) if tenure.entry().key() == entry.key() => Standing::Reentry(tenure),
            Some(tenure) => Standing::UnderOtherEntry(tenure.entry().clone()),
            None if own.key() == entry.key() => Standing::FirstHold,
            None => Standing::UnderOtherEntry(own),
        }
    }
}
