//! Requests under way, each with an identity by which the server knows a repetition.
//!
//! The server keeps the result of an attempt in a key of its own, with the number of the attempt. No other attempt uses the key
//! before this one is answered, so a client has as many keys as it has had attempts under way at once.
//!
//! | answer | to acquire | to release |
//! | --- | --- | --- |
//! | Done | the permits go to the waiter; without one they are spare | the caller has its outcome |
//! | Busy | the waiter parks; a caller that only tries has its outcome | - |
//! | Refused | the caller fails. In doubt: again after a pause, without it | again after a pause |
//! | Unanswered | in doubt: the same attempt again, also without a waiter | the same |
//!
//! A doubt ends with an answer of the server, Done or Busy, or after [`longest_doubt`](super::facts::Limits::longest_doubt): then the
//! attempt is given up, and its caller is told that the outcome is unknown.

use super::super::{keys::WaiterKey, time::Time};

/// A key for results at the server, and the number of the attempt that uses it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttemptKey {
    pub slot: u32,
    pub number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Acquire,
    Release,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// It waits for its batch.
    Queued,
    Sent(Sent),
    /// The server has refused it.
    Resting {
        until: Time,
    },
}

/// A sending.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sent {
    pub at: Time,
    /// Permits may have been released since: its answer may be older than the news.
    pub is_outdated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attempt {
    pub kind: Kind,
    pub permits: u32,
    /// The caller that gets the outcome, while it is there.
    pub for_waiter: Option<WaiterKey>,
    pub stage: Stage,
    /// The time of the first sending without an answer.
    pub doubt: Option<Time>,
}

impl Attempt {
    pub fn sent(&self) -> Option<&Sent> {
        match &self.stage {
            Stage::Sent(sent) => Some(sent),
            _ => None,
        }
    }

    /// Whether it asks the server, or is about to.
    pub fn asks(&self) -> bool {
        self.kind == Kind::Acquire && !matches!(self.stage, Stage::Resting { .. })
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Slot {
    number: u64,
    attempt: Option<Attempt>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attempts {
    slots: Vec<Slot>,
}

impl Attempts {
    pub fn begin(&mut self, attempt: Attempt) -> AttemptKey {
        let free = self.slots.iter().position(|slot| slot.attempt.is_none());
        let index = free.unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.number += 1;
        slot.attempt = Some(attempt);
        AttemptKey {
            slot: index as u32,
            number: slot.number,
        }
    }

    fn slot_mut(&mut self, key: AttemptKey) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        (slot.number == key.number).then_some(slot)
    }

    pub fn get_mut(&mut self, key: AttemptKey) -> Option<&mut Attempt> {
        self.slot_mut(key)?.attempt.as_mut()
    }

    /// Ends an attempt: the next one may use its key.
    pub fn remove(&mut self, key: AttemptKey) -> Option<Attempt> {
        self.slot_mut(key)?.attempt.take()
    }

    pub fn all(&self) -> impl Iterator<Item = (AttemptKey, &Attempt)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let key = AttemptKey {
                slot: index,
                number: slot.number,
            };
            Some((key, slot.attempt.as_ref()?))
        })
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = (AttemptKey, &mut Attempt)> {
        (0..).zip(&mut self.slots).filter_map(|(index, slot)| {
            let key = AttemptKey {
                slot: index,
                number: slot.number,
            };
            Some((key, slot.attempt.as_mut()?))
        })
    }

    pub fn for_waiter(&mut self, waiter: WaiterKey) -> Option<(AttemptKey, &mut Attempt)> {
        self.all_mut()
            .find(|(_, attempt)| attempt.for_waiter == Some(waiter))
    }

    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Counts anew, if the server forgets as well what it knows of other attempts than these: they have the number 1.
    #[cfg(any(test, feature = "explorer"))]
    pub fn forget(&mut self) {
        while self.slots.last().is_some_and(|slot| slot.attempt.is_none()) {
            self.slots.pop();
        }
        for slot in &mut self.slots {
            slot.number = slot.attempt.is_some().into();
        }
    }
}
