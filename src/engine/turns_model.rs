//! The waiters of one process against a server that is modelled: what is sent is run in any order, answers arrive in
//! any order, and messages in the order in which they were published.

use std::sync::Arc;

use proptest::{prelude::*, sample::Index};
use tokio::time::Instant;

use super::{
    super::{queue::*, waiters::*, yielding::Neighbours},
    *,
};
use crate::wire::{Place, Wire, message::Wake, sealed::Sealed};

pub(super) fn place() -> Arc<Place> {
    let wire: &dyn Wire = crate::Reentrant::WIRE;
    Arc::new(wire.place("a".into(), &crate::Config::default()))
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Join,
    /// One who was told begins to try.
    Try(Index),
    /// The server runs something that was sent.
    Run(Index),
    /// An answer arrives.
    Answer(Index),
    /// The next message arrives.
    Message,
    /// One who has the lock releases it.
    Release,
    /// An offer is not taken in time.
    Withdraw(Index),
    /// One who waits goes.
    Leave(Index),
    /// Another process takes the lock, or releases it.
    Other,
    /// Another process frees the lock, whoever holds it.
    Force,
    /// The connection of the messages breaks: those under way are lost.
    Missed,
    /// The connection of a release or hand-over breaks, before or after the server ran it.
    Unanswered(Index, bool),
    /// Time passes.
    Pass(u64),
    /// All that is under way arrives.
    Settle,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<Index>;
    let step = prop_oneof![
        3 => Just(Step::Join),
        6 => index().prop_map(Step::Try),
        8 => index().prop_map(Step::Run),
        8 => index().prop_map(Step::Answer),
        6 => Just(Step::Message),
        6 => Just(Step::Release),
        1 => index().prop_map(Step::Withdraw),
        1 => index().prop_map(Step::Leave),
        2 => Just(Step::Other),
        1 => Just(Step::Force),
        1 => Just(Step::Missed),
        1 => (index(), any::<bool>()).prop_map(|(index, ran)| Step::Unanswered(index, ran)),
        1 => prop_oneof![Just(1u64), Just(5), Just(150)].prop_map(Step::Pass),
        1 => Just(Step::Settle),
    ];
    prop::collection::vec(step, 0..120)
}

/// Who has the lock: a number of ours, or [`OTHER`].
pub(super) type Owner = u32;
pub(super) const OTHER: Owner = u32::MAX;

#[derive(Debug, Clone, Copy)]
pub(super) enum Sent {
    Try(Owner),
    Release(Owner, Option<Ticket>),
    HandOver { from: Owner, to: Owner },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Tried {
        by: Owner,
        granted: bool,
    },
    Released {
        ticket: Ticket,
        published: bool,
    },
    /// Nothing was handed over.
    Absent {
        to: Owner,
    },
}

pub(super) struct Model {
    pub(super) waiters: Waiters<Owner>,
    pub(super) place: Arc<Place>,
    pub(super) now: Instant,
    pub(super) owners: Owner,
    /// Those who wait.
    pub(super) present: Vec<(Owner, WaiterId)>,
    pub(super) told: Vec<Owner>,
    /// From whom, and to whom.
    pub(super) offers: Vec<(Owner, Owner)>,
    pub(super) sent: Vec<Sent>,
    pub(super) answers: Vec<Answer>,
    /// Published, and not received yet.
    pub(super) messages: u32,
    /// Who knows that it has the lock.
    pub(super) holders: Vec<Owner>,
    /// Who has it.
    pub(super) holder: Option<Owner>,
    pub(super) tries: u32,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            waiters: Waiters::new(Duration::from_secs(5), true),
            place: place(),
            now: Instant::now(),
            owners: 0,
            present: Vec::new(),
            told: Vec::new(),
            offers: Vec::new(),
            sent: Vec::new(),
            answers: Vec::new(),
            messages: 0,
            holders: Vec::new(),
            holder: None,
            tries: 0,
        }
    }

    pub(super) fn id(&self, owner: Owner) -> Option<WaiterId> {
        let mut present = self.present.iter();
        present.find(|(of, _)| *of == owner).map(|(_, id)| *id)
    }

    pub(super) fn join(&mut self) -> Owner {
        self.owners += 1;
        let owner = self.owners;
        match self.waiters.join_behind(&self.place, owner, None, self.now) {
            Some((id, _)) => self.present.push((owner, id)),
            None => {
                let id = self.waiters.join(&self.place, owner);
                self.waiters.subscribed(&self.place, true);
                self.waiters.asks(&self.place, self.now);
                self.present.push((owner, id));
                self.begin(owner);
            }
        }
        owner
    }

    pub(super) fn begin(&mut self, owner: Owner) {
        if let Some(id) = self.id(owner) {
            self.waiters.trying(&self.place, id);
            let sent = match self.take_offer(owner) {
                Some(from) => Sent::HandOver { from, to: owner },
                None => Sent::Try(owner),
            };
            self.sent.push(sent);
            self.tries += 1;
        }
    }

    /// The offer that was made to this one, if any: who made it.
    fn take_offer(&mut self, to: Owner) -> Option<Owner> {
        let at = self.offers.iter().position(|(_, told)| *told == to)?;
        Some(self.offers.swap_remove(at).0)
    }

    pub(super) fn tell(&mut self, told: Vec<Owner>) {
        self.told.extend(told);
    }

    pub(super) fn publish(&mut self) {
        self.holder = None;
        self.messages += 1;
    }

    pub(super) fn run(&mut self, sent: Sent) {
        match sent {
            Sent::Try(by) => {
                let granted = self.holder.is_none() || self.holder == Some(by);
                if granted {
                    self.holder = Some(by);
                }
                self.answers.push(Answer::Tried { by, granted });
            }
            Sent::Release(by, ticket) => {
                let published = self.holder == Some(by);
                if published {
                    self.publish();
                }
                let answer = ticket.map(|ticket| Answer::Released { ticket, published });
                self.answers.extend(answer);
            }
            Sent::HandOver { from, to } if self.holder == Some(from) => {
                self.holder = Some(to);
                self.answers.push(Answer::Tried {
                    by: to,
                    granted: true,
                });
            }
            Sent::HandOver { to, .. } => self.answers.push(Answer::Absent { to }),
        }
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Tried { by, granted } => {
                let Some(id) = self.id(by) else {
                    // It has gone: what it was granted is given back.
                    if granted {
                        self.sent.push(Sent::Release(by, None));
                    }
                    return;
                };
                if granted {
                    self.waiters.holds(&self.place, self.now);
                    let until = self.now + Duration::from_secs(30);
                    self.waiters.taken(&self.place, until, self.now);
                    self.leave(by, true);
                    self.holders.push(by);
                    return;
                }
                self.waiters.yields.refused(&self.place);
                let remaining = Some(Duration::from_secs(30));
                if self.waiters.refused(&self.place, id, remaining, self.now) == Rest::TryAgain {
                    self.begin(by);
                }
            }
            Answer::Released { ticket, published } => {
                let heard = published.then_some(Neighbours::Listening(1));
                let told = self
                    .waiters
                    .answered(&self.place, Some(ticket), heard, self.now);
                self.tell(told);
            }
            Answer::Absent { to } => self.begin(to),
        }
    }

    pub(super) fn leave(&mut self, owner: Owner, granted: bool) {
        let Some(id) = self.id(owner) else { return };
        let offer = self.take_offer(owner);
        self.present.retain(|(of, _)| *of != owner);
        self.told.retain(|told| *told != owner);
        let told = self.waiters.leave(&self.place, id, granted, self.now);
        self.tell(told);
        offer.into_iter().for_each(|from| self.not_taken(from));
    }

    pub(super) fn release(&mut self, owner: Owner) {
        match self.waiters.hand_over(&self.place, self.now) {
            Some(next) => {
                self.offers.push((owner, next));
                self.told.push(next);
            }
            None => self.release_alone(owner),
        }
    }

    /// A release that is published, or is to be.
    pub(super) fn release_alone(&mut self, owner: Owner) {
        let released = self.waiters.released(&self.place, self.now);
        let ticket = released.map(|(ticket, told)| {
            self.tell(told);
            ticket
        });
        self.sent.push(Sent::Release(owner, ticket));
    }

    /// Time is over for one of the offers.
    pub(super) fn withdraw(&mut self, which: impl FnOnce(usize) -> usize) {
        if !self.offers.is_empty() {
            let (from, _) = self.offers.remove(which(self.offers.len()));
            self.not_taken(from);
        }
    }

    fn not_taken(&mut self, from: Owner) {
        self.waiters.not_taken(&self.place);
        self.sent.push(Sent::Release(from, None));
    }

    pub(super) fn message(&mut self) {
        if self.messages > 0 {
            self.messages -= 1;
            let channel = self.place.channel.clone();
            let told = self.waiters.message(&channel, Wake::One, self.now);
            self.tell(told);
        }
    }

    pub(super) fn missed(&mut self) {
        self.messages = 0;
        let told = self.waiters.missed();
        self.tell(told);
    }

    pub(super) fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        let told = self.waiters.poll(self.now);
        self.tell(told);
    }

    pub(super) fn unanswered(&mut self, index: Index, ran: bool) {
        let releases =
            |sent: &&usize| !matches!(self.sent[**sent], Sent::Try(_) | Sent::Release(_, None));
        let releases: Vec<_> = (0..self.sent.len()).filter(|at| releases(&at)).collect();
        if releases.is_empty() {
            return;
        }
        // All is sent again, on another connection.
        match self.sent.remove(releases[index.index(releases.len())]) {
            Sent::Release(by, ticket) => {
                self.sent.push(Sent::Release(by, None));
                let told =
                    ticket.map(|_| self.waiters.answered(&self.place, ticket, None, self.now));
                self.tell(told.unwrap_or_default());
            }
            Sent::HandOver { from, to } => {
                if ran {
                    self.holder = self
                        .holder
                        .map(|holder| if holder == from { to } else { holder });
                }
                self.sent.extend([Sent::Release(from, None), Sent::Try(to)]);
            }
            Sent::Try(_) => {}
        }
        let told = self.waiters.missed();
        self.tell(told);
    }

    pub(super) fn step(&mut self, step: Step) {
        fn take<T>(from: &mut Vec<T>, index: Index) -> Option<T> {
            (!from.is_empty()).then(|| from.remove(index.index(from.len())))
        }
        match step {
            Step::Join => drop(self.join()),
            Step::Try(index) => {
                if let Some(told) = take(&mut self.told, index) {
                    self.begin(told);
                }
            }
            Step::Run(index) => {
                if let Some(sent) = take(&mut self.sent, index) {
                    self.run(sent);
                }
            }
            Step::Answer(index) => {
                if let Some(answer) = take(&mut self.answers, index) {
                    self.answer(answer);
                }
            }
            Step::Message => self.message(),
            Step::Release => {
                if let Some(holder) = self.holders.pop() {
                    self.release(holder);
                }
            }
            Step::Leave(index) => {
                if let Some((owner, _)) = take(&mut self.present.clone(), index) {
                    self.leave(owner, false);
                }
            }
            Step::Other if self.holder == Some(OTHER) => self.publish(),
            Step::Other if self.holder.is_none() => self.holder = Some(OTHER),
            Step::Other => {}
            Step::Force if self.holder.is_some() => self.publish(),
            Step::Force => {}
            Step::Missed => self.missed(),
            Step::Unanswered(index, ran) => self.unanswered(index, ran),
            Step::Withdraw(index) => self.withdraw(|count| index.index(count)),
            Step::Pass(millis) => self.pass(millis),
            Step::Settle => self.settle(),
        }
    }

    /// All that is under way arrives, and a rest ends; nobody else does anything any more.
    pub(super) fn settle(&mut self) {
        loop {
            if let Some(told) = self.told.pop() {
                self.begin(told);
            } else if !self.sent.is_empty() {
                let sent = self.sent.remove(0);
                self.run(sent);
            } else if !self.answers.is_empty() {
                let answer = self.answers.remove(0);
                self.answer(answer);
            } else if self.messages > 0 {
                self.message();
            } else if let Some(end) = self.end_of_rest() {
                self.now = self.now.max(end);
                let told = self.waiters.poll(self.now);
                self.tell(told);
            } else {
                return;
            }
        }
    }

    /// No yield lasts longer than this.
    fn end_of_rest(&self) -> Option<Instant> {
        let next = self.waiters.next_poll();
        next.filter(|next| *next <= self.now + Duration::from_millis(100))
    }
}
