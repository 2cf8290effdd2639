//! Servers of another type than the URL says, and servers that are configured twice.

use redisson_lock::{Config, Error, LockClient, Protocol};
use testbed::{Clustered, Replicated, Server, Watched};

/// The error of connecting.
async fn refusal(connecting: redisson_lock::LockClientBuilder) -> Error {
    let connected = tokio::time::timeout(super::SOON, connecting.build()).await;
    connected
        .expect("the call ends in time")
        .expect_err("the call is refused")
}

fn at(url: &str) -> redisson_lock::LockClientBuilder {
    LockClient::builder().url(url)
}

/// Fails unless connecting is refused with an error that names the server's type and the URL to
/// use.
async fn is_named(url: &str, what_it_is: &str, what_to_use: &str) {
    let error = refusal(at(url)).await;
    assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
    let text = crate::in_full(&error);
    assert!(
        text.contains(what_it_is) && text.contains(what_to_use),
        "{url}: {text}"
    );
}

fn first_port(url: &str) -> &str {
    let (_, rest) = url.split_once("127.0.0.1:").expect("it names a port");
    rest.split(['/', '?']).next().expect("it names a port")
}

#[tokio::test]
async fn a_sentinel_that_is_taken_for_a_server() {
    let watched = Watched::start_some(0, 1).await;
    let url = watched.url();
    let sentinel = format!("127.0.0.1:{}", first_port(&url));
    for scheme in ["redis", "redis-cluster", "redis-replicated"] {
        let url = format!("{scheme}://{sentinel}");
        is_named(&url, "sentinel", "redis-sentinel://host:port/service").await;
    }
    // In RESP2 there is no greeting, which would tell.
    let url = format!("redis://{sentinel}?protocol=RESP2");
    is_named(&url, "sentinel", "redis-sentinel://host:port/service").await;
    let error = refusal(at(&format!("redis-sentinel://{sentinel}/another"))).await;
    assert!(error.to_string().contains("\"another\""), "{error}");
}

#[tokio::test]
async fn a_server_that_is_taken_for_another_set_up() {
    let plain = Server::start().await;
    let plain = format!("127.0.0.1:{}", plain.port());
    let url = format!("redis-sentinel://{plain}/mymaster");
    is_named(&url, "not a sentinel", "redis://host:port").await;
    let url = format!("redis-cluster://{plain}");
    is_named(&url, "not a cluster node", "redis://").await;
}

#[tokio::test]
async fn a_node_of_a_cluster_that_is_taken_for_a_server() {
    let cluster = Clustered::masters(3).await;
    let url = cluster.url();
    let node = format!("127.0.0.1:{}", first_port(&url));
    for scheme in ["redis", "redis-replicated"] {
        let url = format!("{scheme}://{node}");
        is_named(
            &url,
            "a single node of a cluster",
            "redis-cluster://host:port",
        )
        .await;
    }
    let url = format!("redis://{node}?protocol=RESP2");
    is_named(&url, "a single node of a cluster", "endpoint=proxy").await;
    let url = format!("redis-sentinel://{node}/mymaster");
    is_named(&url, "not a sentinel", "redis-cluster://").await;
}

/// The replica may be promoted: a client with `retry_start` then connects.
#[tokio::test]
async fn a_replica_that_is_taken_for_its_master() {
    let servers = Replicated::start(1).await.servers;
    let replica = servers[1].url();
    for protocol in [Protocol::Auto, Protocol::Resp2] {
        let error = refusal(at(&replica).protocol(protocol)).await;
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("a replica") && text.contains("redis-sentinel://"),
            "{text}"
        );
    }
    let patient = at(&replica).retry_start(super::SOON);
    let connecting = tokio::spawn(patient.build());
    let () = servers[1].command(&["REPLICAOF", "NO", "ONE"]).await;
    let client = connecting.await.unwrap().unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn servers_that_are_named_twice() {
    let server = Server::start().await;
    for builder in [
        at(&server.url()).sentinel("mymaster", ["127.0.0.1:1"]),
        at(&server.url()).cluster(["127.0.0.1:1"]),
        LockClient::builder()
            .replicated(["127.0.0.1:1"])
            .url(server.url()),
    ] {
        let error = refusal(builder).await;
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        let text = crate::in_full(&error);
        assert!(
            text.contains("`url`") && text.contains("one of them"),
            "{text}"
        );
    }
    // The last of two URLs counts.
    let builder = at("redis://nowhere.invalid").url(server.url());
    builder
        .build()
        .await
        .expect("the server is configured once");
}

#[tokio::test]
async fn a_prefix_that_no_name_can_begin_with() {
    let server = Server::start().await;
    for prefix in ["app\n", "\0", &"x".repeat(1 << 20)] {
        let mut config = Config::default();
        config.name_prefix = prefix.into();
        let error = refusal(at(&server.url()).config(config)).await;
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains("name_prefix"), "{error}");
    }
}
