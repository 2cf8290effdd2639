//! What a search needs of a small system, whatever its machines are.

use std::fmt::Display;

use crate::{event::Event, key::key, system::System, world::World};

pub trait Game {
    type World: Clone + Display;

    fn name(&self) -> &'static str;
    fn begin(&self) -> Self::World;
    fn events(&self, world: &Self::World, out: &mut Vec<Event>);
    fn apply(&self, world: &mut Self::World, event: Event);
    /// What does not hold in this state.
    fn wrong(&self, world: &Self::World) -> Option<&'static str>;
    /// The same, for a state in which nothing but time, tasks and faults can happen.
    fn check_quiet(&self, world: &Self::World) -> Option<&'static str>;
    fn is_end(&self, world: &Self::World) -> bool;
    /// What tells worlds apart. Those that differ by the names of the clients are one.
    fn key(&self, world: &Self::World) -> u64;
}

impl Game for System {
    type World = World;

    fn name(&self) -> &'static str {
        self.name
    }

    fn begin(&self) -> World {
        World::new(self)
    }

    fn events(&self, world: &World, out: &mut Vec<Event>) {
        world.events(self, out);
    }

    fn apply(&self, world: &mut World, event: Event) {
        world.apply(event, self);
    }

    fn wrong(&self, world: &World) -> Option<&'static str> {
        world.wrong()
    }

    fn check_quiet(&self, world: &World) -> Option<&'static str> {
        world.check_quiet(self)
    }

    fn is_end(&self, world: &World) -> bool {
        world.is_end()
    }

    fn key(&self, world: &World) -> u64 {
        let clients = [world.hash_of(0), world.hash_of(1)];
        let is_symmetric = self.tasks[0] == self.tasks[1] && self.owners[0] == self.owners[1];
        key(is_symmetric, |first, into| {
            world.hash_from(first, clients, into);
        })
    }
}
