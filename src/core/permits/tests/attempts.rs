//! Callers that go, and the table of attempts.

use super::{
    super::{
        facts::{Answer, Ask, Effects, Facts, Request},
        queue::Outcome,
    },
    BACK, DOUBT, ONE, Rig, TWO,
};

// Callers that go.

#[test]
fn an_attempt_that_was_not_sent_goes_with_its_caller() {
    let mut rig = Rig::new();
    let facts = Facts {
        now: rig.now,
        limits: &rig.limits,
    };
    let ask = Ask {
        permits: 1,
        waits: true,
    };
    let mut out = Effects::default();
    let first = rig.pool.enter(&facts, ask, &mut out);
    rig.pool.leave(&facts, first, &mut out);
    let _second = rig.pool.enter(&facts, ask, &mut out);
    let [stale, key] = out.send[..] else {
        panic!("{:?}", out.send);
    };
    assert_eq!(stale.slot, key.slot, "the result key is used again");
    let mut out = Effects::default();
    assert_eq!(rig.pool.build(&facts, stale, &mut out), None);
    assert_eq!(rig.pool.build(&facts, key, &mut out), Some(ONE));
}

#[test]
fn permits_of_a_caller_that_has_gone_pass_on_or_are_released() {
    let mut rig = Rig::new();
    let gone = rig.enter(2, true);
    let attempt = rig.sends(TWO);
    rig.leave(gone);
    let key = rig.enter(1, true);
    let refused = rig.sends(ONE);
    rig.answer(refused, Answer::Busy { left: 0 });
    rig.answer(attempt, Answer::Done { left: 0 });
    rig.taken(key);
    rig.sends(BACK);
}

#[test]
fn permits_that_a_leaving_caller_was_given_are_released() {
    let mut rig = Rig::new();
    let key = rig.enter(1, true);
    let attempt = rig.sends(ONE);
    rig.answer(attempt, Answer::Done { left: 0 });
    rig.leave(key);
    rig.sends(BACK);
}

// The table of attempts.

#[test]
fn a_caller_that_only_tries_has_its_outcome() {
    let mut rig = Rig::new();
    let key = rig.enter(1, false);
    let attempt = rig.sends(ONE);
    rig.answer(attempt, Answer::Busy { left: 0 });
    assert_eq!(rig.poll(key), Some(Outcome::Busy));
}

#[test]
fn an_attempt_without_an_answer_is_repeated() {
    let mut rig = Rig::new();
    let key = rig.enter(1, true);
    let attempt = rig.sends(ONE);
    rig.answer(attempt, Answer::Unanswered);
    assert_eq!(rig.sends(ONE), attempt, "by the same number");
    rig.answer(attempt, Answer::Done { left: 0 });
    rig.taken(key);
}

#[test]
fn an_acquisition_in_doubt_is_repeated_without_its_caller_and_its_permits_released() {
    let mut rig = Rig::new();
    let key = rig.enter(1, true);
    let attempt = rig.sends(ONE);
    rig.leave(key);
    rig.answer(attempt, Answer::Unanswered);
    assert_eq!(rig.sends(ONE), attempt);
    rig.answer(attempt, Answer::Done { left: 0 });
    let released = rig.sends(BACK);
    rig.answer(released, Answer::Unanswered);
    assert_eq!(rig.sends(BACK), released);
}

#[test]
fn a_refused_acquisition_fails_its_caller() {
    let mut rig = Rig::new();
    let key = rig.enter(1, true);
    let attempt = rig.sends(ONE);
    rig.answer(attempt, Answer::Refused);
    assert_eq!(rig.poll(key), Some(Outcome::Refused));
    assert!(rig.pool.is_idle());
}

#[test]
fn a_refused_acquisition_in_doubt_goes_on_after_a_pause() {
    let mut rig = Rig::new();
    let key = rig.enter(1, true);
    let attempt = rig.sends(ONE);
    rig.answer(attempt, Answer::Unanswered);
    rig.sends(ONE);
    rig.answer(attempt, Answer::Refused);
    assert_eq!(rig.poll(key), Some(Outcome::Refused));
    rig.sends_nothing();
    rig.pass(rig.limits.pause);
    assert_eq!(rig.sends(ONE), attempt);
}

#[test]
fn a_refused_release_goes_on_after_each_pause() {
    let mut rig = Rig::new();
    let grant = rig.hold(1, 0);
    let waiter = rig.end(grant);
    for _ in 0..3 {
        let attempt = rig.sends(BACK);
        rig.answer(attempt, Answer::Refused);
        assert_eq!(rig.poll(waiter), None);
        rig.pass(rig.limits.pause);
    }
    rig.pass(DOUBT);
    rig.sends(BACK);
    assert_eq!(rig.forgotten, 0, "none of the sendings was in doubt");
}

#[test]
fn a_doubt_ends_after_its_time() {
    let mut rig = Rig::new();
    let grant = rig.hold(2, 0);
    let waiter = rig.end(grant);
    let attempt = rig.sends(Request::Release { permits: 2 });
    rig.pass(DOUBT / 2);
    rig.answer(attempt, Answer::Unanswered);
    rig.sends(Request::Release { permits: 2 });
    rig.answer(attempt, Answer::Refused);
    rig.pass(DOUBT / 2);
    rig.sends_nothing();
    assert_eq!(rig.poll(waiter), Some(Outcome::Unknown));
    assert_eq!(rig.forgotten, 2);
    assert!(rig.pool.is_idle());
}

#[test]
fn a_sending_under_way_is_waited_for_beyond_the_longest_doubt() {
    let mut rig = Rig::new();
    let key = rig.enter(1, true);
    let attempt = rig.sends(ONE);
    rig.answer(attempt, Answer::Unanswered);
    rig.sends(ONE);
    rig.pass(DOUBT);
    rig.answer(attempt, Answer::Done { left: 0 });
    rig.taken(key);
    assert_eq!(rig.forgotten, 0);
}
