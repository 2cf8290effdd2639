//! The conditions of a history.

use std::time::Duration;

use redisson_lock::{Config, Durability};

#[derive(Debug, Clone, Copy)]
pub struct Profile {
    pub watchdog_lease: Duration,
    pub max_poll_interval: Duration,
    pub command_wait: Duration,
    /// The longest time that a holder keeps the lock.
    pub long_stay: Duration,
    /// The longest disturbance. `None`: nothing is disturbed.
    pub disturbed: Option<Duration>,
    /// The kind of disturbances.
    pub fault_kinds: FaultKinds,
    /// The longest delay of a command, and of an answer. Zero: a near server.
    pub delay: Duration,
    /// Locks are forced open now and then.
    pub forced: bool,
    /// The replicas that must have a granted hold.
    pub durability: Durability,
    /// The longest delay of a write to a replica, and of its acknowledgement.
    pub lag: Duration,
}

/// The kinds of disturbances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKinds {
    /// All kinds.
    Any,
    /// A client learns of every lost message, although late.
    Told,
    /// Connections fall silent and do not end.
    Silences,
    /// The server has no memory, and connections are good.
    Memory,
    /// Masters fail one at a time, and replicas with all acknowledged writes take over. Connections suffer all kinds.
    Failovers,
    /// As `Failovers`, and healthy masters are replaced too.
    Ordered,
    /// Masters fail while replicas lag, hang and fail.
    Losses,
}

const LONG: Duration = Duration::from_secs(60);

/// Nothing is disturbed, and only messages and the ends of leases wake waiters, so a lost wake-up shows.
pub const CALM: Profile = Profile {
    watchdog_lease: Duration::from_secs(30),
    max_poll_interval: LONG,
    command_wait: LONG,
    long_stay: Duration::from_millis(200),
    disturbed: None,
    fault_kinds: FaultKinds::Any,
    delay: Duration::ZERO,
    forced: false,
    durability: Durability::Auto,
    lag: Duration::ZERO,
};

/// Connections are cut, requests, replies and messages are lost or late. A lease seldom ends meanwhile.
pub const CUTS: Profile = Profile {
    watchdog_lease: Duration::from_secs(2),
    max_poll_interval: Duration::from_millis(200),
    command_wait: Duration::from_secs(1),
    long_stay: Duration::from_millis(300),
    disturbed: Some(Duration::from_millis(300)),
    fault_kinds: FaultKinds::Any,
    delay: Duration::ZERO,
    forced: false,
    durability: Durability::Auto,
    lag: Duration::ZERO,
};

/// Connections and the server stall for longer than a lease lasts.
pub const FREEZES: Profile = Profile {
    watchdog_lease: Duration::from_millis(300),
    max_poll_interval: Duration::from_millis(200),
    command_wait: Duration::from_millis(250),
    long_stay: Duration::from_millis(400),
    disturbed: Some(Duration::from_millis(600)),
    fault_kinds: FaultKinds::Any,
    delay: Duration::ZERO,
    forced: false,
    durability: Durability::Auto,
    lag: Duration::ZERO,
};

/// Locks are forced open. Holders in other clients learn of it by their next renewal.
pub const FORCED: Profile = Profile {
    watchdog_lease: Duration::from_millis(400),
    max_poll_interval: LONG,
    command_wait: LONG,
    long_stay: Duration::from_millis(500),
    disturbed: None,
    fault_kinds: FaultKinds::Any,
    delay: Duration::ZERO,
    forced: true,
    durability: Durability::Auto,
    lag: Duration::ZERO,
};

/// The server is far away, and leases are short compared to a round trip.
pub const SLOW: Profile = Profile {
    watchdog_lease: Duration::from_millis(600),
    long_stay: Duration::from_millis(1_000),
    delay: Duration::from_millis(40),
    ..CALM
};

/// As `CUTS`, but without polls: only messages and notices of missed messages wake a waiter.
pub const OUTAGES: Profile = Profile {
    max_poll_interval: LONG,
    fault_kinds: FaultKinds::Told,
    ..CUTS
};

/// Connections fall silent, so only a client that sends a PING notices.
pub const SILENCES: Profile = Profile {
    watchdog_lease: Duration::from_secs(6),
    disturbed: Some(Duration::from_secs(4)),
    fault_kinds: FaultKinds::Silences,
    ..CUTS
};

/// Now and then the server refuses commands that may need memory, for up to two leases. Each command takes time: at no cost, refused
/// tasks would try again without end.
pub const FULL: Profile = Profile {
    delay: Duration::from_millis(5),
    max_poll_interval: LONG,
    fault_kinds: FaultKinds::Memory,
    ..FREEZES
};

impl Profile {
    pub fn config(&self) -> Config {
        Config::default()
            .with_watchdog_lease(self.watchdog_lease)
            .with_max_poll_interval(self.max_poll_interval)
            .with_command_wait(self.command_wait)
            .with_durability(self.durability)
    }
}
