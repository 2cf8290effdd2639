//! The test bed itself, against real servers.

mod bed;
mod children;
mod cluster;
mod impostor;
mod losses;
mod messages;
mod network;
mod server;

use std::time::Duration;

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// Long enough for what must not happen to happen.
const A_WHILE: Duration = Duration::from_millis(100);
