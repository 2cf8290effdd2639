//! Under which conditions a history is played.

use std::time::Duration;

use redisson_lock::Config;

#[derive(Debug, Clone, Copy)]
pub struct Profile {
    pub watchdog_lease: Duration,
    pub poll_floor: Duration,
    pub command_wait: Duration,
    /// How long somebody stays inside at the longest.
    pub long_stay: Duration,
    /// Whether, and for how long at the longest, connections are disturbed.
    pub disturbed: Option<Duration>,
    /// Locks are forced open now and then.
    pub forced: bool,
}

const LONG: Duration = Duration::from_secs(60);

/// Nothing stands in the way, and nothing but messages and leases helps: a wake-up that is lost is seen.
pub const CALM: Profile = Profile {
    watchdog_lease: Duration::from_secs(30),
    poll_floor: LONG,
    command_wait: LONG,
    long_stay: Duration::from_millis(200),
    disturbed: None,
    forced: false,
};

/// Connections are cut, requests, replies and messages lost, everything is late; seldom for so long that a lease ends.
pub const CUTS: Profile = Profile {
    watchdog_lease: Duration::from_secs(2),
    poll_floor: Duration::from_millis(200),
    command_wait: Duration::from_secs(1),
    long_stay: Duration::from_millis(300),
    disturbed: Some(Duration::from_millis(300)),
    forced: false,
};

/// Connections and server stand still for longer than a lease lasts.
pub const FREEZES: Profile = Profile {
    watchdog_lease: Duration::from_millis(300),
    poll_floor: Duration::from_millis(200),
    command_wait: Duration::from_millis(250),
    long_stay: Duration::from_millis(400),
    disturbed: Some(Duration::from_millis(600)),
    forced: false,
};

/// Locks are forced open, which their holders elsewhere hear of at their next renewal.
pub const FORCED: Profile = Profile {
    watchdog_lease: Duration::from_millis(400),
    poll_floor: LONG,
    command_wait: LONG,
    long_stay: Duration::from_millis(500),
    disturbed: None,
    forced: true,
};

impl Profile {
    pub fn config(&self) -> Config {
        Config {
            watchdog_lease: self.watchdog_lease,
            poll_floor: self.poll_floor,
            command_wait: self.command_wait,
            ..Config::default()
        }
    }
}
