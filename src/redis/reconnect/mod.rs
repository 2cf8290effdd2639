//! When a client connects again to a server that is down or closes accepted connections, and what the log tells of it.
//!
//! - [`known_server`]: what one client has learned of each server, for all purposes.
//! - [`back_off`]: the turns to connect to one server, with pauses that grow.
//! - [`connect_log`]: the fate of the connections of one purpose, and its log lines.

mod back_off;
mod connect_log;
mod known_server;

use std::time::Duration;

use super::time_limits::{FIRST_CONNECT_PAUSE, LONGEST_CONNECT_PAUSE};

pub(super) use back_off::{Callers, Turn};
pub(super) use connect_log::{ConnectLog, Trouble};
pub(super) use known_server::{KnownServer, KnownServers};

/// A pause that grows with the `number` of earlier ones. A random part of up to half of it keeps clients that lost their
/// server together from reconnecting together.
fn pause(number: u32, longest: Duration) -> Duration {
    let doubled = FIRST_CONNECT_PAUSE * 2_u32.pow(number.min(16));
    doubled.min(longest).mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// The pause of one purpose after so many attempts in a row that ended before they reached the server.
pub(super) fn pause_after(number: u32) -> Duration {
    match number.checked_sub(1) {
        None => Duration::ZERO,
        Some(earlier) => pause(earlier, LONGEST_CONNECT_PAUSE),
    }
}
