//! A cluster: a connection for scripts to each node that has slots, and subscriptions within shards or at any node.
//!
//! The crate does not use fred's cluster client. That client stops for one dead node (P-FR11), loses a subscription whose slot
//! moves (P-FR12), and ties redirections to repeated scripts (P-FR1).

mod seeds;
mod sharded;
mod slot_map;
mod topology;

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use tokio::sync::mpsc;

use super::{
    Answered, BoxFuture, CallError, Event, Events, HashSlot, Redis,
    conn::Connector,
    connection::Frame,
    durable::{Durable, Wait},
    endpoint::Address,
    frame,
    fred::hash_slot,
    rights::Rights,
    script_conn::{ClosedForGood, LiveConn},
    server::{CONNECT_WAIT, MESSAGES},
    subscriptions::{Channels, ShardMap, Subscriber, Want, Wants},
    target::Target,
};
use crate::{
    config::ShardedPubSub,
    durability::Durability,
    error::{Cause, Error},
    timers::timeout,
    wire::{
        Refusal, decimal,
        script::{Operation, Publishing, Script},
    },
};
use seeds::ANSWER_WAIT;
use topology::Node;
pub(super) use topology::Topology;

/// The most redirections that one call follows.
const MOST_HOPS: usize = 5;

/// One cluster.
pub(super) struct Cluster {
    topology: Arc<Topology>,
    wants: Wants,
    rights: Rights,
}

impl Cluster {
    pub(super) async fn connect(
        target: Target,
        seeds: Vec<Address>,
        sharded: ShardedPubSub,
        wait: Wait,
    ) -> Result<(Self, Events), Error> {
        let (server, map) = (target.server, target.map);
        let rights = Rights::of(&server);
        let asking = timeout(CONNECT_WAIT, seeds::first_answer(&server, &seeds));
        let first = asking.await.unwrap_or_else(|_| {
            Err(Error::unavailable(format!(
                "no connection within {CONNECT_WAIT:?}"
            )))
        })?;
        let publishing = match sharded {
            ShardedPubSub::Auto if !first.has_shards => Publishing::Classic,
            ShardedPubSub::Off => Publishing::Classic,
            ShardedPubSub::Auto | ShardedPubSub::On => Publishing::Sharded,
        };
        let (events, receiver) = mpsc::unbounded_channel();
        let topology = Topology::new(server, map, publishing, wait, &first.listed, events.clone());
        let topology = Arc::new(topology);
        let (wants, wanted) = Wants::new();
        topology.tasks.spawn(topology.clone().watch());
        subscribe(&topology, wanted, events);
        let cluster = Self {
            topology,
            wants,
            rights,
        };
        // The first calls then find a connection.
        let _ = timeout(ANSWER_WAIT, cluster.all_ready()).await;
        Ok((cluster, receiver))
    }

    async fn all_ready(&self) {
        let routes = self.topology.routes.borrow().clone();
        for node in routes.nodes() {
            let _ = node.script_conn.ready().await;
        }
    }
}

fn subscribe(
    topology: &Arc<Topology>,
    wanted: mpsc::UnboundedReceiver<Want>,
    events: mpsc::UnboundedSender<Event>,
) {
    let tasks = &topology.tasks;
    match topology.publishing {
        Publishing::Sharded => {
            tasks.spawn(sharded::serve(topology.clone(), wanted, events));
        }
        Publishing::Classic => {
            let anywhere = Subscriber {
                connector: Connector::new(topology.server().clone(), MESSAGES).to(topology.clone()),
                channels: Channels::OfCluster,
                events,
                closed: topology.closed.clone(),
            };
            tasks.spawn(anywhere.serve(None, wanted));
        }
    }
}

impl Redis for Cluster {
    fn slot(&self, key: &[u8]) -> HashSlot {
        hash_slot(key)
    }

    fn is_cluster(&self) -> bool {
        true
    }

    fn counts_listeners(&self) -> bool {
        self.topology.publishing == Publishing::Sharded
    }

    fn call(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
        durability: Durability,
    ) -> BoxFuture<Result<Vec<Answered>, CallError>> {
        let topology = self.topology.clone();
        Box::pin(async move { topology.call(script, operations, durability).await })
    }

    fn replicas(&self, slot: HashSlot) -> usize {
        self.topology.replicas(slot)
    }

    fn ready(&self, slot: HashSlot, durability: Durability) -> BoxFuture<()> {
        let topology = self.topology.clone();
        Box::pin(async move {
            while let Ok((node, _)) = topology.ready(slot).await {
                let Some(durable) = topology.waiting(slot, &node, durability) else {
                    return;
                };
                let opened = topology.while_owner(slot, &node, durable.script_conn.ready());
                if opened.await.is_some() {
                    return;
                }
            }
        })
    }

    fn is_ready(&self, slot: HashSlot, durability: Durability) -> bool {
        let node = self.topology.routes.borrow().node(slot).cloned();
        node.is_some_and(|node| {
            let durable = self.topology.waiting(slot, &node, durability);
            node.script_conn.is_up() && durable.is_none_or(|durable| durable.script_conn.is_up())
        })
    }

    fn trouble(&self, slot: HashSlot, durability: Durability) -> Option<Arc<Cause>> {
        let node = self.topology.routes.borrow().node(slot).cloned();
        match node {
            Some(node) => {
                let durable = || {
                    self.topology
                        .waiting(slot, &node, durability)?
                        .script_conn
                        .trouble()
                };
                node.script_conn.trouble().or_else(durable)
            }
            None => Some(Arc::new(Cause::connection(
                "no known node of the cluster serves the slot",
            ))),
        }
    }

    fn ping(&self) -> BoxFuture<Result<(), CallError>> {
        let routes = self.topology.routes.borrow().clone();
        Box::pin(async move {
            let pings = routes.nodes().map(|node| node.script_conn.ping());
            try_join_all(pings).await.map(drop)
        })
    }

    fn may_publish(&self, slot: HashSlot, channel: &Bytes) -> Option<BoxFuture<bool>> {
        if !self.rights.is_unknown() {
            return None;
        }
        let conn = self
            .topology
            .routes
            .borrow()
            .node(slot)?
            .script_conn
            .current()?;
        let (rights, publishing) = (self.rights.clone(), self.topology.publishing);
        let channel = channel.clone();
        Some(Box::pin(async move {
            rights.ask(&conn, publishing, channel).await
        }))
    }

    fn heard_elsewhere(&self, channel: &Bytes) -> Option<BoxFuture<bool>> {
        let routes = self.topology.routes.borrow();
        let (question, nodes): (_, Vec<_>) = match self.topology.publishing {
            // Within a shard: at the node that has the slot.
            Publishing::Classic => {
                let node = routes.node(hash_slot(channel));
                ("SHARDNUMSUB", node.into_iter().collect())
            }
            Publishing::Sharded => ("NUMSUB", routes.nodes().collect()),
        };
        let conns: Vec<_> = nodes
            .iter()
            .filter_map(|node| node.script_conn.current())
            .collect();
        let args = vec![Bytes::from_static(question.as_bytes()), channel.clone()];
        Some(Box::pin(async move {
            for conn in conns {
                let answer = conn.send("PUBSUB", args.clone()).await;
                // A user without the right to ask gets an error.
                if answer.is_ok_and(|answer| frame::number_at(&answer, 1) > Some(0)) {
                    return true;
                }
            }
            false
        }))
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<Result<(), CallError>> {
        self.wants.subscribe(channel)
    }

    fn unsubscribe(&self, channel: Bytes) {
        self.wants.unsubscribe(channel);
    }

    fn close(&self) -> BoxFuture<()> {
        let topology = self.topology.clone();
        topology.closed.cancel();
        topology.tasks.ended()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.topology.closed.cancel();
    }
}

/// The target of a redirection.
#[derive(Debug, PartialEq, Eq)]
enum Redirection {
    /// The slot has moved.
    Moved(Address),
    /// The slot is moving: keys that are absent here may be at the target.
    Ask(Address),
}

impl Redirection {
    /// Reads `MOVED 3999 127.0.0.1:6381` or `ASK ..`. Without a host, the host is that of the answering node.
    fn read(message: &str, asked: &Address) -> Option<Self> {
        let mut words = message.split(' ');
        let (kind, _slot, address) = (words.next()?, words.next()?, words.next()?);
        let (host, port) = address.rsplit_once(':')?;
        let host = if matches!(host, "" | "?") {
            &asked.0
        } else {
            host
        };
        let address = (host.to_owned(), port.parse().ok()?);
        match kind {
            "MOVED" => Some(Self::Moved(address)),
            "ASK" => Some(Self::Ask(address)),
            _ => None,
        }
    }
}

impl Topology {
    /// Runs operations of one slot, and follows redirections.
    async fn call(
        self: &Arc<Self>,
        script: &'static Script,
        operations: Arc<[Operation]>,
        durability: Durability,
    ) -> Result<Vec<Answered>, CallError> {
        let slot = operations.first().and_then(|parts| parts.first());
        let slot = slot.map_or(0, |key| hash_slot(key));
        let mut target = None;
        let mut hops = 0;
        loop {
            let (asked, answered) = match target.take() {
                None => self.run(slot, script, &operations, durability).await?,
                Some(address) => {
                    self.run_asking(slot, address, script, &operations, durability)
                        .await?
                }
            };
            let message = frame::error(&answered.reply);
            let redirection = message
                .as_deref()
                .and_then(|message| Redirection::read(message, &asked));
            match redirection {
                Some(Redirection::Moved(address)) if hops < MOST_HOPS => self.moved(slot, &address),
                Some(Redirection::Ask(address)) if hops < MOST_HOPS => target = Some(address),
                _ => {
                    if message.is_some() {
                        self.request_refresh();
                    }
                    return answered.answers(operations.len());
                }
            }
            hops += 1;
        }
    }

    /// The connection to `node` for calls of `slot` and `durability`, if they wait for replicas.
    fn waiting(
        self: &Arc<Self>,
        slot: HashSlot,
        node: &Arc<Node>,
        durability: Durability,
    ) -> Option<Durable> {
        let waits = durability.waits(self.replicas(slot));
        waits.then(|| self.durable(node, durability))
    }

    /// Runs operations at the owner of the slot. Returns the node and its answer.
    async fn run(
        self: &Arc<Self>,
        slot: HashSlot,
        script: &'static Script,
        operations: &Arc<[Operation]>,
        durability: Durability,
    ) -> Result<(Address, Answered<Frame>), CallError> {
        let (node, conn) = self.ready(slot).await?;
        let running = async {
            if let Some(durable) = self.waiting(slot, &node, durability) {
                let mut answered = pin!(durable.run(script, operations.clone()));
                // A connection with a pending `WAIT` is silent for longer even if it works.
                let in_flight = conn.count_call_elsewhere();
                tokio::select! {
                    biased;
                    answer = &mut answered => {
                        if answer.is_ok() {
                            in_flight.answered();
                        }
                        return answer.inspect_err(|_| self.request_refresh());
                    }
                    () = conn.ended() => self.request_refresh(),
                }
                return answered.await.inspect_err(|_| self.request_refresh());
            }
            let answer = conn.run(script, self.publishing, operations).await;
            if answer.is_err() {
                self.request_refresh();
                let _ = node.script_conn.replaced(&conn).await;
            }
            answer.map(Answered::from)
        };
        // A node that has lost the slot refuses the call, or its writes are lost.
        let answer = self.while_owner(slot, &node, running).await;
        let answer = answer.unwrap_or_else(|| Err("the slot has moved to another node".into()));
        match answer {
            Ok(answered) => Ok((node.announced.clone(), answered)),
            Err(_) if self.closed.is_cancelled() => Err(CallError::Closed),
            Err(reason) => Err(CallError::Unanswered { reason }),
        }
    }

    /// Runs operations at a node that has received some keys of a slot, but not yet the slot.
    async fn run_asking(
        &self,
        slot: HashSlot,
        address: Address,
        script: &'static Script,
        operations: &[Operation],
        durability: Durability,
    ) -> Result<(Address, Answered<Frame>), CallError> {
        let refused = |message: String| CallError::Refused(Refusal::Transient { message });
        let (host, port) = &address;
        let Some(asking) = self.asking_conn(&address) else {
            let message = "ASK: the redirections name more nodes than a cluster has";
            return Err(refused(message.into()));
        };
        let unconnected = || refused(format!("ASK: no connection to {host}:{port}"));
        asking.mark_used();
        // Outside the lock: calls to an unreachable node must not wait for it one after the other.
        match timeout(ANSWER_WAIT, asking.script_conn.ready()).await {
            Ok(opened) => drop(opened?),
            Err(_) => return Err(unconnected()),
        }
        let op_lock = asking.op_lock.lock().await;
        let conn = asking.script_conn.current().ok_or_else(unconnected)?;
        let redirects = self.owner_redirects(slot, &address, script.keys(operations));
        if timeout(ANSWER_WAIT, redirects).await != Ok(true) {
            let message = "TRYAGAIN some keys may be at the node that the slot leaves";
            return Err(refused(message.into()));
        }
        if conn.has_ended() {
            return Err(unconnected());
        }
        // Sends the text: after a NOSCRIPT, another ASKING would be needed.
        let text = script.text_arriving(self.publishing);
        let (key, rest) = script.arriving(operations);
        let parts = [text, decimal(1), key].into_iter().chain(rest);
        let (_asked, answer) = tokio::join!(
            biased;
            conn.send("ASKING", Vec::new()),
            conn.send("EVAL", parts.collect()),
        );
        let answered = async {
            let frame = answer?;
            let wanted = durability.wanted(None, self.replicas_at(&address));
            let acknowledged = self.wait.on(&conn, wanted).await?;
            Ok(Answered {
                reply: frame,
                acknowledged,
            })
        };
        let answered = answered.await;
        drop(op_lock);
        match answered {
            Ok(answered) => Ok((address, answered)),
            Err(reason) => {
                let _ = timeout(ANSWER_WAIT, asking.script_conn.replaced(&conn)).await;
                Err(CallError::Unanswered { reason })
            }
        }
    }

    /// Whether the owner of the slot has none of these keys, and redirects to this node for each.
    ///
    /// An `ASK` may be old: the slot may have arrived at the node, returned, and begun to leave again. The node would then grant
    /// a lock whose key the owner has. Servers before Redis 7 send an `ASK` although they have some of a script's keys.
    async fn owner_redirects(
        &self,
        slot: HashSlot,
        address: &Address,
        keys: impl Iterator<Item = &Bytes>,
    ) -> bool {
        // Does not wait for a connection: the caller has the operation lock of the connection to `address`.
        let owner = self.routes.borrow().node(slot).cloned();
        let Some((node, conn)) =
            owner.and_then(|node| Some((node.clone(), node.script_conn.current()?)))
        else {
            return false;
        };
        let asked = keys.map(|key| conn.send("PTTL", vec![key.clone()]));
        let answers = join_all(asked).await;
        let redirects = |answer: &Frame| {
            frame::error(answer).is_some_and(|message| {
                let redirection = Redirection::read(&message, &node.announced);
                // A user without the right to PTTL cannot ask.
                redirection == Some(Redirection::Ask(address.clone()))
                    || message.starts_with("NOPERM")
            })
        };
        answers
            .iter()
            .all(|answer| answer.as_ref().is_ok_and(redirects))
    }

    /// The connection to the owner of `slot`, once there is one.
    async fn ready(&self, slot: HashSlot) -> Result<(Arc<Node>, Arc<LiveConn>), CallError> {
        loop {
            let node = self.owner(slot).await?;
            match self
                .while_owner(slot, &node, node.script_conn.ready())
                .await
            {
                Some(Ok(conn)) => return Ok((node, conn)),
                // The client or its runtime has ended; the node has not left.
                Some(Err(ClosedForGood)) if !node.has_left() || self.closed.is_cancelled() => {
                    return Err(CallError::Closed);
                }
                _ => {}
            }
        }
    }

    async fn owner(&self, slot: HashSlot) -> Result<Arc<Node>, CallError> {
        if let Some(node) = self.routes.borrow().node(slot) {
            return Ok(node.clone());
        }
        let mut routes = self.routes.subscribe();
        let known = routes.wait_for(|routes| routes.node(slot).is_some());
        let known = self.closed.run_until_cancelled(known).await;
        let node = known.and_then(|routes| routes.ok()?.node(slot).cloned());
        node.ok_or(CallError::Closed)
    }

    /// `future`, unless `slot` gets another owner than `node`.
    async fn while_owner<T>(
        &self,
        slot: HashSlot,
        node: &Arc<Node>,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut routes = self.routes.subscribe();
        let is_another = |now: &Arc<Node>| !Arc::ptr_eq(now, node);
        tokio::select! {
            biased;
            done = future => Some(done),
            _ = routes.wait_for(|routes| routes.node(slot).is_none_or(is_another)) => None,
        }
    }
}

/// For the fuzz targets.
#[cfg(test)]
pub(super) mod fuzz {
    use super::{
        Redirection,
        slot_map::{self, SlotMap},
    };

    pub(in crate::redis) struct Map(SlotMap);

    pub(in crate::redis) fn map() -> Map {
        Map(SlotMap::new())
    }

    pub(in crate::redis) fn hear(Map(map): &mut Map, nodes: &str) {
        let listed = slot_map::read(nodes, &("asked".into(), 1));
        map.hear(&listed, |node| node % 2 == 0);
        for slot in [0, 8_000, 16_383, u16::MAX] {
            if let Some(owner) = map.owner(slot) {
                std::hint::black_box((map.address(owner, true), map.replicas(owner)));
            }
        }
    }

    pub(in crate::redis) fn redirected(message: &str) {
        std::hint::black_box(Redirection::read(message, &("asked".into(), 1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_read() {
        let read = |message| Redirection::read(message, &("asked".into(), 1));
        let at = |host: &str, port| (host.to_owned(), port);
        assert_eq!(
            read("MOVED 3999 10.0.0.2:6381"),
            Some(Redirection::Moved(at("10.0.0.2", 6381)))
        );
        assert_eq!(
            read("ASK 1 ::1:6381"),
            Some(Redirection::Ask(at("::1", 6381)))
        );
        assert_eq!(
            read("MOVED 1 :6381"),
            Some(Redirection::Moved(at("asked", 6381)))
        );
        assert_eq!(
            read("MOVED 1 ?:6381"),
            Some(Redirection::Moved(at("asked", 6381)))
        );
        for odd in [
            "MOVED",
            "MOVED 1",
            "MOVED 1 host",
            "ASK 1 host:x",
            "TRYAGAIN a b:1",
            "",
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
