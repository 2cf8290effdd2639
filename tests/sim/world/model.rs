//! A world without connections and scripts: clients call the models of the scripts (`model-server`).
//!
//! Its faults are those of a network ([`Faults`]), by the numbers of the connections that a client would have: one for calls, one for
//! subscriptions. A connection that ends has a successor, and what was under way on it is not executed later.

mod client;
mod connections;
mod jobs;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use model_server::{Server, Value};
use redisson_lock::{
    Config, Error, LockClient,
    direct::{self, BoxFuture, EventSender, Redis},
};
use redisson_lock_test::simulation::{Calm, Faults};
use tokio::{
    sync::{Notify, oneshot, watch},
    time::{Instant, sleep_until},
};

use client::{Answers, Client};
use jobs::Job;

/// The server's clock when a history begins.
const EPOCH: i64 = 1_700_000_000_000;

/// The server of a history, and its clients.
#[derive(Clone)]
pub struct ModelServer {
    state: Arc<Mutex<State>>,
    /// Wakes the task that runs the jobs.
    earlier: Arc<Notify>,
}

struct State {
    server: Server,
    began: Instant,
    faults: Box<dyn Faults>,
    is_up: bool,
    links: BTreeMap<u64, Link>,
    /// What is under way: the time of each job, and its number.
    jobs: BTreeMap<(Instant, u64), Job>,
    last_job: u64,
    last_connection: u64,
}

/// A client's end of the world.
struct Link {
    events: EventSender,
    /// The connections for calls and for subscriptions.
    connections: [Connection; 2],
    /// The calls without an answer, by their numbers.
    calls: BTreeMap<u64, PendingCall>,
    last_call: u64,
    /// The wanted channels, and the tasks that await their confirmations.
    channels: BTreeMap<Bytes, Vec<oneshot::Sender<()>>>,
    /// The subscriptions of a new connection that are not confirmed yet.
    restoring: usize,
    /// Whether calls have a connection.
    is_up: watch::Sender<bool>,
}

struct PendingCall {
    connection: u64,
    answer: oneshot::Sender<Answers>,
}

#[derive(Clone, Copy)]
struct Connection {
    number: u64,
    is_up: bool,
    /// Whether the server executes what arrives on it.
    is_served: bool,
    /// Whether what is sent is lost.
    is_cut: bool,
    /// When the last request arrives at the server, and the last answer or message at the client.
    last: [Instant; 2],
}

impl Connection {
    fn new(number: u64, now: Instant) -> Self {
        Self {
            number,
            is_up: true,
            is_served: true,
            is_cut: false,
            last: [now; 2],
        }
    }
}

impl ModelServer {
    pub fn new() -> Self {
        let state = State {
            server: Server::default(),
            began: Instant::now(),
            faults: Box::new(Calm),
            is_up: true,
            links: BTreeMap::new(),
            jobs: BTreeMap::new(),
            last_job: 0,
            last_connection: 0,
        };
        let world = Self {
            state: Arc::new(Mutex::new(state)),
            earlier: Arc::default(),
        };
        tokio::spawn(world.clone().run_jobs());
        world
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs each job at its time.
    async fn run_jobs(self) {
        loop {
            let next = self.state().run_due(Instant::now());
            match next {
                Some(due) => tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.earlier.notified() => {}
                },
                None => self.earlier.notified().await,
            }
        }
    }

    /// Changes the state, and wakes the task that runs the jobs if another job is the first one.
    fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let mut state = self.state();
        let first = |state: &State| state.jobs.first_key_value().map(|(key, _)| *key);
        let before = first(&state);
        let result = change(&mut state, Instant::now());
        let is_earlier = first(&state) != before;
        drop(state);
        if is_earlier {
            self.earlier.notify_one();
        }
        result
    }

    pub async fn client_with(&self, config: Config) -> Result<LockClient, Error> {
        let builder = LockClient::builder().direct(Arc::new(self.clone()));
        builder.config(config).build().await
    }

    pub fn set_faults(&self, faults: impl Faults + 'static) {
        self.state().faults = Box::new(faults);
    }

    pub fn set_full(&self, is_full: bool) {
        self.state().server.keys.is_full = is_full;
    }

    /// Ends all connections from the server's side.
    pub fn disconnect(&self) {
        self.change(State::disconnect);
    }

    /// Ends all connections, and accepts none until [`start`](Self::start).
    pub fn stop(&self) {
        self.state().is_up = false;
        self.disconnect();
    }

    pub fn start(&self) {
        self.state().is_up = true;
    }

    pub fn connections(&self) -> usize {
        2 * self.state().links.len()
    }

    pub fn keys(&self) -> Vec<String> {
        let state = self.now();
        let mut keys: Vec<String> = state.server.keys.all().map(|(key, ..)| text(key)).collect();
        keys.sort_unstable();
        keys
    }

    pub fn channels(&self) -> Vec<String> {
        self.state()
            .server
            .channels()
            .map(|channel| text(channel))
            .collect()
    }

    pub fn remaining_lease(&self, name: &str) -> Option<Duration> {
        let state = self.now();
        let (_, ends) = state.server.keys.get(name.as_bytes())?;
        let left = |ends: i64| Duration::from_millis((ends - state.server.keys.now()) as u64);
        Some(ends.map_or(Duration::MAX, left))
    }

    /// The owners that hold a lock, with their counts. The owner of a simple lock is its value.
    pub fn holders(&self, name: &str) -> Vec<(String, u64)> {
        let state = self.now();
        match state.server.keys.get(name.as_bytes()) {
            Some((Value::Text(value), _)) => vec![(text(value), 1)],
            Some((Value::Hash(fields), _)) => {
                let owners = fields.iter().filter(|(owner, _)| owner != "mode");
                owners
                    .map(|(owner, count)| (text(owner), text(count).parse().unwrap_or(0)))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// The state at the present time.
    fn now(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.set_clock(Instant::now());
        state
    }
}

impl State {
    fn millis(&self, now: Instant) -> i64 {
        EPOCH + now.saturating_duration_since(self.began).as_millis() as i64
    }

    fn set_clock(&mut self, now: Instant) {
        let millis = self.millis(now);
        self.server.keys.set_now(millis);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl direct::Server for ModelServer {
    fn connect(&self, events: EventSender) -> BoxFuture<Result<Arc<dyn Redis>, Error>> {
        let world = self.clone();
        Box::pin(async move {
            let delay = world.state().faults.connecting();
            tokio::time::sleep(delay).await;
            let (number, is_up) = world.change(|state, now| state.open(events, now));
            let client = Client {
                world,
                number,
                is_up,
            };
            Ok(Arc::new(client) as Arc<dyn Redis>)
        })
    }
}
