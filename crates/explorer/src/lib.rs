//! Plays every interleaving of small systems: two clients with two tasks each, one lock, one server, a network with few faults.
//!
//! `cargo run --release -p explorer -- NAME` explores one system, `-- list` names them.

mod checks;
#[path = "../../../src/core/mod.rs"]
pub mod core;
pub mod event;
mod fair;
mod fifo;
mod key;
mod life;
mod network;
mod play;
pub mod search;
pub mod server;
mod shown;
pub mod system;
pub mod systems;
pub mod walk;
pub mod world;
