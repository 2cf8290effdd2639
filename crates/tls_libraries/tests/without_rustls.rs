//! A fred client with TLS, in a program without this crate's feature `rustls`.

use std::{io::ErrorKind, net::TcpListener};

use fred::{
    rustls::{ClientConfig, RootCertStore},
    types::{
        Builder,
        config::{Config, TlsConnector},
    },
};
use redisson_lock::{Error, LockClient};

/// A connection in plain text would show the credentials to the network.
#[tokio::test]
async fn a_fred_client_with_tls_is_an_error_that_names_the_feature_and_connects_nowhere() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    for url in [
        format!("redis://:s3cret@{address}"),
        format!("redis-cluster://:s3cret@{address}"),
        format!("redis-sentinel://:s3cret@{address}/0?sentinelServiceName=main"),
    ] {
        let mut config = Config::from_url(&url).unwrap();
        let tls = ClientConfig::builder()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        config.tls = Some(TlsConnector::from(tls).into());
        let fred = Builder::from_config(config).build().unwrap();
        let error = LockClient::builder().fred(&fred).build().await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("the feature `rustls`"), "{url}: {text}");
        assert!(!text.contains("s3cret"), "{url}: {text}");
    }
    let connected = listener.accept().map(|(_, peer)| peer);
    assert_eq!(connected.unwrap_err().kind(), ErrorKind::WouldBlock);
}
