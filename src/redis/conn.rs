//! Makes, checks and ends one connection.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    BoxFuture,
    attempts::ConnectLog,
    client_info::{ConnIdentity, Identity, Subscriptions},
    connect_error::{ConnectError, ConnectErrorKind},
    connection::{ConnectOptions, Connection, Frame, Opened, ServerConfig, Version},
    endpoint::Address,
    endpoint::Endpoint,
    frame,
};
use crate::error::{Cause, Error};

/// How long a connection may take to open, its handshake included.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The same where sentinels or nodes report that a server has been replaced.
const ASKED_WAIT: Duration = Duration::from_millis(1500);
/// How long a `PING` may stay unanswered before its connection counts as broken.
pub(super) const PING_WAIT: Duration = Duration::from_secs(2);
/// The pause after no node named the server. The nodes have pauses of their own.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Finds the server of a connection.
pub(super) trait Locate: Send + Sync {
    /// The server to connect to now; `None` means that of the configuration.
    fn locate(&self) -> BoxFuture<Result<Option<Address>, Error>>;

    /// Completes when the server is no longer at `address`.
    fn moved(&self, address: Option<&Address>) -> BoxFuture<String>;

    /// Whether the server must be asked for its role.
    fn is_asked(&self) -> bool;
}

/// The server is at the address of the configuration.
struct Fixed;

impl Locate for Fixed {
    fn locate(&self) -> BoxFuture<Result<Option<Address>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn moved(&self, _address: Option<&Address>) -> BoxFuture<String> {
        Box::pin(std::future::pending())
    }

    fn is_asked(&self) -> bool {
        false
    }
}

/// Makes connections to one server.
#[derive(Clone)]
pub(super) struct Connector {
    server: ServerConfig,
    /// Messages that are kept for a receiver that is behind.
    messages: usize,
    /// How long a connection may take to open.
    wait: Duration,
    /// How long a `PING` may stay unanswered.
    ping_wait: Duration,
    /// Advice for a user or password that is refused or missing.
    credentials: &'static str,
    locator: Arc<dyn Locate>,
    without_resp3: Arc<AtomicBool>,
    /// The target of the last attempt.
    last: Arc<Mutex<Endpoint>>,
}

impl Connector {
    pub(super) fn new(server: ServerConfig, messages: usize) -> Self {
        Self {
            last: Arc::new(Mutex::new(server.endpoint.clone())),
            server,
            messages,
            wait: CONNECT_WAIT,
            ping_wait: PING_WAIT,
            credentials: "check the URL: redis://user:password@host, or redis://:password@host",
            locator: Arc::new(Fixed),
            without_resp3: Arc::default(),
        }
    }

    pub(super) fn within(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// For commands that may take the server this long, and delay all later ones.
    pub(super) fn blocking(mut self, longest: Duration) -> Self {
        self.ping_wait = PING_WAIT + longest;
        self
    }

    /// For a sentinel.
    pub(super) fn of_sentinel(mut self) -> Self {
        self.credentials = "set `sentinelUsername` and `sentinelPassword` in the URL, because sentinels have their \
         own users";
        self
    }

    /// Connects to the server that `locator` names.
    pub(super) fn to(mut self, locator: Arc<dyn Locate>) -> Self {
        if locator.is_asked() {
            // A master that does not answer is about to be replaced.
            self.wait = ASKED_WAIT;
        }
        self.locator = locator;
        self
    }

    /// Connects, in RESP3 where the server speaks it.
    pub(super) async fn connect(&self) -> Result<Conn, Error> {
        let address = self.locator.locate().await?;
        self.connect_at(address, false).await
    }

    /// Connects to the server at `address`, or to that of the configuration. With `in_turn`, waits until an attempt may
    /// begin.
    async fn connect_at(&self, address: Option<Address>, in_turn: bool) -> Result<Conn, Error> {
        let mut moved = self.locator.moved(address.as_ref());
        let mut server = self.server.clone();
        if let Some(address) = address {
            server.endpoint = Endpoint::Tcp(address);
        }
        self.last().clone_from(&server.endpoint);
        let attempts = server.servers.at(&server.endpoint);
        let connecting = async {
            if in_turn {
                attempts.turn().await;
            }
            self.connect_to(&server).await
        };
        let mut conn = tokio::select! {
            biased;
            reason = &mut moved => return Err(Error::unavailable(reason)),
            conn = connecting => conn?,
        };
        if self.locator.is_asked() {
            conn.check_master().await?;
        }
        attempts.reached();
        conn.router.moved = Some(moved);
        Ok(conn)
    }

    fn last(&self) -> MutexGuard<'_, Endpoint> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that the last attempt was for.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.last().clone()
    }

    /// The fate of connections for `purpose`.
    pub(super) fn connect_log(&self, purpose: &'static str) -> ConnectLog {
        ConnectLog::new(purpose, &self.server.servers)
    }

    async fn connect_to(&self, server: &ServerConfig) -> Result<Conn, Error> {
        let explained = |error| explain(error, server, self.credentials);
        if !self.without_resp3.load(Ordering::Relaxed) {
            match self.connect_with(server, Version::Resp3).await {
                Err(error) if lacks_resp3(&error) => {
                    self.without_resp3.store(true, Ordering::Relaxed);
                }
                done => return done.map_err(explained),
            }
        }
        let connected = self.connect_with(server, Version::Resp2).await;
        connected.map_err(explained)
    }

    /// Retries with growing pauses until it is connected. `None` when `closed` is cancelled.
    pub(super) async fn connect_until(
        &self,
        closed: &CancellationToken,
        connect_log: &mut ConnectLog,
    ) -> Option<Conn> {
        let connecting = async {
            loop {
                let error = match self.locator.locate().await {
                    Ok(address) => match self.connect_at(address, true).await {
                        Ok(conn) => return conn,
                        Err(error) => error,
                    },
                    Err(error) => {
                        tokio::time::sleep(ASK_AGAIN).await;
                        error
                    }
                };
                connect_log.failed(&self.endpoint(), &error);
            }
        };
        closed.run_until_cancelled(connecting).await
    }

    async fn connect_with(
        &self,
        server: &ServerConfig,
        version: Version,
    ) -> Result<Conn, ConnectError> {
        let options = ConnectOptions {
            version,
            timeout: self.wait,
            messages: self.messages,
        };
        let Opened {
            connection,
            ended,
            info,
            greeting,
        } = server.transport.connect(server, options).await?;
        let identity = ConnIdentity::read(&info);
        let info = frame::text(&info);
        let greeting = frame::map(&greeting);
        let said = |name: &str| greeting.get(name).cloned().unwrap_or_default();
        Ok(Conn {
            identity,
            // In RESP2, a connection with subscriptions cannot send other commands.
            counts_subscriptions: version == Version::Resp3
                && info.as_deref().and_then(Subscriptions::read).is_some(),
            ping_wait: self.ping_wait,
            mode: said("mode"),
            role: said("role"),
            connection,
            router: Router {
                ended: Some(ended),
                moved: None,
            },
        })
    }
}

fn lacks_resp3(error: &ConnectError) -> bool {
    error.details.contains("unknown command") || error.details.contains("NOPROTO")
}

/// The reason of a failed connection, and advice for the user.
fn explain(
    ConnectError { kind, details }: ConnectError,
    server: &ServerConfig,
    credentials: &str,
) -> Error {
    let (at, encrypted) = (&server.endpoint, server.transport.is_encrypted());
    let hung_up = || details.contains("reset by peer") || details.contains("closed");
    let hint = match encrypted {
        true => {
            ", and that it uses TLS with a trusted certificate (for a server without TLS, use redis://)"
        }
        false if hung_up() => ", and that it does not use TLS (for TLS, use rediss://)",
        false => "",
    };
    let no_connection = |reason: String| {
        let cause = match kind {
            ConnectErrorKind::Busy => Cause::server(&*details),
            _ => Cause::connection(&*details),
        };
        Error::unavailable_by(reason, Some(Arc::new(cause)))
    };
    match kind {
        ConnectErrorKind::Credentials if details.starts_with("NOAUTH") => Error::config(format!(
            "{at} requires a password: {credentials} ({details})"
        )),
        ConnectErrorKind::Credentials => Error::config(format!(
            "{at} refused the user name or password: {credentials} ({details})"
        )),
        ConnectErrorKind::NoRedis => no_connection(format!(
            "{at} does not speak the Redis protocol: check the host and port of the URL"
        )),
        ConnectErrorKind::Config => Error::config(details),
        ConnectErrorKind::Busy => {
            no_connection(format!("{at} refuses new connections at the moment"))
        }
        _ if details.contains("alert: CertificateRequired") => Error::config(format!(
            "{at} requires a client certificate: set `client_certificate` ({details})"
        )),
        _ if encrypted && details.contains("alert: ") => no_connection(format!(
            "{at} ended the TLS handshake: if it requires a client certificate, check `client_certificate`"
        )),
        _ if details.contains("DB index") || details.contains("out of range") => Error::config(
            format!("{at} has no database with the number in the URL ({details})"),
        ),
        ConnectErrorKind::Network => no_connection(format!(
            "no connection to {at}: check that the server listens there{hint}"
        )),
        ConnectErrorKind::Other if encrypted => no_connection(format!(
            "no TLS connection to {at}: check that the server listens there{hint}"
        )),
        ConnectErrorKind::Other => Error::Redis { message: details },
    }
}

/// An error that retries cannot change.
pub(super) fn refusal(answer: &Frame) -> Option<Error> {
    let message = frame::error(answer)?;
    if message.contains("unknown command") {
        return Some(Error::config(
            "the server of the URL is not a sentinel: use redis://host:port, redis-replicated:// or \
             redis-cluster://",
        ));
    }
    let is_refused = message.starts_with("NOAUTH") || message.starts_with("NOPERM");
    is_refused.then(|| {
        Error::config(format!(
            "the user of the URL may not look up the master: check user, password and ACL rules ({message})"
        ))
    })
}

/// Whether `ROLE` answered that the server is a master.
fn is_master(role: &Frame) -> bool {
    frame::text_at(role, 0).as_deref() == Some("master")
}

/// Sends one command of plain words. The answer may be an error frame.
pub(super) async fn command(
    connection: &dyn Connection,
    name: &'static str,
    words: &[&str],
) -> Result<Frame, String> {
    let args = words
        .iter()
        .map(|word| Bytes::copy_from_slice(word.as_bytes()));
    let answer = connection.send(name, args.collect()).await;
    answer.map_err(|reason| reason.as_ref().to_owned())
}

/// An open connection. Dropping it ends it.
pub(super) struct Conn {
    pub(super) connection: Arc<dyn Connection>,
    pub(super) identity: ConnIdentity,
    /// Whether the server can report the number of subscriptions.
    pub(super) counts_subscriptions: bool,
    /// How long a `PING` may stay unanswered.
    pub(super) ping_wait: Duration,
    /// The server's answer to `HELLO`; empty if it was not asked.
    mode: String,
    role: String,
    pub(super) router: Router,
}

impl Conn {
    /// Refuses a server that is not a master, or no longer one.
    async fn check_master(&mut self) -> Result<(), Error> {
        let asking = command(&*self.connection, "ROLE", &[]);
        match timeout(PING_WAIT, self.router.run(asking)).await {
            Ok(Ok(role)) if is_master(&role) => Ok(()),
            Ok(Ok(role)) => Err(refusal(&role).unwrap_or_else(|| {
                Error::unavailable(match frame::error(&role) {
                    Some(message) => format!("the server refuses ROLE: {message}"),
                    None => "the server is not a master yet".into(),
                })
            })),
            Ok(Err(reason)) => Err(Error::unavailable(reason)),
            Err(_) => Err(Error::unavailable("the server did not answer ROLE")),
        }
    }

    /// Refuses a server of another kind than the URL names: a sentinel, a node of a cluster or a replica.
    pub(super) fn check_role(&self) -> Result<(), Error> {
        match (&*self.mode, &*self.role) {
            ("sentinel", _) => Err(Error::config(
                "the URL names a sentinel, which stores no locks: use redis-sentinel://host:port/service",
            )),
            ("cluster", _) => Err(Error::config(
                "the URL names a single node of a cluster, which stores only a part of the locks: use \
                 redis-cluster://host:port",
            )),
            // The replica may be promoted soon.
            (_, "replica" | "slave") => Err(Error::unavailable(
                "the URL names a replica, which refuses writes: name its master, or all servers by \
                 redis-sentinel:// or redis-replicated://",
            )),
            _ => Ok(()),
        }
    }

    /// Has the server echo `number`. Another answer shows that replies have shifted (P-FR7).
    pub(super) async fn ping(
        connection: &dyn Connection,
        number: u64,
        wait: Duration,
    ) -> Result<(), String> {
        let number = number.to_string();
        let answer = match timeout(wait, command(connection, "PING", &[&number])).await {
            Err(_) => return Err("the server did not answer PING".into()),
            Ok(answer) => answer?,
        };
        match frame::error(&answer) {
            // A server that is busy or refuses the command is alive.
            Some(message) if message.starts_with("BUSY") || message.starts_with("NOPERM") => Ok(()),
            Some(message) => Err(message),
            None if frame::text(&answer).as_deref() == Some(&number) => Ok(()),
            None => Err("the answer to PING belongs to another command".into()),
        }
    }

    /// Requests the identity of the connection.
    pub(super) async fn identify(connection: &dyn Connection) -> Result<ConnIdentity, String> {
        let asking = command(connection, "CLIENT", &["INFO"]);
        match timeout(PING_WAIT, asking).await {
            Err(_) => Ok(ConnIdentity::NotNow),
            Ok(answer) => Ok(ConnIdentity::read(&answer?)),
        }
    }

    /// The number of channels to which the server has subscribed the connection.
    pub(super) async fn subscriptions(
        connection: &dyn Connection,
    ) -> Result<Subscriptions, String> {
        let answer = match timeout(PING_WAIT, command(connection, "CLIENT", &["INFO"])).await {
            Err(_) => return Err("the server did not answer CLIENT INFO".into()),
            Ok(answer) => answer?,
        };
        match frame::error(&answer) {
            Some(message) => Err(message),
            None => frame::text(&answer)
                .as_deref()
                .and_then(Subscriptions::read)
                .ok_or_else(|| "the answer to CLIENT INFO belongs to another command".into()),
        }
    }

    /// Has the server kill a broken connection of this client. Otherwise the server could run unread commands of it after
    /// their repetitions. Both number and address must match: after a restart, another client may have the number. An error
    /// means that the old connection may be alive.
    pub(super) async fn kill(&mut self, old: &Identity) -> Result<(), String> {
        let words = ["KILL", "ID", &old.id, "ADDR", &old.address];
        let killing = self
            .router
            .run(command(&*self.connection, "CLIENT", &words));
        match timeout(PING_WAIT, killing).await {
            Ok(Ok(answer)) => {
                if let Some(message) = frame::error(&answer) {
                    tracing::debug!(
                        message,
                        "the server refuses to kill the previous connection"
                    );
                }
                Ok(())
            }
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err("the server did not answer CLIENT KILL".into()),
        }
    }
}

/// Keeps a [`Conn`]'s connection open. Its drop closes the socket, and the calls fail.
pub(super) struct Router {
    /// `None` once the connection has ended.
    ended: Option<BoxFuture<String>>,
    /// Completes when the connection is to the wrong server.
    moved: Option<BoxFuture<String>>,
}

impl Router {
    /// Completes, with the reason, when the connection ends.
    pub(super) async fn ended(&mut self) -> String {
        let Some(ended) = &mut self.ended else {
            return "the connection ended".into();
        };
        let moved = async {
            match &mut self.moved {
                Some(moved) => moved.await,
                None => std::future::pending().await,
            }
        };
        let reason = tokio::select! {
            biased;
            reason = ended => reason,
            reason = moved => reason,
        };
        (self.ended, self.moved) = (None, None);
        reason
    }

    /// Runs `future` until the connection ends: later commands may stay unanswered.
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
}
