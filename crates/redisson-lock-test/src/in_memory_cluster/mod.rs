//! An in-memory cluster, for the simulator of redisson-lock.

mod moves;

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use redisson_lock::{Config, Error, LockClient, transport::TransportError};
use tokio::time::Instant;

use super::{
    Address, Frame, Server, Settings,
    cluster::{HashSlot, Membership, NodeIndex, hash_slot},
    faults::Faults,
    network::Network,
    raw::RawConnection,
    text_of,
};
pub use moves::Move;

/// Masters that share the slots, without replicas. A name leads to each node, whatever its address is.
#[derive(Clone)]
pub struct Cluster {
    network: Network,
    /// The first addresses of the nodes, by which the network knows them.
    addresses: Arc<[Address]>,
}

impl Cluster {
    /// Creates a cluster of this many nodes, without data and without faults.
    pub fn new(nodes: usize) -> Self {
        let network = Network::new();
        let addresses: Arc<[Address]> = (1..=nodes)
            .map(|node| (format!("10.0.1.{node}"), 6379))
            .collect();
        for (node, address) in addresses.iter().enumerate() {
            let settings = Settings {
                address: format!("{}:{}", address.0, address.1),
                ..Settings::default()
            };
            let member = Membership::new(node, addresses.clone());
            let server = Server::member(settings, member);
            network.state().add(address.clone(), server);
        }
        let cluster = Self { network, addresses };
        cluster.lead_to(&cluster.addresses);
        cluster
    }

    fn names(&self) -> impl Iterator<Item = Address> + use<> {
        (1..=self.nodes()).map(|node| (format!("node-{node}.test"), 6379))
    }

    /// Leads the names and these addresses to the nodes. Any other address leads nowhere.
    fn lead_to(&self, addresses: &[Address]) {
        let nodes = || self.addresses.iter().cloned();
        let names = self.names().zip(nodes());
        let addresses = addresses.iter().cloned().zip(nodes());
        self.network.state().routes = Some(names.chain(addresses).collect());
    }

    /// Gives each node another port, as after a restart elsewhere. All connections end, and the old addresses lead nowhere. The
    /// data stays.
    pub fn move_elsewhere(&self) {
        let moved: Arc<[Address]> = {
            let mut state = self.network.state();
            let moved = state.readdress(self);
            state.disconnect(None);
            moved
        };
        self.lead_to(&moved);
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.addresses.len()
    }

    /// Lets `faults` decide about faults from now on.
    pub fn set_faults(&self, faults: impl Faults + 'static) {
        self.network.state().faults = Box::new(faults);
    }

    /// Connects a client that knows the names of all nodes.
    ///
    /// # Errors
    ///
    /// As [`LockClient::connect`].
    pub async fn client_with(&self, config: Config) -> Result<LockClient, Error> {
        let names = self.names().map(|(host, port)| format!("{host}:{port}"));
        LockClient::builder()
            .cluster(names)
            .transport(self.network.clone())
            .config(config)
            .build()
            .await
    }

    /// Opens a connection of another kind of client to a node.
    ///
    /// # Errors
    ///
    /// The reason why there is none: the node is stopped.
    pub async fn raw(&self, node: NodeIndex) -> Result<RawConnection, TransportError> {
        RawConnection::open(&self.network, &self.addresses[node]).await
    }

    /// The slot of a name.
    pub fn slot_of(name: &str) -> HashSlot {
        hash_slot(name.as_bytes())
    }

    /// Ends all connections to a node.
    pub fn disconnect(&self, node: NodeIndex) {
        let address = &self.addresses[node];
        self.network.state().disconnect(Some(address));
    }

    /// Stops a node until [`start`](Self::start): all connections end, and it accepts none. Its data stays.
    pub fn stop(&self, node: NodeIndex) {
        self.network.state().set_up(&self.addresses[node], false);
        self.disconnect(node);
    }

    /// Lets a node accept connections again. It learns of the claims of the other nodes first.
    pub fn start(&self, node: NodeIndex) {
        self.hear_all(node);
        self.network.state().set_up(&self.addresses[node], true);
    }

    /// Lets a node hang for `time`: its connections stay open, and it accepts more.
    pub fn hang(&self, node: NodeIndex, time: Duration) {
        let mut state = self.network.state();
        if let Some(host) = state.servers.get_mut(&self.addresses[node]) {
            host.paused_until = Some(Instant::now() + time);
        }
    }

    /// Deletes the scripts of all nodes.
    pub fn forget_scripts(&self) {
        self.of_all("SCRIPT", &["FLUSH"]);
    }

    /// The live keys of all nodes.
    pub fn keys(&self) -> BTreeSet<String> {
        self.of_all("KEYS", &["*"])
    }

    /// The channels that clients are subscribed to, sharded ones included.
    pub fn channels(&self) -> BTreeSet<String> {
        let mut channels = self.of_all("PUBSUB", &["CHANNELS"]);
        channels.extend(self.of_all("PUBSUB", &["SHARDCHANNELS"]));
        channels
    }

    /// The texts in the replies of all nodes.
    fn of_all(&self, name: &str, args: &[&'static str]) -> BTreeSet<String> {
        let args: Vec<_> = args.iter().map(|arg| (*arg).into()).collect();
        let mut state = self.network.state();
        let answers = self.addresses.iter().map(|address| {
            let answer = state.run(address, name, &args);
            match answer {
                Frame::List(texts) => texts,
                _ => Vec::new(),
            }
        });
        let texts: Vec<Frame> = answers.flatten().collect();
        texts.iter().filter_map(text_of).collect()
    }

    /// The number of open connections of clients.
    pub fn connections(&self) -> usize {
        self.network.state().connections()
    }

    /// As [`InMemoryRedis::holders`](super::InMemoryRedis::holders).
    pub fn holders(&self, name: &str) -> Vec<(String, u64)> {
        let state = self.network.state();
        let now = state.millis(Instant::now());
        let hosts = self
            .addresses
            .iter()
            .filter_map(|address| state.servers.get(address));
        hosts
            .flat_map(|host| host.server.holders(name, now))
            .collect()
    }

    /// The remaining lease of the lock `name`: `None` if it is free, [`Duration::MAX`] without an expiry.
    pub fn remaining_lease(&self, name: &str) -> Option<Duration> {
        let state = self.network.state();
        let now = state.millis(Instant::now());
        let mut nodes = self.addresses.iter();
        nodes.find_map(|address| {
            let host = state.servers.get(address)?;
            host.server.lease(name, now)
        })
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}
