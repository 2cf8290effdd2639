//! TLS: the settings, and the sockets that they lead to.
//!
//! - `library.rs`: names the TLS library, as the only file.
//! - `encrypted.rs`: opens sockets with TLS; `without.rs` stands for it in a build without the feature `rustls`.
//! - `files.rs`, `store/`: read certificates and keys for each connection.
//! - `client_keys.rs`: which of the client's keys it presents.
//! - `verifier.rs`: checks the server's certificate.
//! - `problem.rs`: names what is wrong with a certificate.
//! - `of_fred.rs`: the TLS settings of a fred client.

#[cfg(feature = "rustls")]
mod client_keys;
#[cfg(feature = "rustls")]
mod encrypted;
#[cfg(feature = "rustls")]
mod files;
#[cfg(feature = "rustls")]
mod library;
#[cfg(feature = "fred")]
mod of_fred;
mod problem;
#[cfg(feature = "rustls")]
mod store;
#[cfg(feature = "rustls")]
mod verifier;
#[cfg(not(feature = "rustls"))]
mod without;

use std::{fmt, path::PathBuf};

#[cfg(feature = "rustls")]
pub(crate) use encrypted::Tls;
pub(super) use problem::of_alert;
#[cfg(all(test, feature = "keystore"))]
pub(super) use store::fuzz;
#[cfg(not(feature = "rustls"))]
pub(crate) use without::Tls;

use crate::tls_verification::TlsVerification;

/// A client's settings for TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsSettings {
    /// The certificates of the trusted authorities.
    pub(crate) ca: Option<SecretFile>,
    /// The client's certificate and its key, in one file or in two.
    pub(crate) identity: Option<(SecretFile, Option<PathBuf>)>,
    pub(crate) servers: Expected,
    /// What differs at the sentinels.
    pub(crate) sentinels: Expected,
}

/// A file of certificates or keys.
#[cfg_attr(
    not(feature = "rustls"),
    expect(dead_code, reason = "only TLS reads them")
)]
#[derive(Clone)]
pub(crate) struct SecretFile {
    /// The setting that names the file.
    pub(crate) setting: &'static str,
    pub(crate) path: PathBuf,
    /// The password of a key store. The file of a setting without one is in PEM.
    pub(crate) password: Option<String>,
}

impl SecretFile {
    /// Another file of the same setting.
    #[cfg(feature = "rustls")]
    fn at(&self, path: &std::path::Path) -> Self {
        let path = path.to_owned();
        Self {
            path,
            ..self.clone()
        }
    }
}

impl fmt::Debug for SecretFile {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.setting, self.path)
    }
}

/// What the client expects of the certificates of one role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) verification: Option<TlsVerification>,
    /// The name in all servers' certificates, if it is not the host.
    pub(crate) name: Option<String>,
}

impl TlsSettings {
    pub(crate) fn is_empty(&self) -> bool {
        self.ca.is_none() && self.identity.is_none() && self.servers == Expected::default()
    }

    /// Whether sentinels have settings of their own.
    pub(crate) fn tells_sentinels_apart(&self) -> bool {
        self.sentinels != Expected::default()
    }

    /// The settings of the connections to sentinels.
    pub(crate) fn of_sentinels(&self) -> Self {
        let Expected { verification, name } = self.sentinels.clone();
        let servers = Expected {
            verification: verification.or(self.servers.verification),
            name: name.or_else(|| self.servers.name.clone()),
        };
        Self {
            servers,
            sentinels: Expected::default(),
            ..self.clone()
        }
    }
}
