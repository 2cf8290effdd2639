//! TLS with a test server and a test certificate authority.

use std::{path::Path, sync::Arc, time::Duration};

use fred::{
    rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer},
    types::{
        Builder,
        config::{Config, ServerConfig, TlsConnector},
    },
};
use redisson_lock::{Error, LockClient, Released};
use testbed::{Clustered, Server, eventually};

use super::SECRET;

/// A server that speaks TLS only, and the folder with its authority's certificate, `ca.crt` and
/// `ca.der`.
struct Secure {
    server: Server,
    /// This server's folder has the certificates.
    certificates: Server,
}

impl Secure {
    async fn start() -> Self {
        let certificates = certificates().await;
        let server = Server::start_with(&tls_only(&certificates)).await;
        Self {
            server,
            certificates,
        }
    }

    fn url(&self, host: &str) -> String {
        format!("rediss://:{SECRET}@{host}:{}", self.server.port())
    }
}

async fn certificates() -> Server {
    let certificates = Server::start().await;
    testbed::make_certificates(certificates.dir());
    certificates
}

/// Options of a server that speaks TLS only, and requires a password.
fn tls_only(certificates: &Server) -> Vec<&'static str> {
    let files = ["ca.crt", "server.crt", "server.key"];
    let mut options = testbed::tls_only(certificates.dir(), "no", files);
    options.extend(["--requirepass", SECRET]);
    options
}

/// A connector that trusts the authority in `dir`.
pub fn connector(dir: &Path) -> TlsConnector {
    let authority = std::fs::read(dir.join("ca.der")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority)).unwrap();
    let provider = Arc::new(fred::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(config)
}

/// A client for the fred URL `url`, with this TLS configuration.
async fn client(certificates: &Server, url: &str) -> LockClient {
    let mut config = Config::from_url(url).unwrap();
    config.tls = Some(connector(certificates.dir()).into());
    let fred = Builder::from_config(config).build().unwrap();
    LockClient::builder().fred(&fred).build().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_speaks_tls_only() {
    let certificates = certificates().await;
    let secure = [&tls_only(&certificates)[..], &["--tls-cluster", "yes"]].concat();
    let cluster = Clustered::start_with(2, false, &secure).await;
    let port = cluster.servers[0].port();
    let url = format!("redis-cluster://:{SECRET}@127.0.0.1:{port}");
    let client = client(&certificates, &url).await;
    for node in 0..2 {
        let name = cluster.name_on(node, "secure").await;
        let guard = client.reentrant_lock(&name).lock().await.unwrap();
        let there: u32 = cluster.servers[node].command(&["EXISTS", &name]).await;
        assert_eq!(there, 1);
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}

/// By default, nodes of Redis 7.0 announce their ports for plain connections; with TLS alone, port 0. Later servers tell a client with
/// TLS their ports for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_that_announces_no_port_for_tls_is_an_error_that_names_the_setting() {
    let certificates = certificates().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let free = free.unwrap().port().to_string();
    let both = ["--port", "{port}", "--tls-port", &free];
    for (of_ports, within) in [(&both[..], 3), (&["--cluster-port", &free], 20)] {
        let of_cluster = ["--cluster-enabled", "yes", "--tls-cluster", "no"];
        let options = [&tls_only(&certificates)[..], &of_cluster, of_ports].concat();
        let node = Server::start_with(&options).await;
        let add = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
        node.command::<()>(&add).await;
        let port = match of_ports.len() {
            2 => node.port().to_string(),
            _ => free.clone(),
        };
        let client = LockClient::builder()
            .url(format!("rediss-cluster://:{SECRET}@127.0.0.1:{port}"))
            .ca_file(certificates.dir().join("ca.crt"));
        let built = tokio::time::timeout(Duration::from_secs(within), client.build()).await;
        let built = built.expect("it ends in time");
        let version = &node.info("server").await["redis_version"];
        if !version.starts_with("7.0.") {
            let client = built.unwrap();
            eventually("the node serves", super::SOON, async || {
                client.ping().await.is_ok()
            })
            .await;
            continue;
        }
        let error = built.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("`tls-cluster yes`"), "{error}");
    }
}

/// The error of connecting.
async fn refusal(url: &str) -> Error {
    let connected = tokio::time::timeout(super::SOON, LockClient::connect(url)).await;
    let error = connected
        .expect("the call ends in time")
        .expect_err("the call is refused");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    error
}

async fn locks(client: &LockClient, server: &Server) {
    let lock = client.reentrant_lock("order:42");
    let guard = lock.lock().await.unwrap();
    assert_eq!(server.command::<u32>(&["HLEN", "order:42"]).await, 1);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    client.shutdown().await;
}

#[tokio::test]
async fn a_fred_client_with_tls_settings_of_its_own() {
    let secure = Secure::start().await;
    for host in ["localhost", "127.0.0.1"] {
        let plain = secure.url(host).replace("rediss://", "redis://");
        let client = client(&secure.certificates, &plain).await;
        locks(&client, &secure.server).await;
    }
}

/// Runs itself again as a child process, because trusted authorities apply to a whole process.
#[tokio::test]
async fn a_tls_url_works_with_a_trusted_authority() {
    if let Ok(url) = std::env::var(CHILD_URL) {
        return lock_over_tls(&url).await;
    }
    let secure = Secure::start().await;
    let this = "bad_input::tls::a_tls_url_works_with_a_trusted_authority";
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture"])
        .env("SSL_CERT_FILE", secure.certificates.dir().join("ca.crt"))
        .env(CHILD_URL, secure.url("localhost"))
        .kill_on_drop(true)
        .output();
    let done = tokio::time::timeout(super::SOON, child)
        .await
        .expect("the task ends in time")
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && text.contains(CHILD_DONE),
        "{text}\n{done:?}"
    );
}

const CHILD_URL: &str = "REDISSON_LOCK_TEST_TLS_URL";
const CHILD_DONE: &str = "locked over TLS";

/// The child process.
async fn lock_over_tls(url: &str) {
    let client = LockClient::connect(url).await.unwrap();
    let lock = client.reentrant_lock("order:42");
    assert_eq!(lock.run(async |_| lock.is_held().await).await, Ok(Ok(true)));
    println!("{CHILD_DONE}");
}

#[tokio::test]
async fn an_authority_that_is_not_trusted() {
    let secure = Secure::start().await;
    let url = secure.url("localhost");
    let error = refusal(&url).await;
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(error.to_string().contains("ca_file"), "{error}");
    // A retry does not make it trusted.
    let patient = LockClient::builder()
        .url(url)
        .retry_start(super::SOON * 100);
    let refused = tokio::time::timeout(super::SOON, patient.build()).await;
    assert_eq!(refused.expect("the call ends at once").unwrap_err(), error);
}

#[tokio::test]
async fn a_server_that_wants_a_certificate() {
    let certificates = certificates().await;
    let mut options = tls_only(&certificates);
    let asks = options.iter().position(|option| *option == "no");
    options[asks.expect("the option is there")] = "yes";
    let server = Server::start_with(&options).await;
    let url = format!("rediss://:{SECRET}@localhost:{}", server.port());
    let is_named = async || {
        let client = LockClient::builder().url(&url);
        let client = client.ca_file(certificates.dir().join("ca.crt"));
        // The server's error may be lost when it closes the connection.
        match client
            .build()
            .await
            .expect_err("the client has no certificate")
        {
            Error::Config { reason, .. } => reason.contains("client_certificate"),
            Error::Unavailable { .. } => false,
            other => panic!("{other:?}"),
        }
    };
    eventually("the error names the remedy", super::SOON, is_named).await;
}

/// The error of a client that trusts the authority and expects a certificate for `name`.
async fn refusal_of(certificates: &Server, server: &Server, name: &str) -> Error {
    let name = Some(name.to_owned());
    let config = Config {
        server: ServerConfig::Centralized {
            server: fred::types::config::Server::new_with_tls("127.0.0.1", server.port(), name),
        },
        password: Some(SECRET.to_owned()),
        tls: Some(connector(certificates.dir()).into()),
        ..Config::default()
    };
    let fred = Builder::from_config(config).build().unwrap();
    let built = LockClient::builder().fred(&fred).build();
    let built = tokio::time::timeout(super::SOON, built).await;
    built
        .expect("the call ends in time")
        .expect_err("the call is refused")
}

#[tokio::test]
async fn a_certificate_for_another_name_or_of_another_time() {
    let secure = Secure::start().await;
    let words =
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -days -1 -extfile names -out server.crt";
    testbed::run_in(secure.certificates.dir(), &format!("openssl {words}"));
    let expired = Server::start_with(&tls_only(&secure.certificates)).await;
    let error = refusal_of(&secure.certificates, &secure.server, "other.example").await;
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    let text = crate::in_full(&error);
    let parts = ["not valid for name", "server_name", "other.example"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    let error = refusal_of(&secure.certificates, &expired, "localhost").await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let text = crate::in_full(&error);
    assert!(
        text.contains("has expired") && text.contains("check"),
        "{text}"
    );
}

#[tokio::test]
async fn a_tls_url_to_a_plain_port() {
    let server = Server::start().await;
    let error = refusal(&format!("rediss://:s3cret@127.0.0.1:{}", server.port())).await;
    assert!(
        matches!(error, Error::Config { .. } | Error::Unavailable { .. }),
        "{error:?}"
    );
    let text = crate::in_full(&error);
    assert!(
        text.contains("TLS") && text.contains("use redis://"),
        "{error}"
    );
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn a_plain_url_to_a_tls_port() {
    let secure = Secure::start().await;
    let error = refusal(&secure.url("127.0.0.1").replace("rediss://", "redis://")).await;
    assert!(
        matches!(error, Error::Config { .. } | Error::Unavailable { .. }),
        "{error:?}"
    );
    let text = crate::in_full(&error);
    assert!(text.contains("use rediss://"), "{error}");
}
