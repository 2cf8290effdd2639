//! Walks the tables row by row.

use std::time::Duration;

use super::{
    super::{keys::WaiterKey, time::Time},
    Answer, Effects, Facts, Latch, Mark, Message, Outcome,
};

const POLL: Duration = Duration::from_secs(5);

/// A machine whose looks leave at once. The test plays the server.
struct Rig {
    latch: Latch<WaiterKey>,
    facts: Facts,
    /// The looks since the last one asked for.
    looks: Vec<Mark>,
    woken: usize,
    listens: bool,
}

impl Rig {
    fn new() -> Self {
        Self {
            latch: Latch::default(),
            facts: Facts {
                now: Time::from_nanos(1_000_000_000),
                poll: POLL,
            },
            looks: Vec::new(),
            woken: 0,
            listens: false,
        }
    }

    fn event<R>(
        &mut self,
        event: impl FnOnce(&mut Latch<WaiterKey>, &Facts, &mut Effects<WaiterKey>) -> R,
    ) -> R {
        let mut out = Effects::default();
        let result = event(&mut self.latch, &self.facts, &mut out);
        assert_eq!(self.latch.broken(&self.facts), None);
        self.woken += out.wake.len();
        self.listens = out.listen.unwrap_or(self.listens);
        out.look.into_iter().for_each(|mark| self.build(mark));
        result
    }

    fn build(&mut self, mark: Mark) {
        if self.event(|latch, facts, out| latch.build(facts, mark, out)) {
            self.looks.push(mark);
        }
    }

    fn enter(&mut self, waits: bool) -> WaiterKey {
        let key = self.event(|latch, facts, out| latch.enter(facts, waits, out));
        assert_eq!(self.poll(key), None);
        key
    }

    fn poll(&mut self, key: WaiterKey) -> Option<Outcome> {
        self.event(|latch, facts, out| latch.take(facts, key, key, out))
    }

    #[track_caller]
    fn looks(&mut self) -> Mark {
        match std::mem::take(&mut self.looks)[..] {
            [mark] => mark,
            ref looks => panic!("{looks:?}"),
        }
    }

    #[track_caller]
    fn looks_no_more(&self) {
        assert_eq!(self.looks, []);
    }

    fn answer(&mut self, answer: Answer) {
        self.event(|latch, facts, out| latch.answer(facts, answer, out));
    }

    fn message(&mut self, message: Message) {
        self.event(|latch, facts, out| latch.message(facts, message, out));
    }

    /// A caller that was told on a confirmed channel that the latch is closed, and the mark of its last look.
    #[track_caller]
    fn parked(&mut self) -> (WaiterKey, Mark) {
        let key = self.enter(true);
        assert!(self.listens);
        self.looks();
        self.answer(Answer::Closed);
        self.event(|latch, facts, out| latch.subscribed(facts, out));
        let mark = self.looks();
        self.answer(Answer::Closed);
        self.looks_no_more();
        (key, mark)
    }
}

#[test]
fn an_open_latch_takes_one_look() {
    let mut rig = Rig::new();
    let key = rig.enter(true);
    rig.looks();
    rig.answer(Answer::Open);
    assert_eq!(rig.woken, 1);
    assert_eq!(rig.poll(key), Some(Outcome::Open));
    rig.event(|latch, facts, out| latch.subscribed(facts, out));
    assert!(!rig.listens && rig.latch.is_idle());
}

#[test]
fn a_caller_that_only_tries_has_its_outcome() {
    let mut rig = Rig::new();
    let key = rig.enter(false);
    rig.looks();
    rig.answer(Answer::Closed);
    assert_eq!(rig.poll(key), Some(Outcome::Closed));
    assert!(!rig.listens);
}

// K1: a caller is new.

#[test]
fn a_look_answers_callers_that_came_before_it() {
    let mut rig = Rig::new();
    let first = rig.enter(true);
    rig.looks();
    let later = rig.enter(true);
    rig.looks_no_more();
    rig.answer(Answer::Open);
    assert_eq!(rig.poll(first), Some(Outcome::Open));
    assert_eq!(rig.poll(later), None, "the latch was open before it came");
    rig.looks();
    rig.answer(Answer::Closed);
    assert_eq!(rig.poll(later), None);
}

#[test]
fn a_look_without_an_answer_is_repeated() {
    let mut rig = Rig::new();
    let key = rig.enter(true);
    rig.looks();
    rig.answer(Answer::Unanswered);
    rig.looks();
    rig.answer(Answer::Open);
    assert_eq!(rig.poll(key), Some(Outcome::Open));
}

#[test]
fn a_look_without_callers_is_not_sent() {
    let mut rig = Rig::new();
    let mut out = Effects::default();
    let key = rig.latch.enter(&rig.facts, false, &mut out);
    let mark = out.look.expect("a look is due");
    rig.latch.leave(&rig.facts, key, &mut Effects::default());
    assert!(!rig.latch.build(&rig.facts, mark, &mut Effects::default()));
    assert!(rig.latch.is_idle());
}

#[test]
fn a_refusal_is_an_outcome() {
    let mut rig = Rig::new();
    let (parked, _) = rig.parked();
    let asking = rig.enter(true);
    rig.looks();
    rig.answer(Answer::Refused);
    assert_eq!(rig.poll(asking), Some(Outcome::Refused));
    assert_eq!(rig.poll(parked), Some(Outcome::Refused));
    rig.looks_no_more();
}

// K2: whether the latch is closed is not sure.

#[test]
fn a_subscription_and_a_reconnection_take_a_look() {
    let mut rig = Rig::new();
    rig.parked();
    rig.event(|latch, facts, out| latch.reconnected(facts, out));
    rig.looks();
}

#[test]
fn the_poll_interval_takes_a_look() {
    let mut rig = Rig::new();
    rig.parked();
    assert_eq!(rig.latch.look_at(), Some(rig.facts.now + POLL));
    rig.facts.now = rig.facts.now + POLL;
    rig.event(|latch, facts, out| latch.tick(facts, out));
    rig.looks();
}

#[test]
fn an_answer_that_may_be_older_than_the_opening_takes_another_look() {
    let mut rig = Rig::new();
    let (key, _) = rig.parked();
    rig.message(Message::Opening);
    rig.looks();
    rig.message(Message::Opening);
    rig.answer(Answer::Closed);
    rig.looks();
    rig.answer(Answer::Open);
    assert_eq!(rig.poll(key), Some(Outcome::Open));
}

// Marks.

#[test]
fn an_opening_after_the_mark_ends_the_wait_although_the_latch_is_closed_again() {
    let mut rig = Rig::new();
    let (key, mark) = rig.parked();
    rig.message(Message::Mark(mark));
    rig.message(Message::Opening);
    assert_eq!(rig.poll(key), Some(Outcome::Open));
}

#[test]
fn an_opening_before_the_mark_takes_a_look() {
    let mut rig = Rig::new();
    let (key, mark) = rig.parked();
    rig.message(Message::Opening);
    assert_eq!(
        rig.poll(key),
        None,
        "the opening may have come before the caller"
    );
    rig.looks();
    rig.message(Message::Mark(mark));
    rig.answer(Answer::Closed);
    rig.looks_no_more();
    rig.message(Message::Opening);
    assert_eq!(rig.poll(key), Some(Outcome::Open));
}

#[test]
fn a_mark_of_an_earlier_look_tells_nothing() {
    let mut rig = Rig::new();
    let (first, mark) = rig.parked();
    let later = rig.enter(true);
    rig.looks();
    rig.message(Message::Mark(mark));
    rig.message(Message::Opening);
    assert_eq!(rig.poll(first), Some(Outcome::Open));
    assert_eq!(rig.poll(later), None);
}
