//! The parts of a history: tasks that use locks at random, the log that they write, and an oracle that checks the log against the
//! promises of locks. The integration tests play histories on real servers (`tests/it/histories.rs`), the simulator on servers in
//! memory (`tests/sim`).

pub mod actor;
mod books;
pub mod dropping;
mod groups;
pub mod handle;
mod held;
mod inside;
pub mod log;
pub mod oracle;
#[cfg(test)]
mod oracle_tests;
pub mod profiles;
mod stays;
#[cfg(test)]
mod story;
pub mod subjects;
pub mod verdict;

use std::collections;

use foldhash::fast::FixedState;

/// Maps with a fast hash, because every step of a history uses them.
pub type HashMap<K, V> = collections::HashMap<K, V, FixedState>;
pub type HashSet<K> = collections::HashSet<K, FixedState>;
