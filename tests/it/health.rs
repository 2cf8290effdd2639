//! What `ping` says of servers that answer and cannot serve locks. Clusters have tests of their own.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use redisson_lock::{Config, EndpointKind, LockClient, Protocol};
use testbed::{Fate, Impostor, Replicated, Server, Watched, eventually};

use crate::hazards::stage::{GENEROUS, connect, why};

/// Has `server` follow `master`, or become a master.
async fn follow(server: &Server, master: Option<&Server>) {
    let port = master.map(|master| master.port().to_string());
    let words = match &port {
        Some(port) => ["REPLICAOF", "127.0.0.1", port],
        None => ["REPLICAOF", "NO", "ONE"],
    };
    server.command::<()>(&words).await;
}

/// A replica answers `PING`, and refuses each lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_has_become_a_replica_is_unhealthy() {
    for protocol in [Protocol::Auto, Protocol::Resp2] {
        let (server, master) = (Server::start().await, Server::start().await);
        let builder = LockClient::builder().url(server.url()).protocol(protocol);
        let client = builder.build().await.unwrap();
        client.ping().await.unwrap();
        follow(&server, Some(&master)).await;
        for _ in 0..3 {
            let error = client.ping().await.unwrap_err();
            let is_clear = why(&error).contains("replica") || why(&error).contains("slave");
            assert!(error.is_retryable() && is_clear, "{error:?}");
        }
        follow(&server, None).await;
        client.ping().await.unwrap();
        let guard = client.reentrant_lock("a").lock().await.unwrap();
        guard.unlock().await.unwrap();
    }
}

/// Its connection stays until sentinels or servers name another master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn master_that_has_become_a_replica_is_unhealthy_until_another_one_is_found() {
    let watched = Watched::start().await;
    let servers = &watched.replicated.servers;
    let client = connect(&watched.url(), Config::default()).await;
    client.ping().await.unwrap();
    follow(&servers[0], Some(&servers[1])).await;
    let error = client.ping().await.unwrap_err();
    assert!(why(&error).contains("READONLY"), "{error:?}");

    let replicated = Replicated::start(1).await;
    let servers = &replicated.servers;
    let client = connect(&replicated.url(), Config::default()).await;
    client.ping().await.unwrap();
    follow(&servers[1], None).await;
    follow(&servers[0], Some(&servers[1])).await;
    eventually("the new master is found", GENEROUS, async || {
        client.ping().await.is_ok()
    })
    .await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    guard.unlock().await.unwrap();
}

/// A peer in front of the server at `port` that does this to `ROLE`, and how often it was sent.
async fn at_role(
    port: u16,
    fate: impl Fn() -> Fate + Send + Sync + 'static,
) -> (Impostor, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let peer = Impostor::start(Some(port), move |words| match words[0] {
        b"ROLE" => {
            count.fetch_add(1, Ordering::SeqCst);
            fate()
        }
        _ => Fate::Pass,
    });
    (peer.await, sent)
}

/// It may be a proxy, a server whose user lacks the right, or one with roles of its own.
#[tokio::test]
async fn peer_that_tells_no_role_is_healthy_while_it_answers() {
    let server = Server::start().await;
    for answer in [
        "-NOPERM this user has no permissions to run the 'role' command",
        "-ERR unknown command 'ROLE'",
        "-ERR max daily request limit exceeded. Limit: 10000, Usage: 10000.",
        "+OK",
        "$-1",
        "*0",
        "*1\r\n$14\r\nactive-replica",
    ] {
        let fate = move || Fate::text(&format!("{answer}\r\n"));
        let (peer, sent) = at_role(server.port(), fate).await;
        let client = LockClient::connect(peer.url()).await.unwrap();
        client.ping().await.unwrap();
        assert_eq!(sent.load(Ordering::SeqCst), 1, "{answer}");
    }
}

/// An end point that the builder calls a proxy is not asked.
#[tokio::test]
async fn proxy_is_not_asked_for_a_role() {
    let server = Server::start().await;
    let (peer, sent) = at_role(server.port(), || Fate::HangUp).await;
    let builder = LockClient::builder()
        .url(peer.url())
        .endpoint_kind(EndpointKind::Proxy);
    let client = builder.build().await.unwrap();
    for _ in 0..3 {
        client.ping().await.unwrap();
    }
    assert_eq!((sent.load(Ordering::SeqCst), peer.connections()), (0, 2));
}

/// twemproxy closes the connection on each command that it does not know.
#[tokio::test]
async fn peer_that_closes_on_unknown_commands_keeps_its_connections() {
    let server = Server::start().await;
    let peer = Impostor::start(Some(server.port()), |words| match words[0] {
        b"EVAL" | b"EVALSHA" => Fate::Pass,
        b"PING" if words.len() == 1 => Fate::Pass,
        _ => Fate::HangUp,
    });
    let peer = peer.await;
    let client = LockClient::connect(peer.url()).await.unwrap();
    let connections = peer.connections();
    for _ in 0..3 {
        client.ping().await.unwrap();
    }
    assert_eq!(peer.connections(), connections);
}
