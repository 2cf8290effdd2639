//! What the driver and the peers in Rust share: PROTOCOL.md, and the clock that all of them use.

pub mod command;
pub mod peer;
pub mod round;
pub mod scripts;
pub mod standing;
pub mod stats;
pub mod turns;

pub use command::{Command, Kind};
pub use peer::{Failure, Peer, Unsupported, serve};
pub use round::{Round, Task, Times};
pub use turns::{Pause, Taken, Turned, Turns};
