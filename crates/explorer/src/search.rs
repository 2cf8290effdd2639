//! A breadth-first search over all states, and what it checks beside each state: every state leads to the end, and no circle of
//! internal events exists.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    time::{Duration, Instant},
};

use crate::{event::Event, game::Game};

/// The result of a search.
pub struct Explored {
    pub states: usize,
    pub steps: usize,
    pub took: Duration,
    /// Whether all states were visited.
    pub is_complete: bool,
    pub found: Option<Violation>,
}

/// What does not hold, and the events that lead there.
pub struct Violation {
    pub rule: &'static str,
    pub events: Vec<Event>,
}

/// The keys are hashes already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are of 64 bits")
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The states by number, and the steps between them.
#[derive(Default)]
struct Graph {
    /// For each state but the first one, the state before it and the event between them.
    parents: Vec<Option<(u32, Event)>>,
    is_end: Vec<bool>,
    /// For each state, where its steps begin in `targets`.
    begins: Vec<usize>,
    targets: Vec<(u32, bool)>,
}

impl Graph {
    fn add(&mut self, parent: Option<(u32, Event)>, is_end: bool) -> u32 {
        self.parents.push(parent);
        self.is_end.push(is_end);
        self.parents.len() as u32 - 1
    }

    fn way_to(&self, mut state: u32, last: Option<Event>) -> Vec<Event> {
        let mut events: Vec<_> = last.into_iter().collect();
        while let Some((parent, event)) = self.parents[state as usize] {
            events.push(event);
            state = parent;
        }
        events.reverse();
        events
    }

    fn steps_of(&self, state: usize) -> &[(u32, bool)] {
        &self.targets[self.begins[state]..self.begins[state + 1]]
    }

    /// The steps, each at the state to which it leads.
    fn steps_into(&self) -> Before {
        let mut ends = vec![0; self.parents.len() + 1];
        for (target, _) in &self.targets {
            ends[*target as usize + 1] += 1;
        }
        for state in 1..ends.len() {
            ends[state] += ends[state - 1];
        }
        let mut begins = ends.clone();
        let mut states = vec![0; self.targets.len()];
        for state in 0..self.parents.len() {
            for (target, _) in self.steps_of(state) {
                let place = &mut begins[*target as usize];
                states[*place] = state as u32;
                *place += 1;
            }
        }
        Before {
            begins: ends,
            states,
        }
    }

    /// A state from which no way leads to the end.
    fn find_dead_end(&self) -> Option<u32> {
        let count = self.parents.len();
        let into = self.steps_into();
        let mut reaches = self.is_end.clone();
        let mut work: Vec<u32> = (0..count as u32)
            .filter(|state| reaches[*state as usize])
            .collect();
        while let Some(state) = work.pop() {
            for before in into.of(state as usize) {
                if !std::mem::replace(&mut reaches[*before as usize], true) {
                    work.push(*before);
                }
            }
        }
        (0..count as u32).find(|state| !reaches[*state as usize])
    }

    /// A state on a circle of internal events: requests without end in no time.
    fn find_circle(&self) -> Option<u32> {
        let count = self.parents.len();
        let mut before = vec![0_u32; count];
        for (target, is_internal) in &self.targets {
            before[*target as usize] += u32::from(*is_internal);
        }
        let mut work: Vec<usize> = (0..count).filter(|state| before[*state] == 0).collect();
        let mut sorted = 0;
        while let Some(state) = work.pop() {
            sorted += 1;
            for (target, _) in self
                .steps_of(state)
                .iter()
                .filter(|(_, is_internal)| *is_internal)
            {
                before[*target as usize] -= 1;
                if before[*target as usize] == 0 {
                    work.push(*target as usize);
                }
            }
        }
        (sorted < count).then(|| {
            before
                .iter()
                .position(|count| *count > 0)
                .unwrap_or_default() as u32
        })
    }
}

/// For each state, those from which a step leads to it.
struct Before {
    begins: Vec<usize>,
    states: Vec<u32>,
}

impl Before {
    fn of(&self, state: usize) -> &[u32] {
        &self.states[self.begins[state]..self.begins[state + 1]]
    }
}

/// Visits every state of `system`, `most` at most.
pub fn explore<G: Game>(system: &G, most: usize) -> Explored {
    let began = Instant::now();
    let mut graph = Graph::default();
    let mut seen: HashMap<u64, u32, BuildHasherDefault<Same>> = HashMap::default();
    let first = system.begin();
    let wrong = system.wrong(&first);
    seen.insert(system.key(&first), graph.add(None, system.is_end(&first)));
    let (mut level, mut events) = (vec![(0, first)], Vec::new());
    let done = |graph: &Graph, is_complete, found| Explored {
        states: graph.parents.len(),
        steps: graph.targets.len(),
        took: began.elapsed(),
        is_complete,
        found,
    };
    if let Some(rule) = wrong {
        let events = Vec::new();
        return done(&graph, false, Some(Violation { rule, events }));
    }
    while !level.is_empty() {
        let mut next = Vec::new();
        for (number, world) in level {
            graph.begins.push(graph.targets.len());
            system.events(&world, &mut events);
            if !events.iter().any(|event| event.is_internal())
                && let Some(rule) = system.check_quiet(&world)
            {
                let events = graph.way_to(number, None);
                return done(&graph, false, Some(Violation { rule, events }));
            }
            // The last step takes the state itself.
            let worlds = std::iter::repeat_n(world, events.len());
            for (event, mut after) in events.iter().zip(worlds) {
                system.apply(&mut after, *event);
                if let Some(rule) = system.wrong(&after) {
                    let events = graph.way_to(number, Some(*event));
                    return done(&graph, false, Some(Violation { rule, events }));
                }
                let new = graph.parents.len() as u32;
                let target = *seen.entry(system.key(&after)).or_insert(new);
                if target == new {
                    graph.add(Some((number, *event)), system.is_end(&after));
                    next.push((new, after));
                }
                graph.targets.push((target, event.is_internal()));
            }
        }
        level = next;
        if graph.parents.len() > most {
            return done(&graph, false, None);
        }
    }
    graph.begins.push(graph.targets.len());
    let dead_end = graph
        .find_dead_end()
        .map(|state| (state, "no way leads to the end"));
    let circle = || {
        graph
            .find_circle()
            .map(|state| (state, "requests without end in no time"))
    };
    let found = dead_end.or_else(circle).map(|(state, rule)| Violation {
        rule,
        events: graph.way_to(state, None),
    });
    done(&graph, true, found)
}
