//! Walks the tables row by row.

use std::time::Duration;

use super::{
    Ended, Machine,
    facts::{Answer, Ask, Effects, Facts, Limits, Request, Terms},
    keys::{Channel, HoldKey, OpKey, Owner, WaiterKey},
    tenure::Window,
    time::Time,
    waiters::{Outcome, State},
};

mod closing;
mod endings;
mod extend;
mod fair;
mod put_off;

const LEASE: Duration = Duration::from_secs(30);
const DRIFT: Duration = Duration::from_millis(302);
const A: Owner = Owner(1);
const B: Owner = Owner(2);

/// A machine whose operations leave at once. The test plays the server.
struct Rig {
    machine: Machine<Owner>,
    limits: Limits,
    now: Time,
    epoch: u32,
    is_open: bool,
    /// The requests since the last look.
    sent: Vec<(Owner, Request)>,
    woken: Vec<Owner>,
    listens: Vec<(Channel, bool)>,
}

impl Rig {
    fn new() -> Self {
        Self {
            machine: Machine::default(),
            limits: Limits {
                watched_lease: LEASE,
                drift_percent: 1,
                least_drift: Duration::from_millis(2),
                poll: Duration::from_secs(5),
                window: Duration::from_millis(2),
                pick_up: Duration::from_millis(20),
                echo: Duration::from_millis(100),
                retry: Duration::from_millis(50),
                hands_off: true,
                is_fair: false,
            },
            now: Time::from_nanos(1_000_000_000),
            epoch: 0,
            is_open: true,
            sent: Vec::new(),
            woken: Vec::new(),
            listens: Vec::new(),
        }
    }

    fn event<R>(
        &mut self,
        event: impl FnOnce(&mut Machine<Owner>, &Facts<'_>, &mut Effects<Owner>) -> R,
    ) -> R {
        let mut out = Effects::default();
        let limits = self.limits.clone();
        let facts = Facts {
            now: self.now,
            epoch: self.epoch,
            limits: &limits,
            is_open: self.is_open,
        };
        let result = event(&mut self.machine, &facts, &mut out);
        assert_eq!(self.machine.broken(&facts), None);
        assert!(!self.machine.spins(&facts));
        self.woken.extend(out.wake);
        self.listens.extend(out.listen);
        for key in out.send {
            self.build(key);
        }
        result
    }

    fn build(&mut self, key: OpKey) {
        if let Some(request) = self.event(|machine, facts, out| machine.build(facts, key, out)) {
            self.sent.push((key.field, request));
            self.event(|machine, facts, out| machine.written(facts, key.field, out));
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    fn enter(&mut self, owner: Owner, terms: Terms, waits: bool) -> WaiterKey {
        let ask = Ask {
            owner,
            terms,
            waits,
        };
        let key = self.event(|machine, facts, out| machine.enter(facts, ask, out));
        assert_eq!(self.poll(key, owner), None);
        key
    }

    fn lock(&mut self, owner: Owner) -> WaiterKey {
        self.enter(owner, Terms::Watched, true)
    }

    fn poll(&mut self, key: WaiterKey, owner: Owner) -> Option<Outcome> {
        self.event(|machine, facts, out| machine.take(facts, key, owner, out))
    }

    fn answer(&mut self, owner: Owner, answer: Answer) {
        self.event(|machine, facts, out| machine.answer(facts, owner, answer, out));
    }

    fn end(&mut self, hold: HoldKey) -> (Ended, Option<WaiterKey>) {
        self.event(|machine, facts, out| machine.end(facts, hold, true, out))
    }

    fn state(&self, key: WaiterKey) -> State {
        self.machine
            .waiters()
            .get(key)
            .expect("the caller waits")
            .state
    }

    /// The only request since the last look.
    #[track_caller]
    fn sends(&mut self, owner: Owner, request: Request) {
        assert_eq!(std::mem::take(&mut self.sent), [(owner, request)]);
    }

    #[track_caller]
    fn sends_nothing(&mut self) {
        assert_eq!(self.sent, []);
    }

    /// `owner` gets a hold.
    #[track_caller]
    fn hold(&mut self, owner: Owner) -> HoldKey {
        let key = self.lock(owner);
        self.sent.clear();
        self.answer(owner, Answer::Done);
        self.taken(key, owner)
    }

    #[track_caller]
    fn taken(&mut self, key: WaiterKey, owner: Owner) -> HoldKey {
        assert_eq!(std::mem::take(&mut self.woken), [owner]);
        match self.poll(key, owner) {
            Some(Outcome::Hold(hold)) => hold,
            other => panic!("{other:?}"),
        }
    }

    /// When the machine has something to do next.
    fn look_at(&self) -> Option<Time> {
        let facts = Facts {
            now: self.now,
            epoch: self.epoch,
            limits: &self.limits,
            is_open: self.is_open,
        };
        self.machine.look_at(&facts)
    }

    fn most(&self, owner: Owner) -> u32 {
        self.machine.field(owner).map_or(0, |field| field.most())
    }
}

fn acquire(holds: u32) -> Request {
    Request::Acquire {
        holds,
        lease: LEASE,
        wait: None,
    }
}

const FREE: Request = Request::Release {
    holds: 0,
    lease: Duration::ZERO,
};

const BUSY: Answer = Answer::Busy { remaining: None };

#[test]
fn a_free_lock_takes_a_request_each_way() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let (ended, waiter) = rig.end(hold);
    assert_eq!(ended, Ended::Pending);
    rig.sends(A, FREE);
    let waiter = waiter.expect("the caller waits");
    assert_eq!(rig.poll(waiter, A), None);
    rig.answer(A, Answer::Done);
    assert_eq!(rig.poll(waiter, A), Some(Outcome::Released));
    let _ = rig.machine.forget(0);
    assert_eq!(rig.machine, Machine::default(), "nothing is left");
}

#[test]
fn validity_is_counted_from_the_sending() {
    let mut rig = Rig::new();
    let began = rig.now;
    rig.lock(A);
    rig.pass(Duration::from_secs(4));
    rig.answer(A, Answer::Done);
    let tenure = rig.machine.tenure().expect("A has the lock");
    assert_eq!(tenure.valid_until, began + (LEASE - DRIFT));
}

// F1: the belief exceeds the want.

#[test]
fn a_hold_without_a_taker_is_released() {
    let mut rig = Rig::new();
    let key = rig.lock(A);
    rig.sends(A, acquire(1));
    rig.event(|machine, facts, out| machine.leave(facts, key, out));
    rig.sends_nothing();
    rig.answer(A, Answer::Done);
    rig.sends(A, FREE);
}

#[test]
fn a_hold_of_a_caller_that_left_goes_to_the_next_one() {
    let mut rig = Rig::new();
    let (gone, next) = (rig.lock(A), rig.lock(B));
    rig.sends(A, acquire(1));
    rig.event(|machine, facts, out| machine.leave(facts, gone, out));
    rig.answer(A, Answer::Done);
    rig.taken(next, B);
    rig.sends_nothing();
}

#[test]
fn an_inner_release_leaves_the_lease_that_the_rest_needs() {
    let mut rig = Rig::new();
    rig.hold(A);
    let inner = rig.enter(A, Terms::Fixed(LEASE * 4), true);
    rig.sends(
        A,
        Request::Acquire {
            holds: 2,
            lease: LEASE * 4,
            wait: None,
        },
    );
    rig.answer(A, Answer::Done);
    let inner = rig.taken(inner, A);
    rig.pass(Duration::from_secs(1));
    rig.end(inner);
    rig.sends(
        A,
        Request::Release {
            holds: 1,
            lease: LEASE,
        },
    );
    let tenure = rig.machine.tenure().expect("A has the lock");
    assert_eq!(
        tenure.valid_until,
        rig.now + (LEASE - DRIFT),
        "before the answer"
    );
}

#[test]
fn a_loss_by_the_clock_frees_the_lock_after_the_allowance() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    rig.pass(LEASE - DRIFT);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    assert_eq!(rig.end(hold), (Ended::Lost, None));
    rig.sends_nothing();
    rig.pass(DRIFT);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    rig.sends(A, FREE);
}

#[test]
fn an_acquire_in_doubt_is_repeated_for_its_caller_and_released_without_one() {
    for is_there in [true, false] {
        let mut rig = Rig::new();
        let key = rig.lock(A);
        rig.sends(A, acquire(1));
        if !is_there {
            rig.event(|machine, facts, out| machine.leave(facts, key, out));
        }
        rig.answer(A, Answer::Unanswered);
        rig.sends(A, if is_there { acquire(1) } else { FREE });
    }
}

#[test]
fn a_refused_release_is_given_up_until_the_lease_ends() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let (_, waiter) = rig.end(hold);
    rig.sends(A, FREE);
    rig.answer(A, Answer::Refused);
    assert_eq!(
        waiter.map(|key| rig.state(key)),
        Some(State::Over(Outcome::Refused))
    );
    rig.sends_nothing();
    assert_eq!(rig.most(A), 1);
    rig.pass(LEASE + DRIFT);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    assert_eq!(rig.most(A), 0);
    rig.sends_nothing();
}

// F2: the waiter that may ask.

#[test]
fn the_first_waiter_asks_for_all() {
    let mut rig = Rig::new();
    let (first, second) = (rig.lock(A), rig.lock(B));
    rig.sends(A, acquire(1));
    rig.answer(A, BUSY);
    let polls_at = rig.now + rig.limits.poll;
    assert_eq!(
        (rig.state(first), rig.state(second)),
        (State::Parked { until: polls_at }, State::Queued)
    );
    assert_eq!(rig.listens, [(Channel::Lock, true)]);
    rig.sends_nothing();
    rig.event(|machine, facts, out| machine.leave(facts, first, out));
    rig.sends(B, acquire(1));
}

#[test]
fn an_owner_enters_again_under_the_field_of_its_tenure() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let next = rig.lock(B);
    rig.end(hold);
    rig.taken(next, B);
    let again = rig.lock(B);
    rig.sends(A, acquire(2));
    rig.answer(A, Answer::Done);
    rig.taken(again, B);
    assert_eq!(rig.machine.live_holds(A), (2, 2));
}

#[test]
fn a_caller_that_only_tries_is_refused_beside_a_tenure() {
    let mut rig = Rig::new();
    rig.hold(A);
    let ask = Ask {
        owner: B,
        terms: Terms::Watched,
        waits: false,
    };
    let key = rig.event(|machine, facts, out| machine.enter(facts, ask, out));
    assert_eq!(rig.poll(key, B), Some(Outcome::Busy));
    rig.sends_nothing();
}

#[test]
fn an_acquire_follows_a_release_on_the_same_connection() {
    for same in [true, false] {
        let mut rig = Rig::new();
        let hold = rig.hold(A);
        rig.pass(rig.limits.window);
        let next = rig.lock(B);
        if same {
            rig.end(hold);
            assert_eq!(std::mem::take(&mut rig.sent), [(A, FREE), (B, acquire(1))]);
        } else {
            rig.event(|machine, facts, out| machine.leave(facts, next, out));
            rig.end(hold);
            rig.sends(A, FREE);
            rig.epoch += 1;
            rig.lock(B);
            rig.sends_nothing();
            rig.answer(A, Answer::Unanswered);
            assert_eq!(std::mem::take(&mut rig.sent), [(A, FREE), (B, acquire(1))]);
        }
    }
}

// F4: renewals and verifications.

#[test]
fn a_hold_is_renewed_after_a_third_of_its_lease() {
    let mut rig = Rig::new();
    rig.hold(A);
    let renewal = Request::Renew { lease: LEASE };
    let granted = rig.now;
    assert_eq!(rig.look_at(), Some(granted + LEASE / 3));
    rig.pass(LEASE / 3);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    rig.sends(A, renewal);
    rig.answer(A, Answer::Done);
    let tenure = rig.machine.tenure().expect("A has the lock");
    assert_eq!(tenure.valid_until, rig.now + (LEASE - DRIFT));
    rig.sends_nothing();
}

#[test]
fn no_timer_waits_for_an_answer() {
    let mut rig = Rig::new();
    rig.hold(A);
    rig.pass(LEASE / 3);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    rig.sends(A, Request::Renew { lease: LEASE });
    // The next renewal would be due.
    rig.pass(LEASE / 10);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    rig.sends_nothing();
    rig.answer(A, Answer::Unanswered);
    rig.sends(A, Request::Renew { lease: LEASE });
}

#[test]
fn a_reconnection_verifies_a_hold_for_the_rest_of_its_validity() {
    let mut rig = Rig::new();
    let key = rig.enter(A, Terms::Fixed(LEASE * 2), true);
    rig.sent.clear();
    rig.answer(A, Answer::Done);
    let _hold = rig.taken(key, A);
    rig.pass(LEASE);
    rig.epoch += 1;
    rig.event(|machine, facts, out| machine.reconnected(facts, out));
    rig.sends(A, Request::Renew { lease: LEASE });
    rig.answer(A, Answer::Done);
    assert_eq!(
        rig.machine.tenure().map(|tenure| tenure.window),
        Some(Window::Closed)
    );
    rig.epoch += 1;
    rig.event(|machine, facts, out| machine.reconnected(facts, out));
    rig.answer(A, Answer::Absent);
    assert_eq!(rig.machine.tenure(), None);
    assert_eq!(rig.most(A), 0);
}

// Answers that rely on more than the server has.

#[test]
fn absent_leaves_what_the_server_may_still_have() {
    let mut rig = Rig::new();
    let holds: Vec<_> = (0..3).map(|_| rig.hold(A)).collect();
    rig.sent.clear();
    rig.end(holds[2]);
    assert_eq!(
        rig.sent.pop(),
        Some((
            A,
            Request::Release {
                holds: 2,
                lease: LEASE
            }
        ))
    );
    rig.answer(A, Answer::Absent);
    assert_eq!(rig.machine.tenure(), None);
    assert_eq!(rig.most(A), 1);
    rig.sends(A, FREE);
}

#[test]
fn absent_to_a_release_in_doubt_is_its_success() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let (_, waiter) = rig.end(hold);
    // The first sending was within the validity, so it may have been executed.
    rig.pass(LEASE);
    rig.answer(A, Answer::Unanswered);
    rig.answer(A, Answer::Absent);
    let waiter = waiter.expect("the caller waits");
    assert_eq!(rig.poll(waiter, A), Some(Outcome::Released));
}

#[test]
fn absent_to_a_release_is_a_loss_otherwise() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let (_, waiter) = rig.end(hold);
    rig.answer(A, Answer::Absent);
    let waiter = waiter.expect("the caller waits");
    assert_eq!(rig.poll(waiter, A), Some(Outcome::Lost));
}

// The end of the last hold.

#[test]
fn a_tenure_passes_on_without_a_request() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let next = rig.lock(B);
    assert_eq!(rig.end(hold), (Ended::Released, None));
    rig.sends_nothing();
    rig.taken(next, B);
    let tenure = rig.machine.tenure().expect("B has the lock");
    assert_eq!((tenure.field, tenure.holder), (A, B));
}

#[test]
fn a_tenure_passes_on_under_each_condition_alone() {
    type Close = fn(&mut Rig);
    let close: [(&str, Close); 4] = [
        ("after its window", |rig| rig.pass(rig.limits.window)),
        ("in doubt", |rig| {
            rig.event(|machine, facts, out| machine.message(facts, Channel::Lock, out))
        }),
        ("after a reconnection", |rig| {
            rig.event(|machine, facts, out| machine.reconnected(facts, out));
        }),
        ("without hand-offs", |rig| rig.limits.hands_off = false),
    ];
    for (case, close) in close {
        let mut rig = Rig::new();
        let hold = rig.hold(A);
        rig.lock(B);
        close(&mut rig);
        assert_eq!(rig.end(hold).0, Ended::Pending, "{case}");
    }
}

#[test]
fn a_hold_that_is_not_taken_goes_to_the_next_waiter() {
    let mut rig = Rig::new();
    let hold = rig.hold(A);
    let (late, next) = (rig.lock(B), rig.lock(Owner(3)));
    rig.end(hold);
    assert_eq!(std::mem::take(&mut rig.woken), [B]);
    rig.limits.window = Duration::from_secs(1);
    rig.pass(rig.limits.pick_up);
    rig.event(|machine, facts, out| machine.tick(facts, out));
    assert_eq!(rig.state(late), State::Stalled);
    assert_eq!(
        rig.poll(late, B),
        None,
        "it waits again, behind the next one"
    );
    rig.sent.clear();
    rig.answer(A, Answer::Done);
    rig.answer(Owner(3), Answer::Done);
    rig.taken(next, Owner(3));
}

// Messages.

#[test]
fn a_message_during_an_acquire_outdates_its_refusal() {
    let mut rig = Rig::new();
    let key = rig.lock(A);
    rig.sends(A, acquire(1));
    rig.event(|machine, facts, out| machine.message(facts, Channel::Lock, out));
    rig.answer(A, BUSY);
    assert_eq!(rig.state(key), State::Asking);
    rig.sends(A, acquire(1));
}

#[test]
fn a_message_during_an_acquire_has_its_grant_verified() {
    let mut rig = Rig::new();
    rig.lock(A);
    rig.sent.clear();
    rig.event(|machine, facts, out| machine.message(facts, Channel::Lock, out));
    rig.answer(A, Answer::Done);
    assert_eq!(
        rig.machine.tenure().map(|tenure| tenure.window),
        Some(Window::Verifying)
    );
    assert!(matches!(rig.sent[..], [(A, Request::Renew { .. })]));
}

#[test]
fn the_message_of_an_own_release_wakes_no_waiter() {
    let mut rig = Rig::new();
    let key = rig.lock(A);
    rig.answer(A, BUSY);
    rig.event(|machine, facts, out| machine.subscribed(facts, Channel::Lock, out));
    rig.answer(A, Answer::Done);
    rig.woken.clear();
    let hold = match rig.poll(key, A) {
        Some(Outcome::Hold(hold)) => hold,
        other => panic!("{other:?}"),
    };
    let second = rig.lock(B);
    rig.pass(rig.limits.window);
    rig.sent.clear();
    rig.end(hold);
    assert_eq!(std::mem::take(&mut rig.sent), [(A, FREE), (B, acquire(1))]);
    rig.answer(A, Answer::Done);
    rig.answer(B, BUSY);
    assert!(matches!(rig.state(second), State::Parked { .. }));
    rig.event(|machine, facts, out| machine.message(facts, Channel::Lock, out));
    rig.sends(B, acquire(1));
}
