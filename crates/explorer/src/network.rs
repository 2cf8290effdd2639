//! Connections, server and time.

use crate::{
    core::facts::{Answer, Request, Wait},
    core::keys::{Channel, Owner},
    core::tenure::Hold,
    server::{Data, Heard, Holder},
    system::{System, TASKS, TICK},
    world::{Client, FromServer, NOW, OLDEST, World, facts, in_ticks},
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
    pub(crate) fn publish(&mut self, heard: Heard) {
        for (index, client) in (0..).zip(&mut self.clients) {
            let channel = match heard {
                Heard::All => Channel::Lock,
                Heard::One((to, owner)) if to == index => Channel::Of(owner),
                _ => continue,
            };
            let message = FromServer::Message(channel);
            let on_their_way = client.stream.iter().filter(|other| **other == message);
            if client.subscribed.contains(&channel) && on_their_way.count() < 3 {
                client.stream.push_back(message);
            }
        }
    }

    /// A waiter asks for its turn, or gets it: none is overtaken. A task that comes later takes over the place of its owner.
    fn note_turn(&mut self, from: Holder, request: Request, answer: Answer) {
        let queue = self.data.queue;
        match (request, answer) {
            (Request::Acquire { wait: Some(_), .. }, Answer::Busy { .. })
                if !self.order.contains(&from) =>
            {
                let is_behind = |other: &Holder| queue.place_of(*other) > queue.place_of(from);
                let place = self.order.iter().position(is_behind);
                self.order.insert(place.unwrap_or(self.order.len()), from);
            }
            (Request::Acquire { holds: 1, .. }, Answer::Done) => {
                let first = self.order.first().filter(|first| **first != from);
                if first.is_some_and(|first| !queue.has(*first)) {
                    self.is_wrong("a waiter is overtaken that has lost its place");
                }
                // The next task of the owner waits behind those that are there.
                self.order.retain(|waiter| *waiter != from);
            }
            _ => {}
        }
        let places = self.order.iter().filter_map(|owner| queue.place_of(*owner));
        if !places.is_sorted() {
            self.is_wrong("a waiter is overtaken in the queue");
        }
    }

    /// What a waiter tells of its wait: while it asks again in time it stays the head, and it tells the head of a free lock.
    fn note_wait(&mut self, from: Holder, wait: Wait, before: Data, heard: Heard, system: &System) {
        let is_connected = self.budget.breaks == system.budget.breaks
            && self.budget.failovers == system.budget.failovers;
        let head = self.data.queue.head().map(|(head, _)| head);
        let is_free = self.data.holder.is_none();
        // Back before another waiter, it waits for the end of that one's place.
        self.is_excused[from.0 as usize] |= is_free && head == Some(from);
        let known = &mut self.known[from.0 as usize][from.1.0 as usize];
        let ago = known.refused_ago.replace(0).filter(|_| is_connected);
        let Some(ago) = ago else { return };
        // A request that is under way for long tells of the time at which it was sent.
        let told = in_ticks(wait.since_last);
        let (least, most) = match system.ticks {
            0 => (ago, ago),
            _ => (ago.min(told), ago.max(told)),
        };
        if !before.queue.has(from) && most < system.place && head != Some(from) {
            self.is_wrong("a waiter that asks in time is not the head again");
        }
        if is_free
            && heard == Heard::None
            && head != Some(from)
            && least >= in_ticks(system.limits.poll)
        {
            self.is_wrong("the head of the queue does not learn that the lock is free");
        }
    }

    pub(crate) fn run(&mut self, client: u8, request: u8, system: &System) {
        let Some((owner, request, owing)) = self.clients[client as usize]
            .requests
            .remove(request.into())
        else {
            return;
        };
        let before = self.data;
        let (answer, heard) = match self.refuses[client as usize] {
            true => (Answer::Refused, Heard::None),
            false => self.data.run((client, owner), request, system),
        };
        let has_ended = |(_, left): (Holder, u8)| left == 0;
        if before.holder.is_none()
            && heard == Heard::None
            && before.queue.head().is_some_and(has_ended)
        {
            // No message tells the next waiter that the place before it has ended: it asks when its own time comes.
            if let Some(((next, _), _)) = self.data.queue.head() {
                self.is_excused[next as usize] = true;
            }
        }
        if system.limits.is_fair && before.holder != Some((client, owner)) {
            self.note_turn((client, owner), request, answer);
            if let (
                Request::Acquire {
                    wait: Some(wait), ..
                },
                Answer::Busy { .. },
            ) = (request, answer)
            {
                self.note_wait((client, owner), wait, before, heard, system);
            }
        }
        let is_left = |(holder, field): Holder| holder == client && owing & 1 << field.0 != 0;
        if matches!(answer, Answer::Busy { .. }) && self.data.holder.is_some_and(is_left) {
            self.is_wrong("an acquire is refused because of a hold that its client has left");
        }
        let known = &mut self.known[client as usize][owner.0 as usize];
        known.late &= !matches!(request, Request::Acquire { .. });
        if answer == Answer::Done && matches!(request, Request::Acquire { .. }) {
            known.refused_ago = None;
        }
        if answer == Answer::Done {
            let sets = matches!(request, Request::Release { .. });
            known.uncut &= !sets;
            known.brought_back &= !sets && !matches!(request, Request::Acquire { .. });
        }
        if self.data.holder.is_some() && before.holder.is_none() {
            (known.forced, known.hurt) = (false, false);
            self.is_excused = [false; 2];
        }
        self.publish(heard);
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
        self.note_answer(client, owner, answer);
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
            self.is_wrong("an unlock reports the loss of a valid hold");
        }
    }

    pub(crate) fn subscribe(&mut self, client: u8) {
        let client = &mut self.clients[client as usize];
        let Some((channel, listens)) = client.subscribing.pop_front() else {
            return;
        };
        client.subscribed.retain(|other| *other != channel);
        if listens {
            client.subscribed.push(channel);
            client.subscribed.sort();
            client.stream.push_back(FromServer::Confirmed(channel));
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
        let client = &mut self.clients[client as usize];
        client.goes_deaf();
        client.listens_again = true;
    }

    pub(crate) fn fail_over(&mut self, number: u8, system: &System) {
        self.budget.failovers -= 1;
        let (before, now) = (self.data, self.after_failover(number));
        self.data = now;
        self.earlier = [Data::default(); 2];
        self.order.clear();
        self.in_allowance = [false; 2];
        for client in 0..2_u8 {
            for owner in 0..TASKS as u8 {
                let holder = (client, Owner(owner.into()));
                let known = &mut self.known[client as usize][owner as usize];
                let (had, has) = (before.holds_of(holder), now.holds_of(holder));
                if before != now {
                    known.hurt |= had > 0 || has > 0;
                    known.brought_back = has > had;
                    let field = self.clients[client as usize].machine.field(holder.1);
                    let is_placed = field.is_some_and(|field| field.is_placed());
                    known.placed_again =
                        now.queue.has(holder) && !before.queue.has(holder) && !is_placed;
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
                self.clients[client as usize].goes_deaf();
            }
        }
    }

    pub(crate) fn tick(&mut self, quiet: bool, system: &System) {
        self.ticks -= u8::from(!quiet);
        if self.data.tick() {
            self.is_excused = [true; 2];
            self.order.clear();
        }
        let in_time = self.budget == system.budget && self.ticks == system.ticks;
        let is_live = |(client, owner): Holder| {
            let waiters = self.clients[client as usize].machine.waiters();
            waiters.first_of(owner).is_some()
        };
        if in_time
            && self
                .data
                .queue
                .iter()
                .any(|(waiter, left)| left == 0 && is_live(waiter))
        {
            self.is_wrong("a place ends although its waiter is not late");
        }
        let places = self.data.queue;
        let is_over = |waiter| places.iter().any(|place| place == (waiter, 0));
        self.order.retain(|waiter| !is_over(*waiter));
        for ((client, owner), left) in places.iter() {
            self.known[client as usize][owner.0 as usize].late |= left == 0;
        }
        for known in self.known.iter_mut().flatten() {
            let ago = known.refused_ago;
            known.refused_ago = ago.map(|ago| (ago + 1).min(system.place));
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
        let next = state.machine.look_at(&facts(state, system));
        // What waits for its batch has no timer.
        let is_told = next.is_some_and(|at| at.has_come(NOW + TICK)) || !state.queued.is_empty();
        let held = state.machine.tenure().copied();
        let (lost_before, lost_early_before) = (state.lost_guards().count(), state.lost_early());
        state.machine.rebase(TICK, NOW, OLDEST);
        state.is_aged = held.is_some();
        for known in &mut self.known[index] {
            known.put_off = None;
        }
        self.in_allowance[index] = false;
        if !system.timers_lag {
            if !is_told && self.is_timer_due(&self.clients[index], system) {
                self.is_wrong("something is due, and no timer tells it");
            }
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
            let renews = |hold: &Hold| hold.is_watched();
            if !lasts && in_time && self.clients[index].lost_guards().any(renews) {
                self.is_wrong("a hold is lost by the clock although nothing is late");
            }
            if !lasts && self.clients[index].lost_early() > lost_early_before {
                self.is_wrong(
                    "a hold with a lease of its own, or an extension, is lost by the clock before its time",
                );
            }
            self.in_allowance[index] = !lasts
                && !known.forced
                && !known.hurt
                && self.clients[index].lost_guards().count() > lost_before;
        }
    }
}

impl Client {
    fn goes_deaf(&mut self) {
        self.subscribed.clear();
        self.stream.clear();
        self.subscribing.clear();
    }

    /// The connection of the requests breaks.
    pub(crate) fn goes_down(&mut self, system: &System) {
        self.is_up = false;
        self.epoch += 1;
        if !system.keeps_answers {
            self.answers.clear();
        }
    }
}
