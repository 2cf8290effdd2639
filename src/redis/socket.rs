//! Connections over TCP, TLS and unix sockets, with the crate's own RESP.
//!
//! fred takes no part in them. It sends the handshake as an inline command with unescaped credentials. It logs servers'
//! messages with the arguments that they echo. Its decoder recurses into nested values until the stack overflows and the
//! process ends. It treats `CLUSTERDOWN` as the end of a connection.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::{
    net::{TcpStream, UnixStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

use super::{
    BoxFuture,
    connect_error::{ConnectError, ConnectErrorKind},
    connection::{
        Answer, ConnectOptions, Connection, Frame, Opened, Pushed, ServerConfig, SocketOptions,
        Transport, Version,
    },
    driver::{self, Driver, GARBAGE, Received, Request},
    endpoint::Endpoint,
    endpoint::Socket,
    fred::Provider,
    tls::Tls,
};
use crate::{error::Error, server_text, wire::Refusal};

/// How long a close waits for pending answers.
const QUIT_WAIT: Duration = Duration::from_millis(500);

/// The server's error for a client beyond its limit, before it closes the connection.
const TOO_MANY: &str = "max number of clients";

/// A lead of tokio's clock over the machine's from which the clock counts as paused.
const PAUSED_AHEAD: Duration = Duration::from_millis(500);

/// Opens sockets.
#[derive(Clone)]
pub(super) struct Sockets {
    pub(super) tls: Option<Tls>,
    /// The source of credentials before each connection, if not the configuration.
    pub(super) provider: Option<Provider>,
    /// The longest time that a connection may take to open, if the client sets it.
    pub(super) wait: Option<Duration>,
}

impl Sockets {
    pub(super) fn plain() -> Arc<dyn Transport> {
        Arc::new(Self {
            tls: None,
            provider: None,
            wait: None,
        })
    }

    pub(super) fn encrypted() -> Result<Arc<dyn Transport>, Error> {
        Ok(Arc::new(Self {
            tls: Some(Tls::of_the_system()?),
            provider: None,
            wait: None,
        }))
    }

    async fn dial(&self, endpoint: &Endpoint) -> Result<Box<dyn Socket>, ConnectError> {
        let (host, port) = match endpoint {
            Endpoint::Unix(path) => {
                let socket = UnixStream::connect(path).await;
                return Ok(Box::new(socket.map_err(|error| network(&error))?));
            }
            Endpoint::Tcp((host, port)) => (host, *port),
        };
        let socket = TcpStream::connect((host.as_str(), port)).await;
        let socket = socket.map_err(|error| network(&error))?;
        socket.set_nodelay(true).map_err(|error| network(&error))?;
        match &self.tls {
            Some(tls) => tls.secure(host, port, socket).await,
            None => Ok(Box::new(socket)),
        }
    }

    async fn open(
        self,
        mut server: ServerConfig,
        options: ConnectOptions,
    ) -> Result<Opened, ConnectError> {
        if let Some(provider) = &self.provider {
            let (username, password) = provider.credentials(&server.endpoint).await?;
            server.log_in_as(username, password);
        }
        let socket = self.dial(&server.endpoint).await?;
        let (open, mut task) = Open::start(socket, &server, options);
        let (greeting, info) = tokio::select! {
            biased;
            logged_in = log_in(&open, &server, options.version) => logged_in?,
            reason = &mut task => return Err(ConnectError::ended(reason)),
        };
        Ok(Opened {
            connection: Arc::new(open),
            ended: Box::pin(task),
            info,
            greeting,
        })
    }
}

impl Transport for Sockets {
    fn connect(
        &self,
        server: &ServerConfig,
        options: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>> {
        let opening = self.clone().open(server.clone(), options);
        let wait = self.wait;
        Box::pin(async move {
            let clocks = Clocks::now();
            let wait = wait.map_or(options.timeout, |wait| wait.min(options.timeout));
            let opened = timeout(wait, opening).await;
            match opened.unwrap_or_else(|_| Err(ConnectError::timeout())) {
                Err(_) if clocks.differ() => Err(ConnectError::paused_clock()),
                opened => opened,
            }
        })
    }

    fn has_credentials(&self) -> bool {
        self.provider.is_some()
    }

    fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    fn on(&self, options: &SocketOptions) -> Option<Arc<dyn Transport>> {
        let mut sockets = self.clone();
        if let Some(tls) = &options.tls {
            sockets.tls = Some(tls.clone());
        }
        sockets.wait = options.wait.or(self.wait);
        Some(Arc::new(sockets))
    }
}

/// The time by tokio's clock and by the machine's. They differ while a test has paused tokio's clock.
struct Clocks(tokio::time::Instant, std::time::Instant);

impl Clocks {
    fn now() -> Self {
        Self(tokio::time::Instant::now(), std::time::Instant::now())
    }

    fn differ(&self) -> bool {
        self.0.elapsed() > self.1.elapsed() + PAUSED_AHEAD
    }
}

fn network(error: &std::io::Error) -> ConnectError {
    ConnectError {
        kind: ConnectErrorKind::Network,
        details: server_text::shown(&error.to_string()),
    }
}

impl ConnectError {
    /// The connection ended before it was logged in.
    fn ended(reason: String) -> Self {
        let kind = match reason.starts_with(GARBAGE) {
            true => ConnectErrorKind::NoRedis,
            false if reason.contains(TOO_MANY) => ConnectErrorKind::Busy,
            false => ConnectErrorKind::Network,
        };
        Self {
            kind,
            details: reason,
        }
    }

    /// The server's refusal of the handshake.
    fn refused(message: &str, password: Option<&str>) -> Self {
        const OF_CREDENTIALS: [&str; 4] = [
            "NOAUTH",
            "WRONGPASS",
            "invalid password",
            "without any password",
        ];
        let is_of_credentials = OF_CREDENTIALS.iter().any(|text| message.contains(text));
        let passes = matches!(
            Refusal::from_message(message.to_owned()),
            Refusal::Transient { .. }
        );
        Self {
            kind: match is_of_credentials {
                true => ConnectErrorKind::Credentials,
                false if passes || message.contains(TOO_MANY) => ConnectErrorKind::Busy,
                false => ConnectErrorKind::Other,
            },
            details: server_text::without(&[password.unwrap_or_default()], message),
        }
    }
}

/// Logs in and negotiates the version of the protocol. Returns the answers to `HELLO` and `CLIENT INFO`.
async fn log_in(
    open: &Open,
    server: &ServerConfig,
    version: Version,
) -> Result<(Frame, Frame), ConnectError> {
    let (username, password) = (server.username.as_deref(), server.password.as_deref());
    let ask = async |name, words: &[&str]| {
        let args = words
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()));
        match open.send(name, args.collect()).await {
            Ok(Frame::Error(message)) => Err(ConnectError::refused(&message, password)),
            Ok(frame) => Ok(frame),
            Err(reason) => Err(ConnectError::ended(reason.as_ref().to_owned())),
        }
    };
    let mut greeting = Frame::Null;
    match (version, username, password) {
        (_, Some(_), None) => return Err(ConnectError::no_password()),
        (Version::Resp3, _, None) => greeting = hello(ask("HELLO", &["3"]).await?)?,
        (Version::Resp3, username, Some(password)) => {
            let username = username.unwrap_or("default");
            greeting = hello(ask("HELLO", &["3", "AUTH", username, password]).await?)?;
        }
        (Version::Resp2, _, None) => {}
        (Version::Resp2, None, Some(password)) => drop(ask("AUTH", &[password]).await?),
        (Version::Resp2, Some(username), Some(password)) => {
            drop(ask("AUTH", &[username, password]).await?);
        }
    }
    if let Some(database) = server.database {
        ask("SELECT", &[&database.to_string()]).await?;
    }
    // Sends both commands at once. A refusal is an answer too: names and identities are optional.
    let naming = async {
        if let Some(name) = &server.connection_name {
            let words = [&b"SETNAME"[..], name.as_bytes()].map(Bytes::copy_from_slice);
            let _ = open.send("CLIENT", words.into()).await;
        }
    };
    let asking = open.send("CLIENT", vec![Bytes::from_static(b"INFO")]);
    let ((), info) = tokio::join!(naming, asking);
    match info {
        // A server without HELLO accepts each connection, and then refuses every command for lack of a login.
        Ok(Frame::Error(message)) if message.starts_with("NOAUTH") => {
            Err(ConnectError::refused(&message, password))
        }
        Ok(info) => Ok((greeting, info)),
        Err(reason) => Err(ConnectError::ended(reason.as_ref().to_owned())),
    }
}

/// Refuses a frame that is not an answer to `HELLO`.
fn hello(answer: Frame) -> Result<Frame, ConnectError> {
    match answer {
        Frame::Map(_) => Ok(answer),
        _ => Err(ConnectError {
            kind: ConnectErrorKind::NoRedis,
            details: format!("{GARBAGE}: the answer to HELLO is not a map"),
        }),
    }
}

/// The task that moves a connection's bytes. It completes when the connection ends. Its drop closes the socket, and calls
/// fail.
struct Moving(JoinHandle<String>);

impl Future for Moving {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<String> {
        let ended = Pin::new(&mut self.0).poll(context);
        ended.map(|ended| ended.unwrap_or_else(|_| "the connection ended".into()))
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An open connection.
struct Open {
    requests: mpsc::UnboundedSender<Request>,
    /// `None` once a caller has taken them.
    received: Mutex<Option<Received>>,
}

impl Open {
    fn start(
        socket: Box<dyn Socket>,
        server: &ServerConfig,
        options: ConnectOptions,
    ) -> (Self, Moving) {
        let (requests, taken) = mpsc::unbounded_channel();
        let (messages, received) = driver::messages(options.messages);
        let password = server.password.clone().unwrap_or_default();
        let driver = Driver::new(socket, options.version, password, taken, messages);
        let open = Self {
            requests,
            received: Mutex::new(Some(received)),
        };
        (open, Moving(tokio::spawn(driver.run())))
    }
}

impl Connection for Open {
    fn send(&self, name: &'static str, args: Vec<Bytes>) -> Answer<'_> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let request = Request { name, args, answer };
            if self.requests.send(request).is_err() {
                return Err("the connection ended".into());
            }
            let ended = |_| Err("the connection ended".into());
            answered.await.unwrap_or_else(ended)
        })
    }

    fn messages(&self) -> Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(stream::unfold(received.take(), |received| async move {
            let mut received = received?;
            Some((received.next().await?, Some(received)))
        }))
    }

    fn quit(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let quit = self.send("QUIT", Vec::new());
            if timeout(QUIT_WAIT, quit).await.is_err() {
                tracing::debug!("closed a connection with unanswered calls");
            }
        })
    }
}
