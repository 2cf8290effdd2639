//! The TLS library: rustls, with the ciphers of ring. This file alone names the crates.

use std::sync::Arc;

pub(super) use rustls_native_certs::load_native_certs;
pub(super) use tokio_rustls::{TlsConnector, rustls};

use rustls::crypto::{CryptoProvider, ring};

/// The ciphers of all connections, named each time: a program whose other crates bring another set has two, and no default or one of
/// its own.
pub(super) fn ciphers() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
