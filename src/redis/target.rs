//! Where to connect, and with which credentials.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    credentials_provider::CredentialsProvider,
    endpoint::{Address, AddressMap, Endpoint},
    locator::{Locator, Nodes, Question},
    opener::{ServerConfig, SocketOptions},
    resolver::Resolver,
    tls::{Tls, TlsSettings},
};
use crate::{
    credentials::Credentials, endpoint_kind::EndpointKind, error::Error, protocol::Protocol,
    tls_verification::TlsVerification,
};

/// Where to connect, and with which credentials.
#[derive(Clone)]
pub(crate) struct Target {
    pub(super) server: ServerConfig,
    pub(super) way: Way,
    pub(super) map: Option<AddressMap>,
    /// What answers at the address of `server`.
    endpoint_kind: EndpointKind,
    /// Whether the client connects in the background.
    pub(crate) lazy: bool,
}

/// The way to the servers that have the locks.
#[derive(Clone)]
pub(super) enum Way {
    /// The configuration names the server.
    Named,
    /// Nodes know the master.
    Asked(MasterLookup),
    /// The server is a cluster, of which these are nodes.
    Cluster(Vec<Address>),
    /// A server in the process answers the calls itself, without connections.
    #[cfg(feature = "__simulation")]
    Direct(Arc<dyn super::direct::Server>),
}

/// The nodes that know the master.
#[derive(Clone)]
pub(super) struct MasterLookup {
    pub(super) question: Question,
    /// The credentials for them.
    pub(super) server: ServerConfig,
    pub(super) addresses: Vec<Address>,
}

impl Target {
    /// Whether another runtime can connect.
    pub(crate) fn is_reached_from_anywhere(&self) -> bool {
        #[cfg(feature = "__simulation")]
        if let Way::Direct(_) = self.way {
            return false;
        }
        self.server.opener.is_reached_from_anywhere()
    }

    /// A server that answers calls itself. Its opener opens nothing.
    #[cfg(feature = "__simulation")]
    pub(crate) fn direct(server: Arc<dyn super::direct::Server>) -> Self {
        Self {
            way: Way::Direct(server),
            ..Self::fixed(ServerConfig::new(
                super::socket::Sockets::plain(),
                Endpoint::unknown(),
            ))
        }
    }

    pub(crate) fn fixed(server: ServerConfig) -> Self {
        Self {
            server,
            way: Way::Named,
            map: None,
            endpoint_kind: EndpointKind::Auto,
            lazy: false,
        }
    }

    /// The master of `service`, which the sentinels at `addresses` name. Sentinels have users of their own.
    pub(super) fn of_service(
        server: ServerConfig,
        service: String,
        (username, password): (Option<String>, Option<String>),
        addresses: Vec<Address>,
    ) -> Self {
        let asking = ServerConfig {
            username,
            password,
            ..server.clone()
        };
        Self::asking(server, Question::MasterOf(service), asking, addresses)
    }

    /// The master among the servers at `addresses`.
    pub(super) fn replicated(server: ServerConfig, addresses: Vec<Address>) -> Self {
        Self::asking(server.clone(), Question::AreYou, server, addresses)
    }

    fn asking(
        server: ServerConfig,
        question: Question,
        asking: ServerConfig,
        addresses: Vec<Address>,
    ) -> Self {
        let asked = MasterLookup {
            question,
            server: ServerConfig {
                database: None,
                ..asking
            },
            addresses,
        };
        Self {
            way: Way::Asked(asked),
            ..Self::fixed(server)
        }
    }

    pub(crate) fn cluster(server: ServerConfig, seeds: Vec<Address>) -> Self {
        Self {
            way: Way::Cluster(seeds),
            ..Self::fixed(server)
        }
    }

    /// The nodes that know the master, if the configuration does not name it.
    fn asked(&mut self) -> Option<&mut MasterLookup> {
        match &mut self.way {
            Way::Asked(asked) => Some(asked),
            _ => None,
        }
    }

    /// The same if they are sentinels.
    fn sentinels(&mut self) -> Option<&mut MasterLookup> {
        self.asked()
            .filter(|asked| asked.question != Question::AreYou)
    }

    /// Speaks this version of the protocol with all servers.
    pub(crate) fn speak(&mut self, protocol: Protocol) {
        for server in self.servers() {
            server.protocol = protocol;
        }
    }

    /// The server, and the nodes that know it.
    fn servers(&mut self) -> impl Iterator<Item = &mut ServerConfig> {
        let asked = match &mut self.way {
            Way::Asked(asked) => Some(&mut asked.server),
            _ => None,
        };
        std::iter::once(&mut self.server).chain(asked)
    }

    /// What answers at the address of the server. Sentinels name one server.
    pub(super) fn endpoint_kind(&self) -> EndpointKind {
        match &self.way {
            Way::Asked(asked) if asked.question != Question::AreYou => EndpointKind::Server,
            _ => self.endpoint_kind,
        }
    }

    pub(crate) fn set_endpoint_kind(&mut self, kind: EndpointKind) -> Result<(), Error> {
        let refused = match (&self.way, kind) {
            (_, EndpointKind::Auto) => None,
            (Way::Cluster(_), _) => Some(
                "of a cluster, whose nodes the client finds itself: for one end point in front of it, use redis://",
            ),
            (Way::Asked(asked), _) if asked.question != Question::AreYou => {
                Some("with sentinels, which name one server: remove it")
            }
            (Way::Asked(_), EndpointKind::Proxy) => {
                Some("`proxy` with several servers: for one end point, use redis://")
            }
            _ => None,
        };
        if let Some(refused) = refused {
            return Err(Error::config(format!(
                "`endpoint_kind` (?endpoint=) is set {refused}"
            )));
        }
        self.endpoint_kind = kind;
        Ok(())
    }

    /// Names the connections at the server.
    pub(crate) fn name_connections(&mut self, name: &str) {
        let name: Arc<str> = name.into();
        for server in self.servers() {
            server.connection_name = Some(name.clone());
        }
    }

    pub(crate) fn log_in_as(&mut self, credentials: Credentials) -> Result<(), Error> {
        if self.server.opener.has_credentials() {
            return Err(Error::config(
                "`credentials` is set, and the fred client has a credential provider: set only one of them",
            ));
        }
        let Credentials {
            username, password, ..
        } = credentials;
        if let Some(asked) = self.asked()
            && asked.question == Question::AreYou
        {
            // Each server reports its own role.
            asked.server.log_in_as(username.clone(), password.clone());
        }
        self.server.log_in_as(username, password);
        Ok(())
    }

    /// Asks `provider` before each connection.
    pub(crate) fn log_in_by(&mut self, provider: CredentialsProvider) -> Result<(), Error> {
        if self.server.opener.has_credentials() {
            return Err(Error::config(
                "`credentials_provider` is set, and the fred client has a credential provider: set only one of them",
            ));
        }
        let options = SocketOptions {
            provider: Some(provider),
            ..SocketOptions::default()
        };
        for server in self.servers() {
            open_on(server, &options);
        }
        Ok(())
    }

    /// Finds the addresses of host names by `resolver`.
    pub(crate) fn resolve_by(&mut self, resolver: Resolver) {
        let options = SocketOptions {
            resolver: Some(resolver),
            ..SocketOptions::default()
        };
        for server in self.servers() {
            open_on(server, &options);
        }
    }

    pub(crate) fn ask_sentinels_as(&mut self, credentials: Credentials) -> Result<(), Error> {
        let Some(sentinels) = self.sentinels() else {
            return Err(without_sentinels("`sentinel_credentials` is set"));
        };
        sentinels
            .server
            .log_in_as(credentials.username, credentials.password);
        Ok(())
    }

    /// Opens sockets with these options.
    pub(crate) fn open_on(
        &mut self,
        tls: &TlsSettings,
        wait: Option<Duration>,
    ) -> Result<(), Error> {
        if cfg!(not(unix)) && matches!(self.server.endpoint, Endpoint::Unix(_)) {
            return Err(Error::config(
                "the URL names a unix socket, which this system does not have: let the server listen on a port, and \
                 write redis://host:port",
            ));
        }
        let is_tls = self.server.opener.is_encrypted();
        if !tls.is_empty() && !is_tls {
            return Err(Error::config(
                "TLS settings are given for a URL without TLS: use rediss://",
            ));
        }
        let options = socket_options(tls, wait)?;
        open_on(&mut self.server, &options);
        if !tls.tells_sentinels_apart() {
            if let Some(asked) = self.asked() {
                open_on(&mut asked.server, &options);
            }
            return Ok(());
        }
        let Some(sentinels) = self.sentinels() else {
            return Err(without_sentinels("TLS settings of sentinels are given"));
        };
        if !is_tls {
            return Err(Error::config(
                "TLS settings of sentinels are given for a URL without TLS: use rediss-sentinel://",
            ));
        }
        open_on(
            &mut sentinels.server,
            &socket_options(&tls.of_sentinels(), wait)?,
        );
        Ok(())
    }

    pub(crate) fn map_addresses(&mut self, map: AddressMap) {
        self.map = Some(map);
    }

    /// Reaches all servers by a transport of the program.
    #[cfg(feature = "transport")]
    pub(crate) fn reach_by(
        &mut self,
        transport: Arc<dyn crate::transport::Transport>,
    ) -> Result<(), Error> {
        if self.server.opener.is_encrypted() {
            return Err(Error::config(
                "`transport` is set for servers with TLS: name them without it (redis://), and encrypt in the transport",
            ));
        }
        if let super::endpoint::Endpoint::Unix(_) = self.server.endpoint {
            return Err(Error::config(
                "`transport` is set for a unix socket: name a host and a port, which the transport receives",
            ));
        }
        if self.server.opener.has_credentials() {
            return Err(Error::config(
                "`transport` is set, and the fred client has a credential provider: leave one of them out",
            ));
        }
        let given = Arc::new(super::program_transport::ProgramTransport::new(transport));
        for server in self.servers() {
            server.opener = given.clone();
        }
        Ok(())
    }

    pub(super) fn locator(&mut self) -> Locator {
        match std::mem::replace(&mut self.way, Way::Named) {
            Way::Asked(asked) => Locator::Lookup(Arc::new(Nodes::new(
                asked.question,
                asked.server,
                asked.addresses,
                self.map.take(),
            ))),
            _ => Locator::Fixed,
        }
    }
}

fn without_sentinels(what: &str) -> Error {
    Error::config(format!(
        "{what} without sentinels: name them by `sentinel` or a redis-sentinel:// URL"
    ))
}

/// Loads the files of the settings.
fn socket_options(tls: &TlsSettings, wait: Option<Duration>) -> Result<SocketOptions, Error> {
    if tls.servers.verification == Some(TlsVerification::None) {
        tracing::warn!(
            "certificates are not checked: any machine on the way can read the password and change the locks"
        );
    }
    if tls.servers.verification == Some(TlsVerification::Ca) && tls.ca.is_none() {
        tracing::warn!(
            "any certificate of a public authority is accepted for any server: set server_name or ca_file"
        );
    }
    let tls = match tls.is_empty() {
        true => None,
        false => Some(Tls::of_settings(tls)?),
    };
    Ok(SocketOptions {
        tls,
        wait,
        ..SocketOptions::default()
    })
}

/// Has the connections to `server` opened with these options.
fn open_on(server: &mut ServerConfig, options: &SocketOptions) {
    let is_set = options.tls.is_some()
        || options.wait.is_some()
        || options.provider.is_some()
        || options.resolver.is_some();
    if is_set && let Some(opener) = server.opener.on(options) {
        server.opener = opener;
    }
}

impl fmt::Debug for Target {
    /// Without passwords (P-T7).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = match &self.way {
            Way::Named => format!("{:?}", self.server.endpoint),
            Way::Asked(asked) => format!("{:?} of {:?}", asked.question, asked.addresses),
            Way::Cluster(seeds) => format!("cluster of {seeds:?}"),
            #[cfg(feature = "__simulation")]
            Way::Direct(_) => "a server in the process".to_owned(),
        };
        write!(f, "Target({server}, database {:?})", self.server.database)
    }
}
