//! The simulator: histories of clients and a server in memory, each of which follows from a seed.
//!
//! A history runs in one thread under a paused clock, with the chance of everything in it, hash maps and `select!` included,
//! drawn from its seed: the same seed gives the same history again, byte for byte. `make simulate SEED=<number>` tells one,
//! `make simulate` plays many.

mod campaign;
mod history;
mod leases;
#[path = "../histories/mod.rs"]
mod played;
mod shrink;
mod weather;

use campaign::Campaign;
use history::Plan;

/// Seeds of histories that once broke a rule.
// 2995: a waiter was not told of a lease that a release had cut.
const REGRESSIONS: [u64; 1] = [2995];

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

/// The seed `SEED`, told line by line; or `HISTORIES` of them, from `FIRST_SEED` on.
#[test]
fn histories_keep_the_rules() {
    if let Some(seed) = number("SEED") {
        return tell(seed);
    }
    let campaign = Campaign {
        first: number("FIRST_SEED").unwrap_or(1),
        histories: number("HISTORIES").unwrap_or(2_000),
    };
    println!("{}", campaign.run());
}

fn tell(seed: u64) {
    let plan = Plan::whole(seed);
    match plan.play(true) {
        Ok(kept) => println!("{}{plan} keeps the rules: {:?}", kept.story, kept.tally),
        Err(_) => panic!("{}", shrink::told(plan)),
    }
}

#[test]
fn histories_that_once_broke_a_rule_keep_it() {
    for seed in REGRESSIONS {
        if let Err(failure) = Plan::whole(seed).play(false) {
            panic!("seed {seed}: {}", failure.rule);
        }
    }
}

#[test]
fn a_seed_gives_the_same_history_again() {
    for seed in 1..=100 {
        let tell = || match Plan::whole(seed).play(true) {
            Ok(kept) => kept.story,
            Err(failure) => failure.story,
        };
        let (once, again) = (tell(), tell());
        let lines = once.lines().zip(again.lines());
        for (at, (line, other)) in lines.enumerate() {
            assert_eq!(line, other, "seed {seed}, line {at}");
        }
        assert_eq!(once.len(), again.len(), "seed {seed}");
    }
}
