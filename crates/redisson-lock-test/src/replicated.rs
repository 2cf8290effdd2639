//! A master with replicas and sentinels, for the simulator of redisson-lock.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use redisson_lock::{
    Config, Error, LockClient, LockClientBuilder,
    transport::{Frame, TransportError},
};
use tokio::time::{Instant, sleep};

use super::{
    Address,
    faults::Faults,
    network::{Network, State},
    raw::RawConnection,
    sentinels::{SERVICE, Sentinels},
};
/// The interval at which the sentinels check the servers.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The names of the primary and of the readers.
const NAMES: [&str; 2] = ["primary.test", "reader.test"];
/// The longest hang of a server.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// A master, two lagging replicas, and three sentinels that replace a silent master. A seed determines all randomness. A clone
/// is the same world.
#[derive(Clone)]
pub struct Replicated {
    network: Network,
    sentinels: Arc<Mutex<Sentinels>>,
}

impl Replicated {
    /// Creates servers without data. The sentinels run on the current runtime.
    pub fn new(seed: u64) -> Self {
        let network = Network::new();
        let sentinels = Sentinels::new(network.clone(), seed);
        let sentinels = Arc::new(Mutex::new(sentinels));
        let watching = Arc::downgrade(&sentinels);
        tokio::spawn(async move {
            while let Some(sentinels) = watching.upgrade() {
                lock(&sentinels).tick();
                drop(sentinels);
                sleep(LOOK_EVERY).await;
            }
        });
        Self { network, sentinels }
    }

    /// Lets `faults` decide about faults of connections from now on, and observe changes of masters.
    pub fn set_faults(&self, faults: impl Faults + 'static) {
        self.network.state().faults = Box::new(faults);
    }

    /// Sets the longest delay of a write to a replica, and of its acknowledgement.
    pub fn set_lag(&self, lag: Duration) {
        if let Some(replication) = &mut self.network.state().replication {
            replication.lag = lag;
        }
    }

    /// Sets the fewest replicas with which a master accepts writes.
    pub fn set_min_replicas(&self, replicas: usize) {
        if let Some(replication) = &mut self.network.state().replication {
            replication.min_replicas = replicas;
        }
    }

    /// Connects a client that asks two of the sentinels for the master.
    ///
    /// # Errors
    ///
    /// As [`LockClient::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`LockClient::connect`].
    pub async fn client_with(&self, config: Config) -> Result<LockClient, Error> {
        let sentinels = [0, 1].map(|index| {
            let (host, port) = &lock(&self.sentinels).sentinels[index].address;
            format!("{host}:{port}")
        });
        let builder = LockClient::builder().sentinel(SERVICE, sentinels);
        self.connect(builder, config).await
    }

    /// Connects a client that knows two names, as of a primary and its readers, and asks no sentinel.
    ///
    /// # Errors
    ///
    /// As [`LockClient::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`LockClient::connect`].
    pub async fn client_by_names(&self, config: Config) -> Result<LockClient, Error> {
        let builder = LockClient::builder().replicated(NAMES);
        self.connect(builder, config).await
    }

    /// Leads the names of the primary and of the readers to these servers.
    pub fn lead_names_to(&self, primary: usize, reader: usize) {
        let sentinels = lock(&self.sentinels);
        let mut state = self.network.state();
        let servers = state.servers.keys();
        let mut routes: BTreeMap<_, _> = servers.map(|at| (at.clone(), at.clone())).collect();
        for (name, node) in NAMES.into_iter().zip([primary, reader]) {
            routes.insert((name.into(), 6379), sentinels.nodes[node].clone());
        }
        state.routes = Some(routes);
    }

    /// Opens a connection of another kind of client to the master.
    ///
    /// # Errors
    ///
    /// The reason why there is none: the master is stopped.
    pub async fn raw(&self) -> Result<RawConnection, TransportError> {
        let master = lock(&self.sentinels).master.clone();
        RawConnection::open(&self.network, &master).await
    }

    async fn connect(
        &self,
        builder: LockClientBuilder,
        config: Config,
    ) -> Result<LockClient, Error> {
        let builder = builder.transport(self.network.clone());
        builder.config(config).build().await
    }

    /// Lets the sentinels replace a healthy master by a replica. Returns whether a replica was available.
    pub fn fail_over(&self) -> bool {
        let mut sentinels = lock(&self.sentinels);
        sentinels.fail_over(&mut self.network.state(), Instant::now())
    }

    /// The index of the master after the latest failover.
    pub fn master(&self) -> usize {
        let sentinels = lock(&self.sentinels);
        let mut nodes = sentinels.nodes.iter();
        nodes
            .position(|node| *node == sentinels.master)
            .unwrap_or_default()
    }

    /// Stops a server until [`start`](Self::start): all connections end, and it accepts none.
    pub fn stop(&self, node: usize) {
        self.change(node, |_, state, node, now| {
            state.catch_up(now);
            if let (false, Some(replication)) = (state.is_master(node), &mut state.replication) {
                replication.detach(node);
            }
            state.set_up(node, false);
            state.disconnect(Some(node));
        });
    }

    /// Lets a server hang until [`start`](Self::start); its connections stay open.
    pub fn hang(&self, node: usize) {
        self.change(node, |_, state, node, now| {
            state.catch_up(now);
            if let (false, Some(replication)) = (state.is_master(node), &mut state.replication) {
                replication.sever(node);
            }
            if let Some(host) = state.servers.get_mut(node) {
                host.paused_until = Some(now + FOR_EVER);
            }
        });
    }

    /// Separates a server from all other servers until [`start`](Self::start); clients can still reach it.
    pub fn isolate(&self, node: usize) {
        self.change(node, |sentinels, state, node, now| {
            state.catch_up(now);
            sentinels.isolate(node);
            if let Some(replication) = &mut state.replication {
                replication.sever(node);
            }
        });
    }

    /// Stops one of the sentinels until [`start`](Self::start).
    pub fn stop_sentinel(&self, index: usize) {
        let address = lock(&self.sentinels).sentinels[index].address.clone();
        let mut state = self.network.state();
        state.set_up(&address, false);
        state.disconnect(Some(&address));
    }

    /// Ends all faults of servers and sentinels. A replaced master does not know of its successor yet.
    pub fn start(&self) {
        let mut sentinels = lock(&self.sentinels);
        let mut state = self.network.state();
        sentinels.end_isolations();
        let addresses: Vec<Address> = state.servers.keys().cloned().collect();
        for address in &addresses {
            state.set_up(address, true);
            if let Some(host) = state.servers.get_mut(address) {
                host.paused_until = None;
            }
            state.wake(address);
        }
        sentinels.note_split(&mut state);
    }

    /// Whether all servers are up and the replicas follow the master.
    pub fn is_settled(&self) -> bool {
        lock(&self.sentinels).is_settled(&self.network.state())
    }

    fn change(
        &self,
        node: usize,
        change: impl FnOnce(&mut Sentinels, &mut State, &Address, Instant),
    ) {
        let mut sentinels = lock(&self.sentinels);
        let node = sentinels.nodes[node].clone();
        let mut state = self.network.state();
        change(&mut sentinels, &mut state, &node, Instant::now());
        sentinels.note_split(&mut state);
    }

    /// Ends all connections.
    pub fn disconnect(&self) {
        self.network.state().disconnect(None);
    }

    /// Deletes the scripts of the master.
    pub fn forget_scripts(&self) {
        self.run("SCRIPT", &["FLUSH"]);
    }

    /// The live keys of the master.
    pub fn keys(&self) -> Vec<String> {
        texts(&self.run("KEYS", &["*"]))
    }

    /// The channels that clients are subscribed to at the master.
    pub fn channels(&self) -> Vec<String> {
        texts(&self.run("PUBSUB", &["CHANNELS"]))
    }

    /// The number of open connections of clients, to servers and sentinels.
    pub fn connections(&self) -> usize {
        self.network.state().connections()
    }

    /// The remaining lease of the lock `name` at the master: `None` if it is free, [`Duration::MAX`] without an expiry.
    pub fn remaining_lease(&self, name: &str) -> Option<Duration> {
        let master = lock(&self.sentinels).master.clone();
        self.lease_at(&master, name)
    }

    /// The longest remaining lease of the lock `name` at any server: its granter may have been replaced.
    pub fn longest_lease(&self, name: &str) -> Option<Duration> {
        let nodes = lock(&self.sentinels).nodes.clone();
        let leases = nodes.iter().map(|node| self.lease_at(node, name));
        leases.max().flatten()
    }

    /// The owners that hold the lock `name` at the master, with their hold counts.
    pub fn holders(&self, name: &str) -> Vec<(String, u64)> {
        let master = lock(&self.sentinels).master.clone();
        let state = self.network.state();
        let millis = state.millis(Instant::now());
        let host = state.servers.get(&master);
        host.map_or_else(Vec::new, |host| host.server.holders(name, millis))
    }

    fn lease_at(&self, node: &Address, name: &str) -> Option<Duration> {
        let now = Instant::now();
        let mut state = self.network.state();
        state.catch_up(now);
        let host = state.servers.get(node)?;
        host.server.lease(name, state.millis(now))
    }

    fn run(&self, name: &str, args: &[&str]) -> Frame {
        let master = lock(&self.sentinels).master.clone();
        self.run_operation(&master, name, args)
    }

    fn run_operation(&self, node: &Address, name: &str, args: &[&str]) -> Frame {
        let args = args
            .iter()
            .map(|arg| Bytes::copy_from_slice(arg.as_bytes()));
        let args: Vec<Bytes> = args.collect();
        let mut state = self.network.state();
        state.catch_up(Instant::now());
        state.run(node, name, &args)
    }
}

impl fmt::Debug for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated")
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

fn lock(sentinels: &Mutex<Sentinels>) -> MutexGuard<'_, Sentinels> {
    sentinels.lock().unwrap_or_else(PoisonError::into_inner)
}

fn texts(answer: &Frame) -> Vec<String> {
    let Frame::List(frames) = answer else {
        return Vec::new();
    };
    let text = |frame: &Frame| match frame {
        Frame::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    frames.iter().filter_map(text).collect()
}
