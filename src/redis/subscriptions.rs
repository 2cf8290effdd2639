//! The connection for subscriptions, and the one task that uses it.

mod session;
mod wanted;

use std::sync::Arc;

use fred::{clients::Client, interfaces::EventInterface, types::Message};
use tokio::{
    sync::{broadcast, mpsc},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    Event,
    cluster::Topology,
    link::{self, Connection, Connector},
};
use session::{AT_ONCE, Session};
use wanted::Wanted;
pub(super) use wanted::{Want, Wants};

/// Which channels these are.
pub(super) enum Channels {
    /// Those of a server.
    Everywhere,
    /// Those of all nodes of a cluster, by way of any of them.
    OfCluster,
    /// Those of a shard, which come and go with its slots.
    OfShard(Arc<Topology>),
}

impl Channels {
    /// The server is not the one to ask, it seems.
    fn doubt(&self) {
        if let Channels::OfShard(topology) = self {
            topology.doubt();
        }
    }
}

/// Who subscribes, and tells what comes of it.
pub(super) struct Subscriber {
    pub(super) connector: Connector,
    pub(super) channels: Channels,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) closed: CancellationToken,
}

impl Subscriber {
    /// Subscribes and unsubscribes as `wants` say and passes the messages on, over one connection after the other.
    pub(super) async fn serve(
        self,
        first: Option<Connection>,
        mut wants: mpsc::UnboundedReceiver<Want>,
    ) {
        let mut wanted = Wanted::default();
        let mut next = match first {
            Some(first) => Some(first),
            None => self.connector.connect_until(&self.closed).await,
        };
        while let Some(mut connection) = next {
            let listener = listen(&connection.client, self.events.clone());
            let used = self.use_connection(&mut connection, &mut wanted, &mut wants);
            let ended = self.closed.run_until_cancelled(used).await;
            listener.abort();
            match ended {
                // Closed, or nobody is left who could want anything.
                None | Some(None) => return link::quit(&connection.client).await,
                Some(Some(reason)) => {
                    tracing::warn!(%reason, "the connection for subscriptions broke; connecting again");
                }
            }
            let old = connection.identity.take();
            drop(connection);
            self.channels.doubt();
            next = self.connector.connect_until(&self.closed).await;
            let client = next.as_ref().map(|next| next.client.clone());
            if let (Some(client), Some(old)) = (client, old) {
                Connection::kill(&client, &old).await;
            }
        }
    }

    /// Serves until the connection breaks, and says why; `None` when nobody can want anything any more.
    async fn use_connection(
        &self,
        connection: &mut Connection,
        wanted: &mut Wanted,
        wants: &mut mpsc::UnboundedReceiver<Want>,
    ) -> Option<String> {
        let mut session = Session::new(connection, &self.channels);
        let everything = wanted.everything();
        let router = &mut connection.router;
        if let Err(reason) = router.run(session.apply(everything, wanted)).await {
            return Some(reason);
        }
        let _ = self.events.send(Event::MessagesMissed);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                reason = router.ended() => return Some(reason),
                taken = wants.recv_many(&mut batch, AT_ONCE) => {
                    if taken == 0 {
                        return None;
                    }
                    let change = wanted.take_up(batch.drain(..));
                    if let Err(reason) = router.run(session.apply(change, wanted)).await {
                        return Some(reason);
                    }
                }
                () = tokio::time::sleep_until(session.next_look()) => {
                    match router.run(session.look(wanted)).await {
                        Err(reason) => return Some(reason),
                        Ok(true) => drop(self.events.send(Event::MessagesMissed)),
                        Ok(false) => {}
                    }
                }
            }
        }
    }
}

/// Passes messages on while `client` lives.
fn listen(client: &Client, events: mpsc::UnboundedSender<Event>) -> JoinHandle<()> {
    let mut messages = client.message_rx();
    tokio::spawn(async move {
        while let Some(event) = next_event(&mut messages).await {
            if events.send(event).is_err() {
                return;
            }
        }
    })
}

async fn next_event(messages: &mut broadcast::Receiver<Message>) -> Option<Event> {
    match messages.recv().await {
        Ok(message) => Some(Event::Message {
            channel: message.channel.into_inner(),
            payload: message.value.into_bytes().unwrap_or_default(),
        }),
        Err(broadcast::error::RecvError::Lagged(_)) => Some(Event::MessagesMissed),
        Err(broadcast::error::RecvError::Closed) => None,
    }
}
