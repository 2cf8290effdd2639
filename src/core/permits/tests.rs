//! Walks the tables row by row.

use std::time::Duration;

use super::{
    super::{keys::WaiterKey, time::Time},
    Pool,
    attempts::AttemptKey,
    facts::{Answer, Ask, Effects, Facts, Limits, Request},
    grants::GrantKey,
    queue::{Outcome, State},
};

mod attempts;
mod spares;

const DOUBT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_secs(5);

/// A machine whose attempts leave at once. The test plays the server.
struct Rig {
    pool: Pool<WaiterKey>,
    limits: Limits,
    now: Time,
    /// The requests since the last look.
    sent: Vec<(AttemptKey, Request)>,
    woken: usize,
    listens: bool,
    forgotten: u32,
}

impl Rig {
    fn new() -> Self {
        Self {
            pool: Pool::default(),
            limits: Limits {
                poll: POLL,
                window: Duration::from_millis(2),
                pick_up: Duration::from_millis(20),
                pause: Duration::from_millis(50),
                longest_doubt: DOUBT,
                hands_off: true,
            },
            now: Time::from_nanos(1_000_000_000),
            sent: Vec::new(),
            woken: 0,
            listens: false,
            forgotten: 0,
        }
    }

    fn event<R>(
        &mut self,
        event: impl FnOnce(&mut Pool<WaiterKey>, &Facts<'_>, &mut Effects<WaiterKey>) -> R,
    ) -> R {
        let mut out = Effects::default();
        let limits = self.limits.clone();
        let facts = Facts {
            now: self.now,
            limits: &limits,
        };
        let result = event(&mut self.pool, &facts, &mut out);
        assert_eq!(self.pool.broken(&facts), None);
        assert!(!self.pool.spins(&facts));
        self.woken += out.wake.len();
        self.listens = out.listen.unwrap_or(self.listens);
        self.forgotten += out.forgotten;
        out.send.into_iter().for_each(|key| self.build(key));
        result
    }

    fn build(&mut self, key: AttemptKey) {
        let request = self.event(|pool, facts, out| pool.build(facts, key, out));
        self.sent.extend(request.map(|request| (key, request)));
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.event(|pool, facts, out| pool.tick(facts, out));
    }

    fn enter(&mut self, permits: u32, waits: bool) -> WaiterKey {
        let ask = Ask { permits, waits };
        let key = self.event(|pool, facts, out| pool.enter(facts, ask, out));
        assert_eq!(self.poll(key), None);
        key
    }

    fn poll(&mut self, key: WaiterKey) -> Option<Outcome> {
        self.event(|pool, facts, out| pool.take(facts, key, key, out))
    }

    #[track_caller]
    fn taken(&mut self, key: WaiterKey) -> GrantKey {
        match self.poll(key) {
            Some(Outcome::Permits(grant)) => grant,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, key: AttemptKey, answer: Answer) {
        self.event(|pool, facts, out| pool.answer(facts, key, answer, out));
    }

    fn message(&mut self, left: i64) {
        self.event(|pool, facts, out| pool.message(facts, left, out));
    }

    fn leave(&mut self, key: WaiterKey) {
        self.event(|pool, facts, out| pool.leave(facts, key, out));
    }

    fn end(&mut self, grant: GrantKey) -> WaiterKey {
        let waiter = self.event(|pool, facts, out| pool.end(facts, grant, true, out));
        waiter.expect("its caller waits")
    }

    fn state(&self, key: WaiterKey) -> State {
        self.pool.queue().get(key).expect("the caller waits").state
    }

    /// The only request since the last look.
    #[track_caller]
    fn sends(&mut self, request: Request) -> AttemptKey {
        match std::mem::take(&mut self.sent)[..] {
            [(key, sent)] if sent == request => key,
            ref sent => panic!("{sent:?}"),
        }
    }

    #[track_caller]
    fn sends_nothing(&mut self) {
        assert_eq!(self.sent, []);
    }

    /// A task gets permits, of which `left` are left.
    #[track_caller]
    fn hold(&mut self, permits: u32, left: i64) -> GrantKey {
        let key = self.enter(permits, false);
        let attempt = self.sends(Request::Acquire { permits });
        self.answer(attempt, Answer::Done { left });
        self.taken(key)
    }

    /// A caller that was told that `left` permits are left.
    #[track_caller]
    fn parked(&mut self, permits: u32, left: i64) -> WaiterKey {
        let key = self.enter(permits, true);
        if self.state(key) == State::Asking {
            let attempt = self.sends(Request::Acquire { permits });
            self.answer(attempt, Answer::Busy { left });
        }
        assert_eq!(self.state(key), State::Parked);
        key
    }

    fn subscribed(&mut self) {
        assert!(self.listens);
        self.event(|pool, facts, out| pool.subscribed(facts, out));
    }

    /// The same, on a confirmed channel.
    #[track_caller]
    fn listening(&mut self, permits: u32) -> WaiterKey {
        let key = self.parked(permits, 0);
        self.subscribed();
        let attempt = self.sends(Request::Acquire { permits });
        self.answer(attempt, Answer::Busy { left: 0 });
        key
    }
}

const ONE: Request = Request::Acquire { permits: 1 };
const TWO: Request = Request::Acquire { permits: 2 };
const THREE: Request = Request::Acquire { permits: 3 };
const BACK: Request = Request::Release { permits: 1 };

#[test]
fn permits_take_a_request_each_way() {
    let mut rig = Rig::new();
    let grant = rig.hold(1, 4);
    let waiter = rig.end(grant);
    let attempt = rig.sends(BACK);
    assert_eq!(rig.poll(waiter), None);
    rig.answer(attempt, Answer::Done { left: 5 });
    assert_eq!(rig.poll(waiter), Some(Outcome::Released));
    assert_eq!(rig.woken, 2);
    assert!(rig.pool.is_idle());
    rig.pool.forget();
    assert_eq!(rig.pool, Pool::default(), "nothing is left");
}

#[test]
fn leaked_permits_stay_taken_until_a_release_by_their_number() {
    let mut rig = Rig::new();
    let grant = rig.hold(1, 0);
    rig.event(|pool, _, _| pool.leak(grant));
    rig.sends_nothing();
    let waiter = rig.event(|pool, facts, out| pool.release(facts, 1, out));
    let attempt = rig.sends(BACK);
    rig.answer(attempt, Answer::Done { left: 1 });
    assert_eq!(rig.poll(waiter), Some(Outcome::Released));
}

// A0: a caller that comes.

#[test]
fn a_caller_that_comes_waits_behind_a_parked_one_that_wants_no_more() {
    let mut rig = Rig::new();
    rig.listening(2);
    let more = rig.enter(2, true);
    assert_eq!(rig.state(more), State::Parked);
    rig.sends_nothing();
    let fewer = rig.enter(1, true);
    assert_eq!(rig.state(fewer), State::Asking);
    rig.sends(ONE);
    rig.enter(2, false);
    rig.sends(TWO);
}

// A1: news of enough permits.

#[test]
fn a_message_lets_as_many_ask_as_find_enough() {
    let mut rig = Rig::new();
    let many = rig.listening(3);
    let few = [1, 1, 1].map(|permits| rig.parked(permits, 0));
    rig.message(2);
    let states = few.map(|key| rig.state(key));
    assert_eq!(states, [State::Asking, State::Asking, State::Parked]);
    assert_eq!(
        rig.state(many),
        State::Parked,
        "it holds up no caller for few"
    );
}

#[test]
fn an_answer_lets_the_next_ones_ask() {
    let mut rig = Rig::new();
    rig.listening(1);
    rig.parked(1, 0);
    rig.message(1);
    let first = rig.sends(ONE);
    rig.answer(first, Answer::Done { left: 1 });
    rig.sends(ONE);
}

#[test]
fn a_refusal_that_is_older_than_the_news_asks_again() {
    let mut rig = Rig::new();
    let key = rig.listening(1);
    rig.message(1);
    let attempt = rig.sends(ONE);
    rig.message(1);
    rig.answer(attempt, Answer::Busy { left: 0 });
    assert_eq!(rig.state(key), State::Asking);
    let attempt = rig.sends(ONE);
    rig.answer(attempt, Answer::Busy { left: 0 });
    assert_eq!(rig.state(key), State::Parked);
    rig.sends_nothing();
}

#[test]
fn a_server_that_refuses_with_enough_permits_is_not_asked_without_end() {
    let mut rig = Rig::new();
    let key = rig.listening(1);
    rig.message(3);
    let attempt = rig.sends(ONE);
    rig.answer(attempt, Answer::Busy { left: 3 });
    assert_eq!(rig.state(key), State::Parked);
    rig.sends_nothing();
}

#[test]
fn the_share_of_a_caller_that_leaves_goes_to_the_next_one() {
    let mut rig = Rig::new();
    let many = rig.listening(2);
    rig.parked(1, 0);
    rig.message(2);
    let attempt = rig.sends(TWO);
    rig.leave(many);
    rig.sends_nothing();
    rig.answer(attempt, Answer::Busy { left: 1 });
    rig.sends(ONE);
}

// A2: news that are not sure.

#[test]
fn the_first_one_asks_after_the_subscription_and_after_a_reconnection() {
    let mut rig = Rig::new();
    rig.listening(3);
    rig.parked(1, 0);
    rig.event(|pool, facts, out| pool.reconnected(facts, out));
    let attempt = rig.sends(THREE);
    rig.answer(attempt, Answer::Busy { left: 2 });
    rig.sends(ONE);
}

#[test]
fn the_first_one_asks_after_the_poll_interval_without_news() {
    let mut rig = Rig::new();
    rig.listening(1);
    rig.pass(POLL - Duration::from_millis(1));
    rig.sends_nothing();
    rig.pass(Duration::from_millis(1));
    let attempt = rig.sends(ONE);
    rig.answer(attempt, Answer::Busy { left: 0 });
    rig.sends_nothing();
}

#[test]
fn a_refusal_from_before_the_subscription_asks_again() {
    let mut rig = Rig::new();
    rig.parked(2, 0);
    let key = rig.enter(1, true);
    let attempt = rig.sends(ONE);
    rig.subscribed();
    rig.sends_nothing();
    rig.answer(attempt, Answer::Busy { left: 0 });
    assert_eq!(rig.state(key), State::Parked);
    rig.sends(TWO);
}

#[test]
fn the_client_listens_while_a_caller_waits() {
    let mut rig = Rig::new();
    let key = rig.listening(1);
    assert!(rig.listens);
    rig.leave(key);
    assert!(!rig.listens);
    assert!(rig.pool.is_idle());
}
