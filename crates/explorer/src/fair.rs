//! The queue of a fair lock, as its scripts keep it.

use crate::{
    core::{
        facts::{Answer, Wait},
        keys::Owner,
    },
    server::{Data, Heard, Holder},
    world::in_ticks,
};

/// The most waiters of a system.
const MOST: usize = 6;

/// The ticks that a notified head has to acquire a free lock.
const NOTIFIED: u8 = 1;

/// The waiters in the order of their turns, and the ticks for which they keep their places.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Queue {
    places: [Option<Place>; MOST],
}

/// Small, since each state has three queues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    client: u8,
    owner: u8,
    left: u8,
}

impl Place {
    fn new((client, owner): Holder, left: u8) -> Self {
        let owner = owner.0 as u8;
        Self {
            client,
            owner,
            left,
        }
    }

    fn holder(self) -> Holder {
        (self.client, Owner(self.owner.into()))
    }
}

impl Queue {
    pub fn iter(&self) -> impl Iterator<Item = (Holder, u8)> {
        let places = self.places.iter().copied().flatten();
        places.map(|place| (place.holder(), place.left))
    }

    pub fn head(&self) -> Option<(Holder, u8)> {
        self.iter().next()
    }

    pub fn place_of(&self, owner: Holder) -> Option<usize> {
        self.iter().position(|(holder, _)| holder == owner)
    }

    pub fn has(&self, owner: Holder) -> bool {
        self.place_of(owner).is_some()
    }

    pub fn remove(&mut self, owner: Holder) {
        if let Some(place) = self.place_of(owner) {
            self.places[place..].rotate_left(1);
            self.places[MOST - 1] = None;
        }
    }

    fn insert(&mut self, at: usize, owner: Holder, left: u8) {
        self.places[at..].rotate_right(1);
        self.places[at] = Some(Place::new(owner, left));
    }

    fn push(&mut self, owner: Holder, left: u8) {
        self.insert(self.iter().count(), owner, left);
    }

    fn keep(&mut self, owner: Holder, left: u8) {
        let mut places = self.places.iter_mut().flatten();
        if let Some(place) = places.find(|place| place.holder() == owner) {
            place.left = left;
        }
    }

    /// The first waiter whose place has not ended, or `owner`, with its place, and whether its client had a waiter before it that is dead.
    fn first(&mut self, owner: Holder, place: u8) -> Option<(Holder, u8, bool)> {
        let mut dead = None;
        while let Some((head, left)) = self.head() {
            let left = left.min(place);
            self.keep(head, left);
            if left > 0 || head == owner {
                return Some((head, left, dead == Some(head.0)));
            }
            self.remove(head);
            if dead.is_none() {
                dead = Some(head.0);
                let places = self.places.iter_mut().flatten();
                let its = places.filter(|other| other.client == head.0);
                its.for_each(|other| other.left = other.left.min(place));
            }
        }
        None
    }

    /// The head hears.
    pub fn notified(&self) -> Heard {
        self.head()
            .map_or(Heard::None, |(head, _)| Heard::One(head))
    }

    pub fn tick(&mut self) {
        for place in self.places.iter_mut().flatten() {
            place.left = place.left.saturating_sub(1);
        }
    }
}

impl Data {
    /// An acquire by an owner without holds. `place`: the ticks for which a waiter keeps its place.
    pub fn acquire_in_turn(
        &mut self,
        owner: Holder,
        lease: u8,
        wait: Option<Wait>,
        place: u8,
    ) -> (Answer, Heard) {
        let is_free = self.holder.is_none();
        let (mut heard, mut suspects_head, mut head_left) = (Heard::None, false, 0);
        if is_free {
            match self.queue.first(owner, place) {
                Some((head, left, may_be_dead)) if head != owner => {
                    (suspects_head, head_left) = (may_be_dead, left);
                    if may_be_dead || wait.is_some_and(|wait| wait.notify_head) {
                        heard = Heard::One(head);
                        let waited = wait.is_some_and(|wait| !wait.since_last.is_zero());
                        if (waited || may_be_dead) && left > NOTIFIED {
                            self.queue.keep(head, NOTIFIED);
                            (suspects_head, head_left) = (true, NOTIFIED);
                        }
                    }
                }
                first => {
                    (self.holder, self.holds, self.left) = (Some(owner), 1, lease);
                    self.queue.remove(owner);
                    let tells = first.is_some() && lease < place;
                    return (
                        Answer::Done,
                        if tells { self.queue.notified() } else { heard },
                    );
                }
            }
        }
        let Some(wait) = wait else {
            return (Answer::Busy { remaining: None }, heard);
        };
        self.take_place(
            owner,
            in_ticks(wait.since_last),
            !wait.since_last.is_zero(),
            place,
        );
        let ticks = match is_free {
            true => {
                let retries = suspects_head || self.queue.place_of(owner) == Some(1);
                retries.then_some(head_left)
            }
            false => (self.queue.place_of(owner) == Some(0)).then_some(self.left),
        };
        let remaining = ticks.map(|ticks| crate::system::TICK * u32::from(ticks));
        (Answer::Busy { remaining }, heard)
    }

    fn take_place(&mut self, owner: Holder, waited: u8, goes_on: bool, place: u8) {
        let queue = &mut self.queue;
        let score = queue.iter().find(|(holder, _)| *holder == owner);
        match score {
            Some((_, left)) => {
                let is_first = queue.head().map(|(head, _)| head) == Some(owner);
                let refreshed = if is_first {
                    place
                } else {
                    place.max(left + waited)
                };
                queue.keep(owner, refreshed);
            }
            None if goes_on && waited < place => queue.insert(0, owner, place),
            None if goes_on => queue.push(owner, place),
            None => {
                let last = queue.iter().last().map_or(0, |(_, left)| left);
                queue.push(owner, place.max(last));
            }
        }
    }

    /// The owner leaves the queue.
    pub fn abandon(&mut self, owner: Holder) -> (Answer, Heard) {
        let was_first = self.queue.head().map(|(head, _)| head) == Some(owner);
        self.queue.remove(owner);
        let heard = if was_first {
            self.queue.notified()
        } else {
            Heard::None
        };
        (Answer::Done, heard)
    }

    /// The head of the queue, once dead waiters before it are removed.
    pub fn next_in_queue(&mut self) -> Heard {
        while let Some((head, 0)) = self.queue.head() {
            self.queue.remove(head);
        }
        self.queue.notified()
    }
}
