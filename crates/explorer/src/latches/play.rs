//! What an event does.

use super::{
    System,
    world::{Client, FromServer, LATCH, World},
};
use crate::{
    core::latch::{Answer, Effects, Facts, Latch, Mark, Message, Outcome},
    event::Event,
    system::{Budget, TICK},
    world::{NOW, Phase},
};

impl World {
    pub fn apply(&mut self, event: Event, system: &System) {
        if event.is_fault() {
            self.budget.all -= 1;
        }
        match event {
            Event::Step(LATCH, _) => self.turn(),
            Event::Step(client, task) => self.step(client, task, system),
            Event::Poll(client, task) => self.poll(client, task, system),
            Event::DropFuture(client, task) => {
                self.budget.dropped_futures -= 1;
                if let Phase::Waiting(key) = self.end_call(client, task, system) {
                    self.event(client, system, |latch, facts, out| {
                        latch.leave(facts, key, out)
                    });
                }
            }
            Event::Leave(client, _) => {
                let mark = self.clients[client as usize].queued.pop_front();
                mark.into_iter()
                    .for_each(|mark| self.build(client, mark, system));
            }
            Event::Run(client, _) => self.run(client),
            Event::Answer(client, _) => {
                let answer = self.clients[client as usize].answer.take();
                self.event(client, system, |latch, facts, out| {
                    latch.answer(facts, answer.unwrap_or(Answer::Unanswered), out)
                });
            }
            Event::Subscribe(client) => {
                let client = &mut self.clients[client as usize];
                client.is_subscribed = client.subscribing.pop_front() == Some(true);
                let confirmed = client.is_subscribed.then_some(FromServer::Confirmed);
                client.stream.extend(confirmed);
            }
            Event::Stream(client) => {
                let message = self.clients[client as usize].stream.pop_front();
                self.event(client, system, |latch, facts, out| match message {
                    Some(FromServer::Confirmed) => latch.subscribed(facts, out),
                    Some(FromServer::Message(message)) => latch.message(facts, message, out),
                    None => {}
                });
            }
            Event::Reconnect(client) => self.reconnect(client, system),
            Event::Noticed(client) => {
                self.clients[client as usize].is_reconnected = false;
                self.event(client, system, |latch, facts, out| {
                    latch.reconnected(facts, out)
                });
            }
            Event::ListenAgain(client) => {
                let client = &mut self.clients[client as usize];
                client.listens_again = false;
                client
                    .subscribing
                    .extend(client.latch.listens().then_some(true));
            }
            Event::Refuse(client) => {
                self.budget.refused -= 1;
                self.clients[client as usize].is_refused = true;
            }
            Event::Allow(client) => self.clients[client as usize].is_refused = false,
            Event::LoseMessage(client) => {
                self.budget.lost_messages -= 1;
                let client = &mut self.clients[client as usize];
                let lost = client.stream.pop_front();
                client.is_excused |= lost == Some(FromServer::Message(Message::Opening));
                client.misses();
            }
            Event::Break(client) => {
                self.budget.breaks -= 1;
                self.clients[client as usize].goes_down(system);
            }
            Event::BreakListening(client) => {
                self.budget.breaks -= 1;
                self.clients[client as usize].stops_listening();
            }
            Event::Failover(_) => self.fail_over(system),
            Event::Tick { quiet } => self.tick(quiet, system),
            _ => unreachable!("an event of a lock"),
        }
        if self.budget.all == 0 {
            self.budget = Budget::default();
        }
        if self.budget.failovers == 0 {
            self.was_open = self.is_open;
        }
        self.renumber();
    }

    /// Runs an event of a machine, and its effects. Returns whether it had any.
    fn event(
        &mut self,
        client: u8,
        system: &System,
        event: impl FnOnce(&mut Latch<u8>, &Facts, &mut Effects<u8>),
    ) -> bool {
        let mut out = Effects::default();
        let state = &mut self.clients[client as usize];
        let facts = state.facts();
        event(&mut state.latch, &facts, &mut out);
        self.wrong = self.wrong.or(state.latch.broken(&facts));
        let does = out.look.is_some() || !out.wake.is_empty();
        for task in out.wake {
            state.tasks[task as usize].is_woken = true;
        }
        if !state.listens_again {
            state.subscribing.extend(out.listen);
        }
        state.queued.extend(out.look);
        self.send_all(client, system);
        does
    }

    /// Without batches, looks leave at once.
    fn send_all(&mut self, client: u8, system: &System) {
        while !system.batches
            && self.clients[client as usize].is_up
            && let Some(mark) = self.clients[client as usize].queued.pop_front()
        {
            self.build(client, mark, system);
        }
    }

    fn build(&mut self, client: u8, mark: Mark, system: &System) {
        let mut is_wanted = false;
        self.event(client, system, |latch, facts, out| {
            is_wanted = latch.build(facts, mark, out);
        });
        if is_wanted {
            self.clients[client as usize].request = Some(mark);
        }
    }

    /// The latch is opened, or set anew.
    fn turn(&mut self) {
        self.turns -= 1;
        self.was_open = self.is_open;
        self.is_open = !self.is_open;
        self.show();
        for client in &mut self.clients {
            if !client.is_subscribed {
                continue;
            }
            let message = FromServer::Message(Message::Opening);
            client.stream.push_back(message);
            for task in client.tasks.iter_mut().filter(|_| self.is_open) {
                let mut waiters = client.latch.waiters();
                task.must_end |= waiters
                    .any(|(key, waiter)| task.phase == Phase::Waiting(key) && waiter.is_marked);
            }
        }
    }

    fn step(&mut self, client: u8, task: u8, system: &System) {
        let waits = self.waits(client, task, system);
        let mut entered = None;
        self.event(client, system, |latch, facts, out| {
            entered = Some(latch.enter(facts, waits, out));
        });
        let is_open = self.is_open;
        let state = &mut self.clients[client as usize].tasks[task as usize];
        state.phase = entered.map_or(Phase::Done, Phase::Waiting);
        state.saw = [!is_open, is_open];
        state.must_end = false;
        self.poll(client, task, system);
    }

    fn waits(&self, client: u8, task: u8, system: &System) -> bool {
        let steps = system.tasks[client as usize][task as usize].as_bytes();
        let step = self.clients[client as usize].tasks[task as usize].step;
        steps[step as usize] == b'w'
    }

    fn poll(&mut self, client: u8, task: u8, system: &System) {
        let state = &mut self.clients[client as usize].tasks[task as usize];
        state.is_woken = false;
        let Phase::Waiting(key) = state.phase else {
            return;
        };
        let mut outcome = None;
        self.event(client, system, |latch, facts, out| {
            outcome = latch.take(facts, key, task, out);
        });
        let Some(outcome) = outcome else { return };
        let waits = self.waits(client, task, system);
        let [saw_closed, saw_open] = self.clients[client as usize].tasks[task as usize].saw;
        let is_true = match outcome {
            Outcome::Open => saw_open,
            Outcome::Closed => saw_closed && !waits,
            Outcome::Refused => true,
        };
        if !is_true {
            self.is_wrong("a caller is told what the latch was not since its call");
        }
        self.end_call(client, task, system);
    }

    /// The call of a task is over. Returns its phase before.
    fn end_call(&mut self, client: u8, task: u8, system: &System) -> Phase {
        let steps = system.tasks[client as usize][task as usize].len();
        let state = &mut self.clients[client as usize].tasks[task as usize];
        state.step += 1;
        state.is_woken = false;
        (state.saw, state.must_end) = ([false; 2], false);
        let next = match (state.step as usize) < steps {
            true => Phase::Ready,
            false => Phase::Done,
        };
        std::mem::replace(&mut state.phase, next)
    }

    fn run(&mut self, client: u8) {
        let state = &mut self.clients[client as usize];
        let Some(mark) = state.request.take() else {
            return;
        };
        let answer = match (state.is_refused, self.is_open) {
            (true, _) => Answer::Refused,
            (false, true) => Answer::Open,
            (false, false) => Answer::Closed,
        };
        state.is_excused &= state.is_refused;
        if state.is_up {
            state.answer = Some(answer);
        }
        if answer == Answer::Closed && state.is_subscribed {
            let message = FromServer::Message(Message::Mark(mark));
            state.stream.push_back(message);
        }
    }

    fn reconnect(&mut self, client: u8, system: &System) {
        let state = &mut self.clients[client as usize];
        state.is_up = true;
        state.is_reconnected = true;
        // The old connection has been killed.
        state.request = None;
        if state.latch.look().is_some_and(|(_, is_sent)| is_sent) {
            state.answer.get_or_insert(Answer::Unanswered);
        }
        self.send_all(client, system);
    }

    fn fail_over(&mut self, system: &System) {
        self.budget.failovers -= 1;
        // What was lost is done again.
        self.turns += u8::from(self.is_open != self.was_open);
        self.is_open = self.was_open;
        self.show();
        for client in &mut self.clients {
            // An idle client would reconnect, and find nothing to do.
            if !client.latch.is_idle() || !client.is_up || client.is_reconnected {
                client.goes_down(system);
                client.request = None;
                if !system.elsewhere {
                    client.stops_listening();
                }
            }
        }
    }

    fn tick(&mut self, quiet: bool, system: &System) {
        self.ticks -= u8::from(!quiet);
        for client in 0..2 {
            let state = &mut self.clients[client as usize];
            let next = state.latch.look_at();
            let is_told = next.is_some_and(|at| at.has_come(NOW + TICK));
            state.latch.rebase(TICK, NOW);
            let is_due = self.event(client, system, |latch, facts, out| latch.tick(facts, out));
            if is_due && !is_told {
                self.is_wrong("something is due, and no timer tells it");
            }
        }
    }
}

impl Client {
    /// The connection of the requests breaks.
    fn goes_down(&mut self, system: &System) {
        self.is_up = false;
        if !system.keeps_answers {
            self.answer = None;
        }
    }

    fn stops_listening(&mut self) {
        self.is_subscribed = false;
        self.stream.clear();
        self.subscribing.clear();
        self.listens_again = true;
        self.misses();
    }

    /// Messages may be lost.
    fn misses(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.must_end = false);
    }
}
