//! Models of what passes between threads, which the simulator (`tests/sim`) does not see: it has one thread.
//!
//! The files of the protocols are those of the crate itself, compiled once more beside another [`sync`]: loom's primitives,
//! under which [loom](https://docs.rs/loom) runs a model in every interleaving of its threads, up to a number of preemptions.

// Of the files included here, the models use a part.
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
mod sync;
#[path = "../../../src/wire/mod.rs"]
mod wire;

pub use engine::{local_queue, sleep, uses_of_entries, waits};
