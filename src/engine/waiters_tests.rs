use proptest::prelude::*;

use super::*;
use crate::wire::{LockProtocol, sealed::Known};

const POLL_INTERVAL: Duration = Duration::from_secs(5);

fn spec(name: &str) -> Arc<LockSpec> {
    let wire: &dyn LockProtocol = crate::Reentrant::PROTOCOL;
    Arc::new(wire.spec(name.into(), &crate::Config::default()))
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// Joins, and is refused once: a parked waiter.
fn park(waiters: &mut Waiters<u32>, spec: &Arc<LockSpec>, signal: u32, now: Instant) -> WaiterId {
    let id = waiters.join(spec, signal);
    waiters.begin_attempt(spec, id);
    assert_eq!(
        waiters.record_refusal(spec, id, seconds(30), now),
        ParkDecision::Parked
    );
    id
}

#[test]
fn a_message_wakes_one_in_the_order_in_which_they_came_or_all() {
    let (mut waiters, spec, now) = (Waiters::new(POLL_INTERVAL, true), spec("a"), Instant::now());
    for signal in 1..=4 {
        park(&mut waiters, &spec, signal, now);
    }
    assert_eq!(waiters.handle_message(&spec.channel, Wake::One, now), [1]);
    assert_eq!(waiters.handle_message(&spec.channel, Wake::One, now), [2]);
    assert_eq!(
        waiters.handle_message(&spec.channel, Wake::All, now),
        [3, 4]
    );
    assert_eq!(
        waiters.handle_message(&"elsewhere".into(), Wake::All, now),
        [0; 0]
    );
}

#[test]
fn p_t9_names_that_share_a_channel_are_each_woken() {
    let (mut waiters, now) = (Waiters::new(POLL_INTERVAL, true), Instant::now());
    let (a, braced) = (spec("a"), spec("{a}"));
    assert_eq!(a.channel, braced.channel);
    park(&mut waiters, &a, 1, now);
    park(&mut waiters, &a, 2, now);
    let id = park(&mut waiters, &braced, 3, now);
    let mut woken = waiters.handle_message(&a.channel, Wake::One, now);
    woken.sort_unstable();
    assert_eq!(woken, [1, 3]);
    waiters.begin_attempt(&braced, id);
    assert_eq!(
        (
            waiters.leave(&braced, id, true, || true, now),
            waiters.take_unneeded()
        ),
        (vec![], vec![]),
        "other waiters are still on the channel"
    );
}

#[test]
fn p_w2_a_message_during_attempts_makes_one_waiter_or_all_try_again() {
    let (mut waiters, spec, now) = (Waiters::new(POLL_INTERVAL, true), spec("a"), Instant::now());
    let ids = [1, 2].map(|signal| waiters.join(&spec, signal));
    let rests = |waiters: &mut Waiters<u32>| {
        ids.map(|id| waiters.record_refusal(&spec, id, seconds(30), now))
    };
    ids.iter().for_each(|id| waiters.begin_attempt(&spec, *id));
    assert_eq!(
        waiters.handle_message(&spec.channel, Wake::One, now),
        [0; 0],
        "no waiter rests"
    );
    assert_eq!(
        rests(&mut waiters),
        [ParkDecision::TryAgain, ParkDecision::Parked]
    );
    ids.iter().for_each(|id| waiters.begin_attempt(&spec, *id));
    waiters.handle_message(&spec.channel, Wake::All, now);
    assert_eq!(
        rests(&mut waiters),
        [ParkDecision::TryAgain, ParkDecision::TryAgain]
    );
    ids.iter().for_each(|id| waiters.begin_attempt(&spec, *id));
    assert_eq!(
        rests(&mut waiters),
        [ParkDecision::Parked, ParkDecision::Parked]
    );
}

#[test]
fn p_w3_a_wake_up_that_is_not_used_is_passed_on() {
    let (mut waiters, spec, now) = (Waiters::new(POLL_INTERVAL, true), spec("a"), Instant::now());
    let ids: Vec<_> = (1..=4)
        .map(|signal| park(&mut waiters, &spec, signal, now))
        .collect();
    assert_eq!(waiters.handle_message(&spec.channel, Wake::One, now), [1]);
    assert_eq!(
        waiters.leave(&spec, ids[0], false, || true, now),
        [2],
        "told, and gone"
    );
    waiters.begin_attempt(&spec, ids[1]);
    assert_eq!(
        waiters.leave(&spec, ids[1], false, || true, now),
        [3],
        "trying, and gone"
    );
    waiters.begin_attempt(&spec, ids[2]);
    assert_eq!(
        waiters.leave(&spec, ids[2], true, || true, now),
        [0; 0],
        "it has the lock"
    );
    assert_eq!(
        waiters.leave(&spec, ids[3], false, || true, now),
        [0; 0],
        "it was at rest"
    );
    assert_eq!(waiters.take_unneeded(), [&spec.channel]);
}

#[test]
fn one_waiter_per_name_asks_when_the_lease_ends_or_at_the_max_poll_interval() {
    let (mut waiters, spec, now) = (Waiters::new(POLL_INTERVAL, true), spec("a"), Instant::now());
    let first = waiters.join(&spec, 1);
    waiters.begin_attempt(&spec, first);
    waiters.record_refusal(&spec, first, seconds(1), now);
    let lease_over = now + Duration::from_millis(1001);
    assert_eq!(waiters.next_poll(), Some(lease_over));
    park(&mut waiters, &spec, 2, now);
    assert_eq!(
        waiters.next_poll(),
        Some(lease_over),
        "newcomers put nothing off"
    );
    assert_eq!(waiters.notify_due(lease_over), [1]);
    // The first waiter does not try: the next one does, at the poll interval.
    assert_eq!(waiters.notify_due(lease_over + POLL_INTERVAL), [2]);
}

#[test]
fn a_waiter_polls_with_a_pause_whatever_the_answer() {
    let (mut waiters, spec) = (Waiters::new(POLL_INTERVAL, true), spec("a"));
    let id = waiters.join(&spec, 1);
    let (start, mut now, mut attempts) = (Instant::now(), Instant::now(), 0);
    while now < start + Duration::from_secs(10) {
        waiters.begin_attempt(&spec, id);
        waiters.record_refusal(&spec, id, Some(Duration::ZERO), now);
        now = waiters.next_poll().unwrap();
        assert_eq!(waiters.notify_due(now), [1]);
        attempts += 1;
    }
    assert!(attempts <= 10 * 10 + 10, "{attempts} attempts in 10 s");
}

#[test]
fn a_key_without_expiry_is_asked_for_at_the_max_poll_interval() {
    // P-A7
    assert_eq!(pause(None, 0, POLL_INTERVAL), POLL_INTERVAL);
    assert_eq!(pause(seconds(3600), 0, POLL_INTERVAL), POLL_INTERVAL);
    assert_eq!(
        pause(Some(Duration::from_millis(300)), 50, POLL_INTERVAL),
        Duration::from_millis(301)
    );
}

#[test]
fn missed_messages_wake_all_waiters() {
    let (mut waiters, now) = (Waiters::new(POLL_INTERVAL, true), Instant::now());
    park(&mut waiters, &spec("a"), 1, now);
    park(&mut waiters, &spec("a"), 2, now);
    park(&mut waiters, &spec("b"), 3, now);
    let mut woken = waiters.wake_all();
    woken.sort_unstable();
    assert_eq!(woken, [1, 2, 3]);
}

#[derive(Debug, Clone)]
enum Step {
    Join,
    Attempt(prop::sample::Index),
    Refuse(prop::sample::Index),
    Leave(prop::sample::Index, bool),
    Message,
    Poll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        3 => Just(Step::Join),
        4 => index().prop_map(Step::Attempt),
        4 => index().prop_map(Step::Refuse),
        2 => (index(), any::<bool>()).prop_map(|(index, granted)| Step::Leave(index, granted)),
        2 => Just(Step::Message),
        1 => Just(Step::Poll),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// While the lock is free, a waiter is awake, or will be by the clock.
    #[test]
    fn a_wake_up_is_never_lost(steps in steps()) {
        let (mut waiters, spec, mut now) = (Waiters::new(POLL_INTERVAL, true), spec("a"), Instant::now());
        // Each waiter with the number of messages at the start of its attempt; `None` without an
        // attempt.
        let mut present: Vec<(WaiterId, Option<u32>)> = Vec::new();
        let mut messages = 0;
        // Whether a message has come that no attempt has followed: no grant, and no refusal of an
        // attempt that began after it.
        let mut open = false;
        for step in steps {
            match step {
                Step::Join => present.push((waiters.join(&spec, 0), None)),
                Step::Attempt(index) if !present.is_empty() => {
                    let at = index.index(present.len());
                    waiters.begin_attempt(&spec, present[at].0);
                    present[at].1 = Some(messages);
                }
                Step::Refuse(index) if !present.is_empty() => {
                    let at = index.index(present.len());
                    let (id, began) = present[at];
                    if let Some(began) = began {
                        if waiters.record_refusal(&spec, id, seconds(30), now) == ParkDecision::Parked {
                            // The attempt began after the message: the lock is held.
                            open &= began != messages;
                        }
                        present[at].1 = None;
                    }
                }
                Step::Leave(index, granted) if !present.is_empty() => {
                    let at = index.index(present.len());
                    let (id, ..) = present.remove(at);
                    waiters.leave(&spec, id, granted, || true, now);
                    open &= !granted;
                }
                Step::Message => {
                    waiters.handle_message(&spec.channel, Wake::One, now);
                    messages += 1;
                    open = !present.is_empty();
                }
                Step::Poll => {
                    now += POLL_INTERVAL;
                    waiters.notify_due(now);
                }
                _ => {}
            }
            open &= !present.is_empty();
            let states: Vec<WaiterState> = waiters
                .queue(&spec)
                .map(|queue| queue.waiters.iter().map(|waiter| waiter.state).collect())
                .unwrap_or_default();
            prop_assert_eq!(states.len(), present.len());
            if open {
                prop_assert!(states.iter().any(|state| *state != WaiterState::Parked), "all rest: {:?}", states);
            }
            if states.contains(&WaiterState::Parked) {
                prop_assert!(waiters.next_poll().is_some(), "no waiter would ever ask again");
            }
            prop_assert!(!waiters.channels.is_empty() || waiters.polls.next().is_none());
        }
    }
}

/// A waiter that is granted the lock, after its subscription is confirmed.
fn granted(waiters: &mut Waiters<u32>, spec: &Arc<LockSpec>, now: Instant) {
    let id = park(waiters, spec, 1, now);
    waiters.record_subscription(spec, true);
    assert_eq!(waiters.leave(spec, id, true, || true, now), [0; 0]);
    assert_eq!(
        waiters.take_unneeded(),
        [""; 0],
        "it listens while it holds"
    );
}

/// The lock is released, and `heard` other clients receive the message.
fn released(waiters: &mut Waiters<u32>, spec: &Arc<LockSpec>, others: u32, now: Instant) {
    let ticket = waiters.begin_release(spec, now);
    let due = waiters.yields.is_due(spec, 0, now);
    let heard = Some(Neighbours::Listening(others));
    waiters.finish_release(spec, ticket, heard, (due, true), now);
}

#[test]
fn holder_that_has_waited_listens_until_its_hold_is_over() {
    let (mut waiters, spec, now) = (Waiters::new(POLL_INTERVAL, true), spec("a"), Instant::now());
    granted(&mut waiters, &spec, now);
    waiters.end_hold(&spec, now);
    assert_eq!(waiters.take_unneeded(), [&spec.channel]);
    granted(&mut waiters, &spec, now);
    waiters.record_loss(&spec, now);
    assert_eq!(waiters.take_unneeded(), [&spec.channel]);
    // The release reached no other client, or may not have been published.
    for heard in [Some(Neighbours::None), None] {
        granted(&mut waiters, &spec, now);
        let ticket = waiters.begin_release(&spec, now);
        assert!(ticket.is_some(), "an echo will come");
        let notified = waiters.finish_release(&spec, ticket, heard, (false, true), now);
        assert_eq!(notified, [0; 0]);
        assert_eq!(waiters.take_unneeded(), [&spec.channel]);
        assert_eq!(waiters.len(), 0);
    }
}

#[test]
fn client_that_was_heard_elsewhere_listens_while_it_may_come_back() {
    let (mut waiters, spec, now) = (Waiters::new(POLL_INTERVAL, true), spec("a"), Instant::now());
    granted(&mut waiters, &spec, now);
    released(&mut waiters, &spec, 1, now);
    let end = waiters.yields.until(&spec, now).expect("a yield is due");
    assert_eq!(waiters.next_due(), Some(end));
    // The client's own message ends no yield, and wakes no waiter.
    assert_eq!(
        waiters.handle_message(&spec.channel, Wake::One, now),
        [0; 0]
    );
    assert_eq!(waiters.yields.until(&spec, now), Some(end));
    let (id, listens) = waiters.join_yielding(&spec, 2, now).expect("it yields");
    assert!(listens);
    // Another client's message does both.
    assert_eq!(waiters.handle_message(&spec.channel, Wake::One, now), [2]);
    assert_eq!(waiters.yields.until(&spec, now), None);
    waiters.leave(&spec, id, false, || true, now);
    waiters.notify_due(end);
    assert_eq!(
        waiters.take_unneeded(),
        [&spec.channel],
        "it has not come back"
    );
}

#[test]
fn waiter_stands_back_for_clients_that_have_not_had_their_turn() {
    let (mut waiters, spec, now) = (Waiters::new(POLL_INTERVAL, true), spec("a"), Instant::now());
    granted(&mut waiters, &spec, now);
    released(&mut waiters, &spec, 2, now);
    waiters.handle_message(&spec.channel, Wake::One, now);
    waiters.join_yielding(&spec, 2, now).expect("it yields");
    let later = now + Duration::from_micros(300);
    assert_eq!(
        waiters.handle_message(&spec.channel, Wake::One, later),
        [0; 0]
    );
    let end = waiters.yields.until(&spec, later).expect("it stands back");
    assert_eq!(waiters.notify_due(later), [0; 0]);
    assert_eq!(waiters.notify_due(end), [2], "the other one has not come");
    waiters.handle_message(&spec.channel, Wake::One, later);
}

/// Tasks of this client that wait behind a tenure learn when the lock is forced open.
#[test]
fn holder_with_waiters_elsewhere_listens_and_looks_at_what_it_hears() {
    let (spec, now) = (spec("a"), Instant::now());
    let mut waiters: Waiters<u32> = Waiters::new(POLL_INTERVAL, true);
    assert!(waiters.stay_subscribed(&spec), "it has to subscribe");
    waiters.record_subscription(&spec, true);
    assert!(!waiters.stay_subscribed(&spec), "it listens already");
    // The echo of the client's own release says nothing new, and nor does an echo that never
    // arrives.
    let ticket = waiters.begin_release(&spec, now);
    waiters.handle_message(&spec.channel, Wake::One, now);
    assert_eq!(waiters.take_contradicted().len(), 0);
    waiters.handle_message(&spec.channel, Wake::One, now);
    assert_eq!(waiters.take_contradicted().len(), 1);
    let notified =
        waiters.finish_release(&spec, ticket, Some(Neighbours::None), (false, true), now);
    assert_eq!(notified, [0; 0]);
    assert_eq!(waiters.take_unneeded(), [&spec.channel]);
}

/// A grant to an attempt during which a release was announced may precede that release.
#[test]
fn grant_that_is_out_of_date_is_looked_at() {
    for (wake, looked_at) in [(None, 0), (Some(Wake::One), 1)] {
        let (mut waiters, spec, now) =
            (Waiters::new(POLL_INTERVAL, true), spec("a"), Instant::now());
        let id = waiters.join(&spec, 1);
        waiters.begin_attempt(&spec, id);
        if let Some(wake) = wake {
            waiters.handle_message(&spec.channel, wake, now);
        }
        waiters.leave(&spec, id, true, || true, now);
        assert_eq!(waiters.take_contradicted().len(), looked_at);
    }
}
