//! The content of a hash.

use bytes::Bytes;

/// Fields and their values in the order of insertion, which is the order of a small hash in Redis.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fields {
    pairs: Vec<(Bytes, Bytes)>,
}

impl Fields {
    fn position(&self, field: &[u8]) -> Option<usize> {
        self.pairs.iter().position(|(name, _)| name == field)
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&Bytes> {
        let mut pairs = self.pairs.iter();
        pairs
            .find(|(name, _)| name == field)
            .map(|(_, value)| value)
    }

    /// Sets a field. Returns whether it is new.
    pub(crate) fn insert(&mut self, field: &[u8], value: Bytes) -> bool {
        match self.position(field) {
            Some(position) => {
                self.pairs[position].1 = value;
                false
            }
            None => {
                self.pairs.push((Bytes::copy_from_slice(field), value));
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let position = self.position(field);
        position
            .map(|position| self.pairs.remove(position))
            .is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Bytes, Bytes)> {
        self.pairs.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}
