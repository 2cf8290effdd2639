//! Long random ways through large systems, which a search of all states cannot reach.

use fastrand::Rng;

use crate::{
    event::Event,
    search::Violation,
    system::{Budget, Step, System, TICK},
    world::World,
};

/// The steps within which every way comes to its end.
const MOST_STEPS: usize = 20_000;

/// A way, by the numbers of its events.
pub struct Walked {
    pub system: System,
    pub steps: usize,
    pub found: Option<Violation>,
}

/// Goes the way of `seed`, and checks what [`explore`](crate::search::explore) checks of each state.
pub fn walk(seed: u64) -> Walked {
    let mut rng = Rng::with_seed(seed);
    let system = system(&mut rng);
    let mut world = World::new(&system);
    let (mut way, mut events) = (Vec::new(), Vec::new());
    let found = loop {
        if let Some(rule) = world.wrong() {
            break Some(rule);
        }
        world.events(&system, &mut events);
        if !events.iter().any(|event| event.is_internal())
            && let Some(rule) = world.check_quiet(&system)
        {
            break Some(rule);
        }
        if world.is_end() {
            break None;
        }
        if way.len() == MOST_STEPS {
            break Some("the way does not come to its end");
        }
        let Some(event) = choose(&mut rng, &events) else {
            break Some("no way leads to the end");
        };
        way.push(event);
        world.apply(event, &system);
    };
    Walked {
        system,
        steps: way.len(),
        found: found.map(|rule| Violation { rule, events: way }),
    }
}

/// Faults are rarer than all else, and so are ticks while something is under way.
fn choose(rng: &mut Rng, events: &[Event]) -> Option<Event> {
    let is_rare =
        |event: &&Event| event.is_fault() || matches!(event, Event::Tick { quiet: false });
    let wants_rare = rng.u8(..20) == 0;
    let chosen: Vec<_> = events
        .iter()
        .filter(|event| is_rare(event) == wants_rare)
        .collect();
    let chosen = if chosen.is_empty() {
        events.iter().collect()
    } else {
        chosen
    };
    rng.choice(chosen).copied()
}

/// Two clients with three tasks each.
fn system(rng: &mut Rng) -> System {
    let is_one_in = |rng: &mut Rng, most: u8| rng.u8(..most) == 0;
    let mut system = crate::systems::plain("walk");
    system.tasks = std::array::from_fn(|_| std::array::from_fn(|_| steps(rng)));
    system.owners = std::array::from_fn(|_| {
        *rng.choice(&[[0, 1, 2], [0, 0, 1], [0, 1, 1]])
            .unwrap_or(&[0, 1, 2])
    });
    system.limits.is_fair = is_one_in(rng, 4);
    system.limits.hands_off = !is_one_in(rng, 4);
    system.fixed_lease = TICK * rng.u32(2..8);
    system.ticks = rng.u8(..12);
    system.clocks_lag = is_one_in(rng, 8);
    system.timers_lag = is_one_in(rng, 8);
    system.unordered = is_one_in(rng, 3);
    system.keeps_answers = is_one_in(rng, 2);
    system.batches = is_one_in(rng, 2);
    system.elsewhere = is_one_in(rng, 4);
    system.budget = budget(rng);
    system
}

fn steps(rng: &mut Rng) -> Vec<Step> {
    let mut steps: Vec<_> = (0..rng.usize(..10))
        .map(|_| {
            *rng.choice(&[
                Step::Lock,
                Step::Lock,
                Step::LockFixed,
                Step::Try,
                Step::Unlock,
                Step::Unlock,
            ])
            .unwrap_or(&Step::Lock)
        })
        .collect();
    // What is left is released in the end.
    let held = steps.iter().filter(|step| **step != Step::Unlock).count();
    steps.resize(steps.len() + held, Step::Unlock);
    steps
}

fn budget(rng: &mut Rng) -> Budget {
    let mut few = || rng.u8(..4).saturating_sub(1);
    let budget = Budget {
        breaks: few(),
        lost_messages: few(),
        dropped_futures: few(),
        dropped_guards: few(),
        forced: few(),
        refused: few(),
        failovers: few().min(1),
        late_pick_ups: few(),
        put_off: few(),
        closes: few().min(1),
        all: 0,
    };
    Budget {
        all: rng.u8(..8),
        ..budget
    }
}
