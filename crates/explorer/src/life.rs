//! The end of a client, and what must hold then.

use crate::{
    core::{facts::Request, keys::Owner, waiters::State},
    system::System,
    world::{Client, Phase, Task, World},
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Life {
    #[default]
    Open,
    /// Whether the holds that are left are released in the end.
    Closing {
        releases: bool,
    },
    Over {
        releases: bool,
    },
}

impl World {
    pub(crate) fn close(&mut self, client: u8, releases: bool, system: &System) {
        self.budget.closes -= 1;
        self.clients[client as usize].life = Life::Closing { releases };
        self.event(client, system, |machine, facts, out| {
            machine.close(facts, out)
        });
    }

    pub(crate) fn finish(&mut self, client: u8, system: &System) {
        let state = &mut self.clients[client as usize];
        let Life::Closing { releases } = state.life else {
            return;
        };
        state.life = Life::Over { releases };
        let left = state.machine.tenure().filter(|_| !releases);
        if let Some(tenure) = left {
            self.known[client as usize][tenure.field.0 as usize].left = true;
        }
        self.event(client, system, |machine, facts, out| {
            machine.finish(facts, releases, out)
        });
    }

    /// What is wrong with a request that leaves at the end of its client.
    pub(crate) fn check_request(
        &self,
        client: u8,
        owner: Owner,
        request: Request,
    ) -> Option<&'static str> {
        let known = self.known[client as usize][owner.0 as usize];
        let is_open = self.clients[client as usize].life == Life::Open;
        match request {
            Request::Acquire { .. } if !is_open => Some("a client that closes asks for the lock"),
            Request::Release { .. } if known.left => {
                Some("a hold that is left to its lease is released")
            }
            _ => None,
        }
    }

    /// Whether a client that has closed leaves a hold that it was to release, when all is quiet.
    pub(crate) fn leaves_a_hold(&self, client: u8, owner: Owner) -> bool {
        let state = &self.clients[client as usize];
        let known = self.known[client as usize][owner.0 as usize];
        let field = state.machine.field(owner);
        let is_excused =
            field.is_some_and(|field| field.is_given_up || field.rests_until().is_some());
        let is_over = state.life == Life::Over { releases: true };
        let is_left = self.data.holds_of((client, owner)) > 0 && !is_excused;
        is_over && is_left && !known.brought_back
    }
}

impl Client {
    /// Whether nothing but the end of the client is left to do.
    pub(crate) fn may_finish(&self) -> bool {
        matches!(self.life, Life::Closing { .. }) && self.machine.is_settled()
    }

    /// Whether a caller waits for the lock of a client that closes.
    pub(crate) fn keeps_a_caller(&self) -> bool {
        let waits = |task: &Task| match task.phase {
            Phase::Waiting(key) => {
                let state = self.machine.waiters().get(key).map(|waiter| waiter.state);
                !matches!(state, Some(State::Extending { .. }))
            }
            _ => false,
        };
        self.life != Life::Open && self.tasks.iter().any(waits)
    }
}
