//! The parts that the driver and the peers in Rust share: PROTOCOL.md, and a common clock.

pub mod command;
pub mod failure;
pub mod kind;
pub mod peer;
pub mod round;
pub mod scripts;
pub mod standing;
pub mod stats;
pub mod turns;

pub use command::Command;
pub use failure::{Failure, Unsupported};
pub use kind::Kind;
pub use peer::{Peer, serve};
pub use round::{Round, Task, Times};
pub use turns::{Pause, Taken, Turned, Turns};
