//! The servers that a stage stands on: one, or several that belong together.

use redis::FromRedisValue;
use testbed::{Clustered, Server, Watched, slot_of, unique_name};

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

    /// The one that has the counters.
    pub async fn counting(&self) -> &Server {
        match self {
            Self::Clustered(cluster) => &cluster.servers[0],
            _ => self.with("any").await,
        }
    }

    /// A new counter.
    pub async fn counter(&self) -> String {
        match self {
            Self::Clustered(cluster) => cluster.name_on(0, "counter").await,
            _ => unique_name("counter"),
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
