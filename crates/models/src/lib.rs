//! Models of code that several threads run at once. The simulator (`tests/sim`) has one thread and cannot check it.
//!
//! The modelled files are the crate's own, compiled with another [`sync`] that has loom's primitives.
//! [loom](https://docs.rs/loom) runs a model in every interleaving of its threads, up to a number of preemptions.

// The models use a part of the included files.
#![allow(dead_code, unused_imports)]

#[path = "../../../src/config.rs"]
mod config;
#[path = "../../../src/durability.rs"]
mod durability;
mod engine;
#[path = "../../../src/error.rs"]
mod error;
#[path = "../../../src/hash.rs"]
mod hash;
#[path = "../../../src/lease.rs"]
mod lease;
#[path = "../../../src/owner.rs"]
mod owner;
#[path = "../../../src/server_text.rs"]
mod server_text;
#[path = "../../../src/simulation.rs"]
mod simulation;
#[path = "../../../src/since.rs"]
mod since;
mod sync;
#[path = "../../../src/wire/mod.rs"]
mod wire;

pub use engine::{local_queue, sleep, uses_of_entries, waits};
