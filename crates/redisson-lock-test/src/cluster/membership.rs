//! A cluster node's view of itself and of the other nodes.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use super::slots::{HashSlot, SLOTS};
use crate::Address;

/// A node: its index in the list of all nodes.
pub(crate) type NodeIndex = usize;

/// A node's view of its cluster.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    own: NodeIndex,
    addresses: Arc<[Address]>,
    /// The owner of each slot, in this node's view.
    owners: Vec<Option<NodeIndex>>,
    /// The latest known epoch of each node: of two claims to a slot, the later epoch wins.
    epochs: Vec<u64>,
    /// Slots of this node that migrate to another node.
    leaving: BTreeMap<HashSlot, NodeIndex>,
    /// Slots of other nodes that migrate to this node.
    arriving: BTreeMap<HashSlot, NodeIndex>,
    /// The number of slots without an owner.
    unowned: usize,
    /// The current command follows an `ASKING`.
    pub(crate) asking: bool,
}

impl Membership {
    /// Creates nodes with equal ranges of slots, in order.
    pub(crate) fn new(own: NodeIndex, addresses: Arc<[Address]>) -> Self {
        let count = addresses.len();
        let owner = |slot| Some(usize::from(slot) * count / usize::from(SLOTS));
        Self {
            own,
            owners: (0..SLOTS).map(owner).collect(),
            epochs: (1..=count as u64).collect(),
            addresses,
            leaving: BTreeMap::new(),
            arriving: BTreeMap::new(),
            unowned: 0,
            asking: false,
        }
    }

    pub(crate) fn own(&self) -> NodeIndex {
        self.own
    }

    pub(crate) fn address(&self, node: NodeIndex) -> &Address {
        &self.addresses[node]
    }

    /// Records new addresses of all nodes.
    pub(crate) fn readdress(&mut self, addresses: Arc<[Address]>) {
        self.addresses = addresses;
    }

    pub(crate) fn owner(&self, slot: HashSlot) -> Option<NodeIndex> {
        self.owners[usize::from(slot)]
    }

    pub(crate) fn owns(&self, slot: HashSlot) -> bool {
        self.owner(slot) == Some(self.own)
    }

    /// The epoch of the node's own claims.
    pub(crate) fn epoch(&self) -> u64 {
        self.epochs[self.own]
    }

    /// The slots that the node claims.
    pub(crate) fn owned(&self) -> impl Iterator<Item = HashSlot> {
        (0..SLOTS).filter(|slot| self.owns(*slot))
    }

    /// Whether the cluster is down: by default it serves no slot while any slot lacks an owner.
    pub(crate) fn is_down(&self) -> bool {
        self.unowned > 0
    }

    pub(crate) fn leaves_for(&self, slot: HashSlot) -> Option<NodeIndex> {
        let to = self.leaving.get(&slot).copied();
        to.filter(|_| self.owns(slot))
    }

    pub(crate) fn is_arriving(&self, slot: HashSlot) -> bool {
        self.arriving.contains_key(&slot)
    }

    pub(crate) fn send(&mut self, slot: HashSlot, to: NodeIndex) {
        self.leaving.insert(slot, to);
    }

    pub(crate) fn expect(&mut self, slot: HashSlot, from: NodeIndex) {
        self.arriving.insert(slot, from);
    }

    /// Records the new owner of a slot. Returns whether this node was the old owner.
    pub(crate) fn set_owner(&mut self, slot: HashSlot, owner: Option<NodeIndex>) -> bool {
        let old = std::mem::replace(&mut self.owners[usize::from(slot)], owner);
        self.unowned += usize::from(owner.is_none());
        self.unowned -= usize::from(old.is_none());
        self.leaving.remove(&slot);
        self.arriving.remove(&slot);
        old == Some(self.own) && owner != old
    }

    /// Raises the node's epoch above all other epochs.
    pub(crate) fn claim_anew(&mut self) {
        let latest = self.epochs.iter().max().copied().unwrap_or_default();
        self.epochs[self.own] = latest + 1;
    }

    /// Accepts the claims of another node, unless a known claim has a later epoch. Returns the slots that this node loses.
    pub(crate) fn hear(&mut self, other: &Self) -> Vec<HashSlot> {
        let epoch = other.epoch();
        self.epochs[other.own] = epoch;
        let is_news = |slot: &HashSlot| match self.owner(*slot) {
            Some(owner) => owner != other.own && self.epochs[owner] < epoch,
            None => true,
        };
        let news: Vec<_> = other.owned().filter(is_news).collect();
        let lost = |slot: &HashSlot| self.set_owner(*slot, Some(other.own));
        news.into_iter().filter(lost).collect()
    }

    /// The reply to `CLUSTER NODES`.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for (node, (host, port)) in self.addresses.iter().enumerate() {
            let myself = if node == self.own { "myself," } else { "" };
            let epoch = self.epochs[node];
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "{} {host}:{port}@{} {myself}master - 0 0 {epoch} connected",
                id(node),
                port + 10_000
            );
            self.describe_slots(node, &mut text);
            text.push('\n');
        }
        text
    }

    fn describe_slots(&self, node: NodeIndex, text: &mut String) {
        let mut slot = 0;
        for run in self.owners.chunk_by(|one, other| one == other) {
            let last = slot + run.len() - 1;
            let _ = match run.first() {
                Some(owner) if *owner != Some(node) => Ok(()),
                _ if slot == last => write!(text, " {slot}"),
                _ => write!(text, " {slot}-{last}"),
            };
            slot = last + 1;
        }
        if node == self.own {
            for (slot, to) in &self.leaving {
                let _ = write!(text, " [{slot}->-{}]", id(*to));
            }
            for (slot, from) in &self.arriving {
                let _ = write!(text, " [{slot}-<-{}]", id(*from));
            }
        }
    }
}

/// The permanent id of a node: 40 hexadecimal digits.
fn id(node: NodeIndex) -> String {
    format!("{:040x}", node + 1)
}
