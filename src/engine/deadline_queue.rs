//! A queue of deadlines in which entries can be moved. Pure.
//!
//! Entries are ordered by deadline and key. Whatever an entry is about stores the deadline under
//! which it is entered, so that a move finds it without a search.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// Entries by deadline and key. The caller keeps the deadline of each entry.
#[derive(Debug)]
pub(super) struct DeadlineQueue<K, T = ()> {
    entries: BTreeMap<(Instant, K), T>,
}

impl<K, T> Default for DeadlineQueue<K, T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
        }
    }
}

impl<K: Ord, T> DeadlineQueue<K, T> {
    /// Moves `key` from `entered` to `at`; `None` removes it.
    pub(super) fn set(
        &mut self,
        key: K,
        entered: &mut Option<Instant>,
        at: Option<Instant>,
        entry: impl FnOnce() -> T,
    ) {
        let (old, key) = match entered.take() {
            Some(before) => {
                let position = (before, key);
                (self.entries.remove(&position), position.1)
            }
            None => (None, key),
        };
        if let Some(at) = at {
            self.entries.insert((at, key), old.unwrap_or_else(entry));
        }
        *entered = at;
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes out the earliest entry that is due at `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(K, T)> {
        self.next().filter(|at| *at <= now)?;
        let ((_, key), entry) = self.entries.pop_first()?;
        Some((key, entry))
    }

    /// Takes out the entries that are due at `now`.
    pub(super) fn due(&mut self, now: Instant) -> Vec<T> {
        std::iter::from_fn(|| self.pop_due(now))
            .map(|(_, entry)| entry)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_item_that_is_set_again_is_due_once() {
        let now = Instant::now();
        let at = |millis| Some(now + Duration::from_millis(millis));
        let (mut queue, mut first, mut second) = (DeadlineQueue::default(), None, None);
        queue.set(1, &mut first, at(10), || "a");
        queue.set(2, &mut second, at(20), || "b");
        queue.set(1, &mut first, at(30), || unreachable!("it is there"));
        assert_eq!(queue.next(), at(20));
        assert_eq!(queue.due(at(19).unwrap()), [""; 0]);
        assert_eq!(queue.due(at(20).unwrap()), ["b"]);
        queue.set(2, &mut second, None, || "b");
        assert_eq!(queue.due(at(100).unwrap()), ["a"]);
        assert_eq!(queue.next(), None);
    }

    proptest! {
        #[test]
        fn everything_is_due_exactly_once_and_not_before_its_time(
            entries in prop::collection::vec((0..20u64, prop::option::of(0..1000u64)), 0..60),
            looks in prop::collection::vec(0..1200u64, 1..10),
        ) {
            let now = Instant::now();
            let at = |millis| now + Duration::from_millis(millis);
            let (mut queue, mut entered) = (DeadlineQueue::default(), [None; 20]);
            let mut model = BTreeMap::new();
            for (number, millis) in entries {
                queue.set(number, &mut entered[number as usize], millis.map(at), || number);
                match millis {
                    Some(millis) => model.insert(number, millis),
                    None => model.remove(&number),
                };
            }
            for look in looks {
                let mut due = queue.due(at(look));
                due.sort_unstable();
                let expected: Vec<_> =
                    model.iter().filter(|&(_, &millis)| millis <= look).map(|(&number, _)| number).collect();
                model.retain(|_, millis| *millis > look);
                prop_assert_eq!(due, expected);
                prop_assert_eq!(queue.next(), model.values().min().map(|&millis| at(millis)));
            }
        }
    }
}
