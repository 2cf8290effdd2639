//! A cluster in memory, for the crate's own simulator.

mod moves;

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Frame, Server, Settings,
    cluster::{HashSlot, Membership, NodeIndex, hash_slot},
    faults::Faults,
    network::Network,
    text_of,
};
use crate::{
    client::LockClient,
    config::Config,
    error::Error,
    redis::{
        Target,
        connection::ServerConfig,
        endpoint::{Address, Endpoint},
    },
};

pub use moves::Move;

/// Masters that share the slots, each alone with its own.
#[derive(Clone)]
pub struct Cluster {
    network: Network,
    addresses: Arc<[Address]>,
}

impl Cluster {
    /// A cluster of so many nodes, without data, that nothing disturbs.
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
        Self { network, addresses }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.addresses.len()
    }

    /// Has `faults` decide what goes wrong from now on.
    pub fn set_faults(&self, faults: impl Faults + 'static) {
        self.network.state().faults = Box::new(faults);
    }

    /// A client that knows all nodes.
    ///
    /// # Errors
    ///
    /// As [`LockClient::connect`].
    pub async fn client_with(&self, config: Config) -> Result<LockClient, Error> {
        let server = ServerConfig {
            transport: Arc::new(self.network.clone()),
            endpoint: Endpoint::unknown(),
            username: None,
            password: None,
            database: None,
            connection_name: None,
            servers: crate::redis::Servers::new(),
        };
        let mut target = Target::cluster(server, self.addresses.to_vec());
        let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_le_bytes());
        target.client_id = Some(id.into_uuid());
        let builder = LockClient::builder().target(target).config(config);
        builder.build().await
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

    /// Ends all connections to a node, which accepts none until [`start`](Self::start). Its data stays.
    pub fn stop(&self, node: NodeIndex) {
        self.network.state().set_up(&self.addresses[node], false);
        self.disconnect(node);
    }

    /// Has a node accept connections again, with what the other nodes tell it.
    pub fn start(&self, node: NodeIndex) {
        self.hear_all(node);
        self.network.state().set_up(&self.addresses[node], true);
    }

    /// Has all nodes forget their scripts.
    pub fn forget_scripts(&self) {
        self.of_all("SCRIPT", &["FLUSH"]);
    }

    /// The keys of all nodes that have not expired.
    pub fn keys(&self) -> BTreeSet<String> {
        self.of_all("KEYS", &["*"])
    }

    /// The channels that clients are subscribed to, sharded ones included.
    pub fn channels(&self) -> BTreeSet<String> {
        let mut channels = self.of_all("PUBSUB", &["CHANNELS"]);
        channels.extend(self.of_all("PUBSUB", &["SHARDCHANNELS"]));
        channels
    }

    /// The texts that the nodes answer, of all of them.
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

    /// How many connections clients have open.
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

    /// How long the cluster keeps the lock `name` from now on: `None` if it is free, [`Duration::MAX`] without an end.
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
