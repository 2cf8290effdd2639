//! Callers that wait: one record each, and the queue of those that wait for the lock.
//!
//! | state | meaning | leaves by |
//! | --- | --- | --- |
//! | Queued | waits its turn, and sends nothing | its turn: Asking; a hand-off: Given |
//! | Asking | its request is under way | a grant: Given; a refusal: Parked, or Queued if it is outdated; doubt: Queued |
//! | Parked | refused; waits for a message | a message, its time, a tenure of this client: Queued |
//! | Given | has a hold that it has not taken | its next poll; the pick-up time: Stalled |
//! | Stalled | was too late for a hold | its next poll: Queued, at the end |
//! | Ending | waits for the answer to a release | the answer: Over |
//! | Extending | waits for the extension of its hold | the answer to a renewal that extends it, the loss of the hold: Over |
//! | Over | has its outcome | its next poll |
//!
//! At the end of the client, all but Ending and Extending are Over.

use std::{collections::VecDeque, time::Duration};

use super::{
    facts::{Ask, Terms},
    keys::{HoldKey, Owner, WaiterKey},
    records::Records,
    time::Time,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Queued,
    Asking,
    Parked {
        until: Time,
    },
    Given(HoldKey),
    Stalled,
    /// The release of a hold under `field`, of which `rest` holds remain.
    Ending {
        field: Owner,
        rest: u32,
    },
    /// The extension of a hold.
    Extending {
        hold: HoldKey,
        lease: Duration,
    },
    Over(Outcome),
}

/// How an operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    Hold(HoldKey),
    Busy,
    Released,
    Extended,
    /// The hold was gone before its release, or its extension.
    Lost,
    Refused,
    /// The client is being shut down.
    Closed,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiter<W> {
    pub owner: Owner,
    pub terms: Terms,
    pub waits: bool,
    pub state: State,
    waker: Option<W>,
}

/// Whether a caller does not wait for a lock that is not free.
type Tries = bool;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Waiters<W> {
    records: Records<Waiter<W>>,
    /// Callers that wait for the lock, in the order of their waits. A caller that does not wait stands in `trying`.
    queue: VecDeque<WaiterKey>,
    trying: VecDeque<WaiterKey>,
    /// The callers of both, by owner: those that wait, in their order, and then those that only try.
    of_owners: Vec<(Owner, Tries, WaiterKey)>,
    /// How many records are Parked.
    parked: u32,
    /// How many records are Extending.
    extending: u32,
}

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self {
            records: Records::default(),
            queue: VecDeque::new(),
            trying: VecDeque::new(),
            of_owners: Vec::new(),
            parked: 0,
            extending: 0,
        }
    }
}

impl<W> Waiters<W> {
    /// Adds a caller at the end of the queue.
    pub fn enter(&mut self, ask: Ask) -> WaiterKey {
        let key = self.add(Waiter {
            owner: ask.owner,
            terms: ask.terms,
            waits: ask.waits,
            state: State::Queued,
            waker: None,
        });
        self.join_line(key, ask.owner, ask.waits);
        key
    }

    /// Adds a caller that waits for the answer to a release.
    pub fn add_ending(&mut self, owner: Owner, field: Owner, rest: u32) -> WaiterKey {
        self.add(Waiter {
            owner,
            terms: Terms::Watched,
            waits: false,
            state: State::Ending { field, rest },
            waker: None,
        })
    }

    /// Adds a caller that waits for the extension of a hold.
    pub fn add_extending(&mut self, owner: Owner, hold: HoldKey, lease: Duration) -> WaiterKey {
        self.extending += 1;
        self.add(Waiter {
            owner,
            terms: Terms::Fixed(lease),
            waits: false,
            state: State::Extending { hold, lease },
            waker: None,
        })
    }

    fn add(&mut self, waiter: Waiter<W>) -> WaiterKey {
        WaiterKey(self.records.add(waiter))
    }

    /// Frees the record, and takes it out of the queue.
    pub fn remove(&mut self, key: WaiterKey) -> Option<Waiter<W>> {
        let waiter = self.records.remove(key.0)?;
        self.leave_line(key, waiter.owner, waiter.waits, waiter.state);
        Some(waiter)
    }

    fn leave_line(&mut self, key: WaiterKey, owner: Owner, waits: bool, state: State) {
        match state {
            State::Parked { .. } => self.parked -= 1,
            State::Queued | State::Asking => {}
            State::Extending { .. } => {
                self.extending -= 1;
                return;
            }
            _ => return,
        }
        let line = self.line(waits);
        match line.front() {
            Some(first) if *first == key => drop(line.pop_front()),
            _ => line.retain(|other| *other != key),
        }
        let begin = self.begin_of(owner, !waits);
        let own = self.of_owners[begin..].iter();
        if let Some(place) = own.map(|(_, _, key)| *key).position(|other| other == key) {
            self.of_owners.remove(begin + place);
        }
    }

    /// Puts a caller at the end of its line.
    fn join_line(&mut self, key: WaiterKey, owner: Owner, waits: bool) {
        self.line(waits).push_back(key);
        let is_before =
            |(other, tries, _): &(Owner, Tries, WaiterKey)| (*other, *tries) <= (owner, !waits);
        let end = self.of_owners.partition_point(is_before);
        self.of_owners.insert(end, (owner, !waits, key));
    }

    /// Where the callers of an owner begin, or those of them that only try.
    fn begin_of(&self, owner: Owner, tries: Tries) -> usize {
        self.of_owners
            .partition_point(|(other, others, _)| (*other, *others) < (owner, tries))
    }

    fn line(&mut self, waits: bool) -> &mut VecDeque<WaiterKey> {
        match waits {
            true => &mut self.queue,
            false => &mut self.trying,
        }
    }

    pub fn get(&self, key: WaiterKey) -> Option<&Waiter<W>> {
        self.records.get(key.0)
    }

    /// Changes the state of a caller, with its place in the queue.
    pub fn set(&mut self, key: WaiterKey, state: State) {
        let Some(waiter) = self.records.get_mut(key.0) else {
            return;
        };
        let (owner, waits) = (waiter.owner, waiter.waits);
        let before = std::mem::replace(&mut waiter.state, state);
        match (is_in_line(before), is_in_line(state)) {
            (true, false) => self.leave_line(key, owner, waits, before),
            (false, true) => self.join_line(key, owner, waits),
            (true, true) => self.parked -= u32::from(matches!(before, State::Parked { .. })),
            (false, false) => {
                self.extending -= u32::from(matches!(before, State::Extending { .. }));
            }
        }
        self.parked += u32::from(matches!(state, State::Parked { .. }));
    }

    /// As `set`, and returns the waker of the caller, which can go on.
    pub fn finish(&mut self, key: WaiterKey, state: State) -> Option<W> {
        self.set(key, state);
        self.records.get_mut(key.0)?.waker.take()
    }

    /// Puts callers at the front of the queue, in this order: their holds were lost before they were taken.
    pub fn put_first(&mut self, keys: &[WaiterKey]) {
        for key in keys.iter().rev() {
            self.set(*key, State::Queued);
            let Some((owner, waits)) = self.get(*key).map(|waiter| (waiter.owner, waiter.waits))
            else {
                continue;
            };
            self.line(waits).rotate_right(1);
            let begin = self.begin_of(owner, !waits);
            let own = self.of_owners[begin..].iter();
            let count = own.take_while(|(other, tries, _)| (*other, *tries) == (owner, !waits));
            let end = begin + count.count();
            self.of_owners[begin..end].rotate_right(1);
        }
    }

    pub fn set_waker(&mut self, key: WaiterKey, waker: W) {
        if let Some(waiter) = self.records.get_mut(key.0) {
            waiter.waker = Some(waker);
        }
    }

    /// The first caller of the queue.
    pub fn first(&self) -> Option<(WaiterKey, &Waiter<W>)> {
        let key = *self.queue.front()?;
        Some((key, self.get(key)?))
    }

    /// The first caller of the queue that is of this owner.
    pub fn first_of(&self, owner: Owner) -> Option<(WaiterKey, &Waiter<W>)> {
        self.of(owner, false).next()
    }

    /// Whether the first caller of this owner that waits is parked.
    pub fn is_parked(&self, owner: Owner) -> bool {
        let first = self.first_of(owner).map(|(_, first)| first.state);
        matches!(first, Some(State::Parked { .. }))
    }

    /// The callers of an owner that wait, and then those that only try; or these alone.
    pub fn of(&self, owner: Owner, tries: Tries) -> impl Iterator<Item = (WaiterKey, &Waiter<W>)> {
        let own = self.of_owners[self.begin_of(owner, tries)..].iter();
        let own = own.take_while(move |(other, _, _)| *other == owner);
        own.filter_map(|(_, _, key)| Some((*key, self.get(*key)?)))
    }

    /// The callers that wait for the lock, the first one first, and then those that only try.
    pub fn in_line(&self) -> impl Iterator<Item = (WaiterKey, &Waiter<W>)> {
        self.first_in_line(usize::MAX)
    }

    /// The same, with `most` of the callers that wait.
    pub fn first_in_line(&self, most: usize) -> impl Iterator<Item = (WaiterKey, &Waiter<W>)> {
        let waiting = self.queue.iter().take(most);
        let keys = waiting.chain(&self.trying).copied();
        keys.filter_map(|key| Some((key, self.get(key)?)))
    }

    /// A caller that waits for the extension of its hold.
    pub fn find_extending(
        &self,
        chosen: impl Fn(HoldKey) -> bool,
    ) -> Option<(WaiterKey, HoldKey, Duration)> {
        if self.extending == 0 {
            return None;
        }
        self.all().find_map(|(key, waiter)| match waiter.state {
            State::Extending { hold, lease } if chosen(hold) => Some((key, hold, lease)),
            _ => None,
        })
    }

    /// The first caller that only tries, and is not of the holder.
    pub fn find_trying_beside(&self, holder: Owner) -> Option<WaiterKey> {
        let keys = self.trying.iter().copied();
        let mut trying = keys.filter_map(|key| Some((key, self.get(key)?)));
        let beside = |waiter: &Waiter<W>| waiter.state == State::Queued && waiter.owner != holder;
        trying
            .find(|(_, waiter)| beside(waiter))
            .map(|(key, _)| key)
    }

    pub fn all(&self) -> impl Iterator<Item = (WaiterKey, &Waiter<W>)> {
        let waiters = self.records.all();
        waiters.map(|(number, waiter)| (WaiterKey(number), waiter))
    }

    pub fn find(&self, chosen: impl Fn(&Waiter<W>) -> bool) -> Option<WaiterKey> {
        self.all()
            .find(|(_, waiter)| chosen(waiter))
            .map(|(key, _)| key)
    }

    pub fn has_parked(&self) -> bool {
        self.parked > 0
    }

    pub fn is_line_empty(&self) -> bool {
        self.queue.is_empty() && self.trying.is_empty()
    }

    /// Parked callers of `chosen` owners whose time is `over` ask again.
    pub fn unpark(&mut self, chosen: impl Fn(Owner) -> bool, over: impl Fn(Time) -> bool) {
        if !self.has_parked() {
            return;
        }
        for waiter in self.records.all_mut() {
            if let State::Parked { until } = waiter.state
                && chosen(waiter.owner)
                && over(until)
            {
                waiter.state = State::Queued;
                self.parked -= 1;
            }
        }
    }

    /// Forgets in which order records were used.
    #[cfg(any(test, feature = "explorer"))]
    pub fn forget(&mut self) {
        self.records.forget();
    }

    #[cfg(any(test, feature = "explorer"))]
    pub fn rebase(&mut self, of_ends: impl Fn(Time) -> Time) {
        for waiter in self.records.all_mut() {
            if let State::Parked { until } = &mut waiter.state {
                *until = of_ends(*until);
            }
        }
    }
}

fn is_in_line(state: State) -> bool {
    matches!(state, State::Queued | State::Asking | State::Parked { .. })
}
