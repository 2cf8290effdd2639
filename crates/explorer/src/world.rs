//! The world around the machines: tasks, connections, faults, time.

use std::time::Duration;

use crate::{
    core::Machine,
    core::facts::{Answer, Effects, Facts, Request},
    core::keys::{Channel, HoldKey, Kind, OpKey, Owner, WaiterKey},
    core::time::Time,
    event::Event,
    fifo::Fifo,
    life::Life,
    server::{Data, Holder},
    system::{Budget, Step, System, TASKS, TICK},
};

/// The clocks stand still at this time, and all other times move towards the past.
pub(crate) const NOW: Time = Time::from_nanos(100_000_000_000);
/// What is wrong with a system of which nothing was explored.
pub const NO_BEGIN: &str = "the way to the begin cannot happen";
/// Older times are not told apart.
pub(crate) const OLDEST: Time = Time::from_nanos(90_000_000_000);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    Ready,
    Waiting(WaiterKey),
    Ending(WaiterKey),
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Task {
    pub(crate) phase: Phase,
    pub(crate) step: u8,
    pub(crate) is_woken: bool,
    pub(crate) guards: Vec<HoldKey>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Client {
    pub(crate) machine: Machine<u8>,
    pub(crate) tasks: [Task; TASKS],
    /// Batches that wait to leave.
    pub(crate) queued: Fifo<OpKey>,
    /// With a bit for each owner whose holds the client had left before.
    pub(crate) requests: Fifo<(Owner, Request, u8)>,
    pub(crate) answers: Fifo<(Owner, Answer)>,
    pub(crate) subscribing: Fifo<(Channel, bool)>,
    /// The channels of which the server knows, in order.
    pub(crate) subscribed: Vec<Channel>,
    pub(crate) stream: Fifo<FromServer>,
    pub(crate) is_up: bool,
    pub(crate) listens_again: bool,
    pub(crate) is_reconnected: bool,
    pub(crate) epoch: u32,
    pub(crate) life: Life,
    /// Its clock is one tick late.
    pub(crate) lags: bool,
    /// Since the tenure was last confirmed, a message or a reconnection has put it in doubt.
    pub(crate) is_doubted: bool,
    /// The same, since an acquire was last sent.
    pub(crate) is_ask_doubted: bool,
    /// A tick has passed since the tenure began.
    pub(crate) is_aged: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FromServer {
    Confirmed(Channel),
    Message(Channel),
}

/// What the checks know beside the states of clients and server, by client and field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Known {
    /// The lock was forced open while this field had it.
    pub(crate) forced: bool,
    /// A failover took something of its last hold.
    pub(crate) hurt: bool,
    /// Its client has ended, and leaves it to its lease.
    pub(crate) left: bool,
    /// A failover cut its tenure, and its client does not know.
    pub(crate) cut: bool,
    /// It has entered on the longer lease of a hold that had ended: the server had refused the release, or the release still waited for
    /// the end of the allowance. No release has set the expiry since.
    pub(crate) uncut: bool,
    /// A failover brought back a hold that its client had left.
    pub(crate) brought_back: bool,
    /// A failover brought back a place that its client had left.
    pub(crate) placed_again: bool,
    /// Its place has ended, and it has not asked since.
    pub(crate) late: bool,
    /// It has asked for a place, and no answer has told since that it has none.
    pub(crate) placed: bool,
    /// The server has just refused this request for a passing reason.
    pub(crate) put_off: Option<Kind>,
    /// The ticks since a waiter of it was last refused.
    pub(crate) refused_ago: Option<u8>,
}

#[derive(Clone, Debug)]
pub struct World {
    pub(crate) clients: [Client; 2],
    pub(crate) data: Data,
    /// The data without the last write, and without the last two.
    pub(crate) earlier: [Data; 2],
    /// The owners that wait for a fair lock, in the order of their first asks at the server.
    pub(crate) order: Vec<Holder>,
    pub(crate) known: [[Known; TASKS]; 2],
    /// The server refuses the requests of the client: its user lacks a right.
    pub(crate) refuses: [bool; 2],
    /// The client cannot know that the lock is free.
    pub(crate) is_excused: [bool; 2],
    /// The holder of a hold that the client's clock has just ended.
    pub(crate) in_allowance: [bool; 2],
    pub(crate) budget: Budget,
    pub(crate) ticks: u8,
    pub(crate) wrong: Option<&'static str>,
}

/// To the nearest tick: the drift of clocks is more than one by a nanosecond.
pub(crate) fn in_ticks(span: Duration) -> u8 {
    let ticks = (span + TICK / 2).as_nanos() / TICK.as_nanos();
    u8::try_from(ticks).unwrap_or(u8::MAX)
}

impl World {
    /// The world after the way to its begin. Without that way it is wrong.
    pub fn new(system: &System) -> Self {
        let task = || Task {
            phase: Phase::Ready,
            step: 0,
            is_woken: false,
            guards: Vec::new(),
        };
        let client = || Client {
            machine: Machine::default(),
            tasks: std::array::from_fn(|_| task()),
            queued: Fifo::default(),
            requests: Fifo::default(),
            answers: Fifo::default(),
            subscribing: Fifo::default(),
            subscribed: Vec::new(),
            stream: Fifo::default(),
            is_up: true,
            listens_again: false,
            is_reconnected: false,
            epoch: 0,
            life: Life::Open,
            lags: false,
            is_doubted: false,
            is_ask_doubted: false,
            is_aged: false,
        };
        let mut world = Self {
            clients: [client(), client()],
            data: Data::default(),
            earlier: [Data::default(); 2],
            order: Vec::new(),
            known: [[Known::default(); TASKS]; 2],
            refuses: [false; 2],
            is_excused: [false; 2],
            in_allowance: [false; 2],
            budget: system.budget,
            ticks: system.ticks,
            wrong: None,
        };
        world.skip_steps(system);
        for event in &system.begins {
            let mut events = Vec::new();
            world.events(system, &mut events);
            if !events.contains(event) {
                world.is_wrong(NO_BEGIN);
                break;
            }
            world.apply(*event, system);
        }
        world
    }

    pub fn wrong(&self) -> Option<&'static str> {
        self.wrong
    }

    pub(crate) fn is_wrong(&mut self, rule: &'static str) {
        self.wrong = self.wrong.or(Some(rule));
    }

    /// An unlock or an extension without a guard is skipped. A task without further steps is done.
    pub(crate) fn skip_steps(&mut self, system: &System) {
        for (client, steps) in self.clients.iter_mut().zip(&system.tasks) {
            for (task, steps) in client.tasks.iter_mut().zip(steps) {
                while task.phase == Phase::Ready {
                    match steps.get(task.step as usize) {
                        Some(Step::Unlock | Step::Extend) if task.guards.is_empty() => {
                            task.step += 1;
                        }
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
            if client.lags {
                out.push(Event::ClockTick(index));
            }
            if system.timers_lag && self.is_timer_due(client, system) {
                out.push(Event::Timer(index));
            }
            if self.budget.late_pick_ups > 0
                && client.machine.holds().find_given(|_| true).is_some()
            {
                out.push(Event::LatePickUp(index));
            }
        }
        if self.budget.forced > 0 && self.data.holder.is_some() {
            out.push(Event::Force);
        }
        if self.budget.failovers > 0 && !self.is_end() {
            for number in 0..4 {
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
        let may_pass = quiet || self.ticks > 0;
        if may_pass && self.clients.iter().all(|client| !client.lags) && self.time_matters() {
            out.push(Event::Tick { quiet });
        }
    }

    pub(crate) fn network_events(
        &self,
        index: u8,
        client: &Client,
        system: &System,
        out: &mut Vec<Event>,
    ) {
        if client.is_up {
            let batches = if system.unordered {
                client.queued.len()
            } else {
                client.queued.len().min(1)
            };
            out.extend((0..batches as u8).map(|batch| Event::Leave(index, batch)));
        }
        let requests = if system.unordered {
            client.requests.len()
        } else {
            client.requests.len().min(1)
        };
        out.extend((0..requests as u8).map(|request| Event::Run(index, request)));
        if self.refuses[index as usize] {
            out.push(Event::Allow(index));
        } else if requests > 0 && self.budget.refused > 0 {
            out.push(Event::Refuse(index));
        }
        if requests > 0 && client.is_up && self.budget.put_off > 0 {
            out.push(Event::PutOff(index));
        }
        let answers = if system.unordered {
            client.answers.len()
        } else {
            client.answers.len().min(1)
        };
        out.extend((0..answers as u8).map(|answer| Event::Answer(index, answer)));
        if !client.subscribing.is_empty() {
            out.push(Event::Subscribe(index));
        }
        if let Some(first) = client.stream.first() {
            out.push(Event::Stream(index));
            if matches!(first, FromServer::Message(_)) && self.budget.lost_messages > 0 {
                out.push(Event::LoseMessage(index));
            }
        }
        if !client.is_up {
            out.push(Event::Reconnect(index));
        }
        if client.listens_again {
            out.push(Event::ListenAgain(index));
        }
        if client.is_reconnected {
            out.push(Event::Noticed(index));
        }
        let is_used = client.tasks.iter().any(|task| task.phase != Phase::Done)
            || !client.machine.fields().is_empty();
        if client.may_finish() {
            out.push(Event::Finish(index));
        }
        if self.budget.closes > 0 && client.life == Life::Open && is_used {
            out.extend([true, false].map(|releases| Event::Close(index, releases)));
        }
        if client.is_up && !client.listens_again && self.budget.breaks > 0 && is_used {
            out.push(Event::Break(index));
            if client.machine.listens() {
                out.push(Event::BreakListening(index));
            }
        }
    }

    pub(crate) fn is_timer_due(&self, client: &Client, system: &System) -> bool {
        let mut later = client.machine.clone();
        later.tick(&facts(client, system), &mut Effects::default());
        later != client.machine
    }

    pub(crate) fn time_matters(&self) -> bool {
        let matters = |client: &Client| {
            let machine = &client.machine;
            machine.tenure().is_some()
                || !machine.fields().is_empty()
                || machine.waiters().has_parked()
        };
        self.data.left > 0 || self.data.queue.head().is_some() || self.clients.iter().any(matters)
    }

    pub fn is_end(&self) -> bool {
        let is_over = |client: &Client| {
            client.tasks.iter().all(|task| task.phase == Phase::Done)
                && client.machine.fields().is_empty()
                && client.machine.tenure().is_none()
                && !client.machine.listens()
        };
        // The next ask of any client removes a place that has ended.
        let is_free =
            self.data.holder.is_none() && self.data.queue.iter().all(|(_, left)| left == 0);
        is_free && self.clients.iter().all(is_over)
    }
}

pub(crate) fn facts<'a>(client: &Client, system: &'a System) -> Facts<'a> {
    Facts {
        now: NOW,
        epoch: client.epoch,
        limits: &system.limits,
        is_open: client.life == Life::Open,
    }
}
