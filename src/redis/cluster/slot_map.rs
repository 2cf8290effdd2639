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

    /// Whether every slot has an owner.
    pub(super) fn is_whole(&self) -> bool {
        self.owners.iter().all(Option::is_some)
    }

    /// The number of slots without an owner.
    pub(super) fn without_owner(&self) -> usize {
        self.owners.iter().filter(|owner| owner.is_none()).count()
    }

    /// The nodes that own slots.
    pub(super) fn owners(&self) -> Vec<NodeIndex> {
        let mut has = vec![false; self.nodes.len()];
        for owner in self.owners.iter().flatten() {
            has[owner.node] = true;
        }
        (0..has.len()).filter(|node| has[*node]).collect()
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
            owner.node = new;
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
mod tests {
    use super::*;
    use crate::redis::cluster::node_list::{MOST_LISTED, Preferred, read};

    const NODES: &str = "\
aaa 10.0.0.1:7001@17001,one.example myself,master - 0 0 3 connected 0-8191 [7->-bbb]
bbb 10.0.0.2:7002@17002,,shard-id=1f master - 0 1700000000000 2 connected 8192-16382 16383
ccc ::1:7003@17003 slave aaa 0 1700000000000 3 connected
ddd :0@0 master,noaddr - 0 0 1 disconnected
eee :7005@17005 myself,slave bbb 0 0 2 connected
";

    fn address_of(map: &SlotMap, node: NodeIndex) -> &Address {
        &map.addresses(node)[0]
    }

    fn at(host: &str, port: u16) -> Address {
        (host.to_owned(), port)
    }

    fn listed(text: &str) -> Vec<Listed> {
        read(text, &at("asked", 1), &Preferred::Ip).unwrap()
    }

    fn map_of(text: &str) -> SlotMap {
        let mut map = SlotMap::new();
        map.hear(&listed(text), |_| true);
        map
    }

    #[test]
    fn the_list_of_nodes_is_read() {
        let map = map_of(NODES);
        assert!(map.is_whole());
        let owners = [0, 8191, 8192, 16383].map(|slot| map.owner(slot).unwrap());
        assert_eq!(owners[0], owners[1]);
        assert_eq!(owners[2], owners[3]);
        let (one, two) = (owners[0], owners[2]);
        assert_eq!(map.owners(), [one, two]);
        let names = [at("10.0.0.1", 7001), at("one.example", 7001)];
        assert_eq!(map.addresses(one), names);
        assert_eq!(map.addresses(two), [at("10.0.0.2", 7002)]);
        assert_eq!((map.replicas(one), map.replicas(two)), (1, 1));
        let all: Vec<_> = map.all().map(|node| address_of(&map, node)).collect();
        assert!(all.contains(&&at("::1", 7003)));
        assert!(all.contains(&&at("asked", 7005)));
    }

    #[test]
    fn nonsense_is_left_out() {
        let text =
            "\n-\nx y z\naaa 10.0.0.1:7001@1 master - 0 0 1 connected 5-1 20000 1-99999 a-b 4\n";
        let map = map_of(text);
        assert_eq!(map.owner(4), Some(0));
        assert_eq!(map.owner(5), None);
        assert!(!map.is_whole());
        assert!(map.owner(20_000).is_none());
    }

    #[test]
    fn a_list_without_end_is_cut_and_what_is_remembered_is_bounded() {
        let began = std::time::Instant::now();
        let mut map = SlotMap::new();
        for round in 0..8 {
            let lines = (0..100_000).map(|node| {
                format!(
                    "{round}:{node} h:{} master - 0 0 {round} connected {}\n",
                    node % 65_535 + 1,
                    if node == 0 { "0-16383" } else { "" }
                )
            });
            let listed = listed(&lines.collect::<String>());
            assert_eq!(listed.len(), MOST_LISTED);
            map.hear(&listed, |_| false);
        }
        assert_eq!(map.nodes.len(), MOST_KNOWN);
        assert!(map.is_whole());
        assert!(began.elapsed() < std::time::Duration::from_secs(60));
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_a_node_says_makes_it_panic(text in "([a-z0-9:@,\\-\\[\\]>]{0,12}| |\\n|master|slave|connected|0-16383|\\PC){0,60}") {
            let mut map = SlotMap::new();
            let listed = read(&text, &at("h", 1), &Preferred::Ip).unwrap_or_default();
            map.hear(&listed, |_| true);
            map.hear(&listed, |_| false);
            for slot in [0, 8_000, 16_383, u16::MAX] {
                if let Some(node) = map.owner(slot) {
                    let _ = address_of(&map, node);
                }
            }
        }
    }

    #[test]
    fn the_later_epoch_is_believed_in_any_order() {
        let old = "aaa h:1@1 master - 0 0 3 connected 0-9\nbbb h:2@1 slave aaa 0 0 3 connected\n";
        let new =
            "aaa h:1@1 master,fail - 0 0 3 connected\nbbb h:2@1 master - 0 0 4 connected 0-9\n";
        for order in [[old, new, old], [new, old, old], [new, old, new]] {
            let mut map = SlotMap::new();
            for text in order {
                map.hear(&listed(text), |_| true);
            }
            let owner = map.owner(7).unwrap();
            assert_eq!(address_of(&map, owner), &at("h", 2), "{order:?}");
        }
    }

    #[test]
    fn an_owner_that_knows_better_is_believed_until_the_next_epoch() {
        let text =
            "aaa h:1@1 master - 0 0 3 connected 0-9\nbbb h:2@1 master - 0 0 2 connected 10\n";
        let mut map = map_of(text);
        map.moved(7, &at("h", 1), &at("h", 2));
        map.moved(8, &at("h", 1), &at("unknown", 2));
        map.hear(&listed(text), |_| true);
        let owner = |map: &SlotMap, slot| address_of(map, map.owner(slot).unwrap()).1;
        assert_eq!((owner(&map, 7), owner(&map, 8)), (2, 1));
        let later = text.replace("0 0 3", "0 0 5");
        map.hear(&listed(&later), |_| true);
        assert_eq!(owner(&map, 7), 1);
        // An answer of the time before, which its caller has read late.
        map.moved(10, &at("h", 1), &at("h", 1));
        assert_eq!(owner(&map, 10), 2);
    }

    #[test]
    fn a_dead_master_is_a_replica_of_its_successor() {
        let replicas = |map: &SlotMap| map.replicas(map.owner(5).unwrap());
        let before =
            "aaa h:1@1 master - 0 0 1 connected 0-9\nbbb h:2@1 slave aaa 0 0 1 connected\n";
        let dead =
            "aaa h:1@1 master,fail - 0 0 1 connected\nbbb h:2@1 master - 0 0 2 connected 0-9\n";
        let back = "aaa h:1@1 slave bbb 0 0 2 connected\nbbb h:2@1 master - 0 0 2 connected 0-9\n";
        let forgotten = "bbb h:2@1 master - 0 0 2 connected 0-9\n";
        let mut map = map_of(before);
        assert_eq!(replicas(&map), 1);
        let mut hears = |text| {
            map.hear(&listed(text), |_| true);
            replicas(&map)
        };
        assert_eq!(hears(dead), 1);
        assert_eq!(hears(back), 1);
        assert_eq!(hears(before), 1, "one that has slept changes nothing");
        assert_eq!(hears(forgotten), 0);
    }

    #[test]
    fn the_slots_of_departed_nodes_are_free_whatever_their_epochs() {
        let old =
            "aaa h:1@1 master - 0 0 9 connected 0-9\nbbb h:2@1 master - 0 0 8 connected 10-19\n";
        let owner = |map: &SlotMap, slot| map.nodes[map.owner(slot).unwrap()].id.clone();
        let owners = |map: &SlotMap| [owner(map, 0), owner(map, 10)];
        // Another cluster listens on one of the ports.
        let new = "ccc h:1@1 master - 0 0 1 connected 0-19\n";
        let mut map = map_of(old);
        map.hear(&listed(new), |_| true);
        assert_eq!(
            owners(&map),
            ["ccc", "bbb"],
            "one is there and not replaced"
        );
        assert!(!map.has_heard(&listed(new)), "it may go yet");
        map.hear(&listed(new), |node| node != 1);
        assert_eq!(owners(&map), ["ccc", "ccc"]);
        assert_eq!(map.at(&at("h", 1)), Some(2));
        // A node that was paused before the rest joined does not know them.
        let asleep = "aaa h:7@1 master - 0 0 1 connected 0-19\n";
        let mut map = map_of(old);
        map.hear(&listed(asleep), |_| true);
        assert_eq!(owners(&map), ["aaa", "bbb"]);
    }

    #[test]
    fn slots_of_a_forgotten_node_follow_the_other_nodes_unless_it_is_up() {
        let before =
            "aaa h:1@1 master - 0 0 1 connected 0-9\nbbb h:2@1 master - 0 0 2 connected 10-19\n";
        let after = "aaa h:1@1 master - 0 0 1 connected 0-19\n";
        let owner_after = |is_up: bool| {
            let mut map = map_of(before);
            map.hear(&listed(after), |_| is_up);
            address_of(&map, map.owner(15).unwrap()).1
        };
        assert_eq!(owner_after(false), 1);
        assert_eq!(
            owner_after(true),
            2,
            "a node that was paused has not heard of it"
        );
    }

    /// A new address would end the connection and all its subscriptions, at each report.
    #[test]
    fn node_that_is_up_keeps_its_address_while_reports_differ() {
        let report = |port: u16| listed(&format!("aaa h:{port}@1 master - 0 0 1 connected 0-9\n"));
        let address = |map: &SlotMap| address_of(map, 0).1;
        let mut map = SlotMap::new();
        map.hear(&report(1), |_| true);
        for _ in 0..10 {
            map.hear(&report(2), |_| true);
            assert_eq!(address(&map), 1);
            assert!(!map.has_heard(&report(2)), "the next one counts too");
            assert_eq!(map.at(&at("h", 2)), Some(0), "redirections may name it");
            map.hear(&report(1), |_| true);
        }
        for _ in 0..NEW_ADDRESS_AFTER {
            assert_eq!(address(&map), 1);
            map.hear(&report(2), |_| true);
        }
        assert_eq!(address(&map), 2, "no report lists the old address");
        assert!(map.has_heard(&report(2)));
        map.hear(&report(1), |_| false);
        assert_eq!(address(&map), 1, "the node is down");
        let replaced =
            "bbb h:1@1 master - 0 0 1 connected\naaa h:2@1 master - 0 0 1 connected 0-9\n";
        map.hear(&listed(replaced), |_| true);
        assert_eq!(address(&map), 2, "the connection leads to another node");
    }
}
