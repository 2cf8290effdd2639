//! A queue of few records. Each step copies the world, and a list is copied in one piece.

use std::ops::{Deref, DerefMut};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Fifo<T>(Vec<T>);

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Fifo<T> {
    pub(crate) fn push_back(&mut self, record: T) {
        self.0.push(record);
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        self.remove(0)
    }

    pub(crate) fn remove(&mut self, place: usize) -> Option<T> {
        (place < self.len()).then(|| self.0.remove(place))
    }
}

impl<T> Deref for Fifo<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for Fifo<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}
