//! The trait of what opens connections and logs in, and what that needs. [`socket`](super::socket) opens sockets, and
//! [`program_transport`](super::program_transport) asks a program's own [`transport`](crate::transport).

use std::{fmt, sync::Arc, time::Duration};

use super::{
    BoxFuture,
    connect_error::ConnectError,
    credentials_provider::CredentialsProvider,
    endpoint::{Address, Endpoint, OwnEnd},
    handshake::Handshake,
    reconnect::KnownServers,
    resolver::Resolver,
    tls::Tls,
};
use crate::{
    protocol::Protocol,
    transport::{self, Connection, Frame, TransportError},
};

/// The longest payload that is passed on. A message of a lock or of another synchronizer is a number; no other message wakes a
/// waiter.
pub(super) const LONGEST_PAYLOAD: usize = 256;

/// A server, and the credentials for it.
#[derive(Clone)]
pub(crate) struct ServerConfig {
    pub(crate) opener: Arc<dyn Opener>,
    pub(crate) endpoint: Endpoint,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u32>,
    /// The version of the protocol that the configuration demands.
    pub(crate) protocol: Protocol,
    /// The name of the connections at the server.
    pub(crate) connection_name: Option<Arc<str>>,
    /// All servers to which the same client connects.
    pub(crate) servers: Arc<KnownServers>,
}

impl ServerConfig {
    /// A server without a login, of which nothing is known yet.
    pub(super) fn new(opener: Arc<dyn Opener>, endpoint: Endpoint) -> Self {
        Self {
            opener,
            endpoint,
            username: None,
            password: None,
            database: None,
            protocol: Protocol::Auto,
            connection_name: None,
            servers: KnownServers::new(),
        }
    }

    /// The same at another address.
    pub(crate) fn at(&self, address: Address) -> Self {
        Self {
            endpoint: Endpoint::Tcp(address),
            ..self.clone()
        }
    }

    pub(crate) fn log_in_as(&mut self, username: Option<String>, password: Option<String>) {
        (self.username, self.password) = (username, password);
    }
}

impl fmt::Debug for ServerConfig {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("endpoint", &self.endpoint)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

/// How a connection is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectOptions {
    /// The first commands to try, one after the other. There is at least one.
    pub(crate) handshakes: &'static [Handshake],
    /// Whether to try the next handshake when the server closes the connection, too.
    pub(crate) after_close: bool,
    /// How long opening may take, all handshakes together.
    pub(crate) timeout: Duration,
    /// Messages that are kept for a receiver that is behind.
    pub(crate) messages: usize,
    /// Whether the server is a sentinel.
    pub(crate) is_sentinel: bool,
}

/// How sockets are opened, as far as the client sets it.
#[derive(Clone, Default)]
pub(crate) struct SocketOptions {
    /// The TLS settings, instead of the system's certificates.
    pub(crate) tls: Option<Tls>,
    /// The longest time that a connection may take to open.
    pub(crate) wait: Option<Duration>,
    /// The source of credentials before each connection, instead of the configuration.
    pub(crate) provider: Option<CredentialsProvider>,
    /// The way from host names to addresses, instead of the system's.
    pub(crate) resolver: Option<Resolver>,
}

/// Opens connections.
pub(crate) trait Opener: Send + Sync {
    /// Connects, and logs in. Dropping the future closes the connection.
    fn connect(
        &self,
        server: &ServerConfig,
        options: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>>;

    /// The same with other options, if it opens sockets.
    fn on(&self, _options: &SocketOptions) -> Option<Arc<dyn Opener>> {
        None
    }

    /// Whether every runtime reaches the same servers.
    fn is_reached_from_anywhere(&self) -> bool {
        true
    }

    /// Whether it has a source of credentials, which overrides those of the server.
    fn has_credentials(&self) -> bool {
        false
    }

    /// Whether scripts of its servers may lack the right or the command to publish.
    fn may_refuse_messages(&self) -> bool {
        true
    }

    /// Whether its connections are encrypted.
    fn is_encrypted(&self) -> bool {
        false
    }
}

/// A connection that was just opened.
pub(crate) struct Opened {
    pub(crate) connection: Arc<dyn Connection>,
    /// Completes with the reason when the connection ends. Dropping it ends the connection.
    pub(crate) ended: BoxFuture<String>,
    /// The server's answer to `CLIENT INFO`.
    pub(crate) info: Frame,
    /// The server's answer to `HELLO`; empty if it was not asked.
    pub(crate) greeting: Frame,
    /// The first commands that the server accepted.
    pub(crate) handshake: Handshake,
    /// This client's end.
    pub(crate) own_end: OwnEnd,
    /// The host by which the server was reached, if it has one.
    pub(crate) host: Option<Address>,
}

/// The answer to a command, or why there is none.
pub(crate) type Answer<'a> = transport::BoxFuture<'a, Result<Frame, TransportError>>;
