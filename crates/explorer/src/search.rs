//! A breadth-first search over all states, and what it checks beside each state: every state leads to the end, and no circle of
//! internal events exists.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    time::{Duration, Instant},
};

use crate::{event::Event, system::System, world::World};

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

/// Mixes what a state hashes into 64 bits.
#[derive(Default)]
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ word).wrapping_mul(0xa076_1d64_78bd_642f_e703_7ed1_a0b4_28db);
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ self.0.rotate_left(23);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
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

/// One key for worlds that differ by the names of the clients.
fn key(world: &World, system: &System) -> u64 {
    let hash = |first| {
        let mut mixer = Mixer(0x9e37_79b9_7f4a_7c15);
        world.hash_from(first, &mut mixer);
        mixer.finish()
    };
    let is_symmetric = system.tasks[0] == system.tasks[1] && system.owners[0] == system.owners[1];
    match is_symmetric {
        true => hash(0).min(hash(1)),
        false => hash(0),
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

    /// A state from which no way leads to the end.
    fn find_dead_end(&self) -> Option<u32> {
        let count = self.parents.len();
        let mut into = vec![Vec::new(); count];
        for state in 0..count {
            for (target, _) in self.steps_of(state) {
                into[*target as usize].push(state as u32);
            }
        }
        let mut reaches = self.is_end.clone();
        let mut work: Vec<u32> = (0..count as u32)
            .filter(|state| reaches[*state as usize])
            .collect();
        while let Some(state) = work.pop() {
            for before in &into[state as usize] {
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

/// Visits every state of `system`, `most` at most.
pub fn explore(system: &System, most: usize) -> Explored {
    let began = Instant::now();
    let mut graph = Graph::default();
    let mut seen: HashMap<u64, u32, BuildHasherDefault<Same>> = HashMap::default();
    let first = World::new(system);
    let wrong = first.wrong();
    seen.insert(key(&first, system), graph.add(None, first.is_end()));
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
            world.events(system, &mut events);
            if !events.iter().any(|event| event.is_internal())
                && let Some(rule) = world.check_quiet(system)
            {
                let events = graph.way_to(number, None);
                return done(&graph, false, Some(Violation { rule, events }));
            }
            for event in &events {
                let mut after = world.clone();
                after.apply(*event, system);
                if let Some(rule) = after.wrong() {
                    let events = graph.way_to(number, Some(*event));
                    return done(&graph, false, Some(Violation { rule, events }));
                }
                let new = graph.parents.len() as u32;
                let target = *seen.entry(key(&after, system)).or_insert(new);
                if target == new {
                    graph.add(Some((number, *event)), after.is_end());
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
