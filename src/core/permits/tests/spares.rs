//! P1 and P2: spare permits.

use super::{
    super::{
        facts::Answer,
        queue::{Outcome, State},
    },
    BACK, ONE, Rig,
};

#[test]
fn permits_pass_to_parked_callers_that_want_no_more() {
    let mut rig = Rig::new();
    let grant = rig.hold(4, 0);
    let [many, few, two] = [5, 1, 2].map(|permits| rig.parked(permits, 0));
    rig.sent.clear();
    let waiter = rig.end(grant);
    assert_eq!(rig.state(many), State::Parked);
    rig.taken(few);
    rig.taken(two);
    let attempt = rig.sends(BACK);
    rig.answer(attempt, Answer::Done { left: 1 });
    assert_eq!(rig.poll(waiter), Some(Outcome::Released));
}

#[test]
fn a_release_of_which_nothing_is_left_is_over_at_once() {
    let mut rig = Rig::new();
    let grant = rig.hold(1, 0);
    let key = rig.parked(1, 0);
    let waiter = rig.end(grant);
    assert_eq!(rig.poll(waiter), Some(Outcome::Released));
    rig.taken(key);
    rig.sends_nothing();
}

#[test]
fn permits_are_released_after_their_window() {
    let mut rig = Rig::new();
    let grant = rig.hold(1, 0);
    rig.parked(1, 0);
    rig.pass(rig.limits.window);
    rig.end(grant);
    rig.sends(BACK);
}

#[test]
fn permits_pass_on_within_the_window_of_their_grant_alone() {
    let mut rig = Rig::new();
    let grant = rig.hold(1, 0);
    let first = rig.parked(1, 0);
    rig.parked(1, 0);
    rig.end(grant);
    let grant = rig.taken(first);
    rig.pass(rig.limits.window);
    rig.end(grant);
    rig.sends(BACK);
}

#[test]
fn a_client_without_hand_offs_releases_all() {
    let mut rig = Rig::new();
    rig.limits.hands_off = false;
    let grant = rig.hold(1, 0);
    rig.parked(1, 0);
    rig.end(grant);
    rig.sends(BACK);
}

#[test]
fn permits_that_a_task_does_not_take_are_released() {
    let mut rig = Rig::new();
    let grant = rig.hold(1, 0);
    let late = rig.listening(1);
    rig.end(grant);
    rig.pass(rig.limits.pick_up);
    let attempt = rig.sends(BACK);
    assert_eq!(rig.state(late), State::Stalled);
    rig.answer(attempt, Answer::Done { left: 1 });
    rig.sends_nothing();
    assert_eq!(rig.poll(late), None);
    rig.sends(ONE);
}
