//! What a history is made of: tasks that do by chance all that can be done with locks, the log that they write, and an
//! oracle that says whether locks that keep their word can look so. The integration tests play histories on real servers
//! (`tests/it/histories.rs`), the simulator on servers in memory (`tests/sim`).

// No test uses all of it.
#![allow(dead_code)]

pub mod actor;
mod books;
pub mod dropping;
mod groups;
mod held;
mod inside;
pub mod log;
pub mod oracle;
mod oracle_tests;
pub mod profiles;
mod stays;
mod story;
pub mod subjects;
pub mod verdict;

use std::collections;

use foldhash::fast::FixedState;

/// Maps that are asked at every step of a history.
pub type HashMap<K, V> = collections::HashMap<K, V, FixedState>;
pub type HashSet<K> = collections::HashSet<K, FixedState>;
