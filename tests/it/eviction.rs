//! The effect of full memory on locks (P-T6). The hazards have a full server without eviction.

use std::{collections::BTreeMap, time::Duration};

use redis::aio::MultiplexedConnection;
use redisson_lock::{LockClient, LostReason, Released};
use testbed::{Server, eventually, unique_name};
use tokio::time::timeout;

use crate::{
    hazards::stage::{GENEROUS, connect, watched},
    hostile::log_lines::LogLines,
    rights::Admitted,
};

const LEASE: Duration = Duration::from_secs(3);
const POLICIES: [&str; 4] = [
    "volatile-ttl",
    "volatile-lru",
    "volatile-random",
    "allkeys-random",
];

/// A server with this policy and memory for a few hundred values.
async fn small_server(policy: &str) -> Server {
    let server = Server::start_with(&["--maxmemory-policy", policy]).await;
    let used: u64 = server.info("memory").await["used_memory"].parse().unwrap();
    let limit = (used + 4 * 1024 * 1024).to_string();
    server
        .command::<()>(&["CONFIG", "SET", "maxmemory", &limit])
        .await;
    server
}

/// Writes foreign values one by one until `done` or until the memory is full.
async fn fill(server: &Server, mut done: impl AsyncFnMut(&mut MultiplexedConnection) -> bool) {
    let mut admin = server.admin().await;
    let value = "x".repeat(16 * 1024);
    for number in 0..20_000 {
        let mut write = redis::cmd("SET");
        write.arg(format!("data:{number}")).arg(&value);
        let written = write.query_async::<()>(&mut admin).await;
        if written.is_err() || done(&mut admin).await {
            return;
        }
    }
}

async fn exists(admin: &mut MultiplexedConnection, name: &str) -> bool {
    let exists = redis::cmd("EXISTS").arg(name).query_async(admin).await;
    exists.unwrap()
}

async fn client(server: &Server) -> LockClient {
    connect(&server.url(), watched(LEASE)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t6_an_evicted_lock_is_free_and_its_holder_loses_it() {
    for policy in POLICIES {
        let server = small_server(policy).await;
        let name = unique_name("evicted");
        let holder = client(&server).await;
        let guard = holder.reentrant_lock(&name).lock().await.unwrap();
        fill(&server, async |admin| !exists(admin, &name).await).await;
        assert!(
            !exists(&mut server.admin().await, &name).await,
            "{policy}: nothing was evicted"
        );
        // Gives the clients that connect memory again.
        let unlimited = ["CONFIG", "SET", "maxmemory", "0"];
        server.command::<()>(&unlimited).await;
        let other = client(&server).await;
        let entered = other.reentrant_lock(&name).try_lock().await.unwrap();
        assert!(entered.is_some(), "{policy}: the evicted lock is free");
        let reason = timeout(GENEROUS, guard.lost()).await;
        assert_eq!(reason, Ok(LostReason::Gone), "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t6_without_eviction_a_full_server_keeps_its_locks() {
    let server = small_server("noeviction").await;
    let name = unique_name("kept");
    let holder = client(&server).await;
    let guard = holder.reentrant_lock(&name).lock().await.unwrap();
    fill(&server, async |_| false).await;
    server.reset_calls().await;
    eventually("the lease is renewed", GENEROUS, async || {
        server.calls().await.contains_key("pexpire")
    })
    .await;
    assert!(exists(&mut server.admin().await, &name).await);
    assert!(!guard.is_lost());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// The lines of a new client's log that name the policy. The client is in use, with an answer to each of its commands.
async fn warnings(url: &str, lines: &LogLines, expected: usize) -> Vec<String> {
    let client = LockClient::connect(url).await.unwrap();
    let warned = || lines.with("maxmemory-policy noeviction");
    eventually("the server has answered", GENEROUS, async || {
        client.ping().await.unwrap();
        warned().len() >= expected
    })
    .await;
    let lock = client.reentrant_lock(unique_name("app:warned"));
    for _ in 0..3 {
        let _ = lock.lock().await.unwrap().unlock().await.unwrap();
    }
    warned()
}

#[tokio::test]
async fn a_client_warns_once_of_a_server_that_evicts() {
    for (policy, limit, expected) in [
        ("volatile-lru", "100mb", 1),
        ("allkeys-random", "100mb", 1),
        ("noeviction", "100mb", 0),
        ("volatile-lru", "0", 0),
    ] {
        let options = ["--maxmemory-policy", policy, "--maxmemory", limit];
        let server = Server::start_with(&options).await;
        for client in 1..=2 {
            let (lines, _keep) = LogLines::record(tracing::Level::WARN);
            let warned = warnings(&server.url(), &lines, expected).await;
            assert_eq!(warned.len(), expected, "{policy} {limit}, client {client}");
            assert!(
                warned.iter().all(|line| line.contains(policy)),
                "{warned:?}"
            );
        }
    }
}

/// A refusal would be an entry in `ACL LOG` for each client.
#[tokio::test]
async fn a_user_is_asked_for_no_more_than_its_rights() {
    let options = ["--maxmemory-policy", "volatile-lru", "--maxmemory", "100mb"];
    let server = Server::start_with(&options).await;
    for (rights, expected) in [
        (&["+client|info"] as &[&str], 0),
        (&[], 0),
        (&["+client|info", "+info"], 1),
    ] {
        let admitted = Admitted::to(std::slice::from_ref(&server), &["reentrant"], &[]).await;
        let more = [&["ACL", "SETUSER", "reentrant", "-client|info"], rights].concat();
        server.command::<()>(&more).await;
        server.command::<()>(&["ACL", "LOG", "RESET"]).await;
        let (lines, _keep) = LogLines::record(tracing::Level::WARN);
        let warned = warnings(&admitted.url(&server.url()), &lines, expected).await;
        assert_eq!(warned.len(), expected, "{rights:?}");
        let log: Vec<BTreeMap<String, redis::Value>> = server.command(&["ACL", "LOG"]).await;
        let objects = log.iter().map(|entry| entry["object"].clone());
        let objects: Vec<String> = objects
            .map(|object| redis::from_redis_value(object).unwrap())
            .collect();
        assert!(!objects.contains(&"info".to_owned()), "{objects:?}");
    }
}
