//! A lock of any kind, for groups of different ones.

use std::{any::TypeId, sync::Arc};

use crate::{
    back_off::BackOff,
    durability::Durability,
    engine::{Ask, EngineHandle},
    error::Error,
    lock::Lock,
    owner::Owner,
    wire::{Kind, Lease, Place, Wire},
};

/// A lock of any kind and client, as a member of a [`MultiLock`](crate::MultiLock) or [`RedLock`](crate::RedLock).
///
/// Made from a [`Lock`]: `AnyLock::from(lock)`.
#[derive(Clone)]
pub struct AnyLock {
    pub(crate) engine: EngineHandle,
    pub(crate) place: Result<Arc<Place>, Error>,
    wire: &'static dyn Wire,
    pub(crate) kind: TypeId,
    lease: Option<Result<Lease, Error>>,
    back_off: Option<BackOff>,
    durability: Durability,
}

impl AnyLock {
    /// What to ask of the server for `owner`; a lease of the group's goes before the lock's own.
    pub(crate) fn ask(
        &self,
        owner: Owner,
        lease: Option<&Result<Lease, Error>>,
    ) -> Result<Ask, Error> {
        let lease = match lease.or(self.lease.as_ref()) {
            Some(lease) => Some(lease.clone()?),
            None => None,
        };
        Ok(Ask {
            place: self.place.clone()?,
            wire: self.wire,
            owner,
            watched: lease.is_none(),
            lease: lease.unwrap_or_else(|| self.engine.watchdog_lease.clone()),
            back_off: self.back_off.clone(),
            durability: self.durability,
        })
    }
}

impl<K: Kind> From<Lock<K>> for AnyLock {
    fn from(lock: Lock<K>) -> Self {
        Self {
            engine: lock.engine,
            place: lock.place,
            wire: K::WIRE,
            kind: TypeId::of::<K>(),
            lease: lock.lease,
            back_off: lock.back_off,
            durability: lock.durability,
        }
    }
}

impl<K: Kind> From<&Lock<K>> for AnyLock {
    fn from(lock: &Lock<K>) -> Self {
        lock.clone().into()
    }
}

impl std::fmt::Debug for AnyLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.place.as_ref().map(|place| &*place.name);
        f.debug_struct("AnyLock")
            .field("name", &name.unwrap_or_default())
            .finish_non_exhaustive()
    }
}
