//! The builder's options for connecting: TLS files, time limits, a start before the server's.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use redisson_lock::{Config, Error, LockClient, LockClientBuilder, Released};
use testbed::{Fate, Impostor, Server, run_in, tls_only};

const SOON: Duration = Duration::from_secs(20);

/// A server that speaks TLS only, has a certificate for `redis.internal`, and requires client
/// certificates.
struct Guarded {
    server: Server,
    files: Server,
}

impl Guarded {
    async fn start() -> Self {
        let files = Server::start().await;
        make_certificates(files.dir());
        let options = tls_only(files.dir(), "yes", ["ca.pem", "server.pem", "server.key"]);
        let server = Server::start_with(&options).await;
        Self { server, files }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.dir().join(name)
    }

    fn builder(&self) -> LockClientBuilder {
        let url = format!("rediss://127.0.0.1:{}", self.server.port());
        LockClient::builder().url(url)
    }
}

fn make_certificates(dir: &Path) {
    std::fs::write(dir.join("names"), "subjectAltName=DNS:redis.internal\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2";
    for arguments in [
        format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority -days 2"),
        format!("req -x509 {key} -keyout other.key -out other.pem -subj /CN=other -days 2"),
        format!("req {key} -keyout server.key -out server.csr -subj /CN=server"),
        format!("x509 -req -in server.csr {signed} -extfile names -out server.pem"),
        format!("req {key} -keyout client.key -out client.csr -subj /CN=client"),
        format!("x509 -req -in client.csr {signed} -extfile names -out client.pem"),
    ] {
        run_in(dir, &format!("openssl {arguments}"));
    }
}

async fn refusal(builder: LockClientBuilder) -> String {
    let built = tokio::time::timeout(SOON, builder.build()).await;
    let error = built
        .expect("the call ends in time")
        .expect_err("the call is refused");
    let is_expected = matches!(error, Error::Config { .. } | Error::Unavailable { .. });
    assert!(is_expected, "{error:?}");
    crate::in_full(&error)
}

#[tokio::test]
async fn a_server_that_wants_certificates() {
    let guarded = Guarded::start().await;
    let trusting = || {
        let builder = guarded.builder().ca_file(guarded.file("ca.pem"));
        builder.client_certificate(guarded.file("client.pem"), guarded.file("client.key"))
    };
    let client = trusting()
        .server_name("redis.internal")
        .build()
        .await
        .unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));

    let other_name = refusal(trusting()).await;
    assert!(other_name.contains("not valid for name"), "{other_name}");
    let named = || guarded.builder().server_name("redis.internal");
    let anonymous = refusal(named().ca_file(guarded.file("ca.pem"))).await;
    assert!(
        anonymous.to_lowercase().contains("certificate"),
        "{anonymous}"
    );
    let stranger = refusal(
        trusting()
            .server_name("redis.internal")
            .ca_file(guarded.file("other.pem")),
    );
    let stranger = stranger.await;
    assert!(stranger.contains("certificate"), "{stranger}");
    let system = refusal(named()).await;
    assert!(system.contains("certificate"), "{system}");
}

/// Runs itself again as a child process, because trusted authorities apply to a whole process.
#[tokio::test]
async fn a_client_certificate_works_with_the_authorities_of_the_system() {
    const PORT: &str = "REDISSON_LOCK_TEST_GUARDED_PORT";
    if let Ok(port) = std::env::var(PORT) {
        let client = LockClient::builder()
            .url(format!("rediss://127.0.0.1:{port}"))
            .client_certificate("client.pem", "client.key")
            .server_name("redis.internal")
            .build()
            .await
            .unwrap();
        let guard = client.reentrant_lock("a").lock().await.unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        return;
    }
    let guarded = Guarded::start().await;
    let this = "connecting::a_client_certificate_works_with_the_authorities_of_the_system";
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture"])
        .env("SSL_CERT_FILE", guarded.file("ca.pem"))
        .env(PORT, guarded.server.port().to_string())
        .current_dir(guarded.files.dir())
        .kill_on_drop(true)
        .output();
    let done = tokio::time::timeout(SOON, child)
        .await
        .expect("the child ends in time")
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let has_passed = done.status.success() && text.contains("1 passed");
    assert!(
        has_passed,
        "{text}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[tokio::test]
async fn files_without_the_expected_certificate_or_key_are_refused() {
    let files = Server::start().await;
    make_certificates(files.dir());
    let file = |name: &str| files.dir().join(name);
    std::fs::write(file("store.jks"), b"\xfe\xed\xfe\xed\0\0\0\x02").unwrap();
    std::fs::write(file("empty.pem"), "nothing\n").unwrap();
    let builder = || LockClient::builder().url("rediss://127.0.0.1:1");
    let ca = |name| refusal(builder().ca_file(file(name)));
    let message = ca("store.jks").await;
    assert!(
        message.contains("`trust_store`") && message.contains("store.jks"),
        "{message}"
    );
    assert!(ca("empty.pem").await.contains("no certificate"));
    assert!(ca("missing.pem").await.contains("missing.pem"));
    let mine = |certificate, key| {
        let builder = builder().ca_file(file("ca.pem"));
        refusal(builder.client_certificate(file(certificate), file(key)))
    };
    assert!(
        mine("client.pem", "missing.key")
            .await
            .contains("missing.key")
    );
    assert!(
        mine("client.pem", "client.pem")
            .await
            .contains("client.pem")
    );
    assert!(
        mine("client.pem", "other.key")
            .await
            .contains("client_certificate")
    );
    assert!(
        refusal(builder().server_name("no name"))
            .await
            .contains("no name")
    );
    let plain = LockClient::builder()
        .url(files.url())
        .ca_file(file("ca.pem"));
    assert!(refusal(plain).await.contains("rediss://"));
}

#[tokio::test]
async fn a_silent_server_is_given_up_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let builder = || LockClient::builder().url(&url);
    let began = Instant::now();
    let text = refusal(builder().connect_timeout(Duration::from_millis(200))).await;
    assert!(text.contains("no answer from 127.0.0.1"), "{text}");
    // The default is 5 s for each of the two protocol versions.
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    let zero = refusal(builder().connect_timeout(Duration::ZERO)).await;
    assert!(zero.contains("connect_timeout"), "{zero}");
}

#[tokio::test]
async fn a_client_that_starts_before_its_server_waits_for_it() {
    let server = Server::start().await;
    server.kill();
    for own in [false, true] {
        let builder = LockClient::builder().url(server.url()).own_runtime(own);
        let began = Instant::now();
        let wait = Duration::from_millis(700);
        refusal(builder.retry_start(wait)).await;
        assert!(began.elapsed() >= wait, "{:?}", began.elapsed());
    }
    let builder = LockClient::builder().url(server.url()).retry_start(SOON);
    let building = tokio::spawn(builder.build());
    server.restart().await;
    let client = building.await.unwrap().unwrap();
    client
        .reentrant_lock("a")
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    // A wrong password is not retried.
    let server = Server::start_with(&["--requirepass", "s3cret"]).await;
    let url = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let began = Instant::now();
    refusal(LockClient::builder().url(url).retry_start(3 * SOON)).await;
    assert!(began.elapsed() < SOON);
}

/// The last attempt once took its whole time, however little of the limit was left.
#[tokio::test]
async fn a_patient_start_ends_at_its_time() {
    let silent = Impostor::start(None, |_words| Fate::Silence).await;
    let (attempt, limit) = (Duration::from_secs(4), Duration::from_millis(4_500));
    let builder = LockClient::builder()
        .url(silent.url())
        .connect_timeout(attempt)
        .retry_start(limit);
    let began = Instant::now();
    refusal(builder).await;
    let took = began.elapsed();
    assert!(took >= limit && took < 2 * attempt, "{took:?}");
}

#[tokio::test]
async fn a_lazy_client_gets_the_error_of_a_client_that_connects_at_once() {
    let server = Server::start_with(&["--requirepass", "s3cret"]).await;
    let refusing = |command: &'static [u8], words: &'static str| {
        Impostor::start(None, move |said: &[&[u8]]| match said[0] {
            said if said == command || command.is_empty() => Fate::text(&format!("-{words}\r\n")),
            _ => Fate::Pass,
        })
    };
    let no_hello = refusing(b"", "ERR this peer talks to nobody").await;
    let no_database = refusing(b"SELECT", "ERR DB index is out of range").await;
    for url in [
        format!("redis://:wrong@127.0.0.1:{}", server.port()),
        format!("redis://127.0.0.1:{}", server.port()),
        no_hello.url(),
        format!("{}/7", no_database.url()),
    ] {
        let builder = || LockClient::builder().url(&url);
        let expected = builder().build().await.expect_err(&url);
        assert!(!expected.is_unavailable(), "{expected:?}");
        let client = builder().lazy(true).build().await.unwrap();
        let lock = client.reentrant_lock("a");
        let wait = Duration::from_millis(500);
        assert_eq!(lock.try_lock_for(wait).await.unwrap_err(), expected);
        assert_eq!(lock.is_locked().await.unwrap_err(), expected);
        let pool = client.semaphore("pool");
        assert_eq!(pool.available_permits().await.unwrap_err(), expected);
        assert_eq!(client.ping().await.unwrap_err(), expected);
    }
    // A client that has been connected is in an outage, which may end.
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    server.kill();
    let error = client.reentrant_lock("a").try_lock().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
}

/// Whether the server is silent, closes its connections, or is gone.
#[tokio::test]
async fn an_error_without_an_answer_names_the_server() {
    let wait = Duration::from_secs(1);
    for fate in [|| Fate::Silence, || Fate::HangUp] {
        let peer = Impostor::start(None, move |words| match words[0] {
            b"EVAL" | b"EVALSHA" => fate(),
            _ => Fate::Pass,
        });
        let peer = peer.await;
        names_its_server(&peer.url(), peer.port(), wait, async || {}).await;
    }
    let server = Server::start().await;
    names_its_server(&server.url(), server.port(), wait, async || server.kill()).await;
}

async fn names_its_server(url: &str, port: u16, wait: Duration, ends: impl AsyncFnOnce()) {
    let config = Config::default().with_command_wait(wait);
    let builder = LockClient::builder().url(url).config(config);
    let client = builder.build().await.unwrap();
    ends().await;
    let (lock, pool) = (client.reentrant_lock("a"), client.semaphore("pool"));
    for error in [
        lock.try_lock().await.err(),
        lock.try_lock_for(wait).await.err(),
        lock.is_locked().await.err(),
        lock.force_unlock().await.err(),
        pool.try_acquire().await.err(),
        pool.release(1).await.err(),
        pool.available_permits().await.err(),
        client.count_down_latch("latch").count_down().await.err(),
    ] {
        let error = error.expect("no server answers");
        assert!(error.is_unavailable(), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
    }
}
