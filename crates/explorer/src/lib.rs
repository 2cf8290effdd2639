//! Plays every interleaving of small systems: two clients with two tasks each, one lock, one server, a network with few faults.
//!
//! `cargo run --release -p explorer -- NAME` explores one system, `-- list` names them.

mod checks;
#[path = "../../../src/core/mod.rs"]
pub mod core;
pub mod event;
mod fair;
mod fifo;
pub mod game;
mod key;
pub mod latches;
mod life;
mod network;
pub mod permits;
mod play;
pub mod search;
pub mod server;
mod shown;
pub mod system;
pub mod systems;
pub mod walk;
pub mod world;
