//! The servers of a stage: one server, or several of one deployment.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redis::FromRedisValue;
use testbed::{Clustered, Server, Watched, eventually, slot_of, unique_name};

use crate::stage::{AMPLE, now_ms};

/// The deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// A single server.
    Single,
    /// A master, two replicas and three sentinels.
    Sentinels,
    /// Three masters with a replica each.
    Cluster,
    /// The same, with both sides set to publish to the whole cluster.
    ClassicCluster,
}

impl Topology {
    /// The setting of sharded channels on both sides, if any.
    pub fn sharded(self) -> Option<&'static str> {
        (self == Self::ClassicCluster).then_some("OFF")
    }

    pub async fn start(self) -> Ground {
        match self {
            Self::Single => Ground::Single(Server::start().await),
            Self::Sentinels => Ground::Watched(Watched::start().await),
            Self::Cluster | Self::ClassicCluster => Ground::Clustered(Clustered::start().await),
        }
    }
}

/// The way in which the first master is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Killed,
    /// A healthy master is replaced by order.
    Ordered,
    /// The master is paused, and resumes after its replacement.
    Stopped,
}

/// The servers of a [`Topology`].
#[derive(Debug)]
pub enum Ground {
    Single(Server),
    Watched(Watched),
    Clustered(Clustered),
}

impl Ground {
    /// The URL for both sides.
    pub fn url(&self) -> String {
        match self {
            Self::Single(server) => server.url(),
            Self::Watched(watched) => watched.url(),
            Self::Clustered(cluster) => cluster.url(),
        }
    }

    /// All servers that have data.
    pub fn all(&self) -> &[Server] {
        match self {
            Self::Single(server) => std::slice::from_ref(server),
            Self::Watched(watched) => &watched.replicated.servers,
            Self::Clustered(cluster) => &cluster.servers,
        }
    }

    /// The server that has `key`.
    async fn with(&self, key: &str) -> &Server {
        let index = match self {
            Self::Single(_) => 0,
            Self::Watched(watched) => watched.master().await,
            Self::Clustered(cluster) => cluster.owner_of(slot_of(key)).await,
        };
        &self.all()[index]
    }

    /// Runs a command on the server of its key, which is the second word.
    pub async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.with(words[1]).await.command(words).await
    }

    /// The server of all [`name`](Self::name)s.
    pub async fn first(&self) -> &Server {
        match self {
            Self::Clustered(cluster) => &cluster.servers[0],
            _ => self.with("any").await,
        }
    }

    /// A new name, in a cluster one of the first master.
    pub async fn name(&self, prefix: &str) -> String {
        match self {
            Self::Clustered(cluster) => cluster.name_on(0, prefix).await,
            _ => unique_name(prefix),
        }
    }

    /// The number of connections that listen to channels that begin with `prefix`, summed over the
    /// channels.
    pub async fn listeners(&self, prefix: &str) -> u64 {
        let [classic, sharded] = self.listeners_by_kind(prefix).await;
        classic + sharded
    }

    /// Like [`listeners`](Self::listeners), separately for channels of the whole cluster and for
    /// sharded ones.
    pub async fn listeners_by_kind(&self, prefix: &str) -> [u64; 2] {
        let pattern = format!("{prefix}*");
        let mut listeners = [0, 0];
        let kinds = [("CHANNELS", "NUMSUB"), ("SHARDCHANNELS", "SHARDNUMSUB")];
        // Redis before 7 knows no sharded channels. A single server is not asked for them.
        let known = match self {
            Self::Clustered(_) => 2,
            _ => 1,
        };
        for server in self.all() {
            for ((list, count), sum) in kinds[..known].iter().zip(&mut listeners) {
                let channels: Vec<String> = server.command(&["PUBSUB", list, &pattern]).await;
                let channels = channels.iter().map(String::as_str);
                let question: Vec<&str> = ["PUBSUB", count].into_iter().chain(channels).collect();
                let counted: Vec<(String, u64)> = server.command(&question).await;
                *sum += counted.iter().map(|(_, count)| count).sum::<u64>();
            }
        }
        listeners
    }
}

/// Operations on the first master and its replicas.
impl Ground {
    /// The number of replicas of the first master.
    pub fn replicas(&self) -> u32 {
        match self {
            Self::Single(_) => 0,
            Self::Watched(_) => 2,
            Self::Clustered(_) => 1,
        }
    }

    /// Pauses the replicas of the first master, so that its writes reach none of them.
    pub async fn deafen(&self) {
        self.replicas_do(Clustered::pause, Server::pause);
        // A resumed replica would read data that its socket has received, even from a dead master.
        let cut = ["CLIENT", "KILL", "TYPE", "REPLICA"];
        self.all()[0].command::<u32>(&cut).await;
    }

    /// Resumes the replicas.
    pub fn undeafen(&self) {
        self.replicas_do(Clustered::resume, Server::resume);
    }

    fn replicas_do(&self, in_cluster: fn(&Clustered, usize), alone: fn(&Server)) {
        match self {
            Self::Single(_) => {}
            Self::Watched(_) => self.all()[1..].iter().for_each(alone),
            Self::Clustered(cluster) => in_cluster(cluster, 3),
        }
    }

    pub async fn strike(&self, fault: Fault) {
        match (self, fault) {
            (Self::Clustered(cluster), Fault::Killed) => cluster.kill(0),
            (Self::Clustered(cluster), Fault::Stopped) => cluster.pause(0),
            (Self::Clustered(cluster), Fault::Ordered) => cluster.order_failover(3).await,
            (Self::Watched(watched), Fault::Ordered) => watched.order_failover().await,
            (_, Fault::Killed) => self.all()[0].kill(),
            (_, Fault::Stopped) => self.all()[0].pause(),
            (Self::Single(_), Fault::Ordered) => {}
        }
    }

    /// Waits until another server is the master, and then until it is announced to clients. Returns
    /// both times in epoch ms. `mastered` gets the first one at once.
    pub async fn elected(&self, mastered: &AtomicU64) -> [u64; 2] {
        let successors = match self {
            Self::Single(_) => 0..0,
            Self::Watched(_) => 1..3,
            Self::Clustered(_) => 3..4,
        };
        eventually("there is a new master", 3 * AMPLE, async || {
            for successor in &self.all()[successors.clone()] {
                if successor.info("replication").await["role"] == "master" {
                    return true;
                }
            }
            false
        })
        .await;
        let elected = now_ms();
        mastered.store(elected, Relaxed);
        eventually(
            "the new master is announced",
            3 * AMPLE,
            async || match self {
                Self::Single(_) => true,
                Self::Watched(watched) => watched.is_announced_after(0).await,
                Self::Clustered(cluster) => cluster.owner_of(0).await == 3,
            },
        )
        .await;
        [elected, now_ms()]
    }

    /// Brings the lost server back as a replica.
    pub async fn recover(&self, fault: Fault) {
        let first = &self.all()[0];
        match (self, fault) {
            (Self::Clustered(cluster), Fault::Killed) => cluster.restart(0).await,
            (Self::Clustered(cluster), Fault::Stopped) => cluster.resume(0),
            (_, Fault::Killed) => first.restart().await,
            (_, Fault::Stopped) => first.resume(),
            (_, Fault::Ordered) => {}
        }
        eventually(
            "the old master follows the new one",
            3 * AMPLE,
            async || {
                let info = first.info("replication").await;
                info["role"] == "slave" && info["master_link_status"] == "up"
            },
        )
        .await;
    }
}
