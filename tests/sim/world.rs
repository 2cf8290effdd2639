//! The servers of a history: a node by itself, or a cluster.

use std::{fmt, time::Duration};

use redisson_lock::{
    Config, Error, LockClient,
    test_util::{
        InMemoryRedis,
        simulation::{Cluster, Faults},
    },
};

/// The nodes of a cluster.
const NODES: usize = 3;

/// What kind of servers these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Node,
    Cluster,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "node",
            Self::Cluster => "cluster",
        })
    }
}

impl Kind {
    /// The kind that `WORLD` names, or else one by chance: one history of eight is on a cluster.
    pub fn of(chance: u64) -> Self {
        match std::env::var("WORLD").as_deref() {
            Ok("node") => Self::Node,
            Ok("cluster") => Self::Cluster,
            Ok("") | Err(_) if chance % 8 == 6 => Self::Cluster,
            Ok("") | Err(_) => Self::Node,
            Ok(other) => panic!("WORLD is node or cluster, not {other}"),
        }
    }
}

#[derive(Clone)]
pub enum World {
    Node(InMemoryRedis),
    Cluster(Cluster),
}

impl World {
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Node => Self::Node(InMemoryRedis::new()),
            Kind::Cluster => Self::Cluster(Cluster::new(NODES)),
        }
    }

    pub fn set_faults(&self, faults: impl Faults + 'static) {
        match self {
            Self::Node(server) => server.set_faults(faults),
            Self::Cluster(cluster) => cluster.set_faults(faults),
        }
    }

    pub async fn client_with(&self, config: Config) -> Result<LockClient, Error> {
        match self {
            Self::Node(server) => server.client_with(config).await,
            Self::Cluster(cluster) => cluster.client_with(config).await,
        }
    }

    pub fn keys(&self) -> Vec<String> {
        match self {
            Self::Node(server) => server.keys(),
            Self::Cluster(cluster) => cluster.keys().into_iter().collect(),
        }
    }

    pub fn channels(&self) -> Vec<String> {
        match self {
            Self::Node(server) => server.channels(),
            Self::Cluster(cluster) => cluster.channels().into_iter().collect(),
        }
    }

    pub fn connections(&self) -> usize {
        match self {
            Self::Node(server) => server.connections(),
            Self::Cluster(cluster) => cluster.connections(),
        }
    }

    pub fn remaining_lease(&self, name: &str) -> Option<Duration> {
        match self {
            Self::Node(server) => server.remaining_lease(name),
            Self::Cluster(cluster) => cluster.remaining_lease(name),
        }
    }

    pub fn holders(&self, name: &str) -> Vec<(String, u64)> {
        match self {
            Self::Node(server) => server.holders(name),
            Self::Cluster(cluster) => cluster.holders(name),
        }
    }

    pub fn forget_scripts(&self) {
        match self {
            Self::Node(server) => server.forget_scripts(),
            Self::Cluster(cluster) => cluster.forget_scripts(),
        }
    }

    /// Ends the connections to one of the servers.
    pub fn disconnect(&self, which: usize) {
        match self {
            Self::Node(server) => server.disconnect(),
            Self::Cluster(cluster) => cluster.disconnect(which % NODES),
        }
    }

    /// Has one of the servers accept no connections until [`start`](Self::start).
    pub fn stop(&self, which: usize) {
        match self {
            Self::Node(server) => server.stop(),
            Self::Cluster(cluster) => cluster.stop(which % NODES),
        }
    }

    /// Has all servers accept connections.
    pub fn start(&self) {
        match self {
            Self::Node(server) => server.start(),
            Self::Cluster(cluster) => (0..NODES).for_each(|node| cluster.start(node)),
        }
    }
}
