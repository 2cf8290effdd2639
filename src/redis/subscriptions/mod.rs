//! The connection for subscriptions, and the one task that uses it.
//!
//! - [`wanted`]: the wanted channels, and the callers that wait for confirmations.
//! - [`session`]: the subscriptions of one open connection.

mod session;
mod wanted;

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    BoxFuture, Event, EventSender,
    client_info::ConnectionIdentity,
    connector::Connector,
    liveness::{End, LivenessCheck, provable},
    open_connection::{self, OpenConnection},
    reauthentication::ENDS_TO_LOG_IN,
    time_limits::{FIRST_UNSUBSCRIBED_PAUSE, LONGEST_UNSUBSCRIBED_PAUSE},
};
use crate::transport::{Connection, Pushed};
use session::{AT_ONCE, Session};
use wanted::Wanted;
pub(super) use wanted::{Want, Wants};

/// The most broken connections that are remembered, to be killed. Each broke before its predecessors were dead.
const MOST_ALIVE: usize = 8;

/// How many connections in a row may end with a subscription before their pauses grow.
const MOST_UNSUBSCRIBED: u32 = 5;

/// The pause after so many connections in a row that ended with a subscription: a peer without subscriptions may close each.
fn silence(unsubscribed: u32) -> Duration {
    match unsubscribed.checked_sub(MOST_UNSUBSCRIBED + 1) {
        None => Duration::ZERO,
        Some(longer) => {
            (FIRST_UNSUBSCRIBED_PAUSE * 2_u32.pow(longer.min(16))).min(LONGEST_UNSUBSCRIBED_PAUSE)
        }
    }
}

/// The scope of the channels.
pub(super) enum Channels {
    /// The channels of a server.
    Everywhere,
    /// The channels of a whole cluster, through any node.
    OfCluster,
    /// The channels of a shard, which change with its slots.
    OfShard(Arc<dyn ShardMap>),
}

/// The map of slots to nodes.
pub(super) trait ShardMap: Send + Sync {
    /// Requests a new map: a node seems to have lost slots.
    fn request_refresh(&self);
}

impl Channels {
    /// Reports that this server seems to be the wrong one.
    fn request_refresh(&self) {
        if let Channels::OfShard(map) = self {
            map.request_refresh();
        }
    }
}

/// Subscribes, and reports the results.
pub(super) struct Subscriber {
    pub(super) connector: Connector,
    pub(super) channels: Channels,
    pub(super) events: EventSender,
    pub(super) closed: CancellationToken,
}

impl Subscriber {
    /// Subscribes and unsubscribes by `wants` and passes on the messages, over one connection after the other.
    pub(super) async fn serve(
        self,
        first: Option<OpenConnection>,
        mut wants: mpsc::UnboundedReceiver<Want>,
    ) {
        let mut wanted = Wanted::default();
        let mut connect_log = self.connector.connect_log("subscriptions");
        let mut next = match first {
            Some(first) => Some(first),
            None => {
                let connecting = self.connector.connect_until(&self.closed, &mut connect_log);
                without_connection(connecting, &mut wanted, &mut wants).await
            }
        };
        // Broken connections that may still be alive at the server, where they count as listeners.
        let mut alive = VecDeque::new();
        let mut unsubscribed = 0;
        while let Some(mut open) = next {
            let listener = listen(&*open.connection, self.events.clone());
            let (opened, endpoint) = (Instant::now(), self.connector.endpoint());
            let used = self.use_connection(&mut open, &mut wanted, &mut wants, || {
                connect_log.is_proven(&endpoint);
            });
            let ended = self.closed.run_until_cancelled(used).await;
            listener.abort();
            let successor;
            let rest = match ended {
                // The client is closed, or all callers have gone.
                None | Some(None) => return open_connection::quit(&*open.connection).await,
                Some(Some(ended)) => {
                    successor = ended.end.successor;
                    unsubscribed = match ended.during {
                        During::FirstSubscription => unsubscribed + 1,
                        During::Rest => unsubscribed,
                        During::Proved => 0,
                    };
                    let reason = &ended.end.reason;
                    if unsubscribed == MOST_UNSUBSCRIBED + 1 {
                        tracing::warn!(
                            reason,
                            "the server ends each connection that subscribes: waiters poll"
                        );
                    }
                    let answers = u32::from(ended.during == During::Proved);
                    let rest = match reason == ENDS_TO_LOG_IN {
                        true => {
                            tracing::debug!(server = %endpoint, reason, "a connection for subscriptions ends");
                            Duration::ZERO
                        }
                        false => connect_log.lost(&endpoint, reason, answers, opened.elapsed()),
                    };
                    rest.max(silence(unsubscribed))
                }
            };
            // A successor has had it killed.
            if let ConnectionIdentity::Known(identity) = &open.identity
                && successor.is_none()
            {
                alive.truncate(MOST_ALIVE - 1);
                alive.push_front(identity.clone());
            }
            drop(open);
            self.channels.request_refresh();
            let again = async {
                tokio::time::sleep(rest).await;
                self.connector
                    .succeed(successor, &self.closed, &mut connect_log)
                    .await
            };
            let again = self.closed.run_until_cancelled(again);
            wanted.disconnected();
            next = without_connection(again, &mut wanted, &mut wants)
                .await
                .flatten();
            while let (Some(next), Some(old)) = (&mut next, alive.front())
                && next.kill(old).await.is_ok()
            {
                alive.pop_front();
            }
        }
    }

    /// Serves until the connection breaks, and returns the reason; `None` when all callers have gone.
    async fn use_connection(
        &self,
        open: &mut OpenConnection,
        wanted: &mut Wanted,
        wants: &mut mpsc::UnboundedReceiver<Want>,
        mut proven: impl FnMut(),
    ) -> Option<Ended> {
        let mut session = Session::new(open, &self.channels);
        let late = std::iter::from_fn(|| wants.try_recv().ok());
        let everything = wanted.everything(late);
        let (identity, scope) = (&open.identity, open.scope.as_ref());
        let (lifetime, endpoint) = (&mut open.lifetime, self.connector.endpoint());
        let mut is_proven = false;
        let ended = |end, is_proven, during| {
            let during = if is_proven { During::Proved } else { during };
            Some(Ended { end, during })
        };
        let first = match everything.subscribe.is_empty() {
            true => During::Rest,
            false => During::FirstSubscription,
        };
        if let Err(reason) = lifetime.run(session.apply(everything, wanted)).await {
            return ended(reason.into(), false, first);
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
        let mut liveness = LivenessCheck::new(open.ping_wait);
        loop {
            tokio::select! {
                biased;
                reason = lifetime.ended() => return ended(reason.into(), is_proven, During::Rest),
                // A look that is due precedes the changes: a steady stream of them would put it off for ever.
                () = tokio::time::sleep_until(session.next_look()) => {
                    let old = provable(identity, scope).filter(|_| session.is_doubted());
                    let looking = Box::pin(lifetime.run(session.look(wanted)));
                    let connecting = self.connector.connect_beside(&endpoint);
                    if let Err(end) = liveness.settle(looking, old, connecting).await {
                        return ended(end, is_proven, During::Rest);
                    }
                    // A connection without channels has nothing to prove.
                    prove(true, &mut is_proven);
                }
                taken = wants.recv_many(&mut batch, AT_ONCE) => {
                    if taken == 0 {
                        return None;
                    }
                    let change = wanted.take_up(batch.drain(..));
                    let first = match session.has_subscribed() || change.subscribe.is_empty() {
                        true => During::Rest,
                        false => During::FirstSubscription,
                    };
                    // A few round trips at most.
                    let applying = Box::pin(lifetime.run(session.apply(change, wanted)));
                    let old = provable(identity, scope);
                    let connecting = self.connector.connect_beside(&endpoint);
                    if let Err(end) = liveness.settle(applying, old, connecting).await {
                        is_proven &= first == During::Rest;
                        return ended(end, is_proven, first);
                    }
                    prove(session.has_subscribed(), &mut is_proven);
                }
            }
            if session.take_regained() {
                let _ = self.events.send(Event::MessagesMissed);
            }
        }
    }
}

/// Runs `connecting`, and takes up `wants` meanwhile: an outage must not let them pile up.
async fn without_connection<T>(
    connecting: impl Future<Output = T>,
    wanted: &mut Wanted,
    wants: &mut mpsc::UnboundedReceiver<Want>,
) -> T {
    let mut connecting = pin!(connecting);
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            done = &mut connecting => return done,
            1.. = wants.recv_many(&mut batch, AT_ONCE) => {
                // The next connection subscribes to everything that is wanted then.
                let _ = wanted.take_up(batch.drain(..));
            }
        }
    }
}

/// The end of a connection.
struct Ended {
    end: End,
    during: During,
}

/// When a connection has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum During {
    /// Before it confirmed its first subscription, which was under way.
    FirstSubscription,
    /// At another time before it was proved.
    Rest,
    /// After it was proved.
    Proved,
}

/// Passes messages on while the connection lives.
fn listen(connection: &dyn Connection, events: EventSender) -> JoinHandle<()> {
    let mut messages = connection.messages();
    let task: BoxFuture<()> = Box::pin(async move {
        while let Some(pushed) = messages.next().await {
            let event = match pushed {
                Pushed::Message { channel, payload } => Event::Message { channel, payload },
                Pushed::Missed => Event::MessagesMissed,
            };
            if events.send(event).is_err() {
                return;
            }
        }
    });
    tokio::spawn(task)
}

#[cfg(test)]
mod tests;
