//! A master with replicas, and sentinels that monitor them.

use std::{collections::HashMap, time::Duration};

use crate::{Server, eventually};

/// The limit for changes that take the servers some seconds.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// A master and its replicas.
#[derive(Debug)]
pub struct Replicated {
    /// The first server is the master at the start.
    pub servers: Vec<Server>,
}

impl Replicated {
    /// Starts a master and `replicas` replicas, and waits until they follow it.
    pub async fn start(replicas: usize) -> Self {
        Self::start_with(replicas, &[]).await
    }

    /// As [`start`](Self::start), with further options for each server.
    pub async fn start_with(replicas: usize, options: &[&str]) -> Self {
        // An idle master pings its replicas before their timeout ends.
        let always = [
            "--repl-diskless-sync-delay",
            "0",
            "--repl-ping-replica-period",
            "1",
            "--repl-timeout",
            "5",
        ];
        let options = [&always[..], options].concat();
        let master = Server::start_with(&options).await;
        let follow = format!("127.0.0.1 {}", master.port());
        let following = [&options[..], &["--replicaof", &follow]].concat();
        let mut servers = vec![master];
        for _ in 0..replicas {
            servers.push(Server::start_with(&following).await);
        }
        let this = Self { servers };
        this.all_follow(0).await;
        this
    }

    /// Waits until the other servers follow `master` and are up to date.
    pub async fn all_follow(&self, master: usize) {
        let replicas = self.servers.len() - 1;
        eventually("the replicas follow", SETTLED_WITHIN, async || {
            let info = self.servers[master].info("replication").await;
            let online = |index: &usize| {
                let replica = info.get(&format!("slave{index}"));
                replica.is_some_and(|replica| replica.contains("state=online"))
            };
            let is_master = info.get("role").is_some_and(|role| role == "master");
            if !is_master || (0..replicas).filter(online).count() != replicas {
                return false;
            }
            // For the master, a replica is online while it still loads the data.
            for other in (0..self.servers.len()).filter(|other| *other != master) {
                let info = self.servers[other].info("replication").await;
                let link = info.get("master_link_status");
                if link.is_none_or(|link| link != "up") {
                    return false;
                }
            }
            true
        })
        .await;
    }

    /// Waits until the replicas have all writes of `master` so far.
    pub async fn caught_up(&self, master: usize) {
        let replicas = (self.servers.len() - 1).to_string();
        let mut admin = self.servers[master].admin().await;
        // Up to Redis 7.0, WAIT covers only writes of its own connection (measured), so a write without a key precedes it.
        let mut both = redis::pipe();
        both.cmd("FUNCTION").arg("FLUSH").ignore();
        both.cmd("WAIT").arg(&replicas).arg(10_000);
        let (acknowledged,): (u64,) = both
            .query_async(&mut admin)
            .await
            .expect("a master takes WAIT");
        assert_eq!(
            acknowledged.to_string(),
            replicas,
            "the replicas have all writes"
        );
    }

    /// The server that listens on `port`.
    pub fn on_port(&self, port: u16) -> usize {
        let index = self.servers.iter().position(|server| server.port() == port);
        index.expect("a server listens on the port")
    }

    /// `redis-replicated://..` with all of them.
    pub fn url(&self) -> String {
        url("redis-replicated", "", &self.servers)
    }
}

/// A master, two replicas and three sentinels that monitor them.
#[derive(Debug)]
pub struct Watched {
    /// The servers.
    pub replicated: Replicated,
    /// The sentinels.
    pub sentinels: Vec<Server>,
}

impl Watched {
    /// The name of the service.
    pub const SERVICE: &str = "mymaster";

    /// Starts all servers and waits until the sentinels know each other and the replicas.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// As [`start`](Self::start), with further options for each server.
    pub async fn start_with(options: &[&str]) -> Self {
        Self::start_as(options, &[], &[]).await
    }

    /// As [`start_with`](Self::start_with), with further options for each sentinel, and settings of the service (`SENTINEL SET`).
    pub async fn start_as(
        options: &[&str],
        sentinel_options: &[&str],
        settings: &[(&str, &str)],
    ) -> Self {
        let replicated = Replicated::start_with(2, options).await;
        Self::start_over(replicated, 3, sentinel_options, settings).await
    }

    /// A master with this many replicas and sentinels; too few for a failover start sooner.
    pub async fn start_some(replicas: usize, sentinels: usize) -> Self {
        let replicated = Replicated::start_with(replicas, &[]).await;
        Self::start_over(replicated, sentinels, &[], &[]).await
    }

    async fn start_over(
        replicated: Replicated,
        number: usize,
        sentinel_options: &[&str],
        settings: &[(&str, &str)],
    ) -> Self {
        let master = replicated.servers[0].port().to_string();
        let always = [
            ("down-after-milliseconds", "1000"),
            ("failover-timeout", "3000"),
        ];
        let mut sentinels = Vec::new();
        for _ in 0..number {
            let sentinel = Server::start_with(&[&["--sentinel"], sentinel_options].concat()).await;
            // A sentinel that was not scheduled for 2 s does nothing for 30 s (TILT mode). An older Redis refuses the setting.
            let no_tilt = ["SENTINEL", "DEBUG", "TILT-TRIGGER", "60000"];
            let _ = sentinel.ask::<()>(&no_tilt).await;
            let at = ["127.0.0.1", &master, "2"];
            let monitor = [&["SENTINEL", "MONITOR", Self::SERVICE], &at[..]].concat();
            sentinel.command::<()>(&monitor).await;
            for (setting, value) in always.iter().chain(settings) {
                let set = ["SENTINEL", "SET", Self::SERVICE, setting, value];
                sentinel.command::<()>(&set).await;
            }
            sentinels.push(sentinel);
        }
        let this = Self {
            replicated,
            sentinels,
        };
        this.settled().await;
        this
    }

    /// Waits until every sentinel sees the other sentinels and the replicas, and all are up. A sentinel that was not scheduled for 2 s
    /// before it got its settings is in TILT mode, for 30 s.
    pub async fn settled(&self) {
        let peers = (self.sentinels.len() - 1).to_string();
        let replicas = (self.replicated.servers.len() - 1).to_string();
        for sentinel in &self.sentinels {
            eventually("the sentinels know all", SETTLED_WITHIN, async || {
                let master = self.seen_by(sentinel).await;
                let is = |field: &str, value: &str| master.get(field).is_some_and(|is| is == value);
                is("num-other-sentinels", &peers)
                    && is("num-slaves", &replicas)
                    && is("flags", "master")
                    && sentinel.info("sentinel").await["sentinel_tilt"] == "0"
            })
            .await;
        }
    }

    async fn seen_by(&self, sentinel: &Server) -> HashMap<String, String> {
        sentinel
            .command(&["SENTINEL", "MASTER", Self::SERVICE])
            .await
    }

    /// The index of the master in the view of the sentinels.
    pub async fn master(&self) -> usize {
        self.master_by(0).await
    }

    /// The index of the master in the view of one sentinel.
    pub async fn master_by(&self, sentinel: usize) -> usize {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::SERVICE];
        let (_, port): (String, u16) = self.sentinels[sentinel].command(&question).await;
        self.replicated.on_port(port)
    }

    /// Waits until the sentinels name another master than `old`, and that server reports itself as a master.
    pub async fn fails_over_from(&self, old: usize) -> usize {
        let mut new = old;
        eventually(
            "the sentinels have another master",
            SETTLED_WITHIN,
            async || {
                new = self.master().await;
                new != old && {
                    let info = self.replicated.servers[new].info("replication").await;
                    info.get("role").is_some_and(|role| role == "master")
                }
            },
        )
        .await;
        new
    }

    /// Whether a sentinel names another master than `old`.
    pub async fn is_announced_after(&self, old: usize) -> bool {
        for sentinel in 0..self.sentinels.len() {
            if self.master_by(sentinel).await != old {
                return true;
            }
        }
        false
    }

    /// Makes the sentinels replace a healthy master, once: a loaded machine can delay the new one for longer than a second.
    pub async fn order_failover(&self) {
        let patient = [
            "SENTINEL",
            "SET",
            Self::SERVICE,
            "down-after-milliseconds",
            "10000",
        ];
        for sentinel in &self.sentinels {
            sentinel.command::<()>(&patient).await;
        }
        let order = ["SENTINEL", "FAILOVER", Self::SERVICE];
        self.sentinels[0].command::<()>(&order).await;
    }

    /// `redis-sentinel://..` with all sentinels.
    pub fn url(&self) -> String {
        url("redis-sentinel", Self::SERVICE, &self.sentinels)
    }
}

pub(crate) fn url(scheme: &str, path: &str, servers: &[Server]) -> String {
    let (first, rest) = servers.split_first().expect("there are servers");
    let nodes: Vec<String> = rest
        .iter()
        .map(|server| format!("node=127.0.0.1:{}", server.port()))
        .collect();
    format!(
        "{scheme}://127.0.0.1:{}/{path}?{}",
        first.port(),
        nodes.join("&")
    )
}
