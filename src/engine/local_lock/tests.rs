use proptest::prelude::*;

use super::{checks::Check, *};
use crate::engine::time_limits::{ASKER_WAIT, CHECK_INTERVAL, GAP, GAP_AFTER, PICK_UP};

/// A tenure is a number here. A request says whether a hold that is handed off will do, and a hold
/// is the number of a tenure.
type Lock = LocalLock<u64, bool, u64>;
type One = (EntryId, Arc<Signal<u64>>);

fn current(owner: Owner, number: u64) -> Current<u64> {
    Current {
        owner,
        tenure: number,
        number,
    }
}

fn grant(lock: &Lock, owner: Owner, number: u64, ends: Instant) -> Result<(), u64> {
    let (notified, _) = lock.record_grant(current(owner, number), ends, |_| false)?;
    drop(notified);
    Ok(())
}

fn wait(lock: &Lock, owner: Owner) -> One {
    match lock.enter(owner, || (true, Signal::new(owner))) {
        Entered::Waiter { id, signal, .. } => (id, signal),
        Entered::Asker(_) | Entered::AlreadyHolds => panic!("it does not have to wait"),
    }
}

fn ask(lock: &Lock, owner: Owner) -> EntryId {
    match lock.enter(owner, || unreachable!("it need not wait")) {
        Entered::Asker(id) => id,
        Entered::Waiter { .. } | Entered::AlreadyHolds => panic!("it may not ask"),
    }
}

fn pass(lock: &Lock, number: u64, next: u64, now: Instant) -> Option<bool> {
    lock.hand_off(number, now, |waiter| {
        waiter
            .request
            .then(|| (current(waiter.signal.owner, next), next))
    })
}

fn check(lock: &Lock, now: Instant) -> Check<u64, u64> {
    lock.check(now, |_| Duration::from_secs(5), |_| true, |_| {})
}

fn is_to_ask(lock: &Lock, (id, signal): &One) -> bool {
    matches!(lock.next_step(*id, signal), Step::Ask(_))
}

const WINDOW: Duration = Duration::from_millis(2);

#[test]
fn one_waiter_asks_and_the_rest_wait_in_order() {
    let (lock, now) = (Lock::default(), Instant::now());
    let first = ask(&lock, Owner::new());
    let others = [(); 3].map(|()| wait(&lock, Owner::new()));
    assert!(!others.iter().any(|other| is_to_ask(&lock, other)));
    // The asker gives up: the next waiter asks, and is refused.
    drop(lock.leave(first, None));
    assert!(others[0].1.is_notified() && is_to_ask(&lock, &others[0]));
    assert!(!is_to_ask(&lock, &others[1]));
    lock.record_refusal(Duration::ZERO);
    lock.set_listener(others[0].0, &others[0].1, Instant::now());
    // The asker is granted the lock, and leaves: the next waiter's turn comes with the end of the
    // tenure.
    grant(&lock, others[0].1.owner, 1, now).unwrap();
    drop(lock.leave(others[0].0, None));
    assert!(!is_to_ask(&lock, &others[1]));
    drop(lock.end_tenure(1));
    assert!(others[1].1.is_notified() && is_to_ask(&lock, &others[1]));
    assert!(!others[2].1.is_notified());
    assert_eq!(lock.waiting(), 1);
}

#[test]
fn failure_is_passed_on_with_the_time_since_the_last_answer() {
    let (lock, now) = (Lock::default(), Instant::now());
    let first = ask(&lock, Owner::new());
    let others = [(); 3].map(|()| wait(&lock, Owner::new()));
    let failed = |one: &One| match lock.next_step(one.0, &one.1) {
        Step::Ask(failed) => failed.map(|(_, since)| since),
        _ => panic!("it is to ask"),
    };
    let gives_up = |id| drop(lock.leave(id, Some(Error::unavailable("no answer"))));
    lock.begin_attempt(first, now);
    gives_up(first);
    assert_eq!(failed(&others[0]), Some(now));
    lock.begin_attempt(others[0].0, now + CHECK_INTERVAL);
    gives_up(others[0].0);
    assert_eq!(failed(&others[1]), Some(now), "still no waiter");
    // The next attempt is answered.
    lock.record_refusal(Duration::ZERO);
    let later = now + 2 * CHECK_INTERVAL;
    lock.begin_attempt(others[1].0, later);
    gives_up(others[1].0);
    assert_eq!(failed(&others[2]), Some(later));
}

#[test]
fn lock_that_another_client_has_is_known_to_be_taken_until_something_else_is_heard() {
    let (lock, now) = (Lock::default(), Instant::now());
    let first = ask(&lock, Owner::new());
    assert!(!lock.was_busy_since(now));
    lock.record_refusal(Duration::ZERO);
    let others = [(); 2].map(|()| wait(&lock, Owner::new()));
    let later = now + GAP_AFTER;
    assert!(lock.was_busy_since(later));
    drop(lock.leave(first, None));
    assert!(lock.was_busy_since(later));
    drop(lock.leave(others[0].0, Some(Error::unavailable("no answer"))));
    assert!(!lock.was_busy_since(later));
    grant(&lock, others[1].1.owner, 1, now).unwrap();
    assert!(lock.was_busy_since(later));
    drop(lock.end_tenure(1));
    assert!(!lock.was_busy_since(later) && lock.was_busy_since(now));
}

#[test]
fn lock_is_handed_off_in_order_within_the_window() {
    let (lock, now) = (Lock::default(), Instant::now());
    let owner = Owner::new();
    let first = ask(&lock, owner);
    grant(&lock, owner, 1, now + WINDOW).unwrap();
    drop(lock.leave(first, None));
    let others = [(); 2].map(|()| wait(&lock, Owner::new()));
    assert_eq!(pass(&lock, 7, 8, now), None, "of another tenure");
    assert_eq!(pass(&lock, 1, 2, now), Some(true));
    assert_eq!(others[0].1.take(), Some(2));
    assert_eq!(lock.current(), Some((others[0].1.owner, 2)));
    // The end of the tenure from which the lock was handed off changes nothing.
    drop(lock.end_tenure(1));
    assert_eq!(lock.current(), Some((others[0].1.owner, 2)));
    assert_eq!(pass(&lock, 2, 3, now + WINDOW), None, "the current is over");
    assert_eq!(pass(&lock, 2, 3, now), Some(false));
    assert_eq!(others[1].1.take(), Some(3));
    assert_eq!(pass(&lock, 3, 4, now), None, "no task waits");
    wait(&lock, Owner::new());
    assert_eq!(lock.end_hand_off(), Some(3));
    assert_eq!(pass(&lock, 3, 4, now), None, "the current was ended");
}

#[test]
fn a_waiter_that_cannot_accept_ends_the_hand_offs_for_those_behind_it() {
    let (lock, now, owner) = (Lock::default(), Instant::now(), Owner::new());
    grant(&lock, owner, 1, now + WINDOW).unwrap();
    let strict = Owner::new();
    let strict = lock.enter(strict, || (false, Signal::new(strict)));
    assert!(matches!(strict, Entered::Waiter { is_first: true, .. }));
    wait(&lock, Owner::new());
    assert_eq!(pass(&lock, 1, 2, now), None, "no waiter is overtaken");
}

#[test]
fn the_asker_is_not_overtaken_by_waiters() {
    let (lock, now) = (Lock::default(), Instant::now());
    ask(&lock, Owner::new());
    wait(&lock, Owner::new());
    // A third task has not waited, and was quicker.
    grant(&lock, Owner::new(), 1, now + WINDOW).unwrap();
    assert_eq!(pass(&lock, 1, 2, now), None);
}

#[test]
fn grant_beside_another_owner_is_refused_while_that_owner_holds() {
    let (lock, now) = (Lock::default(), Instant::now());
    let (one, two) = (Owner::new(), Owner::new());
    grant(&lock, one, 1, now).unwrap();
    assert_eq!(grant(&lock, two, 2, now), Err(1));
    assert!(lock.record_grant(current(two, 2), now, |_| true).is_ok());
    drop(lock.end_tenure(1));
    assert_eq!(lock.current(), Some((two, 2)));
}

#[test]
fn all_waiting_tasks_of_an_owner_enter_together() {
    let (lock, now) = (Lock::default(), Instant::now());
    let (one, two) = (Owner::new(), Owner::new());
    grant(&lock, one, 1, now + WINDOW).unwrap();
    assert!(matches!(
        lock.enter(one, || unreachable!()),
        Entered::AlreadyHolds
    ));
    let [first, again] = [(); 2].map(|()| wait(&lock, two));
    pass(&lock, 1, 2, now).unwrap();
    assert_eq!((first.1.take(), again.1.take()), (Some(2), None));
    assert!(again.1.is_notified() && matches!(lock.next_step(again.0, &again.1), Step::Reenter));
}

/// Notified, and not polled: the lock goes to the next waiter, and the first one waits at the end
/// of the queue.
#[tokio::test(start_paused = true)]
async fn waiter_that_does_not_pick_up_what_it_is_passed_goes_to_the_end_of_the_queue() {
    let (lock, now) = (Lock::default(), Instant::now());
    grant(&lock, Owner::new(), 1, now + CHECK_INTERVAL).unwrap();
    let [first, second] = [(); 2].map(|()| wait(&lock, Owner::new()));
    pass(&lock, 1, 2, now).unwrap();
    let early = check(&lock, now);
    assert!(early.withdrawn.is_none() && early.next == Some(now + PICK_UP));
    // The waiter waits to be notified, in a future that is not polled again.
    let mut waiting = Box::pin(first.1.notified());
    assert!(futures_util::poll!(&mut waiting).is_ready());
    drop(waiting);
    first.1.give(2);
    let mut waiting = Box::pin(first.1.notified());
    assert!(futures_util::poll!(&mut waiting).is_pending());
    let notified: ToNotify<u64> = [first.1.clone()].into_iter().collect();
    drop(notified);
    let mut marked = None;
    let later = Instant::now() + PICK_UP;
    let late = lock.check(
        later,
        |_| CHECK_INTERVAL,
        |_| true,
        |hold| marked = Some(*hold),
    );
    assert_eq!(late.withdrawn, Some(2), "to be released, or passed on");
    assert_eq!(marked, late.withdrawn, "before its owner can come again");
    pass(&lock, 2, 3, now).unwrap();
    assert_eq!(second.1.take(), Some(3));
    pass(&lock, 3, 4, now).unwrap();
    assert_eq!(first.1.take(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn asker_that_does_not_ask_in_its_turn_is_not_waited_for() {
    let (lock, now) = (Lock::default(), Instant::now());
    let first = ask(&lock, Owner::new());
    let [second, third] = [(); 2].map(|()| wait(&lock, Owner::new()));
    drop(lock.leave(first, None));
    let mut waiting = Box::pin(second.1.notified());
    assert!(futures_util::poll!(&mut waiting).is_ready());
    // The asker asks the server, and is given time for that. Then its future is polled no more.
    drop(check(&lock, now));
    drop(check(&lock, now + ASKER_WAIT / 2));
    assert!(!third.1.is_notified());
    drop(lock.check(now + ASKER_WAIT, |_| CHECK_INTERVAL, |_| false, |_| {}));
    assert!(
        !third.1.is_notified(),
        "without a connection no task can ask"
    );
    drop(check(&lock, now + ASKER_WAIT));
    assert!(is_to_ask(&lock, &third));
    // The late task asks as well, if it is ever polled.
    assert!(is_to_ask(&lock, &second));
}

#[test]
fn attempt_of_a_replaced_asker_does_not_prolong_the_time_of_the_present_one() {
    let (lock, now) = (Lock::default(), Instant::now());
    let first = ask(&lock, Owner::new());
    let [second, third] = [(); 2].map(|()| wait(&lock, Owner::new()));
    lock.begin_attempt(first, now);
    drop(check(&lock, now + ASKER_WAIT));
    assert!(is_to_ask(&lock, &second));
    lock.begin_attempt(second.0, now + ASKER_WAIT);
    // The first task is polled again, and sends its attempt.
    let late = now + ASKER_WAIT + CHECK_INTERVAL;
    lock.begin_attempt(first, late);
    lock.schedule_attempt(first, late + CHECK_INTERVAL);
    drop(check(&lock, now + 2 * ASKER_WAIT));
    assert!(third.1.is_notified() && is_to_ask(&lock, &third));
}

#[test]
fn a_tenure_with_long_waiters_is_verified_now_and_then() {
    let (lock, now) = (Lock::default(), Instant::now());
    grant(&lock, Owner::new(), 1, now).unwrap();
    wait(&lock, Owner::new());
    assert_eq!(check(&lock, now).to_verify, None);
    assert_eq!(check(&lock, now + CHECK_INTERVAL).to_verify, Some(1));
    assert_eq!(check(&lock, now + 2 * CHECK_INTERVAL).to_verify, None);
    let later = now + CHECK_INTERVAL + Duration::from_secs(5);
    assert_eq!(check(&lock, later).to_verify, Some(1));
}

/// Clients that poll, and listeners that were not counted, find the lock free now and then.
#[tokio::test(start_paused = true)]
async fn a_long_chain_of_hand_offs_ends_with_a_pause() {
    let (lock, began) = (Lock::default(), Instant::now());
    wait_behind(&lock);
    let (mut number, mut now) = (1, began);
    while lock.begin_release(now) {
        now += WINDOW;
        number += 1;
    }
    assert_eq!(now, began + GAP_AFTER);
    assert!(number > 1 && lock.take_gap().is_none());
    drop(lock.end_tenure(0));
    assert_eq!(lock.take_gap(), Some(Instant::now() + GAP));
    assert!(lock.begin_release(now), "a new chain begins");
    // Another client has acquired the lock, which ends the consecutive turns as well.
    lock.record_refusal(Duration::ZERO);
    assert!(lock.begin_release(now + GAP_AFTER / 2));
    assert!(lock.begin_release(now + GAP_AFTER));
}

/// A tenure with the number 0, and two waiters.
fn wait_behind(lock: &Lock) {
    grant(lock, Owner::new(), 0, Instant::now()).unwrap();
    wait(lock, Owner::new());
    wait(lock, Owner::new());
}

#[derive(Debug, Clone)]
enum Action {
    Come(prop::sample::Index),
    /// A waiter gives up, or the asker does.
    Go(prop::sample::Index),
    Grant(prop::sample::Index),
    Refuse,
    Pass,
    Release,
    Lose,
    Check,
}

fn steps() -> impl Strategy<Value = Vec<Action>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        5 => index().prop_map(Action::Come),
        2 => index().prop_map(Action::Go),
        3 => index().prop_map(Action::Grant),
        1 => Just(Action::Refuse),
        3 => Just(Action::Pass),
        2 => Just(Action::Release),
        1 => Just(Action::Lose),
        1 => Just(Action::Check),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    /// While the queue has a waiter, a task has the lock, asks for it, or was notified to ask.
    #[test]
    fn a_task_has_the_lock_or_asks_for_it(steps in steps()) {
        let lock = Lock::default();
        let owners: Vec<Owner> = (0..4).map(|_| Owner::new()).collect();
        let (mut waiting, mut asking): (Vec<One>, Vec<EntryId>) = (Vec::new(), Vec::new());
        let (mut now, mut number) = (Instant::now(), 0);
        for step in steps {
            match step {
                Action::Come(index) => {
                    let owner = owners[index.index(owners.len())];
                    match lock.enter(owner, || (true, Signal::new(owner))) {
                        Entered::Asker(id) => asking.push(id),
                        Entered::Waiter { id, signal, .. } => waiting.push((id, signal)),
                        Entered::AlreadyHolds => prop_assert_eq!(lock.current().map(|(owner, _)| owner), Some(owner)),
                    }
                }
                Action::Go(index) if !waiting.is_empty() => {
                    let (id, signal) = waiting.remove(index.index(waiting.len()));
                    drop(lock.leave(id, None));
                    prop_assert!(signal.take().is_none(), "it has been polled since it was told");
                }
                Action::Go(_) => drop(asking.pop().map(|id| lock.leave(id, None))),
                // The answer may be to a task that does not wait here.
                Action::Grant(index) => {
                    let owner = owners[index.index(owners.len())];
                    let other = lock.current().filter(|(other, _)| *other != owner);
                    number += 1;
                    let granted = grant(&lock, owner, number, now + WINDOW);
                    prop_assert_eq!(granted.err(), other.map(|(_, tenure)| tenure));
                    drop(asking.pop().map(|id| lock.leave(id, None)));
                }
                Action::Refuse => lock.record_refusal(Duration::ZERO),
                Action::Pass => {
                    if let Some((_, tenure)) = lock.current() {
                        number += 1;
                        pass(&lock, tenure, number, now);
                    }
                }
                Action::Release | Action::Lose => {
                    if let Some((_, tenure)) = lock.current() {
                        if matches!(step, Action::Release) {
                            lock.begin_release(now);
                        }
                        drop(lock.end_tenure(tenure));
                    }
                }
                Action::Check => {
                    now += CHECK_INTERVAL;
                    drop(check(&lock, now));
                }
            }
            // The notified tasks are polled.
            let mut passed = 0;
            waiting.retain(|one| {
                let (id, signal) = one;
                if signal.take().is_some() {
                    passed += 1;
                    drop(lock.leave(*id, None));
                    return false;
                }
                match lock.next_step(*id, signal) {
                    Step::Wait => return true,
                    Step::Acquired(_) => unreachable!("it was taken"),
                    Step::Ask(_) => asking.push(*id),
                    Step::Reenter => {}
                }
                false
            });
            prop_assert!(passed <= 1);
            let somebody = lock.current().is_some() || !asking.is_empty();
            prop_assert!(waiting.is_empty() || somebody, "{} wait without a holder or an asker", waiting.len());
            prop_assert_eq!(lock.waiting(), waiting.len());
        }
    }
}
