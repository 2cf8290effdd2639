//! `dashmap::DashMap` with one shard and the methods that the crate uses.

use std::{collections::HashMap, hash::Hash, marker::PhantomData, ops::Deref};

use super::{Mutex, MutexGuard, lock};

/// `get` and `iter` clone the values, which are cheap to clone.
pub(crate) struct DashMap<K, V, S> {
    shard: Mutex<HashMap<K, V>>,
    hasher: PhantomData<S>,
}

impl<K, V, S> Default for DashMap<K, V, S> {
    fn default() -> Self {
        Self {
            shard: Mutex::new(HashMap::new()),
            hasher: PhantomData,
        }
    }
}

impl<K: Eq + Hash + Clone, V, S> DashMap<K, V, S> {
    pub(crate) fn entry(&self, key: K) -> Entry<'_, K, V> {
        let shard = lock(&self.shard);
        Entry { shard, key }
    }
}

impl<K: Eq + Hash, V, S> DashMap<K, V, S> {
    pub(crate) fn remove_if(&self, key: &K, condition: impl FnOnce(&K, &V) -> bool) {
        let mut shard = lock(&self.shard);
        let is_met = shard.get(key).is_some_and(|value| condition(key, value));
        let removed = is_met.then(|| shard.remove(key));
        drop(shard);
        drop(removed);
    }

    pub(crate) fn get(&self, key: &K) -> Option<Found<V>>
    where
        V: Clone,
    {
        lock(&self.shard).get(key).cloned().map(Found)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Found<V>>
    where
        V: Clone,
    {
        let values: Vec<_> = lock(&self.shard).values().cloned().map(Found).collect();
        values.into_iter()
    }
}

/// A cloned value.
pub(crate) struct Found<V>(V);

impl<V> Deref for Found<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.0
    }
}

/// An entry of the map. It keeps the shard locked.
pub(crate) struct Entry<'a, K, V> {
    shard: MutexGuard<'a, HashMap<K, V>>,
    key: K,
}

impl<'a, K: Eq + Hash + Clone, V> Entry<'a, K, V> {
    pub(crate) fn or_insert_with(mut self, value: impl FnOnce() -> V) -> RefMut<'a, K, V> {
        self.shard.entry(self.key.clone()).or_insert_with(value);
        RefMut(self)
    }
}

/// A value of the map. It keeps the shard locked.
pub(crate) struct RefMut<'a, K, V>(Entry<'a, K, V>);

impl<K: Eq + Hash, V> Deref for RefMut<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.0.shard[&self.0.key]
    }
}
