//! The seam of the simulator (`tests/sim`): what is random is taken from its seed, so that a seed plays the same history again.
//!
//! A thread that runs a simulation answers three questions by the seed: the order of hash maps (`Seeded`), an id (`id`) and the
//! number of an owner (`owner_number`). No user's build has the seam by accident: the feature `__simulation` is private to this
//! repository, whose tests switch it on by their dependency on the test kit. Elsewhere the questions cost nothing.

#[cfg(not(feature = "__simulation"))]
mod seam {
    pub(crate) use foldhash::quality::RandomState as Seeded;

    pub(crate) fn id() -> Option<u128> {
        None
    }

    pub(crate) fn owner_number() -> Option<u64> {
        None
    }
}

#[cfg(feature = "__simulation")]
mod seam {
    use std::{cell::Cell, hash::BuildHasher};

    use foldhash::quality::{FixedState, FoldHasher, RandomState};

    thread_local! {
        /// The number of the next owner, while a simulation runs.
        static NEXT_OWNER: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Begins a simulation on this thread. The number of its next owner is `first`.
    pub fn count_owners_from(first: u64) {
        NEXT_OWNER.set(Some(first));
    }

    /// Whether this thread runs a simulation. All randomness then comes from fastrand, which the simulation seeds.
    fn is_running() -> bool {
        NEXT_OWNER.get().is_some()
    }

    /// An id from the seed.
    pub(crate) fn id() -> Option<u128> {
        is_running().then(|| fastrand::u128(..))
    }

    /// A number that no other owner of this thread has since the simulation began.
    pub(crate) fn owner_number() -> Option<u64> {
        let number = NEXT_OWNER.get();
        NEXT_OWNER.set(number.map(|number| number + 1));
        number
    }

    /// The hasher's seed, drawn when a map is created.
    #[derive(Debug, Clone)]
    pub(crate) enum Seeded {
        Random(RandomState),
        Repeated(FixedState),
    }

    impl Default for Seeded {
        fn default() -> Self {
            match is_running() {
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

#[cfg(feature = "__simulation")]
pub use seam::count_owners_from;
pub(crate) use seam::{Seeded, id, owner_number};
