//! Connecting to a cluster without one of its shards, or to a server that is not a node.

use redisson_lock::{Error, LockClient, Released};
use testbed::{Clustered, Proxy, Server, eventually};
use tokio::time::timeout;

use super::config;
use crate::hazards::stage::{GENEROUS, connect};

/// The remaining nodes serve their slots without those of the dead node.
const IN_PART: [&str; 2] = ["--cluster-require-full-coverage", "no"];

/// While one shard `fails`, locks of the other shards work. A lock on the failed shard is refused
/// in time, and acquired once the shard is back.
async fn connects_without(fail: impl Fn(&Clustered), heals: impl AsyncFn(&Clustered)) {
    let options = [&IN_PART[..], &["--cluster-node-timeout", "60000"]].concat();
    let cluster = Clustered::start_with(3, false, &options).await;
    let mut names = Vec::new();
    for node in 0..3 {
        names.push(cluster.name_on(node, "order").await);
    }
    fail(&cluster);
    let mut impatient = config();
    impatient.command_wait = std::time::Duration::from_secs(2);
    let client = connect(&cluster.url(), impatient).await;
    for name in &names[1..] {
        let guard = client.reentrant_lock(name).try_lock().await.unwrap();
        assert_eq!(guard.unwrap().unlock().await, Ok(Released::Fully));
    }
    let lock = client.reentrant_lock(&names[0]);
    let refused = timeout(GENEROUS, lock.try_lock())
        .await
        .expect("the task ends in time");
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    heals(&cluster).await;
    let had = timeout(GENEROUS, lock.lock())
        .await
        .expect("the lock is acquired");
    assert_eq!(had.unwrap().unlock().await, Ok(Released::Fully));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_fr11_without_a_shard_that_is_dead() {
    connects_without(
        |cluster| cluster.kill(0),
        async |cluster| cluster.restart(0).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_fr11_without_a_shard_that_is_asleep() {
    connects_without(
        |cluster| cluster.pause(0),
        async |cluster| cluster.resume(0),
    )
    .await;
}

async fn is_refused(url: &str, word: &str) {
    let connected = timeout(GENEROUS, LockClient::connect(url)).await;
    let error = connected
        .expect("the call ends in time")
        .expect_err("the connection is refused");
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(crate::in_full(&error).contains(word), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
}

#[tokio::test]
async fn to_a_server_that_is_no_node() {
    let server = Server::start().await;
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    is_refused(&url, "redis://").await;
}

#[tokio::test]
async fn with_a_wrong_password_or_without_the_right_to_ask_for_nodes() {
    let cluster = Clustered::masters(2).await;
    for server in &cluster.servers {
        for rights in [&["+@all"][..], &["+@all", "-cluster"]] {
            let user = ["one", "two"][rights.len() - 1];
            let rule = ["ACL", "SETUSER", user, "on", ">s3cret", "~*", "&*"];
            server.command::<()>(&[&rule[..], rights].concat()).await;
        }
    }
    let url = |login: &str| cluster.url().replacen("://", &format!("://{login}@"), 1);
    let client = LockClient::connect(&url("one:s3cret")).await.unwrap();
    let guard = client.reentrant_lock("order").lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    is_refused(&url("one:s3cret2"), "password").await;
    is_refused(&url("two:s3cret"), "CLUSTER NODES").await;
}

async fn connections(server: &Server) -> usize {
    let list: String = server.command(&["CLIENT", "LIST"]).await;
    let ours = |line: &&str| line.contains("addr=127.0.0.1");
    list.lines().filter(ours).count()
}

/// No server listens at the announced addresses. The client reaches the nodes through proxies only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_map_of_addresses() {
    let cluster = Clustered::masters(2).await;
    let mut proxies = Vec::new();
    for server in &cluster.servers {
        proxies.push((server.port(), Proxy::start(server.port()).await));
    }
    let seed = format!("redis-cluster://127.0.0.1:{}", proxies[0].1.port());
    let ports: Vec<_> = proxies
        .iter()
        .map(|(port, proxy)| (*port, proxy.port()))
        .collect();
    let map = move |host: &str, port: u16| {
        let found = ports.iter().find(|(announced, _)| *announced == port);
        (
            host.to_owned(),
            found.expect("the node announces the port").1,
        )
    };
    let connect = async || {
        let builder = LockClient::builder().url(&seed).config(config());
        builder.address_map(map.clone()).build().await.unwrap()
    };
    let (holder, waiter) = (connect().await, connect().await);
    for node in 0..2 {
        let name = cluster.name_on(node, "mapped").await;
        let guard = holder.reentrant_lock(&name).lock().await.unwrap();
        let lock = waiter.reentrant_lock(&name);
        let waiting = tokio::spawn(async move { lock.lock().await?.unlock().await });
        let slot_move = cluster.begin_move(testbed::slot_of(&name), 1 - node).await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        let waited = timeout(GENEROUS, waiting)
            .await
            .expect("a message wakes the waiter");
        assert_eq!(waited.unwrap(), Ok(Released::Fully));
        cluster.move_keys(slot_move).await;
        cluster.end_move(slot_move).await;
        let guard = waiter.reentrant_lock(&name).lock().await.unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    assert!(connections(&cluster.servers[0]).await > 0);
    drop(proxies);
    for server in &cluster.servers {
        let none = async || connections(server).await == 0;
        eventually("no connection bypasses the proxies", GENEROUS, none).await;
    }
}

/// Valkey 9 names the number that is out of range; other servers have no other database.
#[tokio::test]
async fn a_server_that_refuses_the_database_is_quoted() {
    let cluster = Clustered::masters(1).await;
    let url = cluster.url().replacen("/?", "/3?", 1);
    let error = LockClient::connect(&url).await.expect_err("no database 3");
    let text = error.to_string();
    let quoted = [
        "SELECT is not allowed in cluster mode",
        "DB index is out of range",
    ];
    assert!(quoted.iter().any(|words| text.contains(words)), "{text}");
    assert!(!matches!(error, Error::Unavailable { .. }), "{error:?}");
}
