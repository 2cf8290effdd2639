//! The connection for subscriptions, and the one task that uses it.

mod session;
mod wanted;

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    Event,
    cluster::Topology,
    connection::{Connection, Pushed},
    link::{Connector, Link},
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
    pub(super) async fn serve(self, first: Option<Link>, mut wants: mpsc::UnboundedReceiver<Want>) {
        let mut wanted = Wanted::default();
        let mut next = match first {
            Some(first) => Some(first),
            None => self.connector.connect_until(&self.closed).await,
        };
        while let Some(mut link) = next {
            let listener = listen(&*link.connection, self.events.clone());
            let used = self.use_link(&mut link, &mut wanted, &mut wants);
            let ended = self.closed.run_until_cancelled(used).await;
            listener.abort();
            match ended {
                // Closed, or nobody is left who could want anything.
                None | Some(None) => return link.connection.quit().await,
                Some(Some(reason)) => {
                    tracing::warn!(%reason, "the connection for subscriptions broke; connecting again");
                }
            }
            let old = link.identity.take();
            drop(link);
            self.channels.doubt();
            next = self.connector.connect_until(&self.closed).await;
            if let (Some(next), Some(old)) = (&mut next, old) {
                // One that lives on receives messages in vain, until the server finds it dead.
                let _ = next.kill(&old).await;
            }
        }
    }

    /// Serves until the connection breaks, and says why; `None` when nobody can want anything any more.
    async fn use_link(
        &self,
        link: &mut Link,
        wanted: &mut Wanted,
        wants: &mut mpsc::UnboundedReceiver<Want>,
    ) -> Option<String> {
        let mut session = Session::new(link, &self.channels);
        let late = std::iter::from_fn(|| wants.try_recv().ok());
        let everything = wanted.everything(late);
        let router = &mut link.router;
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

/// Passes messages on while the connection lives.
fn listen(connection: &dyn Connection, events: mpsc::UnboundedSender<Event>) -> JoinHandle<()> {
    let mut messages = connection.messages();
    tokio::spawn(async move {
        while let Some(pushed) = messages.next().await {
            let event = match pushed {
                Pushed::Message { channel, payload } => Event::Message { channel, payload },
                Pushed::Missed => Event::MessagesMissed,
            };
            if events.send(event).is_err() {
                return;
            }
        }
    })
}
