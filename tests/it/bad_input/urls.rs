//! URLs, valid and invalid.

use redisson_lock::{Error, LockClient, Released};
use testbed::Server;

use super::SECRET;

#[tokio::test]
async fn urls_that_cannot_be_read() {
    for (url, hint) in [
        ("", "redis://"),
        ("order:42", "scheme"),
        ("localhost", "redis://"),
        ("localhost:6379", "write redis://host:port"),
        ("127.0.0.1:6379", "redis://"),
        ("://", "redis://"),
        ("redis://", "host"),
        ("redis:///3", "host"),
        ("redis://:s3cret@", "redis://"),
        ("redis://host:s3cret", "redis://"),
        ("redis://:s3cret@host:99999", "redis://"),
        ("redis://:s3cret@host:-1", "redis://"),
        ("redis://:s3cret@host/three", "database"),
        ("redis://:s3cret@host/-1", "database"),
        ("redis://host?db=3", "redis://host/3"),
        ("redis://host?node=other:6379", "redis-cluster://"),
        ("redis://:s3cret#x@host", "%23"),
        ("redis://user:s3cret/x@host:6379", "%2F"),
        ("redis://:s3cret?x@host", "%3F"),
        ("redis-cluster://:12/s3cret@host?node=other:6379", "%2F"),
        ("redis://:s3cret%zz@host", "%25"),
        ("redis://s3cret@host", "without a password"),
        ("redis://:s3cret@ho st", "redis://"),
        ("http://:s3cret@localhost", "scheme"),
        ("s3cret://localhost", "scheme"),
        ("unix://", "socket"),
        ("unix://:s3cret@localhost/", "socket"),
        ("unix:///run/redis.sock?db=s3cret", "db"),
        ("redis-cluster://:s3cret@host/three", "database"),
        ("redis-cluster://:s3cret@host?node=", "node"),
        ("redis-replicated://:s3cret@host/three", "database"),
        ("redis-sentinel://:s3cret@host", "service"),
        (
            "redis-sentinel://host/mymaster?sentinelPassword=s3cret&node=a:b",
            "node",
        ),
    ] {
        let error = LockClient::connect(url).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
        // The scheme is no place for a secret, and the error should name it.
        let shown = format!("{error} {error:?}");
        assert!(
            !shown.contains(SECRET) || url.starts_with(SECRET),
            "{url}: {error}"
        );
    }
}

#[tokio::test]
async fn a_builder_without_a_server() {
    let error = LockClient::builder().build().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(error.to_string().contains("url"), "{error}");
}

/// Acquires a lock through `url`, and returns the database of `server` that has it.
async fn database_of(server: &Server, url: &str) -> String {
    let client = LockClient::connect(url)
        .await
        .unwrap_or_else(|error| panic!("{url}: {error}"));
    let lock = client.reentrant_lock("order:42");
    let guard = lock.lock().await.unwrap();
    let keyspace: String = server.command(&["INFO", "keyspace"]).await;
    let mut lines = keyspace.lines().filter(|line| line.starts_with("db"));
    let database = lines.next().expect("there is a key").to_owned();
    assert_eq!(lines.next(), None, "only one database has keys");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    client.shutdown().await;
    let (database, _) = database.split_once(':').expect("the line names a database");
    database.to_owned()
}

#[tokio::test]
async fn hosts_ports_and_databases() {
    let server = Server::start().await;
    let port = server.port();
    for (url, database) in [
        (format!("redis://127.0.0.1:{port}"), "db0"),
        (format!("redis://localhost:{port}/"), "db0"),
        (format!("redis://127.0.0.1:{port}/0"), "db0"),
        (format!("redis://127.0.0.1:{port}/3"), "db3"),
        (format!("valkey://127.0.0.1:{port}/15"), "db15"),
    ] {
        assert_eq!(database_of(&server, &url).await, database, "{url}");
    }
}

#[tokio::test]
async fn users_and_passwords() {
    let server = Server::start_with(&["--requirepass", "s3cret"]).await;
    let rules = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">p@ss/w:rd%",
        "~*",
        "&*",
        "+@all",
    ];
    server.command::<()>(&rules).await;
    let port = server.port();
    for url in [
        format!("redis://:s3cret@127.0.0.1:{port}"),
        format!("redis://default:s3cret@127.0.0.1:{port}"),
        format!("redis://app:p%40ss%2Fw%3Ard%25@127.0.0.1:{port}"),
    ] {
        assert_eq!(database_of(&server, &url).await, "db0", "{url}");
    }
}

#[tokio::test]
async fn unix_sockets() {
    let socket = ["--unixsocket", "{dir}/own.sock", "--requirepass", "s3cret"];
    let server = Server::start_with(&socket).await;
    let path = server.dir().join("own.sock").display().to_string();
    for (url, database) in [
        (format!("unix://:s3cret@localhost{path}"), "db0"),
        (format!("unix://:s3cret@localhost{path}?db=2"), "db2"),
        (
            format!("redis+unix://default:s3cret@localhost{path}"),
            "db0",
        ),
    ] {
        assert_eq!(database_of(&server, &url).await, database, "{url}");
    }
}

#[tokio::test]
async fn a_callers_own_fred_client() {
    use fred::types::{Builder, config::Config};

    let server = Server::start_with(&["--requirepass", "s3cret"]).await;
    let url = format!("redis://:s3cret@127.0.0.1:{}/4", server.port());
    let fred = Builder::from_config(Config::from_url(&url).unwrap())
        .build()
        .unwrap();
    let builder = LockClient::builder().fred(&fred);
    assert!(!format!("{builder:?}").contains(SECRET));
    let client = builder.build().await.unwrap();
    let guard = client.reentrant_lock("order:42").lock().await.unwrap();
    let keyspace: String = server.command(&["INFO", "keyspace"]).await;
    assert!(keyspace.contains("db4:keys=1"), "{keyspace}");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));

    // The nodes of a cluster are taken over too. This server is not a cluster node.
    let url = format!("redis-cluster://:s3cret@127.0.0.1:{}", server.port());
    let fred = Builder::from_config(Config::from_url(&url).unwrap())
        .build()
        .unwrap();
    let error = LockClient::builder().fred(&fred).build().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(error.to_string().contains("not a cluster node"), "{error}");
}

#[tokio::test]
async fn nodes_and_credentials_that_are_set_apart() {
    let server = Server::start_with(&["--requirepass", "s3cret"]).await;
    let builder = || LockClient::builder().replicated([format!("127.0.0.1:{}", server.port())]);
    let with_password = builder().credentials("", SECRET);
    assert!(!format!("{with_password:?}").contains(SECRET));
    let client = with_password.build().await.unwrap();
    let guard = client.reentrant_lock("order:42").lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let error = builder().build().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    for nodes in [vec![], vec!["u:s3cret@host"], vec!["host:1/2"]] {
        let error = LockClient::builder()
            .cluster(nodes)
            .build()
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains(SECRET));
    }
}
