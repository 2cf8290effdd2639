//! How many locks of a group are needed.

/// Of a [`GroupLock`](crate::GroupLock): all locks are needed.
#[derive(Debug, Clone, Copy)]
pub enum All {}

/// Of a [`GroupLock`](crate::GroupLock): more than half of the locks are needed.
#[derive(Debug, Clone, Copy)]
pub enum Majority {}

/// How many locks of a group are needed.
///
/// Sealed: [`All`] and [`Majority`].
pub trait Quorum: sealed::Quorum {}

pub(crate) mod sealed {
    pub trait Quorum: Send + Sync + 'static {
        /// Whether a lock that is given twice counts once. Otherwise the group is refused.
        const MERGES_REPEATS: bool;

        /// How many of `members` are needed.
        fn need(members: usize) -> usize;
    }
}

impl Quorum for All {}

impl sealed::Quorum for All {
    const MERGES_REPEATS: bool = true;

    fn need(members: usize) -> usize {
        members
    }
}

impl Quorum for Majority {}

impl sealed::Quorum for Majority {
    // Merged, three clones of one client would be a majority of one server.
    const MERGES_REPEATS: bool = false;

    fn need(members: usize) -> usize {
        members / 2 + 1
    }
}
