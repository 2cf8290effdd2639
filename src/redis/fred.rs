//! The parts of the library fred that connections use: TLS, and the credentials of a caller's client. Only this file and
//! [`donor`](super::donor) name the library.

#[cfg(feature = "rustls")]
use std::path::Path;
use std::{path::PathBuf, sync::Arc};

use ::fred::types::config::Config;
#[cfg(feature = "rustls")]
use ::fred::types::config::ServerConfig as FredServer;

use super::{
    HashSlot,
    connect_error::{ConnectError, ConnectErrorKind},
    endpoint::Endpoint,
};
#[cfg(feature = "rustls")]
use crate::error::Error;

/// The slot of a key on a cluster.
pub(crate) fn hash_slot(key: &[u8]) -> HashSlot {
    ::fred::util::redis_keyslot(key)
}

/// The library of a client that a caller may pass.
pub(crate) use ::fred::clients::Client as FredClient;

/// A fred client's own source of credentials.
#[derive(Clone)]
pub(super) struct Provider(pub(super) Arc<dyn ::fred::types::config::CredentialProvider>);

impl Provider {
    /// The user and password for the server at `endpoint`.
    pub(super) async fn credentials(
        &self,
        endpoint: &Endpoint,
    ) -> Result<(Option<String>, Option<String>), ConnectError> {
        let server = match endpoint {
            Endpoint::Tcp((host, port)) => {
                Some(::fred::types::config::Server::new(host.clone(), *port))
            }
            Endpoint::Unix(_) => None,
        };
        self.0
            .fetch(server.as_ref())
            .await
            .map_err(|error| ConnectError {
                kind: ConnectErrorKind::Network,
                details: format!("the credential provider failed: {}", error.details()),
            })
    }
}

pub(crate) use tls::Tls;

#[cfg(feature = "rustls")]
mod tls {
    use std::{io, path::Path, sync::Arc};

    use ::fred::{
        rustls::{
            ClientConfig, RootCertStore,
            crypto::ring,
            pki_types::{PrivateKeyDer, ServerName, pem::PemObject},
        },
        types::config::TlsConnector,
    };
    use tokio::net::TcpStream;

    use super::{
        super::endpoint::{Address, Socket},
        Config, ConnectError, ConnectErrorKind, FredServer, Identity, TlsSettings, certificates,
        read, unreadable,
    };
    use crate::error::Error;

    /// How connections are encrypted.
    #[derive(Clone)]
    pub(crate) struct Tls {
        connector: TlsConnector,
        /// A fred client's server may have its own name for TLS.
        own_name: Option<(Address, String)>,
        /// The name in all servers' certificates, if it is not the host.
        name: Option<String>,
    }

    impl Tls {
        pub(in crate::redis) fn of_the_system() -> Result<Self, Error> {
            let connector = TlsConnector::default_rustls();
            let connector = connector.map_err(|error| no_system_roots(error.details()))?;
            Ok(Self {
                connector,
                own_name: None,
                name: None,
            })
        }

        pub(in crate::redis) fn of_donor(config: &Config) -> Option<Self> {
            let own_name = match &config.server {
                FredServer::Centralized { server } => {
                    let address = (server.host.to_string(), server.port);
                    let name = server.tls_server_name.as_ref();
                    name.map(|name| (address, name.to_string()))
                }
                _ => None,
            };
            let connector = config.tls.as_ref()?.connector.clone();
            Some(Self {
                connector,
                own_name,
                name: None,
            })
        }

        /// Loads the files of a client's settings.
        pub(crate) fn of_settings(settings: &TlsSettings) -> Result<Self, Error> {
            let TlsSettings {
                ca,
                identity,
                server_name: name,
            } = settings;
            if let Some(name) = name {
                ServerName::try_from(&**name).map_err(|_| {
                    Error::config(format!(
                        "server_name {name:?} cannot be the name of a server"
                    ))
                })?;
            }
            let connector = match (ca, identity) {
                (None, None) => Self::of_the_system()?.connector,
                (ca, identity) => Self::of_files(ca.as_deref(), identity.as_ref())?,
            };
            Ok(Self {
                connector,
                own_name: None,
                name: name.clone(),
            })
        }

        /// Trusts the authorities of the system without a `ca`.
        fn of_files(ca: Option<&Path>, identity: Option<&Identity>) -> Result<TlsConnector, Error> {
            let roots = match ca {
                Some(ca) => roots_of(ca)?,
                None => system_roots()?,
            };
            let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| Error::config(error.to_string()))?
                .with_root_certificates(roots);
            let config = match identity {
                None => config.with_no_client_auth(),
                Some(Identity { certificate, key }) => {
                    let chain = certificates("client_certificate", certificate)?;
                    let text = read("client_certificate", key)?;
                    let secret = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
                        unreadable("client_certificate", key, &error.to_string())
                    })?;
                    config
                        .with_client_auth_cert(chain, secret)
                        .map_err(|error| {
                            unreadable("client_certificate", certificate, &error.to_string())
                        })?
                }
            };
            Ok(TlsConnector::from(config))
        }

        /// Starts TLS on `socket` with a server whose certificate is for `host`.
        pub(in crate::redis) async fn secure(
            &self,
            host: &str,
            port: u16,
            socket: TcpStream,
        ) -> Result<Box<dyn Socket>, ConnectError> {
            let failed = |details: String| ConnectError {
                kind: ConnectErrorKind::Other,
                details,
            };
            let own_name = self.own_name.as_ref();
            let own_name = own_name.filter(|((own, at), _)| own == host && *at == port);
            let name = own_name.map_or(host, |(_, name)| name);
            let name = self.name.as_deref().unwrap_or(name).to_owned();
            let name = ServerName::try_from(name).map_err(|error| failed(error.to_string()))?;
            match &self.connector {
                TlsConnector::Rustls(connector) => {
                    let secured = connector.connect(name.clone(), socket).await;
                    Ok(Box::new(secured.map_err(|error| refused(&error, &name))?))
                }
                #[allow(
                    unreachable_patterns,
                    reason = "another TLS library may be enabled by the caller's features of fred"
                )]
                _ => Err(failed("only TLS by rustls is known".into())),
            }
        }
    }

    fn roots_of(ca: &Path) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        for authority in certificates("ca_file", ca)? {
            let added = roots.add(authority);
            added.map_err(|error| unreadable("ca_file", ca, &error.to_string()))?;
        }
        Ok(roots)
    }

    /// The authorities of the system, as strict as fred: each certificate must be readable.
    fn system_roots() -> Result<RootCertStore, Error> {
        let mut found = ::fred::rustls_native_certs::load_native_certs();
        if let Some(error) = found.errors.pop() {
            return Err(no_system_roots(&error.to_string()));
        }
        let mut roots = RootCertStore::empty();
        for authority in found.certs {
            let added = roots.add(authority);
            added.map_err(|error| no_system_roots(&error.to_string()))?;
        }
        Ok(roots)
    }

    fn no_system_roots(reason: &str) -> Error {
        Error::config(format!(
            "the system's certificates cannot be read: {reason}"
        ))
    }

    /// Why the client refused the server's certificate, with advice. Retries do not correct an authority or a name.
    fn refused(error: &io::Error, name: &ServerName<'_>) -> ConnectError {
        use ::fred::rustls::{CertificateError as Problem, Error::InvalidCertificate};
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        let (kind, remedy) = match inner {
            Some(InvalidCertificate(Problem::UnknownIssuer)) => (
                ConnectErrorKind::Config,
                "the server's certificate is not signed by a trusted authority: set `ca_file` to the authority's \
                 PEM file"
                    .to_owned(),
            ),
            Some(InvalidCertificate(
                Problem::NotValidForName | Problem::NotValidForNameContext { .. },
            )) => (
                ConnectErrorKind::Config,
                format!(
                    "the server's certificate is not valid for {:?}: connect by a name in the certificate, or set \
                     `server_name` to one",
                    name.to_str()
                ),
            ),
            _ => return ConnectError {
                kind: ConnectErrorKind::Other,
                details: error.to_string(),
            },
        };
        ConnectError {
            kind,
            details: format!("{remedy} ({error})"),
        }
    }
}

/// A client's settings for TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsSettings {
    /// The certificates of the trusted authorities.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) identity: Option<Identity>,
    pub(crate) server_name: Option<String>,
}

/// The client's certificate and its key. The files are in PEM.
#[cfg_attr(
    not(feature = "rustls"),
    expect(dead_code, reason = "only TLS reads them")
)]
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsSettings {
    pub(crate) fn is_empty(&self) -> bool {
        self.ca.is_none() && self.identity.is_none() && self.server_name.is_none()
    }
}

#[cfg(feature = "rustls")]
fn read(setting: &str, file: &Path) -> Result<Vec<u8>, Error> {
    let bytes =
        std::fs::read(file).map_err(|error| unreadable(setting, file, &error.to_string()))?;
    // Java's: JKS, and PKCS#12, which is DER.
    if bytes.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) || bytes.starts_with(&[0x30, 0x82]) {
        return Err(unreadable(
            setting,
            file,
            "the file is a Java key store or DER, and must be PEM: convert JKS by `keytool -importkeystore \
             -srckeystore <file> -destkeystore store.p12 -deststoretype PKCS12`, and PKCS#12 by `openssl pkcs12 -in \
             store.p12 -nodes -out store.pem`",
        ));
    }
    Ok(bytes)
}

#[cfg(feature = "rustls")]
fn unreadable(setting: &str, file: &Path, reason: &str) -> Error {
    Error::config(format!("{setting} {}: {reason}", file.display()))
}

#[cfg(feature = "rustls")]
fn certificates(
    setting: &str,
    file: &Path,
) -> Result<Vec<::fred::rustls::pki_types::CertificateDer<'static>>, Error> {
    use ::fred::rustls::pki_types::{CertificateDer, pem::PemObject};
    let text = read(setting, file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| unreadable(setting, file, &error.to_string()))?;
    match found.is_empty() {
        true => Err(unreadable(
            setting,
            file,
            "the file contains no certificate in PEM format",
        )),
        false => Ok(found),
    }
}

#[cfg(not(feature = "rustls"))]
mod tls {
    use tokio::net::TcpStream;

    use super::{super::endpoint::Socket, Config, ConnectError, ConnectErrorKind, TlsSettings};
    use crate::error::Error;

    /// Refuses TLS without the feature `rustls`: the client never connects in plain text instead (P-FR15).
    #[derive(Clone)]
    pub(crate) struct Tls;

    impl Tls {
        pub(in crate::redis) fn of_the_system() -> Result<Self, Error> {
            Err(Error::config(
                "the URL requires TLS: enable the feature `rustls` of redisson-lock",
            ))
        }

        pub(crate) fn of_settings(_settings: &TlsSettings) -> Result<Self, Error> {
            Self::of_the_system()
        }

        pub(in crate::redis) fn of_donor(_config: &Config) -> Option<Self> {
            Some(Self)
        }

        pub(in crate::redis) async fn secure(
            &self,
            _host: &str,
            _port: u16,
            _socket: TcpStream,
        ) -> Result<Box<dyn Socket>, ConnectError> {
            Err(ConnectError {
                kind: ConnectErrorKind::Config,
                details:
                    "the fred client requires TLS: enable the feature `rustls` of redisson-lock"
                        .into(),
            })
        }
    }
}
