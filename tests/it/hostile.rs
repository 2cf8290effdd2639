//! Broken or hostile peers, and servers that refuse. None of them ends the process, runs a command,
//! reveals a password or makes a client reconnect in a storm. docs/testing.md has the table.

mod directions;
mod handshakes;
#[path = "../sim/support/log_lines.rs"]
pub mod log_lines;
mod long;
mod missing_commands;
mod outages;
mod passing;
mod publishing;

use std::time::Duration;

use log_lines::LogLines;
use redisson_lock::{Config, Error, LockClient, Owner};
use testbed::{Fate, Impostor, Server, eventually};

use crate::hazards::stage::why;

const SOON: Duration = Duration::from_secs(20);

/// Passwords that Redis accepts, many with characters that URLs, shells or protocols treat
/// specially.
const PASSWORDS: [&str; 16] = [
    "plain",
    "with space",
    " around ",
    "tab\there",
    "new\nline",
    "cr\r\nSET injected 1\r\n",
    "\"quoted\"",
    "it's",
    "back\\slash",
    "$6",
    "*1\r\n",
    "%41%",
    "a+b&c=d?e#f/g:h@i",
    "é ü 漢 🔒",
    "{}[]()<>|;`$(id)",
    "\u{1b}[31m",
];

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(SOON, future).await;
    done.expect("the call ends in time")
}

#[tokio::test]
async fn credentials_arrive_as_they_are_and_run_nothing() {
    for resp3 in [true, false] {
        let options: &[&str] = if resp3 {
            &[]
        } else {
            &["--rename-command", "HELLO", ""]
        };
        let server = Server::start_with(options).await;
        for password in PASSWORDS {
            let rule = format!(">{password}");
            let words = [
                "ACL", "SETUSER", "app", "reset", "on", &rule, "~*", "&*", "+@all",
            ];
            server.command::<()>(&words).await;
            let port = server.port();
            let url = format!("redis://app:{}@127.0.0.1:{port}", escaped(password));
            let connected = LockClient::connect(&url).await;
            assert!(connected.is_ok(), "{password:?}: {:?}", connected.err());
            let wrong = format!("redis://app%20:{}@127.0.0.1:{port}", escaped(password));
            let error = LockClient::connect(&wrong).await.unwrap_err();
            assert!(
                matches!(error, Error::Config { .. }),
                "another user: {error:?}"
            );
        }
        let keys: u32 = server.command(&["DBSIZE"]).await;
        assert_eq!(keys, 0, "a password ran as a command");
    }
}

#[tokio::test]
async fn a_url_without_a_password_differs_from_one_with_an_empty_password() {
    let server = Server::start().await;
    let words = ["ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all"];
    server.command::<()>(&words).await;
    let at = format!("127.0.0.1:{}", server.port());
    let client = LockClient::connect(&format!("redis://app:@{at}"))
        .await
        .unwrap();
    assert!(client.reentrant_lock("a").try_lock().await.is_ok());
    let clients: String = server.command(&["CLIENT", "LIST"]).await;
    assert_eq!(clients.matches("user=app").count(), 2, "{clients}");
    let error = LockClient::connect(&format!("redis://nosuchuser@{at}")).await;
    assert!(matches!(error, Err(Error::Config { .. })));
}

#[tokio::test]
async fn a_database_with_a_large_number_works() {
    let server = Server::start_with(&["--databases", "70000"]).await;
    let url = format!("redis://127.0.0.1:{}/69999", server.port());
    let client = LockClient::connect(&url).await.unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let keyspace: String = server.command(&["INFO", "keyspace"]).await;
    assert!(keyspace.contains("db69999:keys=1"), "{keyspace}");
    let _ = guard.unlock().await.unwrap();
}

/// Malformed replies: nested without end, longer than any memory, truncated or misplaced.
fn garbage() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 16] = [
        b"$2147483647\r\n",
        b"*2147483647\r\n",
        b"%2147483647\r\n",
        b"$-7\r\n",
        b":x\r\n",
        b"\0\0\0\0",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"*?\r\n",
        b"$3\r\nabcdef\r\n",
        b"|1\r\n+a\r\n",
        b">1\r\n$7\r\nmessage\r\n",
        b"_\r\n",
        b"#x\r\n",
        b"*0\r\n",
        b"+\xff\xfe\r\n",
        b"-\r\n",
    ];
    let mut garbage: Vec<Vec<u8>> = texts.map(<[u8]>::to_vec).into();
    for nesting in ["*1\r\n", "%1\r\n+a\r\n", "~1\r\n", ">1\r\n", "|1\r\n+a\r\n"] {
        garbage.push(nesting.repeat(100_000).into_bytes());
    }
    garbage
}

#[tokio::test]
async fn garbage_at_the_handshake_fails_only_the_attempt() {
    for garbage in garbage() {
        let shown = String::from_utf8_lossy(&garbage[..garbage.len().min(30)]).into_owned();
        let peer = Impostor::start(None, move |_| Fate::Answer(garbage.clone())).await;
        let error = within(LockClient::connect(&peer.url())).await.unwrap_err();
        let is_expected = matches!(error, Error::Unavailable { .. } | Error::Redis { .. });
        assert!(is_expected, "{shown:?}: {error:?}");
        assert!(crate::in_full(&error).len() < 500, "{shown:?}: {error}");
    }
}

#[tokio::test]
async fn garbage_instead_of_a_reply_ends_only_the_connection() {
    let server = Server::start().await;
    for garbage in garbage() {
        let shown = String::from_utf8_lossy(&garbage[..garbage.len().min(30)]).into_owned();
        let peer = Impostor::start(Some(server.port()), move |words| match words[0] {
            b"EVALSHA" | b"EVAL" => Fate::Answer(garbage.clone()),
            _ => Fate::Pass,
        });
        let peer = peer.await;
        let mut config = Config::default();
        config.command_wait = Duration::from_millis(300);
        let builder = LockClient::builder().url(peer.url()).config(config);
        let client = builder.build().await.unwrap();
        let tried = within(client.reentrant_lock("a").try_lock()).await;
        let is_expected = matches!(tried, Err(Error::Unavailable { .. } | Error::Redis { .. }));
        assert!(is_expected, "{shown:?}: {tried:?}");
    }
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
}

/// Resident memory of this process in bytes.
fn memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn an_endless_string_takes_no_memory() {
    let peer = Impostor::start(None, |words| match words[0] {
        b"HELLO" => Fate::LongString(1_000_000_000),
        _ => Fate::Pass,
    });
    let peer = peer.await;
    let before = memory();
    let error = within(LockClient::connect(&peer.url())).await.unwrap_err();
    assert!(crate::in_full(&error).contains("larger than"), "{error}");
    // Other tests run in this process, and take memory, too.
    let grown = memory().saturating_sub(before);
    assert!(grown < 300 << 20, "{grown} bytes");
}

/// The reply of an old server, or of one with renamed commands, to an unknown command.
fn echo(words: &[&[u8]]) -> Fate {
    let mut text = String::from("-ERR unknown command '");
    text += &String::from_utf8_lossy(words[0]);
    text += "', with args beginning with: ";
    for word in &words[1..] {
        text += &format!("'{}' ", String::from_utf8_lossy(word));
    }
    Fate::text(&(text + "\r\n"))
}

#[tokio::test]
async fn no_log_and_no_error_shows_a_password() {
    let (lines, _keep) = LogLines::record(tracing::Level::TRACE);
    let servers = [
        Server::start_with(&["--requirepass", "s3cret", "--rename-command", "HELLO", ""]).await,
        Server::start_with(&[
            "--requirepass",
            "s3cret",
            "--rename-command",
            "HELLO",
            "",
            "--rename-command",
            "AUTH",
            "",
        ])
        .await,
    ];
    for server in &servers {
        for login in ["u:s3cret", ":s3cret", "u:s3cret%0A"] {
            let url = format!("redis://{login}@127.0.0.1:{}", server.port());
            if let Err(error) = within(LockClient::connect(&url)).await {
                assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
            }
        }
    }
    // A proxy with error messages of its own.
    let proxy = |words: &[&[u8]]| match words[0] {
        b"HELLO" => echo(words),
        b"AUTH" => Fate::text(&format!(
            "-ERR \x1b[31mno such user as {}\r\n",
            String::from_utf8_lossy(&words.concat())
        )),
        _ => Fate::Pass,
    };
    let peer = Impostor::start(None, proxy).await;
    let url = format!("redis://u:s3cret@{}", peer.address);
    let error = within(LockClient::connect(&url)).await.unwrap_err();
    assert!(crate::in_full(&error).contains("no such user"), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    assert!(!crate::in_full(&error).contains('\x1b'), "{error}");
    let logged = lines.with("s3cret");
    assert!(logged.is_empty(), "{logged:?}");
}

#[tokio::test]
async fn a_full_server_is_reported_as_unavailable() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    let mut set = redis::cmd("CONFIG");
    let () = set
        .arg("SET")
        .arg("maxclients")
        .arg("1")
        .query_async(&mut admin)
        .await
        .unwrap();
    let url = server.url();
    let error = within(LockClient::connect(&url)).await;
    let why = why(&error.unwrap_err());
    assert!(why.contains("max number of clients"), "{why}");
}

#[tokio::test]
async fn the_cause_reaches_the_caller() {
    use std::error::Error as _;

    let server = Server::start_with(&["--requirepass", "right"]).await;
    let mut config = Config::default();
    config.command_wait = Duration::from_millis(1500);
    let url = format!("redis://:right@127.0.0.1:{}", server.port());
    let builder = LockClient::builder().url(&url).config(config.clone());
    let client = builder.build().await.unwrap();
    let lock = client.reentrant_lock("a");
    let mut admin = server.admin().await;
    let () = redis::cmd("CONFIG")
        .arg("SET")
        .arg("requirepass")
        .arg("changed")
        .query_async(&mut admin)
        .await
        .unwrap();
    let () = redis::cmd("CLIENT")
        .arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes")
        .query_async(&mut admin)
        .await
        .unwrap();
    let is_reported = async || {
        let errors = [lock.try_lock().await.err(), lock.is_locked().await.err()];
        errors.iter().all(|error| {
            let error = error
                .as_ref()
                .map(|error| (error.to_string(), error.source().map(ToString::to_string)));
            error.is_some_and(|(text, source)| {
                source.is_some_and(|source| {
                    let named = source.contains("password") && source.contains("WRONGPASS");
                    named && text.matches(&source).count() == 1
                })
            })
        })
    };
    eventually("the error names the password", SOON, is_reported).await;

    for message in [
        "LOADING dataset",
        "BUSY script",
        "MOVED 1 127.0.0.1:1",
        "CLUSTERDOWN The cluster is down",
        "MASTERDOWN no",
    ] {
        let peer = Impostor::start(None, move |words| match words[0] {
            b"EVALSHA" | b"EVAL" => Fate::text(&format!("-{message}\r\n")),
            _ => Fate::Pass,
        });
        let peer = peer.await;
        let builder = LockClient::builder().url(peer.url()).config(config.clone());
        let client = builder.build().await.unwrap();
        let lock = client.reentrant_lock("a");
        for error in [lock.try_lock().await.err(), lock.is_locked().await.err()] {
            let why = why(&error.expect("the call is refused"));
            assert!(why.contains(message), "{message}: {why}");
        }
        assert_eq!(peer.connections(), 2, "{message} must not end a connection");
    }
}

/// Holds the lock `held` and starts a client that waits for it.
async fn waits_for_a_held_lock(url: &str, server: &Server) -> tokio::task::JoinHandle<()> {
    let holder = LockClient::connect(&server.url()).await.unwrap();
    holder.reentrant_lock("held").lock().await.unwrap().leak();
    let client = LockClient::connect(url).await.unwrap();
    tokio::spawn(async move {
        let _holder = holder;
        let lock = client.reentrant_lock("held").owned_by(&Owner::new());
        let _ = lock.lock().await;
    })
}

#[tokio::test]
async fn a_server_that_closes_on_a_command_is_not_stormed() {
    let server = Server::start().await;
    for closes_on in ["SUBSCRIBE", "EVALSHA"] {
        let (lines, _keep) = LogLines::record(tracing::Level::INFO);
        let peer = Impostor::start(Some(server.port()), move |words| match words[0] {
            word if word == closes_on.as_bytes() => Fate::HangUp,
            _ => Fate::Pass,
        });
        let peer = peer.await;
        let waiter = waits_for_a_held_lock(&peer.url(), &server).await;
        // By now the pauses between connections have their greatest length.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let before = peer.connections();
        tokio::time::sleep(Duration::from_secs(6)).await;
        let after = peer.connections();
        assert!(before <= 20, "{closes_on}: {before} connections");
        assert!(
            after - before <= 6,
            "{closes_on}: {} connections in 6 s",
            after - before
        );
        let logged = lines.with("");
        assert!(logged.len() <= 10, "{closes_on}: {logged:#?}");
        waiter.abort();
        server.command::<()>(&["FLUSHALL"]).await;
    }
}

/// Creates a user with all commands and these rights.
async fn admit(server: &Server, rights: &[&str]) -> String {
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all"];
    server.command::<()>(&[&user[..], rights].concat()).await;
    format!("redis://app:pw@127.0.0.1:{}", server.port())
}

async fn connections_made(server: &Server) -> u64 {
    let stats = server.info("stats").await;
    stats["total_connections_received"].parse().unwrap()
}

#[tokio::test]
async fn refused_channels_cost_no_connection_however_many_there_are() {
    let server = Server::start().await;
    let url = admit(&server, &["&*", "-subscribe", "-ssubscribe"]).await;
    let mut config = Config::default();
    config.max_poll_interval = Duration::from_millis(200);
    let builder = LockClient::builder().url(url).config(config);
    let client = builder.build().await.unwrap();
    let before = connections_made(&server).await;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..50 {
        let lock = client.reentrant_lock(format!("name:{number}"));
        let guard = lock.lock().await.unwrap();
        let other = lock.owned_by(&Owner::new());
        waiting.spawn(async move { other.lock().await.map(drop) });
        waiting.spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            guard.unlock().await.map(drop)
        });
    }
    while let Some(done) = within(waiting.join_next()).await {
        assert_eq!(done.unwrap(), Ok(()));
    }
    // The test's own commands make one connection.
    assert_eq!(connections_made(&server).await - before, 1);
}

#[tokio::test]
async fn a_user_that_may_not_publish_gets_no_lock_that_it_could_not_release() {
    let server = Server::start().await;
    let url = admit(&server, &["resetchannels", "&redisson_lock__channel:{ok*"]).await;
    let client = LockClient::connect(&url).await.unwrap();
    for _ in 0..2 {
        let error = client.reentrant_lock("no").try_lock().await.unwrap_err();
        assert!(matches!(error, Error::Redis { .. }), "{error:?}");
        assert!(error.to_string().contains("may not publish"), "{error}");
    }
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
    let guard = client.reentrant_lock("ok").lock().await.unwrap();
    let _ = guard.unlock().await.unwrap();
    server.reset_calls().await;
    let guard = client.reentrant_lock("ok").lock().await.unwrap();
    let _ = guard.unlock().await.unwrap();
    assert_eq!(
        server.calls().await.get("eval"),
        None,
        "the right to publish is checked once"
    );
}

/// The guarantee about late execution rests on this: the client kills a broken connection by its
/// id.
#[tokio::test]
async fn a_connection_opened_while_the_server_was_busy_is_killed_later() {
    let server = Server::start_with(&["--lua-time-limit", "50"]).await;
    let (mut busy, mut admin) = (server.admin().await, server.admin().await);
    let script = tokio::spawn(async move {
        let mut endless = redis::cmd("EVAL");
        let endless = endless.arg("while true do end").arg(0);
        endless.query_async::<()>(&mut busy).await
    });
    let is_busy = async || {
        let ping = redis::cmd("PING").query_async::<String>(&mut admin).await;
        ping.is_err_and(|error| error.to_string().contains("BUSY") || error.code() == Some("BUSY"))
    };
    eventually("the server is busy", SOON, is_busy).await;
    let client = within(LockClient::connect(&server.url())).await.unwrap();
    let mut kill = redis::cmd("SCRIPT");
    let () = kill.arg("KILL").query_async(&mut admin).await.unwrap();
    assert!(script.await.unwrap().is_err());
    let known = async || {
        server
            .calls()
            .await
            .get("client|info")
            .is_some_and(|calls| *calls > 0)
    };
    eventually("the client asks for its connection's id", SOON, known).await;
    let mut kill = redis::cmd("CLIENT");
    let kill = kill
        .arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes");
    let () = kill.query_async(&mut admin).await.unwrap();
    let guard = within(client.reentrant_lock("a").lock()).await.unwrap();
    let killed = async || server.calls().await.get("client|kill") > Some(&1);
    eventually("the client kills its old connection", SOON, killed).await;
    let _ = guard.unlock().await.unwrap();
}
