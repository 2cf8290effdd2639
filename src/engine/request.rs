//! A request for a lock, and the deadline of its caller.

use std::{ops::Deref, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    back_off::BackOff,
    durability::Durability,
    error::Error,
    owner::Owner,
    wire::{Lease, LockSpec},
};

/// The lock of a handle, and the options of its acquisitions.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) spec: Arc<LockSpec>,
    /// Shared by all handles that set no option.
    pub(crate) options: Arc<AcquireOptions>,
}

/// How a lock is acquired.
#[derive(Clone)]
pub(crate) struct AcquireOptions {
    pub(crate) lease: Lease,
    /// Whether the lease is the watchdog's, which renews it.
    pub(crate) watched: bool,
    /// The pauses between polls, for a lock that is polled.
    pub(crate) back_off: Option<BackOff>,
    pub(crate) durability: Durability,
    /// Whether a wait ends, without the lock, once the lock is kept because its job is done.
    pub(crate) ends_when_done: bool,
    /// The error of every acquisition with these options, if one of them is invalid.
    pub(crate) refused: Option<Box<Error>>,
}

/// A request for one hold.
#[derive(Clone)]
pub(crate) struct AcquireRequest {
    pub(crate) spec: Arc<LockSpec>,
    options: Arc<AcquireOptions>,
    pub(crate) owner: Owner,
}

impl AcquireOptions {
    /// Sets a fixed lease, which is not renewed.
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

/// How long a caller waits for a lock that another owner holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deadline {
    /// The caller does not wait.
    Once,
    Until(Instant),
    Never,
}

impl Deadline {
    /// The deadline after `wait`; never, if the wait is longer than clocks can count.
    pub(crate) fn after(wait: Duration) -> Self {
        if wait.is_zero() {
            Deadline::Once
        } else if wait > Lease::MAX {
            Deadline::Never
        } else {
            Deadline::Until(Instant::now() + wait)
        }
    }

    /// The same for a point in time. One that has passed allows no wait.
    pub(crate) fn at(deadline: std::time::Instant) -> Self {
        let deadline = Instant::from_std(deadline);
        Self::after(deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether the caller waits for a lock that another owner holds.
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
