//! The addresses of all nodes change, or the announced ones lead nowhere. Proxies play the names of the URL.

use std::time::Duration;

use redisson_lock::{Error, LockClient, Released};
use testbed::{Clustered, Proxy, eventually};
use tokio::time::timeout;

use super::config;
use crate::hazards::stage::{GENEROUS, connect, why};

/// The longest time from a whole cluster to a lock.
const FOUND_WITHIN: Duration = Duration::from_secs(10);

/// A name for each master.
async fn names(cluster: &Clustered, masters: usize) -> Vec<Proxy> {
    let mut names = Vec::new();
    for server in &cluster.servers[..masters] {
        names.push(Proxy::start(server.port()).await);
    }
    names
}

fn url(names: &[Proxy]) -> String {
    let mut nodes = names
        .iter()
        .map(|name| format!("127.0.0.1:{}", name.port()));
    let first = nodes.next().expect("there is a name");
    let others: String = nodes.map(|node| format!("&node={node}")).collect();
    format!("redis-cluster://{first}?{}", others.trim_start_matches('&'))
}

/// Acquires a lock on each master, from the time at which the cluster is whole.
pub(super) async fn works_on(client: &LockClient, cluster: &Clustered, masters: usize) {
    let working = async {
        for node in 0..masters {
            let name = cluster.name_on(node, "found").await;
            let guard = client.reentrant_lock(&name).lock().await.unwrap();
            assert_eq!(guard.unlock().await, Ok(Released::Fully), "{name}");
        }
    };
    let worked = timeout(FOUND_WITHIN, working).await;
    worked.expect("the client finds the new addresses");
}

/// No address of the map answers any more, so the client asks the URL's nodes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_again_at_other_addresses_are_found_by_their_names() {
    let mut cluster = Clustered::masters(3).await;
    let names = names(&cluster, 3).await;
    let client = connect(&url(&names), config()).await;
    let held = cluster.name_on(0, "held").await;
    let guard = client.reentrant_lock(&held).lock().await.unwrap();
    cluster.move_elsewhere().await;
    for (name, server) in names.iter().zip(&cluster.servers) {
        name.lead_to(server.port());
    }
    works_on(&client, &cluster, 3).await;
    // The nodes have lost the hold.
    eventually("the loss is reported", GENEROUS, async || guard.is_lost()).await;
}

/// A cluster of two masters, names of both, and a client that works there.
async fn blue() -> (Clustered, Vec<Proxy>, LockClient) {
    let blue = Clustered::masters(2).await;
    let names = names(&blue, 2).await;
    let client = connect(&url(&names), config()).await;
    works_on(&client, &blue, 2).await;
    (blue, names, client)
}

/// A blue-green switch: other nodes, with other ids, under the names of the old ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_under_the_same_names_is_found() {
    let (blue, names, client) = blue().await;
    let green = Clustered::masters(2).await;
    // The first name stays with a dead node.
    names[1].lead_to(green.servers[0].port());
    for node in 0..2 {
        blue.kill(node);
    }
    works_on(&client, &green, 2).await;
}

/// A node that was reset answers, and knows no slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_was_reset_hides_no_other_node() {
    let (blue, names, client) = blue().await;
    let green = Clustered::masters(2).await;
    names[1].lead_to(green.servers[0].port());
    for server in &blue.servers {
        server.command::<()>(&["FLUSHALL"]).await;
        server.command::<()>(&["CLUSTER", "RESET", "HARD"]).await;
    }
    works_on(&client, &green, 2).await;
    let newcomer = connect(&url(&names), config()).await;
    works_on(&newcomer, &green, 2).await;
}

/// `connect` returned a client, and each `lock` failed after its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_cannot_be_reached_are_an_error_of_connect() {
    let cluster = Clustered::masters(2).await;
    let builder = LockClient::builder().url(cluster.url()).config(config());
    let builder = builder.address_map(|host, _| (host.to_owned(), 1));
    let connected = timeout(Duration::from_secs(5), builder.build()).await;
    let error = connected.expect("the error comes soon").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    for part in ["127.0.0.1:1", "address_map", "cluster-announce-ip"] {
        assert!(why(&error).contains(part), "{error:?}");
    }
}
