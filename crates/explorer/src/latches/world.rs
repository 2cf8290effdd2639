//! The world around the machines: callers, connections, faults, time.

use std::{
    collections::VecDeque,
    fmt,
    hash::{Hash, Hasher},
};

use super::System;
use crate::{
    core::latch::{Answer, Facts, Latch, Mark, Message, State},
    event::Event,
    system::{Budget, TASKS, TICK},
    world::{NOW, Phase},
};

/// The number in place of a client's, for a step of the latch.
pub(super) const LATCH: u8 = 2;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Task {
    pub phase: Phase,
    pub step: u8,
    pub is_woken: bool,
    /// The latch has been open, or closed, at some moment since its call began.
    pub saw: [bool; 2],
    /// The latch was opened after the client had learned of a look for this call, and the message is not lost.
    pub must_end: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum FromServer {
    Confirmed,
    Message(Message),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Client {
    pub latch: Latch<u8>,
    pub tasks: [Task; TASKS],
    pub queued: VecDeque<Mark>,
    pub request: Option<Mark>,
    pub answer: Option<Answer>,
    pub subscribing: VecDeque<bool>,
    pub is_subscribed: bool,
    pub stream: VecDeque<FromServer>,
    pub is_up: bool,
    pub listens_again: bool,
    pub is_reconnected: bool,
    /// The server refuses its requests: its user lacks a right.
    pub is_refused: bool,
    /// It has lost a message, and has not looked since.
    pub is_excused: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    pub(super) clients: [Client; 2],
    pub(super) is_open: bool,
    /// The same without the last write.
    pub(super) was_open: bool,
    pub(super) turns: u8,
    pub(super) budget: Budget,
    pub(super) ticks: u8,
    pub(super) wrong: Option<&'static str>,
}

impl World {
    pub fn new(system: &System) -> Self {
        let task = |steps: &str| Task {
            phase: match steps {
                "" => Phase::Done,
                _ => Phase::Ready,
            },
            step: 0,
            is_woken: false,
            saw: [false; 2],
            must_end: false,
        };
        let client = |tasks: [&str; TASKS]| Client {
            latch: Latch::default(),
            tasks: tasks.map(task),
            queued: VecDeque::new(),
            request: None,
            answer: None,
            subscribing: VecDeque::new(),
            is_subscribed: false,
            stream: VecDeque::new(),
            is_up: true,
            listens_again: false,
            is_reconnected: false,
            is_refused: false,
            is_excused: false,
        };
        Self {
            clients: system.tasks.map(client),
            is_open: false,
            was_open: false,
            turns: system.turns,
            budget: system.budget,
            ticks: system.ticks,
            wrong: None,
        }
    }

    pub(super) fn is_wrong(&mut self, rule: &'static str) {
        self.wrong = self.wrong.or(Some(rule));
    }

    pub fn events(&self, out: &mut Vec<Event>) {
        out.clear();
        if self.turns > 0 {
            out.push(Event::Step(LATCH, 0));
        }
        for (index, client) in (0..).zip(&self.clients) {
            for (number, task) in (0..).zip(&client.tasks) {
                match task.phase {
                    Phase::Ready => out.push(Event::Step(index, number)),
                    Phase::Waiting(_) if task.is_woken => out.push(Event::Poll(index, number)),
                    _ => {}
                }
                if matches!(task.phase, Phase::Waiting(_)) && self.budget.dropped_futures > 0 {
                    out.push(Event::DropFuture(index, number));
                }
            }
            self.network_events(index, client, out);
        }
        if self.budget.failovers > 0 && !self.is_end() {
            out.push(Event::Failover(0));
        }
        if self.budget.all == 0 {
            out.retain(|event| !event.is_fault());
        }
        let quiet = !out.iter().any(|event| event.is_internal());
        let looks = |client: &Client| client.latch.look_at().is_some();
        if (quiet || self.ticks > 0) && self.clients.iter().any(looks) {
            out.push(Event::Tick { quiet });
        }
    }

    fn network_events(&self, index: u8, client: &Client, out: &mut Vec<Event>) {
        let is_message = matches!(client.stream.front(), Some(FromServer::Message(_)));
        let may_break = client.is_up && !client.listens_again && self.budget.breaks > 0;
        let is_used = client.tasks.iter().any(|task| task.phase != Phase::Done);
        let may_be_refused = client.request.is_some() && self.budget.refused > 0;
        for (may_happen, event) in [
            (
                client.is_up && !client.queued.is_empty(),
                Event::Leave(index, 0),
            ),
            (client.request.is_some(), Event::Run(index, 0)),
            (client.answer.is_some(), Event::Answer(index, 0)),
            (client.is_refused, Event::Allow(index)),
            (!client.is_refused && may_be_refused, Event::Refuse(index)),
            (!client.subscribing.is_empty(), Event::Subscribe(index)),
            (!client.stream.is_empty(), Event::Stream(index)),
            (
                is_message && self.budget.lost_messages > 0,
                Event::LoseMessage(index),
            ),
            (!client.is_up, Event::Reconnect(index)),
            (client.listens_again, Event::ListenAgain(index)),
            (client.is_reconnected, Event::Noticed(index)),
            (may_break && is_used, Event::Break(index)),
            (
                may_break && client.latch.listens(),
                Event::BreakListening(index),
            ),
        ] {
            if may_happen {
                out.push(event);
            }
        }
    }

    pub fn is_end(&self) -> bool {
        self.clients.iter().all(|client| {
            client.tasks.iter().all(|task| task.phase == Phase::Done) && client.latch.is_idle()
        })
    }

    /// What holds when nothing but time, tasks and faults can happen.
    pub fn check_quiet(&self) -> Option<&'static str> {
        for client in &self.clients {
            for task in &client.tasks {
                let Phase::Waiting(key) = task.phase else {
                    continue;
                };
                if task.must_end {
                    return Some("a caller waits although an opening was announced after its look");
                }
                let mut waiters = client.latch.waiters();
                let waiter = waiters.find(|(other, _)| *other == key);
                let state = waiter.map(|(_, waiter)| waiter.state);
                if state != Some(State::Parked) {
                    return Some("a task waits, and is not parked");
                }
                if self.is_open && !client.is_excused {
                    return Some("a caller is parked although the latch is open");
                }
            }
            if client.latch.look().is_some() {
                return Some("a look is under way without a request");
            }
        }
        None
    }

    /// Hashes the world, with `first` as the first client.
    pub fn hash_from(&self, first: usize, into: &mut impl Hasher) {
        for client in [first, 1 - first] {
            self.clients[client].hash(into);
        }
        (self.is_open, self.was_open, self.turns).hash(into);
        (self.budget, self.ticks).hash(into);
    }

    /// The latch was opened, or closed: what the callers have seen.
    pub(super) fn show(&mut self) {
        let is_open = usize::from(self.is_open);
        let tasks = self.clients.iter_mut().flat_map(|client| &mut client.tasks);
        tasks.for_each(|task| task.saw[is_open] = true);
    }

    /// Tells marks apart by their order alone.
    pub(super) fn renumber(&mut self) {
        for client in &mut self.clients {
            let of_stream = client.stream.iter().filter_map(|message| match message {
                FromServer::Message(Message::Mark(mark)) => Some(*mark),
                _ => None,
            });
            let of_requests = client.queued.iter().chain(&client.request).copied();
            let all = client.latch.marks().chain(of_stream).chain(of_requests);
            let mut marks: Vec<Mark> = all.collect();
            marks.sort();
            marks.dedup();
            let rank = |mark: Mark| {
                let place = marks.iter().position(|other| *other >= mark);
                Mark(place.unwrap_or(marks.len()) as u64 + 1)
            };
            for message in &mut client.stream {
                if let FromServer::Message(Message::Mark(mark)) = message {
                    *mark = rank(*mark);
                }
            }
            for mark in client.queued.iter_mut().chain(&mut client.request) {
                *mark = rank(*mark);
            }
            let last = Mark(marks.len() as u64);
            client.latch.forget(rank, last);
        }
    }
}

impl Client {
    pub(super) fn facts(&self) -> Facts {
        Facts {
            now: NOW,
            poll: TICK * 2,
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", if self.is_open { "open" } else { "closed" })?;
        for (index, client) in self.clients.iter().enumerate() {
            write!(f, " | {index}:")?;
            for (_, waiter) in client.latch.waiters() {
                let mark = if waiter.is_marked { " marked" } else { "" };
                write!(f, " {:?}{mark}", waiter.state)?;
            }
            write!(
                f,
                " look {:?} stream {:?}",
                client.latch.look(),
                client.stream
            )?;
        }
        Ok(())
    }
}
