//! A Redis Cluster: masters that share the slots, with or without replicas.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Server, eventually, set_ups, unique_name};

/// The slots of a cluster.
const SLOTS: u16 = 16_384;
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// The options of a node. With a `cluster-node-timeout` below 2 s, a machine that runs many tests would fail over live masters.
const OPTIONS: [&str; 12] = [
    "--cluster-enabled",
    "yes",
    "--cluster-config-file",
    "nodes.conf",
    "--cluster-node-timeout",
    "2000",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "1",
    "--repl-timeout",
    "5",
];

/// A cluster of servers on loopback. A node is its index in [`servers`](Self::servers).
///
/// Operations on several nodes apply to the running ones. Kill, stop and start nodes by the methods here, which record it.
#[derive(Debug)]
pub struct Clustered {
    /// At the start: the masters in the order of their slots, then their replicas in the same order.
    pub servers: Vec<Server>,
    silent: Mutex<BTreeSet<usize>>,
}

/// The migration of a slot from one node to another.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The slot.
    pub slot: u16,
    /// The old owner.
    pub from: usize,
    /// The new owner.
    pub to: usize,
}

/// A line of `CLUSTER NODES`.
#[derive(Debug)]
struct Seen {
    id: String,
    port: u16,
    flags: Vec<String>,
    master: String,
    epoch: u64,
    connected: bool,
    slots: Vec<RangeInclusive<u16>>,
}

impl Clustered {
    /// Three masters with a replica each.
    pub async fn start() -> Self {
        Self::start_with(3, true, &[]).await
    }

    /// Masters without replicas, which start sooner.
    pub async fn masters(number: usize) -> Self {
        Self::start_with(number, false, &[]).await
    }

    /// This many masters, with or without replicas, and further options for each server. The environment variable `CLUSTER_DATABASES`
    /// gives each cluster that many databases (Valkey 9), of which the tests use the last.
    pub async fn start_with(masters: usize, replicas: bool, options: &[&str]) -> Self {
        let databases = std::env::var("CLUSTER_DATABASES").ok();
        let databases = databases
            .as_deref()
            .map(|number| ["--cluster-databases", number]);
        let databases = databases.as_ref().map_or(&[][..], |option| option);
        let options = [&OPTIONS[..], databases, options].concat();
        let mut servers = Vec::new();
        for _ in 0..masters * if replicas { 2 } else { 1 } {
            servers.push(Server::start_with(&options).await);
        }
        let silent = Mutex::default();
        let this = Self { servers, silent };
        this.meet(masters).await;
        for replica in masters..this.servers.len() {
            let master = this.id(replica - masters).await;
            let follow = ["CLUSTER", "REPLICATE", &master];
            this.servers[replica].command::<()>(&follow).await;
        }
        this.settled().await;
        this
    }

    /// Assigns the slots to the masters, and introduces all nodes to each other.
    async fn meet(&self, masters: usize) {
        let running = self.running();
        for (node, server) in self.servers.iter().enumerate() {
            if !running.contains(&node) {
                continue;
            }
            // Two masters of one epoch would first have to agree on another.
            let epoch = (node + 1).to_string();
            server
                .command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])
                .await;
            if node < masters {
                let bound = |node: usize| (usize::from(SLOTS) * node / masters).to_string();
                let last = usize::from(SLOTS) * (node + 1) / masters - 1;
                let add = ["CLUSTER", "ADDSLOTSRANGE", &bound(node), &last.to_string()];
                server.command::<()>(&add).await;
            }
        }
        self.introduce().await;
    }

    /// Introduces all running nodes to each other.
    async fn introduce(&self) {
        let running = self.running();
        for node in &running {
            // Each other one, as by hearsay it takes seconds.
            for other in running.iter().filter(|other| *other < node) {
                let port = self.servers[*other].port().to_string();
                self.servers[*node]
                    .command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port])
                    .await;
            }
        }
        self.all("they know each other", async |node| {
            let seen = self.seen_by(node).await;
            seen.len() == running.len() && seen.iter().all(Seen::is_well)
        })
        .await;
    }

    /// `redis-cluster://..` with all of them.
    pub fn url(&self) -> String {
        let database = self.servers[0].database().map(|number| number.to_string());
        set_ups::url(
            "redis-cluster",
            &database.unwrap_or_default(),
            &self.servers,
        )
    }

    /// The server that listens on `port`.
    pub fn on_port(&self, port: u16) -> usize {
        let index = self.servers.iter().position(|server| server.port() == port);
        index.expect("a server listens on the port")
    }

    /// Waits until the running nodes agree on the owner of each slot, see each other as healthy, and the replicas are up to date.
    pub async fn settled(&self) {
        let running = self.running();
        self.all("the cluster is settled", async |node| {
            let seen = self.seen_by(node).await;
            let theirs = |seen: &&Seen| running.contains(&self.on_port(seen.port));
            let info: String = self.servers[node].command(&["CLUSTER", "INFO"]).await;
            info.contains("cluster_state:ok")
                && seen.iter().filter(theirs).all(Seen::is_well)
                && slots_of(&seen) == slots_of(&self.seen_by(running[0]).await)
                && self.is_up_to_date(node).await
        })
        .await;
    }

    /// Waits until `condition` holds for each running node.
    async fn all(&self, what: &str, condition: impl AsyncFn(usize) -> bool) {
        for node in self.running() {
            eventually(what, SETTLED_WITHIN, async || condition(node).await).await;
        }
    }

    async fn is_up_to_date(&self, node: usize) -> bool {
        let info = self.servers[node].info("replication").await;
        info["role"] == "master" || info["master_link_status"] == "up"
    }

    /// Whether the node considers itself a master.
    pub async fn is_master(&self, node: usize) -> bool {
        self.servers[node].info("replication").await["role"] == "master"
    }

    /// The running replica of `master`. A restarted node may not know its master yet.
    pub async fn replica_of(&self, master: usize) -> usize {
        let (id, running) = (self.id(master).await, self.running());
        let mut found = None;
        eventually("the master has a replica", SETTLED_WITHIN, async || {
            let seen = self.seen_by(running[0]).await;
            let replicas = seen.iter().filter(|seen| seen.master == id);
            let mut replicas = replicas.map(|seen| self.on_port(seen.port));
            found = replicas.find(|node| running.contains(node));
            found.is_some()
        })
        .await;
        found.expect("it was found")
    }

    /// Promotes `replica` although its master is healthy.
    pub async fn order_failover(&self, replica: usize) {
        let order = ["CLUSTER", "FAILOVER"];
        self.servers[replica].command::<()>(&order).await;
    }

    /// Waits until each running node sees `node` as a master with slots, and the cluster as complete.
    pub async fn takes_over(&self, node: usize) {
        let port = self.servers[node].port();
        self.all("another takes over", async |other| {
            let seen = self.seen_by(other).await;
            let info: String = self.servers[other].command(&["CLUSTER", "INFO"]).await;
            info.contains("cluster_state:ok")
                && seen
                    .iter()
                    .any(|seen| seen.port == port && !seen.slots.is_empty())
        })
        .await;
    }

    /// The owner of `slot`, in the view of the first running node.
    pub async fn owner_of(&self, slot: u16) -> usize {
        let seen = self.seen_by(self.running()[0]).await;
        let owner = seen.iter().find(|seen| seen.has(slot));
        self.on_port(owner.expect("the slot has an owner").port)
    }

    /// A unique name in a slot of `node`.
    pub async fn name_on(&self, node: usize, prefix: &str) -> String {
        let (port, seen) = (self.servers[node].port(), self.seen_by(node).await);
        let mut own = seen.iter().filter(|seen| seen.port == port);
        let own = own.next().expect("it knows itself");
        assert!(!own.slots.is_empty(), "node {node} has no slots");
        let mut names = std::iter::repeat_with(|| unique_name(prefix));
        names.find(|name| own.has(slot_of(name))).expect("one fits")
    }

    /// Begins the migration of `slot` to `to`: from now on, the old owner redirects requests for missing keys to `to`.
    pub async fn begin_move(&self, slot: u16, to: usize) -> Move {
        let from = self.owner_of(slot).await;
        assert_ne!(from, to, "the slot {slot} is there");
        let (source, target) = (self.id(from).await, self.id(to).await);
        self.set_slot(to, slot, &["IMPORTING", &source]).await;
        self.set_slot(from, slot, &["MIGRATING", &target]).await;
        Move { slot, from, to }
    }

    /// Moves the slot's keys.
    pub async fn move_keys(&self, migration: Move) {
        let slot = migration.slot.to_string();
        loop {
            let list = ["CLUSTER", "GETKEYSINSLOT", &slot, "100"];
            let keys: Vec<String> = self.servers[migration.from].command(&list).await;
            if keys.is_empty() {
                return;
            }
            self.move_some(migration, &keys).await;
        }
    }

    /// Moves some of the slot's keys, like an unfinished migration.
    pub async fn move_some(&self, Move { from, to, .. }: Move, keys: &[String]) {
        let port = self.servers[to].port().to_string();
        let database = self.servers[to].database().unwrap_or(0).to_string();
        let migrate = [
            "MIGRATE",
            "127.0.0.1",
            &port,
            "",
            &database,
            "10000",
            "KEYS",
        ];
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        // It answers NOKEY for those that have gone meanwhile.
        let words = [&migrate[..], &keys].concat();
        self.servers[from].command::<String>(&words).await;
    }

    /// Ends a migration, and informs every master.
    pub async fn end_move(&self, Move { slot, from, to }: Move) {
        let owner = self.id(to).await;
        self.knows_all_epochs(to).await;
        // The new node comes first: between the two, each would send a client to the other.
        self.set_slot(to, slot, &["NODE", &owner]).await;
        self.set_slot(from, slot, &["NODE", &owner]).await;
        for node in self.running() {
            if node != from && node != to && self.is_master(node).await {
                self.set_slot(node, slot, &["NODE", &owner]).await;
            }
        }
    }

    /// Waits until `node` knows the newest configuration epochs. Otherwise it could import a slot without a newer epoch of its own, and
    /// a late message of the old owner would take it away again: each would then redirect to the other for ever.
    async fn knows_all_epochs(&self, node: usize) {
        let mut newest = 0;
        for other in self.running() {
            let port = self.servers[other].port();
            let seen = self.seen_by(other).await;
            newest = newest.max(
                seen.iter()
                    .find(|seen| seen.port == port)
                    .map_or(0, |own| own.epoch),
            );
        }
        eventually("it knows all epochs", SETTLED_WITHIN, async || {
            let seen = self.seen_by(node).await;
            seen.iter().any(|seen| seen.epoch >= newest)
        })
        .await;
    }

    /// Moves `slot` with its keys to `to`.
    pub async fn move_slot(&self, slot: u16, to: usize) {
        let migration = self.begin_move(slot, to).await;
        self.move_keys(migration).await;
        self.end_move(migration).await;
    }

    /// Moves `slots` to `to` by one command of their owner, and waits until all nodes know it (Valkey 9).
    pub async fn move_atomically(&self, slots: RangeInclusive<u16>, to: usize) {
        let from = self.owner_of(*slots.start()).await;
        self.knows_all_epochs(to).await;
        let (target, range) = (self.id(to).await, [slots.start(), slots.end()]);
        let [first, last] = range.map(u16::to_string);
        let range = ["SLOTSRANGE", &first, &last, "NODE", &target];
        let migrate = [&["CLUSTER", "MIGRATESLOTS"], &range[..]].concat();
        self.servers[from].command::<()>(&migrate).await;
        let port = self.servers[to].port();
        self.all("all know that the slots have moved", async |node| {
            let seen = self.seen_by(node).await;
            seen.iter()
                .any(|seen| seen.port == port && slots.clone().all(|slot| seen.has(slot)))
        })
        .await;
    }

    async fn set_slot(&self, node: usize, slot: u16, state: &[&str]) {
        let slot = slot.to_string();
        let words = [&["CLUSTER", "SETSLOT", &slot], state].concat();
        self.servers[node].command::<()>(&words).await;
    }

    /// Kills a node's process.
    pub fn kill(&self, node: usize) {
        self.silent().insert(node);
        self.servers[node].kill();
    }

    /// Stops a node's process: connections stay open without replies.
    pub fn pause(&self, node: usize) {
        self.silent().insert(node);
        self.servers[node].pause();
    }

    /// Continues a stopped node.
    pub fn resume(&self, node: usize) {
        self.servers[node].resume();
        self.silent().remove(&node);
    }

    /// Restarts a node on its port, with its stored view of the cluster, and with its data if its options persist data.
    pub async fn restart(&self, node: usize) {
        self.kill(node);
        self.servers[node].restart().await;
        self.silent().remove(&node);
    }

    /// Stops all nodes, and starts them with their ids and slots on other ports.
    pub async fn move_elsewhere(&mut self) {
        for server in &self.servers {
            server.kill();
        }
        for server in &mut self.servers {
            server.restart_elsewhere().await;
        }
        self.introduce().await;
        self.settled().await;
    }

    /// Deletes the cluster, and creates another one of the first `masters` servers, without replicas, on the same ports. The slots are
    /// assigned from the last server to the first. The other servers stay down.
    pub async fn begin_anew(&mut self, masters: usize) {
        for node in 0..self.servers.len() {
            self.kill(node);
            let noted = self.servers[node].dir().join("nodes.conf");
            std::fs::remove_file(noted).expect("a node has noted what it knows");
        }
        for node in 0..masters {
            self.restart(node).await;
        }
        self.servers[..masters].reverse();
        self.meet(masters).await;
        self.settled().await;
    }

    fn running(&self) -> Vec<usize> {
        let silent = self.silent();
        let nodes = 0..self.servers.len();
        nodes.filter(|node| !silent.contains(node)).collect()
    }

    fn silent(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of a node in the other nodes' view; the node itself may be down.
    async fn id(&self, node: usize) -> String {
        let port = self.servers[node].port();
        let mut asked = node;
        if self.silent().contains(&node) {
            asked = self.running()[0];
        }
        let seen = self.seen_by(asked).await;
        let own = seen.into_iter().find(|seen| seen.port == port);
        own.expect("the node is known").id
    }

    async fn seen_by(&self, node: usize) -> Vec<Seen> {
        let nodes: String = self.servers[node].command(&["CLUSTER", "NODES"]).await;
        let seen = |line| read(line).unwrap_or_else(|| panic!("not a node: {line}"));
        nodes.lines().map(seen).collect()
    }
}

impl Seen {
    fn is_well(&self) -> bool {
        let bad = |flag: &String| {
            let flag = flag.as_str();
            matches!(flag, "fail" | "fail?" | "handshake" | "noaddr")
        };
        self.connected && !self.flags.iter().any(bad)
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

/// `<id> <ip>:<port>@<bus>[,<host>] <flags> <master> <ping> <pong> <epoch> <link> [<slot>|<slot>-<slot>|[<move>]]..`
fn read(line: &str) -> Option<Seen> {
    let words: Vec<&str> = line.split(' ').collect();
    let [id, address, flags, master, _, _, epoch, link, slots @ ..] = &words[..] else {
        return None;
    };
    let range = |word: &&str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let settled = slots.iter().filter(|word| !word.starts_with('['));
    Some(Seen {
        id: (*id).to_owned(),
        port: read_port(address)?,
        flags: flags.split(',').map(str::to_owned).collect(),
        master: (*master).to_owned(),
        epoch: epoch.parse().ok()?,
        connected: *link == "connected",
        slots: settled.map(range).collect::<Option<_>>()?,
    })
}

/// To clients without TLS, Valkey reports no port of a TLS-only node; its bus port is 10,000 higher.
fn read_port(address: &str) -> Option<u16> {
    let (address, bus) = address.split_once('@')?;
    let port: u16 = address.rsplit_once(':')?.1.parse().ok()?;
    if port != 0 {
        return Some(port);
    }
    let bus: u16 = bus.split(',').next()?.parse().ok()?;
    bus.checked_sub(10_000)
}

/// The nodes and their slots, in an order that is the same for all reporting nodes.
fn slots_of(seen: &[Seen]) -> BTreeSet<(u16, u16, u16)> {
    let mut slots = BTreeSet::new();
    for node in seen {
        let ranges = node.slots.iter();
        slots.extend(ranges.map(|range| (*range.start(), *range.end(), node.port)));
    }
    slots
}

/// The slot of a key: of the text in its first braces, or of the whole key.
pub fn slot_of(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let tag = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty());
    crc16(tag.unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of("{user1000}.following"), slot_of("user1000"));
        assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
        assert_eq!(slot_of("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
    }

    #[test]
    fn nodes_are_read() {
        let line = "a1 127.0.0.1:7001@17001,host myself,master - 0 1 2 connected 0-5 7 [9->-b2]";
        let seen = read(line).expect("it is a node");
        assert_eq!((seen.port, seen.epoch), (7001, 2));
        assert_eq!(seen.slots, [0..=5, 7..=7]);
        assert!(read("a1 127.0.0.1:7001@17001 slave,fail").is_none());
    }
}
