//! What must hold.

use crate::{
    core::facts::Answer,
    core::field::{Field, Sent},
    core::keys::{Channel, Kind, Owner},
    core::tenure::{Hold, HoldState, Tenure},
    core::time::Time,
    core::waiters::{Outcome, State},
    event::Event,
    server::Holder,
    system::{System, TASKS, TICK},
    world::{Client, FromServer, NOW, Phase, Task, World, in_ticks},
};

impl World {
    /// Records what puts a tenure in doubt, and what confirms it.
    pub(crate) fn note_doubts(&mut self, event: Event) {
        match event {
            Event::Stream(client) => {
                let client = &mut self.clients[client as usize];
                let is_message = client.stream.first() == Some(&FromServer::Message(Channel::Lock))
                    && !client.machine.expects_echo(NOW);
                client.is_doubted |= is_message;
                client.is_ask_doubted |= is_message;
            }
            Event::Noticed(client) => {
                let client = &mut self.clients[client as usize];
                let mut sent = client.machine.fields().iter().filter_map(Field::sent);
                client.is_ask_doubted |=
                    sent.any(|sent| sent.kind() == Kind::Acquire && sent.epoch != client.epoch);
                client.is_doubted = true;
            }
            Event::Answer(client, answer) => {
                let client = &mut self.clients[client as usize];
                if let Some((owner, Answer::Done)) = client.answers.get(answer as usize) {
                    client.is_doubted &= !client.machine.does(*owner, Kind::Renew);
                }
            }
            _ => {}
        }
    }

    /// The parked owners that an answer or a message of another one does not concern.
    pub(crate) fn parked_beside(&self, event: Event) -> Vec<Holder> {
        let (index, other) = match event {
            Event::Answer(client, answer) => {
                let answers = &self.clients[client as usize].answers;
                (
                    client,
                    answers.get(answer as usize).map(|(owner, _)| *owner),
                )
            }
            Event::Stream(client) => match self.clients[client as usize].stream.first() {
                Some(
                    FromServer::Message(Channel::Of(owner))
                    | FromServer::Confirmed(Channel::Of(owner)),
                ) => (client, Some(*owner)),
                _ => (client, None),
            },
            _ => return Vec::new(),
        };
        let waiters = self.clients[index as usize].machine.waiters();
        let owners = (0..TASKS as u64)
            .map(Owner)
            .filter(|owner| Some(*owner) != other);
        owners
            .filter(|owner| waiters.is_parked(*owner))
            .map(|owner| (index, owner))
            .collect()
    }

    /// Records an answer that puts its request off, or tells that the owner has no place: one of the server that has the queue now.
    pub(crate) fn note_answer(&mut self, client: u8, owner: Owner, answer: Answer) {
        let state = &self.clients[client as usize];
        let sent = state.machine.field(owner).and_then(Field::sent);
        let tells = sent.is_some_and(|sent| match sent.kind() {
            Kind::Acquire => answer == Answer::Done,
            Kind::Abandon => !matches!(answer, Answer::Unanswered | Answer::Passing),
            _ => false,
        });
        let is_current = sent.is_some_and(|sent| sent.epoch == state.epoch);
        let put_off = sent.filter(|_| answer == Answer::Passing).map(Sent::kind);
        let known = &mut self.known[client as usize][owner.0 as usize];
        known.placed &= !(tells && is_current);
        known.put_off = put_off.or(known.put_off);
    }

    /// A tenure passes from owner to owner only while it is young and without a doubt.
    pub(crate) fn check_passing(&mut self, before: [Option<Tenure>; 2], hands_off: bool) {
        for (index, (client, before)) in (0..).zip(self.clients.iter_mut().zip(before)) {
            let now = client.machine.tenure();
            let is_replaced = |before: Tenure| {
                let is_other = now.is_some_and(|now| now.field != before.field);
                // The grant was right: it came before the failover.
                let is_back = self.known[index as usize][before.field.0 as usize].brought_back;
                is_other && !is_back && self.data.holds_of((index, before.field)) > 0
            };
            if before.is_some_and(is_replaced) {
                self.wrong = self
                    .wrong
                    .or(Some("a grant ends a tenure that the server has"));
            }
            if !hands_off && now.is_some_and(|now| now.field != now.holder) {
                self.wrong = self
                    .wrong
                    .or(Some("a client without hand-offs hands a tenure off"));
            }
            let lasts = before.zip(now).is_some_and(|(before, now)| {
                before.field == now.field && !before.valid_until.has_come(NOW)
            });
            let passes = before
                .zip(now)
                .is_some_and(|(before, now)| before.holder != now.holder);
            if lasts && passes && client.is_doubted {
                self.wrong = self.wrong.or(Some("a tenure in doubt is handed off"));
            }
            if lasts && passes && client.is_aged {
                self.wrong = self
                    .wrong
                    .or(Some("a tenure is handed off after its window"));
            }
            client.is_aged &= lasts;
            if !lasts {
                client.is_doubted = client.is_ask_doubted;
            }
        }
    }

    /// The server has this tenure for as long as its client counts on it, or there is none.
    pub(crate) fn is_whole(&self, holder: Holder) -> bool {
        let client = &self.clients[holder.0 as usize];
        let is_old = client
            .machine
            .field(holder.1)
            .and_then(|field| field.sent())
            .is_some_and(|sent| sent.epoch != client.epoch);
        let valid = client.valid_ticks(holder.1);
        let count = self.data.holds_of(holder);
        !is_old && (valid == 0 || (count > 0 && valid < u8::from(client.lags) + self.data.left))
    }

    pub(crate) fn check(&self, system: &System) -> Option<&'static str> {
        let mut valid_guards = 0;
        for (index, client) in (0..).zip(&self.clients) {
            for number in 0..TASKS as u8 {
                let owner = Owner(number.into());
                let known = self.known[index as usize][number as usize];
                let count = self.data.holds_of((index, owner));
                let believed = client.machine.field(owner).map_or(0, |field| field.most());
                if count > believed && !known.brought_back {
                    return Some("the server counts more than is believed");
                }
                let (live, guarded) = client.machine.live_holds(owner);
                let valid = client.valid_ticks(owner);
                if valid == 0 || known.cut || known.forced {
                    continue;
                }
                if count < live && (count == 0 || !known.hurt) {
                    return Some("a valid hold is not at the server");
                }
                if live > 0 && client.needs_more_than(valid) {
                    return Some("a hold is valid for less than its lease");
                }
                if valid + 1 > u8::from(client.lags) + self.data.left {
                    return Some(
                        "a hold is valid within the allowance before the server's expiry, or after it",
                    );
                }
                valid_guards += u32::from(guarded > 0);
            }
        }
        let is_mixed = |(index, client): (usize, &Client)| {
            let holder = client.machine.tenure().map(|tenure| tenure.holder);
            let mut owners = client.tasks.iter().zip(system.owners[index]);
            owners.any(|(task, owner)| client.has_hold(task) && holder != Some(Owner(owner)))
        };
        if self.clients.iter().enumerate().any(is_mixed) {
            return Some("a task has a hold of another owner's tenure");
        }
        if valid_guards > 1 {
            return Some("two owners have valid holds");
        }
        self.check_allowance(system)
    }

    /// Another owner must not have the lock right after a loss by the clock: the clock may be fast.
    pub(crate) fn check_allowance(&self, system: &System) -> Option<&'static str> {
        let is_early = |client: usize| {
            let other = &self.clients[1 - client];
            self.in_allowance[client]
                && (0..TASKS as u64).any(|number| {
                    let (_, guarded) = other.machine.live_holds(Owner(number));
                    let known = self.known[1 - client][number as usize];
                    guarded > 0
                        && other.valid_ticks(Owner(number)) > 0
                        && !known.forced
                        && !known.cut
                })
        };
        let is_early = !system.clocks_lag && (0..2).any(is_early);
        is_early
            .then_some("another owner has the lock within the allowance after a loss by the clock")
    }

    /// Whether the next waiter of a fair lock is parked: the head of the queue, or one that the server does not know.
    fn is_parked_in_turn(&self, client: u8) -> bool {
        let machine = &self.clients[client as usize].machine;
        (0..TASKS as u64).map(Owner).any(|owner| {
            let head = self.data.queue.head().map(|(head, _)| head);
            let known = self.known[client as usize][owner.0 as usize];
            let is_unknown = !self.data.queue.has((client, owner)) && !known.late;
            machine.waiters().is_parked(owner) && (head == Some((client, owner)) || is_unknown)
        })
    }

    /// What holds when nothing but time, tasks and faults can happen.
    pub fn check_quiet(&self, system: &System) -> Option<&'static str> {
        let all_done = self
            .clients
            .iter()
            .all(|client| client.tasks.iter().all(|task| task.phase == Phase::Done));
        for (index, client) in (0..).zip(&self.clients) {
            let machine = &client.machine;
            // It waits behind what rests after a passing refusal.
            let may_wait = machine
                .fields()
                .iter()
                .any(|field| field.rests_until().is_some());
            let waits_in_vain = |(number, task): (u8, &Task)| {
                !may_wait
                    && matches!(task.phase, Phase::Waiting(_))
                    && self.tries(index, number, system)
            };
            if (0..).zip(&client.tasks).any(waits_in_vain) {
                return Some("a caller that only tries waits");
            }
            if client.keeps_a_caller() {
                return Some("a caller of a client that closes waits");
            }
            if client.forgets_an_extension() {
                return Some("a caller waits for an extension, and no request for it is due");
            }
            let holder = machine.tenure().map(|tenure| tenure.holder);
            if holder.is_some_and(|holder| machine.waiters().is_parked(holder)) {
                return Some("a waiter of the holder is parked");
            }
            if client.forgets_a_task() {
                return Some("a task is not woken although its operation is over");
            }
            let is_free = self.data.holder.is_none() && machine.tenure().is_none();
            let turn_comes = match system.limits.is_fair {
                true => self.is_parked_in_turn(index),
                false => machine.waiters().has_parked(),
            };
            if is_free && turn_comes && !self.is_excused[index as usize] {
                return Some("a waiter is parked for a free lock, and its message was not lost");
            }
            for number in 0..TASKS as u8 {
                let owner = Owner(number.into());
                let known = self.known[index as usize][number as usize];
                let count = self.data.holds_of((index, owner));
                let (live, _) = machine.live_holds(owner);
                let valid = client.valid_ticks(owner);
                let field = machine.field(owner);
                let most = field.map_or(0, |field| field.most());
                let is_given_up = field.is_some_and(|field| field.is_given_up);
                let is_placed = self.data.queue.has((index, owner)) && !known.placed_again;
                let may_be_placed = field.is_some_and(|field| field.is_placed());
                if is_placed && !may_be_placed && system.budget.refused == 0 {
                    return Some("a place is left in the queue, and its client does not know");
                }
                let waits = field.is_some_and(|field| field.free_after > NOW);
                let rests = field.is_some_and(|field| field.rests_until().is_some());
                if valid > 0 && known.cut && !rests && system.budget.refused == 0 {
                    return Some("a hold that a failover cut counts as valid when all is quiet");
                }
                if self.leaves_a_hold(index, owner) && !waits {
                    return Some("a client that has closed leaves a hold that it was to release");
                }
                if known.brought_back || is_given_up || rests {
                    continue;
                }
                // A failover took holds, and the server has told nothing since.
                let is_hurt = known.cut || (known.hurt && count > 0 && count <= most);
                if valid > 0 && !known.forced && (most != count || count != live) && !is_hurt {
                    return Some("belief and server differ when all is quiet");
                }
                let is_watched =
                    count > 0 && live > 0 && !machine.holds().has_lease() && !known.uncut;
                let watched = in_ticks(system.limits.watched_lease);
                // A failover may bring back a longer lease of an earlier hold, and an extension may be executed without an answer.
                let is_told = system.budget.failovers == 0 && !system.loses_extensions();
                if is_watched && is_told && self.data.left > watched {
                    return Some(
                        "holds that are renewed keep the lock for longer than their lease",
                    );
                }
                if valid == 0 && most > 0 && !waits && !may_wait {
                    return Some("a belief without a hold is left when all is quiet");
                }
                if all_done && count > 0 && !waits {
                    return Some("all tasks are done, and a hold is left that nobody releases");
                }
            }
        }
        None
    }
}

impl Client {
    /// Whether a task of the owner waits for a lock that the owner has not.
    pub(crate) fn waits(&self, owner: Owner) -> bool {
        let tenure = self.machine.tenure().filter(|tenure| tenure.field == owner);
        tenure.is_none() && self.machine.waiters().first_of(owner).is_some()
    }

    /// The ticks for which the holds under a field are valid.
    pub(crate) fn valid_ticks(&self, owner: Owner) -> u8 {
        let tenure = self.machine.tenure().filter(|tenure| tenure.field == owner);
        tenure.map_or(0, |tenure| in_ticks(tenure.valid_until.left(NOW)))
    }

    /// Whether a hold has a longer lease, but for the allowance.
    fn needs_more_than(&self, valid: u8) -> bool {
        let mut holds = self.machine.holds().live();
        let left = |until: Time| in_ticks(until.left(NOW));
        holds.any(|(_, hold)| hold.until.is_some_and(|until| left(until) > valid + 1))
    }

    /// The unlocks that are told that their hold was gone.
    pub(crate) fn told_lost(&self) -> usize {
        let states = self.machine.waiters().all().map(|(_, waiter)| waiter.state);
        states
            .filter(|state| *state == State::Over(Outcome::Lost))
            .count()
    }

    /// Whether a caller waits for an extension, and no request is under way or rests.
    fn forgets_an_extension(&self) -> bool {
        let waits = self.machine.waiters().find_extending(|_| true).is_some();
        waits
            && self
                .machine
                .fields()
                .iter()
                .all(|field| field.does().is_none())
    }

    pub(crate) fn lost_guards(&self) -> impl Iterator<Item = &Hold> {
        let guards = self.tasks.iter().flat_map(|task| &task.guards);
        let holds = guards.filter_map(|key| self.machine.holds().get(*key));
        holds.filter(|hold| hold.state == HoldState::Lost)
    }

    /// Whether a task has a guard of a live hold.
    fn has_hold(&self, task: &Task) -> bool {
        let holds = task
            .guards
            .iter()
            .filter_map(|key| self.machine.holds().get(*key));
        holds
            .into_iter()
            .any(|hold| hold.state == HoldState::Guarded)
    }

    /// The holds that were lost long before the end of the lease that they had of their own.
    pub(crate) fn lost_early(&self) -> usize {
        let ends = self.lost_guards().filter_map(|hold| hold.until);
        ends.filter(|end| end.left(NOW) > TICK).count()
    }

    /// Whether a task cannot go on although its operation is over.
    pub(crate) fn forgets_a_task(&self) -> bool {
        let machine = &self.machine;
        let is_forgotten = |task: &Task| {
            let (Phase::Waiting(key) | Phase::Ending(key)) = task.phase else {
                return false;
            };
            match machine.waiters().get(key).map(|waiter| waiter.state) {
                Some(State::Given(_) | State::Over(_) | State::Stalled) => !task.is_woken,
                Some(State::Ending { field, .. }) => {
                    let (live, _) = machine.live_holds(field);
                    let field = machine.field(field);
                    field.is_none_or(|field| {
                        field.op.is_none() && field.most() <= live && !field.is_given_up
                    })
                }
                _ => false,
            }
        };
        self.tasks.iter().any(is_forgotten)
    }
}
