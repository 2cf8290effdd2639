//! Fair locks: the places of owners in the server's queue.

use super::super::facts::Wait;
use super::*;

fn fair() -> Rig {
    let mut rig = Rig::new();
    rig.limits.is_fair = true;
    rig
}

fn ask(since_last: Duration, notify_head: bool) -> Request {
    Request::Acquire {
        holds: 1,
        lease: LEASE,
        wait: Some(Wait {
            since_last,
            notify_head,
        }),
    }
}

const FIRST: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A caller that is refused and parked.
#[track_caller]
fn parked(rig: &mut Rig, owner: Owner) -> WaiterKey {
    let key = rig.lock(owner);
    rig.sends(owner, ask(FIRST, true));
    rig.answer(owner, BUSY);
    assert!(matches!(rig.state(key), State::Parked { .. }));
    key
}

fn leave(rig: &mut Rig, key: WaiterKey) {
    rig.event(|machine, facts, out| machine.leave(facts, key, out));
}

#[test]
fn each_owner_asks_for_itself() {
    let mut rig = fair();
    let (first, second) = (rig.lock(A), rig.lock(B));
    assert_eq!(
        std::mem::take(&mut rig.sent),
        [(A, ask(FIRST, true)), (B, ask(FIRST, true))]
    );
    rig.answer(A, Answer::Done);
    rig.answer(B, BUSY);
    rig.taken(first, A);
    assert!(matches!(rig.state(second), State::Parked { .. }));
    assert_eq!(rig.listens, [(Channel::Of(B), true)]);
}

#[test]
fn tasks_of_one_owner_have_one_place() {
    let mut rig = fair();
    let first = parked(&mut rig, A);
    let second = rig.lock(A);
    rig.sends_nothing();
    leave(&mut rig, first);
    // The second one keeps the place.
    rig.sends(A, ask(SOON, false));
    rig.answer(A, BUSY);
    leave(&mut rig, second);
    rig.sends(A, Request::Abandon);
}

#[test]
fn the_hold_of_a_caller_that_left_goes_to_a_task_of_its_owner() {
    for next in [A, B] {
        let mut rig = fair();
        let gone = rig.lock(A);
        rig.sends(A, ask(FIRST, true));
        let next_key = rig.lock(next);
        rig.sent.clear();
        leave(&mut rig, gone);
        rig.answer(A, Answer::Done);
        if next == A {
            rig.taken(next_key, A);
            rig.sends_nothing();
        } else {
            rig.sends(A, FREE);
            assert_eq!(rig.state(next_key), State::Asking);
        }
    }
}

#[test]
fn a_task_with_a_lease_of_its_own_keeps_the_turn_of_its_owner() {
    let mut rig = fair();
    let gone = rig.lock(A);
    rig.sends(A, ask(FIRST, true));
    let next = rig.enter(A, Terms::Fixed(LEASE * 2), true);
    leave(&mut rig, gone);
    rig.answer(A, Answer::Done);
    let wait = Some(Wait {
        since_last: FIRST,
        notify_head: true,
    });
    let longer = Request::Acquire {
        holds: 1,
        lease: LEASE * 2,
        wait,
    };
    rig.sends(A, longer);
    rig.answer(A, Answer::Done);
    rig.taken(next, A);
    rig.sends_nothing();
}

#[test]
fn a_release_leaves_the_next_turn_to_the_server() {
    let mut rig = fair();
    let hold = rig.hold(A);
    let next = parked(&mut rig, B);
    rig.end(hold);
    rig.sends(A, FREE);
    rig.answer(A, Answer::Done);
    rig.sends_nothing();
    rig.pass(SECOND);
    rig.event(|machine, facts, out| machine.message(facts, Channel::Of(B), out));
    rig.sends(B, ask(SECOND, false));
    rig.answer(B, Answer::Done);
    rig.woken.retain(|owner| *owner == B);
    rig.taken(next, B);
}

#[test]
fn the_message_of_another_owner_wakes_no_waiter() {
    let mut rig = fair();
    parked(&mut rig, A);
    let other = parked(&mut rig, B);
    rig.event(|machine, facts, out| machine.message(facts, Channel::Of(A), out));
    rig.sends(A, ask(SOON, false));
    assert!(matches!(rig.state(other), State::Parked { .. }));
}

// The table of the place.

#[test]
fn an_ask_tells_the_time_since_the_last_one() {
    let mut rig = fair();
    parked(&mut rig, A);
    let poll = rig.limits.poll;
    for (pass, notify_head) in [(SECOND, false), (poll - SECOND, true), (SECOND, false)] {
        rig.pass(pass);
        rig.event(|machine, facts, out| machine.message(facts, Channel::Of(A), out));
        rig.sends(A, ask(pass, notify_head));
        rig.answer(A, BUSY);
    }
}

#[test]
fn a_reconnection_or_a_lost_answer_forgets_the_last_ask() {
    for is_lost in [true, false] {
        let mut rig = fair();
        parked(&mut rig, A);
        rig.pass(SECOND);
        if is_lost {
            rig.event(|machine, facts, out| machine.message(facts, Channel::Of(A), out));
            rig.sends(A, ask(SECOND, false));
            rig.answer(A, Answer::Unanswered);
        } else {
            rig.epoch += 1;
            rig.event(|machine, facts, out| machine.reconnected(facts, out));
        }
        rig.sends(A, ask(FIRST, false));
    }
}

#[test]
fn the_refusal_of_a_caller_that_left_counts_for_the_next_one() {
    let mut rig = fair();
    let first = rig.lock(A);
    rig.sends(A, ask(FIRST, true));
    rig.lock(A);
    leave(&mut rig, first);
    rig.pass(SECOND);
    rig.answer(A, BUSY);
    rig.sends(A, ask(SECOND, false));
}

#[test]
fn an_earlier_connection_tells_no_end_of_a_place() {
    let mut rig = fair();
    let key = parked(&mut rig, A);
    leave(&mut rig, key);
    for answers in [false, true] {
        rig.sends(A, Request::Abandon);
        rig.epoch += u32::from(!answers);
        rig.answer(A, Answer::Done);
    }
    rig.sends_nothing();
}

#[test]
fn a_place_is_left_until_the_server_answers() {
    let mut rig = fair();
    let key = parked(&mut rig, A);
    leave(&mut rig, key);
    rig.sends(A, Request::Abandon);
    rig.answer(A, Answer::Unanswered);
    rig.sends(A, Request::Abandon);
    rig.answer(A, Answer::Done);
    rig.sends_nothing();
    rig.event(|machine, facts, out| machine.subscribed(facts, Channel::Of(A), out));
    assert_eq!(
        rig.listens,
        [(Channel::Of(A), true), (Channel::Of(A), false)]
    );
    let _ = rig.machine.forget(0);
    assert_eq!(rig.machine, Machine::default(), "nothing is left");
}

#[test]
fn an_ask_in_doubt_is_released_and_its_place_left() {
    let mut rig = fair();
    let key = rig.lock(A);
    rig.sends(A, ask(FIRST, true));
    leave(&mut rig, key);
    rig.answer(A, Answer::Unanswered);
    rig.sends(A, FREE);
    rig.answer(A, Answer::Absent);
    rig.sends(A, Request::Abandon);
}

#[test]
fn a_grant_ends_the_place() {
    let mut rig = fair();
    let key = parked(&mut rig, A);
    rig.event(|machine, facts, out| machine.message(facts, Channel::Of(A), out));
    rig.answer(A, Answer::Done);
    let hold = rig.taken(key, A);
    rig.sent.clear();
    rig.end(hold);
    rig.sends(A, FREE);
    rig.answer(A, Answer::Done);
    rig.sends_nothing();
}

#[test]
fn a_caller_that_only_tries_takes_no_place() {
    let mut rig = fair();
    rig.enter(A, Terms::Watched, false);
    rig.sends(A, acquire(1));
    rig.answer(A, BUSY);
    rig.sends_nothing();
}

#[test]
fn an_ask_that_is_put_off_tells_the_same_wait() {
    let mut rig = fair();
    parked(&mut rig, A);
    let (poll, retry) = (rig.limits.poll, rig.limits.retry);
    rig.pass(poll);
    rig.event(|machine, facts, out| machine.message(facts, Channel::Of(A), out));
    rig.sends(A, ask(poll, true));
    rig.answer(A, Answer::Passing);
    rig.pass(retry);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    rig.sends(A, ask(poll + retry, true));
}

#[test]
fn a_place_whose_leaving_is_put_off_is_left_later() {
    let mut rig = fair();
    let key = parked(&mut rig, A);
    leave(&mut rig, key);
    rig.sends(A, Request::Abandon);
    rig.answer(A, Answer::Passing);
    rig.sends_nothing();
    rig.pass(rig.limits.retry);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    rig.sends(A, Request::Abandon);
}
