//! Subscribes to each channel at the node of its slot, where messages stay within a shard.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::topology::{Node, Topology};
use crate::{
    hash::{HashMap, HashSet},
    redis::{
        BoxFuture, CallError, Event, EventSender,
        events::MESSAGES,
        hash_slot::hash_slot,
        subscriptions::{Channels, Subscriber, Want},
    },
};

type Done = oneshot::Sender<Result<(), CallError>>;

/// A channel with a present or requested subscription.
struct Subscription {
    /// The node of its subscription, if its slot has one.
    node: Option<Arc<Node>>,
    /// The number of the first request to that node. Answers to earlier requests concern an earlier subscription.
    first: u64,
    /// Whether a request to that node is unanswered.
    is_asked: bool,
    asking: Vec<Done>,
    /// Whether messages may have been lost on its move to the present node.
    moved: bool,
}

/// A node's connection for subscriptions. Its drop ends the connection.
struct Listener {
    node: Arc<Node>,
    wants: mpsc::UnboundedSender<Want>,
    _closed: DropGuard,
}

/// The result of a subscription at one node.
struct Answer {
    number: u64,
    channel: Bytes,
    node: Arc<Node>,
    result: Result<(), CallError>,
}

struct ShardSubscriptions {
    topology: Arc<Topology>,
    events: EventSender,
    channels: HashMap<Bytes, Subscription>,
    listeners: Vec<Listener>,
    answers: FuturesUnordered<BoxFuture<Option<Answer>>>,
    /// The number of requests to subscribe, to all nodes.
    asked: u64,
}

/// Subscribes at the nodes of the channels' slots, and follows slots that move.
pub(super) async fn serve(
    topology: Arc<Topology>,
    mut wants: mpsc::UnboundedReceiver<Want>,
    events: EventSender,
) {
    let closed = topology.closed.clone();
    let mut routes = topology.routes.subscribe();
    let mut subscriptions = ShardSubscriptions::new(topology, events);
    let serving = async {
        loop {
            tokio::select! {
                biased;
                Ok(()) = routes.changed() => subscriptions.follow(),
                Some(answer) = subscriptions.answers.next(), if !subscriptions.answers.is_empty() => {
                    if let Some(answer) = answer {
                        subscriptions.answered(answer);
                    }
                }
                want = wants.recv() => match want {
                    Some(want) => subscriptions.take_up(want),
                    None => return,
                }
            }
        }
    };
    let _: Option<()> = closed.run_until_cancelled(serving).await;
}

impl ShardSubscriptions {
    fn new(topology: Arc<Topology>, events: EventSender) -> Self {
        Self {
            topology,
            events,
            channels: HashMap::default(),
            listeners: Vec::new(),
            answers: FuturesUnordered::new(),
            asked: 0,
        }
    }

    fn take_up(&mut self, want: Want) {
        match want {
            Want::Subscribe { channel, done } => {
                let subscription =
                    self.channels
                        .entry(channel.clone())
                        .or_insert_with(|| Subscription {
                            node: None,
                            first: 0,
                            is_asked: false,
                            asking: Vec::new(),
                            moved: false,
                        });
                if subscription.asking.len() == subscription.asking.capacity() {
                    // A node that cannot be reached answers no caller, not even callers that have gone.
                    subscription.asking.retain(|done| !done.is_closed());
                }
                subscription.asking.push(done);
                self.subscribe_at_owner(channel);
            }
            Want::Unsubscribe { channel } => {
                if let Some(node) = self
                    .channels
                    .remove(&channel)
                    .and_then(|subscription| subscription.node)
                {
                    self.tell(&node, Want::Unsubscribe { channel });
                }
            }
            Want::Forget { channel } => drop(self.channels.remove(&channel)),
        }
    }

    /// Subscribes at the node of the channel's slot, unless that is under way, and unsubscribes at the previous one.
    fn subscribe_at_owner(&mut self, channel: Bytes) {
        let owner = self.owner(&channel);
        let Some(subscription) = self.channels.get_mut(&channel) else {
            return;
        };
        let has_moved = !is_same(&subscription.node, &owner);
        if subscription.is_asked && !has_moved {
            return;
        }
        subscription.is_asked = owner.is_some();
        let number = self.asked + 1;
        if has_moved {
            subscription.first = number;
            let old = std::mem::replace(&mut subscription.node, owner.clone());
            if let Some(old) = old {
                subscription.moved = true;
                let channel = channel.clone();
                self.tell(&old, Want::Forget { channel });
            }
        }
        let Some(node) = owner else { return };
        self.asked = number;
        let (done, answer) = oneshot::channel();
        let want = Want::Subscribe {
            channel: channel.clone(),
            done,
        };
        self.tell(&node, want);
        self.answers.push(Box::pin(async move {
            let result = answer.await.ok()?;
            Some(Answer {
                number,
                channel,
                node,
                result,
            })
        }));
    }

    fn answered(&mut self, answer: Answer) {
        let Some(subscription) = self.channels.get_mut(&answer.channel) else {
            return;
        };
        let is_there = subscription
            .node
            .as_ref()
            .is_some_and(|node| Arc::ptr_eq(node, &answer.node));
        if !is_there || answer.number < subscription.first {
            return;
        }
        subscription.is_asked = false;
        for done in subscription.asking.drain(..) {
            let _ = done.send(answer.result.clone());
        }
        if std::mem::take(&mut subscription.moved) {
            let slot = hash_slot(&answer.channel);
            let _ = self
                .events
                .send(Event::MissedIn(HashSet::from_iter([slot])));
        }
    }

    /// Slots have moved: moves the subscriptions at wrong nodes to the right ones.
    fn follow(&mut self) {
        let has_moved = |(channel, subscription): (&Bytes, &Subscription)| {
            (!is_same(&subscription.node, &self.owner(channel))).then(|| channel.clone())
        };
        let moved: Vec<Bytes> = self.channels.iter().filter_map(has_moved).collect();
        for channel in moved {
            self.subscribe_at_owner(channel);
        }
        let routes = self.topology.routes.borrow().clone();
        let still_there =
            |listener: &Listener| routes.nodes().any(|node| Arc::ptr_eq(node, &listener.node));
        self.listeners.retain(still_there);
    }

    fn owner(&self, channel: &Bytes) -> Option<Arc<Node>> {
        let routes = self.topology.routes.borrow();
        routes.node(hash_slot(channel)).cloned()
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

fn is_same(one: &Option<Arc<Node>>, other: &Option<Arc<Node>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        redis::{
            cluster::{node_list::Preferred, seeds::FirstAnswer},
            durable::Wait,
            events, url,
        },
        wire::script::Publishing,
    };

    /// Nodes that were never reached.
    fn subscriptions() -> ShardSubscriptions {
        let nodes = "aaa 127.0.0.1:1@2 master - 0 0 1 connected 0-16383\n\
                     bbb 127.0.0.1:3@4 master - 0 0 2 connected\n";
        let wait = Wait {
            longest: Duration::from_secs(1),
            for_disk: false,
        };
        let (events, _) = events::channel();
        let server = url::parse("redis://nowhere").unwrap().server;
        let sharded = Publishing::Sharded;
        let topology = Topology::new(
            server,
            Vec::new(),
            None,
            sharded,
            wait,
            FirstAnswer::of(nodes, Preferred::Ip),
            events.clone(),
        );
        ShardSubscriptions::new(Arc::new(topology), events)
    }

    fn subscribe(
        subscriptions: &mut ShardSubscriptions,
    ) -> oneshot::Receiver<Result<(), CallError>> {
        let (done, answer) = oneshot::channel();
        let channel = "channel".into();
        subscriptions.take_up(Want::Subscribe { channel, done });
        answer
    }

    fn confirmed(subscriptions: &ShardSubscriptions, number: u64) -> Answer {
        let channel = "channel".into();
        Answer {
            number,
            node: subscriptions
                .owner(&channel)
                .expect("its slot has an owner"),
            channel,
            result: Ok(()),
        }
    }

    #[tokio::test]
    async fn an_earlier_subscription_is_not_taken_for_the_present_one() {
        let mut subscriptions = subscriptions();
        let _left = subscribe(&mut subscriptions);
        let late = confirmed(&subscriptions, 1);
        let channel = "channel".into();
        subscriptions.take_up(Want::Unsubscribe { channel });
        let mut again = subscribe(&mut subscriptions);
        subscriptions.answered(late);
        assert!(again.try_recv().is_err(), "it is unsubscribed in between");
        subscriptions.answered(confirmed(&subscriptions, 2));
        assert_eq!(again.try_recv(), Ok(Ok(())));
        subscriptions.topology.closed.cancel();
    }

    /// Otherwise each of many waits leaves its request in memory while the node cannot be reached.
    #[tokio::test]
    async fn unanswered_request_serves_later_callers_too() {
        let mut subscriptions = subscriptions();
        for _ in 0..100 {
            drop(subscribe(&mut subscriptions));
        }
        let mut last = subscribe(&mut subscriptions);
        let asking = subscriptions.channels["channel".as_bytes()].asking.len();
        assert!(asking < 10, "{asking} callers");
        assert_eq!(subscriptions.answers.len(), 1);
        subscriptions.answered(confirmed(&subscriptions, 1));
        assert_eq!(last.try_recv(), Ok(Ok(())));
        subscriptions.topology.closed.cancel();
    }

    #[tokio::test]
    async fn a_channel_that_moved_ignores_the_confirmation_of_its_old_node() {
        let mut subscriptions = subscriptions();
        let mut first = subscribe(&mut subscriptions);
        let old = confirmed(&subscriptions, 1);
        let at = |port| ("127.0.0.1".to_owned(), port);
        let topology = &subscriptions.topology;
        assert!(topology.moved(hash_slot(b"channel"), &at(1), &at(3)));
        let _second = subscribe(&mut subscriptions);
        assert!(
            subscriptions.channels["channel".as_bytes()].moved,
            "the rest are to be woken"
        );
        subscriptions.answered(old);
        assert!(first.try_recv().is_err());
        subscriptions.answered(confirmed(&subscriptions, 2));
        assert_eq!(first.try_recv(), Ok(Ok(())));
        subscriptions.topology.closed.cancel();
    }
}
