//! What an event does.

use std::time::Duration;

use crate::{
    core::facts::{Answer, Ask, Effects, Facts, Limits, Request, Terms},
    core::keys::{Kind, OpKey, Owner},
    core::tenure::HoldState,
    core::waiters::Outcome,
    core::{Ended, Machine},
    event::Event,
    server::{Data, Holder},
    system::{Budget, Step, System, TASKS},
    world::{FromServer, NOW, Phase, World, facts},
};

impl World {
    pub fn apply(&mut self, event: Event, system: &System) {
        if event.is_fault() {
            self.budget.all -= 1;
        }
        let before = self
            .clients
            .each_ref()
            .map(|client| client.machine.tenure().copied());
        self.note_doubts(event);
        let parked = self.parked_beside(event);
        match event {
            Event::Step(client, task) => self.step(client, task, system),
            Event::Poll(client, task) => self.poll(client, task, system),
            Event::DropGuard(client, task) => {
                self.budget.dropped_guards -= 1;
                self.end_guard(client, task, false, system);
            }
            Event::DropFuture(client, task) => self.drop_future(client, task, system),
            Event::Leave(client, batch) => {
                let key = self.clients[client as usize].queued.remove(batch.into());
                if let Some(key) = key {
                    self.build(client, key, system);
                }
            }
            Event::Run(client, request) => self.run(client, request, system),
            Event::Answer(client, answer) => self.answer(client, answer, system),
            Event::Subscribe(client) => self.subscribe(client),
            Event::Stream(client) => {
                let message = self.clients[client as usize].stream.pop_front();
                self.event(client, system, |machine, facts, out| match message {
                    Some(FromServer::Confirmed(channel)) => machine.subscribed(facts, channel, out),
                    Some(FromServer::Message(channel)) => machine.message(facts, channel, out),
                    None => {}
                });
            }
            Event::Reconnect(client) => self.reconnect(client, system),
            Event::Noticed(client) => {
                self.clients[client as usize].is_reconnected = false;
                self.event(client, system, |machine, facts, out| {
                    machine.reconnected(facts, out)
                });
            }
            Event::ListenAgain(client) => {
                let client = &mut self.clients[client as usize];
                client.listens_again = false;
                let channels = client.machine.channels().map(|channel| (channel, true));
                client.subscribing.extend(channels);
            }
            Event::Timer(client) => self.event(client, system, |machine, facts, out| {
                machine.tick(facts, out)
            }),
            Event::LatePickUp(client) => {
                self.budget.late_pick_ups -= 1;
                let limits = Limits {
                    pick_up: Duration::ZERO,
                    ..system.limits.clone()
                };
                let late = System {
                    limits,
                    ..system.clone()
                };
                self.event(client, &late, |machine, facts, out| {
                    machine.tick(facts, out)
                });
            }
            Event::Refuse(client) => {
                self.budget.refused -= 1;
                self.refuses[client as usize] = true;
            }
            Event::Allow(client) => self.refuses[client as usize] = false,
            Event::PutOff(client) => {
                self.budget.put_off -= 1;
                let client = &mut self.clients[client as usize];
                if let Some((owner, ..)) = client.requests.pop_front() {
                    client.answers.push_back((owner, Answer::Passing));
                }
                // An acquire behind a release finds the lock held.
                client
                    .requests
                    .iter_mut()
                    .for_each(|(_, _, owing)| *owing = 0);
            }
            Event::LoseMessage(client) => {
                self.budget.lost_messages -= 1;
                self.clients[client as usize].stream.pop_front();
                self.is_excused[client as usize] = true;
            }
            Event::Break(client) => {
                self.budget.breaks -= 1;
                self.clients[client as usize].goes_down(system);
            }
            Event::BreakListening(client) => {
                self.budget.breaks -= 1;
                self.stops_listening(client);
            }
            Event::Force => {
                self.budget.forced -= 1;
                let before = self.data;
                if let Some((client, owner)) = self.data.holder {
                    self.known[client as usize][owner.0 as usize].forced = true;
                }
                self.publish(self.data.heard(system));
                self.data.free();
                self.order.clear();
                self.in_allowance = [false; 2];
                self.wrote(before);
            }
            Event::Failover(number) => self.fail_over(number, system),
            Event::Close(client, releases) => self.close(client, releases, system),
            Event::Finish(client) => self.finish(client, system),
            Event::Tick { quiet } => self.tick(quiet, system),
            Event::ClockTick(client) => self.clock_tick(client, system),
        }
        self.check_passing(before, system.limits.hands_off);
        let asks = |(client, owner): &Holder| {
            let client = &self.clients[*client as usize];
            client.waits(*owner) && !client.machine.waiters().is_parked(*owner)
        };
        if system.limits.is_fair && parked.iter().any(asks) {
            self.is_wrong("a waiter of a fair lock asks because of another owner");
        }
        self.after(system);
    }

    /// Runs an event of a machine, and its effects.
    pub(crate) fn event<R>(
        &mut self,
        client: u8,
        system: &System,
        event: impl FnOnce(&mut Machine<u8>, &Facts<'_>, &mut Effects<u8>) -> R,
    ) -> R {
        let index = client as usize;
        let mut out = Effects::default();
        let state = &mut self.clients[index];
        let facts = facts(state, system);
        let result = event(&mut state.machine, &facts, &mut out);
        if self.wrong.is_none() {
            let spins = state.machine.spins(&facts);
            let spins = spins.then_some("a tick leaves a time that has come");
            self.wrong = state.machine.broken(&facts).or(spins);
        }
        for task in out.wake {
            state.tasks[task as usize].is_woken = true;
        }
        if !state.listens_again {
            state.subscribing.extend(out.listen);
        }
        state.queued.extend(out.send);
        if !system.batches && state.is_up {
            while let Some(key) = self.clients[index].queued.pop_front() {
                self.build(client, key, system);
            }
        }
        result
    }

    pub(crate) fn build(&mut self, client: u8, key: OpKey, system: &System) {
        let client_now = &self.clients[client as usize];
        // A refused release is given up. One that was put off does not come before this request.
        let mut answers = client_now.answers.iter();
        let comes_before =
            system.budget.refused == 0 && answers.all(|(_, answer)| *answer != Answer::Passing);
        let facts = facts(client_now, system);
        // A client that has the lock asks for places beside its releases.
        let comes_before = comes_before && client_now.machine.tenure().is_none();
        let owing = client_now.machine.owing(&facts);
        let owing = owing.filter(|_| comes_before);
        let owing = owing.fold(0_u8, |owing, owner| owing | 1 << owner.0);
        let request = self.event(client, system, |machine, facts, out| {
            machine.build(facts, key, out)
        });
        if let Some(request) = request {
            let at_end = self.check_request(client, key.field, request);
            let machine = &self.clients[client as usize].machine;
            let waits = machine.waiters().first_of(key.field).is_some();
            let field = machine.field(key.field);
            let is_uncut = field.is_some_and(|field| field.is_given_up || field.free_after > NOW);
            let known = &mut self.known[client as usize][key.field.0 as usize];
            let rule = match request {
                _ if known.put_off == Some(key.kind) => {
                    Some("a request that was put off is repeated at once")
                }
                Request::Abandon if waits => Some("a waiter leaves the queue"),
                Request::Abandon if !known.placed => {
                    Some("an owner leaves a queue in which it is not")
                }
                Request::Acquire { wait: Some(_), .. } if !waits => {
                    Some("a caller that only tries takes a place")
                }
                _ => None,
            };
            known.placed |= matches!(request, Request::Acquire { wait: Some(_), .. });
            known.uncut |= is_uncut && matches!(request, Request::Acquire { .. });
            self.wrong = self.wrong.or(rule).or(at_end);
            if matches!(request, Request::Acquire { .. }) {
                self.clients[client as usize].is_ask_doubted = false;
            }
            self.clients[client as usize]
                .requests
                .push_back((key.field, request, owing));
            if key.kind == Kind::Release && !system.unordered {
                self.event(client, system, |machine, facts, out| {
                    machine.written(facts, key.field, out)
                });
            }
        }
    }

    /// Whether the caller only tries.
    pub(crate) fn tries(&self, client: u8, task: u8, system: &System) -> bool {
        let step = self.clients[client as usize].tasks[task as usize].step;
        system.tasks[client as usize][task as usize].get(step as usize) == Some(&Step::Try)
    }

    pub(crate) fn owner(&self, client: u8, task: u8, system: &System) -> Owner {
        Owner(system.owners[client as usize][task as usize])
    }

    pub(crate) fn step(&mut self, client: u8, task: u8, system: &System) {
        let step = system.tasks[client as usize][task as usize]
            [self.clients[client as usize].tasks[task as usize].step as usize];
        let terms = match step {
            Step::Unlock => {
                self.clients[client as usize].tasks[task as usize].step += 1;
                return self.end_guard(client, task, true, system);
            }
            Step::Extend => return self.extend(client, task, system),
            Step::LockFixed => Terms::Fixed(system.fixed_lease),
            Step::Lock | Step::Try => Terms::Watched,
        };
        let ask = Ask {
            owner: self.owner(client, task, system),
            terms,
            waits: step != Step::Try,
        };
        let key = self.event(client, system, |machine, facts, out| {
            machine.enter(facts, ask, out)
        });
        self.clients[client as usize].tasks[task as usize].phase = Phase::Waiting(key);
        self.poll(client, task, system);
    }

    fn extend(&mut self, client: u8, task: u8, system: &System) {
        let state = &self.clients[client as usize].tasks[task as usize];
        let hold = *state.guards.last().expect("the task has a guard");
        let key = self.event(client, system, |machine, facts, out| {
            machine.extend(facts, hold, system.fixed_lease, out)
        });
        let state = &mut self.clients[client as usize].tasks[task as usize];
        match key {
            Some(key) => {
                state.phase = Phase::Waiting(key);
                self.poll(client, task, system);
            }
            None => state.step += 1,
        }
    }

    pub(crate) fn poll(&mut self, client: u8, task: u8, system: &System) {
        let state = &mut self.clients[client as usize].tasks[task as usize];
        state.is_woken = false;
        let (Phase::Waiting(key) | Phase::Ending(key)) = state.phase else {
            return;
        };
        let is_ending = matches!(state.phase, Phase::Ending(_));
        let outcome = self.event(client, system, |machine, facts, out| {
            machine.take(facts, key, task, out)
        });
        let Some(outcome) = outcome else { return };
        if outcome == Outcome::Busy && !self.tries(client, task, system) {
            self.is_wrong("a caller that waits is refused");
        }
        let state = &self.clients[client as usize];
        let guard = state.tasks[task as usize].guards.last();
        let hold = guard.and_then(|hold| state.machine.holds().get(*hold));
        let is_recorded =
            hold.is_none_or(|hold| hold.state == HoldState::Lost || hold.until.is_some());
        if outcome == Outcome::Extended && !is_recorded {
            self.is_wrong("an extended hold has the lease of one that is not");
        }
        let state = &mut self.clients[client as usize].tasks[task as usize];
        state.phase = Phase::Ready;
        if !is_ending {
            state.step += 1;
        }
        if let Outcome::Hold(hold) = outcome {
            state.guards.push(hold);
        }
    }

    pub(crate) fn end_guard(&mut self, client: u8, task: u8, waits: bool, system: &System) {
        let Some(hold) = self.clients[client as usize].tasks[task as usize]
            .guards
            .pop()
        else {
            return;
        };
        let (ended, waiter) = self.event(client, system, |machine, facts, out| {
            machine.end(facts, hold, waits, out)
        });
        if let (Ended::Pending, Some(key)) = (ended, waiter) {
            self.clients[client as usize].tasks[task as usize].phase = Phase::Ending(key);
            self.poll(client, task, system);
        }
    }

    pub(crate) fn drop_future(&mut self, client: u8, task: u8, system: &System) {
        self.budget.dropped_futures -= 1;
        let state = &mut self.clients[client as usize].tasks[task as usize];
        let phase = std::mem::replace(&mut state.phase, Phase::Ready);
        state.is_woken = false;
        if let Phase::Waiting(key) | Phase::Ending(key) = phase {
            state.step += u8::from(phase == Phase::Waiting(key));
            self.event(client, system, |machine, facts, out| {
                machine.leave(facts, key, out)
            });
        }
    }

    /// What follows from every event, and the checks.
    pub(crate) fn after(&mut self, system: &System) {
        for client in &mut self.clients {
            if client.machine.forget(client.epoch) {
                client.epoch = 0;
            }
        }
        if self.budget.all == 0 {
            self.budget = Budget::default();
        }
        if self.budget.failovers == 0 {
            self.earlier = [Data::default(); 2];
        }
        for client in 0..2 {
            for owner in 0..TASKS {
                let holder = (client as u8, Owner(owner as u64));
                if self.known[client][owner].cut && self.is_whole(holder) {
                    self.known[client][owner].cut = false;
                }
                if !self.data.queue.has(holder) {
                    self.known[client][owner].placed_again = false;
                }
                if self.data.holds_of(holder) == 0 {
                    self.known[client][owner].left = false;
                    self.known[client][owner].uncut = false;
                    self.known[client][owner].brought_back = false;
                }
            }
        }
        let clients = &self.clients;
        let waits = |(client, owner): &Holder| clients[*client as usize].waits(*owner);
        self.order.retain(waits);
        for (client, known) in (0..).zip(&mut self.known) {
            for (owner, known) in (0..).map(Owner).zip(known) {
                known.refused_ago = known.refused_ago.filter(|_| waits(&(client, owner)));
            }
        }
        self.skip_steps(system);
        if self.wrong.is_none() {
            self.wrong = self.check(system);
        }
    }
}
