//! A single server or the master of a set-up: one connection for scripts, one for subscriptions.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Answered, BoxFuture, CallError, Event, Events, HashSlot, Redis, Tasks,
    conn::{Conn, Connector},
    durable::{Durable, Durables, Wait},
    locator::Locator,
    rights::Rights,
    script_conn::{Closed, ScriptConn},
    subscriptions::{Channels, Subscriber, Wants},
    target::Target,
};
use crate::{
    durability::Durability,
    error::{Cause, Error},
    wire::script::{Operation, Publishing, Script},
};

/// How long both connections may take to open.
pub(super) const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// The most messages that wait for the dispatcher. If there are more, all waiters are woken.
pub(super) const MESSAGES: usize = 2048;

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
        let connector = Connector::new(target.server.clone(), 1).to(Arc::new(locator.clone()));
        let listener = Connector::new(target.server, MESSAGES).to(Arc::new(locator.clone()));
        let (first, first_listening) = match target.lazy {
            true => (None, None),
            false => (
                Some(connector.connect().await?),
                Some(listener.connect().await?),
            ),
        };

        first.iter().try_for_each(Conn::check_role)?;
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
    ) -> Result<Vec<Answered>, CallError> {
        let count = operations.len();
        let open = self.line.opened().await?;
        if let Some(durable) = self.waiting(durability) {
            let answered = durable.run(script, operations).await;
            return match answered {
                Ok(answered) => answered.answers(count),
                Err(_) if self.closed.is_cancelled() => Err(CallError::Closed),
                Err(reason) => Err(CallError::Unanswered { reason }),
            };
        }
        match open.run(script, Publishing::Classic, &operations).await {
            Ok(frame) => {
                let answers = Answered::from(frame).answers(count)?;
                if answers.iter().any(|answer| answer.reply.is_of_a_replica()) {
                    // A managed service may have moved the host's name to another master.
                    open.is_wrong_server();
                }
                Ok(answers)
            }
            Err(reason) => {
                self.line.replaced(&open).await?;
                Err(CallError::Unanswered { reason })
            }
        }
    }

    /// The connection for calls of this durability, if they wait for replicas.
    fn waiting(&self, durability: Durability) -> Option<Durable> {
        let waits = durability.waits(self.locator.replicas());
        waits.then(|| self.durable(durability))
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
            let (scripts, publishing) = (self.line.clone(), Publishing::Classic);
            let (wait, tasks) = (self.wait, &self.tasks);
            Durable::start(line, scripts, publishing, wait, durability, listed, tasks)
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
    ) -> BoxFuture<Result<Vec<Answered>, CallError>> {
        let lines = self.lines.clone();
        Box::pin(async move { lines.call(script, operations, durability).await })
    }

    fn replicas(&self, _slot: HashSlot) -> usize {
        self.lines.locator.replicas()
    }

    fn ready(&self, _slot: HashSlot, durability: Durability) -> BoxFuture<()> {
        let lines = self.lines.clone();
        Box::pin(async move {
            let _ = lines.line.opened().await;
            if let Some(durable) = lines.waiting(durability) {
                let _ = durable.line.opened().await;
            }
        })
    }

    fn is_ready(&self, _slot: HashSlot, durability: Durability) -> bool {
        let lines = &self.lines;
        let durable = lines.waiting(durability);
        lines.line.is_up() && durable.is_none_or(|durable| durable.line.is_up())
    }

    fn trouble(&self, _slot: HashSlot, durability: Durability) -> Option<Arc<Cause>> {
        let durable = || self.lines.waiting(durability)?.line.trouble();
        self.lines.line.trouble().or_else(durable)
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
