//! Peers whose scripts cannot publish: what could not be released is not acquired. Only what scripts may do counts.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redisson_lock::{Error, LockClient, Released};
use testbed::{Fate, Impostor, Server};

use super::within;

/// Acquires, and releases.
type Use = fn(LockClient) -> Pin<Box<dyn Future<Output = Result<(), Error>>>>;

macro_rules! uses {
    ($($name:literal: |$client:ident| $body:expr;)+) => {
        [$(($name, |$client| Box::pin(async move {
            $body;
            Ok(())
        }))),+]
    };
}

/// All that is released by a message.
const USES: [(&str, Use); 14] = uses! {
    "reentrant": |client| client.reentrant_lock("a").lock().await?.unlock().await?;
    "reentrant, try_lock": |client| client.reentrant_lock("a").try_lock().await?.expect("free").unlock().await?;
    "fenced": |client| client.fenced_lock("a").lock().await?.unlock().await?;
    "fair": |client| client.fair_lock("a").lock().await?.unlock().await?;
    "non-reentrant": |client| client.non_reentrant_lock("a").lock().await?.unlock().await?;
    "non-reentrant-fair": |client| client.non_reentrant_fair_lock("a").lock().await?.unlock().await?;
    "read": |client| client.read_write_lock("a").read().lock().await?.unlock().await?;
    "write": |client| client.read_write_lock("a").write().lock().await?.unlock().await?;
    "simple": |client| client.simple_lock("a").lock().await?.unlock().await?;
    "multi": |client| client.multi_lock(["a", "b"]).lock().await?.unlock().await?;
    "red": |client| client.red_lock(["a", "b", "c"]).lock().await?.unlock().await?;
    "run": |client| client.reentrant_lock("a").run(async |_| ()).await?;
    "semaphore": |client| client.semaphore("permits").acquire().await?.release().await?;
    "permit-expirable-semaphore": |client| {
        let semaphore = client.permit_expirable_semaphore("ids");
        semaphore.with_lease(Duration::from_secs(60)).acquire().await?.release().await?
    };
};

/// Sends other words to the server in place of `word`, in all arguments of scripts.
fn replacing(word: &'static str, with: &'static str) -> impl Fn(&[&[u8]]) -> Fate {
    move |said| match said[0] {
        b"EVALSHA" => Fate::text("-NOSCRIPT No matching script.\r\n"),
        b"EVAL" => {
            let text = |part: &&[u8]| String::from_utf8_lossy(part).replace(word, with);
            Fate::PassInstead(said.iter().map(|part| text(part).into_bytes()).collect())
        }
        _ => Fate::Pass,
    }
}

/// A server before 7 cannot be asked without a message.
fn as_before_redis_7() -> impl Fn(&[&[u8]]) -> Fate {
    replacing(
        "redis.acl_check_cmd",
        "redis.acl_check_cmd_of_later_servers",
    )
}

/// Whether a command asks what scripts may do.
fn is_question(said: &[&[u8]]) -> bool {
    let names = |part: &[u8]| part.windows(13).any(|word| word == b"acl_check_cmd");
    said[0] == b"EVAL" && names(said[1])
}

async fn server_without(rule: &[&str]) -> Server {
    let server = Server::start().await;
    let words = [&["ACL", "SETUSER", "default"], rule].concat();
    server.command::<()>(&words).await;
    server
}

/// Has permits for the semaphores in [`USES`].
async fn with_permits(server: &Server) {
    server.command::<()>(&["SET", "permits", "5"]).await;
    server.command::<()>(&["SET", "ids", "5"]).await;
}

/// Checks that nothing but the spin lock is acquired by way of `url`.
async fn refuses_all_but_the_spin_lock(server: &Server, url: &str, peer: &str) {
    with_permits(server).await;
    for (name, uses) in USES {
        // A client for each: what one kind has found out does not help the next one.
        let client = LockClient::connect(url).await.unwrap();
        let error = within(uses(client)).await.expect_err(name);
        assert!(
            matches!(error, Error::Redis { .. }),
            "{peer}, {name}: {error:?}"
        );
        let text = error.to_string();
        assert!(text.contains("may not publish"), "{peer}, {name}: {text}");
        let left = server
            .command::<Vec<String>>(&["MGET", "permits", "ids"])
            .await;
        assert_eq!(left, ["5", "5"], "{peer}, {name}");
        let count: u32 = server.command(&["DBSIZE"]).await;
        assert_eq!(count, 2, "{peer}, {name}");
    }
    let client = LockClient::connect(url).await.unwrap();
    let guard = within(client.spin_lock("a").lock()).await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully), "{peer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acquired_where_the_release_could_not_publish() {
    let renamed = Server::start_with(&["--rename-command", "PUBLISH", ""]).await;
    let mut peers = vec![
        ("PUBLISH renamed", renamed),
        ("default user -publish", server_without(&["-publish"]).await),
        (
            "default user without pub/sub",
            server_without(&["-@pubsub"]).await,
        ),
    ];
    // Redis 6.0 has no rights to channels.
    let version = peers[0].1.info("server").await["redis_version"].clone();
    if !version.starts_with("6.0") {
        peers.push((
            "default user without channels",
            server_without(&["resetchannels"]).await,
        ));
    }
    for (peer, server) in &peers {
        refuses_all_but_the_spin_lock(server, &server.url(), peer).await;
        // The same by publishing, where the server cannot be asked.
        let old = Impostor::start(Some(server.port()), as_before_redis_7()).await;
        refuses_all_but_the_spin_lock(server, &old.url(), &format!("{peer}, old")).await;
    }
    // A proxy that has the command, and not in scripts.
    let server = Server::start().await;
    let proxy = Impostor::start(Some(server.port()), replacing("PUBLISH", "NOWHERE")).await;
    refuses_all_but_the_spin_lock(&server, &proxy.url(), "a proxy").await;
}

/// A proxy without pub/sub in front of a server whose scripts publish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_refused_outside_of_scripts_matters_to_no_lock() {
    let server = Server::start().await;
    with_permits(&server).await;
    let proxy = Impostor::start(Some(server.port()), |said| match said[0] {
        b"PUBLISH" | b"SPUBLISH" => Fate::text("-ERR unsupported command\r\n"),
        b"ACL" => Fate::text("-ERR unsupported command\r\n"),
        _ => Fate::Pass,
    });
    let proxy = proxy.await;
    for (name, uses) in USES {
        let client = LockClient::connect(&proxy.url()).await.unwrap();
        within(uses(client))
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// A question for each client and sort of channel, and none for later acquisitions.
#[tokio::test]
async fn client_asks_once_whether_scripts_may_publish() {
    let server = Server::start().await;
    let questions = Arc::new(AtomicUsize::new(0));
    let count = questions.clone();
    let peer = Impostor::start(Some(server.port()), move |said| {
        if is_question(said) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Fate::Pass
    });
    let peer = peer.await;
    let client = LockClient::connect(&peer.url()).await.unwrap();
    for name in ["a", "b", "a"] {
        let guard = client.reentrant_lock(name).lock().await.unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        let guard = client.fair_lock(name).lock().await.unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    assert_eq!(questions.load(Ordering::SeqCst), 1, "one sort of channel");
    let guard = client.read_write_lock("c").read().lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(questions.load(Ordering::SeqCst), 2, "another sort");
}

/// What a server says in passing does not count as its last word.
#[tokio::test]
async fn answer_of_a_passing_state_keeps_no_lock_away() {
    for answer in [
        "-BUSY Redis is busy running a script.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "$52\r\nNO CLUSTERDOWN Hash slot not served, but it will be.\r\n",
        "-NOPERM this user has no permissions to run the 'eval' command\r\n",
        ":7\r\n",
        "*0\r\n",
        "$-1\r\n",
        "$5\r\nMAYBE\r\n",
    ] {
        let server = Server::start().await;
        let peer = Impostor::start(Some(server.port()), move |said| match is_question(said) {
            true => Fate::text(answer),
            false => Fate::Pass,
        });
        let peer = peer.await;
        let client = LockClient::connect(&peer.url()).await.unwrap();
        let guard = within(client.reentrant_lock("a").lock()).await;
        let guard = guard.unwrap_or_else(|error| panic!("{answer}: {error}"));
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}
