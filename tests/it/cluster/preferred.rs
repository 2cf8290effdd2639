//! Nodes that announce an IP address and a host name, of which one leads nowhere (`cluster-preferred-endpoint-type`).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use redisson_lock::{Error, LockClient, LockClientBuilder, Released};
use testbed::{BlackHole, Clustered, Forwarder, Server, eventually, run_in, slot_of, tls_only};

use super::{addresses::works_on, config};
use crate::hazards::stage::{GENEROUS, connect};

/// A host of this machine where no node listens.
const ELSEWHERE: &str = "127.0.0.2";
/// A port where no server listens.
const CLOSED: u16 = 1;

/// Leads the nodes' connections to each other from [`ELSEWHERE`] to where they listen.
async fn forward_buses(cluster: &Clustered) -> Vec<Forwarder> {
    let mut buses = Vec::new();
    for server in &cluster.servers {
        let bus = server.port() + 10_000;
        buses.push(Forwarder::bind(elsewhere(bus), bus).await);
    }
    buses
}

fn elsewhere(port: u16) -> SocketAddr {
    (ELSEWHERE.parse::<IpAddr>().unwrap(), port).into()
}

/// Has a lock's slot moved, and acquires the lock: a redirection names the preferred end point.
async fn follows_a_moved_slot(client: &LockClient, cluster: &Clustered) {
    let name = cluster.name_on(0, "moved").await;
    cluster.move_slot(slot_of(&name), 1).await;
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// Nodes whose IP address leads nowhere, and whose other address is `endpoint`.
async fn announcing(settings: &[[&str; 2]]) -> (Clustered, Vec<Forwarder>) {
    let cluster = Clustered::start_with(3, false, &[]).await;
    let buses = forward_buses(&cluster).await;
    for server in &cluster.servers {
        for [setting, value] in settings {
            server
                .command::<()>(&["CONFIG", "SET", setting, value])
                .await;
        }
    }
    for server in &cluster.servers {
        eventually("each node announces its addresses", GENEROUS, async || {
            let nodes: String = server.command(&["CLUSTER", "NODES"]).await;
            let announced = nodes.matches(&format!(" {ELSEWHERE}:")).count();
            announced == 3
                && settings.iter().all(|[setting, value]| {
                    *setting != "cluster-announce-hostname"
                        || nodes.matches(&format!(",{value}")).count() == 3
                })
        })
        .await;
    }
    cluster.settled().await;
    (cluster, buses)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_reached_at_the_endpoint_that_they_prefer_or_else_at_the_other_one() {
    for (preferred, is_tried) in [
        ("hostname", false),
        ("unknown-endpoint", false),
        ("ip", true),
    ] {
        let settings = [
            ["cluster-announce-ip", ELSEWHERE],
            ["cluster-announce-hostname", "localhost"],
            ["cluster-preferred-endpoint-type", preferred],
        ];
        let (cluster, _buses) = announcing(&settings).await;
        let mut dead_ends = Vec::new();
        for server in &cluster.servers {
            dead_ends.push(Forwarder::bind(elsewhere(server.port()), CLOSED).await);
        }
        let client = connect(&cluster.url(), config()).await;
        works_on(&client, &cluster, 3).await;
        follows_a_moved_slot(&client, &cluster).await;
        let tried = dead_ends.iter().any(|end| end.connections() > 0);
        assert_eq!(tried, is_tried, "{preferred}");
    }
}

/// The nodes have no host name, and tell no other address than the one that leads nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_endpoint_is_the_host_that_was_asked() {
    let settings = [
        ["cluster-announce-ip", ELSEWHERE],
        ["cluster-preferred-endpoint-type", "unknown-endpoint"],
    ];
    let (cluster, _buses) = announcing(&settings).await;
    let client = connect(&cluster.url(), config()).await;
    works_on(&client, &cluster, 3).await;
    follows_a_moved_slot(&client, &cluster).await;
}

/// The host that the nodes do not prefer leads to another server from here, which has the same port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_at_the_other_host_is_not_taken_for_the_node() {
    let settings = [
        ["cluster-announce-ip", ELSEWHERE],
        ["cluster-announce-hostname", "node.test"],
        ["cluster-preferred-endpoint-type", "hostname"],
    ];
    let (cluster, _buses) = announcing(&settings).await;
    let other_server = Server::start().await;
    // In the network of the client, the IP addresses of the nodes lead to other servers.
    let mut forwarders = Vec::new();
    for server in &cluster.servers {
        let forwarder = Forwarder::bind(elsewhere(server.port()), other_server.port());
        forwarders.push(forwarder.await);
    }
    let works = Arc::new(AtomicBool::new(true));
    let works_now = works.clone();
    let builder = LockClient::builder().url(cluster.url());
    let builder = builder.resolver(move |_, port| {
        let is_found = works_now.load(Relaxed);
        async move {
            match is_found {
                true => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
                false => Err(io::Error::other("no such name")),
            }
        }
    });
    let client = builder.build().await.unwrap();
    works_on(&client, &cluster, 3).await;
    works.store(false, Relaxed);
    for server in &cluster.servers {
        let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
        server.command::<u32>(&kill).await;
    }
    let lock = client.reentrant_lock("found");
    let error = lock.try_lock().await.map(drop).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(!other_server.calls().await.contains_key("evalsha"));
    works.store(true, Relaxed);
    works_on(&client, &cluster, 3).await;
}

/// A cluster of one node that speaks TLS alone, with a certificate for `holder`.
async fn encrypted(holder: &str, settings: &[&str]) -> (Server, Server) {
    let files = Server::start().await;
    let dir = files.dir();
    std::fs::write(dir.join("names"), format!("subjectAltName={holder}\n")).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for line in [
        format!("openssl req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=authority -days 2"),
        format!("openssl req {key} -keyout server.key -out server.csr -subj /CN=node"),
        "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt"
            .to_owned(),
    ] {
        run_in(dir, &line);
    }
    let mut options = tls_only(dir, "no", ["ca.crt", "server.crt", "server.key"]);
    options.extend([
        "--cluster-enabled",
        "yes",
        "--cluster-config-file",
        "nodes.conf",
    ]);
    options.extend(["--tls-cluster", "yes", "--cluster-announce-ip", "127.0.0.1"]);
    options.extend(settings);
    let node = Server::start_with(&options).await;
    let port = node.port();
    run_in(
        dir,
        &format!(
            "redis-cli --tls --cacert ca.crt --insecure -p {port} CLUSTER ADDSLOTSRANGE 0 16383"
        ),
    );
    (node, files)
}

/// Finds `name` and no other at `at`.
fn builder(url: &str, ca: &Path, name: &'static str, at: SocketAddr) -> LockClientBuilder {
    let builder = LockClient::builder().url(url).config(config()).ca_file(ca);
    builder.resolver(move |host, port| async move {
        let port = if at.port() == 0 { port } else { at.port() };
        match host == name {
            true => Ok(vec![SocketAddr::new(at.ip(), port)]),
            false => Err(io::Error::other("no such name")),
        }
    })
}

/// The mirror image: the announced name leads nowhere, and the certificate has the IP address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_tls_is_reached_by_its_ip_address_where_its_name_leads_nowhere() {
    let open_hole = BlackHole::open().await;
    let hole = open_hole.address();
    for preferred in ["ip", "hostname"] {
        for (known, at) in [("another.test", hole), ("node.test", hole)] {
            let settings = [
                ["--cluster-announce-hostname", "node.test"],
                ["--cluster-preferred-endpoint-type", preferred],
            ];
            let (node, files) = encrypted("IP:127.0.0.1", settings.as_flattened()).await;
            let url = format!("rediss-cluster://127.0.0.1:{}", node.port());
            let client = builder(&url, &files.dir().join("ca.crt"), known, at);
            let client = client.build().await.unwrap();
            let guard = client.reentrant_lock("found").lock().await.unwrap();
            assert_eq!(
                guard.unlock().await,
                Ok(Released::Fully),
                "{preferred} {known}"
            );
        }
    }
}

/// The certificate has the name alone, whichever address the nodes prefer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_tls_is_reached_by_its_name_where_the_certificate_has_no_ip_address() {
    for preferred in ["ip", "hostname"] {
        let settings = [
            ["--cluster-announce-hostname", "node.test"],
            ["--cluster-preferred-endpoint-type", preferred],
        ];
        let (node, files) = encrypted("DNS:node.test", settings.as_flattened()).await;
        let url = format!("rediss-cluster://node.test:{}", node.port());
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let client = builder(&url, &files.dir().join("ca.crt"), "node.test", at);
        let client = client.build().await.unwrap();
        let guard = client.reentrant_lock("found").lock().await.unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::Fully), "{preferred}");
    }
}
