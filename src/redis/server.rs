//! A single server, wherever it is: one connection for scripts, one for subscriptions.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    BoxFuture, CallError, Event, Events, HashSlot, Redis, Tasks,
    conn::{Conn, Connector},
    connection::{ServerConfig, SocketOptions},
    durable::{Durable, Durables, Wait},
    frame,
    fred::{self, FredClient, Tls, TlsSettings},
    locator::{Address, AddressMap, Locator, Nodes, Question},
    rights::Rights,
    script_conn::{Closed, ScriptConn},
    subscriptions::{Channels, Subscriber, Wants},
    url,
};
use crate::{
    durability::Durability,
    error::{Cause, Error},
    wire::{
        Reply,
        script::{Operation, Publishing, Script},
    },
};

/// How long both connections may take to open.
pub(super) const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Messages that may wait for the dispatcher; beyond them, everybody is woken.
pub(super) const MESSAGES: usize = 2048;

/// A user's name, which may be empty, and password.
pub(crate) type Credentials = (String, String);

/// Where to connect, and with which credentials.
#[derive(Clone)]
pub(crate) struct Target {
    pub(super) server: ServerConfig,
    /// The nodes that know the master, if the configuration does not name it.
    pub(super) asked: Option<Asked>,
    /// Nodes of the cluster, if it is one.
    pub(super) seeds: Option<Vec<Address>>,
    pub(super) map: Option<AddressMap>,
    /// Whether connections are left to the background.
    pub(crate) lazy: bool,
    /// What the client is called, if not by chance.
    pub(crate) client_id: Option<Uuid>,
}

/// The nodes that are asked for the master.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) question: Question,
    /// The credentials for them.
    pub(super) server: ServerConfig,
    pub(super) addresses: Vec<Address>,
}

impl Target {
    /// Whether another runtime could connect.
    pub(crate) fn is_reached_from_anywhere(&self) -> bool {
        self.server.transport.is_reached_from_anywhere()
    }

    pub(crate) fn url(url: &str) -> Result<Self, Error> {
        url::parse(url)
    }

    pub(crate) fn donor(client: &FredClient) -> Self {
        fred::target_of(client)
    }

    pub(crate) fn fixed(server: ServerConfig) -> Self {
        Self {
            server,
            asked: None,
            seeds: None,
            map: None,
            lazy: false,
            client_id: None,
        }
    }

    /// The master of `service`, by the word of the sentinels at `addresses`, which know users of their own.
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

    /// Whichever of the servers at `addresses` is the master.
    pub(super) fn replicated(server: ServerConfig, addresses: Vec<Address>) -> Self {
        Self::asking(server.clone(), Question::AreYou, server, addresses)
    }

    fn asking(
        server: ServerConfig,
        question: Question,
        asking: ServerConfig,
        addresses: Vec<Address>,
    ) -> Self {
        let asked = Asked {
            question,
            server: ServerConfig {
                database: None,
                ..asking
            },
            addresses,
        };
        Self {
            asked: Some(asked),
            ..Self::fixed(server)
        }
    }

    pub(crate) fn cluster(server: ServerConfig, seeds: Vec<Address>) -> Self {
        Self {
            seeds: Some(seeds),
            ..Self::fixed(server)
        }
    }

    /// The master of `service`, by the word of the sentinels `nodes`.
    pub(crate) fn sentinel(
        service: &str,
        nodes: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        url::of_nodes("sentinel", [service], nodes)
    }

    /// A `replicated` set-up, a `cluster` or `sentinel` ones of `nodes`, with what stands in the path of their URL.
    pub(crate) fn several(
        set_up: &str,
        path: &[&str],
        nodes: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        url::of_nodes(set_up, path.iter().copied(), nodes)
    }

    /// Has the server show the connections under this name.
    pub(crate) fn name_connections(&mut self, name: &str) {
        let name = Some(Arc::from(name));
        if let Some(asked) = &mut self.asked {
            asked.server.connection_name = name.clone();
        }
        self.server.connection_name = name;
    }

    pub(crate) fn log_in_as(&mut self, (username, password): Credentials) {
        let username = Some(username).filter(|name| !name.is_empty());
        if let Some(asked) = &mut self.asked
            && asked.question == Question::AreYou
        {
            // The servers speak for themselves.
            asked
                .server
                .log_in_as(username.clone(), Some(password.clone()));
        }
        self.server.log_in_as(username, Some(password));
    }

    pub(crate) fn ask_sentinels_as(&mut self, (username, password): Credentials) {
        if let Some(asked) = &mut self.asked
            && asked.question != Question::AreYou
        {
            let username = Some(username).filter(|name| !name.is_empty());
            asked.server.log_in_as(username, Some(password));
        }
    }

    /// Opens sockets with these options.
    pub(crate) fn open_on(
        &mut self,
        tls: &TlsSettings,
        wait: Option<Duration>,
    ) -> Result<(), Error> {
        let is_tls = self.server.transport.is_encrypted();
        if !tls.is_empty() && !is_tls {
            return Err(Error::config(
                "there are settings for TLS, and the server is connected to without: use a rediss:// URL",
            ));
        }
        let tls = (!tls.is_empty())
            .then(|| Tls::of_settings(tls))
            .transpose()?;
        let options = SocketOptions { tls, wait };
        if options.tls.is_none() && wait.is_none() {
            return Ok(());
        }
        let servers = [
            Some(&mut self.server),
            self.asked.as_mut().map(|asked| &mut asked.server),
        ];
        for server in servers.into_iter().flatten() {
            if let Some(transport) = server.transport.on(&options) {
                server.transport = transport;
            }
        }
        Ok(())
    }

    pub(crate) fn map_addresses(&mut self, map: AddressMap) {
        self.map = Some(map);
    }

    /// The same, reached by other connections.
    #[cfg(feature = "test-util")]
    pub(crate) fn over(mut self, transport: Arc<dyn super::connection::Transport>) -> Self {
        if let Some(asked) = &mut self.asked {
            asked.server.transport = transport.clone();
        }
        self.server.transport = transport;
        self
    }

    pub(super) fn locator(&mut self) -> Locator {
        match self.asked.take() {
            None => Locator::Fixed,
            Some(asked) => Locator::Asked(Arc::new(Nodes::new(
                asked.question,
                asked.server,
                asked.addresses,
                self.map.take(),
            ))),
        }
    }
}

impl fmt::Debug for Target {
    /// Without passwords (P-T7).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = match (&self.asked, &self.seeds) {
            (Some(asked), _) => format!("{:?} of {:?}", asked.question, asked.addresses),
            (None, Some(seeds)) => format!("cluster of {seeds:?}"),
            (None, None) => format!("{:?}", self.server.endpoint),
        };
        write!(f, "Target({server}, database {:?})", self.server.database)
    }
}

/// One Redis or Valkey server.
pub(crate) struct SingleServer {
    lines: Arc<Lines>,
    wants: Wants,
    rights: Rights,
}

/// The connections for scripts.
struct Lines {
    line: ScriptConn,
    connector: Connector,
    locator: Locator,
    wait: Wait,
    durables: Durables,
    events: mpsc::UnboundedSender<Event>,
    closed: CancellationToken,
    tasks: Tasks,
}

impl SingleServer {
    pub(super) async fn connect(target: Target, wait: Wait) -> Result<(Self, Events), Error> {
        let connecting = tokio::time::timeout(CONNECT_WAIT, Self::connect_all(target, wait));
        connecting.await.unwrap_or_else(|_| {
            Err(Error::unavailable(format!(
                "no connection within {CONNECT_WAIT:?}"
            )))
        })
    }

    async fn connect_all(mut target: Target, wait: Wait) -> Result<(Self, Events), Error> {
        let locator = target.locator();
        let rights = Rights::of(&target.server);
        let connector = Connector::new(target.server.clone(), 1).to(&locator);
        let listener = Connector::new(target.server, MESSAGES).to(&locator);
        let (first, first_listening) = match target.lazy {
            true => (None, None),
            false => (
                Some(connector.connect().await?),
                Some(listener.connect().await?),
            ),
        };

        first.iter().try_for_each(Conn::check_sort)?;
        let (events, receiver) = mpsc::unbounded_channel();
        let (wants, wanted) = Wants::new();
        let (closed, tasks) = (CancellationToken::new(), Tasks::here());
        let line = ScriptConn::keep(
            connector.clone(),
            first,
            events.clone(),
            closed.clone(),
            &tasks,
        );
        let subscriber = Subscriber {
            connector: listener,
            channels: Channels::Everywhere,
            events: events.clone(),
            closed: closed.clone(),
        };
        tasks.spawn(subscriber.serve(first_listening, wanted));
        tasks.spawn(locator.clone().watch(closed.clone()));
        let lines = Arc::new(Lines {
            line,
            connector,
            locator,
            wait,
            durables: Durables::default(),
            events,
            closed,
            tasks,
        });
        let server = Self {
            lines,
            wants,
            rights,
        };
        Ok((server, receiver))
    }
}

impl Lines {
    async fn call(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
        durability: Durability,
    ) -> Result<Vec<Reply>, CallError> {
        let count = operations.len();
        let open = self.line.opened().await?;
        if self.waits(durability) {
            let answered = self.durable(durability).run(script, operations).await;
            return match answered {
                Ok(answered) => answered.replies(count),
                Err(_) if self.closed.is_cancelled() => Err(CallError::Closed),
                Err(reason) => Err(CallError::Unanswered { reason }),
            };
        }
        match open.run(script, Publishing::Classic, &operations).await {
            Ok(frame) => {
                let replies = frame::replies(frame, count)?;
                if replies.iter().any(Reply::is_of_a_replica) {
                    // Behind a name that moves, as managed services have, another one may be the master by now.
                    open.is_wrong_server();
                }
                Ok(replies)
            }
            Err(reason) => {
                self.line.replaced(&open).await?;
                Err(CallError::Unanswered { reason })
            }
        }
    }

    fn waits(&self, durability: Durability) -> bool {
        durability.waits(self.locator.replicas())
    }

    fn durable(&self, durability: Durability) -> Durable {
        self.durables.get(durability, || {
            let line = ScriptConn::keep(
                self.connector.clone().blocking(self.wait.longest),
                None,
                self.events.clone(),
                self.closed.clone(),
                &self.tasks,
            );
            let locator = self.locator.clone();
            let listed = move || locator.replicas();
            let publishing = Publishing::Classic;
            Durable::start(line, publishing, self.wait, durability, listed, &self.tasks)
        })
    }
}

impl Redis for SingleServer {
    fn slot(&self, _key: &[u8]) -> HashSlot {
        0
    }

    fn call(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
        durability: Durability,
    ) -> BoxFuture<Result<Vec<Reply>, CallError>> {
        let lines = self.lines.clone();
        Box::pin(async move { lines.call(script, operations, durability).await })
    }

    fn replicas(&self, _slot: HashSlot) -> usize {
        self.lines.locator.replicas()
    }

    fn ready(&self, _slot: HashSlot) -> BoxFuture<()> {
        let line = self.lines.line.clone();
        Box::pin(async move {
            let _ = line.opened().await;
        })
    }

    fn is_ready(&self, _slot: HashSlot) -> bool {
        self.lines.line.is_up()
    }

    fn trouble(&self, _slot: HashSlot) -> Option<Arc<Cause>> {
        self.lines.line.trouble()
    }

    fn ping(&self) -> BoxFuture<Result<(), CallError>> {
        let line = self.lines.line.clone();
        Box::pin(async move { line.ping().await })
    }

    fn may_publish(&self, _slot: HashSlot, channel: &Bytes) -> Option<BoxFuture<bool>> {
        if !self.rights.is_unknown() {
            return None;
        }
        let (rights, open, channel) = (
            self.rights.clone(),
            self.lines.line.open()?,
            channel.clone(),
        );
        Some(Box::pin(async move {
            rights.ask(&open, Publishing::Classic, channel).await
        }))
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<Result<(), CallError>> {
        self.wants.subscribe(channel)
    }

    fn unsubscribe(&self, channel: Bytes) {
        self.wants.unsubscribe(channel);
    }

    fn close(&self) -> BoxFuture<()> {
        self.lines.closed.cancel();
        self.lines.tasks.ended()
    }
}

impl Drop for SingleServer {
    fn drop(&mut self) {
        self.lines.closed.cancel();
    }
}

impl From<Closed> for CallError {
    fn from(Closed: Closed) -> Self {
        CallError::Closed
    }
}
