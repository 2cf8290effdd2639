//! The simulator: plays histories of clients and servers in memory. A seed determines a history.
//!
//! A history runs in one thread under a paused clock. All randomness, including that of hash maps and `select!`, comes from its seed, so
//! a seed gives the same history again, byte for byte. `make simulate SEED=<number>` prints one, `make simulate` plays many.

mod broken_connections;
mod campaign;
mod closings;
mod clusters;
mod costs;
mod differential;
mod elections;
mod full_servers;
mod group_guards;
mod group_members;
mod group_waits;
mod groups;
mod hand_offs;
mod history;
mod java;
mod kit;
mod late_answers;
mod leases;
mod lent_fields;
mod lines;
mod lossy_network;
mod lost_answers;
mod nested_leases;
mod network;
mod order;
mod permits;
#[path = "../histories/mod.rs"]
mod played;
mod questions;
mod queues;
mod readers;
mod regressions;
mod renewals;
mod replicas;
mod shrink;
mod shutdowns;
mod successions;
mod synchronizers;
mod takeovers;
mod upheaval;
mod waits;
mod wake_ups;
mod watch;
mod weather;
mod world;

use campaign::Campaign;
use history::Plan;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

/// Prints the history of `SEED` line by line, or plays `HISTORIES` seeds from `FIRST_SEED` on. `SHRINK=skip` does not shrink a failure.
#[test]
fn histories_keep_the_rules() {
    if let Some(seed) = number("SEED") {
        return tell(seed);
    }
    let campaign = Campaign {
        first: number("FIRST_SEED").unwrap_or(1),
        histories: number("HISTORIES").unwrap_or(600),
        shrinks: std::env::var("SHRINK").as_deref() != Ok("skip"),
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
