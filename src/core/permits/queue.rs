//! Callers that wait: one record each, and the queue of those that wait for permits.
//!
//! | state | meaning | leaves by |
//! | --- | --- | --- |
//! | Asking | its request is under way | a grant: Given; too few: Parked, or Over if it only tries; refused: Over |
//! | Parked | waits for news, and sends nothing | [`A1, A2`](super): Asking; a hand-off: Given |
//! | Given | has permits that it has not taken | its next poll; the pick-up time: Stalled |
//! | Stalled | was too late for its permits | its next poll: enters again, at the end |
//! | Ending | waits for the answer to a release | the answer: Over |
//! | Over | has its outcome | its next poll |

use std::collections::VecDeque;

use super::{
    super::{keys::WaiterKey, records::Records},
    facts::Ask,
    grants::GrantKey,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Asking,
    Parked,
    Given(GrantKey),
    Stalled,
    Ending,
    Over(Outcome),
}

impl State {
    fn is_in_line(self) -> bool {
        matches!(self, State::Asking | State::Parked)
    }
}

/// How an operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    Permits(GrantKey),
    Busy,
    Released,
    Refused,
    /// The server may have executed the request, and has forgotten by now whether it has.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiter<W> {
    pub permits: u32,
    pub waits: bool,
    pub state: State,
    waker: Option<W>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Queue<W> {
    records: Records<Waiter<W>>,
    /// Callers that ask or are parked, in the order of their arrival.
    line: VecDeque<WaiterKey>,
    /// How many records are Parked.
    parked: usize,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self {
            records: Records::default(),
            line: VecDeque::new(),
            parked: 0,
        }
    }
}

impl<W> Queue<W> {
    pub fn add(&mut self, ask: Ask, state: State) -> WaiterKey {
        let key = WaiterKey(self.records.add(Waiter {
            permits: ask.permits,
            waits: ask.waits,
            state: State::Stalled,
            waker: None,
        }));
        self.set(key, state);
        key
    }

    pub fn remove(&mut self, key: WaiterKey) -> Option<Waiter<W>> {
        let state = self.get(key)?.state;
        self.set(key, State::Stalled);
        let waiter = self.records.remove(key.0)?;
        Some(Waiter { state, ..waiter })
    }

    pub fn get(&self, key: WaiterKey) -> Option<&Waiter<W>> {
        self.records.get(key.0)
    }

    /// Changes the state of a caller, with its place in the queue.
    pub fn set(&mut self, key: WaiterKey, state: State) {
        let Some(waiter) = self.records.get_mut(key.0) else {
            return;
        };
        let before = std::mem::replace(&mut waiter.state, state);
        self.parked += usize::from(state == State::Parked);
        self.parked -= usize::from(before == State::Parked);
        match (before.is_in_line(), state.is_in_line()) {
            (false, true) => self.line.push_back(key),
            (true, false) if self.line.front() == Some(&key) => drop(self.line.pop_front()),
            (true, false) => self.line.retain(|other| *other != key),
            _ => {}
        }
    }

    /// As `set`, and returns the waker of the caller, which can go on.
    pub fn finish(&mut self, key: WaiterKey, state: State) -> Option<W> {
        self.set(key, state);
        self.records.get_mut(key.0)?.waker.take()
    }

    pub fn set_waker(&mut self, key: WaiterKey, waker: W) {
        if let Some(waiter) = self.records.get_mut(key.0) {
            waiter.waker = Some(waker);
        }
    }

    /// The parked callers, the first one first.
    pub fn parked(&self) -> impl Iterator<Item = (WaiterKey, &Waiter<W>)> {
        let line = self.line.iter();
        let callers = line.filter_map(|key| Some((*key, self.get(*key)?)));
        callers.filter(|(_, waiter)| waiter.state == State::Parked)
    }

    pub fn has_parked(&self) -> bool {
        self.parked > 0
    }

    pub fn all(&self) -> impl Iterator<Item = (WaiterKey, &Waiter<W>)> {
        let waiters = self.records.all();
        waiters.map(|(number, waiter)| (WaiterKey(number), waiter))
    }

    pub fn is_line_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Forgets in which order records were used.
    #[cfg(any(test, feature = "explorer"))]
    pub fn forget(&mut self) {
        self.records.forget();
    }
}
