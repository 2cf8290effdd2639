//! The names of holders' clients, from the server's list of connections, and the bound of the age of their holds, from their ids.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use redisson_lock::{Config, LockClient, Since};
use testbed::{Clustered, Fate, Impostor, Server, eventually};

use crate::hostile::log_lines::LogLines;

const LOCK: &str = "app:42";

async fn named(url: &str, name: &str) -> LockClient {
    let config = Config::default().with_client_name(name);
    let builder = LockClient::builder().url(url).config(config);
    builder.build().await.unwrap()
}

/// The names of the clients that hold the lock, as `client` is told.
async fn names(client: &LockClient) -> Vec<Option<String>> {
    let holders = client.reentrant_lock(LOCK).holders().await.unwrap();
    let names = holders.iter().map(|holder| holder.client_name.as_deref());
    names.map(|name| name.map(str::to_owned)).collect()
}

/// The list of connections may be long, so each client is asked for once.
#[tokio::test]
async fn a_holder_is_named_and_its_name_is_asked_once() {
    let server = Server::start().await;
    let url = server.url();
    let (holder, other) = (named(&url, "orders-7").await, named(&url, "asker").await);
    let guard = holder.reentrant_lock(LOCK).lock().await.unwrap();
    server.reset_calls().await;
    for _ in 0..3 {
        assert_eq!(names(&other).await, [Some("orders-7".to_owned())]);
    }
    assert_eq!(server.calls().await.get("client|list"), Some(&1));
    // A client needs nothing to name itself.
    server.reset_calls().await;
    assert_eq!(names(&holder).await, [Some("orders-7".to_owned())]);
    assert_eq!(server.calls().await.get("client|list"), None);
    guard.unlock().await.unwrap();
    let next = named(&url, "orders-8").await;
    let _next = next.reentrant_lock(LOCK).lock().await.unwrap();
    assert_eq!(names(&other).await, [Some("orders-8".to_owned())]);
}

/// The bound is never below the true age, also for a holder whose connections are all new.
#[tokio::test]
async fn the_age_of_a_hold_elsewhere_has_an_upper_bound() {
    let server = Server::start().await;
    let before = SystemTime::now();
    let holder = named(&server.url(), "orders-7@web-1").await;
    let made = SystemTime::now();
    let guard = holder.reentrant_lock(LOCK).lock().await.unwrap();
    let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
    server.command::<u32>(&kill).await;
    guard.check().await.unwrap();
    let other = named(&server.url(), "asker").await;
    let found = &other.reentrant_lock(LOCK).holders().await.unwrap()[0];
    let Since::NotBefore(since) = found.since else {
        panic!("{found:?}");
    };
    // An id has milliseconds.
    assert!(since + Duration::from_millis(1) > before && since <= made);
    assert!(found.since.at_most() >= Some(guard.since().elapsed()));
    let text = found.to_string();
    assert!(
        text.contains(" (orders-7@web-1), held for at most "),
        "{text}"
    );
}

#[tokio::test]
async fn the_log_line_of_a_slow_wait_names_the_holders_client() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = Server::start().await;
    let holder = named(&server.url(), "orders-7@web-1").await;
    let slow = Config::default().with_slow_wait(Duration::from_millis(50));
    let waiter = LockClient::builder().url(server.url()).config(slow);
    let waiter = waiter.build().await.unwrap();
    let _guard = holder.reentrant_lock(LOCK).lock().await.unwrap();
    let waits = tokio::spawn(async move { waiter.reentrant_lock(LOCK).lock().await });
    let told = || lines.with("a task waits for a lock");
    eventually("it is logged", Duration::from_secs(20), async || {
        !told().is_empty()
    })
    .await;
    let line = &told()[0];
    let names = " (orders-7@web-1), held for at most ";
    assert!(line.contains(names), "{line}");
    waits.abort();
}

/// A thread of Java has no name there: its connections have no id.
#[tokio::test]
async fn a_holder_in_java_is_not_asked_for() {
    let server = Server::start().await;
    let java = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47";
    server.command::<u32>(&["HSET", LOCK, java, "1"]).await;
    let client = LockClient::connect(server.url()).await.unwrap();
    server.reset_calls().await;
    assert_eq!(names(&client).await, [None]);
    assert_eq!(server.calls().await.get("client|list"), None);
}

#[tokio::test]
async fn a_user_without_the_right_gets_holders_without_names() {
    let server = Server::start().await;
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">secret",
        "~*",
        "&*",
        "+@all",
        "-client|list",
    ];
    server.command::<()>(&user).await;
    let url = server.url().replace("://", "://app:secret@");
    let (holder, other) = (named(&url, "orders-7").await, named(&url, "asker").await);
    let _guard = holder.reentrant_lock(LOCK).lock().await.unwrap();
    for _ in 0..3 {
        assert_eq!(names(&other).await, [None]);
    }
    // Refused once, and not asked again.
    let log: Vec<std::collections::HashMap<String, redis::Value>> =
        server.command(&["ACL", "LOG"]).await;
    let refusals: Vec<_> = log.iter().map(|entry| entry["count"].clone()).collect();
    assert_eq!(refusals, [redis::Value::Int(1)], "{log:?}");
}

/// A peer that ends the connection on the question costs one connection, and no hold.
#[tokio::test]
async fn a_peer_that_hangs_up_on_the_question_is_asked_once() {
    let server = Server::start().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let peer = Impostor::start(Some(server.port()), move |said| match said {
        [b"CLIENT", b"LIST", ..] => {
            count.fetch_add(1, Ordering::SeqCst);
            Fate::HangUp
        }
        _ => Fate::Pass,
    });
    let peer = peer.await;
    let holder = named(&server.url(), "orders-7").await;
    let other = named(&peer.url(), "asker").await;
    let _guard = holder.reentrant_lock(LOCK).lock().await.unwrap();
    let own = other.reentrant_lock("other").lock().await.unwrap();
    for _ in 0..3 {
        assert_eq!(names(&other).await, [None]);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    own.unlock().await.unwrap();
}

#[tokio::test]
async fn a_holder_on_a_cluster_is_named() {
    let cluster = Clustered::masters(2).await;
    let (url, mut guards) = (cluster.url(), Vec::new());
    let (holder, other) = (named(&url, "orders-7").await, named(&url, "asker").await);
    for node in 0..2 {
        let name = cluster.name_on(node, "job").await;
        guards.push(holder.reentrant_lock(&*name).lock().await.unwrap());
        let holders = other.reentrant_lock(&*name).holders().await.unwrap();
        assert_eq!(holders[0].client_name.as_deref(), Some("orders-7"));
    }
}
