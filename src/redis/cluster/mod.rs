//! A cluster: a connection for scripts to each node that has slots, and subscriptions within shards or at any node.
//!
//! The crate does not use fred's cluster client. That client stops for one dead node (P-FR11), loses a subscription whose slot
//! moves (P-FR12), and ties redirections to repeated scripts (P-FR1).
//!
//! - [`node_list`]: reads the answer of a node to `CLUSTER NODES`.
//! - [`slot_map`]: the owner of each slot, by all answers so far.
//! - [`topology`]: that map, with a connection to each node that has slots.
//! - [`seeds`]: asks nodes over temporary connections, first those of the URL.
//! - [`refresh`]: keeps the topology up to date.
//! - [`calls`]: runs the calls of one slot, and follows its redirections ([`redirection`]).
//! - [`moving_slot`]: calls of a slot that moves, over an [`asking_connection`] to the node that receives it.
//! - [`shard_subscriptions`]: subscribes at the node of a channel's slot.
//! - [`any_node`]: chooses a node for a connection that may lead to any.
//! - [`health`]: whether the nodes serve all slots.

mod any_node;
mod asking_connection;
mod calls;
mod health;
mod moving_slot;
mod node_list;
mod redirection;
mod refresh;
mod seeds;
mod shard_subscriptions;
mod slot_map;
mod topology;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::{sync::mpsc, time::Instant};

use super::{
    Answered, BoxFuture, CallError, EventSender, Events, HashSlot, Redis,
    client_names::{self, ClientNames},
    connector::Connector,
    durable::Wait,
    endpoint::{Address, Endpoint},
    events::{self, MESSAGES},
    frame,
    hash_slot::hash_slot,
    publish_rights::PublishRights,
    subscriptions::{Channels, Subscriber, Want, Wants},
    target::Target,
    time_limits::{CLUSTER_NODE_WAIT, FIRST_CONNECT_WAIT},
};
use crate::{
    config::ShardedPubSub,
    durability::Durability,
    error::{Cause, Error},
    timers::timeout,
    wire::script::{Operation, Publishing, Script},
};
pub use node_list::Preferred;
pub(super) use topology::Topology;

/// One cluster.
pub(super) struct Cluster {
    topology: Arc<Topology>,
    wants: Wants,
    rights: PublishRights,
}

impl Cluster {
    pub(super) async fn connect(
        target: Target,
        seeds: Vec<Address>,
        sharded: ShardedPubSub,
        wait: Wait,
    ) -> Result<(Self, Events), Error> {
        let (server, map) = (target.server, target.map);
        let rights = PublishRights::of(&server);
        let began = Instant::now();
        let asking = timeout(FIRST_CONNECT_WAIT, seeds::first_answer(&server, &seeds));
        let first = asking.await.unwrap_or_else(|_| {
            Err(Error::unavailable(format!(
                "no connection within {FIRST_CONNECT_WAIT:?}"
            )))
        })?;
        let publishing = match sharded {
            ShardedPubSub::Auto if !first.has_shards => Publishing::Classic,
            ShardedPubSub::Off => Publishing::Classic,
            ShardedPubSub::Auto | ShardedPubSub::On => Publishing::Sharded,
        };
        let (events, receiver) = events::channel();
        let topology = Topology::new(server, seeds, map, publishing, wait, first, events.clone());
        let topology = Arc::new(topology);
        let (wants, wanted) = Wants::new();
        topology.tasks.spawn(topology.clone().watch());
        spawn_subscriber(&topology, wanted, events);
        let cluster = Self {
            topology,
            wants,
            rights,
        };
        cluster
            .formed(FIRST_CONNECT_WAIT.saturating_sub(began.elapsed()))
            .await?;
        cluster.reached().await?;
        Ok((cluster, receiver))
    }

    /// Waits until each slot has a node: nodes may start together with the client.
    async fn formed(&self, limit: Duration) -> Result<(), Error> {
        let mut routes = self.topology.routes.subscribe();
        let formed = async { drop(routes.wait_for(|routes| routes.map.is_whole()).await) };
        let formed = timeout(limit, formed).await;
        formed.map_err(|_| {
            let lacking = self.topology.routes.borrow().map.unserved().count();
            let tls = match self.topology.server().opener.is_encrypted() {
                true => ", and set `tls-cluster yes`, without which nodes that speak TLS alone announce no port",
                false => "",
            };
            Error::unavailable(format!(
                "no known node of the cluster serves {lacking} of the 16384 slots: create the cluster, or repair it \
                 (redis-cli --cluster create, or fix){tls}"
            ))
        })
    }

    /// Waits for connections, so that the first calls find them. An error if no node is reachable.
    async fn reached(&self) -> Result<(), Error> {
        let routes = self.topology.routes.borrow().clone();
        let connecting = routes.nodes().map(|node| node.scripts.ready());
        let _ = timeout(CLUSTER_NODE_WAIT, join_all(connecting)).await;
        // The map may have changed meanwhile.
        let routes = self.topology.routes.borrow().clone();
        let mut nodes = routes.nodes();
        let Some(node) = nodes.next().filter(|node| !node.scripts.is_up()) else {
            return Ok(());
        };
        if nodes.any(|node| node.scripts.is_up()) {
            return Ok(());
        }
        let at = Endpoint::Tcp(node.address.clone());
        let tls = match self.topology.server().opener.is_encrypted() {
            true => " and `tls-cluster yes`",
            false => "",
        };
        Err(Error::unavailable_by(
            format!(
                "no node of the cluster can be reached at its announced address, such as {at}: have the nodes announce \
                 reachable addresses (`cluster-announce-ip`, `cluster-announce-port`{tls}), or translate them by \
                 `address_map`"
            ),
            node.scripts.trouble(),
        ))
    }
}

fn spawn_subscriber(
    topology: &Arc<Topology>,
    wanted: mpsc::UnboundedReceiver<Want>,
    events: EventSender,
) {
    let tasks = &topology.tasks;
    match topology.publishing {
        Publishing::Sharded => {
            tasks.spawn(shard_subscriptions::serve(topology.clone(), wanted, events));
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
                let opened = topology.while_owner(slot, &node, durable.connection.ready());
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
            node.scripts.is_up() && durable.is_none_or(|durable| durable.connection.is_up())
        })
    }

    fn is_connected(&self) -> bool {
        self.topology.routes.borrow().is_whole()
    }

    fn trouble(&self, slot: HashSlot, durability: Durability) -> Option<Arc<Cause>> {
        let node = self.topology.routes.borrow().node(slot).cloned();
        match node {
            Some(node) => {
                let durable = || {
                    self.topology
                        .waiting(slot, &node, durability)?
                        .connection
                        .trouble()
                };
                node.scripts.trouble().or_else(durable)
            }
            None => Some(Arc::new(Cause::connection(
                "no known node of the cluster serves the slot",
            ))),
        }
    }

    fn server_of(&self, slot: HashSlot) -> Option<String> {
        let routes = self.topology.routes.borrow();
        routes.node(slot)?.scripts.server()
    }

    fn ping(&self) -> BoxFuture<Result<(), CallError>> {
        let topology = self.topology.clone();
        Box::pin(async move {
            let pinged = topology.ping().await;
            pinged.inspect_err(|_| topology.refresh_requests.notify_one())
        })
    }

    fn refused_message(&self, key: &Bytes, channel: &Bytes) -> Option<BoxFuture<Option<String>>> {
        if !self.rights.is_unknown(channel) {
            return None;
        }
        let session = self
            .topology
            .routes
            .borrow()
            .node(hash_slot(key))?
            .scripts
            .current()?;
        let (rights, publishing) = (self.rights.clone(), self.topology.publishing);
        let (key, channel) = (key.clone(), channel.clone());
        Some(Box::pin(async move {
            rights.ask(&session, publishing, key, channel).await
        }))
    }

    fn client_names(&self, key: &Bytes) -> Option<BoxFuture<Option<ClientNames>>> {
        let routes = self.topology.routes.borrow();
        let session = routes.node(hash_slot(key))?.scripts.current()?;
        session
            .has_description()
            .then(|| Box::pin(client_names::ask(session)) as _)
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
        let sessions: Vec<_> = nodes
            .iter()
            .filter_map(|node| node.scripts.current())
            .collect();
        let args = vec![Bytes::from_static(question.as_bytes()), channel.clone()];
        Some(Box::pin(async move {
            for session in sessions {
                let answer = session.send("PUBSUB", args.clone()).await;
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

/// For the fuzz targets.
#[cfg(test)]
pub(super) mod fuzz {
    use super::{
        node_list::{self, Preferred},
        redirection::Redirection,
        slot_map::SlotMap,
    };

    pub(in crate::redis) struct Map(SlotMap);

    pub(in crate::redis) fn map() -> Map {
        Map(SlotMap::new())
    }

    pub(in crate::redis) fn hear(Map(map): &mut Map, nodes: &str) {
        let asked = ("asked".into(), 1);
        let listed = node_list::read(nodes, &asked, &Preferred::Name).unwrap_or_default();
        map.hear(&listed, |node| node % 2 == 0);
        for slot in [0, 8_000, 16_383, u16::MAX] {
            if let Some(owner) = map.owner(slot) {
                std::hint::black_box((map.addresses(owner), map.replicas(owner)));
            }
        }
    }

    pub(in crate::redis) fn redirected(message: &str) {
        std::hint::black_box(Redirection::read(message, &("asked".into(), 1)));
    }
}
