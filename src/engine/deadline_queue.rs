//! What is due when. Pure.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// What is due when; `T` is a tenure, which keeps the time that it is entered under.
#[derive(Debug)]
pub(super) struct DeadlineQueue<T> {
    /// By time, and by the number of the tenure.
    entries: BTreeMap<(Instant, u64), T>,
}

impl<T> Default for DeadlineQueue<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
        }
    }
}

impl<T> DeadlineQueue<T> {
    /// Moves `number` from `entered` to `at`; `None` is not at all.
    pub(super) fn set(
        &mut self,
        number: u64,
        entered: &mut Option<Instant>,
        at: Option<Instant>,
        entry: impl FnOnce() -> T,
    ) {
        let old = self.remove(number, entered);
        if let Some(at) = at {
            self.entries.insert((at, number), old.unwrap_or_else(entry));
        }
        *entered = at;
    }

    /// Takes out `number`, which is entered under `entered`.
    pub(super) fn remove(&mut self, number: u64, entered: &mut Option<Instant>) -> Option<T> {
        self.entries.remove(&(entered.take()?, number))
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes out what is due at `now`.
    pub(super) fn due(&mut self, now: Instant) -> Vec<T> {
        // Everything after `now`, whatever its number, stays.
        let later = self.entries.split_off(&(now + Duration::from_nanos(1), 0));
        std::mem::replace(&mut self.entries, later)
            .into_values()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_set_again_is_due_once() {
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
