//! Small systems of clients that wait for one latch, which other clients open and set.

mod play;
mod world;

use crate::{
    event::Event,
    game::Game,
    key::key,
    system::{Budget, TASKS},
};
pub use world::World;

/// A small system: its callers, what happens to the latch, and how much may go wrong.
#[derive(Clone, Debug)]
pub struct System {
    pub name: &'static str,
    /// Whether the tasks of both clients wait: `w` or `t` for one that only tries, one call after the other.
    pub tasks: [[&'static str; TASKS]; 2],
    /// How often the latch, which is closed at first, is opened or set anew, by turns.
    pub turns: u8,
    pub budget: Budget,
    /// Ticks while something is under way.
    pub ticks: u8,
    pub keeps_answers: bool,
    pub batches: bool,
    /// Whether messages come from another server, to which the connections outlast a failover.
    pub elsewhere: bool,
}

fn system(name: &'static str, tasks: [[&'static str; TASKS]; 2], turns: u8) -> System {
    System {
        name,
        tasks,
        turns,
        budget: Budget {
            breaks: 1,
            lost_messages: 1,
            dropped_futures: 1,
            all: 1,
            ..Budget::default()
        },
        ticks: 0,
        keeps_answers: false,
        batches: false,
        elsewhere: false,
    }
}

/// What a test run can afford. The last turn opens the latch.
pub fn small() -> Vec<System> {
    let pair = [["w", "", ""]; 2];
    let single = [["w", "", ""], ["", "", ""]];
    let alone = [["w", "w", ""], ["", "", ""]];
    vec![
        system("latch-pair", pair, 1),
        system("latch-alone", alone, 1),
        system("latch-set-anew", single, 3),
        System {
            ticks: 1,
            ..system("latch-tries", [["tw", "w", ""], ["", "", ""]], 1)
        },
        System {
            budget: Budget {
                refused: 1,
                breaks: 1,
                all: 2,
                ..Budget::default()
            },
            ..system("latch-refused", alone, 1)
        },
        System {
            budget: Budget {
                failovers: 1,
                dropped_futures: 1,
                all: 2,
                ..Budget::default()
            },
            keeps_answers: true,
            ..system("latch-failover", single, 3)
        },
        System {
            batches: true,
            ..system("latch-batches", alone, 1)
        },
        System {
            budget: Budget {
                failovers: 1,
                all: 1,
                ..Budget::default()
            },
            elsewhere: true,
            ..system("latch-elsewhere", single, 3)
        },
        System {
            budget: Budget::default(),
            ..system("latch-alone-anew", alone, 3)
        },
    ]
}

/// What takes minutes.
pub fn large() -> Vec<System> {
    vec![system("latch-clients", [["w", "w", ""]; 2], 3)]
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
        world.events(out);
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
