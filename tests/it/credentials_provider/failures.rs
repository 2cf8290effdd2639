//! Providers that fail: one failed attempt of one connection, which delays no other.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use redisson_lock::{Credentials, CredentialsRequest, Error, LockClient, Protocol, Released};
use testbed::{Clustered, Fate, Impostor, Server, Watched, eventually};

use super::{SOON, hand_over, within};
use crate::hostile::log_lines::LogLines;

type Provided = Pin<Box<dyn Future<Output = Result<Credentials, String>> + Send>>;

/// What a provider does: 0 to 3 as in [`FAULTS`], and otherwise gives no login.
const FAULTS: [&str; 4] = [
    "the token service answers 503",
    "it panicked",
    "it did not answer within the time for one connection",
    "it panicked",
];

fn faulty(fault: u8) -> Provided {
    match fault {
        0 => Box::pin(async { Err(FAULTS[0].to_owned()) }),
        1 => Box::pin(async { panic!("a defect of the provider") }),
        2 => Box::pin(std::future::pending()),
        3 => panic!("a defect of the provider, before its future"),
        _ => Box::pin(async { Ok(Credentials::none()) }),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_provider_is_a_failed_attempt() {
    let server = Server::start().await;
    for (fault, words) in (0..).zip(FAULTS) {
        let began = Instant::now();
        // A panic prints the stack first, which takes a busy machine a while.
        let wait = Duration::from_millis(if fault == 2 { 300 } else { 5_000 });
        let builder = LockClient::builder()
            .url(server.url())
            .connect_timeout(wait)
            .credentials_provider(move |_| faulty(fault));
        let error = within(builder.build()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let text = crate::in_full(&error);
        assert!(text.contains("credentials provider"), "{text}");
        assert!(text.contains(words), "{text}");
        let port = server.port().to_string();
        assert!(text.contains(&port), "{text}");
        assert!(fault != 2 || began.elapsed() < Duration::from_secs(3));
    }
    let connections = server.info("stats").await["total_connections_received"].clone();
    // The test bed's own.
    assert_eq!(connections, "1", "no connection opens without credentials");
}

/// A thread that blocks is no excuse: the attempt ends in time, and another connection opens meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_blocks_its_thread_ends_in_time() {
    let server = Server::start().await;
    let builder = LockClient::builder()
        .url(server.url())
        .connect_timeout(Duration::from_millis(300))
        .credentials_provider(|_| async {
            std::thread::sleep(Duration::from_secs(3));
            Ok::<_, String>(Credentials::none())
        });
    let began = Instant::now();
    let error = within(builder.build()).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(2), "{error}");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// The server is not to blame if the provider leaves it no time.
#[tokio::test]
async fn a_provider_that_leaves_no_time_is_named() {
    let silent = Impostor::start(None, |_words| Fate::Silence).await;
    let builder = |takes: Duration| {
        let builder = LockClient::builder().url(silent.url());
        let builder = builder.connect_timeout(Duration::from_secs(1));
        builder.credentials_provider(move |_| async move {
            tokio::time::sleep(takes).await;
            Ok::<_, String>(Credentials::none())
        })
    };
    for (takes, is_named) in [(0, false), (700, true)] {
        let builder = builder(Duration::from_millis(takes));
        let error = within(builder.build()).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(text.contains("credentials provider"), is_named, "{text}");
        assert_eq!(text.contains("of the 1s"), is_named, "{text}");
    }
}

/// A node of a cluster has 1.5 s to connect. The first call takes longer, and its result is kept by the provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_call_can_fill_a_cache() {
    let cluster = Clustered::masters(2).await;
    let cache = Arc::new(tokio::sync::OnceCell::new());
    let builder = LockClient::builder()
        .url(cluster.url())
        .retry_start(SOON)
        .credentials_provider(move |_| {
            let cache = cache.clone();
            async move {
                let fetching = async {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    Credentials::none()
                };
                Ok::<_, String>(cache.get_or_init(|| fetching).await.clone())
            }
        });
    let client = within(builder.build()).await.unwrap();
    hand_over([&client, &client], "order").await;
}

#[tokio::test]
async fn a_wrong_password_names_the_provider() {
    let server = Server::start_with(&["--requirepass", "right"]).await;
    for protocol in [Protocol::Auto, Protocol::Resp2] {
        let builder = LockClient::builder()
            .url(server.url())
            .protocol(protocol)
            .credentials_provider(|_| async {
                Ok::<_, String>(Credentials::new("default", "s3cret"))
            });
        let error = within(builder.build()).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(
            text.contains("what the credentials provider returns"),
            "{text}"
        );
        assert!(text.contains("WRONGPASS"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_at_one_node_delays_no_other() {
    let cluster = Clustered::masters(3).await;
    let (failing, fault) = (cluster.servers[2].port(), Arc::new(AtomicU8::new(9)));
    let current = fault.clone();
    let builder = LockClient::builder()
        .url(cluster.url())
        .credentials_provider(move |request: CredentialsRequest| {
            let fault = current.load(Ordering::SeqCst);
            faulty(if request.port == failing { fault } else { 9 })
        });
    let client = within(builder.build()).await.unwrap();
    let mut names = Vec::new();
    for node in 0..3 {
        names.push(cluster.name_on(node, "order").await);
    }
    for is in 0..4 {
        fault.store(is, Ordering::SeqCst);
        for server in &cluster.servers {
            server
                .command::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
                .await;
        }
        let late = client.reentrant_lock(&names[2]);
        let late = tokio::spawn(async move { late.lock().await?.unlock().await });
        for name in &names[..2] {
            hand_over([&client, &client], name).await;
        }
        assert!(!late.is_finished(), "the node is not reached yet");
        fault.store(9, Ordering::SeqCst);
        let released = within(late).await.unwrap();
        assert_eq!(
            released,
            Ok(Released::Fully),
            "after {}",
            FAULTS[usize::from(is)]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_at_one_sentinel_delays_no_other() {
    let watched = Watched::start_some(1, 2).await;
    let failing = watched.sentinels[0].port();
    for fault in 0..4 {
        let builder = LockClient::builder()
            .url(watched.url())
            .credentials_provider(move |request: CredentialsRequest| {
                faulty(if request.port == failing { fault } else { 9 })
            });
        let client = within(builder.build()).await.unwrap();
        hand_over([&client, &client], "order").await;
    }
}

fn echo(words: &[&[u8]]) -> Fate {
    let echo = words.join(&b' ').escape_ascii().to_string();
    Fate::text(&format!("-ERR refused: {echo}\r\n"))
}

/// At the first login, at a later one, by a peer that repeats each password.
#[tokio::test]
async fn no_token_is_shown() {
    let (lines, _keep) = LogLines::record(tracing::Level::TRACE);
    let server = Server::start().await;
    let provider = |_| async {
        let credentials = Credentials::new("app", "s3cret");
        Ok::<_, String>(credentials.valid_for(Duration::from_millis(1)))
    };
    let refuses_all = Impostor::start(Some(server.port()), |words| match words[0] {
        b"HELLO" | b"AUTH" => echo(words),
        _ => Fate::Pass,
    })
    .await;
    let builder = || LockClient::builder().credentials_provider(provider);
    let error = within(builder().url(refuses_all.url()).build()).await;
    let error = error.unwrap_err();
    let text = format!("{error} {error:?} {}", crate::in_full(&error));
    assert!(!text.contains("s3cret"), "{text}");
    // In RESP3, a refused login leaves the connection open.
    let refuses_later = Impostor::start(Some(server.port()), |words| match words {
        [b"HELLO", version, ..] => Fate::PassInstead(vec![b"HELLO".into(), version.to_vec()]),
        [b"AUTH", ..] => echo(words),
        _ => Fate::Pass,
    })
    .await;
    let client = within(builder().url(refuses_later.url()).build()).await;
    let client = client.unwrap();
    eventually("a login is refused, and logged once", SOON, async || {
        lines.with("an open connection cannot log in anew").len() > 2
    })
    .await;
    hand_over([&client, &client], "order").await;
    assert!(!lines.with("ERR refused: AUTH app ..").is_empty());
    assert_eq!(lines.with("s3cret"), Vec::<String>::new());
    let shown = format!("{:?} {client:?}", builder());
    assert!(!shown.contains("s3cret"), "{shown}");
}
