//! What is asked for, and how long it is waited for.

use std::{ops::Deref, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    back_off::BackOff,
    durability::Durability,
    error::Error,
    owner::Owner,
    wire::{Lease, LockSpec},
};

/// What a handle is about.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) spec: Arc<LockSpec>,
    /// Shared by all requests of a client with its own settings.
    pub(crate) options: Arc<AcquireOptions>,
}

/// How a lock is taken.
#[derive(Clone)]
pub(crate) struct AcquireOptions {
    pub(crate) lease: Lease,
    /// The lease is the watchdog's.
    pub(crate) watched: bool,
    /// How it is polled, for a lock that is.
    pub(crate) back_off: Option<BackOff>,
    pub(crate) durability: Durability,
    /// Why no lock is acquired with these options.
    pub(crate) refused: Option<Box<Error>>,
}

/// What is asked for.
#[derive(Clone)]
pub(crate) struct AcquireRequest {
    pub(crate) spec: Arc<LockSpec>,
    options: Arc<AcquireOptions>,
    pub(crate) owner: Owner,
}

/// What becomes of the renewals of a hold that is extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// They go on, if there are any.
    Renewed,
    /// They end: the hold lasts for the lease.
    Fixed,
}

impl AcquireOptions {
    /// With another lease, which is not renewed.
    pub(crate) fn set_lease(&mut self, lease: Result<Lease, Error>) {
        self.watched = false;
        match lease {
            Ok(lease) => (self.lease, self.refused) = (lease, None),
            Err(error) => self.refused = Some(Box::new(error)),
        }
    }
}

impl AcquireRequest {
    pub(crate) fn new(Subject { spec, options }: Subject, owner: Owner) -> Result<Self, Error> {
        match &options.refused {
            Some(error) => Err(Error::clone(error)),
            None => Ok(Self {
                spec,
                options,
                owner,
            }),
        }
    }
}

impl Deref for AcquireRequest {
    type Target = AcquireOptions;

    fn deref(&self) -> &AcquireOptions {
        &self.options
    }
}

/// How long to wait for a lock that is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deadline {
    /// Not at all.
    Once,
    Until(Instant),
    Never,
}

impl Deadline {
    /// A wait of that long. What no clock can count has no end.
    pub(crate) fn after(wait: Duration) -> Self {
        if wait.is_zero() {
            Deadline::Once
        } else if wait > Lease::MAX {
            Deadline::Never
        } else {
            Deadline::Until(Instant::now() + wait)
        }
    }

    /// Whether the caller waits for a lock that is taken.
    pub(super) fn waits(self) -> bool {
        !matches!(self, Deadline::Once)
    }

    pub(super) fn is_over(self) -> bool {
        matches!(self, Deadline::Until(deadline) if Instant::now() >= deadline)
    }

    pub(super) fn earlier(self, than: Instant) -> Instant {
        match self {
            Deadline::Until(deadline) => deadline.min(than),
            _ => than,
        }
    }
}
