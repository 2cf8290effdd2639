//! The steps of the [conformance](crate::conformance) test of each kind.
//!
//! A step is one action or several, separated by `; `: a worker, a verb and the arguments after the
//! lock. `KIND.VERB` is a verb for a lock of another kind. Further verbs: `begin VERB` waits until
//! the worker waits for the lock, and not for the answer. `end` waits for that answer. `expired`
//! waits until the lock is gone. A message after ` | rust also says` is one that only this crate
//! publishes.
//!
//! Each wait is long enough for a busy JVM to subscribe. Redisson reports an error otherwise.
//!
//! Two behaviours of Redisson are left out, because this crate differs on purpose. A re-entry with
//! a shorter lease shortens the rest of the lease. The release of an inner hold sets the lease that
//! its `RLock` object used last, or the watchdog's, whatever the outer hold's lease is.

pub const PLAIN: &[&str] = &[
    "a unlock",
    "a forceunlock",
    "a lock",
    "a lock",
    "a holdcount",
    "b trylock",
    "b trylock 1000",
    "b trylock 1000 60000",
    "b holdcount",
    "b unlock",
    "a trylock",
    "a unlock",
    "a unlock",
    "b islocked",
    "b unlock",
    "a unlock",
    "a unlock",
    "b islocked",
    // A fixed lease, which a re-entry lengthens.
    "a lock 60000",
    "b trylock",
    "a unlock",
    "b trylock 0 60000",
    "b lock 120000",
    "a unlock",
    "b trylock 0 120000",
    "b forceunlock",
    "b forceunlock",
    "b unlock",
    "b isheld",
    // A forced release by another owner of a lock that is held twice.
    "a lock",
    "a lock",
    "b forceunlock",
    "a isheld",
    "a unlock",
    "b trylock",
    "a unlock",
    "b unlock",
    // A watched hold gets a fixed lease, and the reverse.
    "a lock",
    "a lock 60000",
    "b trylock",
    "b forceunlock",
    "a lock 20000",
    "a lock",
    "b forceunlock",
    // The end of a lease is not announced.
    "a lock 4000",
    "a expired",
    "a islocked",
    "a unlock",
];

/// A waiter acquires the lock when a lease expires. (An old Redisson's fair waiter sometimes sleeps
/// on.)
pub const TAKEOVER: &[&str] = &[
    "b trylock 0 4000",
    "a trylock 12000",
    "b unlock",
    "a unlock",
];

/// The waiters of a fair lock, and the lifetime of their entries.
pub const QUEUE: &[&str] = &[
    "a lock 60000",
    "b begin trylock 60000",
    "c begin lock",
    // Neither attempt leaves an entry: one does not wait, and one times out.
    "d trylock",
    "d trylock 1000",
    // A new head is notified.
    "a unlock; b end | rust also says redisson_lock__channel:{NAME}:<owner c> <- 0",
    "d begin lock 60000",
    "b holdcount",
    "b unlock; c end | rust also says redisson_lock__channel:{NAME}:<owner d> <- 0",
    "a trylock",
    "a forceunlock; d end",
    "c unlock",
    "a begin lock 20000",
    "b begin lock",
    "d unlock; a end | rust also says redisson_lock__channel:{NAME}:<owner b> <- 0",
    "a unlock; b end",
    "b unlock",
];

pub const READ_WRITE: &[&str] = &[
    "a read.unlock",
    "a write.unlock",
    "a write.forceunlock",
    // Readers share the lock, and each has a hold count.
    "a read.lock",
    "a read.lock",
    "a read.holdcount",
    "b read.trylock",
    "c write.trylock",
    "c write.trylock 1000",
    "c write.islocked",
    "c read.islocked",
    "c write.forceunlock",
    "c write.unlock",
    "a read.unlock",
    "a read.unlock",
    "c write.trylock 0 60000",
    "b read.unlock",
    // A writer is alone.
    "a write.lock",
    "b read.trylock",
    "b read.trylock 1000",
    "b write.trylock",
    "b read.islocked",
    "b write.islocked",
    "b read.forceunlock",
    "a write.lock",
    "a write.holdcount",
    "a write.unlock",
    "b write.unlock",
    // A writer reads, and goes on as a reader.
    "a read.lock",
    "a read.trylock",
    "a read.holdcount",
    "b read.trylock",
    "a write.unlock | rust also says redisson_rwlock:{NAME} <- 1",
    "b read.trylock",
    "c write.trylock",
    "b read.unlock",
    "a read.unlock",
    "a read.unlock",
    // A writer's inner read hold ends first.
    "a write.lock",
    "a read.lock",
    "a read.unlock",
    "b read.trylock",
    "a write.unlock",
    // The longest lease of the readers counts.
    "a read.lock 20000",
    "b read.lock 60000",
    "b read.unlock | rust also says redisson_rwlock:{NAME} <- 0",
    "a read.lock 60000",
    "a read.unlock | rust also says redisson_rwlock:{NAME} <- 0",
    "a read.unlock",
    "a write.lock 120000",
    "b write.trylock",
    "a write.unlock",
    // A forced release.
    "a write.lock",
    "b write.forceunlock",
    "a write.unlock",
    "a write.isheld",
    // A waiter is notified.
    "a write.lock",
    "b begin read.lock",
    "a write.unlock; b end",
    "c begin write.lock",
    "b read.unlock; c end",
    "c write.unlock",
    // The end of a lease is not announced.
    "a read.lock 4000",
    "a read.expired",
    "a read.islocked",
    "b write.lock 4000",
    "b write.expired",
    "c write.trylock",
    "c write.unlock",
];

pub const NON_REENTRANT: &[&str] = &[
    "a unlock",
    "a lock",
    "a lock",
    "a trylock",
    "a trylock 1000",
    "a lock 60000",
    "a holdcount",
    "b trylock",
    "b holdcount",
    "b unlock",
    "a unlock",
    "b islocked",
    "b trylock 0 60000",
    "a trylock",
    "a trylock 1000",
    "b trylock",
    "a forceunlock",
    "b isheld",
    "b unlock",
    "a lock 4000",
    "a expired",
    "a lock",
    "a unlock",
];

pub const GROUP: &[&str] = &[
    "a lock",
    "b trylock",
    "a lock",
    "b trylock 1000",
    "a unlock",
    "b trylock",
    "a unlock",
    "b trylock",
    "a trylock",
    "b unlock",
    "a trylock 1000 60000",
    "b trylock",
    "a unlock",
    "b lock 120000",
    "b unlock",
    "a unlock",
];
