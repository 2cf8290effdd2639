//! The migration of slots, step by step.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    super::{
        Server,
        cluster::{HashSlot, Membership, NodeIndex, hash_slot, of_slot},
        network::State,
    },
    Cluster,
};
use crate::Address;

/// The migration of a slot from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The slot.
    pub slot: HashSlot,
    /// The old owner.
    pub from: NodeIndex,
    /// The new owner.
    pub to: NodeIndex,
}

impl Server {
    fn cluster(&self) -> &Membership {
        let cluster = self.data.cluster.as_deref();
        cluster.expect("an in-memory cluster has only its own nodes")
    }

    fn cluster_mut(&mut self) -> &mut Membership {
        let cluster = self.data.cluster.as_deref_mut();
        cluster.expect("an in-memory cluster has only its own nodes")
    }

    fn keys_in(&mut self, slot: HashSlot, now: u64) -> Vec<Bytes> {
        of_slot(self.data.keys().names(b"*", now), slot)
    }

    fn set_owner(&mut self, slot: HashSlot, owner: Option<NodeIndex>) {
        if self.cluster_mut().set_owner(slot, owner) {
            self.end_subscriptions(slot);
        }
    }

    /// A node deletes the keys of slots that it loses.
    fn hear(&mut self, other: &Membership, now: u64) {
        for slot in self.cluster_mut().hear(other) {
            self.end_subscriptions(slot);
            for key in self.keys_in(slot, now) {
                self.data.keys().remove(&key, now);
            }
        }
    }
}

impl State {
    fn node(&mut self, cluster: &Cluster, node: NodeIndex) -> &mut Server {
        let host = self.servers.get_mut(&cluster.addresses[node]);
        &mut host.expect("an in-memory cluster keeps its nodes").server
    }

    /// Gives each node the port after its present one. Returns the new addresses.
    pub(super) fn readdress(&mut self, cluster: &Cluster) -> Arc<[Address]> {
        let nodes = 0..cluster.nodes();
        let own = self.node(cluster, 0).cluster();
        let next = |node| {
            let (host, port) = own.address(node);
            (host.clone(), port + 1)
        };
        let moved: Arc<[Address]> = nodes.clone().map(next).collect();
        for node in nodes {
            let server = self.node(cluster, node);
            server.cluster_mut().readdress(moved.clone());
        }
        moved
    }

    /// Moves a key with its expiry.
    fn move_key(&mut self, cluster: &Cluster, moving: Move, key: &[u8]) {
        let now = self.millis(Instant::now());
        let from = self.node(cluster, moving.from).data.keys();
        let Some(entry) = from.peek(key, now).cloned() else {
            return;
        };
        from.remove(key, now);
        let to = self.node(cluster, moving.to).data.keys();
        to.set(key, entry.value, entry.expires_at);
    }
}

impl Cluster {
    /// The node that claims a slot, by the latest claim.
    pub fn owner(&self, slot: HashSlot) -> Option<NodeIndex> {
        let mut state = self.network.state();
        let claims = (0..self.addresses.len()).filter_map(|node| {
            let cluster = state.node(self, node).cluster();
            cluster.owns(slot).then(|| (cluster.epoch(), node))
        });
        claims.max().map(|(_, node)| node)
    }

    /// Begins the migration of a slot: from now on, the old owner redirects requests for keys that it lacks.
    pub fn begin_move(&self, slot: HashSlot, to: NodeIndex) -> Option<Move> {
        let from = self.owner(slot).filter(|from| *from != to)?;
        let mut state = self.network.state();
        state.node(self, to).cluster_mut().expect(slot, from);
        state.node(self, from).cluster_mut().send(slot, to);
        Some(Move { slot, from, to })
    }

    /// Moves the first key of the slot. Returns whether there was one.
    pub fn move_key(&self, moving: Move) -> bool {
        let mut state = self.network.state();
        let now = state.millis(Instant::now());
        let keys = state.node(self, moving.from).keys_in(moving.slot, now);
        if let Some(key) = keys.first() {
            state.move_key(self, moving, key);
        }
        !keys.is_empty()
    }

    /// Ends the migration at the new owner. The old owner and all other nodes [learn](Self::hear_all) of it later.
    pub fn end_move(&self, moving: Move) {
        while self.move_key(moving) {}
        let mut state = self.network.state();
        let to = state.node(self, moving.to);
        to.set_owner(moving.slot, Some(moving.to));
        to.cluster_mut().claim_anew();
    }

    /// Ends the migration at the old owner, before [`end_move`](Self::end_move) does so at the new one. Until then, the two nodes
    /// redirect to each other.
    pub fn end_move_at_source(&self, moving: Move) {
        while self.move_key(moving) {}
        let mut state = self.network.state();
        let from = state.node(self, moving.from);
        from.set_owner(moving.slot, Some(moving.to));
    }

    /// Lets a node receive the claims of all other nodes, like the gossip of a real cluster.
    pub fn hear_all(&self, node: NodeIndex) {
        let mut state = self.network.state();
        let now = state.millis(Instant::now());
        for other in (0..self.addresses.len()).filter(|other| *other != node) {
            let heard = state.node(self, other).cluster().clone();
            state.node(self, node).hear(&heard, now);
        }
    }

    /// Removes the owner of a slot, so that the whole cluster is down; the keys stay.
    pub fn disown(&self, slot: HashSlot) {
        self.assign(slot, None);
    }

    /// Gives a slot back to a node.
    pub fn give(&self, slot: HashSlot, node: NodeIndex) {
        self.assign(slot, Some(node));
    }

    fn assign(&self, slot: HashSlot, owner: Option<NodeIndex>) {
        let mut state = self.network.state();
        for node in 0..self.addresses.len() {
            state.node(self, node).set_owner(slot, owner);
        }
    }

    /// Lets a node take over all slots of another, with the replicated keys. The other nodes [learn](Self::hear_all) of it later.
    pub fn take_over(&self, from: NodeIndex, to: NodeIndex, has: impl Fn(&[u8]) -> bool) {
        let mut state = self.network.state();
        let now = state.millis(Instant::now());
        let taken: Vec<_> = state.node(self, from).cluster().owned().collect();
        for slot in taken {
            state.node(self, to).set_owner(slot, Some(to));
        }
        state.node(self, to).cluster_mut().claim_anew();
        let keys = state.node(self, from).data.keys().names(b"*", now);
        for key in keys.into_iter().filter(|key| has(key)) {
            let slot = hash_slot(&key);
            state.move_key(self, Move { slot, from, to }, &key);
        }
    }
}
