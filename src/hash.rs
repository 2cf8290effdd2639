//! Hash maps whose order comes from the thread's generator, as all chance of the engine does: a simulation that seeds the
//! generator has the same order again.

use std::{collections, hash::BuildHasher};

use foldhash::quality::{FixedState, FoldHasher};

pub(crate) type HashMap<K, V> = collections::HashMap<K, V, Seeded>;
pub(crate) type HashSet<T> = collections::HashSet<T, Seeded>;

/// A state that is drawn when a map is made.
#[derive(Debug, Clone)]
pub(crate) struct Seeded(FixedState);

impl Default for Seeded {
    fn default() -> Self {
        Self(FixedState::with_seed(fastrand::u64(..)))
    }
}

impl BuildHasher for Seeded {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}
