//! The keys of a database and their values.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use foldhash::fast::FixedState;

use super::{
    Failure, WRONG_TYPE,
    fields::Fields,
    glob,
    sorted_set::{Member, SortedSet},
};

/// Keys with their values and expiries. Each iteration has the same order in every run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KeySpace {
    entries: HashMap<Bytes, Entry, FixedState>,
}

/// The value and the expiry of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// The last millisecond of the key's life.
    pub(crate) expires_at: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(Bytes),
    Hash(Fields),
    List(VecDeque<Bytes>),
    SortedSet(SortedSet),
}

impl Value {
    /// The name of the type in the reply to `TYPE`.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::SortedSet(_) => "zset",
        }
    }

    /// The content as a flat list: fields and values, elements, or members and scores.
    pub(crate) fn flat(&self) -> Vec<Bytes> {
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::Hash(fields) => fields
                .iter()
                .flat_map(|(field, value)| [field.clone(), value.clone()])
                .collect(),
            Self::List(list) => list.iter().cloned().collect(),
            Self::SortedSet(set) => set.iter().flat_map(Member::flat).collect(),
        }
    }
}

/// A type of value.
pub(crate) trait Content: Default {
    fn of(value: &mut Value) -> Option<&mut Self>;
    fn into_value(self) -> Value;
    fn is_empty(&self) -> bool;
}

macro_rules! content {
    ($type:ty, $variant:ident) => {
        impl Content for $type {
            fn of(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$variant(content) => Some(content),
                    _ => None,
                }
            }

            fn into_value(self) -> Value {
                Value::$variant(self)
            }

            fn is_empty(&self) -> bool {
                self.is_empty()
            }
        }
    };
}

content!(Fields, Hash);
content!(VecDeque<Bytes>, List);
content!(SortedSet, SortedSet);

impl Content for Bytes {
    fn of(value: &mut Value) -> Option<&mut Self> {
        match value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn into_value(self) -> Value {
        Value::Text(self)
    }

    /// An empty string stays.
    fn is_empty(&self) -> bool {
        false
    }
}

impl Entry {
    fn is_over(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|last| now > last)
    }
}

impl KeySpace {
    /// The entry of a key. Removes an expired entry.
    pub(crate) fn entry(&mut self, key: &[u8], now: u64) -> Option<&mut Entry> {
        let over = self.entries.get(key)?.is_over(now);
        if over {
            self.entries.remove(key);
            return None;
        }
        self.entries.get_mut(key)
    }

    /// The entry of a key. Leaves an expired entry in place.
    pub(crate) fn peek(&self, key: &[u8], now: u64) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| !entry.is_over(now))
    }

    /// The content of a key, if it exists and has this type.
    pub(crate) fn read<C: Content>(
        &mut self,
        key: &[u8],
        now: u64,
    ) -> Result<Option<&mut C>, Failure> {
        match self.entry(key, now) {
            None => Ok(None),
            Some(entry) => match C::of(&mut entry.value) {
                Some(content) => Ok(Some(content)),
                None => Err(WRONG_TYPE.into()),
            },
        }
    }

    /// The content of a key, created if missing. An expiry stays.
    pub(crate) fn make<C: Content>(&mut self, key: &[u8], now: u64) -> Result<&mut C, Failure> {
        if self.entry(key, now).is_none() {
            self.set(key, C::default().into_value(), None);
        }
        match self.read(key, now)? {
            Some(content) => Ok(content),
            None => Err("ERR the key was made and is gone".into()),
        }
    }

    /// Changes an existing collection, and removes the key if the collection becomes empty.
    pub(crate) fn change<C: Content, R: Default>(
        &mut self,
        key: &[u8],
        now: u64,
        change: impl FnOnce(&mut C) -> R,
    ) -> Result<R, Failure> {
        let Some(content) = self.read::<C>(key, now)? else {
            return Ok(R::default());
        };
        let result = change(content);
        if content.is_empty() {
            self.entries.remove(key);
        }
        Ok(result)
    }

    /// Sets the value of a key, and replaces an existing one.
    pub(crate) fn set(&mut self, key: &[u8], value: Value, expires_at: Option<u64>) {
        let entry = Entry { value, expires_at };
        match self.entries.get_mut(key) {
            Some(old) => *old = entry,
            None => drop(self.entries.insert(Bytes::copy_from_slice(key), entry)),
        }
    }

    /// Removes a key. Returns whether it existed.
    pub(crate) fn remove(&mut self, key: &[u8], now: u64) -> bool {
        let removed = self.entries.remove(key);
        removed.is_some_and(|entry| !entry.is_over(now))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// The keys that match a pattern, in their order.
    pub(crate) fn names(&self, pattern: &[u8], now: u64) -> Vec<Bytes> {
        let live = self.entries.iter().filter(|(_, entry)| !entry.is_over(now));
        let matching = live.filter(|(key, _)| glob::matches(pattern, key));
        let mut names: Vec<Bytes> = matching.map(|(key, _)| key.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The number of keys.
    pub(crate) fn count(&self, now: u64) -> usize {
        let live = self.entries.values().filter(|entry| !entry.is_over(now));
        live.count()
    }
}
