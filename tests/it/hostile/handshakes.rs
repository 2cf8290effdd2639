//! Peers that refuse `HELLO`, each in its own way.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use redisson_lock::{Error, LockClient, LockClientBuilder, Owner, Protocol, Released};
use testbed::{Clustered, Fate, Impostor, Server, Watched, eventually};

use super::{SOON, within};

/// Answers to `HELLO` of servers and proxies, as public reports show them; `None` closes the connection, as twemproxy does.
const REFUSALS: [Option<&str>; 30] = [
    Some(
        "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `s3cret`, ",
    ),
    Some("-ERR unknown command 'HELLO'"),
    Some("-ERR unsupported command"),
    Some("-ERR unsupported command `hello`"),
    Some("-ERR invalid command 'HELLO'"),
    Some("-ERR unknown or unsupported command 'hello'"),
    Some("-ERR command 'HELLO' is not allowed"),
    Some("-ERR handle request, command 'HELLO' is not allowed"),
    Some("-ERR Protocol version is not an integer or out of range"),
    Some("-ERR DB index is out of range"),
    Some("-NOPROTO unsupported protocol version"),
    Some("-NOPROTO sorry, this protocol version is not supported"),
    Some("-ERR RESP3 is not supported by this proxy"),
    Some("-ERR syntax error"),
    Some("-ERR Syntax error in HELLO option 'AUTH'"),
    Some("-ERR wrong number of arguments for 'hello' command"),
    Some("-ERR HELLO AUTH is not supported, use AUTH"),
    Some("-NOPERM this user has no permissions to run the 'hello' command"),
    Some("-NOPERM this user has no permissions to run the 'hello' command or its subcommand"),
    Some(
        "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used",
    ),
    Some("-NOAUTH Authentication required."),
    Some("-ERR max daily request limit exceeded. Limit: 10000, Usage: 10000."),
    Some("-BUSY Redis is busy running a script."),
    Some("-"),
    Some("+OK"),
    Some("$-1"),
    Some(":3"),
    Some("*0"),
    Some("*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2"),
    None,
];

/// Refuses `HELLO`, and passes the rest on.
fn without_hello(refusal: Option<&str>) -> impl Fn(&[&[u8]]) -> Fate + Send + Sync + 'static {
    let refusal = refusal.map(|refusal| format!("{refusal}\r\n"));
    move |words| match (words[0], &refusal) {
        (b"HELLO", Some(refusal)) => Fate::text(refusal),
        (b"HELLO", None) => Fate::HangUp,
        _ => Fate::Pass,
    }
}

/// Acquires a lock, waits for it in another task, and hands it over by a message.
async fn works(client: &LockClient, name: &str) {
    let lock = client.reentrant_lock(name);
    let guard = within(lock.lock()).await.unwrap();
    let other = lock.owned_by(&Owner::new());
    let waiter = tokio::spawn(async move { other.lock().await?.unlock().await });
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(within(waiter).await.unwrap(), Ok(Released::Fully));
}

const WITH_PASSWORD: [&str; 4] = ["--requirepass", "s3cret", "--masterauth", "s3cret"];

fn login(builder: LockClientBuilder, has_password: bool) -> LockClientBuilder {
    match has_password {
        true => builder.credentials("", "s3cret"),
        false => builder,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_hello_leads_to_resp2_whatever_the_words() {
    for has_password in [false, true] {
        let options: &[&str] = if has_password { &WITH_PASSWORD } else { &[] };
        let server = Server::start_with(options).await;
        for refusal in REFUSALS {
            let peer = Impostor::start(Some(server.port()), without_hello(refusal)).await;
            let builder = login(LockClient::builder().url(peer.url()), has_password);
            let client = within(builder.build()).await;
            let client = client.unwrap_or_else(|error| panic!("{refusal:?}: {error}"));
            // The first connection asks twice, and the second one knows the answer.
            assert_eq!(peer.connections(), 3, "{refusal:?}");
            works(&client, "a").await;
        }
    }
}

/// A refusal in words, an answer that is no map, and a close.
const SORTS: [Option<&str>; 3] = [REFUSALS[16], REFUSALS[24], None];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_master_may_refuse_hello() {
    for has_password in [false, true] {
        let options: &[&str] = if has_password { &WITH_PASSWORD } else { &[] };
        let of_sentinels = if has_password { &options[..2] } else { &[] };
        let settings: &[(&str, &str)] = match has_password {
            true => &[("auth-pass", "s3cret")],
            false => &[],
        };
        let watched = Watched::start_as(options, of_sentinels, settings).await;
        for refusal in SORTS {
            let all = watched.replicated.servers.iter().chain(&watched.sentinels);
            let (_peers, ports) = behind_impostors(all, refusal).await;
            let nodes = watched
                .sentinels
                .iter()
                .map(|sentinel| ports[&sentinel.port()]);
            let nodes = nodes.map(|port| format!("127.0.0.1:{port}"));
            let builder = LockClient::builder().sentinel(Watched::SERVICE, nodes);
            let mut builder = login(builder, has_password);
            if has_password {
                builder = builder.sentinel_credentials("", "s3cret");
            }
            let builder = builder.address_map(move |host, port| (host.into(), ports[&port]));
            let client = within(builder.build()).await;
            let client = client.unwrap_or_else(|error| panic!("{refusal:?}: {error}"));
            works(&client, "a").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_cluster_may_refuse_hello() {
    for has_password in [false, true] {
        let options: &[&str] = if has_password { &WITH_PASSWORD } else { &[] };
        let cluster = Clustered::start_with(3, false, options).await;
        for refusal in SORTS {
            let (_peers, ports) = behind_impostors(&cluster.servers, refusal).await;
            let node = format!("127.0.0.1:{}", ports[&cluster.servers[0].port()]);
            let builder = login(LockClient::builder().cluster([node]), has_password);
            let builder = builder.address_map(move |host, port| (host.into(), ports[&port]));
            let client = within(builder.build()).await;
            let client = client.unwrap_or_else(|error| panic!("{refusal:?}: {error}"));
            for node in 0..3 {
                works(&client, &cluster.name_on(node, "order").await).await;
            }
        }
    }
}

/// An impostor in front of each server, by the server's port.
async fn behind_impostors(
    servers: impl IntoIterator<Item = &Server>,
    refusal: Option<&str>,
) -> (Vec<Impostor>, HashMap<u16, u16>) {
    let (mut peers, mut ports) = (Vec::new(), HashMap::new());
    for server in servers {
        let peer = Impostor::start(Some(server.port()), without_hello(refusal)).await;
        ports.insert(server.port(), peer.port());
        peers.push(peer);
    }
    (peers, ports)
}

/// Redis before 6.2.2 checks `HELLO` by the rights of `default`, before it looks at the user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn default_user_without_rights_does_not_keep_other_users_out() {
    for rule in [
        &["off"][..],
        &["-@all"],
        &["reset"],
        &["resetpass", "-@all"],
    ] {
        let server = Server::start().await;
        let user = [
            "ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all",
        ];
        let old = ["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all"];
        let is_old = server.info("server").await["redis_version"].starts_with("6.0");
        let user: &[&str] = if is_old { &old } else { &user };
        server.command::<()>(user).await;
        let mut admin = server.admin().await;
        let () = redis::cmd("ACL")
            .arg("SETUSER")
            .arg("default")
            .arg(rule)
            .query_async(&mut admin)
            .await
            .unwrap();
        let url = format!("redis://app:s3cret@127.0.0.1:{}", server.port());
        let client = within(LockClient::connect(&url)).await;
        let client = client.unwrap_or_else(|error| panic!("{rule:?}: {error}"));
        works(&client, "a").await;
    }
}

/// A proxy that closes the connection on a command that it does not know.
#[tokio::test]
async fn a_proxy_that_closes_on_each_unknown_command_is_asked_for_none() {
    let server = Server::start().await;
    let pings = Arc::new(AtomicUsize::new(0));
    let count = pings.clone();
    let peer = Impostor::start(Some(server.port()), move |words| match words {
        [b"PING"] => {
            count.fetch_add(1, Ordering::SeqCst);
            Fate::text("+PONG\r\n")
        }
        [b"AUTH" | b"EVAL" | b"EVALSHA" | b"QUIT", ..] => Fate::Pass,
        _ => Fate::HangUp,
    });
    let peer = peer.await;
    for (protocol, connections) in [(Protocol::Auto, 4), (Protocol::Resp2, 3)] {
        let before = peer.connections();
        let url = format!("{}/0", peer.url());
        let builder = LockClient::builder().url(url).protocol(protocol);
        let client = within(builder.build()).await.unwrap();
        assert_eq!(peer.connections() - before, connections, "{protocol:?}");
        let guard = within(client.spin_lock("a").lock()).await.unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        let (before, connected) = (pings.load(Ordering::SeqCst), peer.connections());
        let pinged = async || pings.load(Ordering::SeqCst) >= before + 4;
        eventually("a quiet connection is checked", SOON, pinged).await;
        assert_eq!(peer.connections(), connected, "{protocol:?}");
    }
}

/// Counts logins, and answers them.
fn login_counter(answer: &'static str) -> (Arc<AtomicUsize>, impl Fn(&[&[u8]]) -> Fate) {
    let logins = Arc::new(AtomicUsize::new(0));
    let count = logins.clone();
    let decide = move |words: &[&[u8]]| match words[0] {
        b"AUTH" => {
            count.fetch_add(1, Ordering::SeqCst);
            Fate::text(answer)
        }
        b"HELLO" if words.len() > 2 => {
            count.fetch_add(1, Ordering::SeqCst);
            Fate::text(answer)
        }
        _ => Fate::Pass,
    };
    (logins, decide)
}

/// A second login could lock the user out.
#[tokio::test]
async fn refused_credentials_are_sent_once() {
    for answer in [
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        "-WRONGPASS Invalid username/password combination.\r\n",
        "-WRONGPASS invalid or missing auth token\r\n",
        "-ERR invalid password\r\n",
        "-ERR wrong password\r\n",
        "-ERR Authentication failed.\r\n",
        "-ERR AUTH failed: account is locked\r\n",
        "-ERR AUTH <password> called without any password configured for the default user.\r\n",
        "-ERR Client sent AUTH, but no password is set\r\n",
    ] {
        let (logins, decide) = login_counter(answer);
        let peer = Impostor::start(None, decide).await;
        let url = format!("redis://u:s3cret@{}", peer.address);
        let error = within(LockClient::connect(&url)).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{answer}: {error:?}");
        assert!(error.to_string().contains(answer[1..].trim()), "{error}");
        assert_eq!(logins.load(Ordering::SeqCst), 1, "{answer}");
        assert_eq!(peer.connections(), 1, "{answer}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_both_versions_is_reported_with_its_words() {
    for has_password in [false, true] {
        for refusal in [
            "ERR illegal address",
            "ERR Client IP address is not in the allowlist.",
            "DENIED Redis is running in protected mode",
            "NOPROXY out of range",
        ] {
            let peer = Impostor::start(None, move |_| Fate::text(&format!("-{refusal}\r\n")));
            let peer = peer.await;
            let builder = || login(LockClient::builder().url(peer.url()), has_password);
            let error = within(builder().build()).await.unwrap_err();
            assert!(
                matches!(&error, Error::Redis { message, .. } if message == refusal),
                "{error:?}"
            );
            assert_eq!(peer.connections(), 2, "{refusal}");
        }
    }
    // The words of the refused HELLO, if there are no later ones.
    let peer = Impostor::start(None, |words| match words[0] {
        b"HELLO" => Fate::text("-ERR no clients today\r\n"),
        _ => Fate::HangUp,
    });
    let peer = peer.await;
    let error = within(LockClient::connect(&peer.url())).await.unwrap_err();
    assert!(
        crate::in_full(&error).contains("no clients today"),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_setting_decides_on_hello() {
    let server = Server::start().await;
    let said: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let record = said.clone();
    let peer = Impostor::start(Some(server.port()), move |words| {
        record.lock().unwrap().push(words[0].to_vec());
        Fate::Pass
    });
    let peer = peer.await;
    let has_said_hello = || {
        let said = std::mem::take(&mut *said.lock().unwrap());
        assert!(!said.is_empty());
        said.contains(&b"HELLO".to_vec())
    };
    let url = peer.url();
    for (protocol, is_expected) in [
        (Protocol::Auto, true),
        (Protocol::Resp2, false),
        (Protocol::Resp3, true),
    ] {
        let client = LockClient::builder().url(&url).protocol(protocol);
        works(&client.build().await.unwrap(), "a").await;
        assert_eq!(has_said_hello(), is_expected, "{protocol:?}");
    }
    for (parameter, is_expected) in [
        ("RESP2", false),
        ("resp3", true),
        ("2", false),
        ("auto", true),
    ] {
        let client = LockClient::connect(format!("{url}?protocol={parameter}"))
            .await
            .unwrap();
        works(&client, "a").await;
        assert_eq!(has_said_hello(), is_expected, "{parameter}");
    }
    // A builder's call overrides the URL.
    let builder = LockClient::builder().url(format!("{url}?protocol=RESP3"));
    let client = builder.protocol(Protocol::Resp2).build().await.unwrap();
    works(&client, "a").await;
    assert!(!has_said_hello());
    let error = LockClient::connect(format!("{url}?protocol=RESP4"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("RESP2 or RESP3"), "{error}");

    let old = Impostor::start(Some(server.port()), without_hello(REFUSALS[2])).await;
    let builder = LockClient::builder()
        .url(old.url())
        .protocol(Protocol::Resp3);
    let error = within(builder.build()).await.unwrap_err();
    assert!(error.to_string().contains("unsupported command"), "{error}");
    assert_eq!(old.connections(), 1);
}

/// One restart of the server during `HELLO` once made the client speak RESP2 for the rest of its life.
#[tokio::test]
async fn hello_is_tried_again_after_a_connection_failed() {
    let server = Server::start().await;
    let (is_down, has_hello) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let (down, seen) = (is_down.clone(), has_hello.clone());
    let peer = Impostor::start(Some(server.port()), move |words| {
        let is_down = down.load(Ordering::SeqCst);
        match words[0] {
            b"HELLO" if !is_down => {
                seen.store(true, Ordering::SeqCst);
                Fate::Pass
            }
            // It accepts connections, and closes them.
            _ if is_down => Fate::HangUp,
            _ => Fate::Pass,
        }
    });
    let peer = peer.await;
    let builder = LockClient::builder().url(peer.url()).lazy(true);
    let client = builder.build().await.unwrap();
    eventually("the server closes connections", SOON, async || {
        peer.connections() > 4
    })
    .await;
    is_down.store(false, Ordering::SeqCst);
    works(&client, "a").await;
    assert!(has_hello.load(Ordering::SeqCst));
}

/// Both handshakes share the time of one connection.
#[tokio::test]
async fn a_fallback_does_not_take_the_time_twice() {
    let wait = Duration::from_millis(600);
    for answers_hello in [false, true] {
        let peer = Impostor::start(None, move |words| match words[0] {
            b"HELLO" if answers_hello => Fate::text("-ERR no\r\n"),
            _ => Fate::Silence,
        });
        let peer = peer.await;
        for has_password in [false, true] {
            let builder = LockClient::builder().url(peer.url()).connect_timeout(wait);
            let began = Instant::now();
            let error = within(login(builder, has_password).build()).await;
            let took = began.elapsed();
            assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
            assert!(took >= wait && took < wait * 2, "{took:?}");
        }
    }
}

/// Envoy answers a `PING` by itself, and echoes nothing. A peer that has echoed a number must go on.
#[tokio::test]
async fn a_proxy_that_echoes_no_ping_keeps_its_connections() {
    let server = Server::start().await;
    for is_shifted in [false, true] {
        let pings = Arc::new(AtomicUsize::new(0));
        let count = pings.clone();
        let peer = Impostor::start(Some(server.port()), move |words| match words {
            [b"HELLO" | b"CLIENT", ..] if !is_shifted => Fate::text("-ERR unsupported command\r\n"),
            [b"PING", ..] => match count.fetch_add(1, Ordering::SeqCst) {
                0..4 if is_shifted => Fate::Pass,
                _ => Fate::text("+PONG\r\n"),
            },
            _ => Fate::Pass,
        });
        let peer = peer.await;
        let client = within(LockClient::connect(&peer.url())).await.unwrap();
        let (before, connected) = (pings.load(Ordering::SeqCst), peer.connections());
        let goes_on = async || match is_shifted {
            true => peer.connections() > connected,
            false => pings.load(Ordering::SeqCst) >= before + 4,
        };
        eventually("quiet connections are checked", 2 * SOON, goes_on).await;
        assert_eq!(peer.connections() == connected, !is_shifted);
        works(&client, "a").await;
    }
}
