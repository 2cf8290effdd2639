//! What must hold.

use std::time::Duration;

use super::{
    System,
    server::Stored,
    world::{Client, World, facts},
};
use crate::{
    core::permits::{
        attempts::{AttemptKey, Kind, Stage},
        facts::{Answer, Facts, Limits},
        grants::GrantState,
        queue::State,
    },
    event::Event,
    system::TASKS,
    world::{NOW, Phase},
};

impl World {
    /// The permits that there are: left at the server, with tasks, on their way to a task, and on their way back.
    pub(super) fn count(&self) -> u8 {
        let of_client = |(index, client): (u8, &Client)| {
            let with_tasks = client.pool.grants().all().map(|(_, grant)| grant.permits);
            let on_their_way = client.pool.attempts().filter(|(key, attempt)| {
                let is_done = |(other, answer): &(AttemptKey, Answer)| {
                    other == key && matches!(answer, Answer::Done { .. })
                };
                let is_executed =
                    self.data.has_executed(index, *key) || client.answers.iter().any(is_done);
                is_executed == (attempt.kind == Kind::Acquire)
            });
            let on_their_way = on_their_way.map(|(_, attempt)| attempt.permits);
            with_tasks.chain(on_their_way).sum::<u32>() as u8
        };
        let of_clients = (0..).zip(&self.clients).map(of_client).sum::<u8>();
        self.data.left + self.leaked + of_clients
    }

    pub(super) fn check(&self) -> Option<&'static str> {
        match self.count() {
            now if now > self.total => Some("there are more permits than were made"),
            now if now < self.total => Some("permits are lost"),
            _ => None,
        }
    }

    /// The tasks of each client that were given permits and have not taken them.
    pub(super) fn given(&self) -> [usize; 2] {
        self.clients.each_ref().map(|client| client.given().count())
    }

    /// Permits pass from task to task in their window alone.
    pub(super) fn check_passing(&mut self, before: [usize; 2], event: Event, system: &System) {
        let is_late = self.clients.iter().flat_map(Client::given).any(|late| late);
        let mut counts = self.given().into_iter().zip(before);
        let is_more = counts.any(|(now, before)| now > before);
        let is_more = is_more && !matches!(event, Event::Answer(..));
        if is_late || is_more && !system.limits.hands_off {
            self.is_wrong("permits pass on outside of their window");
        }
    }

    /// A task is late for its permits: a timer tells it, and the task loses them.
    pub(super) fn pick_up_late(&mut self, client: u8, system: &System) {
        self.budget.late_pick_ups -= 1;
        let limits = Limits {
            pick_up: Duration::ZERO,
            ..system.limits.clone()
        };
        let pool = &self.clients[client as usize].pool;
        let given = pool.grants().find_given(|_| true);
        let is_told = self.event(client, system, |pool, facts, out| {
            let late = Facts {
                limits: &limits,
                ..*facts
            };
            let next = pool.look_at(&late);
            pool.tick(&late, out);
            next.is_some_and(|at| at.has_come(NOW))
        });
        let queue = self.clients[client as usize].pool.queue();
        let waiter = given.and_then(|(_, waiter)| queue.get(waiter));
        let is_kept = waiter.is_some_and(|waiter| matches!(waiter.state, State::Given(_)));
        if is_kept || !is_told {
            self.is_wrong("permits wait for a task that does not take them");
        }
    }

    /// What holds when nothing but time, tasks and faults can happen.
    pub(super) fn check_quiet(&self) -> Option<&'static str> {
        for client in &self.clients {
            let callers = || client.pool.queue().all().map(|(_, waiter)| waiter);
            if callers().any(|waiter| !waiter.waits && waiter.state == State::Asking) {
                return Some("a caller that only tries waits");
            }
            let finds_enough = |permits: u32| permits <= self.data.left.into();
            let is_parked = callers()
                .any(|waiter| waiter.state == State::Parked && finds_enough(waiter.permits));
            if is_parked && !client.is_excused {
                return Some("a caller is parked although enough permits are left");
            }
            if client.forgets_a_task() {
                return Some("a task is not woken although its operation is over");
            }
            let mut attempts = client.pool.attempts();
            if attempts.any(|(_, attempt)| !matches!(attempt.stage, Stage::Resting { .. })) {
                return Some("an attempt is under way without a request");
            }
            if client.pool.listens() && !client.is_subscribed {
                return Some("a client believes that it listens");
            }
        }
        None
    }

    /// Forgets what no rule reads: results of attempts that are over, and by which numbers attempts are told apart.
    pub(super) fn renumber(&mut self) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            let mut live: Vec<AttemptKey> = client.pool.attempts().map(|(key, _)| key).collect();
            live.sort();
            let is_live = |key: &AttemptKey| live.binary_search(key).is_ok();
            let number = |key: AttemptKey| AttemptKey {
                number: is_live(&key).into(),
                ..key
            };
            for key in &mut client.queued {
                *key = number(*key);
            }
            for sent in &mut client.requests {
                sent.key = number(sent.key);
            }
            for (key, _) in &mut client.answers {
                *key = number(*key);
            }
            for data in [&mut self.data].into_iter().chain(&mut self.earlier) {
                for (slot, stored) in (0..).zip(&mut data.results[index]) {
                    *stored = stored.filter(|stored| {
                        let number = stored.number;
                        is_live(&AttemptKey { slot, number })
                    });
                    *stored = stored.map(|stored| Stored {
                        number: 1,
                        ..stored
                    });
                }
            }
            client.pool.forget();
        }
    }
}

impl Client {
    /// For each task that was given permits and has not taken them: whether these were given too late.
    fn given(&self) -> impl Iterator<Item = bool> {
        let grants = self.pool.grants().all();
        grants.filter_map(|(_, grant)| match grant.state {
            GrantState::Given { since, .. } => Some(since == NOW && grant.window.has_come(NOW)),
            GrantState::Guarded => None,
        })
    }

    /// The permits of attempts that have been in doubt for long enough.
    pub(super) fn may_be_forgotten(&self, system: &System) -> u32 {
        let now = facts(system).now;
        let longest = system.limits.longest_doubt;
        let attempts = self.pool.attempts().filter(|(_, attempt)| {
            // An answer may tell that a sending is in doubt.
            let since = attempt.doubt.or(attempt.sent().map(|sent| sent.at));
            since.is_some_and(|since| (since + longest).has_come(now))
        });
        attempts.map(|(_, attempt)| attempt.permits).sum()
    }

    /// Whether a task cannot go on although its operation is over.
    fn forgets_a_task(&self) -> bool {
        (0..TASKS).map(|task| &self.tasks[task]).any(|task| {
            let (Phase::Waiting(key) | Phase::Ending(key)) = task.phase else {
                return false;
            };
            let state = self.pool.queue().get(key).map(|waiter| waiter.state);
            let waits = matches!(state, Some(State::Asking | State::Parked | State::Ending));
            !waits && !task.is_woken
        })
    }
}
