//! A single server: one connection for scripts, one for subscriptions.

use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use fred::{
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Resp3Frame as Frame, Value, config::Config},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    BoxFuture, CallError, Event, Events, Redis, frame,
    link::{self, Connection, Connector, Identity, Router},
    locator::{Address, AddressMap, Locator, Nodes, Question},
    subscriptions::{self, Want},
    url,
};
use crate::{
    error::Error,
    wire::{
        Reply,
        script::{Operation, Script},
    },
};

/// How long both connections may take to open.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How often a connection is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The pause after a connection that broke as soon as it was open.
const BREATH: Duration = Duration::from_millis(20);
/// How long a quiet connection is left alone before a `PING`.
pub(super) const PING_EVERY: Duration = Duration::from_secs(5);
/// Messages that may wait for the dispatcher; beyond them, everybody is woken.
const MESSAGES: usize = 8192;

/// Where to connect and as whom.
pub(crate) struct Target {
    pub(super) config: Config,
    /// Who knows where the master is, if the configuration does not say.
    pub(super) asked: Option<Asked>,
    map: Option<AddressMap>,
}

/// Those who are asked where the master is.
pub(super) struct Asked {
    pub(super) question: Question,
    /// As whom to ask.
    pub(super) config: Config,
    pub(super) addresses: Vec<Address>,
}

impl Target {
    pub(crate) fn url(url: &str) -> Result<Self, Error> {
        url::parse(url)
    }

    pub(crate) fn donor(client: &fred::clients::Client) -> Result<Self, Error> {
        url::of_donor(client)
    }

    pub(super) fn fixed(config: Config) -> Self {
        Self {
            config,
            asked: None,
            map: None,
        }
    }

    pub(super) fn asking(config: Config, asked: Asked) -> Self {
        Self {
            asked: Some(asked),
            ..Self::fixed(config)
        }
    }

    pub(crate) fn map_addresses(&mut self, map: AddressMap) {
        self.map = Some(map);
    }

    fn locator(&mut self) -> Locator {
        match self.asked.take() {
            None => Locator::Fixed,
            Some(asked) => Locator::Asked(Arc::new(Nodes::new(
                asked.question,
                asked.config,
                asked.addresses,
                self.map.take(),
            ))),
        }
    }
}

impl fmt::Debug for Target {
    /// fred's own prints the password (P-T7).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = match &self.asked {
            Some(asked) => format!("{:?} of {:?}", asked.question, asked.addresses),
            None => format!("{:?}", self.config.server),
        };
        f.debug_tuple("Target").field(&server).finish()
    }
}

/// The connection for scripts, as those who call see it.
#[derive(Clone)]
enum Line {
    Up(Arc<Open>),
    Down,
    Closed,
}

/// An open connection for scripts.
struct Open {
    client: fred::clients::Client,
    identity: Option<Identity>,
    /// Cancelled when the connection has ended: fred leaves a command sent after that unanswered.
    ended: CancellationToken,
    traffic: Traffic,
}

/// Whether the server answers.
struct Traffic {
    since: Instant,
    in_flight: AtomicUsize,
    /// In milliseconds after `since`.
    last_reply: AtomicU64,
}

impl Traffic {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            in_flight: AtomicUsize::new(0),
            last_reply: AtomicU64::new(0),
        }
    }

    fn sent(&self) -> InFlight<'_> {
        // The first call after a quiet time starts the clock anew.
        if self.in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            self.mark();
        }
        InFlight(self)
    }

    fn mark(&self) {
        self.last_reply
            .store(self.since.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last_reply.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(last)
    }

    /// A `PING` is due: calls wait and no reply comes, or nothing has been heard for long.
    fn is_suspicious(&self) -> bool {
        let waiting = self.in_flight.load(Ordering::Relaxed) > 0;
        self.silence() >= if waiting { LOOK_EVERY } else { PING_EVERY }
    }
}

/// A call that waits for its answer.
struct InFlight<'a>(&'a Traffic);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.mark();
    }
}

/// One Redis or Valkey server.
pub(crate) struct SingleServer {
    line: watch::Sender<Line>,
    wants: mpsc::UnboundedSender<Want>,
    closed: CancellationToken,
    tasks: TaskTracker,
}

impl SingleServer {
    pub(super) async fn connect(target: Target) -> Result<(Self, Events), Error> {
        let connecting = tokio::time::timeout(CONNECT_WAIT, Self::connect_all(target));
        connecting.await.unwrap_or_else(|_| {
            Err(Error::unavailable(format!(
                "no connection within {CONNECT_WAIT:?}"
            )))
        })
    }

    async fn connect_all(mut target: Target) -> Result<(Self, Events), Error> {
        let locator = target.locator();
        let connector = Connector::new(target.config.clone(), 1).to(&locator);
        let first = connector.connect().await?;
        let listener = Connector::new(target.config, MESSAGES).to(&locator);
        let first_listening = listener.connect().await?;

        let (events, receiver) = mpsc::unbounded_channel();
        let (wants, wanted) = mpsc::unbounded_channel();
        let server = Self {
            line: watch::Sender::new(Line::Down),
            wants,
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let keeper = Keeper {
            connector,
            line: server.line.clone(),
            events: events.clone(),
            closed: server.closed.clone(),
        };
        let (open, router) = keeper.open(first);
        server.tasks.spawn(keeper.keep(open, router));
        let subscriptions = subscriptions::serve(
            listener,
            first_listening,
            wanted,
            events,
            server.closed.clone(),
        );
        server.tasks.spawn(subscriptions);
        server.tasks.spawn(locator.watch(server.closed.clone()));
        Ok((server, receiver))
    }
}

impl Redis for SingleServer {
    fn call(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
    ) -> BoxFuture<Result<Vec<Reply>, CallError>> {
        let line = self.line.clone();
        Box::pin(async move {
            let open = opened(&line).await?;
            match run(&open, script, &operations).await {
                Ok(frame) => frame::replies(frame, operations.len()),
                Err(reason) => {
                    replaced(&line, &open).await?;
                    Err(CallError::Unanswered { reason })
                }
            }
        })
    }

    fn ready(&self) -> BoxFuture<()> {
        let line = self.line.clone();
        Box::pin(async move {
            let _ = opened(&line).await;
        })
    }

    fn is_ready(&self) -> bool {
        matches!(*self.line.borrow(), Line::Up(_))
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<Result<(), CallError>> {
        let (done, answer) = oneshot::channel();
        let _ = self.wants.send(Want::Subscribe { channel, done });
        Box::pin(async move { answer.await.unwrap_or(Err(CallError::Closed)) })
    }

    fn unsubscribe(&self, channel: Bytes) {
        let _ = self.wants.send(Want::Unsubscribe { channel });
    }

    fn close(&self) -> BoxFuture<()> {
        self.closed.cancel();
        self.tasks.close();
        let tasks = self.tasks.clone();
        Box::pin(async move { tasks.wait().await })
    }
}

impl Drop for SingleServer {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// The connection to send on, once there is one.
async fn opened(line: &watch::Sender<Line>) -> Result<Arc<Open>, CallError> {
    if let Line::Up(open) = &*line.borrow() {
        return Ok(open.clone());
    }
    let mut states = line.subscribe();
    let settled = states.wait_for(|line| !matches!(line, Line::Down)).await;
    match settled.as_deref() {
        Ok(Line::Up(open)) => Ok(open.clone()),
        _ => Err(CallError::Closed),
    }
}

/// Waits until `old` has been replaced: by then the server has dropped it.
async fn replaced(line: &watch::Sender<Line>, old: &Arc<Open>) -> Result<(), CallError> {
    let mut states = line.subscribe();
    let settled = states
        .wait_for(|line| match line {
            Line::Up(open) => !Arc::ptr_eq(open, old),
            Line::Down => false,
            Line::Closed => true,
        })
        .await;
    match settled.as_deref() {
        Ok(Line::Up(_)) => Ok(()),
        _ => Err(CallError::Closed),
    }
}

async fn run(
    open: &Open,
    script: &'static Script,
    operations: &[Operation],
) -> Result<Frame, Arc<str>> {
    let answer = send(open, "EVALSHA", arguments(script.sha(), script, operations)).await?;
    let unknown = frame::error(&answer).is_some_and(|message| message.starts_with("NOSCRIPT"));
    if !unknown {
        return Ok(answer);
    }
    // The server runs a script that it does not know, or nothing: safe to send again at once (P-T1).
    send(open, "EVAL", arguments(script.source(), script, operations)).await
}

async fn send(open: &Open, name: &'static str, args: Vec<Value>) -> Result<Frame, Arc<str>> {
    let _in_flight = open.traffic.sent();
    let command = CustomCommand::new_static(name, ClusterHash::Random, false);
    // fred's future takes 5 KB, which otherwise every future around it would, and be moved with it.
    let mut answer = Box::pin(open.client.custom_raw(command, args));
    let mut ended = pin!(open.ended.cancelled());
    poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(answer.map_err(|error| error.details().into())),
        Poll::Pending => ended
            .as_mut()
            .poll(context)
            .map(|()| Err("the connection ended".into())),
    })
    .await
}

/// `text`, the number of keys, the keys of all operations, the arguments of all operations.
fn arguments(text: Bytes, script: &Script, operations: &[Operation]) -> Vec<Value> {
    let parts = operations.iter().map(Vec::len).sum::<usize>();
    let mut args = Vec::with_capacity(2 + parts);
    args.push(Value::Bytes(text));
    args.push(Value::Integer((operations.len() * script.keys()) as i64));
    let bytes = |part: &Bytes| Value::Bytes(part.clone());
    args.extend(
        operations
            .iter()
            .flat_map(|parts| parts[..script.keys()].iter().map(bytes)),
    );
    args.extend(
        operations
            .iter()
            .flat_map(|parts| parts[script.keys()..].iter().map(bytes)),
    );
    args
}

/// Keeps a connection for scripts open.
struct Keeper {
    connector: Connector,
    line: watch::Sender<Line>,
    events: mpsc::UnboundedSender<Event>,
    closed: CancellationToken,
}

impl Keeper {
    /// Lets callers use `connection`.
    fn open(&self, connection: Connection) -> (Arc<Open>, Router) {
        let open = Arc::new(Open {
            client: connection.client,
            identity: connection.identity,
            ended: CancellationToken::new(),
            traffic: Traffic::new(),
        });
        self.line.send_replace(Line::Up(open.clone()));
        (open, connection.router)
    }

    async fn keep(self, mut open: Arc<Open>, mut router: Router) {
        let mut opened = Instant::now();
        while let Some(reason) = self
            .closed
            .run_until_cancelled(broken(&open, &mut router))
            .await
        {
            tracing::warn!(%reason, "the connection to Redis broke; connecting again");
            self.line.send_replace(Line::Down);
            drop(router);
            open.ended.cancel();
            if opened.elapsed() < LOOK_EVERY {
                // One that breaks as soon as it is open is not opened over and over without a pause.
                tokio::time::sleep(BREATH).await;
            }
            let Some(connection) = self.connector.connect_until(&self.closed).await else {
                break;
            };
            opened = Instant::now();
            if let Some(old) = &open.identity {
                Connection::kill(&connection.client, old).await;
            }
            (open, router) = self.open(connection);
            let _ = self.events.send(Event::Reconnected);
        }
        self.line.send_replace(Line::Closed);
        link::quit(&open.client).await;
        open.ended.cancel();
    }
}

impl Drop for Keeper {
    /// Also when the runtime ends before the client does: nobody waits for a connection that will not come.
    fn drop(&mut self) {
        self.line.send_replace(Line::Closed);
    }
}

/// Completes, with the reason, when the connection has ended or its server has stopped answering.
async fn broken(open: &Open, router: &mut Router) -> String {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut number = 0;
    loop {
        number += 1;
        tokio::select! {
            reason = router.ended() => return reason,
            _ = looks.tick() => {}
        }
        if !open.traffic.is_suspicious() {
            continue;
        }
        if let Err(reason) = router.run(Connection::ping(&open.client, number)).await {
            return reason;
        }
        open.traffic.mark();
    }
}
