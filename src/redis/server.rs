//! A single server, wherever it is: one connection for scripts, one for subscriptions.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use fred::types::config::Config;
use tokio::sync::{mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    BoxFuture, CallError, Events, HashSlot, Redis, frame,
    line::{Closed, Line},
    link::Connector,
    locator::{Address, AddressMap, Locator, Nodes, Question},
    subscriptions::{Channels, Subscriber, Want},
    url,
};
use crate::{
    error::Error,
    wire::{
        Reply,
        script::{Operation, Publishing, Script},
    },
};

/// How long both connections may take to open.
pub(super) const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Messages that may wait for the dispatcher; beyond them, everybody is woken.
pub(super) const MESSAGES: usize = 8192;

/// Where to connect and as whom.
pub(crate) struct Target {
    pub(super) config: Config,
    /// Who knows where the master is, if the configuration does not say.
    pub(super) asked: Option<Asked>,
    /// Nodes of the cluster, if it is one.
    pub(super) seeds: Option<Vec<Address>>,
    pub(super) map: Option<AddressMap>,
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
            seeds: None,
            map: None,
        }
    }

    pub(super) fn asking(config: Config, asked: Asked) -> Self {
        Self {
            asked: Some(asked),
            ..Self::fixed(config)
        }
    }

    pub(super) fn cluster(config: Config, seeds: Vec<Address>) -> Self {
        Self {
            seeds: Some(seeds),
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
        let server = match (&self.asked, &self.seeds) {
            (Some(asked), _) => format!("{:?} of {:?}", asked.question, asked.addresses),
            (None, Some(seeds)) => format!("cluster of {seeds:?}"),
            (None, None) => format!("{:?}", self.config.server),
        };
        f.debug_tuple("Target").field(&server).finish()
    }
}

/// One Redis or Valkey server.
pub(crate) struct SingleServer {
    line: Line,
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
        let (closed, tasks) = (CancellationToken::new(), TaskTracker::new());
        let line = Line::keep(
            connector,
            Some(first),
            events.clone(),
            closed.clone(),
            &tasks,
        );
        let subscriber = Subscriber {
            connector: listener,
            channels: Channels::Everywhere,
            events,
            closed: closed.clone(),
        };
        tasks.spawn(subscriber.serve(Some(first_listening), wanted));
        tasks.spawn(locator.watch(closed.clone()));
        let server = Self {
            line,
            wants,
            closed,
            tasks,
        };
        Ok((server, receiver))
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
    ) -> BoxFuture<Result<Vec<Reply>, CallError>> {
        let line = self.line.clone();
        Box::pin(async move {
            let open = line.opened().await?;
            match open.run(script, Publishing::Classic, &operations).await {
                Ok(frame) => frame::replies(frame, operations.len()),
                Err(reason) => {
                    line.replaced(&open).await?;
                    Err(CallError::Unanswered { reason })
                }
            }
        })
    }

    fn ready(&self, _slot: HashSlot) -> BoxFuture<()> {
        let line = self.line.clone();
        Box::pin(async move {
            let _ = line.opened().await;
        })
    }

    fn is_ready(&self, _slot: HashSlot) -> bool {
        self.line.is_up()
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

impl From<Closed> for CallError {
    fn from(Closed: Closed) -> Self {
        CallError::Closed
    }
}
