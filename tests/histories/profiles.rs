//! Under which conditions a history is played.

use std::time::Duration;

use redisson_lock::{Config, Durability};

#[derive(Debug, Clone, Copy)]
pub struct Profile {
    pub watchdog_lease: Duration,
    pub poll_floor: Duration,
    pub command_wait: Duration,
    /// How long a holder stays inside at the longest.
    pub long_stay: Duration,
    /// Whether, and for how long at the longest, connections are disturbed.
    pub disturbed: Option<Duration>,
    /// What disturbs them.
    pub weather: Weather,
    /// How long a command is on its way, and its answer, at the longest; zero for a server near by.
    pub delay: Duration,
    /// Locks are forced open now and then.
    pub forced: bool,
    /// How many replicas are to have what is granted.
    pub durability: Durability,
    /// How long a write takes to a replica at the longest, and as long its acknowledgement.
    pub lag: Duration,
}

/// What may happen to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Whatever can.
    Any,
    /// Nothing gets lost of which a client does not hear, late as it may be.
    Told,
    /// Connections fall silent for ever, without an end.
    Silences,
    /// Masters fail one at a time, and replicas that have all that counts take over. Connections suffer whatever can happen.
    Failovers,
    /// As `Failovers`; masters that are well are replaced as well.
    Ordered,
    /// Masters fail while replicas lag, hang and fail.
    Losses,
}

const LONG: Duration = Duration::from_secs(60);

/// Nothing stands in the way, and nothing but messages and leases helps: a wake-up that is lost is seen.
pub const CALM: Profile = Profile {
    watchdog_lease: Duration::from_secs(30),
    poll_floor: LONG,
    command_wait: LONG,
    long_stay: Duration::from_millis(200),
    disturbed: None,
    weather: Weather::Any,
    delay: Duration::ZERO,
    forced: false,
    durability: Durability::Auto,
    lag: Duration::ZERO,
};

/// Connections are cut, requests, replies and messages lost, everything is late; seldom for so long that a lease ends.
pub const CUTS: Profile = Profile {
    watchdog_lease: Duration::from_secs(2),
    poll_floor: Duration::from_millis(200),
    command_wait: Duration::from_secs(1),
    long_stay: Duration::from_millis(300),
    disturbed: Some(Duration::from_millis(300)),
    weather: Weather::Any,
    delay: Duration::ZERO,
    forced: false,
    durability: Durability::Auto,
    lag: Duration::ZERO,
};

/// Connections and server stand still for longer than a lease lasts.
pub const FREEZES: Profile = Profile {
    watchdog_lease: Duration::from_millis(300),
    poll_floor: Duration::from_millis(200),
    command_wait: Duration::from_millis(250),
    long_stay: Duration::from_millis(400),
    disturbed: Some(Duration::from_millis(600)),
    weather: Weather::Any,
    delay: Duration::ZERO,
    forced: false,
    durability: Durability::Auto,
    lag: Duration::ZERO,
};

/// Locks are forced open, which their holders elsewhere hear of at their next renewal.
pub const FORCED: Profile = Profile {
    watchdog_lease: Duration::from_millis(400),
    poll_floor: LONG,
    command_wait: LONG,
    long_stay: Duration::from_millis(500),
    disturbed: None,
    weather: Weather::Any,
    delay: Duration::ZERO,
    forced: true,
    durability: Durability::Auto,
    lag: Duration::ZERO,
};

/// The server is far away, and leases are short beside the way.
pub const SLOW: Profile = Profile {
    watchdog_lease: Duration::from_millis(600),
    long_stay: Duration::from_millis(1_000),
    delay: Duration::from_millis(40),
    ..CALM
};

/// As `CUTS`, but nothing except messages and the news of what was missed helps a waiter.
pub const OUTAGES: Profile = Profile {
    poll_floor: LONG,
    weather: Weather::Told,
    ..CUTS
};

/// Connections fall silent: only a client that asks finds out.
pub const SILENCES: Profile = Profile {
    watchdog_lease: Duration::from_secs(6),
    disturbed: Some(Duration::from_secs(4)),
    weather: Weather::Silences,
    ..CUTS
};

impl Profile {
    pub fn config(&self) -> Config {
        Config::default()
            .with_watchdog_lease(self.watchdog_lease)
            .with_poll_floor(self.poll_floor)
            .with_command_wait(self.command_wait)
            .with_durability(self.durability)
    }
}
