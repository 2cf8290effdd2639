//! The ends of holds beside each other.

use super::*;

fn tick(rig: &mut Rig) {
    rig.event(|machine, facts, out| machine.tick(facts, out));
}

#[test]
fn an_inner_release_starts_the_lease_of_the_outer_hold_anew() {
    let mut rig = Rig::new();
    let outer = rig.enter(A, Terms::Fixed(LEASE * 2), true);
    rig.answer(A, Answer::Done);
    rig.taken(outer, A);
    let inner = rig.hold(A);
    // The lease of the outer hold is over, and the inner one is renewed.
    for _ in 0..7 {
        rig.pass(LEASE / 3);
        tick(&mut rig);
        rig.sent.clear();
        rig.answer(A, Answer::Done);
    }
    rig.sent.clear();
    rig.end(inner);
    let anew = Request::Release {
        holds: 1,
        lease: LEASE * 2,
    };
    rig.sends(A, anew);
}

#[test]
fn a_late_grant_does_not_end_the_allowance_of_an_earlier_loss() {
    let mut rig = Rig::new();
    let (long, short) = (LEASE * 2, Duration::from_millis(10));
    let key = rig.enter(A, Terms::Fixed(long), true);
    rig.answer(A, Answer::Done);
    let lost = rig.taken(key, A);
    let allowance = rig.limits.drift(long);
    rig.pass(long - allowance);
    tick(&mut rig);
    assert_eq!(rig.end(lost), (Ended::Lost, None));
    let key = rig.enter(A, Terms::Fixed(short), true);
    rig.answer(A, Answer::Done);
    let again = rig.taken(key, A);
    rig.sent.clear();
    rig.pass(short);
    tick(&mut rig);
    assert_eq!(rig.end(again), (Ended::Lost, None));
    rig.sends_nothing();
    rig.pass(allowance);
    tick(&mut rig);
    rig.sends(A, FREE);
}

#[test]
fn a_refused_release_is_not_given_up_for_a_hold_that_has_ended_since() {
    let mut rig = Rig::new();
    let (outer, inner) = (rig.hold(A), rig.hold(A));
    rig.end(inner);
    rig.sent.clear();
    rig.end(outer);
    rig.answer(A, Answer::Refused);
    rig.sends(A, FREE);
}

#[test]
fn the_end_of_any_hold_asks_again_for_a_release_that_was_given_up() {
    let mut rig = Rig::new();
    let holds = [rig.hold(A), rig.hold(A), rig.hold(A)];
    rig.end(holds[2]);
    rig.answer(A, Answer::Refused);
    rig.sent.clear();
    rig.end(holds[1]);
    let rest = Request::Release {
        holds: 1,
        lease: LEASE,
    };
    rig.sends(A, rest);
}

#[test]
fn a_batch_without_a_request_derives_what_time_has_changed() {
    let mut rig = Rig::new();
    rig.hold(A);
    rig.lock(B);
    rig.pass(LEASE - DRIFT);
    rig.sent.clear();
    let gave_way = OpKey {
        field: A,
        version: 1,
        kind: super::super::keys::Kind::Renew,
    };
    rig.build(gave_way);
    rig.sends(B, acquire(1));
}

#[test]
fn time_alone_lets_no_owner_ask_beside_a_release_that_leaves_holds() {
    let mut rig = Rig::new();
    let outer = rig.hold(A);
    let inner = rig.enter(A, Terms::Fixed(LEASE * 2), true);
    rig.answer(A, Answer::Unanswered);
    rig.event(|machine, facts, out| machine.leave(facts, inner, out));
    rig.sent.clear();
    rig.answer(A, Answer::Unanswered);
    let rest = Request::Release {
        holds: 1,
        lease: LEASE,
    };
    rig.sends(A, rest);
    rig.end(outer);
    rig.lock(B);
    rig.lock(A);
    rig.sends_nothing();
    // From now on, what the caller of `A` wants would last as long as what is in doubt.
    rig.pass(LEASE * 3 / 2);
    tick(&mut rig);
    rig.sends_nothing();
}
