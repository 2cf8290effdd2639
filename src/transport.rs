//! The way to the servers as a trait: for a server in the process, or a tunnel. Needs the feature `transport`.
//!
//! A client opens sockets, unless its builder has a [`transport`](crate::LockClientBuilder::transport). The builder's URL, sentinels
//! or nodes still say which servers there are, and the transport says how they are reached. The client logs in, finds the
//! master or the slots, subscribes and reconnects as over sockets. The crate `redisson-lock-test` is a transport to servers in memory.
//!
//! A tunnel looks like a proxy, so each lock name travels alone, which is slower. For one server, set
//! [`EndpointKind::Server`](crate::EndpointKind::Server).
//!
//! # What an implementation keeps
//!
//! The trait stands above RESP: an implementation encodes commands and decodes values itself. If one of these rules is broken,
//! **two owners could hold one lock**, or a waiter sleeps too long:
//!
//! - A [`Link`] is one connection to one server for its life. It is not shared, pooled, reconnected or repeated underneath, because
//!   `WAIT`, `ASKING`, `CLIENT KILL`, the login and subscriptions concern the connection on which they are sent.
//! - A future of [`Connection::send`] that is dropped cuts no command: what has begun is written whole. The answer is read and
//!   discarded, and never becomes that of the next command.
//! - A command is not sent twice, even if its answer is lost.
//! - `ended` completes at every end of the connection. An error of `send` alone ends nothing.
//! - [`Pushed::Missed`] follows each loss of messages. Only the answer to `SUBSCRIBE` confirms it: a message of the server's own, such
//!   as the `sunsubscribe` of a slot that moved, confirms nothing.
//!
//! As from a socket, the client takes no message with a payload of over 256 bytes, and cuts the texts of errors at 300 characters. It bounds no other
//! value.
//!
//! # Examples
//!
//! A server in the process that knows two commands. A task answers them, so a future that is dropped cuts no command:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), redisson_lock::Error> {
//! use bytes::Bytes;
//! use futures_util::stream;
//! use redisson_lock::{
//!     LockClient,
//!     transport::{BoxFuture, Connection, Frame, Link, Messages, Transport, TransportError},
//! };
//! use tokio::{sync::{mpsc, oneshot}, task::JoinSet};
//!
//! type Request = (&'static str, Vec<Bytes>, oneshot::Sender<Frame>);
//!
//! fn answer(name: &str, args: &[Bytes]) -> Frame {
//!     match (name, args) {
//!         ("HELLO", _) => Frame::Map(Vec::new()),
//!         ("PING", [echo]) => Frame::Text(echo.clone()),
//!         ("PING", []) => Frame::Status("PONG".into()),
//!         _ => Frame::Error(format!("ERR unknown command '{name}'")),
//!     }
//! }
//!
//! struct Wire(mpsc::UnboundedSender<Request>);
//!
//! impl Connection for Wire {
//!     fn send(&self, name: &'static str, args: Vec<Bytes>) -> BoxFuture<'_, Result<Frame, TransportError>> {
//!         Box::pin(async move {
//!             let (answer, answered) = oneshot::channel();
//!             let _ = self.0.send((name, args, answer));
//!             answered.await.map_err(|_| TransportError::new("the wire is cut"))
//!         })
//!     }
//!
//!     fn messages(&self) -> Messages {
//!         Box::pin(stream::pending())
//!     }
//! }
//!
//! struct Desk;
//!
//! impl Transport for Desk {
//!     fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, Result<Link, TransportError>> {
//!         let known = (host, port) == ("desk", 6379);
//!         Box::pin(async move {
//!             if !known {
//!                 return Err(TransportError::new("no cable leads there"));
//!             }
//!             let (sender, mut requests) = mpsc::unbounded_channel::<Request>();
//!             let mut serving = JoinSet::new();
//!             serving.spawn(async move {
//!                 while let Some((name, args, answered)) = requests.recv().await {
//!                     let _ = answered.send(answer(name, &args));
//!                 }
//!             });
//!             // The client drops this future to end the connection, and with it the task.
//!             let ended = async move {
//!                 serving.join_next().await;
//!                 TransportError::new("the wire is cut")
//!             };
//!             Ok(Link::new(Wire(sender), ended))
//!         })
//!     }
//! }
//!
//! let client = LockClient::builder().url("redis://desk:6379").transport(Desk).build().await?;
//! client.ping().await?;
//! let elsewhere = LockClient::builder().url("redis://attic:6379").transport(Desk);
//! assert!(elsewhere.build().await.unwrap_err().to_string().contains("no cable leads there"));
//! # Ok(())
//! # }
//! ```

use std::{error::Error, fmt, pin::Pin, sync::Arc};

use bytes::Bytes;
use futures_util::stream::Stream;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed stream of messages.
pub type Messages = Pin<Box<dyn Stream<Item = Pushed> + Send>>;

/// Why there is no connection, no answer, or no connection any more.
///
/// The client shows the message and those of its sources, in the log and in the error of the caller: none of them may contain a
/// secret, such as the arguments of a command.
#[derive(Debug, Clone)]
pub struct TransportError {
    message: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl TransportError {
    /// Returns an error with this message.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            message: message.into(),
            source: None,
        }
    }

    /// Returns the same error with its cause.
    #[cfg(feature = "transport")]
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    pub(crate) fn into_message(self) -> Arc<str> {
        self.message
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

/// Opens connections to servers.
#[cfg(feature = "transport")]
pub trait Transport: Send + Sync {
    /// Opens a connection to the server at `host` and `port`, as the configuration, a sentinel or a node of a cluster names it. The
    /// client sends `HELLO` or `AUTH` itself, and drops the future after
    /// [`connect_timeout`](crate::LockClientBuilder::connect_timeout), which includes the login.
    ///
    /// The call comes from the client's runtime, or from a thread with a runtime of its own after that one has ended.
    ///
    /// # Errors
    ///
    /// The reason why there is no connection, for the log and the error of the caller. The client tries again after a pause.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future must close what it has opened.
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, Result<Link, TransportError>>;

    /// Whether the servers are in this process, as in a test. Default: false.
    ///
    /// The client then names no connections, and takes for granted that a connection leads to one server and no proxy, that scripts
    /// may publish, and that only the runtime of the builder reaches the server: `own_runtime` and `build_blocking` are
    /// [`Error::Config`](crate::Error::Config). **Where that is not so, two owners could hold one lock**: for a tunnel to
    /// one server, set [`EndpointKind::Server`](crate::EndpointKind::Server) instead.
    fn is_in_process(&self) -> bool {
        false
    }
}

#[cfg(feature = "transport")]
impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, Result<Link, TransportError>> {
        (**self).connect(host, port)
    }

    fn is_in_process(&self) -> bool {
        (**self).is_in_process()
    }
}

/// A connection that a [`Transport`] has opened.
#[cfg(feature = "transport")]
pub struct Link {
    pub(crate) connection: Arc<dyn Connection>,
    pub(crate) ended: BoxFuture<'static, TransportError>,
}

#[cfg(feature = "transport")]
impl Link {
    /// Returns an open connection. `ended` completes with the reason when the connection ends. The client ends the
    /// connection by dropping `ended`, so this future owns what closes it.
    pub fn new(
        connection: impl Connection + 'static,
        ended: impl Future<Output = TransportError> + Send + 'static,
    ) -> Self {
        Self {
            connection: Arc::new(connection),
            ended: Box::pin(ended),
        }
    }
}

#[cfg(feature = "transport")]
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// An open connection to one server.
pub trait Connection: Send + Sync {
    /// Sends the command `name` with `args`, of which a subcommand is the first; the answer may be [`Frame::Error`]. Commands are
    /// sent in the order in which their futures are first polled, and their answers arrive in that order. A command that is sent after the connection's end may stay unanswered.
    ///
    /// `SUBSCRIBE`, `SSUBSCRIBE` and their opposites complete once the server has confirmed every channel, with any frame, or with
    /// [`Frame::Error`].
    ///
    /// # Errors
    ///
    /// The reason why there is no answer. The server may or may not have executed the command.
    ///
    /// # Cancel safety
    ///
    /// A command whose sending has begun is sent whole; its answer is read and dropped.
    fn send(
        &self,
        name: &'static str,
        args: Vec<Bytes>,
    ) -> BoxFuture<'_, Result<Frame, TransportError>>;

    /// Returns the messages that arrive from now on. The client calls it once at most.
    fn messages(&self) -> Messages;
}

/// A value of the server, in either version of the protocol. Attributes of RESP3 are left out; no answer that the client needs is
/// a double, a boolean or a big number.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Frame {
    /// No value: a null string, a null list, or the null of RESP3.
    Null,
    /// An integer.
    Number(i64),
    /// A short text of the server's own, such as `OK`.
    Status(Bytes),
    /// A string of bytes; of a verbatim string the part behind its format.
    Text(Bytes),
    /// A refusal, with its message.
    Error(String),
    /// Several values: a list or a set.
    List(Vec<Frame>),
    /// Names and values.
    Map(Vec<(Frame, Frame)>),
}

/// Data that a server sends without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pushed {
    /// A message on a channel: [`Pushed::message`] makes it.
    #[non_exhaustive]
    Message {
        /// The channel.
        channel: Bytes,
        /// The payload.
        payload: Bytes,
    },
    /// The receiver was behind, and messages were lost.
    Missed,
}

impl Pushed {
    /// A message on a channel.
    pub fn message(channel: Bytes, payload: Bytes) -> Self {
        Self::Message { channel, payload }
    }
}
