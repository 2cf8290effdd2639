//! The traits of a connection: commands out, frames and messages in. [`socket`](super::socket) makes real connections,
//! [`test_util`](crate::test_util) connections to a server in memory.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream::Stream;

use super::{
    BoxFuture,
    attempts::Servers,
    connect_error::ConnectError,
    endpoint::{Address, Endpoint, OwnEnd},
    handshake::Handshake,
    provider::Provider,
    resolver::Resolver,
    tls::Tls,
};
use crate::protocol::Protocol;

/// A value of the server, in either version of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// No value.
    Null,
    /// An integer.
    Number(i64),
    /// A short text of the server's own, such as `OK`.
    Status(Bytes),
    /// A string of bytes.
    Text(Bytes),
    /// A refusal, with its message.
    Error(String),
    /// Several values.
    List(Vec<Frame>),
    /// Names and values.
    Map(Vec<(Frame, Frame)>),
}

/// A server, and the credentials for it.
#[derive(Clone)]
pub(crate) struct ServerConfig {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) endpoint: Endpoint,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u32>,
    /// The version of the protocol that the configuration demands.
    pub(crate) protocol: Protocol,
    /// The name of the connections at the server.
    pub(crate) connection_name: Option<Arc<str>>,
    /// All servers to which the same client connects.
    pub(crate) servers: Arc<Servers>,
}

impl ServerConfig {
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

impl ConnectOptions {
    /// The first handshake, for a transport whose servers accept every one.
    #[cfg(feature = "test-util")]
    pub(crate) fn handshake(&self) -> Handshake {
        self.handshakes.first().copied().unwrap_or(Handshake::Hello)
    }
}

/// How sockets are opened, as far as the client sets it.
#[derive(Clone, Default)]
pub(crate) struct SocketOptions {
    /// The TLS settings, instead of the system's certificates.
    pub(crate) tls: Option<Tls>,
    /// The longest time that a connection may take to open.
    pub(crate) wait: Option<Duration>,
    /// The source of credentials before each connection, instead of the configuration.
    pub(crate) provider: Option<Provider>,
    /// The way from host names to addresses, instead of the system's.
    pub(crate) resolver: Option<Resolver>,
}

/// Opens connections.
pub(crate) trait Transport: Send + Sync {
    /// Connects, and logs in. Dropping the future closes the connection.
    fn connect(
        &self,
        server: &ServerConfig,
        options: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>>;

    /// The same with other options, if it opens sockets.
    fn on(&self, _options: &SocketOptions) -> Option<Arc<dyn Transport>> {
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
pub(crate) type Answer<'a> = Pin<Box<dyn Future<Output = Result<Frame, Arc<str>>> + Send + 'a>>;

/// An open connection to one server.
pub(crate) trait Connection: Send + Sync {
    /// Sends one command; the answer may be an error frame. Commands are sent in the order in which their futures are first
    /// polled. A command that is sent after the connection's end may stay unanswered.
    fn send(&self, name: &'static str, args: Vec<Bytes>) -> Answer<'_>;

    /// The messages that arrive from now on.
    fn messages(&self) -> Pin<Box<dyn Stream<Item = Pushed> + Send>>;

    /// Sends `QUIT`. The server answers it after all earlier commands.
    fn quit(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Data that a server sends without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    /// A message on a channel.
    Message {
        /// The channel.
        channel: Bytes,
        /// The payload.
        payload: Bytes,
    },
    /// The receiver was behind, and messages were lost.
    Missed,
}
