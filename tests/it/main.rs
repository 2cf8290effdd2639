//! The integration tests: the contract of every kind of lock, then one module per hazard.

mod bad_input;
#[cfg(feature = "blocking")]
mod blocking;
mod client_id;
mod cluster;
mod cluster_databases;
mod connecting;
mod contract;
mod credentials_provider;
mod dropped_guards;
mod durability;
mod election;
mod end_points;
mod eviction;
mod extending;
mod fair_lock;
mod fenced_lock;
mod few_replicas;
mod handing_over;
mod hazards;
mod health;
mod histories;
mod holder_details;
mod holding;
mod hostile;
mod in_doubt;
mod jobs;
mod multi_lock;
mod names;
mod one_text;
mod prefixes;
mod read_write_lock;
mod red_lock;
mod rights;
mod running_jobs;
mod runtimes;
mod scripts;
mod sentinel;
mod shutting_down;
mod silence;
mod simple_lock;
mod spin_lock;
mod starvation;
mod stopping;
mod synchronizers;
mod watching;
mod witness;
mod yielding;

/// The texts of an error and of its sources.
fn in_full(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources
        .map(|error| error.to_string())
        .collect::<Vec<_>>()
        .join(": ")
}
