//! See the library.

use explorer::{
    game::Game,
    latches, permits,
    search::{Explored, explore},
    systems,
    world::NO_BEGIN,
};

const MOST: usize = 30_000_000;

/// The machines that systems play.
const PARTS: [&str; 3] = ["locks", "permits", "latches"];

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let mut run = Run {
        lists: names.iter().any(|name| name == "list"),
        stops: names.iter().any(|name| name == "--until-found"),
        names,
        states: 0,
        is_clean: true,
    };
    let mut quick = systems::small();
    quick.extend(systems::middle());
    run.explore_part("locks", &quick, &systems::large());
    run.explore_part("permits", &permits::small(), &permits::large());
    run.explore_part("latches", &latches::small(), &latches::large());
    if !run.lists {
        println!("{} states", run.states);
    }
    std::process::exit(i32::from(!run.is_clean));
}

/// What the command line asks for, and what was found so far. Without names of systems or parts: all quick systems.
struct Run {
    names: Vec<String>,
    lists: bool,
    stops: bool,
    states: usize,
    is_clean: bool,
}

impl Run {
    fn explore_part<G: Game>(&mut self, part: &str, quick: &[G], large: &[G]) {
        let all = quick.iter().chain(large);
        if self.lists {
            return all.for_each(|system| println!("{}", system.name()));
        }
        let has = |name: &str| self.names.iter().any(|other| other == name);
        let has_parts = PARTS.iter().any(|part| has(part));
        let names_none = !has_parts && (self.names.is_empty() || self.stops);
        let chosen: Vec<&G> = match has(part) || names_none {
            true => quick.iter().collect(),
            false => all
                .filter(|system| has("all") || has(system.name()))
                .collect(),
        };
        for system in chosen {
            if self.stops && !self.is_clean {
                break;
            }
            self.explore(system);
        }
    }

    fn explore<G: Game>(&mut self, system: &G) {
        let explored = explore(system, MOST);
        self.states += explored.states;
        let has_begun = !matches!(&explored.found, Some(found) if found.rule == NO_BEGIN);
        if self.stops && !has_begun {
            // An error may have changed the way. The next system finds it.
            return;
        }
        self.is_clean &= explored.is_complete && explored.found.is_none();
        print(system, &explored);
    }
}

fn print<G: Game>(system: &G, explored: &Explored) {
    let result = match &explored.found {
        Some(found) => found.rule,
        None if explored.is_complete => "clean",
        None => "not complete",
    };
    println!(
        "{:<18} {:>9} states {:>10} steps {:>6.2} s  {result}",
        system.name(),
        explored.states,
        explored.steps,
        explored.took.as_secs_f64(),
    );
    let Some(found) = &explored.found else { return };
    let mut world = system.begin();
    for event in &found.events {
        system.apply(&mut world, *event);
        println!("  {:<22} {world}", format!("{event:?}"));
    }
}
