//! See the library.

use explorer::{
    search::{Explored, explore},
    system::System,
    systems,
    world::{NO_BEGIN, World},
};

const MOST: usize = 30_000_000;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let mut all = systems::small();
    all.extend(systems::middle());
    let quick = all.len();
    all.extend(systems::large());
    if names.iter().any(|name| name == "list") {
        all.iter().for_each(|system| println!("{}", system.name));
        return;
    }
    let stops = names.iter().any(|name| name == "--until-found");
    let is_named = |system: &&System| {
        names
            .iter()
            .any(|name| name == "all" || name == system.name)
    };
    let chosen: Vec<&System> = match names.is_empty() || stops {
        true => all[..quick].iter().collect(),
        false => all.iter().filter(is_named).collect(),
    };
    let (mut states, mut is_clean) = (0, true);
    for system in chosen {
        let explored = explore(system, MOST);
        states += explored.states;
        let has_begun = !matches!(&explored.found, Some(found) if found.rule == NO_BEGIN);
        if stops && !has_begun {
            // An error may have changed the way. The next system finds it.
            continue;
        }
        is_clean &= explored.is_complete && explored.found.is_none();
        print(system, &explored);
        if stops && !is_clean {
            break;
        }
    }
    println!("{states} states");
    std::process::exit(i32::from(!is_clean));
}

fn print(system: &System, explored: &Explored) {
    let result = match &explored.found {
        Some(found) => found.rule,
        None if explored.is_complete => "clean",
        None => "not complete",
    };
    println!(
        "{:<18} {:>9} states {:>10} steps {:>6.2} s  {result}",
        system.name,
        explored.states,
        explored.steps,
        explored.took.as_secs_f64(),
    );
    let Some(found) = &explored.found else { return };
    let mut world = World::new(system);
    for event in &found.events {
        world.apply(*event, system);
        println!("  {:<22} {world}", format!("{event:?}"));
    }
}
