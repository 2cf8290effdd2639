//! TLS in a program that has ring, aws-lc and native-tls: the caller's features of fred decide about fred's TLS only.

use std::{path::Path, sync::Arc};

use fred::{
    rustls::{
        ClientConfig, RootCertStore,
        crypto::{CryptoProvider, aws_lc_rs},
        pki_types::{CertificateDer, pem::PemObject},
    },
    types::{
        Builder,
        config::{Config, TlsConnector},
    },
};
use redisson_lock::{LockClient, Released};
use testbed::Server;

/// A server that speaks TLS only, and another one, whose folder has the certificates.
async fn secure() -> (Server, Server) {
    let certificates = Server::start().await;
    testbed::make_certificates(certificates.dir());
    let files = ["ca.crt", "server.crt", "server.key"];
    let options = testbed::tls_only(certificates.dir(), "no", files);
    (Server::start_with(&options).await, certificates)
}

async fn locks(client: &LockClient) {
    let guard = client.reentrant_lock("order:42").lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    client.shutdown().await;
}

/// A client of the library fred, by this connector.
fn fred_client(server: &Server, connector: TlsConnector) -> fred::clients::Client {
    let mut config = Config::from_url(&format!("redis://localhost:{}", server.port())).unwrap();
    config.tls = Some(connector.into());
    Builder::from_config(config).build().unwrap()
}

fn connector_by(ciphers: CryptoProvider, authority: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ciphers))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(config)
}

/// The program has two sets of ciphers, so the TLS library has no default: a connection that relied on one would panic.
#[tokio::test]
async fn a_url_is_secured_by_the_ciphers_that_the_crate_names() {
    let (server, certificates) = secure().await;
    assert!(CryptoProvider::get_default().is_none());
    let builder = LockClient::builder()
        .url(format!("rediss://localhost:{}", server.port()))
        .ca_file(certificates.dir().join("ca.crt"));
    locks(&builder.build().await.unwrap()).await;
}

#[tokio::test]
async fn the_connector_of_a_fred_client_keeps_its_own_ciphers() {
    let (server, certificates) = secure().await;
    let authority = certificates.dir().join("ca.crt");
    let fred = fred_client(
        &server,
        connector_by(aws_lc_rs::default_provider(), &authority),
    );
    locks(&LockClient::builder().fred(&fred).build().await.unwrap()).await;
}

#[cfg(feature = "native-tls")]
#[tokio::test]
async fn a_fred_client_with_native_tls_is_an_error_that_names_the_remedy() {
    let server = Server::start().await;
    let fred = fred_client(&server, TlsConnector::default_native_tls().unwrap());
    let error = LockClient::builder().fred(&fred).build().await.unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, redisson_lock::Error::Config { .. }),
        "{error:?}"
    );
    assert!(
        text.contains("native-tls") && text.contains("`url`"),
        "{text}"
    );
}
