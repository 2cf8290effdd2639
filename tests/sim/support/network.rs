//! A network with a switch for each fault.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{Guard, Reentrant};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Delivering, Ending, Executed, Fate, Faults, Frame},
};

#[derive(Clone, Default)]
pub struct Network(pub Arc<Switches>);

/// The faults, all off at first, and counters of what was sent.
#[derive(Default)]
pub struct Switches {
    /// The delay of each command, and of each answer, in milliseconds.
    pub delay: AtomicU64,
    /// A further delay of each answer, in milliseconds.
    pub answers: AtomicU64,
    /// The answer to the n-th script from now on is late. Zero: none.
    pub late_answer: AtomicU32,
    /// The next n scripts arrive five seconds late, after the end of their connections.
    pub late: AtomicU32,
    /// The next script is lost with its connection.
    pub loses_script: AtomicBool,
    /// The answer to the next script is lost with its connection.
    pub loses_answer: AtomicBool,
    /// How long a connection takes to open, in milliseconds.
    pub connecting: AtomicU64,
    /// The next n scripts are refused.
    pub refused: AtomicU32,
    /// Scripts are refused, as by a server that loads its data.
    pub is_loading: AtomicBool,
    /// The n-th `CLIENT` command from now on is lost with its connection. Zero: none.
    pub lost_client: AtomicU32,
    /// Messages are lost.
    pub is_mute: AtomicBool,
    /// The answer to a PING is that of another PING.
    pub shifts: AtomicBool,
    /// The network drops these guards when a script is sent.
    pub dropped: Mutex<Vec<Guard<Reentrant>>>,
    /// Scripts sent, and scripts executed.
    pub sent: AtomicU64,
    pub scripts: AtomicU64,
    /// The connection that was opened last.
    pub latest: AtomicU64,
}

impl Network {
    fn delay(&self) -> Duration {
        Duration::from_millis(self.0.delay.load(Relaxed))
    }

    pub fn scripts(&self) -> u64 {
        self.0.scripts.load(Relaxed)
    }
}

impl Faults for Network {
    fn connecting(&mut self) -> Duration {
        Duration::from_millis(self.0.connecting.load(Relaxed))
    }

    fn refusal(&mut self, command: &'static str) -> Option<String> {
        let is_script = command.starts_with("EVAL");
        let left = |refused: u32| refused.checked_sub(1);
        if is_script && self.0.refused.fetch_update(Relaxed, Relaxed, left).is_ok() {
            return Some("ERR these names together".into());
        }
        let is_refused = self.0.is_loading.load(Relaxed) && is_script;
        is_refused.then(|| "LOADING Redis is loading the dataset in memory".into())
    }

    fn sending(&mut self, connection: u64, command: &'static str) -> Fate {
        self.0.latest.fetch_max(connection, Relaxed);
        let is_script = command.starts_with("EVAL");
        self.0.sent.fetch_add(is_script.into(), Relaxed);
        if is_script {
            let mut dropped = self
                .0
                .dropped
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            dropped.clear();
        }
        let left = |late: u32| late.checked_sub(1);
        if is_script && self.0.late.fetch_update(Relaxed, Relaxed, left).is_ok() {
            return Fate {
                delay: Duration::from_secs(5),
                ending: Some(Ending::Unheard),
            };
        }
        let lost = &self.0.lost_client;
        let before = |left: u32| left.checked_sub(1);
        let is_lost = command == "CLIENT" && lost.fetch_update(Relaxed, Relaxed, before) == Ok(1);
        let is_lost = is_lost || is_script && self.0.loses_script.swap(false, Relaxed);
        let is_unheard = !is_lost && is_script && self.0.loses_answer.swap(false, Relaxed);
        Fate {
            delay: self.delay(),
            ending: is_lost
                .then_some(Ending::Unsent)
                .or(is_unheard.then_some(Ending::Unanswered)),
        }
    }

    fn answering(&mut self, _connection: u64) -> Duration {
        let late = self.0.late_answer.compare_exchange(1, 0, Relaxed, Relaxed);
        let extra = match late {
            Ok(_) => 100,
            Err(_) => self.0.answers.load(Relaxed),
        };
        self.delay() + Duration::from_millis(extra)
    }

    fn answer(&mut self, command: &'static str, answer: Frame) -> Frame {
        match command == "PING" && self.0.shifts.load(Relaxed) {
            true => Frame::Text("another".into()),
            false => answer,
        }
    }

    fn delivering(&mut self, _connection: u64) -> Delivering {
        match self.0.is_mute.load(Relaxed) {
            true => Delivering::Never,
            false => Delivering::After(Duration::ZERO),
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        if executed.command.starts_with("EVAL") {
            self.0.scripts.fetch_add(1, Relaxed);
            let before = |left: u32| (left > 1).then(|| left - 1);
            let _ = self.0.late_answer.fetch_update(Relaxed, Relaxed, before);
        }
    }
}

/// A server, and its network.
pub fn server() -> (InMemoryRedis, Network) {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network.clone());
    (server, network)
}
