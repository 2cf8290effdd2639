//! One connection: a fred client that lives and dies with it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fred::{
    clients::Client,
    error::{Error as FredError, ErrorKind},
    interfaces::ClientLike,
    types::{
        Builder, ClusterHash, CustomCommand, Resp3Frame as Frame, RespVersion, Value,
        config::{Config, ConnectionConfig, ServerConfig, TcpConfig},
    },
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    BoxFuture,
    client_info::{Identity, Subscriptions},
    frame,
    locator::{Address, Locator, is_master},
    node::refusal,
};
use crate::error::Error;

/// How long a connection may take to open, and the handshake on it.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The same where others can tell that the server has been replaced.
const ASKED_WAIT: Duration = Duration::from_millis(1500);
/// How long a `PING` may stay unanswered before its connection counts as broken.
pub(super) const PING_WAIT: Duration = Duration::from_secs(2);
/// How long closing waits for what is still on its way.
const QUIT_WAIT: Duration = Duration::from_millis(500);
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The same where each attempt begins with the question where to.
const ASKED_PAUSE: Duration = Duration::from_millis(100);

/// Makes connections to one server.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    /// Messages that fred keeps for a receiver that is behind.
    messages: usize,
    /// How long a connection may take to open.
    wait: Duration,
    /// How long a `PING` may stay unanswered.
    ping_wait: Duration,
    locator: Locator,
    without_resp3: std::sync::Arc<AtomicBool>,
}

impl Connector {
    pub(super) fn new(mut config: Config, messages: usize) -> Self {
        config.fail_fast = true;
        Self {
            config,
            messages,
            wait: CONNECT_WAIT,
            ping_wait: PING_WAIT,
            locator: Locator::Fixed,
            without_resp3: std::sync::Arc::default(),
        }
    }

    pub(super) fn within(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// For commands that the server may take so long to answer, and everything behind them.
    pub(super) fn blocking(mut self, longest: Duration) -> Self {
        self.ping_wait = PING_WAIT + longest;
        self
    }

    /// Connects to wherever `locator` says.
    pub(super) fn to(mut self, locator: &Locator) -> Self {
        if locator.is_asked() {
            // A master that does not answer is about to be replaced.
            self.wait = ASKED_WAIT;
        }
        self.locator = locator.clone();
        self
    }

    /// Connects, in RESP3 where the server speaks it.
    pub(super) async fn connect(&self) -> Result<Connection, Error> {
        let tls = asks_for_tls(&self.config);
        let address = self.locator.locate().await?;
        let mut moved = self.locator.moved(address.as_ref());
        let mut connection = tokio::select! {
            biased;
            reason = &mut moved => return Err(Error::unavailable(reason)),
            connection = self.connect_to(address, tls) => connection?,
        };
        if self.locator.is_asked() {
            connection.check_master().await?;
        }
        connection.router.moved = Some(moved);
        Ok(connection)
    }

    async fn connect_to(&self, address: Option<Address>, tls: bool) -> Result<Connection, Error> {
        let mut config = self.config.clone();
        if let Some((host, port)) = address {
            config.server = ServerConfig::new_centralized(host, port);
        }
        if !self.without_resp3.load(Ordering::Relaxed) {
            match self.connect_with(config.clone(), RespVersion::RESP3).await {
                Err(error) if lacks_resp3(&error) => {
                    self.without_resp3.store(true, Ordering::Relaxed);
                }
                done => return done.map_err(|error| explain(error, tls)),
            }
        }
        self.connect_with(config, RespVersion::RESP2)
            .await
            .map_err(|error| explain(error, tls))
    }

    /// Connects as often as it takes, at once and then with growing pauses. `None` when `closed` is cancelled.
    pub(super) async fn connect_until(&self, closed: &CancellationToken) -> Option<Connection> {
        let longest = if self.locator.is_asked() {
            ASKED_PAUSE
        } else {
            LONGEST_PAUSE
        };
        let mut pause = Duration::from_millis(5);
        loop {
            let attempt = closed.run_until_cancelled(self.connect()).await?;
            match attempt {
                Ok(connection) => return Some(connection),
                Err(error) => tracing::warn!(%error, "cannot connect to Redis"),
            }
            closed
                .run_until_cancelled(tokio::time::sleep(pause))
                .await?;
            pause = (pause * 2).min(longest);
        }
    }

    async fn connect_with(
        &self,
        mut config: Config,
        version: RespVersion,
    ) -> Result<Connection, FredError> {
        config.version = version.clone();
        // Without a reconnect policy, fred ends its task and fails every call when the connection ends.
        let client = Builder::from_config(config)
            .with_connection_config(|connection| *connection = connection_config(self.wait))
            .with_performance_config(|performance| {
                performance.broadcast_channel_capacity = self.messages;
                performance.default_command_timeout = Duration::ZERO;
            })
            .build()?;
        let mut router = Router {
            task: Some(client.connect()),
            moved: None,
        };
        let info = command(&client, "CLIENT", vec!["INFO".into()]);
        let answer = timeout(self.wait, async {
            tokio::select! {
                error = router.error() => Err(error),
                answer = info => answer,
            }
        })
        .await
        .unwrap_or_else(|_| {
            Err(FredError::new(
                ErrorKind::Timeout,
                "the server did not answer",
            ))
        })?;
        let info = frame::text(&answer);
        Ok(Connection {
            identity: info.as_deref().and_then(Identity::read),
            // In RESP2 a connection that has subscribed may ask for nothing else.
            counts_subscriptions: version == RespVersion::RESP3
                && info.as_deref().and_then(Subscriptions::read).is_some(),
            ping_wait: self.ping_wait,
            client,
            router,
        })
    }
}

#[cfg(feature = "rustls")]
pub(super) fn asks_for_tls(config: &Config) -> bool {
    config.tls.is_some()
}

#[cfg(not(feature = "rustls"))]
pub(super) fn asks_for_tls(_: &Config) -> bool {
    false
}

fn connection_config(wait: Duration) -> ConnectionConfig {
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

fn lacks_resp3(error: &FredError) -> bool {
    let details = error.details();
    details.contains("unknown command") || details.contains("NOPROTO")
}

/// What a failed connect means, and what to do about it.
fn explain(error: FredError, tls: bool) -> Error {
    let details = error.details();
    let hint = if tls {
        ", and speaks TLS there with a certificate that is trusted"
    } else {
        ""
    };
    match error.kind() {
        ErrorKind::Auth => Error::config(format!(
            "Redis refused the user name or password: check those of the URL ({details})"
        )),
        ErrorKind::Protocol | ErrorKind::Parse => Error::unavailable(format!(
            "what answered is no Redis: check the host and port of the URL ({details})"
        )),
        ErrorKind::Config | ErrorKind::Url => Error::config(details.to_owned()),
        _ if details.contains("DB index") => Error::config(format!(
            "the server does not have the database that the URL names ({details})"
        )),
        ErrorKind::IO | ErrorKind::Timeout | ErrorKind::Canceled => Error::unavailable(format!(
            "no connection: check that the server runs where the URL says{hint} ({details})"
        )),
        _ if tls => Error::unavailable(format!(
            "no connection over TLS: check that the server speaks it there{hint} ({details})"
        )),
        _ => Error::Redis {
            message: details.to_owned(),
        },
    }
}

/// Sends one command; the answer may be an error frame.
pub(super) async fn command(
    client: &Client,
    name: &'static str,
    args: Vec<Value>,
) -> Result<Frame, FredError> {
    let command = CustomCommand::new_static(name, ClusterHash::Random, false);
    client.custom_raw(command, args).await
}

/// Says goodbye to the server, which fred does only after the answers to all that was sent.
pub(super) async fn quit(client: &Client) {
    if timeout(QUIT_WAIT, client.quit()).await.is_err() {
        tracing::debug!("a connection was closed with calls unanswered");
    }
}

/// An open connection. Dropping it ends it.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) identity: Option<Identity>,
    /// Whether the server says on it how many channels it has subscribed to.
    pub(super) counts_subscriptions: bool,
    /// How long a `PING` on it may stay unanswered.
    pub(super) ping_wait: Duration,
    /// The task of fred that moves the bytes.
    pub(super) router: Router,
}

impl Connection {
    /// Refuses a server that is no master, or no longer one.
    async fn check_master(&mut self) -> Result<(), Error> {
        let client = self.client.clone();
        let asking = async {
            let role = command(&client, "ROLE", Vec::new()).await;
            role.map_err(|error| error.details().to_owned())
        };
        match timeout(PING_WAIT, self.router.run(asking)).await {
            Ok(Ok(role)) if is_master(&role) => Ok(()),
            Ok(Ok(role)) => Err(refusal(&role).unwrap_or_else(|| {
                Error::unavailable(match frame::error(&role) {
                    Some(message) => format!("the server does not tell its role: {message}"),
                    None => "the server is not a master yet".into(),
                })
            })),
            Ok(Err(reason)) => Err(Error::unavailable(reason)),
            Err(_) => Err(Error::unavailable("the server does not tell its role")),
        }
    }

    /// Asks for `number` back. Anything else is no answer: replies have shifted (P-FR7).
    pub(super) async fn ping(client: &Client, number: u64, wait: Duration) -> Result<(), String> {
        let number = number.to_string();
        match timeout(wait, command(client, "PING", vec![number.clone().into()])).await {
            Err(_) => Err("no answer to a PING".into()),
            Ok(Err(error)) => Err(error.details().to_owned()),
            Ok(Ok(answer)) => match frame::error(&answer) {
                // A server that is busy with somebody's script is alive.
                Some(message) if message.starts_with("BUSY") => Ok(()),
                Some(message) => Err(message),
                None if frame::text(&answer).as_deref() == Some(&number) => Ok(()),
                None => Err("the answer to a PING was another one's".into()),
            },
        }
    }

    /// How many channels the server has subscribed the connection to.
    pub(super) async fn subscriptions(client: &Client) -> Result<Subscriptions, String> {
        match timeout(PING_WAIT, command(client, "CLIENT", vec!["INFO".into()])).await {
            Err(_) => Err("no answer to a CLIENT INFO".into()),
            Ok(Err(error)) => Err(error.details().to_owned()),
            Ok(Ok(answer)) => match frame::error(&answer) {
                Some(message) => Err(message),
                None => frame::text(&answer)
                    .as_deref()
                    .and_then(Subscriptions::read)
                    .ok_or_else(|| "the answer to a CLIENT INFO was another one's".into()),
            },
        }
    }

    /// Makes the server drop a connection of ours that broke, so that nothing it still had to read is run later than
    /// what is now repeated. Both its number and its address must fit: after a restart the number is somebody else's.
    pub(super) async fn kill(client: &Client, old: &Identity) {
        let args = ["KILL", "ID", &old.id, "ADDR", &old.address].map(Value::from);
        match timeout(PING_WAIT, command(client, "CLIENT", args.into())).await {
            Ok(Ok(answer)) if frame::error(&answer).is_none() => {}
            _ => tracing::debug!("the previous connection could not be killed on the server"),
        }
    }
}

/// The task behind a [`Connection`], aborted when dropped: its socket closes and its calls fail.
pub(super) struct Router {
    task: Option<JoinHandle<Result<(), FredError>>>,
    /// Completes when the connection is to the wrong server.
    moved: Option<BoxFuture<String>>,
}

impl Router {
    /// Completes, with the reason, when the connection ends.
    pub(super) async fn ended(&mut self) -> String {
        self.error().await.details().to_owned()
    }

    /// Runs `future` for as long as the connection lasts: fred leaves what is asked after its end unanswered.
    pub(super) async fn run<T>(
        &mut self,
        future: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        tokio::select! {
            biased;
            reason = self.ended() => Err(reason),
            done = future => done,
        }
    }

    async fn error(&mut self) -> FredError {
        let ended = || FredError::new(ErrorKind::IO, "the connection ended");
        let Some(task) = &mut self.task else {
            return ended();
        };
        let moved = async {
            match &mut self.moved {
                Some(moved) => moved.await,
                None => std::future::pending().await,
            }
        };
        let error = tokio::select! {
            biased;
            done = &mut *task => done.ok().and_then(Result::err),
            reason = moved => {
                task.abort();
                Some(FredError::new(ErrorKind::IO, reason))
            }
        };
        self.task = None;
        self.moved = None;
        error.unwrap_or_else(ended)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
