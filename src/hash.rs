//! Hash maps with a reproducible order in a simulation: their seeds come from the thread's generator, like all randomness of the
//! engine.

use std::collections;

#[cfg(not(feature = "test-util"))]
pub(crate) use foldhash::quality::RandomState as Seeded;
#[cfg(feature = "test-util")]
pub(crate) use simulated::Seeded;

pub(crate) type HashMap<K, V> = collections::HashMap<K, V, Seeded>;
pub(crate) type HashSet<T> = collections::HashSet<T, Seeded>;

#[cfg(feature = "test-util")]
mod simulated {
    use std::hash::BuildHasher;

    use foldhash::quality::{FixedState, FoldHasher, RandomState};

    /// The hasher's seed, drawn when a map is created.
    #[derive(Debug, Clone)]
    pub(crate) enum Seeded {
        Random(RandomState),
        Repeated(FixedState),
    }

    impl Default for Seeded {
        fn default() -> Self {
            match crate::owner::simulation::is_running() {
                true => Self::Repeated(FixedState::with_seed(fastrand::u64(..))),
                false => Self::Random(RandomState::default()),
            }
        }
    }

    impl BuildHasher for Seeded {
        type Hasher = FoldHasher<'static>;

        fn build_hasher(&self) -> Self::Hasher {
            match self {
                Self::Random(state) => state.build_hasher(),
                Self::Repeated(state) => state.build_hasher(),
            }
        }
    }
}
