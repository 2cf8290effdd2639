//! Extensions: a renewal that keeps a hold for as long as a caller asks.

use super::*;

const LONGER: Duration = Duration::from_secs(90);

fn extend(rig: &mut Rig, hold: HoldKey, owner: Owner) -> Option<WaiterKey> {
    let key = rig.event(|machine, facts, out| machine.extend(facts, hold, LONGER, out))?;
    assert_eq!(rig.poll(key, owner), None);
    Some(key)
}

/// `A` has the lock and extends its hold.
fn extending() -> (Rig, HoldKey, WaiterKey) {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let key = extend(&mut rig, hold, A).expect("A has the lock");
    rig.sends(A, Request::Renew { lease: LONGER });
    (rig, hold, key)
}

fn valid_until(rig: &Rig) -> Option<Time> {
    rig.machine.tenure().map(|tenure| tenure.valid_until)
}

#[test]
fn an_extension_prolongs_the_validity_by_its_answer() {
    let (mut rig, _, key) = extending();
    let sent = rig.now;
    rig.pass(Duration::from_secs(1));
    assert_eq!(valid_until(&rig), Some(sent + (LEASE - DRIFT)));
    rig.answer(A, Answer::Done);
    assert_eq!(rig.poll(key, A), Some(Outcome::Extended));
    assert_eq!(
        valid_until(&rig),
        Some(rig.limits.validity(sent, LONGER)),
        "counted from the sending"
    );
}

#[test]
fn an_extension_is_repeated_until_it_is_answered() {
    for answer in [Answer::Unanswered, Answer::Passing] {
        let (mut rig, _, key) = extending();
        rig.answer(A, answer);
        if answer == Answer::Passing {
            rig.sends_nothing();
            rig.pass(rig.limits.retry);
            rig.event(|machine, facts, out| machine.tick(facts, out));
        }
        rig.sends(A, Request::Renew { lease: LONGER });
        rig.answer(A, Answer::Done);
        assert_eq!(rig.poll(key, A), Some(Outcome::Extended));
    }
}

#[test]
fn an_extension_ends_with_its_hold_or_a_refusal() {
    for (answer, outcome) in [
        (Answer::Absent, Outcome::Lost),
        (Answer::Refused, Outcome::Refused),
    ] {
        let (mut rig, _, key) = extending();
        rig.answer(A, answer);
        assert_eq!(rig.poll(key, A), Some(outcome));
    }
    let (mut rig, hold, key) = extending();
    rig.pass(LEASE - DRIFT);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    assert_eq!(rig.poll(key, A), Some(Outcome::Lost));
    assert_eq!(extend(&mut rig, hold, A), None);
}

#[test]
fn a_late_answer_is_for_no_other_caller() {
    let (mut rig, _, key) = extending();
    rig.pass(LEASE - DRIFT);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    assert_eq!(rig.poll(key, A), Some(Outcome::Lost));
    // It has the record of the caller that has its outcome.
    let other = rig.lock(B);
    assert_eq!(other, key);
    rig.answer(A, Answer::Done);
    assert_eq!(rig.state(other), State::Asking);
}

#[test]
fn an_extended_hold_is_renewed_and_kept() {
    let (mut rig, _, _) = extending();
    rig.answer(A, Answer::Done);
    let sent = rig.now;
    rig.pass(LEASE);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    let left = rig.limits.validity(sent, LONGER).left(rig.now);
    let lease = left + rig.limits.drift(LONGER);
    rig.sends(A, Request::Renew { lease });
}

#[test]
fn an_extended_hold_passes_to_no_other_owner() {
    for is_answered in [true, false] {
        let (mut rig, hold, key) = extending();
        rig.lock(B);
        if is_answered {
            rig.answer(A, Answer::Done);
            rig.poll(key, A);
        } else {
            rig.event(|machine, facts, out| machine.leave(facts, key, out));
        }
        assert_eq!(rig.end(hold).0, Ended::Pending);
    }
}

#[test]
fn a_release_of_an_extended_hold_leaves_the_lease_of_the_outer_one() {
    let mut rig = Rig::new();
    rig.hold(A);
    let inner = rig.hold(A);
    extend(&mut rig, inner, A);
    rig.answer(A, Answer::Done);
    rig.sent.clear();
    rig.end(inner);
    let rest = Request::Release {
        holds: 1,
        lease: LEASE,
    };
    rig.sends(A, rest);
}
