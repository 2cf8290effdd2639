//! What an event does.

use super::{
    Step, System,
    server::Data,
    world::{FromServer, OnItsWay, World, facts},
};
use crate::{
    core::permits::{
        Pool,
        attempts::AttemptKey,
        facts::{Answer, Ask, Effects, Facts},
        queue::Outcome,
    },
    event::Event,
    system::{Budget, TICK},
    world::{NOW, OLDEST, Phase},
};

impl World {
    pub fn apply(&mut self, event: Event, system: &System) {
        if event.is_fault() {
            self.budget.all -= 1;
        }
        let given = self.given();
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
                key.into_iter()
                    .for_each(|key| self.build(client, key, system));
            }
            Event::Run(client, request) => self.run(client, request, system),
            Event::Answer(client, answer) => {
                let answer = self.clients[client as usize].answers.remove(answer.into());
                self.event(client, system, |pool, facts, out| {
                    if let Some((key, answer)) = answer {
                        pool.answer(facts, key, answer, out);
                    }
                });
            }
            Event::Subscribe(client) => self.subscribe(client),
            Event::Stream(client) => {
                let message = self.clients[client as usize].stream.pop_front();
                self.event(client, system, |pool, facts, out| match message {
                    Some(FromServer::Confirmed) => pool.subscribed(facts, out),
                    Some(FromServer::Message(left)) => pool.message(facts, left.into(), out),
                    None => {}
                });
            }
            Event::Reconnect(client) => self.reconnect(client, system),
            Event::Noticed(client) => {
                self.clients[client as usize].is_reconnected = false;
                self.event(client, system, |pool, facts, out| {
                    pool.reconnected(facts, out)
                });
            }
            Event::ListenAgain(client) => {
                let client = &mut self.clients[client as usize];
                client.listens_again = false;
                client
                    .subscribing
                    .extend(client.pool.listens().then_some(true));
            }
            Event::LatePickUp(client) => self.pick_up_late(client, system),
            Event::Refuse(client) => {
                self.budget.refused -= 1;
                self.clients[client as usize].is_refused = true;
            }
            Event::Allow(client) => self.clients[client as usize].is_refused = false,
            Event::LoseMessage(client) => {
                self.budget.lost_messages -= 1;
                self.clients[client as usize].stream.pop_front();
                self.clients[client as usize].is_excused = true;
            }
            Event::Break(client) => {
                self.budget.breaks -= 1;
                self.clients[client as usize].goes_down(system);
            }
            Event::BreakListening(client) => {
                self.budget.breaks -= 1;
                self.clients[client as usize].stops_listening();
            }
            Event::Failover(number) => self.fail_over(number, system),
            Event::Tick { quiet } => self.tick(quiet, system),
            _ => unreachable!("an event of a lock"),
        }
        self.check_passing(given, event, system);
        self.after(system);
    }

    /// Runs an event of a machine, and its effects.
    pub(super) fn event<R>(
        &mut self,
        client: u8,
        system: &System,
        event: impl FnOnce(&mut Pool<u8>, &Facts<'_>, &mut Effects<u8>) -> R,
    ) -> R {
        let mut out = Effects::default();
        let state = &mut self.clients[client as usize];
        let may_be_forgotten = state.may_be_forgotten(system);
        let facts = facts(system);
        let result = event(&mut state.pool, &facts, &mut out);
        let spins = state.pool.spins(&facts);
        let spins = spins.then_some("a tick leaves a time that has come");
        let early = out.forgotten > may_be_forgotten;
        let early = early.then_some("an attempt is given up before its time");
        let broken = state.pool.broken(&facts);
        self.wrong = self.wrong.or(broken).or(spins).or(early);
        for task in out.wake {
            state.tasks[task as usize].is_woken = true;
        }
        if !state.listens_again {
            state.subscribing.extend(out.listen);
        }
        state.queued.extend(out.send);
        if out.forgotten > 0 {
            self.add_lost(system);
        }
        self.send_all(client, system);
        result
    }

    /// Without batches, requests leave at once.
    fn send_all(&mut self, client: u8, system: &System) {
        while !system.batches
            && self.clients[client as usize].is_up
            && let Some(key) = self.clients[client as usize].queued.pop_front()
        {
            self.build(client, key, system);
        }
    }

    fn build(&mut self, client: u8, key: AttemptKey, system: &System) {
        let request = self.event(client, system, |pool, facts, out| {
            pool.build(facts, key, out)
        });
        let request = request.map(|request| OnItsWay {
            key,
            request,
            age: 0,
        });
        self.clients[client as usize].requests.extend(request);
    }

    fn step(&mut self, client: u8, task: u8, system: &System) {
        let state = &mut self.clients[client as usize].tasks[task as usize];
        let step = system.tasks[client as usize][task as usize][state.step as usize];
        let (permits, waits) = match step {
            Step::Acquire(permits) => (permits, true),
            Step::Try(permits) => (permits, false),
            _ => {
                state.step += 1;
                return self.end_step(client, task, step, system);
            }
        };
        let ask = Ask { permits, waits };
        let key = self.event(client, system, |pool, facts, out| {
            pool.enter(facts, ask, out)
        });
        self.clients[client as usize].tasks[task as usize].phase = Phase::Waiting(key);
        self.poll(client, task, system);
    }

    fn end_step(&mut self, client: u8, task: u8, step: Step, system: &System) {
        match step {
            Step::Leak => {
                let state = &mut self.clients[client as usize];
                if let Some(grant) = state.tasks[task as usize].guards.pop() {
                    let leaked = state.pool.grants().get(grant);
                    self.leaked += leaked.map_or(0, |grant| grant.permits) as u8;
                    state.pool.leak(grant);
                }
            }
            Step::Release => {
                self.leaked -= 1;
                let key = self.event(client, system, |pool, facts, out| {
                    pool.release(facts, 1, out)
                });
                self.clients[client as usize].tasks[task as usize].phase = Phase::Ending(key);
                self.poll(client, task, system);
            }
            _ => self.end_guard(client, task, true, system),
        }
    }

    fn poll(&mut self, client: u8, task: u8, system: &System) {
        let state = &mut self.clients[client as usize].tasks[task as usize];
        state.is_woken = false;
        let (Phase::Waiting(key) | Phase::Ending(key)) = state.phase else {
            return;
        };
        let is_ending = matches!(state.phase, Phase::Ending(_));
        let outcome = self.event(client, system, |pool, facts, out| {
            pool.take(facts, key, task, out)
        });
        let Some(outcome) = outcome else { return };
        if outcome == Outcome::Busy && !self.tries(client, task, system) {
            self.is_wrong("a caller that waits is refused");
        }
        let state = &mut self.clients[client as usize].tasks[task as usize];
        state.phase = Phase::Ready;
        state.step += u8::from(!is_ending);
        if let Outcome::Permits(grant) = outcome {
            state.guards.push(grant);
        }
    }

    /// Whether the caller only tries.
    pub(super) fn tries(&self, client: u8, task: u8, system: &System) -> bool {
        let step = self.clients[client as usize].tasks[task as usize].step;
        let step = system.tasks[client as usize][task as usize].get(step as usize);
        matches!(step, Some(Step::Try(_)))
    }

    fn end_guard(&mut self, client: u8, task: u8, waits: bool, system: &System) {
        let state = &mut self.clients[client as usize].tasks[task as usize];
        let Some(grant) = state.guards.pop() else {
            return;
        };
        let waiter = self.event(client, system, |pool, facts, out| {
            pool.end(facts, grant, waits, out)
        });
        if let Some(key) = waiter {
            self.clients[client as usize].tasks[task as usize].phase = Phase::Ending(key);
            self.poll(client, task, system);
        }
    }

    fn drop_future(&mut self, client: u8, task: u8, system: &System) {
        self.budget.dropped_futures -= 1;
        let state = &mut self.clients[client as usize].tasks[task as usize];
        let phase = std::mem::replace(&mut state.phase, Phase::Ready);
        state.is_woken = false;
        if let Phase::Waiting(key) | Phase::Ending(key) = phase {
            state.step += u8::from(phase == Phase::Waiting(key));
            self.event(client, system, |pool, facts, out| {
                pool.leave(facts, key, out)
            });
        }
    }

    fn run(&mut self, client: u8, request: u8, system: &System) {
        let state = &mut self.clients[client as usize];
        let Some(OnItsWay { key, request, .. }) = state.requests.remove(request.into()) else {
            return;
        };
        let before = self.data;
        let lasts = 2 * crate::world::in_ticks(system.limits.longest_doubt);
        let (answer, published) = match state.is_refused {
            true => (Answer::Refused, None),
            false => self.data.run(client, key, request, lasts),
        };
        if state.is_up {
            state.answers.push_back((key, answer));
        }
        state.is_excused &= answer == Answer::Refused;
        let is_refused = state.is_refused;
        if answer == Answer::Refused && !is_refused {
            self.is_wrong("an attempt uses the key of a later one");
        }
        let message = published.map(FromServer::Message);
        for client in &mut self.clients {
            client
                .stream
                .extend(message.filter(|_| client.is_subscribed));
        }
        if self.budget.failovers > 0 && before != self.data {
            self.earlier = [before, self.earlier[0]];
        }
    }

    fn subscribe(&mut self, client: u8) {
        let client = &mut self.clients[client as usize];
        if let Some(listens) = client.subscribing.pop_front() {
            client.is_subscribed = listens;
            client
                .stream
                .extend(listens.then_some(FromServer::Confirmed));
        }
    }

    fn reconnect(&mut self, client: u8, system: &System) {
        let state = &mut self.clients[client as usize];
        state.is_up = true;
        state.is_reconnected = true;
        // The old connection has been killed.
        state.requests.clear();
        let under_way = state.pool.attempts();
        let under_way = under_way.filter(|(_, attempt)| attempt.sent().is_some());
        let answered = |key| state.answers.iter().any(|(other, _)| *other == key);
        let unanswered = under_way.map(|(key, _)| key).filter(|key| !answered(*key));
        let unanswered: Vec<_> = unanswered.map(|key| (key, Answer::Unanswered)).collect();
        state.answers.extend(unanswered);
        self.send_all(client, system);
    }

    /// What the next master has: all, all but the last write or two.
    pub(super) fn after_failover(&self, number: u8) -> Data {
        match number {
            0 => self.data,
            _ => self.earlier[number as usize - 1],
        }
    }

    fn fail_over(&mut self, number: u8, system: &System) {
        self.budget.failovers -= 1;
        self.data = self.after_failover(number);
        for client in &mut self.clients {
            let is_used = !client.pool.is_idle() || !client.is_up || client.is_reconnected;
            // An idle client would reconnect, and find nothing to do.
            if is_used {
                client.goes_down(system);
                client.requests.clear();
                if !system.elsewhere {
                    client.stops_listening();
                }
            }
        }
        self.add_lost(system);
    }

    /// What was lost is added again, as an operator does: the tasks would not end.
    fn add_lost(&mut self, system: &System) {
        let lost = system.permits.saturating_sub(self.count());
        self.data.left += lost;
        self.total = self.count();
        let message = FromServer::Message(self.data.left);
        for client in self
            .clients
            .iter_mut()
            .filter(|client| lost > 0 && client.is_subscribed)
        {
            client.stream.push_back(message);
        }
    }

    fn tick(&mut self, quiet: bool, system: &System) {
        self.ticks -= u8::from(!quiet);
        self.data.tick();
        self.earlier.iter_mut().for_each(Data::tick);
        for client in 0..2 {
            let state = &mut self.clients[client as usize];
            state.requests.iter_mut().for_each(|sent| sent.age += 1);
            let next = state.pool.look_at(&facts(system));
            // What waits for its batch has no timer.
            let is_told = next.is_some_and(|at| at.has_come(NOW + TICK));
            state.pool.rebase(TICK, NOW, OLDEST);
            let is_due = self.event(client, system, |pool, facts, out| {
                pool.tick(facts, out);
                !out.send.is_empty() || !out.wake.is_empty() || out.forgotten > 0
            });
            if is_due && !is_told {
                self.is_wrong("something is due, and no timer tells it");
            }
        }
    }

    /// What follows from every event, and the checks.
    pub(super) fn after(&mut self, system: &System) {
        if self.budget.all == 0 {
            self.budget = Budget::default();
        }
        if self.budget.failovers == 0 {
            self.earlier = [self.data; 2];
        }
        self.skip_steps(system);
        self.wrong = self.wrong.or_else(|| self.check());
        self.renumber();
    }
}
