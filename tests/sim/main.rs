//! The simulator: plays histories of clients and servers in memory, and arranged cases. A seed determines a history.
//!
//! A history runs in one thread under a paused clock. All randomness, including that of hash maps and `select!`, comes from its seed, so
//! a seed gives the same history again, byte for byte. `make simulate SEED=<number>` prints one, `make simulate` plays many.
//!
//! | random histories | |
//! | --- | --- |
//! | [`campaign`] | plays histories on all cores, checks their rules, shrinks a failure, and replays the seeds of past defects |
//! | [`world`] | the servers of a history, their random faults, and the clients that behave like Redisson |
//! | `histories`, a crate | the tasks, the log and the oracle of a history, which `tests/it` uses on real servers |
//! | [`synchronizers::histories`] | histories of semaphores and latches |
//!
//! | arranged cases, one per test, under a paused clock | |
//! | --- | --- |
//! | [`connections`] | broken, silent and refused connections, lost and late answers |
//! | [`holds`] | leases, renewals, losses, shutdowns, queries |
//! | [`waiting`] | the local queue, wake-ups, fair queues, the log lines of long waits |
//! | [`readers`] | readers that share a hold, and writers beside readers |
//! | [`groups`] | locks of several members |
//! | [`synchronizers`] | semaphores and latches |
//! | [`topologies`] | clusters, and masters with replicas and sentinels |
//! | [`in_memory_redis`] | the test kit, and its comparison with a real server |
//! | [`support`] | networks with faults, recorded log lines, and helpers that these tests share |

mod campaign;
mod connections;
mod groups;
mod holds;
mod in_memory_redis;
mod readers;
mod support;
mod synchronizers;
mod topologies;
mod waiting;
mod world;

use campaign::{Campaign, history::Plan, shrink};
use world::servers::Kind;

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

/// Prints the history of `SEED` line by line (in the profile `PROFILE`, if it is set), or plays `HISTORIES` seeds from `FIRST_SEED` on. `SHRINK=skip` does not shrink a failure.
#[test]
fn histories_keep_the_rules() {
    if let Some(seed) = number("SEED") {
        return print_history(seed);
    }
    let profile = std::env::var("PROFILE").unwrap_or_default();
    assert!(profile.is_empty(), "PROFILE needs a SEED");
    play(None, 600);
}

/// The same on the models of the scripts, without connections.
#[test]
fn histories_on_models_keep_the_rules() {
    play(Some(Kind::Model), 200);
}

fn play(world: Option<Kind>, enough: u64) {
    let campaign = Campaign {
        first: number("FIRST_SEED").unwrap_or(1),
        histories: number("HISTORIES").unwrap_or(enough),
        world,
        shrinks: std::env::var("SHRINK").as_deref() != Ok("skip"),
    };
    println!("{}", campaign.run());
}

fn print_history(seed: u64) {
    let plan = match std::env::var("PROFILE") {
        Ok(profile) if !profile.is_empty() => {
            let plan = Plan::whole(seed);
            Plan::named(seed, plan.world, &profile)
        }
        _ => Plan::whole(seed),
    };
    match plan.play(true) {
        Ok(kept) => println!("{}{plan} keeps the rules: {:?}", kept.story, kept.tally),
        Err(_) => panic!("{}", shrink::report(plan)),
    }
}
