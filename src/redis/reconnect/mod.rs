//! When a client connects again to a server that is down or closes accepted connections, and what the log tells of it.
//!
//! - [`known_server`]: what one client has learned of each server, for all purposes.
//! - [`back_off`]: the turns to connect to one server, with pauses that grow.
//! - [`connect_log`]: the fate of the connections of one purpose, and its log lines.

mod back_off;
mod connect_log;
mod known_server;

use std::time::Duration;

pub(super) use back_off::{Callers, Turn};
pub(super) use connect_log::{ConnectLog, Trouble};
pub(super) use known_server::{KnownServer, KnownServers};

/// The pause after the first failed attempt. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between two attempts to connect to one server, before the random part is added.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A pause that grows with the `number` of earlier ones. A random part of up to half of it keeps clients that lost their
/// server together from reconnecting together.
fn pause(number: u32, longest: Duration) -> Duration {
    let doubled = FIRST_PAUSE * 2_u32.pow(number.min(16));
    doubled.min(longest).mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// The pause of one purpose after so many attempts in a row that ended before they reached the server.
pub(super) fn pause_after(number: u32) -> Duration {
    match number.checked_sub(1) {
        None => Duration::ZERO,
        Some(earlier) => pause(earlier, LONGEST_PAUSE),
    }
}
