//! The servers of a history: a standalone node, a cluster, a master with replicas and sentinels, or the models of the scripts.

use std::{fmt, time::Duration};

use fastrand::Rng;
use histories::profiles::Profile;
use redisson_lock::{Config, Error, LockClient};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Cluster, Faults, RawConnection, Replicated, TransportError},
};

use crate::world::model::ModelServer;

/// The nodes of a cluster, and the servers of a replicated world.
const NODES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Node,
    Cluster,
    Replicas,
    /// A single node without connections and scripts.
    Model,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "node",
            Self::Cluster => "cluster",
            Self::Replicas => "replicas",
            Self::Model => "model",
        })
    }
}

impl Kind {
    /// The kind that `WORLD` names. Without it, one history of eight runs on a cluster and one on replicas.
    pub fn of(chance: u64) -> Self {
        let named = std::env::var("WORLD").unwrap_or_default();
        match (named.as_str(), chance % 8) {
            ("node", _) => Self::Node,
            ("cluster", _) | ("", 6) => Self::Cluster,
            ("replicas", _) | ("", 3) => Self::Replicas,
            ("model", _) => Self::Model,
            ("", _) => Self::Node,
            (other, _) => panic!("WORLD is node, cluster, replicas or model, not {other}"),
        }
    }
}

#[derive(Clone)]
pub enum World {
    Node(InMemoryRedis),
    Cluster(Cluster),
    Replicas(Replicated),
    Model(ModelServer),
}

impl World {
    pub fn new(kind: Kind, profile: &Profile, random: &mut Rng) -> Self {
        match kind {
            Kind::Node => Self::Node(InMemoryRedis::new()),
            Kind::Cluster => Self::Cluster(Cluster::new(NODES)),
            Kind::Replicas => {
                let replicated = Replicated::new(random.u64(..));
                replicated.set_lag(profile.lag);
                replicated.set_min_replicas(random.usize(..2));
                Self::Replicas(replicated)
            }
            Kind::Model => Self::Model(ModelServer::new()),
        }
    }

    pub fn set_faults(&self, faults: impl Faults + 'static) {
        match self {
            Self::Node(server) => server.set_faults(faults),
            Self::Cluster(cluster) => cluster.set_faults(faults),
            Self::Replicas(replicated) => replicated.set_faults(faults),
            Self::Model(model) => model.set_faults(faults),
        }
    }

    pub async fn client_with(&self, config: Config) -> Result<LockClient, Error> {
        match self {
            Self::Node(server) => server.client_with(config).await,
            Self::Cluster(cluster) => cluster.client_with(config).await,
            Self::Replicas(replicated) => replicated.client_with(config).await,
            Self::Model(model) => model.client_with(config).await,
        }
    }

    /// Opens a connection of another kind of client to the master that has this lock.
    pub async fn raw(&self, name: &str) -> Result<RawConnection, TransportError> {
        match self {
            Self::Node(server) => server.raw().await,
            Self::Cluster(cluster) => {
                let owner = cluster.owner(Cluster::slot_of(name));
                cluster.raw(owner.expect("each slot has an owner")).await
            }
            Self::Replicas(replicated) => replicated.raw().await,
            Self::Model(_) => panic!("a world without connections"),
        }
    }

    pub fn keys(&self) -> Vec<String> {
        match self {
            Self::Node(server) => server.keys(),
            Self::Cluster(cluster) => cluster.keys().into_iter().collect(),
            Self::Replicas(replicated) => replicated.keys(),
            Self::Model(model) => model.keys(),
        }
    }

    pub fn channels(&self) -> Vec<String> {
        match self {
            Self::Node(server) => server.channels(),
            Self::Cluster(cluster) => cluster.channels().into_iter().collect(),
            Self::Replicas(replicated) => replicated.channels(),
            Self::Model(model) => model.channels(),
        }
    }

    pub fn connections(&self) -> usize {
        match self {
            Self::Node(server) => server.connections(),
            Self::Cluster(cluster) => cluster.connections(),
            Self::Replicas(replicated) => replicated.connections(),
            Self::Model(model) => model.connections(),
        }
    }

    /// How long the current master keeps a lock.
    pub fn remaining_lease(&self, name: &str) -> Option<Duration> {
        match self {
            Self::Node(server) => server.remaining_lease(name),
            Self::Cluster(cluster) => cluster.remaining_lease(name),
            Self::Replicas(replicated) => replicated.remaining_lease(name),
            Self::Model(model) => model.remaining_lease(name),
        }
    }

    /// The longest lease of a lock on any server: the master that granted it may have been replaced since.
    pub fn longest_lease(&self, name: &str) -> Option<Duration> {
        match self {
            Self::Replicas(replicated) => replicated.longest_lease(name),
            _ => self.remaining_lease(name),
        }
    }

    pub fn holders(&self, name: &str) -> Vec<(String, u64)> {
        match self {
            Self::Node(server) => server.holders(name),
            Self::Cluster(cluster) => cluster.holders(name),
            Self::Replicas(replicated) => replicated.holders(name),
            Self::Model(model) => model.holders(name),
        }
    }

    /// Lets a single node refuse all commands that may need memory, or none.
    pub fn set_full(&self, is_full: bool) {
        match self {
            Self::Node(server) => server.set_full(is_full),
            Self::Model(model) => model.set_full(is_full),
            Self::Cluster(_) | Self::Replicas(_) => {}
        }
    }

    pub fn forget_scripts(&self) {
        match self {
            Self::Node(server) => server.forget_scripts(),
            Self::Cluster(cluster) => cluster.forget_scripts(),
            Self::Replicas(replicated) => replicated.forget_scripts(),
            Self::Model(_) => {}
        }
    }

    /// Ends the connections to one server. With replicas and sentinels, ends the connections to all.
    pub fn disconnect(&self, which: usize) {
        match self {
            Self::Node(server) => server.disconnect(),
            Self::Cluster(cluster) => cluster.disconnect(which % NODES),
            Self::Replicas(replicated) => replicated.disconnect(),
            Self::Model(model) => model.disconnect(),
        }
    }

    /// Makes one server refuse connections until [`start`](Self::start).
    pub fn stop(&self, which: usize) {
        match self {
            Self::Node(server) => server.stop(),
            Self::Cluster(cluster) => cluster.stop(which % NODES),
            Self::Replicas(replicated) => replicated.stop(which % NODES),
            Self::Model(model) => model.stop(),
        }
    }

    /// Makes all servers accept connections.
    pub fn start(&self) {
        match self {
            Self::Node(server) => server.start(),
            Self::Cluster(cluster) => (0..NODES).for_each(|node| cluster.start(node)),
            Self::Replicas(replicated) => replicated.start(),
            Self::Model(model) => model.start(),
        }
    }
}
