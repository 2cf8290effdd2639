//! Which node listens to which channel, where messages stay in a shard.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use fred::util::redis_keyslot;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::topology::{Node, Topology};
use crate::redis::{
    BoxFuture, CallError, Event,
    server::MESSAGES,
    subscriptions::{Channels, Subscriber, Want},
};

type Done = oneshot::Sender<Result<(), CallError>>;

/// A channel that is subscribed to, or is to be.
struct Placed {
    /// The node that it is subscribed to at, if its slot has one.
    node: Option<Arc<Node>>,
    asking: Vec<Done>,
    /// Messages may have been lost on the way to its present node.
    moved: bool,
}

/// A node's connection for subscriptions; dropped, it ends.
struct Listener {
    node: Arc<Node>,
    wants: mpsc::UnboundedSender<Want>,
    _closed: DropGuard,
}

/// How a subscription at one node went.
struct Answer {
    channel: Bytes,
    node: Arc<Node>,
    result: Result<(), CallError>,
}

struct Board {
    topology: Arc<Topology>,
    events: mpsc::UnboundedSender<Event>,
    placed: HashMap<Bytes, Placed>,
    listeners: Vec<Listener>,
    answers: FuturesUnordered<BoxFuture<Option<Answer>>>,
}

/// Subscribes at the nodes that have the channels' slots, and after them when they move.
pub(super) async fn serve(
    topology: Arc<Topology>,
    mut wants: mpsc::UnboundedReceiver<Want>,
    events: mpsc::UnboundedSender<Event>,
) {
    let closed = topology.closed.clone();
    let mut routes = topology.routes.subscribe();
    let mut board = Board {
        topology,
        events,
        placed: HashMap::new(),
        listeners: Vec::new(),
        answers: FuturesUnordered::new(),
    };
    let serving = async {
        loop {
            tokio::select! {
                biased;
                Ok(()) = routes.changed() => board.follow(),
                Some(answer) = board.answers.next(), if !board.answers.is_empty() => {
                    if let Some(answer) = answer {
                        board.answered(answer);
                    }
                }
                want = wants.recv() => match want {
                    Some(want) => board.take_up(want),
                    None => return,
                }
            }
        }
    };
    let _: Option<()> = closed.run_until_cancelled(serving).await;
}

impl Board {
    fn take_up(&mut self, want: Want) {
        match want {
            Want::Subscribe { channel, done } => {
                let placed = self
                    .placed
                    .entry(channel.clone())
                    .or_insert_with(|| Placed {
                        node: None,
                        asking: Vec::new(),
                        moved: false,
                    });
                placed.asking.push(done);
                self.place(channel);
            }
            Want::Unsubscribe { channel } => {
                if let Some(node) = self.placed.remove(&channel).and_then(|placed| placed.node) {
                    self.tell(&node, Want::Unsubscribe { channel });
                }
            }
            Want::Forget { channel } => drop(self.placed.remove(&channel)),
        }
    }

    /// Asks the node that has the channel's slot.
    fn place(&mut self, channel: Bytes) {
        let owner = self.owner(&channel);
        let Some(placed) = self.placed.get_mut(&channel) else {
            return;
        };
        placed.node.clone_from(&owner);
        let Some(node) = owner else { return };
        let (done, answer) = oneshot::channel();
        let want = Want::Subscribe {
            channel: channel.clone(),
            done,
        };
        self.tell(&node, want);
        self.answers.push(Box::pin(async move {
            let result = answer.await.ok()?;
            Some(Answer {
                channel,
                node,
                result,
            })
        }));
    }

    fn answered(&mut self, answer: Answer) {
        let Some(placed) = self.placed.get_mut(&answer.channel) else {
            return;
        };
        let is_there = placed
            .node
            .as_ref()
            .is_some_and(|node| Arc::ptr_eq(node, &answer.node));
        if !is_there {
            return;
        }
        for done in placed.asking.drain(..) {
            let _ = done.send(answer.result.clone());
        }
        if std::mem::take(&mut placed.moved) {
            let _ = self.events.send(Event::MessagesMissed);
        }
    }

    /// The slots have moved: what listens at the wrong node listens at the right one from now on.
    fn follow(&mut self) {
        let has_moved = |(channel, placed): (&Bytes, &Placed)| {
            let same = match (&placed.node, &self.owner(channel)) {
                (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                (None, None) => true,
                _ => false,
            };
            (!same).then(|| channel.clone())
        };
        let moved: Vec<Bytes> = self.placed.iter().filter_map(has_moved).collect();
        for channel in moved {
            let placed = self.placed.get_mut(&channel);
            let old = placed.and_then(|placed| {
                placed.moved = true;
                placed.node.take()
            });
            if let Some(old) = old {
                let channel = channel.clone();
                self.tell(&old, Want::Forget { channel });
            }
            self.place(channel);
        }
        let routes = self.topology.routes.borrow().clone();
        let still_there =
            |listener: &Listener| routes.nodes().any(|node| Arc::ptr_eq(node, &listener.node));
        self.listeners.retain(still_there);
    }

    fn owner(&self, channel: &Bytes) -> Option<Arc<Node>> {
        let routes = self.topology.routes.borrow();
        routes.node(redis_keyslot(channel)).cloned()
    }

    fn tell(&mut self, node: &Arc<Node>, want: Want) {
        let known = self
            .listeners
            .iter()
            .find(|listener| Arc::ptr_eq(&listener.node, node));
        if let Some(listener) = known {
            let _ = listener.wants.send(want);
        } else if let Want::Subscribe { .. } = want {
            let listener = self.listen(node.clone());
            let _ = listener.wants.send(want);
            self.listeners.push(listener);
        }
    }

    fn listen(&self, node: Arc<Node>) -> Listener {
        let closed: CancellationToken = self.topology.closed.child_token();
        let subscriber = Subscriber {
            connector: self.topology.connector(&node.address, MESSAGES),
            channels: Channels::OfShard(self.topology.clone()),
            events: self.events.clone(),
            closed: closed.clone(),
        };
        let (wants, wanted) = mpsc::unbounded_channel();
        self.topology.tasks.spawn(subscriber.serve(None, wanted));
        Listener {
            node,
            wants,
            _closed: closed.drop_guard(),
        }
    }
}
