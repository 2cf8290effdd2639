//! Passing refusals: the server has executed nothing, and the operation rests.

use super::*;

fn rest(rig: &mut Rig) {
    rig.sends_nothing();
    rig.pass(rig.limits.retry);
    rig.event(|machine, facts, out| machine.tick(facts, out));
}

#[test]
fn an_acquire_that_is_put_off_is_repeated_for_its_caller_and_leaves_no_belief() {
    for is_there in [true, false] {
        let mut rig = Rig::new();
        let key = rig.lock(A);
        rig.sends(A, acquire(1));
        rig.answer(A, Answer::Passing);
        assert_eq!(rig.most(A), 0);
        if !is_there {
            rig.event(|machine, facts, out| machine.leave(facts, key, out));
        }
        rest(&mut rig);
        match is_there {
            true => rig.sends(A, acquire(1)),
            false => rig.sends_nothing(),
        }
    }
}

#[test]
fn an_acquire_that_is_put_off_stays_in_doubt() {
    let mut rig = Rig::new();
    let key = rig.lock(A);
    rig.answer(A, Answer::Unanswered);
    rig.sent.clear();
    rig.answer(A, Answer::Passing);
    rig.event(|machine, facts, out| machine.leave(facts, key, out));
    rig.sends(A, FREE);
}

#[test]
fn a_release_that_is_put_off_keeps_its_caller_and_the_next_owner_waiting() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let (_, waiter) = rig.end(hold);
    rig.sends(A, FREE);
    rig.answer(A, Answer::Passing);
    rig.lock(B);
    rest(&mut rig);
    assert_eq!(std::mem::take(&mut rig.sent), [(A, FREE), (B, acquire(1))]);
    // The first sending was not executed: the lock was gone.
    rig.answer(A, Answer::Absent);
    let waiter = waiter.expect("the caller waits");
    assert_eq!(rig.poll(waiter, A), Some(Outcome::Lost));
}

#[test]
fn a_renewal_that_is_put_off_is_repeated_before_the_next_one() {
    let mut rig = Rig::new();
    rig.hold(A);
    rig.pass(LEASE / 3);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    let renewal = Request::Renew { lease: LEASE };
    rig.sends(A, renewal);
    rig.answer(A, Answer::Passing);
    let retry = rig.now + rig.limits.retry;
    assert_eq!(rig.look_at(), Some(retry));
    // A doubt does not hurry it.
    rig.event(|machine, facts, out| machine.message(facts, Channel::Lock, out));
    rest(&mut rig);
    rig.sends(A, renewal);
}

#[test]
fn a_renewal_goes_beside_an_acquire_that_is_put_off() {
    let mut rig = Rig::new();
    rig.hold(A);
    rig.lock(A);
    rig.sends(A, acquire(2));
    rig.pass(LEASE / 3);
    rig.answer(A, Answer::Passing);
    rig.sends(A, Request::Renew { lease: LEASE });
    rig.answer(A, Answer::Done);
    rest(&mut rig);
    rig.sends(A, acquire(2));
}

#[test]
fn the_next_message_after_a_release_that_is_not_executed_is_of_another_client() {
    for answer in [Answer::Passing, Answer::Refused] {
        let mut rig = Rig::new();
        let key = rig.lock(A);
        rig.answer(A, BUSY);
        rig.event(|machine, facts, out| machine.subscribed(facts, Channel::Lock, out));
        rig.answer(A, Answer::Done);
        let hold = rig.taken(key, A);
        rig.lock(B);
        rig.pass(rig.limits.window);
        rig.end(hold);
        let facts_now = rig.now;
        assert!(rig.machine.expects_echo(facts_now));
        rig.answer(A, answer);
        assert!(!rig.machine.expects_echo(facts_now), "{answer:?}");
    }
}
