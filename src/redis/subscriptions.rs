//! The connection for subscriptions, and the one task that uses it.

mod session;
mod wanted;

use std::{collections::VecDeque, sync::Arc};

use futures_util::StreamExt;
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Event,
    attempts::PROVEN_AFTER,
    client_info::Asked,
    conn::{Conn, Connector},
    connection::{Connection, Pushed},
};
use session::{AT_ONCE, Session};
use wanted::Wanted;
pub(super) use wanted::{Want, Wants};

/// How many broken connections are remembered, to be killed: each of them broke before its predecessors were dead.
const MOST_ALIVE: usize = 8;

/// Which channels these are.
pub(super) enum Channels {
    /// Those of a server.
    Everywhere,
    /// Those of all nodes of a cluster, by way of any of them.
    OfCluster,
    /// Those of a shard, which come and go with its slots.
    OfShard(Arc<dyn ShardMap>),
}

/// The map that says which node has a shard.
pub(super) trait ShardMap: Send + Sync {
    /// Has the map read again: a node seems to have lost slots.
    fn request_refresh(&self);
}

impl Channels {
    /// The server is not the one to ask, it seems.
    fn request_refresh(&self) {
        if let Channels::OfShard(map) = self {
            map.request_refresh();
        }
    }
}

/// Subscribes, and reports what came of it.
pub(super) struct Subscriber {
    pub(super) connector: Connector,
    pub(super) channels: Channels,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) closed: CancellationToken,
}

impl Subscriber {
    /// Subscribes and unsubscribes as `wants` say and passes the messages on, over one connection after the other.
    pub(super) async fn serve(self, first: Option<Conn>, mut wants: mpsc::UnboundedReceiver<Want>) {
        let mut wanted = Wanted::default();
        let mut fortune = self.connector.fortune("subscriptions");
        let mut next = match first {
            Some(first) => Some(first),
            None => {
                let connecting = self.connector.connect_until(&self.closed, &mut fortune);
                connecting.await
            }
        };
        // Broken connections that the server may not know to be dead: one that lives on receives messages in vain, and counts as a
        // listener.
        let mut alive = VecDeque::new();
        while let Some(mut conn) = next {
            let listener = listen(&*conn.connection, self.events.clone());
            let (opened, endpoint) = (Instant::now(), self.connector.endpoint());
            let used = self.use_conn(&mut conn, &mut wanted, &mut wants, || {
                fortune.is_proven(&endpoint);
            });
            let ended = self.closed.run_until_cancelled(used).await;
            listener.abort();
            let rest = match ended {
                // Closed, or no caller is left that could want anything.
                None | Some(None) => return conn.connection.quit().await,
                Some(Some(Ended { reason, is_proven })) => {
                    let is_proven = is_proven || opened.elapsed() >= PROVEN_AFTER;
                    fortune.lost(&endpoint, &reason, is_proven)
                }
            };
            if let Asked::Known(identity) = &conn.identity {
                alive.truncate(MOST_ALIVE - 1);
                alive.push_front(identity.clone());
            }
            drop(conn);
            self.channels.request_refresh();
            let again = async {
                tokio::time::sleep(rest).await;
                self.connector
                    .connect_until(&self.closed, &mut fortune)
                    .await
            };
            next = self.closed.run_until_cancelled(again).await.flatten();
            while let (Some(next), Some(old)) = (&mut next, alive.front())
                && next.kill(old).await.is_ok()
            {
                alive.pop_front();
            }
        }
    }

    /// Serves until the connection breaks, and returns why; `None` when no caller can want anything any more.
    async fn use_conn(
        &self,
        conn: &mut Conn,
        wanted: &mut Wanted,
        wants: &mut mpsc::UnboundedReceiver<Want>,
        mut proven: impl FnMut(),
    ) -> Option<Ended> {
        let mut session = Session::new(conn, &self.channels);
        let late = std::iter::from_fn(|| wants.try_recv().ok());
        let everything = wanted.everything(late);
        let router = &mut conn.router;
        let mut is_proven = false;
        let ended = |reason, is_proven| Some(Ended { reason, is_proven });
        if let Err(reason) = router.run(session.apply(everything, wanted)).await {
            return ended(reason, false);
        }
        let mut prove = |is_well: bool, is_proven: &mut bool| {
            if !*is_proven && is_well {
                *is_proven = true;
                proven();
            }
        };
        prove(session.has_subscribed(), &mut is_proven);
        let _ = self.events.send(Event::MessagesMissed);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                reason = router.ended() => return ended(reason, is_proven),
                taken = wants.recv_many(&mut batch, AT_ONCE) => {
                    if taken == 0 {
                        return None;
                    }
                    let change = wanted.take_up(batch.drain(..));
                    if let Err(reason) = router.run(session.apply(change, wanted)).await {
                        return ended(reason, is_proven);
                    }
                    prove(session.has_subscribed(), &mut is_proven);
                }
                () = tokio::time::sleep_until(session.next_look()) => {
                    match router.run(session.look(wanted)).await {
                        Err(reason) => return ended(reason, is_proven),
                        Ok(true) => drop(self.events.send(Event::MessagesMissed)),
                        Ok(false) => {}
                    }
                    // One that has nothing to listen to is as good as it can be.
                    prove(true, &mut is_proven);
                }
            }
        }
    }
}

/// How a connection has ended.
struct Ended {
    reason: String,
    /// A subscription was confirmed on it.
    is_proven: bool,
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
