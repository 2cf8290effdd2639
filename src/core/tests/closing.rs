//! The end of a client.

use super::*;

fn close(rig: &mut Rig) {
    rig.is_open = false;
    rig.event(|machine, facts, out| machine.close(facts, out));
}

fn finish(rig: &mut Rig, releases: bool) {
    assert!(rig.machine.is_settled());
    rig.event(|machine, facts, out| machine.finish(facts, releases, out));
}

#[test]
fn callers_are_told_and_a_late_grant_is_released() {
    let mut rig = Rig::new();
    let (first, second) = (rig.lock(A), rig.lock(B));
    rig.sends(A, acquire(1));
    close(&mut rig);
    assert_eq!(rig.woken, [A, B]);
    let late = rig.event(|machine, facts, out| {
        let ask = Ask {
            owner: B,
            terms: Terms::Watched,
            waits: true,
        };
        machine.enter(facts, ask, out)
    });
    for (key, owner) in [(first, A), (second, B), (late, B)] {
        assert_eq!(rig.poll(key, owner), Some(Outcome::Closed));
    }
    assert!(!rig.machine.is_settled());
    rig.answer(A, Answer::Done);
    rig.sends(A, FREE);
    rig.answer(A, Answer::Done);
    assert!(rig.machine.is_settled());
}

#[test]
fn a_hold_that_is_not_taken_is_released() {
    let mut rig = Rig::new();
    let key = rig.lock(A);
    rig.sends(A, acquire(1));
    rig.answer(A, Answer::Done);
    close(&mut rig);
    rig.sends(A, FREE);
    assert_eq!(rig.poll(key, A), Some(Outcome::Closed));
}

#[test]
fn a_caller_that_was_late_for_its_hold_is_told() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let late = rig.lock(B);
    rig.end(hold);
    rig.pass(rig.limits.pick_up);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    assert_eq!(rig.state(late), State::Stalled);
    close(&mut rig);
    assert_eq!(rig.poll(late, B), Some(Outcome::Closed));
}

#[test]
fn holds_are_renewed_extended_and_released_until_the_end() {
    let mut rig = Rig::new();
    let (outer, inner) = (rig.hold(A), rig.hold(A));
    close(&mut rig);
    rig.sent.clear();
    rig.pass(LEASE / 3);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    rig.sends(A, Request::Renew { lease: LEASE });
    rig.answer(A, Answer::Done);
    let extending = rig.event(|machine, facts, out| machine.extend(facts, outer, LEASE * 2, out));
    rig.sends(A, Request::Renew { lease: LEASE * 2 });
    assert!(!rig.machine.is_settled());
    rig.answer(A, Answer::Done);
    assert_eq!(
        rig.poll(extending.expect("A has the lock"), A),
        Some(Outcome::Extended)
    );
    let (_, waiter) = rig.end(inner);
    rig.answer(A, Answer::Done);
    assert_eq!(
        rig.poll(waiter.expect("it is pending"), A),
        Some(Outcome::Released)
    );
}

#[test]
fn the_holds_that_are_left_are_released_or_kept_until_their_leases_end() {
    for releases in [true, false] {
        let mut rig = Rig::new();
        let hold = rig.hold(A);
        close(&mut rig);
        rig.sent.clear();
        finish(&mut rig, releases);
        assert_eq!(rig.end(hold), (Ended::Lost, None));
        if releases {
            rig.sends(A, FREE);
            rig.answer(A, Answer::Done);
        } else {
            rig.sends_nothing();
            assert_eq!(rig.most(A), 1, "the report");
            rig.pass(LEASE + DRIFT);
            rig.event(|machine, facts, out| machine.tick(facts, out));
        }
        assert_eq!(rig.most(A), 0);
        rig.sends_nothing();
    }
}

#[test]
fn the_place_of_a_caller_is_left() {
    let mut rig = Rig::new();
    rig.limits.is_fair = true;
    rig.lock(A);
    rig.answer(A, BUSY);
    rig.sent.clear();
    close(&mut rig);
    rig.sends(A, Request::Abandon);
    rig.answer(A, Answer::Done);
    assert!(rig.machine.is_settled());
}
