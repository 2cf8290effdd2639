//! Peers that lack commands, in any words: proxies, providers, servers with renamed commands. docs/testing.md has the table.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redisson_lock::{Config, Durability, Error, LockClient, Released};
use testbed::{Fate, Impostor, Replicated, Server, eventually};

use super::{SOON, log_lines::LogLines, within};

/// How peers refuse a command that they do not have.
const WORDS: [&str; 6] = [
    "ERR unknown command 'x'",
    "ERR unsupported command",
    "ERR command is not allowed",
    "NOPERM this user has no permissions to run the command",
    "ERR max limit of this command exceeded",
    "this proxy does not know it",
];

/// A peer in front of the server at `port` that refuses `command` in these words, and how often it was sent.
async fn without(
    port: u16,
    command: &'static str,
    words: &'static str,
) -> (Impostor, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let peer = Impostor::start(Some(port), move |said| match said[0] {
        name if name == command.as_bytes() => {
            count.fetch_add(1, Ordering::SeqCst);
            Fate::text(&format!("-{words}\r\n"))
        }
        _ => Fate::Pass,
    });
    (peer.await, sent)
}

/// `Auto` goes on without `WAIT`, and asks once for each connection. A durability that demands replicas is refused with the words.
#[tokio::test]
async fn wait_that_is_missing_in_any_words_is_done_without_unless_it_is_demanded() {
    let set_up = Replicated::start(1).await;
    for password in [None, Some("secret")] {
        let servers = &set_up.servers;
        let login = match password {
            None => String::new(),
            Some(password) => {
                let rule = format!(">{password}");
                let user = [
                    "ACL", "SETUSER", "app", "reset", "on", &rule, "~*", "&*", "+@all",
                ];
                for server in servers {
                    server.command::<()>(&user).await;
                }
                format!("app:{password}@")
            }
        };
        for words in WORDS {
            let (lines, _keep) = LogLines::record(tracing::Level::WARN);
            let (peer, sent) = without(servers[0].port(), "WAIT", words).await;
            let url = format!(
                "redis-replicated://{login}{}?node=127.0.0.1:{}",
                peer.address,
                servers[1].port()
            );
            let client = within(LockClient::connect(&url)).await.unwrap();
            for _ in 0..3 {
                let lock = client
                    .reentrant_lock("auto")
                    .with_durability(Durability::Auto);
                let guard = within(lock.lock()).await.unwrap();
                assert_eq!(guard.acknowledgements(), None, "{words}");
                assert_eq!(guard.unlock().await, Ok(Released::Fully));
            }
            assert_eq!(sent.load(Ordering::SeqCst), 1, "{words}");
            let told = lines.with("WAIT is refused");
            assert_eq!(told.len(), 1, "{words}: {told:?}");
            for durability in [
                Durability::Majority,
                Durability::All,
                Durability::Replicas(1),
            ] {
                let lock = client
                    .reentrant_lock("demanded")
                    .with_durability(durability);
                let error = within(lock.lock()).await.unwrap_err();
                assert!(matches!(error, Error::Redis { .. }), "{words}: {error:?}");
                let text = error.to_string();
                assert!(
                    text.contains(words.trim()) && text.contains("WAIT"),
                    "{text}"
                );
                let is_free =
                    async || client.reentrant_lock("demanded").is_locked().await == Ok(false);
                eventually("nothing is held", SOON, is_free).await;
            }
        }
    }
}

/// Waiters poll on the connections that there are.
#[tokio::test]
async fn subscribe_that_is_missing_in_any_words_costs_no_connection() {
    let server = Server::start().await;
    let mut config = Config::default();
    config.max_poll_interval = Duration::from_millis(100);
    for words in WORDS {
        let (lines, _keep) = LogLines::record(tracing::Level::WARN);
        let (peer, _sent) = without(server.port(), "SUBSCRIBE", words).await;
        let builder = LockClient::builder().url(peer.url()).config(config.clone());
        let client = within(builder.build()).await.unwrap();
        let holder = LockClient::connect(&server.url()).await.unwrap();
        let held = holder.reentrant_lock("held").lock().await.unwrap();
        let waiter = client.reentrant_lock("held");
        let waiting = tokio::spawn(async move { waiter.lock().await?.unlock().await });
        let told = async || !lines.with("refuses the subscription").is_empty();
        eventually("the refusal is logged", SOON, told).await;
        assert_eq!(held.unlock().await, Ok(Released::Fully));
        assert_eq!(
            within(waiting).await.unwrap(),
            Ok(Released::Fully),
            "{words}"
        );
        assert_eq!(peer.connections(), 2, "{words}");
        let told = lines.with("refuses the subscription");
        assert_eq!(told.len(), 1, "{words}: {told:?}");
        assert!(told[0].contains(words.trim()), "{words}: {told:?}");
    }
}

/// The text is sent instead, after one refusal for each connection.
#[tokio::test]
async fn evalsha_that_is_missing_is_replaced_by_eval() {
    let set_up = Replicated::start(1).await;
    let port = set_up.servers[0].port();
    for words in [
        "ERR unknown command 'EVALSHA', with args beginning with: ",
        "ERR unsupported command",
        "ERR command evalsha is not allowed",
    ] {
        let (peer, sent) = without(port, "EVALSHA", words).await;
        let client = within(LockClient::connect(&peer.url())).await.unwrap();
        let lock = client.reentrant_lock("a");
        for _ in 0..3 {
            let guard = within(lock.lock()).await.unwrap();
            assert_eq!(guard.unlock().await, Ok(Released::Fully), "{words}");
        }
        assert_eq!(sent.load(Ordering::SeqCst), 1, "{words}");
        let lock = lock.with_durability(Durability::Replicas(1));
        for _ in 0..3 {
            let guard = within(lock.lock()).await.unwrap();
            assert_eq!(guard.acknowledgements(), Some(1), "{words}");
            assert_eq!(guard.unlock().await, Ok(Released::Fully), "{words}");
        }
    }
}
