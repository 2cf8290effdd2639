//! One outage has one text, whatever a caller did: with the server, and the cause if it is known.

use std::{pin::Pin, time::Duration};

use redisson_lock::{Config, Error, Guard, LockClient, Owner, Reentrant};
use testbed::Server;

use crate::in_full;

const WAIT: Duration = Duration::from_millis(200);

type Failing<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// A client with holds on the locks `unlocked`, `extended` and `checked`, and with waiters.
struct Bed {
    server: Server,
    client: LockClient,
    guards: Vec<Guard<Reentrant>>,
}

impl Bed {
    async fn new() -> Self {
        let server = Server::start().await;
        let config = Config::default()
            .with_command_wait(WAIT)
            .with_outage_wait(WAIT);
        let client = LockClient::builder().url(server.url()).config(config);
        let client = client.await.unwrap();
        let mut guards = Vec::new();
        for name in ["dropped", "leaked", "unlocked", "extended", "checked"] {
            guards.push(client.reentrant_lock(name).lock().await.unwrap());
        }
        Self {
            server,
            client,
            guards,
        }
    }

    /// The texts of all operations, which fail together.
    async fn texts(self) -> Vec<(&'static str, String)> {
        let client = &self.client;
        let mut guards = self.guards.into_iter();
        let mut next = || guards.next().unwrap();
        drop(next());
        next().leak();
        let (unlocked, extended, checked) = (next(), next(), next());
        let (checked, extended) = (&checked, &extended);
        let lock = |name| client.reentrant_lock(name).owned_by(&Owner::new());
        let semaphore = client.semaphore("semaphore");
        let expirable = client.permit_expirable_semaphore("expirable");
        let latch = client.count_down_latch("latch");
        let group = client.multi_lock(["a", "b"]);
        let majority = client.multi_lock(["c", "d"]);
        let side = client.read_write_lock("side");
        let calls: Vec<(&str, Failing<'_>)> = vec![
            ("lock", Box::pin(async { lock("1").lock().await.map(drop) })),
            (
                "fair lock",
                Box::pin(async { client.fair_lock("2").lock().await.map(drop) }),
            ),
            (
                "spin lock",
                Box::pin(async { client.spin_lock("3").lock().await.map(drop) }),
            ),
            (
                "read",
                Box::pin(async { side.read().lock().await.map(drop) }),
            ),
            (
                "try_lock",
                Box::pin(async { lock("4").try_lock().await.map(drop) }),
            ),
            (
                "try_lock behind one",
                Box::pin(async { lock("1").try_lock_for(WAIT / 2).await.map(drop) }),
            ),
            (
                "try_lock_for",
                Box::pin(async { lock("5").try_lock_for(WAIT).await.map(drop) }),
            ),
            (
                "try_lock after a drop",
                Box::pin(async { lock("dropped").try_lock().await.map(drop) }),
            ),
            ("run", Box::pin(async { lock("6").run(async |_| ()).await })),
            (
                "unlock of a leak",
                Box::pin(async { client.reentrant_lock("leaked").unlock().await.map(drop) }),
            ),
            (
                "unlock",
                Box::pin(async { unlocked.unlock().await.map(drop) }),
            ),
            (
                "extend",
                Box::pin(async { extended.extend(Duration::from_secs(60)).await }),
            ),
            ("check", Box::pin(async { checked.check().await })),
            (
                "is_locked",
                Box::pin(async { lock("7").is_locked().await.map(drop) }),
            ),
            (
                "holders",
                Box::pin(async { lock("8").holders().await.map(drop) }),
            ),
            (
                "force_unlock",
                Box::pin(async { lock("9").force_unlock().await.map(drop) }),
            ),
            ("group", Box::pin(async { group.lock().await.map(drop) })),
            (
                "try group",
                Box::pin(async { majority.try_lock().await.map(drop) }),
            ),
            (
                "semaphore",
                Box::pin(async { semaphore.acquire().await.map(drop) }),
            ),
            (
                "try semaphore",
                Box::pin(async { semaphore.try_acquire().await.map(drop) }),
            ),
            (
                "permits",
                Box::pin(async { semaphore.available_permits().await.map(drop) }),
            ),
            (
                "add_permits",
                Box::pin(async { semaphore.add_permits(1).await }),
            ),
            (
                "expirable",
                Box::pin(async { expirable.acquired_permits().await.map(drop) }),
            ),
            ("latch", Box::pin(async { latch.wait().await })),
            ("count_down", Box::pin(async { latch.count_down().await })),
            ("ping", Box::pin(async { client.ping().await.map(drop) })),
        ];
        let (names, calls): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let ended = futures_util::future::join_all(calls).await;
        let told = ended.into_iter().map(|ended| {
            let error = ended.expect_err("the server is away");
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
            in_full(&error)
        });
        names.into_iter().zip(told).collect()
    }
}

/// Asserts that all texts are among these, but for notes on what follows for this caller.
fn assert_among(told: &[(&str, String)], texts: &[String]) {
    let notes = [
        "; the operation goes on in the background",
        "; the server may or may not have executed the request",
    ];
    for (name, text) in told {
        let plain = notes
            .iter()
            .fold(text.clone(), |text, note| text.replace(note, ""));
        assert!(texts.contains(&plain), "{name}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_ended_is_one_text_with_its_host_and_cause() {
    let bed = Bed::new().await;
    let port = bed.server.port();
    bed.server.kill();
    // The end of the connection may come with words of its own, before an attempt to connect.
    let client = bed.client.clone();
    testbed::eventually("the client connects in vain", 100 * WAIT, async || {
        let text = in_full(&client.ping().await.unwrap_err());
        text.contains("refused")
    })
    .await;
    let cause = format!("Connection refused (os error {})", refused_number());
    let text = format!(
        "Redis could not be reached: there is no connection (server 127.0.0.1:{port}): {cause}: {cause}"
    );
    assert_among(&bed.texts().await, &[text]);
}

/// The number of the error of a port without a listener.
fn refused_number() -> i32 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let refused = std::net::TcpStream::connect(address).unwrap_err();
    refused.raw_os_error().unwrap()
}

/// The client takes a silent connection for dead after a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_nothing_has_one_text_for_each_state() {
    let bed = Bed::new().await;
    let server = format!("(server 127.0.0.1:{})", bed.server.port());
    bed.server.pause();
    let silent = format!("Redis could not be reached: no answer came in time {server}");
    let cause = "the server did not answer PING";
    let dead =
        format!("Redis could not be reached: there is no connection {server}: {cause}: {cause}");
    assert_among(&bed.texts().await, &[silent, dead]);
}
