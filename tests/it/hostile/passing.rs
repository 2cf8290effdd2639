//! Peers that refuse for a while, in words of their own: full disks, quotas, limits. docs/testing.md has the table.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use redisson_lock::{Error, LockClient, Released};
use testbed::{Fate, Impostor, Server, eventually};

use super::{SOON, log_lines::LogLines, within};

const WORDS: [&str; 6] = [
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "ERR max daily request limit exceeded. Limit: 10000, Usage: 10000.",
    "ERR the quota of this database is used up",
    "ERR Please try again later",
    "Too many requests",
    "THROTTLED slow down: throttling applies",
];

/// Each connection, for scripts or messages, survives refused PINGs, but not one that says that the login is gone.
#[tokio::test]
async fn a_refused_ping_ends_no_connection_unless_the_login_is_gone() {
    let refused = WORDS.iter().copied().chain([
        "NOPERM this user has no permissions to run the 'ping' command",
        "ERR unknown command 'PING'",
        "BUSY Redis is busy running a script",
        "words without a code",
    ]);
    let rows = refused.map(|words| (words, false));
    let rows = rows.chain([("NOAUTH Authentication required.", true)]);
    let playing = rows.map(|(words, ends)| refuse_pings(words, ends));
    futures_util::future::join_all(playing).await;
}

async fn refuse_pings(words: &'static str, ends: bool) {
    let server = Server::start().await;
    let (refuses, pings) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (refuse, count) = (refuses.clone(), pings.clone());
    let peer = Impostor::start(Some(server.port()), move |said| match said[0] {
        b"PING" if refuse.load(SeqCst) => {
            count.fetch_add(1, SeqCst);
            Fate::text(&format!("-{words}\r\n"))
        }
        _ => Fate::Pass,
    });
    let peer = peer.await;
    let client = within(LockClient::connect(&peer.url())).await.unwrap();
    let connected = peer.connections();
    refuses.store(true, SeqCst);
    if ends {
        let replaced = async || peer.connections() > connected;
        return eventually("the connection is replaced", SOON, replaced).await;
    }
    let pinged = async || pings.load(SeqCst) >= 6;
    eventually("three PINGs on each connection are refused", SOON, pinged).await;
    assert_eq!(peer.connections(), connected, "{words}");
    let guard = within(client.reentrant_lock("a").lock()).await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// Acquisitions are repeated within the caller's limit.
#[tokio::test]
async fn words_that_pass_delay_an_acquisition_and_do_not_fail_it() {
    for words in WORDS {
        let server = Server::start().await;
        let refused = Arc::new(AtomicUsize::new(0));
        let count = refused.clone();
        let peer = Impostor::start(Some(server.port()), move |said| match said[0] {
            b"EVAL" | b"EVALSHA" if count.fetch_add(1, SeqCst) < 3 => {
                Fate::text(&format!("-{words}\r\n"))
            }
            _ => Fate::Pass,
        });
        let peer = peer.await;
        let client = within(LockClient::connect(&peer.url())).await.unwrap();
        let connected = peer.connections();
        let guard = within(client.reentrant_lock("a").lock()).await;
        let guard = guard.unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        assert!(refused.load(SeqCst) > 3, "{words}");
        assert_eq!(peer.connections(), connected, "{words}");
    }
}

/// The limit of a caller ends the repetitions, and the error has the words.
#[tokio::test]
async fn words_that_do_not_pass_reach_the_caller_at_the_limit() {
    for words in WORDS {
        let peer = Impostor::start(None, move |said| match said[0] {
            b"EVAL" | b"EVALSHA" => Fate::text(&format!("-{words}\r\n")),
            _ => Fate::Pass,
        });
        let peer = peer.await;
        let client = within(LockClient::connect(&peer.url())).await.unwrap();
        let lock = client.reentrant_lock("a");
        let waited = within(lock.try_lock_for(Duration::from_millis(300))).await;
        let error = waited.expect_err(words);
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert_eq!(error.to_string().matches(words).count(), 1, "{error}");
    }
}

/// The first warning after the password of the user has changed says so, for each connection.
#[tokio::test]
async fn the_first_warning_after_a_changed_password_names_it() {
    let (lines, _keep) = LogLines::record(tracing::Level::WARN);
    let server = Server::start_with(&["--requirepass", "right"]).await;
    let url = format!("redis://:right@127.0.0.1:{}", server.port());
    let client = within(LockClient::connect(&url)).await.unwrap();
    let mut admin = server.admin().await;
    for command in [
        &["CONFIG", "SET", "requirepass", "changed"][..],
        &["CLIENT", "KILL", "SKIPME", "yes"],
    ] {
        let mut asked = redis::cmd(command[0]);
        let () = asked
            .arg(&command[1..])
            .query_async(&mut admin)
            .await
            .unwrap();
    }
    let told = async || !lines.with("").is_empty();
    eventually("a warning", SOON, told).await;
    let first = lines.with("").remove(0);
    assert!(
        first.contains("WRONGPASS") && first.contains("cannot connect"),
        "{first}"
    );
    assert!(!first.contains("right\""), "{first}");
    drop(client);
}

/// A new reason is logged at once, although another one was logged a moment ago.
#[tokio::test]
async fn each_new_reason_of_a_lasting_outage_is_logged_at_once() {
    let (lines, _keep) = LogLines::record(tracing::Level::WARN);
    let server = Server::start().await;
    let words = Arc::new(std::sync::Mutex::new(None::<&str>));
    let said = words.clone();
    let peer = Impostor::start(Some(server.port()), move |command| {
        match (*said.lock().unwrap(), command[0]) {
            (None, _) => Fate::Pass,
            (Some(words), b"HELLO" | b"AUTH" | b"PING" | b"CLIENT") => {
                Fate::LastAnswer(format!("-{words}\r\n").into_bytes())
            }
            (Some(_), _) => Fate::HangUp,
        }
    });
    let peer = peer.await;
    let client = within(LockClient::connect(&peer.url())).await.unwrap();
    for reason in ["ERR the first", "ERR the second", "ERR the third"] {
        *words.lock().unwrap() = Some(reason);
        let _ = client
            .reentrant_lock("a")
            .try_lock_for(Duration::from_millis(50))
            .await;
        let told = async || !lines.with(reason).is_empty();
        eventually(reason, SOON, told).await;
    }
    for reason in ["ERR the first", "ERR the second", "ERR the third"] {
        let told = lines.with(reason);
        assert!(told.len() <= 2, "one line for each connection: {told:#?}");
    }
}
