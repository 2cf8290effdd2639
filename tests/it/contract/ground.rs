//! The servers under the contract: one server, or with the variable `TOPOLOGY` a `cluster`, or
//! servers behind a `sentinel`.

use std::{ops::Deref, sync::Arc};

use testbed::{Clustered, Server, Watched, slot_of, unique_name};
use tokio::sync::OnceCell;

use crate::rights::Admitted;

/// A long node timeout, so that a slow node of a busy machine is not taken for dead.
const PATIENT: [&str; 2] = ["--cluster-node-timeout", "60000"];

/// Masters of a cluster.
const MASTERS: usize = 3;

/// Servers of one deployment.
pub enum Ground {
    Single(Box<Server>),
    Cluster(Clustered),
    Sentinel(Watched),
}

impl Ground {
    /// The servers of all tests that change only their own locks.
    pub async fn shared() -> Arc<Self> {
        static SHARED: OnceCell<Arc<Ground>> = OnceCell::const_new();
        let start = async || {
            Arc::new(match topology() {
                Topology::Single => Self::single().await,
                Topology::Cluster => {
                    Self::Cluster(Clustered::start_with(MASTERS, true, &PATIENT).await)
                }
                Topology::Sentinel => Self::Sentinel(Watched::start().await),
            })
        };
        SHARED.get_or_init(start).await.clone()
    }

    /// Servers for one test.
    pub async fn own() -> Arc<Self> {
        Arc::new(match topology() {
            Topology::Single => Self::single().await,
            Topology::Cluster => Self::Cluster(Clustered::start_with(2, false, &PATIENT).await),
            Topology::Sentinel => Self::Sentinel(Watched::start_some(0, 1).await),
        })
    }

    async fn single() -> Self {
        Self::Single(Box::new(Server::start().await))
    }

    /// Returns the URL of a user whose rights suffice for these kinds only (P-T8).
    pub async fn admit(&self, kinds: &[&str]) -> String {
        let set_up: &[&str] = match self {
            Self::Single(_) => &[],
            Self::Cluster(_) => &["cluster", "durability"],
            Self::Sentinel(_) => &["sentinel", "durability"],
        };
        let admitted = Admitted::to(self.servers(), kinds, set_up).await;
        match self {
            Self::Single(server) => admitted.url(&server.url()),
            Self::Cluster(cluster) => admitted.url(&cluster.url()),
            Self::Sentinel(watched) => {
                let sentinels = &watched.sentinels;
                admitted.to_sentinels(sentinels, &watched.url()).await
            }
        }
    }

    pub fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    fn servers(&self) -> &[Server] {
        match self {
            Self::Single(server) => std::slice::from_ref(server),
            Self::Cluster(cluster) => &cluster.servers,
            Self::Sentinel(watched) => &watched.replicated.servers,
        }
    }

    /// The servers that have keys.
    pub fn masters(&self) -> &[Server] {
        let servers = self.servers();
        match self {
            Self::Cluster(_) => &servers[..servers.len().min(MASTERS)],
            _ => &servers[..1],
        }
    }

    /// Returns a name that no other test uses, and its server. The name with `before` in front has
    /// the same server.
    pub async fn name(self: &Arc<Self>, before: &str, prefix: &str) -> (String, Master) {
        let Self::Cluster(cluster) = &**self else {
            return (unique_name(prefix), Master(self.clone(), 0));
        };
        loop {
            let name = unique_name(prefix);
            let owner = cluster.owner_of(slot_of(&name)).await;
            if cluster.owner_of(slot_of(&format!("{before}{name}"))).await == owner {
                return (name, Master(self.clone(), owner));
            }
        }
    }
}

/// The server of the deployment that has a test's lock.
pub struct Master(Arc<Ground>, usize);

impl Master {
    pub fn ground(&self) -> &Ground {
        &self.0
    }
}

impl Deref for Master {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0.servers()[self.1]
    }
}

enum Topology {
    Single,
    Cluster,
    Sentinel,
}

fn topology() -> Topology {
    match std::env::var("TOPOLOGY").as_deref() {
        Err(_) | Ok("") => Topology::Single,
        Ok("cluster") => Topology::Cluster,
        Ok("sentinel") => Topology::Sentinel,
        Ok(other) => panic!("TOPOLOGY={other}: must be `cluster` or `sentinel`"),
    }
}
