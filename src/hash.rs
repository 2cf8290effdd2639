//! Hash maps with a reproducible order in a simulation.

use std::collections;

pub(crate) use crate::simulation::Seeded;

pub(crate) type HashMap<K, V> = collections::HashMap<K, V, Seeded>;
pub(crate) type HashSet<T> = collections::HashSet<T, Seeded>;
