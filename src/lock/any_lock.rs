//! A lock of any kind, for groups of different ones.

use std::sync::Arc;

use super::Lock;
use crate::{
    engine::{AcquireRequest, EngineHandle, Subject},
    error::Error,
    owner::Owner,
    wire::{Kind, Lease, LockSpec},
};

/// A lock of any kind and client, as a member of a [`MultiLock`](crate::MultiLock) or [`RedLock`](crate::RedLock).
///
/// Made from a [`Lock`]: `AnyLock::from(lock)`.
#[derive(Clone)]
pub struct AnyLock {
    pub(crate) engine: EngineHandle,
    subject: Result<Subject, Box<Error>>,
}

impl AnyLock {
    /// What to ask of the server for `owner`; a lease of the group's goes before the lock's own.
    pub(crate) fn request(
        &self,
        owner: Owner,
        lease: Option<&Result<Lease, Error>>,
    ) -> Result<AcquireRequest, Error> {
        let mut subject = self.subject.clone().map_err(|error| *error)?;
        if let Some(lease) = lease {
            Arc::make_mut(&mut subject.options).set_lease(lease.clone());
        }
        AcquireRequest::new(subject, owner)
    }

    pub(crate) fn spec(&self) -> Result<&Arc<LockSpec>, Error> {
        match &self.subject {
            Ok(subject) => Ok(&subject.spec),
            Err(error) => Err(Error::clone(error)),
        }
    }
}

impl<K: Kind> From<Lock<K>> for AnyLock {
    fn from(lock: Lock<K>) -> Self {
        Self {
            engine: lock.engine,
            subject: lock.subject,
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
        let name = self.spec().map(|spec| &*spec.name);
        f.debug_struct("AnyLock")
            .field("name", &name.unwrap_or_default())
            .finish_non_exhaustive()
    }
}
