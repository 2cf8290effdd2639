//! Small systems of clients that acquire permits of one semaphore.

mod checks;
mod play;
pub mod server;
mod shown;
mod systems;
mod world;

use crate::{
    core::permits::facts::Limits,
    event::Event,
    game::Game,
    key::key,
    system::{Budget, TASKS},
};
pub use systems::{large, small};
pub use world::World;

/// A step of a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    Acquire(u32),
    Try(u32),
    /// The last guard ends, and the task waits for that.
    End,
    /// The last guard ends, and leaves its permits taken.
    Leak,
    /// One of the permits that were left taken is released.
    Release,
}

/// A small system: its tasks, its times, and how much may go wrong in it.
#[derive(Clone, Debug)]
pub struct System {
    pub name: &'static str,
    /// The permits at the begin.
    pub permits: u8,
    /// The steps of the tasks of both clients.
    pub tasks: [[Vec<Step>; TASKS]; 2],
    pub limits: Limits,
    pub budget: Budget,
    /// Ticks while something is under way. In quiet states time passes freely.
    pub ticks: u8,
    /// Whether requests of one client may overtake each other.
    pub unordered: bool,
    /// Whether answers that were read before a break may reach the machine after it.
    pub keeps_answers: bool,
    /// Whether attempts wait for their batches.
    pub batches: bool,
    /// Whether messages come from another server, to which the connections outlast a failover.
    pub elsewhere: bool,
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
        world.wrong
    }

    fn check_quiet(&self, world: &World) -> Option<&'static str> {
        world.check_quiet()
    }

    fn is_end(&self, world: &World) -> bool {
        world.is_end()
    }

    fn key(&self, world: &World) -> u64 {
        let is_symmetric = self.tasks[0] == self.tasks[1];
        key(is_symmetric, |first, into| world.hash_from(first, into))
    }
}
