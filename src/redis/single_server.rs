//! A single server or the master of a set-up: one connection for scripts, one for subscriptions.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Answered, BoxFuture, CallError, EventSender, Events, HashSlot, Redis, Tasks,
    batch_scope::{BatchScope, EndpointScope},
    client_names::{self, ClientNames},
    connector::Connector,
    durable::{Durable, Durables, Wait},
    events::{self, MESSAGES},
    eviction::Evictions,
    locator::Locator,
    open_connection::refuses_writes,
    publish_rights::PublishRights,
    script_connection::ScriptConnection,
    subscriptions::{Channels, Subscriber, Wants},
    target::Target,
    time_limits::FIRST_CONNECT_WAIT,
};
use crate::{
    durability::Durability,
    endpoint_kind::EndpointKind,
    error::{Cause, Error},
    wire::{
        Refusal,
        script::{Operation, Publishing, Script},
    },
};

/// One Redis or Valkey server.
pub(crate) struct SingleServer {
    connections: Arc<ServerConnections>,
    wants: Wants,
    rights: PublishRights,
    scope: Arc<EndpointScope>,
}

/// The connections for scripts.
struct ServerConnections {
    scripts: ScriptConnection,
    connector: Connector,
    locator: Locator,
    wait: Wait,
    durables: Durables,
    events: EventSender,
    closed: CancellationToken,
    tasks: Tasks,
}

impl SingleServer {
    pub(super) async fn connect(target: Target, wait: Wait) -> Result<(Self, Events), Error> {
        let connecting = tokio::time::timeout(FIRST_CONNECT_WAIT, Self::connect_all(target, wait));
        connecting.await.unwrap_or_else(|_| {
            Err(Error::unavailable(format!(
                "no connection within {FIRST_CONNECT_WAIT:?}"
            )))
        })
    }

    async fn connect_all(mut target: Target, wait: Wait) -> Result<(Self, Events), Error> {
        let scope = EndpointScope::new(target.endpoint_kind());
        let locator = target.locator();
        let rights = PublishRights::of(&target.server);
        let evictions = Evictions::of(&target.server);
        let connector = Connector::new(target.server.clone(), 1)
            .to(Arc::new(locator.clone()))
            .within_scope(scope.clone());
        let listener = Connector::new(target.server, MESSAGES)
            .to(Arc::new(locator.clone()))
            .within_scope(scope.clone());
        let (mut first, first_listening) = match target.lazy {
            true => (None, None),
            false => (
                Some(connector.connect().await?),
                Some(listener.connect().await?),
            ),
        };

        if let Some(open) = &mut first {
            open.learn_role().await;
            open.check_role(scope.kind())?;
        }
        let (events, receiver) = events::channel();
        let (wants, wanted) = Wants::new();
        let (closed, tasks) = (CancellationToken::new(), Tasks::here());
        let scripts = ScriptConnection::keep(
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
        tasks.spawn(evictions.look(scripts.clone()));
        let connections = Arc::new(ServerConnections {
            scripts,
            connector,
            locator,
            wait,
            durables: Durables::default(),
            events,
            closed,
            tasks,
        });
        let server = Self {
            connections,
            wants,
            rights,
            scope,
        };
        Ok((server, receiver))
    }
}

impl ServerConnections {
    async fn call(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
        durability: Durability,
    ) -> Result<Vec<Answered>, CallError> {
        let count = operations.len();
        let session = self.scripts.ready().await?;
        let sent = Instant::now();
        let durable = self.waiting(durability);
        let answered = match &durable {
            Some(durable) => durable.run(script, operations).await,
            None => {
                let answer = session.run(script, Publishing::Classic, &operations).await;
                answer.map(Answered::from)
            }
        };
        let answers = match answered {
            Ok(answered) => answered.read_replies(count)?,
            Err(_) if self.closed.is_cancelled() => return Err(CallError::Closed),
            Err(reason) => {
                if durable.is_none() {
                    self.scripts.replaced(&session).await?;
                }
                return Err(CallError::Unanswered { reason, sent });
            }
        };
        if answers.iter().any(|answer| answer.reply.is_of_a_replica()) {
            // A managed service may have moved the host's name to another master.
            let answered_by = match durable {
                Some(durable) => durable.connection.current(),
                None => Some(session),
            };
            if let Some(session) = answered_by {
                session.report_wrong_server();
            }
        }
        Ok(answers)
    }

    /// The connection for calls of this durability, if they wait for replicas.
    fn waiting(&self, durability: Durability) -> Option<Durable> {
        let waits = durability.waits(self.locator.replicas());
        waits.then(|| self.durable(durability))
    }

    fn durable(&self, durability: Durability) -> Durable {
        self.durables.get(durability, || {
            let connection = ScriptConnection::keep(
                self.connector.clone().blocking(self.wait.longest),
                None,
                self.events.clone(),
                self.closed.clone(),
                &self.tasks,
            );
            let locator = self.locator.clone();
            let listed = Box::new(move || locator.replicas());
            let (scripts, publishing) = (self.scripts.clone(), Publishing::Classic);
            let (wait, tasks) = (self.wait, &self.tasks);
            Durable::start(
                connection, scripts, publishing, wait, durability, listed, tasks,
            )
        })
    }
}

impl Redis for SingleServer {
    fn slot(&self, key: &[u8]) -> HashSlot {
        self.scope.slot(key)
    }

    fn counts_listeners(&self) -> bool {
        // Behind a proxy, other servers may have listeners too.
        self.scope.now() == BatchScope::AllNames
    }

    fn queues_by_slot(&self) -> bool {
        self.scope.now() != BatchScope::AllNames
    }

    fn refused_together(&self, operations: &[Operation]) {
        self.scope.refused_together(operations);
    }

    fn call(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
        durability: Durability,
    ) -> BoxFuture<Result<Vec<Answered>, CallError>> {
        let connections = self.connections.clone();
        Box::pin(async move { connections.call(script, operations, durability).await })
    }

    fn replicas(&self, _slot: HashSlot) -> usize {
        self.connections.locator.replicas()
    }

    fn ready(&self, _slot: HashSlot, durability: Durability) -> BoxFuture<()> {
        let connections = self.connections.clone();
        Box::pin(async move {
            let _ = connections.scripts.ready().await;
            if let Some(durable) = connections.waiting(durability) {
                let _ = durable.connection.ready().await;
            }
        })
    }

    fn is_ready(&self, _slot: HashSlot, durability: Durability) -> bool {
        let connections = &self.connections;
        let durable = connections.waiting(durability);
        connections.scripts.is_up() && durable.is_none_or(|durable| durable.connection.is_up())
    }

    fn is_connected(&self) -> bool {
        self.connections.scripts.is_up()
    }

    fn trouble(&self, _slot: HashSlot, durability: Durability) -> Option<Arc<Cause>> {
        let durable = || self.connections.waiting(durability)?.connection.trouble();
        self.connections.scripts.trouble().or_else(durable)
    }

    fn refused_start(&self) -> Option<Error> {
        self.connections.scripts.refused_start()
    }

    fn server_of(&self, _slot: HashSlot) -> Option<String> {
        self.connections.scripts.server()
    }

    fn ping(&self) -> BoxFuture<Result<(), CallError>> {
        let scripts = self.connections.scripts.clone();
        // A proxy answers for one of its servers, if at all.
        let is_server = self.scope.kind() != EndpointKind::Proxy;
        Box::pin(async move {
            let (session, role) = scripts.ping(is_server.then_some(("ROLE", &[]))).await?;
            let Some(role) = refuses_writes(&role) else {
                return Ok(());
            };
            session.report_wrong_server();
            Err(CallError::Refused(Refusal::from_message(format!(
                "READONLY the server has the role `{role}` and refuses locks: promote it, or name its master in the URL, or all servers \
                 by redis-sentinel:// or redis-replicated://"
            ))))
        })
    }

    fn refused_message(&self, key: &Bytes, channel: &Bytes) -> Option<BoxFuture<Option<String>>> {
        if !self.rights.is_unknown(channel) {
            return None;
        }
        let session = self.connections.scripts.current()?;
        let (rights, key, channel) = (self.rights.clone(), key.clone(), channel.clone());
        Some(Box::pin(async move {
            rights
                .ask(&session, Publishing::Classic, key, channel)
                .await
        }))
    }

    fn client_names(&self, _key: &Bytes) -> Option<BoxFuture<Option<ClientNames>>> {
        let session = self.connections.scripts.current()?;
        session
            .has_description()
            .then(|| Box::pin(client_names::ask(session)) as _)
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<Result<(), CallError>> {
        self.wants.subscribe(channel)
    }

    fn unsubscribe(&self, channel: Bytes) {
        self.wants.unsubscribe(channel);
    }

    fn close(&self) -> BoxFuture<()> {
        self.connections.closed.cancel();
        self.connections.tasks.ended()
    }
}

impl Drop for SingleServer {
    fn drop(&mut self) {
        self.connections.closed.cancel();
    }
}
