//! The owner of each slot, by the reports of a cluster's nodes. Pure.

use super::node_list::Listed;
use crate::{
    hash::{HashMap, HashSet},
    redis::{HashSlot, endpoint::Address},
};

/// The slots of a cluster.
pub(super) const SLOTS: usize = crate::redis::SLOTS as usize;

/// The most nodes that are remembered, including nodes that are gone.
const MOST_KNOWN: usize = 10_000;

/// The number of successive reports of another address after which a node that is up gets that address.
const NEW_ADDRESS_AFTER: u32 = 8;

/// The number of a node in a [`SlotMap`].
pub(super) type NodeIndex = usize;

#[derive(Debug, Clone)]
pub(super) struct SlotMap {
    owners: Vec<Option<Owner>>,
    nodes: Vec<Known>,
    numbers: HashMap<String, NodeIndex>,
    /// The last report.
    heard: Vec<Listed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    node: NodeIndex,
    epoch: u64,
    /// Whether the owner itself reports that the slot has no owner: it refuses the slot's calls.
    is_disowned: bool,
}

#[derive(Debug, Clone)]
struct Known {
    id: String,
    addresses: Vec<Address>,
    /// The addresses in the last report.
    listed: Vec<Address>,
    /// The number of successive reports of other addresses than `addresses`.
    listed_elsewhere: u32,
    /// Whether another node had its address in the last report without it, as after `CLUSTER RESET HARD`.
    replaced: bool,
    /// The latest epoch of the node in any report.
    epoch: u64,
    /// The node that it follows or last followed.
    followed: Option<String>,
    /// The master whose slots it took over.
    succeeded: Option<String>,
    replicas: usize,
}

impl SlotMap {
    pub(super) fn new() -> Self {
        Self {
            owners: vec![None; SLOTS],
            nodes: Vec::new(),
            numbers: HashMap::default(),
            heard: Vec::new(),
        }
    }

    /// Whether [`hear`](Self::hear) would change nothing. Reports are far more frequent than changes, and there are many
    /// slots.
    pub(super) fn has_heard(&self, listed: &[Listed]) -> bool {
        self.heard == listed
    }

    pub(super) fn owner(&self, slot: HashSlot) -> Option<NodeIndex> {
        let owner = self.owners.get(usize::from(slot)).copied().flatten();
        owner.map(|owner| owner.node)
    }

    /// Whether every slot is served.
    pub(super) fn is_whole(&self) -> bool {
        self.unserved().next().is_none()
    }

    /// The slots that no known node serves.
    pub(super) fn unserved(&self) -> impl Iterator<Item = HashSlot> {
        let is_served = |owner: &Option<Owner>| owner.is_some_and(|owner| !owner.is_disowned);
        let slots = (0..).zip(&self.owners);
        slots.filter_map(move |(slot, owner)| (!is_served(owner)).then_some(slot))
    }

    /// The nodes that own slots.
    pub(super) fn owners(&self) -> Vec<NodeIndex> {
        let mut has = vec![false; self.nodes.len()];
        for owner in self.owners.iter().flatten() {
            has[owner.node] = true;
        }
        (0..has.len()).filter(|node| has[*node]).collect()
    }

    pub(super) fn id(&self, node: NodeIndex) -> &str {
        &self.nodes[node].id
    }

    /// The addresses of a node. There is at least one; the preferred one is the first.
    pub(super) fn addresses(&self, node: NodeIndex) -> &[Address] {
        &self.nodes[node].addresses
    }

    /// The number of a node's replicas, including replicas that are down.
    pub(super) fn replicas(&self, node: NodeIndex) -> usize {
        self.nodes[node].replicas
    }

    /// All known nodes.
    pub(super) fn all(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        0..self.nodes.len()
    }

    /// The latest node that announces `address`, or else that the last report lists there.
    pub(super) fn at(&self, address: &Address) -> Option<NodeIndex> {
        let mut nodes = self.nodes.iter();
        let announces = nodes.rposition(|node| node.addresses.contains(address));
        let mut nodes = self.nodes.iter();
        announces.or_else(|| nodes.rposition(|node| node.listed.contains(address)))
    }

    /// Applies one node's report of all nodes. A node that was paused or is cut off reports a stale view; configuration
    /// epochs reveal it. A node that is gone for good owns nothing, however late its epochs were. `is_up` tells which nodes
    /// can be reached.
    pub(super) fn hear(&mut self, listed: &[Listed], is_up: impl Fn(NodeIndex) -> bool) {
        let ids: HashSet<&str> = listed.iter().map(|node| &*node.id).collect();
        let unlisted = |node: &Known| !ids.contains(&*node.id);
        let absent: Vec<bool> = self.nodes.iter().map(unlisted).collect();
        for (index, absent) in absent.iter().enumerate() {
            let is_replaced = *absent && self.is_replaced(index, listed);
            self.nodes[index].replaced |= is_replaced;
        }
        let is_gone =
            |index: NodeIndex| absent[index] && (!is_up(index) || self.nodes[index].replaced);
        let gone: Vec<bool> = (0..absent.len()).map(is_gone).collect();
        let mut in_doubt = false;
        for node in listed {
            let Some(index) = self.know(node) else {
                continue;
            };
            let is_elsewhere = self.nodes[index].listed_elsewhere > 0;
            if is_elsewhere && (!is_up(index) || self.is_replaced(index, listed)) {
                self.readdress(index);
            }
            in_doubt |= self.nodes[index].listed_elsewhere > 0;
            let claim = Owner {
                node: index,
                epoch: node.epoch,
                is_disowned: false,
            };
            for slot in node.slots.iter().cloned().flatten() {
                let owner = &mut self.owners[usize::from(slot)];
                let has_left = |owner: Owner| gone.get(owner.node).is_some_and(|gone| *gone);
                if owner.is_none_or(|owner| claim.epoch > owner.epoch || has_left(owner)) {
                    if let Some(old) = owner.filter(|old| old.node != index) {
                        let id = &self.nodes[old.node].id;
                        let Known {
                            followed,
                            succeeded,
                            ..
                        } = &self.nodes[index];
                        if followed.as_ref() == Some(id) && followed != succeeded {
                            self.nodes[index].succeeded = Some(id.clone());
                        }
                    }
                    *owner = Some(claim);
                }
            }
        }
        self.hear_reporter(listed);
        for node in listed {
            self.count_replicas(node, listed);
        }
        // A reachable node that the report leaves out, or lists elsewhere, may be unreachable at the next report.
        in_doubt |= absent
            .iter()
            .zip(&gone)
            .any(|(absent, gone)| *absent && !gone);
        self.heard = if in_doubt {
            Vec::new()
        } else {
            listed.to_vec()
        };
    }

    /// Notes which of its slots the reporter itself gives to no node. Another node's report of them is hearsay.
    fn hear_reporter(&mut self, listed: &[Listed]) {
        let reporter = listed.iter().find(|node| node.is_reporter);
        let Some(reporter) = reporter.and_then(|node| self.numbers.get(&node.id).copied()) else {
            return;
        };
        let mut has_owner = vec![false; SLOTS];
        for slot in listed
            .iter()
            .flat_map(|node| &node.slots)
            .cloned()
            .flatten()
        {
            has_owner[usize::from(slot)] = true;
        }
        for (owner, has_owner) in self.owners.iter_mut().zip(has_owner) {
            if let Some(owner) = owner.as_mut().filter(|owner| owner.node == reporter) {
                owner.is_disowned = !has_owner;
            }
        }
    }

    /// Counts the replicas of `node`. The master that it took over from counts too, until that master follows it or is
    /// forgotten: meanwhile it is listed as a master without slots, and is one of the replicas that are down.
    fn count_replicas(&mut self, node: &Listed, listed: &[Listed]) {
        let Some(index) = self.numbers.get(&node.id).copied() else {
            return;
        };
        let known = &mut self.nodes[index];
        if node.epoch < known.epoch {
            // The report of a paused node.
            return;
        }
        known.epoch = node.epoch;
        if node.master.is_some() {
            known.followed.clone_from(&node.master);
        }
        let counts = |other: &&Listed| {
            let succeeded = known.succeeded.as_ref() == Some(&other.id);
            let is_idle = other.master.is_none() && other.slots.is_empty();
            other.master.as_ref() == Some(&node.id) || succeeded && is_idle
        };
        known.replicas = listed.iter().filter(counts).count();
    }

    /// Whether another node has this one's address.
    fn is_replaced(&self, index: NodeIndex, listed: &[Listed]) -> bool {
        let Known { id, addresses, .. } = &self.nodes[index];
        let is_there = |other: &Listed| {
            let mut others = other.addresses.iter();
            other.id != *id && others.any(|address| addresses.contains(address))
        };
        listed.iter().any(is_there)
    }

    /// Applies the redirection of `slot` by the node at `asked` to the node at `address`, if that is known. The owner knows
    /// best; a node that is no longer the owner may have answered long ago.
    pub(super) fn moved(&mut self, slot: HashSlot, asked: &Address, address: &Address) {
        let new = self.at(address);
        let owner = &mut self.owners[usize::from(slot)];
        let is_of_owner = |owner: &&mut Owner| self.nodes[owner.node].addresses.contains(asked);
        if let (Some(owner), Some(new)) = (owner.as_mut().filter(is_of_owner), new) {
            (owner.node, owner.is_disowned) = (new, false);
        }
    }

    /// The number of a node, if there is room for it.
    ///
    /// Nodes may differ about the address of another node. A new address ends the connection, so a node that is up keeps its
    /// address while some reports list it.
    fn know(&mut self, listed: &Listed) -> Option<NodeIndex> {
        let known = self.numbers.get(&listed.id).copied();
        if known.is_none() && self.nodes.len() >= MOST_KNOWN {
            return None;
        }
        let index = known.unwrap_or_else(|| {
            self.nodes.push(Known {
                id: listed.id.clone(),
                addresses: listed.addresses.clone(),
                listed: Vec::new(),
                listed_elsewhere: 0,
                replaced: false,
                epoch: 0,
                followed: None,
                succeeded: None,
                replicas: 0,
            });
            let index = self.nodes.len() - 1;
            self.numbers.insert(listed.id.clone(), index);
            index
        });
        let known = &mut self.nodes[index];
        known.replaced = false;
        known.listed.clone_from(&listed.addresses);
        known.listed_elsewhere += 1;
        if known.addresses == known.listed {
            known.listed_elsewhere = 0;
        } else if known.listed_elsewhere >= NEW_ADDRESS_AFTER {
            self.readdress(index);
        }
        Some(index)
    }

    /// Gives a node the addresses of the last report.
    fn readdress(&mut self, index: NodeIndex) {
        let node = &mut self.nodes[index];
        node.addresses.clone_from(&node.listed);
        node.listed_elsewhere = 0;
    }
}

#[cfg(test)]
#[path = "slot_map_tests.rs"]
mod tests;
