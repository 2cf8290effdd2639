//! Nodes of a cluster that announce several hosts, of which one leads nowhere.

use serde_json::json;
use testbed::{Clustered, Fate, Forwarder, Impostor, Part, Server, eventually, slot_of};

use crate::{GENEROUS, code, done_at, objects, text};

/// A host of this machine where no node listens. Its text is as long as the nodes' own.
const ELSEWHERE: &str = "127.0.0.2";
/// A host name that leads elsewhere on this machine, without a resolver.
const NAME: &str = "127.0.0.3";
/// A port at which no server listens.
const CLOSED: u16 = 1;
const HELD: [&str; 2] = ["2da5e3c1-0000-4000-8000-000000000000:1", "1"];

/// Announces the IP address of each node as [`ELSEWHERE`].
struct Elsewhere;

impl Part for Elsewhere {
    fn command(&self, _: usize, _: &[&[u8]]) -> Fate {
        Fate::Pass
    }

    fn reply(&self, _: usize, words: &[&[u8]], reply: Vec<u8>) -> Vec<u8> {
        match words {
            [b"CLUSTER", b"NODES"] => String::from_utf8_lossy(&reply)
                .replace(" 127.0.0.1:", &format!(" {ELSEWHERE}:"))
                .into_bytes(),
            _ => reply,
        }
    }
}

/// Leads from `host`, at the port of each node, to the ports `to`.
async fn lead(cluster: &Clustered, host: &str, to: &[u16]) -> Vec<Forwarder> {
    let mut forwarders = Vec::new();
    for (server, to) in cluster.servers.iter().zip(to) {
        forwarders.push(Forwarder::bind((host, server.port()), *to).await);
    }
    forwarders
}

async fn set(cluster: &Clustered, setting: &str, value: &str) {
    for server in &cluster.servers {
        let words = ["CONFIG", "SET", setting, value];
        server.command::<()>(&words).await;
    }
}

async fn announce_name(cluster: &Clustered, name: &str) {
    set(cluster, "cluster-announce-hostname", name).await;
    let announced = format!(",{name}");
    eventually("each node announces its name", GENEROUS, async || {
        let nodes: String = cluster.servers[0].command(&["CLUSTER", "NODES"]).await;
        nodes.matches(&announced).count() == cluster.servers.len()
    })
    .await;
}

/// A host that swallows packets takes seconds, for each master.
#[tokio::test]
async fn masters_are_reached_by_the_host_that_nodes_prefer_or_that_worked_before() {
    let cluster = Clustered::masters(3).await;
    announce_name(&cluster, "localhost").await;
    let mut names = Vec::new();
    for (node, server) in cluster.servers.iter().enumerate() {
        let name = cluster.name_on(node, "job").await;
        let held = ["HSET", &name, HELD[0], HELD[1]];
        server.command::<u32>(&held).await;
        names.push(name);
    }
    let dead_ends = lead(&cluster, ELSEWHERE, &[CLOSED; 3]).await;
    let first = Impostor::play(Some(cluster.servers[0].port()), Elsewhere).await;
    let url = format!("redis-cluster://{}", first.address);
    let connections = || dead_ends.iter().map(Forwarder::connections).collect();
    for (preferred, nodes) in [("ip", 1), ("hostname", 0), ("unknown-endpoint", 0)] {
        set(&cluster, "cluster-preferred-endpoint-type", preferred).await;
        let before: Vec<_> = connections();
        let output = done_at(&url, &["ls"]).await;
        let (listed, told) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(code(&output), Some(0), "{preferred}: {told}");
        assert!(names.iter().all(|name| listed.contains(name)), "{listed}");
        // An attempt may open several connections.
        let tried = connections().into_iter().zip(before);
        let tried = tried.filter(|(after, before)| after > before);
        assert_eq!(tried.count(), nodes, "{preferred}");
    }
}

/// A server of another set-up with a lock of the same name as a lock of the cluster.
struct OtherServer {
    server: Server,
    name: String,
}

impl OtherServer {
    async fn start(name: String) -> Self {
        let server = Server::start().await;
        let held = ["HSET", &name, HELD[0], HELD[1]];
        server.command::<u32>(&held).await;
        Self { server, name }
    }

    /// `unlock --force` at the cluster fails, and the lock here stays as it is.
    async fn is_left_alone(&self, url: &str, case: &str) {
        let output = done_at(url, &["unlock", &self.name, "--force", "--yes"]).await;
        let told = text(&output.stderr);
        assert_eq!(code(&output), Some(69), "{case}: {told}");
        assert!(told.contains("--map"), "{case}: {told}");
        let held = self.server.command::<u32>(&["EXISTS", &self.name]).await;
        assert_eq!(held, 1, "{case}");
    }
}

/// The host that the nodes do not prefer leads to one node, and for the other one to another server, which has the same port.
#[tokio::test]
async fn another_server_at_the_other_host_is_not_taken_for_the_node() {
    // The nodes are listed in any order.
    for astray in [0, 1] {
        let cluster = Clustered::masters(2).await;
        announce_name(&cluster, NAME).await;
        let other = OtherServer::start(cluster.name_on(astray, "job").await).await;
        let mut to = [0, 1].map(|node| cluster.servers[node].port());
        let first = Impostor::play(Some(to[0]), Elsewhere).await;
        let url = format!("redis-cluster://{}", first.address);
        to[astray] = other.server.port();
        for (preferred, other_host) in [("hostname", ELSEWHERE), ("ip", NAME)] {
            set(&cluster, "cluster-preferred-endpoint-type", preferred).await;
            let _forwarders = lead(&cluster, other_host, &to).await;
            other.is_left_alone(&url, preferred).await;
        }
    }
}

/// Such nodes redirect without a host.
#[tokio::test]
async fn locks_in_a_slot_that_migrates_between_nodes_without_a_known_host_are_listed() {
    let cluster = Clustered::masters(2).await;
    set(
        &cluster,
        "cluster-preferred-endpoint-type",
        "unknown-endpoint",
    )
    .await;
    let tag = cluster.name_on(0, "job").await;
    let names: Vec<_> = (0..20)
        .map(|number| format!("{{{tag}}}:{number}"))
        .collect();
    for name in &names {
        let queue = format!("redisson_lock_queue:{name}");
        for words in [
            &["HSET", name, HELD[0], HELD[1]][..],
            &["RPUSH", &queue, HELD[0]],
        ] {
            cluster.servers[0].command::<u32>(words).await;
        }
    }
    let migration = cluster.begin_move(slot_of(&tag), 1).await;
    cluster.move_some(migration, &names).await;
    let output = done_at(&cluster.url(), &["ls", "{job*", "--json"]).await;
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let listed = objects(&output);
    assert_eq!(listed.len(), names.len());
    for lock in listed {
        let found = (&lock["kind"], &lock["holder_count"], &lock["queue_length"]);
        assert_eq!(found, (&json!("fair"), &json!(1), &json!(1)), "{lock}");
    }
}

/// A node that does not know its IP address is at the host of the URL, as with `unknown-endpoint`. Behind a tunnel, another server may
/// have the node's port there.
#[tokio::test]
async fn another_server_at_the_host_of_the_url_is_not_taken_for_the_node() {
    let cluster = Clustered::masters(1).await;
    let other = OtherServer::start("job".to_owned()).await;
    let port = other.server.port().to_string();
    set(&cluster, "cluster-announce-port", &port).await;
    for (preferred, ip) in [("ip", ""), ("unknown-endpoint", ELSEWHERE)] {
        set(&cluster, "cluster-announce-ip", ip).await;
        set(&cluster, "cluster-preferred-endpoint-type", preferred).await;
        eventually("the node announces its address", GENEROUS, async || {
            let nodes: String = cluster.servers[0].command(&["CLUSTER", "NODES"]).await;
            nodes.contains(&format!(" {ip}:{port}@"))
        })
        .await;
        other.is_left_alone(&cluster.url(), preferred).await;
    }
}
