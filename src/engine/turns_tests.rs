//! The waiters of one process against a server that is modelled: what is sent is run in any order, answers arrive in
//! any order, and messages in the order in which they were published.

use proptest::{prelude::*, sample::Index};
use tokio::time::Instant;

use super::{super::waiters::*, *};
use crate::wire::{Place, Wire, message::Wake, sealed::Sealed};

fn place() -> Place {
    let wire: &dyn Wire = crate::Reentrant::WIRE;
    wire.place("a".into(), &crate::Config::default())
}

#[derive(Debug, Clone)]
enum Step {
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
    /// One who waits goes.
    Leave(Index),
    /// Another process takes the lock, or releases it.
    Other,
    /// Another process frees the lock, whoever holds it.
    Force,
    /// The connection of the messages breaks: those under way are lost.
    Missed,
    /// The connection of a release breaks, before or after the server ran it.
    Unanswered(Index),
    /// Time passes.
    Pass(u64),
    /// All that is under way arrives.
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<Index>;
    let step = prop_oneof![
        3 => Just(Step::Join),
        6 => index().prop_map(Step::Try),
        8 => index().prop_map(Step::Run),
        8 => index().prop_map(Step::Answer),
        6 => Just(Step::Message),
        6 => Just(Step::Release),
        1 => index().prop_map(Step::Leave),
        2 => Just(Step::Other),
        1 => Just(Step::Force),
        1 => Just(Step::Missed),
        1 => index().prop_map(Step::Unanswered),
        1 => prop_oneof![Just(1u64), Just(5), Just(150)].prop_map(Step::Pass),
        1 => Just(Step::Settle),
    ];
    prop::collection::vec(step, 0..120)
}

/// Who has the lock: a number of ours, or [`OTHER`].
type Owner = u32;
const OTHER: Owner = u32::MAX;

#[derive(Debug, Clone, Copy)]
enum Sent {
    Try(Owner),
    Release(Owner, Option<Ticket>),
}

#[derive(Debug, Clone, Copy)]
enum Answer {
    Tried { by: Owner, granted: bool },
    Released { ticket: Ticket, published: bool },
}

struct Model {
    waiters: Waiters<Owner>,
    place: Place,
    now: Instant,
    owners: Owner,
    /// Those who wait.
    present: Vec<(Owner, WaiterId)>,
    told: Vec<Owner>,
    sent: Vec<Sent>,
    answers: Vec<Answer>,
    /// Published, and not received yet.
    messages: u32,
    /// Who knows that it has the lock.
    holders: Vec<Owner>,
    /// Who has it.
    holder: Option<Owner>,
    tries: u32,
}

impl Model {
    fn new() -> Self {
        Self {
            waiters: Waiters::new(Duration::from_secs(5)),
            place: place(),
            now: Instant::now(),
            owners: 0,
            present: Vec::new(),
            told: Vec::new(),
            sent: Vec::new(),
            answers: Vec::new(),
            messages: 0,
            holders: Vec::new(),
            holder: None,
            tries: 0,
        }
    }

    fn id(&self, owner: Owner) -> Option<WaiterId> {
        let mut present = self.present.iter();
        present.find(|(of, _)| *of == owner).map(|(_, id)| *id)
    }

    fn join(&mut self) -> Owner {
        self.owners += 1;
        let owner = self.owners;
        match self.waiters.join_behind(&self.place, owner, self.now) {
            Some(id) => self.present.push((owner, id)),
            None => {
                let id = self.waiters.join(&self.place, owner);
                self.present.push((owner, id));
                self.begin(owner);
            }
        }
        owner
    }

    fn begin(&mut self, owner: Owner) {
        if let Some(id) = self.id(owner) {
            self.waiters.trying(&self.place, id);
            self.sent.push(Sent::Try(owner));
            self.tries += 1;
        }
    }

    fn tell(&mut self, told: Vec<Owner>) {
        self.told.extend(told);
    }

    fn publish(&mut self) {
        self.holder = None;
        self.messages += 1;
    }

    fn run(&mut self, sent: Sent) {
        match sent {
            Sent::Try(by) => {
                let granted = self.holder.is_none();
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
        }
    }

    fn answer(&mut self, answer: Answer) {
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
                    let until = self.now + Duration::from_secs(30);
                    self.waiters.taken(&self.place, until, self.now);
                    self.leave(by, true);
                    self.holders.push(by);
                    return;
                }
                let remaining = Some(Duration::from_secs(30));
                if self.waiters.refused(&self.place, id, remaining, self.now) == Rest::TryAgain {
                    self.begin(by);
                }
            }
            Answer::Released { ticket, published } => {
                let published = published.then_some(Published { others: true });
                let told = self
                    .waiters
                    .answered(&self.place, ticket, published, self.now);
                self.tell(told);
            }
        }
    }

    fn leave(&mut self, owner: Owner, granted: bool) {
        let Some(id) = self.id(owner) else { return };
        self.present.retain(|(of, _)| *of != owner);
        self.told.retain(|told| *told != owner);
        let (told, _) = self.waiters.leave(&self.place, id, granted);
        self.tell(told);
    }

    fn release(&mut self, owner: Owner) {
        let released = self.waiters.released(&self.place, self.now);
        let ticket = released.map(|(ticket, told)| {
            self.tell(told);
            ticket
        });
        self.sent.push(Sent::Release(owner, ticket));
    }

    fn message(&mut self) {
        if self.messages > 0 {
            self.messages -= 1;
            let channel = self.place.channel.clone();
            let told = self.waiters.message(&channel, Wake::One, self.now);
            self.tell(told);
        }
    }

    fn missed(&mut self) {
        self.messages = 0;
        let told = self.waiters.missed();
        self.tell(told);
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        let told = self.waiters.poll(self.now);
        self.tell(told);
    }

    fn unanswered(&mut self, index: Index) {
        let releases = self.sent.iter().enumerate();
        let releases: Vec<_> = releases
            .filter_map(|(at, sent)| match sent {
                Sent::Release(by, Some(ticket)) => Some((at, *by, *ticket)),
                _ => None,
            })
            .collect();
        if releases.is_empty() {
            return;
        }
        let (at, by, ticket) = releases[index.index(releases.len())];
        // It is sent again, on another connection.
        self.sent[at] = Sent::Release(by, None);
        let told = self.waiters.answered(&self.place, ticket, None, self.now);
        self.tell(told);
        let told = self.waiters.missed();
        self.tell(told);
    }

    fn step(&mut self, step: Step) {
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
            Step::Unanswered(index) => self.unanswered(index),
            Step::Pass(millis) => self.pass(millis),
            Step::Settle => self.settle(),
        }
    }

    /// All that is under way arrives, and a rest ends; nobody else does anything any more.
    fn settle(&mut self) {
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
            } else if self.rests() {
                self.pass(REST.as_millis() as u64);
            } else {
                return;
            }
        }
    }

    fn rests(&self) -> bool {
        let next = self.waiters.next_poll();
        next.is_some_and(|next| next <= self.now + REST)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Once all that was under way has arrived, a lock that somebody waits for is not free: without any poll.
    #[test]
    fn a_hand_over_loses_no_wake_up(steps in steps()) {
        let mut model = Model::new();
        for step in steps.into_iter().chain([Step::Settle]) {
            let settles = matches!(step, Step::Settle);
            model.step(step);
            prop_assert!(
                !settles || model.holder.is_some() || model.present.is_empty(),
                "free, and {:?} wait", model.present
            );
        }
    }
}

/// A model with that many waiters and one who has been handed the lock, and all quiet.
fn contended(waiting: u32) -> Model {
    let mut model = Model::new();
    for _ in 0..waiting + 2 {
        model.join();
        model.settle();
    }
    let first = model.holders.pop().unwrap();
    model.release(first);
    model.settle();
    assert_eq!(
        (model.holders.len(), model.present.len()),
        (1, waiting as usize)
    );
    model
}

#[test]
fn a_hand_over_costs_one_try_whatever_arrives_first() {
    for order in [["sent", "messages"], ["messages", "sent"]] {
        let mut model = contended(8);
        let before = model.tries;
        for _ in 0..8 {
            let holder = model.holders.pop().unwrap();
            model.release(holder);
            let told = model.told.pop().unwrap();
            model.begin(told);
            for sent in std::mem::take(&mut model.sent) {
                model.run(sent);
            }
            for what in order {
                match what {
                    "messages" => model.message(),
                    _ => {
                        for answer in std::mem::take(&mut model.answers) {
                            model.answer(answer);
                        }
                    }
                }
            }
            assert_eq!(model.holders.len(), 1);
            assert!(model.told.is_empty(), "one too many was told");
        }
        assert_eq!(model.tries - before, 8);
    }
}

#[test]
fn who_comes_while_one_of_us_has_it_waits_without_asking() {
    let mut model = contended(1);
    let before = model.tries;
    model.join();
    assert_eq!(model.tries, before);
    // What another one has is asked for.
    model.publish();
    model.holder = Some(OTHER);
    model.message();
    model.settle();
    let before = model.tries;
    model.join();
    assert_eq!(model.tries, before + 1);
}

/// How many of us have the lock in a row, before it is left free.
fn in_a_row(model: &mut Model, most: u32) -> u32 {
    for count in 0..most {
        let holder = model.holders.pop().unwrap();
        model.release(holder);
        // Those who have had it come again.
        model.join();
        if model.told.is_empty() {
            return count;
        }
        while let Some(told) = model.told.pop() {
            model.begin(told);
        }
        while !model.sent.is_empty() {
            let sent = model.sent.remove(0);
            model.run(sent);
        }
        while !model.answers.is_empty() {
            let answer = model.answers.remove(0);
            model.answer(answer);
        }
        while model.messages > 0 {
            model.message();
        }
    }
    most
}

#[test]
fn others_have_a_turn_after_as_many_of_ours_as_wait_here() {
    for waiting in [1, 5, 16, 64] {
        let mut model = contended(waiting);
        let most = (waiting + 1).min(MOST_IN_A_ROW);
        // The first has been already.
        assert_eq!(in_a_row(&mut model, 2 * most), most - 1);
        for sent in std::mem::take(&mut model.sent) {
            model.run(sent);
        }
        model.holder = Some(OTHER);
        model.message();
        let newcomer = model.tries;
        model.join();
        assert_eq!((model.told.len(), model.tries), (0, newcomer), "they rest");
        model.publish();
        model.message();
        assert_eq!(model.told.len(), 1, "the other one's message ends it");
        model.settle();
        let most = MOST_IN_A_ROW.min(model.present.len() as u32);
        assert_eq!(in_a_row(&mut model, 2 * most), most);
        model.settle();
        assert_eq!(model.holders.len(), 1, "or time does");
    }
}

/// One who has the lock releases it, and the heir tries: what is sent has not been run.
fn handed_over(waiting: u32) -> (Model, Owner) {
    let mut model = contended(waiting);
    let holder = model.holders.pop().unwrap();
    model.release(holder);
    let heir = model.told.pop().unwrap();
    model.begin(heir);
    (model, heir)
}

/// The server runs what was sent last before what was sent first.
fn run_backwards(model: &mut Model) {
    while let Some(sent) = model.sent.pop() {
        model.run(sent);
    }
}

fn somebody_gets_in(mut model: Model) {
    model.settle();
    assert!(model.holder.is_some(), "{:?} wait", model.present);
}

#[test]
fn a_try_that_overtakes_its_release_is_repeated() {
    let (mut model, _) = handed_over(2);
    run_backwards(&mut model);
    model.message();
    somebody_gets_in(model);
    let (mut model, _) = handed_over(2);
    run_backwards(&mut model);
    let refusal = model.answers.remove(0);
    model.answer(refusal);
    somebody_gets_in(model);
}

#[test]
fn who_is_told_by_an_heir_that_leaves_has_the_echo() {
    let (mut model, heir) = handed_over(3);
    model.leave(heir, false);
    let next = model.told.pop().unwrap();
    model.begin(next);
    run_backwards(&mut model);
    model.message();
    somebody_gets_in(model);
}

#[test]
fn what_a_release_that_published_nothing_absorbed_is_made_up_for() {
    let mut model = contended(2);
    // The hold was lost before, and nobody has heard of it.
    model.holder = None;
    let holder = model.holders.pop().unwrap();
    model.release(holder);
    let heir = model.told.pop().unwrap();
    model.begin(heir);
    for sent in std::mem::take(&mut model.sent) {
        model.run(sent);
    }
    let granted = model.answers.pop().unwrap();
    model.answer(granted);
    model.step(Step::Force);
    model.message();
    somebody_gets_in(model);
}

#[test]
fn an_echo_that_was_missed_stands_for_no_other_message() {
    let (mut model, _) = handed_over(2);
    let release = model.sent.remove(0);
    model.run(release);
    model.missed();
    model.settle();
    model.step(Step::Force);
    somebody_gets_in(model);
    // Nor does one that was lost without notice, for long.
    let (mut model, _) = handed_over(2);
    let release = model.sent.remove(0);
    model.run(release);
    model.messages = 0;
    model.settle();
    model.now += ECHO_WAIT;
    model.step(Step::Force);
    somebody_gets_in(model);
}

/// Where answers and messages take longer than an echo is waited for, others get their turns as well.
#[test]
fn echoes_that_take_long_let_others_have_their_turns() {
    let mut model = contended(16);
    let mut in_a_row = 0;
    loop {
        let holder = model.holders.pop().expect("one of us was let in");
        model.release(holder);
        model.join();
        let Some(heir) = model.told.pop() else {
            break;
        };
        in_a_row += 1;
        assert!(in_a_row <= 16, "nobody else has a turn");
        model.begin(heir);
        for sent in std::mem::take(&mut model.sent) {
            model.run(sent);
        }
        model.now += Duration::from_millis(120);
        model.settle();
    }
}

/// What is absorbed for a release that publishes nothing is missing for the next.
#[test]
fn a_release_that_published_nothing_leaves_no_echo_to_wait_for() {
    let mut model = contended(6);
    let first = model.holders.pop().expect("one of us has it");
    model.holder = None;
    model.release(first);
    for release in 0..2 {
        let heir = model.told.pop().expect("somebody is told");
        model.begin(heir);
        for sent in std::mem::take(&mut model.sent) {
            model.run(sent);
        }
        if release == 0 {
            // The heir has its answer before the release before it has.
            let granted = model.answers.pop().expect("the heir was answered");
            model.answer(granted);
            let second = model.holders.pop().expect("the heir was let in");
            model.release(second);
        }
    }
    model.message();
    model.settle();
    model.step(Step::Force);
    somebody_gets_in(model);
}
