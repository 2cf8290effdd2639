//! Who waits for what, and who is to try next. Pure.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    intents::Intents,
    queue::{Key, Queue, State, Stays, Waiter, WaiterId},
    turns::{Answered, Published, Ticket, Turn},
    yielding::{Neighbours, Yields},
};
use crate::hash::HashMap;
use crate::wire::{Count, Place, message::Wake};

/// How long an offer stands: a task that has just been woken takes it at once, one that nobody polls never.
pub(super) const OFFER_WAIT: Duration = Duration::from_millis(2);
/// The pause before a second try that no message asked for; it doubles while such tries come to nothing.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// Where the doubling ends: a lock whose answers make no sense costs ten tries a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How often a waiter asks where those who release need not say so.
const UNANNOUNCED: Duration = Duration::from_millis(200);

/// Who waits for what, on which channel. Pure; `S` is how a waiter is told.
///
/// Two names can share a channel (`a` and `{a}` do): a message concerns the waiters of each.
#[derive(Debug)]
pub(super) struct Waiters<S> {
    /// Of each channel mostly one, so a list, which takes less room than a map.
    channels: HashMap<Bytes, Vec<Queue<S>>>,
    /// When one of a queue's waiters is to try although nobody has told it to.
    polls: BTreeSet<(Instant, Key)>,
    /// Those who have been offered a hold, and until when they may take it.
    offers: VecDeque<(Instant, S)>,
    /// Locks that are left to other clients now and then.
    pub(super) yields: Yields,
    intents: Intents,
    /// Writers that wait no longer, and may have left an intent.
    withdrawn: Vec<Arc<Place>>,
    /// Channels that nobody needs any more.
    unneeded: Vec<Bytes>,
    poll_floor: Duration,
    ids: u64,
}

/// Whether a refused waiter may rest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Until it is told.
    Parked,
    /// Something has happened since it asked.
    TryAgain,
}

impl<S: Clone> Waiters<S> {
    pub(super) fn new(poll_floor: Duration, yields: bool) -> Self {
        Self {
            channels: HashMap::default(),
            polls: BTreeSet::new(),
            offers: VecDeque::new(),
            yields: Yields::new(yields),
            intents: Intents::new(yields),
            withdrawn: Vec::new(),
            unneeded: Vec::new(),
            poll_floor,
            ids: 0,
        }
    }

    fn queue(&mut self, place: &Place) -> Option<&mut Queue<S>> {
        let mut queues = self.channels.get_mut(&place.channel)?.iter_mut();
        queues.find(|queue| queue.is_of(place))
    }

    /// A waiter comes.
    pub(super) fn join(&mut self, place: &Arc<Place>, signal: S) -> WaiterId {
        self.ids += 1;
        let id = WaiterId(self.ids);
        let waiter = Waiter {
            id,
            state: State::Trying,
            signal,
        };
        if let Some(queue) = self.queue(place) {
            queue.waiters.push_back(waiter);
            return id;
        }
        let poll_floor = match place.announced {
            true => self.poll_floor,
            false => self.poll_floor.min(UNANNOUNCED),
        };
        let mut queue = Queue::new(place, poll_floor);
        queue.waiters.push_back(waiter);
        let queues = self.channels.entry(place.channel.clone());
        queues.or_insert_with(|| Vec::with_capacity(1)).push(queue);
        id
    }

    /// The lock has been taken for whom `is_its` is true of: whoever else waits for the same may have it as well. `taker` has
    /// asked itself, if it has waited.
    pub(super) fn entered(
        &mut self,
        place: &Place,
        taker: Option<WaiterId>,
        is_its: impl Fn(&S) -> bool,
    ) -> Vec<S> {
        let waiters = self.queue(place).map(|queue| queue.waiters.iter_mut());
        let others = waiters.into_iter().flatten();
        let others = others.filter(|other| Some(other.id) != taker && is_its(&other.signal));
        others.filter_map(Waiter::happened).collect()
    }

    /// A waiter comes that need not try, or not again if it was refused while the holder had `remaining` left: others wait
    /// before it for what one of us has, that is left to others, or that they have just asked for. Says whether messages are
    /// sure to arrive.
    pub(super) fn join_behind(
        &mut self,
        place: &Arc<Place>,
        signal: S,
        remaining: Option<Duration>,
        now: Instant,
    ) -> Option<(WaiterId, bool)> {
        let queue = self.queue(place)?;
        // Where a lock is not handed over, one task's answer is none to another, and where nobody waits, nobody is told.
        let until = match place.wire.hand_over() {
            Some(_) if !queue.waiters.is_empty() => queue.turns.newcomers_wait(now)?,
            _ => queue.turns.rests(now)?,
        };
        let listens = queue.listens;
        let id = self.join(place, signal);
        let queue = self.queue(place)?;
        queue.waiter(id)?.state = State::Parked;
        let longest = remaining.map_or(until - now, |remaining| remaining.min(until - now));
        let at = now + pause(Some(longest), queue.polls, queue.poll_floor);
        self.poll_by(place, at, now);
        Some((id, listens))
    }

    /// A waiter comes that does not try before a yield is over. Says whether messages are sure to arrive.
    pub(super) fn join_yielding(
        &mut self,
        place: &Arc<Place>,
        signal: S,
        now: Instant,
    ) -> Option<(WaiterId, bool)> {
        let until = self.yields.keep(place, now)?;
        let id = self.join(place, signal);
        let queue = self.queue(place)?;
        queue.waiter(id)?.state = State::Parked;
        queue.turns.rest(until);
        let listens = queue.listens;
        self.poll_by(place, until, now);
        Some((id, listens))
    }

    /// One who comes asks again as soon as messages are sure to arrive: an answer to those as well who come meanwhile.
    pub(super) fn asks(&mut self, place: &Place, now: Instant) {
        // Where a release need not be announced, an answer is out of date at once.
        if let Some(queue) = self.queue(place).filter(|_| place.announced) {
            queue.turns.asked(now);
        }
    }

    /// One of them has subscribed: messages are sure to arrive; or has tried to.
    pub(super) fn subscribed(&mut self, place: &Place, done: bool) {
        if let Some(queue) = self.queue(place) {
            queue.listens |= done;
            queue.has_subscribed = true;
        }
    }

    /// Whether there is nothing to wait for any more before it is tried again.
    pub(super) fn has_subscribed(&mut self, place: &Place) -> bool {
        self.queue(place).is_some_and(|queue| queue.has_subscribed)
    }

    /// The last hold of one of us is to be released. Says who is to be handed the lock instead, if anybody: one who waits
    /// here, unless others have to be told first.
    pub(super) fn hand_over(&mut self, place: &Place, now: Instant) -> Option<S> {
        let waiting = self.queue(place)?.waiters.len();
        let due = self.yields.is_due(place, waiting, now);
        let queue = self.queue(place).filter(|queue| queue.listens)?;
        let next = queue.first_parked()?;
        if !queue.turns.hands_over(waiting, due, now) {
            return None;
        }
        queue.turns.heir_is(next);
        let heir = queue.tell(Wake::One).pop()?;
        self.offers.push_back((now + OFFER_WAIT, heir.clone()));
        Some(heir)
    }

    /// What was to be handed over is released.
    pub(super) fn not_taken(&mut self, place: &Place) {
        if let Some(queue) = self.queue(place) {
            queue.turns.not_taken();
        }
    }

    /// A release that nobody here was told of was answered. Says who is to try, where there may be no message.
    pub(super) fn released_unheard(&mut self, place: &Place) -> Vec<S> {
        match self.queue(place).filter(|queue| !queue.listens) {
            Some(queue) => {
                queue.turns.not_ours();
                queue.wake(Wake::One)
            }
            None => Vec::new(),
        }
    }

    /// It is no use to hand over this lock.
    pub(super) fn cannot_offer(&mut self, place: &Place) {
        if let Some(queue) = self.queue(place) {
            queue.turns.cannot_offer();
        }
    }

    /// The last hold of one of us is about to be released. Says who is to try behind the release, if anybody, and by what to
    /// tell the answer.
    pub(super) fn released(&mut self, place: &Place, now: Instant) -> Option<(Ticket, Vec<S>)> {
        let waiting = self.queue(place)?.waiters.len();
        let due = self.yields.is_due(place, waiting, now);
        let queue = self.queue(place)?;
        let Some(next) = queue.first_parked().filter(|_| queue.listens) else {
            queue.turns.not_ours();
            // The message wakes somebody, or if there may be none, the answer.
            let listens = queue.listens;
            return listens.then(|| (queue.turns.released_unheeded(now), Vec::new()));
        };
        let (ticket, turn) = queue.turns.released(waiting, due, now);
        match turn {
            Turn::Ours => {
                queue.turns.heir_is(next);
                Some((ticket, queue.tell(Wake::One)))
            }
            Turn::Others { until } => {
                self.poll_by(place, until, now);
                Some((ticket, Vec::new()))
            }
        }
    }

    /// As [`released`](Self::released), on a way on which no try can follow it: begins a yield if one is due.
    pub(super) fn rests(&mut self, place: &Place, now: Instant) -> Option<Ticket> {
        let waiting = self.queue(place)?.waiters.len();
        let due = self.yields.is_due(place, waiting, now);
        let queue = self.queue(place).filter(|queue| queue.listens)?;
        if !queue.turns.is_over(due) {
            return Some(queue.turns.released_unheeded(now));
        }
        let (ticket, turn) = queue.turns.released(waiting, due, now);
        if let Turn::Others { until } = turn {
            self.poll_by(place, until, now);
        }
        Some(ticket)
    }

    /// The last hold of one of us was released. It was heard by these neighbours, or is not known to have been published.
    pub(super) fn answered(
        &mut self,
        place: &Arc<Place>,
        ticket: Option<Ticket>,
        heard: Option<Neighbours>,
        now: Instant,
    ) -> Vec<S> {
        let due = match (self.queue(place), ticket) {
            (None, _) => self.yields.is_due(place, 0, now),
            (Some(queue), _) if queue.waiters.is_empty() => self.yields.is_due(place, 0, now),
            (Some(queue), Some(ticket)) => queue.turns.rests_after(ticket),
            // Its message wakes those who wait here as well.
            (Some(_), None) => false,
        };
        let published = heard.is_some();
        let alone = self
            .queue(place)
            .is_none_or(|queue| queue.waiters.is_empty());
        let heard = heard.and_then(|heard| self.yields.released(place, heard, due, alone, now));
        let Some(queue) = self.queue(place) else {
            return Vec::new();
        };
        if queue.stays == Stays::WhileHeld {
            queue.stays = heard.map_or(Stays::No, |heard| Stays::Until(heard.comes_back_by));
        }
        let published = published.then(|| Published {
            others: heard.is_some(),
            left_until: heard.and_then(|heard| heard.left_until),
        });
        let answered = match (ticket, published) {
            (Some(ticket), published) => queue.turns.answered(ticket, published, now),
            (None, Some(published)) => queue.turns.others_listen(published.others),
            (None, None) => Answered::Nothing,
        };
        let told = match answered {
            Answered::Nothing => Vec::new(),
            Answered::Rest { until } => {
                self.poll_by(place, until, now);
                Vec::new()
            }
            Answered::MakeUp => {
                queue.turns.not_ours();
                queue.wake(Wake::One)
            }
        };
        self.may_be_over(place, now);
        told
    }

    /// What one of us had is gone.
    pub(super) fn gone(&mut self, place: &Place, now: Instant) -> Vec<S> {
        let Some(queue) = self.queue(place) else {
            return Vec::new();
        };
        queue.turns.not_ours();
        let told = queue.wake(Wake::One);
        self.hold_is_over(place, now);
        told
    }

    /// One of the waiters has been granted the lock until then, and will leave.
    pub(super) fn taken(&mut self, place: &Place, until: Instant, now: Instant) {
        let Some(queue) = self.queue(place) else {
            return;
        };
        queue.turns.taken(until);
        if queue.waiters.len() > 1 {
            let at = now + pause(Some(until - now), queue.polls, queue.poll_floor);
            self.poll_by(place, at, now);
        }
    }

    /// A waiter begins to try. What happens from now on, it will see.
    pub(super) fn trying(&mut self, place: &Place, id: WaiterId) {
        if let Some(waiter) = self.queue(place).and_then(|queue| queue.waiter(id)) {
            waiter.state = State::Trying;
        }
    }

    /// A try was refused; the holder has `remaining` left.
    pub(super) fn refused(
        &mut self,
        place: &Place,
        id: WaiterId,
        remaining: Option<Duration>,
        now: Instant,
    ) -> Rest {
        let Some(queue) = self.queue(place) else {
            return Rest::TryAgain;
        };
        match queue.waiter(id) {
            Some(waiter) if waiter.state == State::Trying => waiter.state = State::Parked,
            _ => return Rest::TryAgain,
        }
        queue.turns.refused(id);
        if place.wire.intend().is_some() {
            let writers = queue.key.arc().clone();
            self.intents.waits(&writers, now);
        }
        let Some(queue) = self.queue(place) else {
            return Rest::TryAgain;
        };
        if place.announced {
            queue.turns.asked(now);
        }
        let at = now + pause(remaining, queue.polls, queue.poll_floor);
        self.poll_by(place, at, now);
        Rest::Parked
    }

    /// One of the waiters is to try at `at`, or earlier.
    fn poll_by(&mut self, place: &Place, at: Instant, now: Instant) {
        let Some(queue) = self.queue(place) else {
            return;
        };
        let old = queue.poll_at;
        // Those who come later do not put off what those who wait count on.
        let new = old.filter(|old| *old > now).map_or(at, |old| old.min(at));
        if old != Some(new) {
            queue.poll_at = Some(new);
            let key = queue.key.clone();
            if let Some(old) = old {
                self.polls.remove(&(old, key.clone()));
            }
            self.polls.insert((new, key));
        }
    }

    /// A waiter goes, because it was `granted` the lock or for another reason. What it was told and made no use of is
    /// passed on.
    pub(super) fn leave(
        &mut self,
        place: &Place,
        id: WaiterId,
        granted: bool,
        now: Instant,
    ) -> Vec<S> {
        let stays = self.yields.may_stay(place);
        let Some(queue) = self.queue(place) else {
            return Vec::new();
        };
        let Ok(index) = queue.waiters.binary_search_by_key(&id, |waiter| waiter.id) else {
            return Vec::new();
        };
        let state = queue.waiters.remove(index).map(|waiter| waiter.state);
        // Nobody may have asked since messages are sure to arrive; then somebody is to, at the end of a yield if there is one.
        let sure = queue.has_subscribed || queue.turns.rests(now).is_some();
        let parked = state == Some(State::Parked) && sure;
        // What has happened since it asked was about its own hold, or about a later one; an heir's was the echo.
        let outdated = state == Some(State::Outdated) && queue.turns.heir() != Some(id);
        queue.turns.leaves(id, granted);
        // Where one enters, the next one can.
        let used = granted && !place.shared && !outdated;
        let passed_on = if used || parked {
            Vec::new()
        } else {
            queue.wake(Wake::One)
        };
        if granted && stays && queue.listens {
            queue.stays = Stays::WhileHeld;
        }
        let (nobody, place) = (queue.waiters.is_empty(), queue.key.arc().clone());
        if place.wire.intend().is_some() {
            if granted {
                self.intents.granted(&place.name, now);
            }
            if nobody && self.intents.nobody_waits(&place.name, now) {
                self.withdrawn.push(place.clone());
            }
        }
        self.may_be_over(&place, now);
        passed_on
    }

    /// This client was granted the lock without having waited.
    pub(super) fn holds(&mut self, place: &Place, now: Instant) {
        self.yields.granted(place, now);
        if let Some(queue) = self.queue(place)
            && let Stays::Until(_) = queue.stays
        {
            queue.stays = Stays::WhileHeld;
        }
    }

    /// A hold is over, of whose end nobody here has heard.
    pub(super) fn hold_is_over(&mut self, place: &Place, now: Instant) {
        if let Some(queue) = self.queue(place)
            && queue.stays == Stays::WhileHeld
        {
            queue.stays = Stays::No;
            self.may_be_over(place, now);
        }
    }

    /// Nobody waits for the lock, perhaps, and nobody needs to listen.
    fn may_be_over(&mut self, place: &Place, now: Instant) {
        let Some(queue) = self.queue(place) else {
            return;
        };
        if queue.is_over(now) {
            self.forget(place);
        } else if let Stays::Until(until) = queue.stays
            && queue.waiters.is_empty()
        {
            self.poll_by(place, until, now);
        }
    }

    /// The channels that need not be listened to any more. They are to be unsubscribed from in the order of what happens
    /// here.
    pub(super) fn take_unneeded(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.unneeded)
    }

    /// The locks at which writers have given up that may have left an intent.
    pub(super) fn take_withdrawn(&mut self) -> Vec<Arc<Place>> {
        std::mem::take(&mut self.withdrawn)
    }

    /// The locks at which an intent is to be left now, and for how long.
    pub(super) fn intents(&mut self, now: Instant) -> Vec<(Arc<Place>, Duration)> {
        std::iter::from_fn(|| self.intents.take_due(now)).collect()
    }

    /// The server has not let a writer of the lock leave an intent.
    pub(super) fn intent_not_left(&mut self, name: &Arc<str>, nobody_reads: bool, now: Instant) {
        self.intents.not_left(name, nobody_reads, now);
    }

    /// At how many locks this client listens or waits.
    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether this client listens, or is about to.
    pub(super) fn listens(&self, channel: &Bytes) -> bool {
        self.channels.contains_key(channel)
    }

    /// Nobody waits for the lock any more.
    fn forget(&mut self, place: &Place) {
        let Some(queues) = self.channels.get_mut(&place.channel) else {
            return;
        };
        let index = queues.iter().position(|queue| queue.is_of(place));
        let queue = index.map(|index| queues.swap_remove(index));
        if queues.is_empty() {
            self.channels.remove(&place.channel);
            self.unneeded.push(place.channel.clone());
        }
        if let Some(queue) = queue
            && let Some(poll_at) = queue.poll_at
        {
            self.polls.remove(&(poll_at, queue.key));
        }
    }

    /// A message on `channel`. It is for all only where all can enter: of writers, one at a time tries (P-W9).
    pub(super) fn message(&mut self, channel: &Bytes, wake: Wake, now: Instant) -> Vec<S> {
        let mut told = Vec::new();
        let mut stand_back = Vec::new();
        for queue in self.channels.get_mut(channel).into_iter().flatten() {
            let key = queue.key.clone();
            let place = key.place();
            let all = wake == Wake::All && place.count != Count::Write;
            let wake = if all { Wake::All } else { Wake::One };
            if !all && let Some(echoed) = queue.echo(now) {
                told.extend(echoed);
                continue;
            }
            let until = self.yields.others_released(place, now);
            queue.turns.not_ours();
            match until {
                Some(until) if place.has_one_holder() => {
                    queue.turns.rest(until);
                    stand_back.push((key, until));
                }
                _ => told.extend(queue.wake(wake)),
            }
        }
        for (key, until) in stand_back {
            self.poll_by(key.place(), until, now);
        }
        told
    }

    /// Of each lock the one who waits longest.
    pub(super) fn foremost(&self) -> impl Iterator<Item = (&Arc<Place>, &S)> {
        let queues = self.channels.values().flatten();
        queues.filter_map(|queue| Some((queue.key.arc(), &queue.waiters.front()?.signal)))
    }

    /// All who wait for anything.
    pub(super) fn everybody(&self) -> Vec<S> {
        let queues = self.channels.values().flatten();
        let waiters = queues.flat_map(|queue| &queue.waiters);
        waiters.map(|waiter| waiter.signal.clone()).collect()
    }

    /// Anything may have happened.
    pub(super) fn missed(&mut self) -> Vec<S> {
        self.missed_where(|_| true)
    }

    /// The same to those channels that `concerned` is true of.
    pub(super) fn missed_where(&mut self, concerned: impl Fn(&Bytes) -> bool) -> Vec<S> {
        let channels = self.channels.iter_mut();
        let queues = channels.filter(|(channel, _)| concerned(channel));
        queues
            .flat_map(|(_, queues)| queues)
            .flat_map(|queue| {
                queue.turns.missed();
                queue.wake(Wake::All)
            })
            .collect()
    }

    /// When there is something to do: a poll, an intent, or an offer that is to be withdrawn.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let offers = self.offers.front().map(|(until, _)| *until);
        let intents = self.intents.next_due();
        [self.next_poll(), offers, intents]
            .into_iter()
            .flatten()
            .min()
    }

    /// Those whose time to take what they were offered is over; most will have taken it.
    pub(super) fn late(&mut self, now: Instant) -> Vec<S> {
        let late = self.offers.iter().take_while(|(until, _)| *until <= now);
        let late = late.count();
        self.offers.drain(..late).map(|(_, heir)| heir).collect()
    }

    pub(super) fn next_poll(&self) -> Option<Instant> {
        self.polls.first().map(|(at, _)| *at)
    }

    /// Those who are to try at `now` without having been told. The next such try of each name comes at the poll floor
    /// at the latest, whatever becomes of this one.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<S> {
        let mut told = Vec::new();
        while self.next_poll().is_some_and(|at| at <= now) {
            let Some((_, key)) = self.polls.pop_first() else {
                break;
            };
            if let Some(queue) = self.queue(key.place()) {
                if queue.is_over(now) {
                    queue.poll_at = None;
                    self.forget(key.place());
                    continue;
                }
                if let Some(until) = queue.turns.rests(now) {
                    // Another client has come in between: this one stands back for longer.
                    queue.poll_at = Some(until);
                    self.polls.insert((until, key));
                    continue;
                }
                let mut next = now + queue.poll_floor;
                if let Stays::Until(until) = queue.stays
                    && queue.waiters.is_empty()
                {
                    next = next.min(until);
                }
                let rested = queue.turns.polled(now);
                let polls = queue.polls;
                // If nobody is at rest, one whose refusal is on its way asks once more.
                let wake = match rested && key.place().shared {
                    true => Wake::All,
                    false => Wake::One,
                };
                told.extend(queue.wake(wake));
                queue.polls = polls + 1;
                queue.poll_at = Some(next);
                self.polls.insert((next, key));
            }
        }
        told
    }
}

/// How long until a refused waiter asks again by itself: when the holder's lease ends, at the poll floor, and never at
/// once over and over.
fn pause(remaining: Option<Duration>, polls: u32, poll_floor: Duration) -> Duration {
    let doubled = SHORTEST_PAUSE.saturating_mul(1 << polls.min(16));
    // The server counts in whole milliseconds.
    let lease_over = remaining.map_or(poll_floor, |remaining| remaining + Duration::from_millis(1));
    lease_over.max(doubled.min(LONGEST_PAUSE)).min(poll_floor)
}

#[cfg(test)]
#[path = "waiters_tests.rs"]
mod tests;
