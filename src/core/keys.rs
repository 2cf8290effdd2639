//! Names of records: plain numbers, so that a record never refers to another one.

/// An owner of holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner(pub u64);

/// A waiting caller. Its future alone frees the record, so a key never leads to another caller's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaiterKey(pub(super) u32);

/// A hold. Its guard or its waiter alone frees the record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HoldKey(pub(super) u32);

/// An operation of a field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpKey {
    pub field: Owner,
    /// Counts the operations that gave way before they were sent: their batches find nothing.
    pub version: u32,
    pub kind: Kind,
}

/// A channel on which the lock's releases are announced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Channel {
    /// All waiters hear it.
    Lock,
    /// The owner's own, at a fair lock.
    Of(Owner),
}

/// The script of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    Acquire,
    Release,
    Abandon,
    Renew,
}
