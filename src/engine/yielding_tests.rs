//! The yields of one client beside neighbours that are near, far, many or dead.

use proptest::prelude::*;

use super::*;
use crate::wire::{LockProtocol, sealed::Known};

fn spec() -> Arc<LockSpec> {
    let wire: &dyn LockProtocol = crate::Reentrant::PROTOCOL;
    Arc::new(wire.spec("a".into(), &crate::Config::default()))
}

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A client of one task that works, releases and comes back at once. Its neighbours are
/// `listeners`. Live ones need `distance` to arrive after a release, and then work as long.
struct Contenders {
    yields: Yields,
    spec: Arc<LockSpec>,
    now: Instant,
    work: Duration,
    distance: Duration,
    listeners: u32,
    living: u32,
    own_turns: u32,
    foreign_turns: u32,
    /// The time in yields that no neighbour used.
    idle: Duration,
    longest_streak: Duration,
}

impl Contenders {
    fn new(work: Duration, distance: Duration, listeners: u32, living: u32) -> Self {
        Self {
            yields: Yields::new(true),
            spec: spec(),
            now: Instant::now(),
            work,
            distance,
            listeners,
            living,
            own_turns: 0,
            foreign_turns: 0,
            idle: Duration::ZERO,
            longest_streak: Duration::ZERO,
        }
    }

    fn run(&mut self, time: Duration) {
        let (end, mut streak) = (self.now + time, self.now);
        while self.now < end {
            self.yields.record_grant(&self.spec, self.now);
            self.now += self.work;
            self.own_turns += 1;
            let neighbours = Neighbours::Listening(self.listeners);
            let due = self.yields.is_due(&self.spec, 0, self.now);
            self.yields
                .record_release(&self.spec, neighbours, due, true, self.now);
            let foreign = self.foreign_turns;
            self.waits();
            if self.foreign_turns > foreign {
                self.longest_streak = self.longest_streak.max(self.now - streak);
                streak = self.now;
            }
        }
    }

    /// Runs until this client asks for the lock and is granted it.
    fn waits(&mut self) {
        // Live neighbours take turns, each as soon as it can.
        for _ in 0..self.living {
            let Some(until) = self.yields.begin_wait(&self.spec, self.now) else {
                return;
            };
            if self.now + self.distance > until {
                self.idle += until - self.now;
                self.now = until;
                return;
            }
            self.now += self.distance + self.work;
            self.foreign_turns += 1;
            self.yields.record_foreign_release(&self.spec, self.now);
        }
        if let Some(until) = self.yields.begin_wait(&self.spec, self.now) {
            self.idle += until - self.now;
            self.now = until;
        }
    }

    fn idle_share(&self, time: Duration) -> f64 {
        self.idle.as_secs_f64() / time.as_secs_f64()
    }
}

#[test]
fn near_neighbour_has_every_other_turn() {
    for work in [micros(200), millis(1), millis(50)] {
        let mut contenders = Contenders::new(work, micros(300), 1, 1);
        contenders.run(Duration::from_secs(10));
        assert_eq!(
            contenders.own_turns.abs_diff(contenders.foreign_turns),
            0,
            "{work:?}"
        );
        assert_eq!(contenders.idle, Duration::ZERO);
    }
}

#[test]
fn each_of_several_neighbours_has_its_turn() {
    let mut contenders = Contenders::new(millis(1), micros(300), 7, 7);
    contenders.run(Duration::from_secs(10));
    assert_eq!(
        contenders.own_turns.abs_diff(contenders.foreign_turns / 7),
        0
    );
    // Some neighbours may be dead.
    let time = Duration::from_secs(60);
    let mut contenders = Contenders::new(millis(1), micros(300), 7, 3);
    contenders.run(time);
    let share = f64::from(contenders.foreign_turns) / f64::from(contenders.own_turns);
    assert!((2.0..4.0).contains(&share), "{share}");
    assert!(contenders.idle_share(time) < 0.15, "{:?}", contenders.idle);
}

#[test]
fn clients_that_wait_are_not_yielded_to_without_a_release() {
    let (mut yields, spec, now) = (Yields::new(true), spec(), Instant::now());
    assert_eq!(yields.begin_wait(&spec, now), None);
    assert_eq!(
        yields.record_release(&spec, Neighbours::None, true, true, now),
        None
    );
    assert!(
        yields.is_empty(),
        "nothing is remembered of a lock without neighbours"
    );
    let mut off = Yields::new(false);
    assert_eq!(
        off.record_release(&spec, Neighbours::Listening(1), true, true, now),
        None
    );
    assert!(off.is_empty() && !off.is_due(&spec, 0, now));
}

#[test]
fn yield_ends_when_another_client_has_had_the_lock() {
    let (mut yields, spec, now) = (Yields::new(true), spec(), Instant::now());
    yields.record_release(&spec, Neighbours::Listening(1), true, true, now);
    assert_eq!(yields.begin_wait(&spec, now), Some(now + SHORTEST_YIELD));
    assert_eq!(
        yields.record_foreign_release(&spec, now + micros(200)),
        None
    );
    assert_eq!(yields.begin_wait(&spec, now + micros(200)), None);
    // Two of three neighbours have had no turn yet.
    yields.record_release(&spec, Neighbours::Listening(3), true, true, now);
    let at = now + micros(400);
    assert_eq!(
        yields.record_foreign_release(&spec, at),
        Some(at + 2 * SHORTEST_YIELD)
    );
    assert_eq!(yields.begin_wait(&spec, at), Some(at + 2 * SHORTEST_YIELD));
}

#[test]
fn neighbours_that_poll_are_given_time_without_having_been_heard_of() {
    let (mut yields, spec, mut now) = (Yields::new(true), spec(), Instant::now());
    let begun = now;
    let mut idle = Duration::ZERO;
    while now < begun + Duration::from_secs(30) {
        yields.record_grant(&spec, now);
        now += millis(1);
        let due = yields.is_due(&spec, 0, now);
        yields.record_release(&spec, Neighbours::Polling, due, true, now);
        if let Some(until) = yields.begin_wait(&spec, now) {
            idle += until - now;
            now = until;
        }
    }
    assert_eq!(yields.at(&spec).unwrap().length, LONGEST_YIELD_TO_POLLS);
    let share = idle.as_secs_f64() / (now - begun).as_secs_f64();
    assert!((0.05..=0.1).contains(&share), "{share}");
}

/// A burst of two turns, long after the last one.
#[test]
fn lock_that_was_left_alone_for_a_while_is_not_yielded() {
    let (mut yields, spec, mut now) = (Yields::new(true), spec(), Instant::now());
    for neighbours in [
        Neighbours::Polling,
        Neighbours::Uncounted,
        Neighbours::Listening(1),
    ] {
        for burst in 0..100 {
            now += Duration::from_secs(5);
            for _ in 0..2 {
                yields.record_grant(&spec, now);
                now += micros(400);
                let due = yields.is_due(&spec, 0, now);
                assert!(!due || burst == 0, "{neighbours:?}");
                yields.record_release(&spec, neighbours, due, true, now);
            }
        }
    }
}

#[test]
fn locks_that_are_left_alone_are_forgotten() {
    let (mut yields, mut now) = (Yields::new(true), Instant::now());
    let wire: &dyn LockProtocol = crate::Reentrant::PROTOCOL;
    for i in 0..100_000 {
        let spec = Arc::new(wire.spec(format!("{i}").into(), &crate::Config::default()));
        yields.record_release(&spec, Neighbours::Listening(1), true, true, now);
        now += millis(1);
    }
    // The locks of the last ten seconds, and as many again.
    assert!(yields.locks.len() <= 20_000, "{}", yields.locks.len());
}

#[test]
fn read_side_that_is_forgotten_leaves_the_write_side_as_it_is() {
    let (mut yields, now) = (Yields::new(true), Instant::now());
    let config = crate::Config::default();
    let read = Arc::new(crate::Read::PROTOCOL.spec("a".into(), &config));
    let write = Arc::new(crate::Write::PROTOCOL.spec("a".into(), &config));
    let neighbours = Neighbours::Listening(1);
    yields.record_release(&read, neighbours, true, true, now);
    let later = now + NEIGHBOURS_REMEMBERED_FOR + millis(1);
    yields.record_release(&write, neighbours, true, true, later);
    yields.record_release(&read, neighbours, true, true, later);
    assert!(yields.has_neighbours(&write) && yields.has_neighbours(&read));
}

proptest! {
    #[test]
    fn dead_listeners_cost_a_fifth_of_the_time_at_most(
        work in 50_u64..200_000, dead in 1_u32..200, seconds in 1_u64..60,
    ) {
        let time = Duration::from_secs(seconds);
        let mut contenders = Contenders::new(micros(work), micros(300), dead, 0);
        contenders.run(time);
        // The first yield comes before the first turn.
        prop_assert!(contenders.idle <= time / 5 + SHORTEST_YIELD, "{:?} of {time:?}", contenders.idle);
    }

    #[test]
    fn neighbour_within_reach_is_inside_after_ten_times_its_distance(
        work in 50_u64..20_000, distance in 50_u64..60_000, dead in 0_u32..3,
    ) {
        let (work, distance) = (micros(work), micros(distance));
        let mut contenders = Contenders::new(work, distance, 1 + dead, 1);
        contenders.run(Duration::from_secs(30));
        // Streaks end with a turn, so each of the yields on the way to the right one may come a turn late.
        let reach = 20 * distance.max(SHORTEST_YIELD) + 8 * work + LONGEST_YIELD;
        prop_assert!(contenders.foreign_turns > 0);
        prop_assert!(contenders.longest_streak <= reach, "{:?}, {reach:?}", contenders.longest_streak);
    }

    #[test]
    fn yields_are_within_their_bounds_whatever_happens(
        steps in prop::collection::vec((0_u8..7, 0_u32..5, 0_u64..300_000), 0..200),
    ) {
        let (mut yields, spec, mut now) = (Yields::new(true), spec(), Instant::now());
        for (step, count, pass) in steps {
            now += micros(pass);
            match step {
                0 => yields.record_grant(&spec, now),
                1 => yields.record_refusal(&spec),
                2 => drop(yields.record_foreign_release(&spec, now)),
                3 => {
                    yields.begin_wait(&spec, now);
                }
                4 => {
                    let due = yields.is_due(&spec, count as usize, now);
                    yields.record_release(&spec, Neighbours::Listening(count), due, true, now);
                }
                5 => drop(yields.record_release(&spec, Neighbours::None, false, true, now)),
                _ => drop(yields.record_release(&spec, Neighbours::Uncounted, true, true, now)),
            }
            if let Some(until) = yields.until(&spec, now) {
                prop_assert!(until <= now + LONGEST_YIELD);
            }
            if let Some(lock) = yields.at(&spec) {
                prop_assert!((SHORTEST_YIELD..=LONGEST_YIELD).contains(&lock.length));
            }
        }
    }
}
