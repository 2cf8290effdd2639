//! Makes connections to one server.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    BoxFuture,
    batch_scope::{ConnectionScope, EndpointScope},
    client_info::{ConnectionIdentity, Subscriptions},
    connect_advice::explain,
    connect_error::{ConnectError, ConnectErrorKind},
    endpoint::{Address, Endpoint},
    frame,
    handshake::{Handshake, Version},
    one_server::{self, Evidence},
    open_connection::{Lifetime, OpenConnection, Pong, command},
    opener::{ConnectOptions, Opened, ServerConfig},
    reconnect::{Callers, ConnectLog, KnownServer, Turn, pause_after},
    time_limits::{CONNECTION_WAIT, PING_WAIT, REPLACEABLE_WAIT, UNLOCATED_PAUSE},
};
use crate::{
    error::Error,
    transport::{self, Connection, Frame},
};

/// Finds the server of a connection.
pub(super) trait Locate: Send + Sync {
    /// The server to connect to now; `None` means that of the configuration.
    fn locate(&self) -> BoxFuture<Result<Option<Address>, Error>>;

    /// Completes when the server is no longer at `address`.
    fn moved(&self, address: Option<&Address>) -> BoxFuture<String>;

    /// Whether the server must be asked for its role.
    fn is_asked(&self) -> bool;

    /// Records that another server than the located one answers at `address`, a name that leads elsewhere by now.
    fn leads_astray(&self, _address: &Address) {}
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
    is_sentinel: bool,
    locator: Arc<dyn Locate>,
    /// The scope of the end point; `None` for a node of a cluster, and for a sentinel.
    scope: Option<Arc<EndpointScope>>,
    /// The number of attempts in a row for which the provider gave no credentials.
    unprovided: Arc<AtomicU32>,
    /// The callers that wait for one of these connections.
    pub(super) callers: Arc<Callers>,
    /// The target of the last attempt.
    last: Arc<Mutex<Endpoint>>,
}

impl Connector {
    pub(super) fn new(server: ServerConfig, messages: usize) -> Self {
        Self {
            last: Arc::new(Mutex::new(server.endpoint.clone())),
            server,
            messages,
            wait: CONNECTION_WAIT,
            ping_wait: PING_WAIT,
            credentials: "check the user and the password, wherever they are set (in a URL: redis://user:password@host, or \
                 redis://:password@host)",
            is_sentinel: false,
            locator: Arc::new(Fixed),
            scope: None,
            unprovided: Arc::default(),
            callers: Arc::default(),
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

    /// Judges whether connections lead straight to a server, for `scope`.
    pub(super) fn within_scope(mut self, scope: Arc<EndpointScope>) -> Self {
        self.scope = Some(scope);
        self
    }

    /// For a sentinel.
    pub(super) fn of_sentinel(mut self) -> Self {
        self.credentials = "set `sentinelUsername` and `sentinelPassword`, because sentinels have their \
         own users";
        self.is_sentinel = true;
        self
    }

    /// Connects to the server that `locator` names.
    pub(super) fn to(mut self, locator: Arc<dyn Locate>) -> Self {
        if locator.is_asked() {
            // A master that does not answer is about to be replaced.
            self.wait = REPLACEABLE_WAIT;
        }
        self.locator = locator;
        self
    }

    /// Connects.
    pub(super) async fn connect(&self) -> Result<OpenConnection, Error> {
        let address = self.locator.locate().await?;
        self.connect_at(address, false).await
    }

    /// Connects once, in turn with the other attempts, to the `endpoint` of an open connection: the locator may name another one.
    pub(super) async fn connect_beside(
        &self,
        endpoint: &Endpoint,
    ) -> Result<OpenConnection, Error> {
        let address = match endpoint {
            Endpoint::Tcp(address) => Some(address.clone()),
            _ => None,
        };
        self.connect_at(address, true).await
    }

    /// Connects to the server at `address`, or to that of the configuration. With `in_turn`, waits until an attempt may
    /// begin.
    ///
    /// Boxed: it is large, and the future of every task that keeps a connection would contain it several times.
    fn connect_at(
        &self,
        address: Option<Address>,
        in_turn: bool,
    ) -> transport::BoxFuture<'_, Result<OpenConnection, Error>> {
        Box::pin(self.attempt(address, in_turn))
    }

    async fn attempt(
        &self,
        address: Option<Address>,
        in_turn: bool,
    ) -> Result<OpenConnection, Error> {
        let mut moved = self.locator.moved(address.as_ref());
        let mut server = self.server.clone();
        if let Some(address) = address {
            server.endpoint = Endpoint::Tcp(address);
        }
        self.last().clone_from(&server.endpoint);
        let known = server.servers.at(&server.endpoint);
        let connecting = async {
            let turn = match in_turn {
                true => Some(self.take_turn(&known).await),
                false => None,
            };
            let connected = self.connect_with(&server, &known).await;
            let kind = connected.as_ref().err().map(|error| error.kind);
            if let Some(turn) = turn {
                self.end_turn(turn, kind);
            }
            connected.map_err(|error| explain(error, &server, self.credentials))
        };
        let mut open = tokio::select! {
            biased;
            reason = &mut moved => return Err(Error::unavailable(reason)),
            open = connecting => open?,
        };
        open.check_node().await.inspect_err(|_| {
            known.address_order.leads_astray();
        })?;
        if self.locator.is_asked()
            && let Err(error) = open.check_master().await
        {
            if let Endpoint::Tcp(address) = &server.endpoint {
                self.locator.leads_astray(address);
            }
            known.address_order.leads_astray();
            return Err(error);
        }
        known.back_off.reached();
        open.lifetime.moved = Some(moved);
        Ok(open)
    }

    /// Another server than the wanted one answers: the next connection tries the other addresses of its name first.
    pub(super) fn leads_astray(&self) {
        let known = self.server.servers.at(&self.endpoint());
        known.address_order.leads_astray();
    }

    fn last(&self) -> MutexGuard<'_, Endpoint> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that the last attempt was for.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.last().clone()
    }

    /// The same, as it changes.
    pub(super) fn last_endpoint(&self) -> Arc<Mutex<Endpoint>> {
        self.last.clone()
    }

    /// The fate of connections for `purpose`.
    pub(super) fn connect_log(&self, purpose: &'static str) -> ConnectLog {
        ConnectLog::new(purpose, &self.server.servers)
    }

    async fn take_turn<'a>(&self, known: &'a KnownServer) -> Turn<'a> {
        let unprovided = self.unprovided.load(Ordering::Relaxed);
        if unprovided > 0 {
            sleep(pause_after(unprovided)).await;
        }
        known.back_off.turn(&self.callers).await
    }

    /// Without credentials, the server was not asked: only this purpose pauses.
    fn end_turn(&self, turn: Turn<'_>, failed: Option<ConnectErrorKind>) {
        if failed == Some(ConnectErrorKind::Provider) {
            drop(turn);
            self.unprovided.fetch_add(1, Ordering::Relaxed);
        } else {
            turn.end(failed);
            self.unprovided.store(0, Ordering::Relaxed);
        }
    }

    /// Retries with growing pauses until it is connected. `None` when `closed` is cancelled.
    pub(super) async fn connect_until(
        &self,
        closed: &CancellationToken,
        connect_log: &mut ConnectLog,
    ) -> Option<OpenConnection> {
        let connecting = async {
            loop {
                let error = match self.locator.locate().await {
                    Ok(address) => match self.connect_at(address, true).await {
                        Ok(open) => {
                            connect_log.connected(&self.endpoint());
                            return open;
                        }
                        Err(error) => error,
                    },
                    Err(error) => {
                        tokio::time::sleep(UNLOCATED_PAUSE).await;
                        error
                    }
                };
                connect_log.failed(&self.endpoint(), &error);
            }
        };
        closed.run_until_cancelled(connecting).await
    }

    /// The next connection: `successor`, if that is open already.
    pub(super) async fn succeed(
        &self,
        successor: Option<OpenConnection>,
        closed: &CancellationToken,
        connect_log: &mut ConnectLog,
    ) -> Option<OpenConnection> {
        let Some(open) = successor else {
            return self.connect_until(closed, connect_log).await;
        };
        connect_log.connected(&self.endpoint());
        Some(open)
    }

    async fn connect_with(
        &self,
        server: &ServerConfig,
        known: &KnownServer,
    ) -> Result<OpenConnection, ConnectError> {
        let options = ConnectOptions {
            handshakes: known.handshakes(server.protocol),
            after_close: known.follows_a_close(),
            timeout: self.wait,
            messages: self.messages,
            is_sentinel: self.is_sentinel,
        };
        let opened = server.opener.connect(server, options).await;
        known.shook_hands(match &opened {
            Ok(opened) => Ok(opened.handshake),
            Err(error) => Err(error.kind),
        });
        let Opened {
            connection,
            ended,
            info,
            greeting,
            handshake,
            own_end,
            host,
        } = opened?;
        let is_elsewhere = host.is_some_and(|host| Endpoint::Tcp(host) != server.endpoint);
        let mut lifetime = Lifetime::new(ended);
        let scope = self.scope.clone();
        let scope =
            scope.map(|scope| ConnectionScope::new(scope, Evidence::new(own_end, &greeting)));
        let info = match scope {
            Some(_) if one_server::lacks_client_info(&info) => {
                let asking = lifetime.run(listed(&*connection));
                // If the connection has ended, its first call learns of it.
                match timeout(PING_WAIT, asking).await {
                    Ok(Ok(Some(line))) => Frame::Text(line.into()),
                    _ => info,
                }
            }
            _ => info,
        };
        let identity = ConnectionIdentity::read(&info);
        let info = frame::text(&info);
        if let (Some(scope), Some(info)) = (&scope, &info) {
            scope.judge(info);
        }
        let greeting = frame::map(&greeting);
        let said = |name: &str| greeting.get(name).cloned().unwrap_or_default();
        Ok(OpenConnection {
            node_id: known.address_order.node_id().filter(|_| is_elsewhere),
            identity,
            // In RESP2, a connection with subscriptions cannot send other commands.
            counts_subscriptions: handshake.version() == Version::Resp3
                && info.as_deref().and_then(Subscriptions::read).is_some(),
            ping_wait: self.ping_wait,
            pong: match handshake {
                Handshake::Hello | Handshake::Classic => Pong::Unknown,
                Handshake::Bare => Pong::Plain,
            },
            mode: said("mode"),
            role: said("role"),
            connection,
            lifetime,
            scope,
        })
    }
}

/// The description of this connection by a Redis before 6.2, which has no `CLIENT INFO`: its line in the list of all connections.
async fn listed(connection: &dyn Connection) -> Result<Option<String>, String> {
    let (id, info) = tokio::join!(
        command(connection, "CLIENT", &["ID"]),
        command(connection, "INFO", &[]),
    );
    let (Frame::Number(id), Some(info)) = (id?, frame::text(&info?)) else {
        return Ok(None);
    };
    if !one_server::may_be_listed(&info) {
        return Ok(None);
    }
    let list = frame::text(&command(connection, "CLIENT", &["LIST"]).await?).unwrap_or_default();
    Ok(one_server::line_of(id, &list).map(str::to_owned))
}
