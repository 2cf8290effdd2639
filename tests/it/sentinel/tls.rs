//! TLS to the sentinels, to the servers, and between them.

use fred::types::{
    Builder,
    config::{Config, ServerConfig},
};
use redisson_lock::{Error, LockClient, TlsVerification};
use testbed::{Server, Watched, make_certificates, unique_name};

use super::works;
use crate::bad_input::tls::connector;

/// Servers and sentinels that speak TLS only, and trust an authority whose files are in `dir`.
async fn secured(dir: &std::path::Path) -> Watched {
    make_certificates(dir);
    let file = |name: &str| dir.join(name).display().to_string();
    let (authority, certificate, key) = (file("ca.crt"), file("server.crt"), file("server.key"));
    let options = [
        ["--port", "0"],
        ["--tls-port", "{port}"],
        ["--tls-auth-clients", "no"],
        ["--tls-replication", "yes"],
        ["--tls-ca-cert-file", &authority],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
    ];
    Watched::start_as(options.as_flattened(), options.as_flattened(), &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_speak_tls() {
    // The server's folder has the certificates.
    let certificates = Server::start().await;
    let set_up = secured(certificates.dir()).await;
    let sentinels = set_up.sentinels.iter();
    let hosts = sentinels.map(|sentinel| ("127.0.0.1".to_owned(), sentinel.port()));
    let config = Config {
        server: ServerConfig::new_sentinel(hosts.collect(), Watched::SERVICE),
        tls: Some(connector(certificates.dir()).into()),
        ..Config::default()
    };
    let fred = Builder::from_config(config).build().unwrap();
    let builder = LockClient::builder().fred(&fred).config(super::config());
    let client = builder.build().await.unwrap();
    works(&client, &unique_name("secure")).await;
    set_up.replicated.servers[0].kill();
    works(&client, &unique_name("secure")).await;

    let url = set_up.url();
    let untrusted = LockClient::connect(&url.replace("redis-sentinel", "rediss-sentinel")).await;
    let error = untrusted.unwrap_err();
    assert!(
        matches!(&error, Error::Config { reason, .. } if reason.contains("not signed by a trusted authority")),
        "{error:?}"
    );
    let error = LockClient::connect(&url).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { .. }), "{error:?}");
}

/// Sentinels have settings of their own, where the certificates of servers and sentinels differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_modes_are_set_for_sentinels_alone() {
    let certificates = Server::start().await;
    let set_up = secured(certificates.dir()).await;
    let builder = || {
        LockClient::builder()
            .url(set_up.url().replace("redis-sentinel", "rediss-sentinel"))
            .ca_file(certificates.dir().join("ca.crt"))
            .server_name("localhost")
            .config(super::config())
    };
    works(&builder().build().await.unwrap(), &unique_name("named")).await;
    let error = builder().sentinel_server_name("other.example").build();
    let error = error.await.unwrap_err();
    assert!(
        matches!(&error, Error::Config { reason, .. } if reason.contains("other.example")),
        "{error:?}"
    );
    let lenient = builder()
        .sentinel_server_name("other.example")
        .sentinel_tls_verification(TlsVerification::Ca);
    works(&lenient.build().await.unwrap(), &unique_name("lenient")).await;
    let strict = builder()
        .server_name("other.example")
        .sentinel_server_name("localhost");
    assert!(strict.build().await.is_err());
    for url in ["rediss://a:1", "redis-sentinel://a:1/m"] {
        let refused = LockClient::builder()
            .url(url)
            .sentinel_tls_verification(TlsVerification::None);
        let error = refused.build().await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
    }
}
