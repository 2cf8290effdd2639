//! Connections, server and time.

use crate::{
    core::facts::{Answer, Request},
    core::keys::Owner,
    core::tenure::Hold,
    server::Data,
    system::{System, TASKS, TICK},
    world::{Client, FromServer, NOW, OLDEST, World, in_ticks},
};

impl World {
    /// What the next master has: all, all but the last write or two, nothing.
    pub(crate) fn after_failover(&self, number: u8) -> Data {
        match number {
            0 => self.data,
            3 => Data::default(),
            _ => self.earlier[number as usize - 1],
        }
    }

    pub(crate) fn wrote(&mut self, before: Data) {
        if self.budget.failovers > 0 && before != self.data {
            self.earlier = [before, self.earlier[0]];
        }
    }

    /// Messages are hints, and alike: more than three on their way to a client are not told apart.
    pub(crate) fn publish(&mut self) {
        for (client, subscribed) in self.clients.iter_mut().zip(self.subscribed) {
            let on_their_way = client
                .stream
                .iter()
                .filter(|message| **message == FromServer::Message);
            if subscribed && on_their_way.count() < 3 {
                client.stream.push_back(FromServer::Message);
            }
        }
    }

    pub(crate) fn run(&mut self, client: u8, request: u8) {
        let Some((owner, request, owes)) = self.clients[client as usize]
            .requests
            .remove(request.into())
        else {
            return;
        };
        let before = self.data;
        let (answer, is_published) = match self.refuses[client as usize] {
            true => (Answer::Refused, false),
            false => self.data.run((client, owner), request, in_ticks),
        };
        let is_own = self.data.holder.is_some_and(|(holder, _)| holder == client);
        if matches!(answer, Answer::Busy { .. }) && is_own && owes {
            self.wrong = self.wrong.or(Some(
                "an acquire is refused because of a hold that its client has left",
            ));
        }
        let known = &mut self.known[client as usize][owner.0 as usize];
        if answer == Answer::Done && !matches!(request, Request::Renew { .. }) {
            known.brought_back = false;
        }
        if self.data.holder.is_some() && before.holder.is_none() {
            (known.forced, known.hurt) = (false, false);
            self.is_excused = [false; 2];
        }
        if is_published {
            self.publish();
        }
        self.wrote(before);
        let client = &mut self.clients[client as usize];
        if client.is_up {
            client.answers.push_back((owner, answer));
        }
    }

    pub(crate) fn answer(&mut self, client: u8, answer: u8, system: &System) {
        let index = client as usize;
        let Some((owner, answer)) = self.clients[index].answers.remove(answer.into()) else {
            return;
        };
        let field = self.clients[index].machine.field(owner);
        let was_valid = field.is_some_and(|field| field.valid_until > NOW);
        let told_before = self.clients[index].told_lost();
        self.event(client, system, |machine, facts, out| {
            machine.answer(facts, owner, answer, out)
        });
        let known = self.known[index][owner.0 as usize];
        let is_excused = known.forced || known.hurt;
        let told_lost = self.clients[index].told_lost() > told_before;
        if answer == Answer::Absent && was_valid && told_lost && !is_excused {
            self.wrong = self
                .wrong
                .or(Some("an unlock reports the loss of a valid hold"));
        }
    }

    pub(crate) fn subscribe(&mut self, client: u8) {
        let Some(listens) = self.clients[client as usize].subscribing.pop_front() else {
            return;
        };
        self.subscribed[client as usize] = listens;
        if listens {
            self.clients[client as usize]
                .stream
                .push_back(FromServer::Confirmed);
        }
    }

    pub(crate) fn reconnect(&mut self, client: u8, system: &System) {
        let state = &mut self.clients[client as usize];
        state.is_up = true;
        state.is_reconnected = true;
        // The old connection has been killed.
        state.requests.clear();
        let answered: Vec<Owner> = state.answers.iter().map(|(owner, _)| *owner).collect();
        let under_way = state
            .machine
            .fields()
            .iter()
            .filter(|field| field.sent().is_some());
        let unanswered = under_way
            .map(|field| field.owner)
            .filter(|owner| !answered.contains(owner));
        let unanswered: Vec<_> = unanswered
            .map(|owner| (owner, Answer::Unanswered))
            .collect();
        state.answers.extend(unanswered);
        if !system.batches {
            while let Some(key) = self.clients[client as usize].queued.pop_front() {
                self.build(client, key, system);
            }
        }
    }

    pub(crate) fn stops_listening(&mut self, client: u8) {
        self.subscribed[client as usize] = false;
        let client = &mut self.clients[client as usize];
        client.stream.clear();
        client.subscribing.clear();
        client.listens_again = true;
    }

    pub(crate) fn fail_over(&mut self, number: u8, system: &System) {
        self.budget.failovers -= 1;
        let (before, now) = (self.data, self.after_failover(number));
        self.data = now;
        self.earlier = [Data::default(); 2];
        self.in_allowance = [false; 2];
        for client in 0..2_u8 {
            for owner in 0..TASKS as u8 {
                let holder = (client, Owner(owner.into()));
                let known = &mut self.known[client as usize][owner as usize];
                let (had, has) = (before.holds_of(holder), now.holds_of(holder));
                if before != now {
                    known.hurt |= had > 0 || has > 0;
                    known.brought_back = has > had;
                }
                known.cut = before != now;
            }
            let state = &self.clients[client as usize];
            let machine = &state.machine;
            let is_idle = machine.fields().is_empty()
                && machine.waiters().all().next().is_none()
                && !machine.listens()
                && state.is_up
                && !state.is_reconnected;
            // An idle client would reconnect, and find nothing to do.
            if is_idle {
                continue;
            }
            let listened = machine.listens();
            self.clients[client as usize].goes_down(system);
            self.clients[client as usize].requests.clear();
            if system.elsewhere {
                continue;
            }
            if listened {
                self.stops_listening(client);
            } else {
                self.clients[client as usize].stream.clear();
                self.clients[client as usize].subscribing.clear();
                self.subscribed[client as usize] = false;
            }
        }
    }

    pub(crate) fn tick(&mut self, quiet: bool, system: &System) {
        self.ticks -= u8::from(!quiet);
        if self.data.tick() {
            self.is_excused = [true; 2];
        }
        for data in &mut self.earlier {
            let _ = data.tick();
        }
        for client in 0..2 {
            match system.clocks_lag {
                true => self.clients[client as usize].lags = true,
                false => self.clock_tick(client, system),
            }
        }
    }

    pub(crate) fn clock_tick(&mut self, client: u8, system: &System) {
        let index = client as usize;
        let state = &mut self.clients[index];
        state.lags = false;
        let held = state.machine.tenure().copied();
        state.machine.rebase(TICK, NOW, OLDEST);
        state.is_aged = held.is_some();
        self.in_allowance[index] = false;
        if !system.timers_lag {
            self.event(client, system, |machine, facts, out| {
                machine.tick(facts, out)
            });
        }
        if let Some(held) = held {
            let known = self.known[index][held.field.0 as usize];
            let lasts = self.clients[index]
                .machine
                .tenure()
                .is_some_and(|tenure| tenure.field == held.field);
            let in_time = self.budget == system.budget
                && self.ticks == system.ticks
                && !(system.clocks_lag || system.timers_lag);
            let renews = |hold: &Hold| hold.ends.is_none();
            if !lasts && in_time && self.clients[index].lost_guards().any(renews) {
                self.wrong = self
                    .wrong
                    .or(Some("a hold is lost by the clock although nothing is late"));
            }
            if !lasts && self.clients[index].has_lost_early() {
                self.wrong = self.wrong.or(Some(
                    "a hold with a lease of its own is lost by the clock before its time",
                ));
            }
            self.in_allowance[index] =
                !lasts && !known.forced && !known.hurt && self.clients[index].has_lost_guards();
        }
    }
}

impl Client {
    /// The connection of the requests breaks.
    pub(crate) fn goes_down(&mut self, system: &System) {
        self.is_up = false;
        self.epoch += 1;
        if !system.keeps_answers {
            self.answers.clear();
        }
    }
}
