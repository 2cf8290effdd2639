//! What comes from the library fred: clients of callers, whose configurations are taken over, and what they have of TLS. The
//! only file that names it.

use std::sync::Arc;

use ::fred::{
    interfaces::ClientLike,
    types::config::{Config, ServerConfig as FredServer},
};

use super::{
    HashSlot,
    attempts::Servers,
    connection::{ConnectError, ConnectErrorKind, Endpoint, ServerConfig},
    server::Target,
    socket::Sockets,
};

/// The client library that a caller may hand over a client of.
pub(crate) use ::fred::clients::Client as FredClient;

/// The slot of a key on a cluster.
pub(crate) fn hash_slot(key: &[u8]) -> HashSlot {
    ::fred::util::redis_keyslot(key)
}

/// Takes over where and as whom the caller's own client connects. Its connections stay its own.
pub(super) fn target_of(donor: &FredClient) -> Target {
    let config = donor.client_config();
    let sockets = Arc::new(Sockets {
        tls: config.uses_tls().then(|| Tls::of_donor(&config)).flatten(),
        provider: config.credential_provider.clone().map(Provider),
    });
    let servers = Servers::new();
    let server = |endpoint| ServerConfig {
        servers: servers.clone(),
        transport: sockets.clone(),
        endpoint,
        username: config.username.clone(),
        password: config.password.clone(),
        database: config.database.map(u32::from),
    };
    let addresses = |hosts: &[::fred::types::config::Server]| {
        hosts
            .iter()
            .map(|server| (server.host.to_string(), server.port))
            .collect::<Vec<_>>()
    };
    match &config.server {
        FredServer::Centralized { server: at } => {
            Target::fixed(server(Endpoint::Tcp((at.host.to_string(), at.port))))
        }
        FredServer::Unix { path } => Target::fixed(server(Endpoint::Unix(path.clone()))),
        FredServer::Sentinel {
            hosts,
            service_name,
            ..
        } => Target::of_service(
            server(Endpoint::unknown()),
            service_name.clone(),
            (None, None),
            addresses(hosts),
        ),
        FredServer::Clustered { hosts, .. } => {
            Target::cluster(server(Endpoint::unknown()), addresses(hosts))
        }
    }
}

/// A donor's own source of credentials.
#[derive(Clone)]
pub(super) struct Provider(Arc<dyn ::fred::types::config::CredentialProvider>);

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
                details: format!("no credentials: {}", error.details()),
            })
    }
}

pub(super) use tls::Tls;

#[cfg(feature = "rustls")]
mod tls {
    use ::fred::{rustls::pki_types::ServerName, types::config::TlsConnector};
    use tokio::net::TcpStream;

    use super::{
        super::{connection::Address, driver::Socket},
        Config, ConnectError, ConnectErrorKind, FredServer,
    };
    use crate::error::Error;

    /// How connections are encrypted.
    #[derive(Clone)]
    pub(in crate::redis) struct Tls {
        connector: TlsConnector,
        /// A donor's own server may have a name of its own for TLS.
        own_name: Option<(Address, String)>,
    }

    impl Tls {
        pub(in crate::redis) fn of_the_system() -> Result<Self, Error> {
            let connector = TlsConnector::default_rustls().map_err(|error| {
                Error::config(format!(
                    "the system's certificates cannot be read: {}",
                    error.details()
                ))
            })?;
            Ok(Self {
                connector,
                own_name: None,
            })
        }

        pub(super) fn of_donor(config: &Config) -> Option<Self> {
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
            })
        }

        /// Begins to encrypt what goes over `socket`, to the server that has a certificate for `host`.
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
            let name = own_name.map_or(host, |(_, name)| name).to_owned();
            let name = ServerName::try_from(name).map_err(|error| failed(error.to_string()))?;
            match &self.connector {
                TlsConnector::Rustls(connector) => {
                    let secured = connector.connect(name, socket).await;
                    Ok(Box::new(
                        secured.map_err(|error| failed(error.to_string()))?,
                    ))
                }
                // A donor's own features of fred may have another.
                #[allow(unreachable_patterns)]
                _ => Err(failed("only TLS by rustls is known".into())),
            }
        }
    }
}

#[cfg(not(feature = "rustls"))]
mod tls {
    use tokio::net::TcpStream;

    use super::{super::driver::Socket, Config, ConnectError, ConnectErrorKind};
    use crate::error::Error;

    /// What cannot be done without the feature `rustls`: nothing connects in plain text instead (P-FR15).
    #[derive(Clone)]
    pub(in crate::redis) struct Tls;

    impl Tls {
        pub(in crate::redis) fn of_the_system() -> Result<Self, Error> {
            Err(Error::config(
                "the URL asks for TLS, which is not compiled in: enable the feature `rustls` of redisson-lock",
            ))
        }

        pub(super) fn of_donor(_config: &Config) -> Option<Self> {
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
                details: "the client asks for TLS, which is not compiled in: enable the feature `rustls` of redisson-lock"
                    .into(),
            })
        }
    }
}
