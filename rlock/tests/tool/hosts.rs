//! Nodes of a cluster that announce several hosts, of which one leads nowhere.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use serde_json::json;
use testbed::{Clustered, Fate, Impostor, Part, eventually, slot_of};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{GENEROUS, code, done_at, objects, text};

/// A host of this machine where no node listens. Its text is as long as the nodes' own.
const ELSEWHERE: &str = "127.0.0.2";
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

/// Ends connections to [`ELSEWHERE`], at the port of each node, and records these ports.
async fn dead_ends(cluster: &Clustered) -> (Arc<Mutex<BTreeSet<u16>>>, JoinSet<()>) {
    let (tried, mut ends) = (Arc::default(), JoinSet::new());
    for server in &cluster.servers {
        let port = server.port();
        let listener = TcpListener::bind((ELSEWHERE, port)).await.unwrap();
        let tried: Arc<Mutex<BTreeSet<u16>>> = Arc::clone(&tried);
        ends.spawn(async move {
            while listener.accept().await.is_ok() {
                tried.lock().unwrap().insert(port);
            }
        });
    }
    (tried, ends)
}

async fn set(cluster: &Clustered, setting: &str, value: &str) {
    for server in &cluster.servers {
        let words = ["CONFIG", "SET", setting, value];
        server.command::<()>(&words).await;
    }
}

/// A host that swallows packets takes seconds, for each master.
#[tokio::test]
async fn masters_are_reached_by_the_host_that_nodes_prefer_or_that_worked_before() {
    let cluster = Clustered::masters(3).await;
    set(&cluster, "cluster-announce-hostname", "localhost").await;
    eventually("each node announces its name", GENEROUS, async || {
        let nodes: String = cluster.servers[0].command(&["CLUSTER", "NODES"]).await;
        nodes.matches(",localhost").count() == 3
    })
    .await;
    let mut names = Vec::new();
    for (node, server) in cluster.servers.iter().enumerate() {
        let name = cluster.name_on(node, "job").await;
        let held = ["HSET", &name, HELD[0], HELD[1]];
        server.command::<u32>(&held).await;
        names.push(name);
    }
    let (tried, _ends) = dead_ends(&cluster).await;
    let first = Impostor::play(Some(cluster.servers[0].port()), Elsewhere).await;
    let url = format!("redis-cluster://{}", first.address);
    for (preferred, nodes) in [("ip", 1), ("hostname", 0), ("unknown-endpoint", 0)] {
        set(&cluster, "cluster-preferred-endpoint-type", preferred).await;
        tried.lock().unwrap().clear();
        let output = done_at(&url, &["ls"]).await;
        let (listed, told) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(code(&output), Some(0), "{preferred}: {told}");
        assert!(names.iter().all(|name| listed.contains(name)), "{listed}");
        assert_eq!(tried.lock().unwrap().len(), nodes, "{preferred}");
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
