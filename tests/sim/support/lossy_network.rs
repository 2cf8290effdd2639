//! A network that delays commands, loses answers to scripts, and silences connections.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Delivering, Ending, Executed, Fate, Faults},
};

#[derive(Clone, Default)]
pub struct Network {
    pub delay: Duration,
    /// How long a connection takes to open.
    pub opening: Duration,
    /// The answers to the next n scripts are lost with their connections.
    pub lost: Arc<AtomicU32>,
    pub silent: Arc<Mutex<BTreeSet<u64>>>,
    /// Scripts executed.
    pub scripts: Arc<AtomicU64>,
    pub latest: Arc<AtomicU64>,
}

impl Network {
    pub fn slow(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// The connection that was opened last.
    pub fn latest(&self) -> u64 {
        self.latest.load(Relaxed)
    }

    /// Silences the connections up to this one.
    pub fn silence(&self, last: u64) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.extend(0..=last);
    }

    fn is_silent(&self, connection: u64) -> bool {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.contains(&connection)
    }
}

impl Faults for Network {
    fn connecting(&mut self) -> Duration {
        self.opening
    }

    fn sending(&mut self, connection: u64, command: &'static str) -> Fate {
        self.latest.fetch_max(connection, Relaxed);
        let delay = match self.is_silent(connection) {
            true => Duration::from_secs(1_000_000),
            false => self.delay,
        };
        let left = |lost: u32| lost.checked_sub(1);
        let loses =
            command.starts_with("EVAL") && self.lost.fetch_update(Relaxed, Relaxed, left).is_ok();
        Fate {
            delay,
            ending: loses.then_some(Ending::Unanswered),
        }
    }

    fn delivering(&mut self, connection: u64) -> Delivering {
        match self.is_silent(connection) {
            true => Delivering::Never,
            false => Delivering::After(self.delay),
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        if executed.command.starts_with("EVAL") {
            self.scripts.fetch_add(1, Relaxed);
        }
    }
}

/// A server behind a network that delays commands and messages.
pub fn slow_server(delay: Duration) -> (InMemoryRedis, Network) {
    let (server, network) = (InMemoryRedis::new(), Network::slow(delay));
    server.set_faults(network.clone());
    (server, network)
}
