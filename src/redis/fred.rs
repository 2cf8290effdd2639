//! Connections by the library fred: the only file that names it.
//!
//! A fred client here is one connection. It has no reconnect policy and no limits of its own, and sends nothing again, so
//! that it ends when the connection does, with every call that it still had.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use ::fred::{
    clients::Client,
    error::{Error as FredError, ErrorKind},
    interfaces::{ClientLike, EventInterface, PubsubInterface},
    types::{
        Builder, ClusterHash, CustomCommand, Message, Resp3Frame, RespVersion, Value,
        config::{Config, ConnectionConfig, ServerConfig as FredServer, TcpConfig},
    },
};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::{sync::broadcast, task::JoinHandle, time::timeout};

use super::{
    BoxFuture, HashSlot,
    connection::{
        Address, Answer, ConnectError, ConnectErrorKind, Connection, Endpoint, Frame, Opened,
        Pushed, ServerConfig, Terms, Transport, Version,
    },
    server::Target,
};
use crate::error::Error;

/// How long closing waits for what is still on its way.
const QUIT_WAIT: Duration = Duration::from_millis(500);

/// How far tokio's clock has to be ahead of the machine's to be a paused one.
const PAUSED_AHEAD: Duration = Duration::from_millis(500);

/// The client library that a caller may hand over a client of.
pub(crate) use ::fred::clients::Client as FredClient;

/// The slot of a key on a cluster.
pub(crate) fn hash_slot(key: &[u8]) -> HashSlot {
    ::fred::util::redis_keyslot(key)
}

/// Makes fred clients with these settings, but for where they connect and as whom.
pub(super) struct Fred(Config);

impl Fred {
    pub(super) fn plain() -> Arc<dyn Transport> {
        Arc::new(Self(Config::default()))
    }

    #[cfg(feature = "rustls")]
    pub(super) fn encrypted() -> Result<Arc<dyn Transport>, Error> {
        let connector = ::fred::types::config::TlsConnector::default_rustls().map_err(|error| {
            Error::config(format!(
                "the system's certificates cannot be read: {}",
                error.details()
            ))
        })?;
        let config = Config {
            tls: Some(connector.into()),
            ..Config::default()
        };
        Ok(Arc::new(Self(config)))
    }

    /// fred would connect in plain text (P-FR15).
    #[cfg(not(feature = "rustls"))]
    pub(super) fn encrypted() -> Result<Arc<dyn Transport>, Error> {
        Err(Error::config(
            "the URL asks for TLS, which is not compiled in: enable the feature `rustls` of redisson-lock",
        ))
    }

    fn is_server_of_donor(&self, (host, port): &Address) -> bool {
        match &self.0.server {
            FredServer::Centralized { server } => *server.host == **host && server.port == *port,
            _ => false,
        }
    }

    fn config(&self, server: &ServerConfig, version: Version) -> Config {
        let mut config = self.0.clone();
        config.fail_fast = true;
        config.version = match version {
            Version::Resp2 => RespVersion::RESP2,
            Version::Resp3 => RespVersion::RESP3,
        };
        config.server = match &server.endpoint {
            // A donor's own server may have a name of its own for TLS.
            Endpoint::Tcp(address) if self.is_server_of_donor(address) => self.0.server.clone(),
            Endpoint::Tcp((host, port)) => FredServer::new_centralized(host.clone(), *port),
            Endpoint::Unix(path) => FredServer::Unix { path: path.clone() },
        };
        config.username = server.username.clone();
        config.password = server.password.clone();
        config.database = server.database;
        config
    }
}

/// Takes over where and as whom the caller's own client connects. Its connections stay its own.
pub(super) fn target_of(donor: &Client) -> Target {
    let config = donor.client_config();
    let server = |endpoint| ServerConfig {
        transport: Arc::new(Fred(config.clone())),
        endpoint,
        username: config.username.clone(),
        password: config.password.clone(),
        database: config.database,
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

impl Transport for Fred {
    fn connect(
        &self,
        server: &ServerConfig,
        terms: Terms,
    ) -> BoxFuture<Result<Opened, ConnectError>> {
        let config = self.config(server, terms.version);
        Box::pin(async move {
            let clocks = Clocks::now();
            let opened = match timeout(terms.timeout, open(config, terms)).await {
                Ok(opened) => opened.map_err(ConnectError::from),
                Err(_) => Err(ConnectError::timeout()),
            };
            match opened {
                Err(_) if clocks.differ() => Err(ConnectError::paused_clock()),
                opened => opened,
            }
        })
    }

    #[cfg(feature = "rustls")]
    fn is_encrypted(&self) -> bool {
        self.0.tls.is_some()
    }
}

/// The time by tokio's clock and by the machine's, which differ while a test has paused the first.
struct Clocks(tokio::time::Instant, std::time::Instant);

impl Clocks {
    fn now() -> Self {
        Self(tokio::time::Instant::now(), std::time::Instant::now())
    }

    fn differ(&self) -> bool {
        self.0.elapsed() > self.1.elapsed() + PAUSED_AHEAD
    }
}

async fn open(config: Config, terms: Terms) -> Result<Opened, FredError> {
    let client = Builder::from_config(config)
        .with_connection_config(|connection| *connection = settings(terms.timeout))
        .with_performance_config(|performance| {
            performance.broadcast_channel_capacity = terms.messages;
            performance.default_command_timeout = Duration::ZERO;
        })
        .build()?;
    // Without a reconnect policy, fred ends its task and fails every call when the connection ends.
    let mut router = Router(client.connect());
    let info = tokio::select! {
        biased;
        error = &mut router => return Err(error),
        info = command(&client, "CLIENT", vec![Bytes::from_static(b"INFO")]) => info?,
    };
    Ok(Opened {
        connection: Arc::new(Open(client)),
        ended: Box::pin(async move { router.await.details().to_owned() }),
        info,
    })
}

fn settings(wait: Duration) -> ConnectionConfig {
    ConnectionConfig {
        connection_timeout: wait,
        internal_command_timeout: wait,
        max_command_attempts: 1,
        max_command_buffer_len: 0,
        tcp: TcpConfig {
            nodelay: Some(true),
            ..TcpConfig::default()
        },
        ..ConnectionConfig::default()
    }
}

/// The task of fred that moves the bytes; completes when the connection ends. Dropped, it closes the socket, and calls
/// fail.
struct Router(JoinHandle<Result<(), FredError>>);

impl Future for Router {
    type Output = FredError;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<FredError> {
        let ended = Pin::new(&mut self.0).poll(context);
        ended.map(|ended| {
            let error = ended.ok().and_then(Result::err);
            error.unwrap_or_else(|| FredError::new(ErrorKind::IO, "the connection ended"))
        })
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An open connection.
struct Open(Client);

impl Connection for Open {
    fn send(&self, name: &'static str, args: Vec<Bytes>) -> Answer<'_> {
        Box::pin(async move {
            let answer = match name {
                "SUBSCRIBE" => self.0.subscribe(texts(&args)).await.map(|()| Frame::Null),
                "UNSUBSCRIBE" => self.0.unsubscribe(texts(&args)).await.map(|()| Frame::Null),
                "SUNSUBSCRIBE" => self
                    .0
                    .sunsubscribe(texts(&args))
                    .await
                    .map(|()| Frame::Null),
                // To a shard, fred takes what comes back for the answer to the command.
                _ => command(&self.0, name, args).await,
            };
            answer.map_err(|error| error.details().into())
        })
    }

    fn messages(&self) -> Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        let messages = self.0.message_rx();
        Box::pin(stream::unfold(messages, |mut messages| async move {
            Some((next(&mut messages).await?, messages))
        }))
    }

    fn quit(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            if timeout(QUIT_WAIT, self.0.quit()).await.is_err() {
                tracing::debug!("a connection was closed with calls unanswered");
            }
        })
    }
}

async fn command(
    client: &Client,
    name: &'static str,
    args: Vec<Bytes>,
) -> Result<Frame, FredError> {
    let command = CustomCommand::new_static(name, ClusterHash::Random, false);
    let args: Vec<Value> = args.into_iter().map(Value::Bytes).collect();
    client.custom_raw(command, args).await.map(Frame::from)
}

async fn next(messages: &mut broadcast::Receiver<Message>) -> Option<Pushed> {
    match messages.recv().await {
        Ok(message) => Some(Pushed::Message {
            channel: message.channel.into_inner(),
            payload: message.value.into_bytes().unwrap_or_default(),
        }),
        Err(broadcast::error::RecvError::Lagged(_)) => Some(Pushed::Missed),
        Err(broadcast::error::RecvError::Closed) => None,
    }
}

/// fred subscribes to text. The names of locks are text.
fn texts(channels: &[Bytes]) -> Vec<String> {
    let text = |channel: &Bytes| String::from_utf8_lossy(channel).into_owned();
    channels.iter().map(text).collect()
}

impl From<Resp3Frame> for Frame {
    fn from(frame: Resp3Frame) -> Self {
        let list =
            |frames: Vec<Resp3Frame>| Frame::List(frames.into_iter().map(Frame::from).collect());
        match frame {
            Resp3Frame::Number { data, .. } => Frame::Number(data),
            Resp3Frame::SimpleString { data, .. } => Frame::Status(data),
            Resp3Frame::BlobString { data, .. } | Resp3Frame::VerbatimString { data, .. } => {
                Frame::Text(data)
            }
            Resp3Frame::SimpleError { data, .. } => Frame::Error(data.to_string()),
            Resp3Frame::BlobError { data, .. } => {
                Frame::Error(String::from_utf8_lossy(&data).into_owned())
            }
            Resp3Frame::Array { data, .. } | Resp3Frame::Push { data, .. } => list(data),
            Resp3Frame::Set { data, .. } => list(data.into_iter().collect()),
            Resp3Frame::Map { data, .. } => {
                let pair = |(name, value)| (Frame::from(name), Frame::from(value));
                Frame::Map(data.into_iter().map(pair).collect())
            }
            // No command of this crate is answered by any other.
            _ => Frame::Null,
        }
    }
}

impl From<FredError> for ConnectError {
    fn from(error: FredError) -> Self {
        let kind = match error.kind() {
            ErrorKind::Auth => ConnectErrorKind::Credentials,
            ErrorKind::Protocol | ErrorKind::Parse => ConnectErrorKind::NoRedis,
            ErrorKind::Config | ErrorKind::Url => ConnectErrorKind::Config,
            ErrorKind::IO | ErrorKind::Timeout | ErrorKind::Canceled => ConnectErrorKind::Network,
            _ => ConnectErrorKind::Other,
        };
        Self {
            kind,
            details: error.details().to_owned(),
        }
    }
}
