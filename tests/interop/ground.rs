//! The servers that a stage stands on: one, or several that belong together.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redis::FromRedisValue;
use testbed::{Clustered, Server, Watched, eventually, slot_of, unique_name};

use crate::stage::{AMPLE, now_ms};

/// Which servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// One.
    Single,
    /// A master, two replicas and three sentinels.
    Sentinels,
    /// Three masters with a replica each.
    Cluster,
    /// The same, where both sides are told to publish to the whole cluster.
    ClassicCluster,
}

impl Topology {
    /// What both sides are told of sharded channels, if anything.
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

/// How the first master is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Killed,
    /// It is well, and another is told to take its place.
    Ordered,
    /// It sleeps, and wakes up when another is the master.
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
    /// Where both sides find them.
    pub fn url(&self) -> String {
        match self {
            Self::Single(server) => server.url(),
            Self::Watched(watched) => watched.url(),
            Self::Clustered(cluster) => cluster.url(),
        }
    }

    /// All that keep data.
    pub fn all(&self) -> &[Server] {
        match self {
            Self::Single(server) => std::slice::from_ref(server),
            Self::Watched(watched) => &watched.replicated.servers,
            Self::Clustered(cluster) => &cluster.servers,
        }
    }

    /// The one that has `key`.
    async fn with(&self, key: &str) -> &Server {
        let index = match self {
            Self::Single(_) => 0,
            Self::Watched(watched) => watched.master().await,
            Self::Clustered(cluster) => cluster.owner_of(slot_of(key)).await,
        };
        &self.all()[index]
    }

    /// Runs a command on the server that has its key, which is the second word.
    pub async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.with(words[1]).await.command(words).await
    }

    /// The one that has the [`name`](Self::name)s.
    pub async fn first(&self) -> &Server {
        match self {
            Self::Clustered(cluster) => &cluster.servers[0],
            _ => self.with("any").await,
        }
    }

    /// A new name: in a cluster one of the first master's.
    pub async fn name(&self, prefix: &str) -> String {
        match self {
            Self::Clustered(cluster) => cluster.name_on(0, prefix).await,
            _ => unique_name(prefix),
        }
    }

    /// How many connections listen to channels that begin with `prefix`, counted for each channel.
    pub async fn listeners(&self, prefix: &str) -> u64 {
        let [classic, sharded] = self.listeners_by_kind(prefix).await;
        classic + sharded
    }

    /// As [`listeners`](Self::listeners): to channels of the whole cluster, and to sharded ones.
    pub async fn listeners_by_kind(&self, prefix: &str) -> [u64; 2] {
        let pattern = format!("{prefix}*");
        let mut listeners = [0, 0];
        for server in self.all() {
            let classic = ("CHANNELS", "NUMSUB");
            let sharded = ("SHARDCHANNELS", "SHARDNUMSUB");
            for ((list, count), sum) in [classic, sharded].into_iter().zip(&mut listeners) {
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

/// The first master's fate.
impl Ground {
    /// How many replicas the first master has.
    pub fn replicas(&self) -> u32 {
        match self {
            Self::Single(_) => 0,
            Self::Watched(_) => 2,
            Self::Clustered(_) => 1,
        }
    }

    /// From here on the replicas of the first master sleep, and what it writes reaches none of them.
    pub async fn deafen(&self) {
        self.replicas_do(Clustered::pause, Server::pause);
        // What has been sent would be read by a replica that wakes up, though the sender be dead.
        let cut = ["CLIENT", "KILL", "TYPE", "REPLICA"];
        self.all()[0].command::<u32>(&cut).await;
    }

    /// Wakes the replicas up.
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

    /// Waits until another of them says that it is the master, and then until it is told to a client that asks: when, in epoch ms.
    /// The first of the two is told at once, as `mastered`.
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

    /// Brings back the lost server, as a replica.
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
