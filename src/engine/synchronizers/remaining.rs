//! What an answer of the server tells of a semaphore besides the outcome.

use std::time::Duration;

use tokio::time::Instant;

/// The state of a semaphore, as an answer tells it besides the outcome.
#[derive(Clone, Copy)]
pub(super) struct Remaining {
    /// The number of permits that are left.
    pub(super) left: i64,
    /// The end of the acquired permit that ends next.
    pub(super) end: Option<Instant>,
    /// The number of permits, with the acquired ones.
    pub(super) in_all: InAll,
}

/// What an answer tells about the number of all permits of a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InAll {
    Unknown,
    NoSemaphore,
    Permits(i64),
}

impl Remaining {
    pub(super) fn plain(left: i64) -> Self {
        Self {
            left,
            end: None,
            in_all: InAll::Unknown,
        }
    }

    pub(super) fn no_semaphore() -> Self {
        Self {
            in_all: InAll::NoSemaphore,
            ..Self::plain(0)
        }
    }

    pub(super) fn with_end(left: i64, millis: i64, in_all: i64) -> Self {
        let millis = u64::try_from(millis).ok();
        let end = |millis: u64| Instant::now() + Duration::from_millis(millis.max(1));
        Self {
            left,
            end: millis.map(end),
            in_all: match in_all {
                ..0 => InAll::NoSemaphore,
                permits => InAll::Permits(permits),
            },
        }
    }
}
