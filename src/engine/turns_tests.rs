//! What becomes of hand-overs in any order, and in those that were wrong once.

use proptest::prelude::*;

use super::{model::*, *};

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
            model.release_alone(holder);
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
    // What another one has is asked for, by one of those who come together.
    model.publish();
    model.holder = Some(OTHER);
    model.message();
    model.settle();
    let before = model.tries;
    model.join();
    assert_eq!(model.tries, before);
    model.now += ASKED_WAIT;
    model.join();
    model.join();
    assert_eq!(model.tries, before + 1);
    // Or by everybody, once it may be free.
    model.publish();
    model.message();
    model.join();
    assert_eq!(model.tries, before + 2);
}

/// How many of us have the lock in a row, each for so long, before it is left free.
fn in_a_row(model: &mut Model, most: u32, each: Duration) -> u32 {
    for count in 0..most {
        model.now += each;
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

/// As long as a yield at first.
const HALF: Duration = Duration::from_micros(500);

#[test]
fn other_clients_have_a_turn_when_a_row_has_lasted_four_yields() {
    for waiting in [1, 5, 16, 64] {
        let mut model = contended(waiting);
        let begun = model.now;
        // The first has been already, and was heard.
        let most = in_a_row(&mut model, 100, HALF / 2);
        assert_eq!((most, model.now - begun), (7, 4 * HALF), "{waiting} wait");
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
        in_a_row(&mut model, 100, HALF / 2);
        model.settle();
        assert_eq!(model.holders.len(), 1, "or time does");
    }
}

/// One who has the lock releases it, and the heir tries: what is sent has not been run.
fn handed_over(waiting: u32) -> (Model, Owner) {
    let mut model = contended(waiting);
    let holder = model.holders.pop().unwrap();
    model.release_alone(holder);
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
    model.release_alone(holder);
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

/// The echo has been absorbed before it tried: what comes now is about its own hold.
#[test]
fn another_message_is_not_taken_for_an_heirs_echo() {
    let mut model = contended(1);
    let holder = model.holders.pop().unwrap();
    model.release_alone(holder);
    let release = model.sent.remove(0);
    model.run(release);
    model.message();
    let heir = model.told.pop().unwrap();
    model.begin(heir);
    let granted = model.sent.remove(0);
    model.run(granted);
    // Time for newcomers to ask for themselves.
    model.now += HEIR_WAIT;
    model.join();
    let refused = model.sent.remove(0);
    model.run(refused);
    model.step(Step::Force);
    model.message();
    somebody_gets_in(model);
}

/// Where answers and messages take longer than an echo is waited for, others get their turns as well.
#[test]
fn echoes_that_take_long_let_others_have_their_turns() {
    let mut model = contended(16);
    let mut in_a_row = 0;
    loop {
        let holder = model.holders.pop().expect("one of us was let in");
        model.release_alone(holder);
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
    model.release_alone(first);
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
            model.release_alone(second);
        }
    }
    model.message();
    model.settle();
    model.step(Step::Force);
    somebody_gets_in(model);
}

#[test]
fn a_lock_is_handed_over_by_one_operation_and_nobody_else_is_told() {
    let mut model = contended(8);
    let before = model.tries;
    for _ in 0..8 {
        let holder = model.holders.pop().unwrap();
        model.release(holder);
        let told = model.told.pop().unwrap();
        assert!(model.told.is_empty(), "one is told");
        model.begin(told);
        let sent = model.sent.pop().unwrap();
        assert!(matches!(sent, Sent::HandOver { .. }) && model.sent.is_empty());
        model.run(sent);
        assert_eq!((model.messages, model.holder), (0, Some(told)));
        model.settle();
        assert_eq!(model.holders, [told]);
    }
    assert_eq!(model.tries - before, 8);
}

#[test]
fn an_offer_that_is_withdrawn_or_declined_is_a_release() {
    for taken in [false, true] {
        let mut model = contended(2);
        let holder = model.holders.pop().unwrap();
        model.release(holder);
        if taken {
            let told = model.told.pop().unwrap();
            model.begin(told);
        }
        model.withdraw(|_| 0);
        somebody_gets_in(model);
    }
    let mut model = contended(2);
    let holder = model.holders.pop().unwrap();
    model.release(holder);
    let told = model.told[0];
    model.leave(told, false);
    somebody_gets_in(model);
}

fn published(turns: &mut Turns, waiting: usize, others: bool, due: bool, now: Instant) -> bool {
    let (ticket, turn) = turns.released(waiting, due, now);
    let left_until = (others && due).then_some(now + HALF);
    turns.answered(ticket, Some(Published { others, left_until }), now);
    turn == Turn::Ours
}

/// A hand-over that nobody hears of would be one for ever where nobody else is known to listen.
#[test]
fn others_are_looked_for_every_few_turns() {
    let now = Instant::now();
    for (waiting, most) in [(1, 1), (3, 3), (16, MOST_UNHEARD), (64, MOST_UNHEARD)] {
        let mut turns = Turns::default();
        let silent = |turns: &mut Turns, due| {
            let count = (0..=64).take_while(|_| turns.hands_over(waiting, due, now));
            count.count() as u32
        };
        assert_eq!(silent(&mut turns, false), 0, "who may listen already?");
        for _ in 0..4 {
            assert!(published(&mut turns, waiting, false, true, now));
            assert_eq!(silent(&mut turns, true), most);
        }
        // Somebody is there.
        assert!(published(&mut turns, waiting, true, false, now));
        assert_eq!(silent(&mut turns, true), 0, "a yield is due");
        assert!(!published(&mut turns, waiting, true, true, now));
        assert_eq!(silent(&mut turns, false), 0, "it is left to others");
        turns.not_ours();
        // All of the row is ours, without a message.
        assert_eq!(silent(&mut turns, false), 65);
        assert!(!published(&mut turns, waiting, false, true, now));
        turns.not_ours();
        // Nobody listens any more.
        assert_eq!(silent(&mut turns, true), most);
        assert!(published(&mut turns, waiting, false, true, now));
        // Messages may have been missed.
        turns.forget();
        assert_eq!(silent(&mut turns, false), 0);
    }
}

/// Though it is released then, one of ours may be there again before the others.
#[test]
fn a_row_ends_whatever_becomes_of_its_offers() {
    let (mut turns, now) = (Turns::default(), Instant::now());
    assert!(published(&mut turns, 4, true, false, now));
    assert!(turns.hands_over(4, false, now));
    turns.heir_is(WaiterId(0));
    turns.not_taken();
    // Another one of ours was quicker.
    turns.refused(WaiterId(0));
    turns.taken(now + REST);
    assert!(!turns.hands_over(4, true, now));
    assert!(
        !published(&mut turns, 4, true, true, now),
        "others have their turn"
    );
    assert!(
        !turns.hands_over(4, true, now),
        "whoever of us got in meanwhile"
    );
}

#[test]
fn what_the_server_refuses_is_not_offered_until_there_may_be_another_server() {
    let (mut turns, now) = (Turns::default(), Instant::now());
    let offers = |turns: &mut Turns| {
        turns.released(4, false, now);
        turns.hands_over(4, false, now)
    };
    assert!(offers(&mut turns));
    turns.cannot_offer();
    assert!(!offers(&mut turns));
    turns.forget();
    assert!(!offers(&mut turns));
    turns.missed();
    assert!(offers(&mut turns));
}

/// Those who ask without listening have a turn at last.
#[test]
fn unheard_hand_overs_end() {
    let (mut turns, now) = (Turns::default(), Instant::now());
    let most = (0..2 * MOST_UNSEEN).take_while(|_| {
        turns.hands_over(16, true, now) || published(&mut turns, 4, false, true, now)
    });
    assert_eq!(most.count() as u32, MOST_UNSEEN);
}
