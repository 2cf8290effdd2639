//! The world around the machines: tasks, connections, faults, time.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

use super::{Step, System, server::Data};
use crate::{
    core::permits::{
        Pool,
        attempts::AttemptKey,
        facts::{Answer, Facts, Request},
        grants::GrantKey,
    },
    event::Event,
    system::{Budget, TASKS},
    world::{NOW, Phase, in_ticks},
};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Task {
    pub phase: Phase,
    pub step: u8,
    pub is_woken: bool,
    pub guards: Vec<GrantKey>,
}

/// A request on its way, and the ticks since it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct OnItsWay {
    pub key: AttemptKey,
    pub request: Request,
    pub age: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum FromServer {
    Confirmed,
    /// So many permits are left.
    Message(u8),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Client {
    pub pool: Pool<u8>,
    pub tasks: [Task; TASKS],
    /// Batches that wait to leave.
    pub queued: VecDeque<AttemptKey>,
    pub requests: VecDeque<OnItsWay>,
    pub answers: VecDeque<(AttemptKey, Answer)>,
    pub subscribing: VecDeque<bool>,
    pub is_subscribed: bool,
    pub stream: VecDeque<FromServer>,
    pub is_up: bool,
    pub listens_again: bool,
    pub is_reconnected: bool,
    /// The server refuses its requests: its user lacks a right.
    pub is_refused: bool,
    /// It has lost a message, and no answer has told it since how many permits are left.
    pub is_excused: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    pub(super) clients: [Client; 2],
    pub(super) data: Data,
    /// The data without the last write, and without the last two.
    pub(super) earlier: [Data; 2],
    /// The permits that there are, wherever. A failover, and an attempt that is given up, change their number.
    pub(super) total: u8,
    /// The permits that tasks have left taken.
    pub(super) leaked: u8,
    pub(super) budget: Budget,
    pub(super) ticks: u8,
    pub(super) wrong: Option<&'static str>,
}

impl World {
    pub fn new(system: &System) -> Self {
        let task = || Task {
            phase: Phase::Ready,
            step: 0,
            is_woken: false,
            guards: Vec::new(),
        };
        let client = || Client {
            pool: Pool::default(),
            tasks: std::array::from_fn(|_| task()),
            queued: VecDeque::new(),
            requests: VecDeque::new(),
            answers: VecDeque::new(),
            subscribing: VecDeque::new(),
            is_subscribed: false,
            stream: VecDeque::new(),
            is_up: true,
            listens_again: false,
            is_reconnected: false,
            is_refused: false,
            is_excused: false,
        };
        let data = Data {
            left: system.permits,
            ..Data::default()
        };
        let mut world = Self {
            clients: [client(), client()],
            data,
            earlier: [data; 2],
            total: system.permits,
            leaked: 0,
            budget: system.budget,
            ticks: system.ticks,
            wrong: None,
        };
        world.after(system);
        world
    }

    pub(super) fn is_wrong(&mut self, rule: &'static str) {
        self.wrong = self.wrong.or(Some(rule));
    }

    /// The end of a guard without one, and a release of permits that are not left taken, are skipped.
    pub(super) fn skip_steps(&mut self, system: &System) {
        for (client, steps) in self.clients.iter_mut().zip(&system.tasks) {
            for (task, steps) in client.tasks.iter_mut().zip(steps) {
                while task.phase == Phase::Ready {
                    match steps.get(task.step as usize) {
                        Some(Step::End | Step::Leak) if task.guards.is_empty() => task.step += 1,
                        Some(Step::Release) if self.leaked == 0 => task.step += 1,
                        Some(_) => break,
                        None => task.phase = Phase::Done,
                    }
                }
            }
        }
    }

    pub fn events(&self, system: &System, out: &mut Vec<Event>) {
        out.clear();
        for (index, client) in (0..).zip(&self.clients) {
            for (number, task) in (0..).zip(&client.tasks) {
                match task.phase {
                    Phase::Ready => out.push(Event::Step(index, number)),
                    Phase::Done => {}
                    Phase::Waiting(_) | Phase::Ending(_) => {
                        if task.is_woken {
                            out.push(Event::Poll(index, number));
                        }
                        if self.budget.dropped_futures > 0 {
                            out.push(Event::DropFuture(index, number));
                        }
                    }
                }
                if !task.guards.is_empty() && self.budget.dropped_guards > 0 {
                    out.push(Event::DropGuard(index, number));
                }
            }
            self.network_events(index, client, system, out);
            let is_given = client.pool.grants().find_given(|_| true).is_some();
            if self.budget.late_pick_ups > 0 && is_given {
                out.push(Event::LatePickUp(index));
            }
        }
        if self.budget.failovers > 0 && !self.is_end() {
            for number in 0..3 {
                let data = self.after_failover(number);
                if (0..number).all(|other| self.after_failover(other) != data) {
                    out.push(Event::Failover(number));
                }
            }
        }
        if self.budget.all == 0 {
            out.retain(|event| !event.is_fault());
        }
        let quiet = !out.iter().any(|event| event.is_internal());
        if (quiet || self.ticks > 0) && self.may_pass(system) {
            out.push(Event::Tick { quiet });
        }
    }

    fn network_events(&self, index: u8, client: &Client, system: &System, out: &mut Vec<Event>) {
        let choices = |count: usize| match system.unordered {
            true => 0..count as u8,
            false => 0..count.min(1) as u8,
        };
        if client.is_up {
            out.extend(choices(client.queued.len()).map(|batch| Event::Leave(index, batch)));
        }
        out.extend(choices(client.requests.len()).map(|request| Event::Run(index, request)));
        out.extend(choices(client.answers.len()).map(|answer| Event::Answer(index, answer)));
        if client.is_refused {
            out.push(Event::Allow(index));
        } else if !client.requests.is_empty() && self.budget.refused > 0 {
            out.push(Event::Refuse(index));
        }
        let message = client.stream.front();
        let may_be_lost = matches!(message, Some(FromServer::Message(_)));
        let may_break = client.is_up && !client.listens_again && self.budget.breaks > 0;
        let is_used =
            client.tasks.iter().any(|task| task.phase != Phase::Done) || !client.pool.is_idle();
        for (may_happen, event) in [
            (!client.subscribing.is_empty(), Event::Subscribe(index)),
            (message.is_some(), Event::Stream(index)),
            (
                may_be_lost && self.budget.lost_messages > 0,
                Event::LoseMessage(index),
            ),
            (!client.is_up, Event::Reconnect(index)),
            (client.listens_again, Event::ListenAgain(index)),
            (client.is_reconnected, Event::Noticed(index)),
            (may_break && is_used, Event::Break(index)),
            (
                may_break && client.pool.listens(),
                Event::BreakListening(index),
            ),
        ] {
            if may_happen {
                out.push(event);
            }
        }
    }

    /// Whether time makes a difference. A request is executed within the longest doubt after it was sent, or not at all.
    fn may_pass(&self, system: &System) -> bool {
        let longest = in_ticks(system.limits.longest_doubt);
        let is_late = |client: &Client| client.requests.iter().any(|sent| sent.age >= longest);
        let matters = |client: &Client| {
            let pool = &client.pool;
            let mut grants = pool.grants().all();
            pool.attempts().next().is_some()
                || pool.look_at(&facts(system)).is_some()
                || grants.any(|(_, grant)| grant.window > NOW)
        };
        !self.clients.iter().any(is_late) && self.clients.iter().any(matters)
    }

    pub fn is_end(&self) -> bool {
        self.clients.iter().all(|client| {
            client.tasks.iter().all(|task| task.phase == Phase::Done) && client.pool.is_idle()
        })
    }

    /// Hashes the world, with `first` as the first client.
    pub fn hash_from(&self, first: usize, into: &mut impl Hasher) {
        for client in [first, 1 - first] {
            self.clients[client].hash(into);
            for data in [&self.data, &self.earlier[0], &self.earlier[1]] {
                data.results[client].hash(into);
            }
        }
        (self.data.left, self.earlier[0].left, self.earlier[1].left).hash(into);
        (self.total, self.leaked, self.budget, self.ticks).hash(into);
    }
}

impl Client {
    /// The connection of the requests breaks.
    pub(super) fn goes_down(&mut self, system: &System) {
        self.is_up = false;
        if !system.keeps_answers {
            self.answers.clear();
        }
    }

    pub(super) fn stops_listening(&mut self) {
        self.is_subscribed = false;
        self.stream.clear();
        self.subscribing.clear();
        self.listens_again = true;
    }
}

pub(super) fn facts(system: &System) -> Facts<'_> {
    Facts {
        now: NOW,
        limits: &system.limits,
    }
}
