//! Shared values by key. Each value exists once, and for as long as a reference to it does.

use std::{hash::Hash, ops::Deref, sync::Arc};

use crate::{
    hash::Seeded,
    sync::{AtomicUsize, DashMap, Ordering},
};

/// All values that are in use.
pub(crate) struct UseTable<K, V> {
    entries: DashMap<K, Arc<Entry<K, V>>, Seeded>,
}

struct Entry<K, V> {
    key: K,
    value: V,
    uses: AtomicUsize,
    table: Arc<UseTable<K, V>>,
}

/// One use of a value. The table forgets the value with its last use.
///
/// One pointer: waiting tasks have several.
pub(crate) struct Use<K: Eq + Hash, V> {
    entry: Arc<Entry<K, V>>,
}

impl<K: Eq + Hash, V> Default for UseTable<K, V> {
    fn default() -> Self {
        Self {
            entries: DashMap::default(),
        }
    }
}

impl<K: Eq + Hash + Clone, V> UseTable<K, V> {
    /// Returns a reference to the value of `key`, which `value` makes if there is none.
    #[inline]
    pub(super) fn enter(self: &Arc<Self>, key: K, value: impl FnOnce() -> V) -> Use<K, V> {
        let entry = self.entries.entry(key.clone()).or_insert_with(|| {
            Arc::new(Entry {
                key,
                value: value(),
                uses: AtomicUsize::new(0),
                table: self.clone(),
            })
        });
        // Counted under the map's lock, as is the end of the last use: no task enters an entry that is being removed.
        entry.uses.fetch_add(1, Ordering::Relaxed);
        Use {
            entry: entry.clone(),
        }
    }

    /// The result of `find` for the value of `key`, if it is in use. The map is locked meanwhile:
    /// `find` must not end a use.
    pub(super) fn peek<T>(&self, key: &K, find: impl FnOnce(&V) -> T) -> Option<T> {
        self.entries.get(key).map(|entry| find(&entry.value))
    }

    /// The results of `find` for all values, in any order. The map is locked meanwhile: `find` must
    /// not end a use.
    pub(super) fn collect<T, I: IntoIterator<Item = T>>(
        &self,
        find: impl Fn(&K, &V) -> I,
    ) -> Vec<T> {
        let entries = self.entries.iter();
        entries
            .flat_map(|entry| find(&entry.key, &entry.value))
            .collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: Eq + Hash, V> Use<K, V> {
    #[inline]
    pub(super) fn key(&self) -> &K {
        &self.entry.key
    }
}

impl<K: Eq + Hash + Clone, V> Use<K, V> {
    /// Returns a reference to the value of another key in the same table.
    pub(super) fn beside(&self, key: K, value: impl FnOnce() -> V) -> Self {
        self.entry.table.enter(key, value)
    }
}

impl<K: Eq + Hash, V> Deref for Use<K, V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        &self.entry.value
    }
}

impl<K: Eq + Hash, V> Clone for Use<K, V> {
    #[inline]
    fn clone(&self) -> Self {
        self.entry.uses.fetch_add(1, Ordering::Relaxed);
        Self {
            entry: self.entry.clone(),
        }
    }
}

impl<K: Eq + Hash, V> Drop for Use<K, V> {
    #[inline]
    fn drop(&mut self) {
        // Only the last use takes the map's lock. New uses are counted under that lock, so none can
        // follow it.
        let others = |uses: usize| (uses > 1).then(|| uses - 1);
        let uses = &self.entry.uses;
        if uses
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, others)
            .is_ok()
        {
            return;
        }
        let last =
            |_: &_, entry: &Arc<Entry<K, V>>| entry.uses.fetch_sub(1, Ordering::Relaxed) == 1;
        self.entry.table.entries.remove_if(&self.entry.key, last);
    }
}
