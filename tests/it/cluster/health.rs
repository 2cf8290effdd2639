//! What `connect`, `ping` and `is_connected` say of a cluster without some of its slots.

use std::time::Duration;

use redisson_lock::{Error, LockClient, Released};
use testbed::{Clustered, Server, eventually};
use tokio::time::timeout;

use super::config;
use crate::hazards::stage::{GENEROUS, connect, why};

const NODE: [&str; 4] = [
    "--cluster-enabled",
    "yes",
    "--cluster-config-file",
    "nodes.conf",
];
const ALL_SLOTS: [&str; 4] = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];

fn url(node: &Server) -> String {
    format!("redis-cluster://127.0.0.1:{}", node.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_waits_for_a_cluster_that_is_being_formed() {
    let node = Server::start_with(&NODE).await;
    let connecting = tokio::spawn({
        let url = url(&node);
        async move { LockClient::connect(&url).await }
    });
    eventually("the client asks for the nodes", GENEROUS, async || {
        node.calls().await.contains_key("cluster|nodes")
    })
    .await;
    node.command::<()>(&ALL_SLOTS).await;
    let client = timeout(GENEROUS, connecting).await.unwrap().unwrap();
    let client = client.expect("the cluster was formed in time");
    let guard = client.reentrant_lock("order").lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert!(client.is_connected());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_that_is_not_formed_is_an_error_of_connect() {
    let node = Server::start_with(&NODE).await;
    let connected = timeout(GENEROUS, LockClient::connect(url(&node))).await;
    let error = connected.expect("connect ends in time").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    for part in ["16384 slots", "redis-cli --cluster"] {
        assert!(why(&error).contains(part), "{error:?}");
    }
}

/// `ping` and `is_connected` agree with locks, before and after the nodes lose their slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_have_lost_their_slots_are_unhealthy() {
    for (coverage, losing) in [("yes", 0..2), ("no", 0..2), ("no", 1..2)] {
        let options = ["--cluster-require-full-coverage", coverage];
        let cluster = Clustered::start_with(2, false, &options).await;
        let client = connect(&cluster.url(), config()).await;
        client.ping().await.unwrap();
        assert!(client.is_connected());
        for node in losing.clone() {
            cluster.servers[node]
                .command::<()>(&["CLUSTER", "FLUSHSLOTS"])
                .await;
        }
        let error = client.ping().await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        eventually("the client notices", GENEROUS, async || {
            !client.is_connected()
        })
        .await;
        for node in losing {
            let (first, last) = [("0", "8191"), ("8192", "16383")][node];
            let add = ["CLUSTER", "ADDSLOTSRANGE", first, last];
            cluster.servers[node].command::<()>(&add).await;
        }
        cluster.settled().await;
        eventually("the cluster is healthy again", GENEROUS, async || {
            client.is_connected() && client.ping().await.is_ok()
        })
        .await;
        let guard = client.reentrant_lock("order").lock().await.unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}

/// A script is refused by each node while the cluster is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_refuses_scripts_is_unhealthy() {
    let cluster = Clustered::masters(3).await;
    let client = connect(&cluster.url(), config()).await;
    client.ping().await.unwrap();
    cluster.kill(0);
    let limit = Duration::from_secs(1);
    eventually("a probe fails", GENEROUS, async || {
        !matches!(timeout(limit, client.ping()).await, Ok(Ok(_)))
    })
    .await;
    cluster.restart(0).await;
    cluster.settled().await;
    eventually("the cluster is healthy again", GENEROUS, async || {
        client.ping().await.is_ok() && client.is_connected()
    })
    .await;
}
