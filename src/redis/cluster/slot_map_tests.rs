//! Tests of the map of slots.

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
    let text = "\n-\nx y z\naaa 10.0.0.1:7001@1 master - 0 0 1 connected 5-1 20000 1-99999 a-b 4\n";
    let map = map_of(text);
    assert_eq!(map.owner(4), Some(0));
    assert_eq!(map.owner(5), None);
    assert!(!map.is_whole());
    assert!(map.owner(20_000).is_none());
}

#[test]
fn a_list_without_end_is_cut_and_what_is_remembered_is_bounded() {
    let mut map = SlotMap::new();
    for round in 0..8 {
        let lines = (0..2 * MOST_LISTED).map(|node| {
            format!(
                "{round}:{node} h:{} master - 0 0 {round} connected {}\n",
                node + 1,
                if node == 0 { "0-16383" } else { "" }
            )
        });
        let listed = listed(&lines.collect::<String>());
        assert_eq!(listed.len(), MOST_LISTED);
        map.hear(&listed, |_| false);
    }
    assert_eq!(map.nodes.len(), MOST_KNOWN);
    assert!(map.is_whole());
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
    let new = "aaa h:1@1 master,fail - 0 0 3 connected\nbbb h:2@1 master - 0 0 4 connected 0-9\n";
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
    let text = "aaa h:1@1 master - 0 0 3 connected 0-9\nbbb h:2@1 master - 0 0 2 connected 10\n";
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
    let before = "aaa h:1@1 master - 0 0 1 connected 0-9\nbbb h:2@1 slave aaa 0 0 1 connected\n";
    let dead = "aaa h:1@1 master,fail - 0 0 1 connected\nbbb h:2@1 master - 0 0 2 connected 0-9\n";
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
    let old = "aaa h:1@1 master - 0 0 9 connected 0-9\nbbb h:2@1 master - 0 0 8 connected 10-19\n";
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

/// A node that gave up its slots refuses their calls, while the map and its neighbours still name it as their owner.
#[test]
fn slot_is_not_served_while_its_owner_itself_reports_no_owner() {
    let report = |[of_a, of_b]: [&str; 2], epoch: u64, slots: &str| {
        listed(&format!(
            "aaa h:1@1 {of_a}master - 0 0 {epoch} connected {slots}\n\
             bbb h:2@1 {of_b}master - 0 0 2 connected 10-16383\n"
        ))
    };
    let (by_a, by_b) = (["myself,", ""], ["", "myself,"]);
    let unserved = |map: &SlotMap| map.unserved().collect::<Vec<_>>();
    let mut map = SlotMap::new();
    let mut hears = |by, epoch, slots| {
        let report = report(by, epoch, slots);
        assert!(!map.has_heard(&report));
        map.hear(&report, |_| true);
        assert_eq!(map.owner(9), Some(0), "calls are sent to it all the same");
        assert_eq!(map.is_whole(), unserved(&map).is_empty());
        unserved(&map)
    };
    let none: [HashSlot; 0] = [];
    assert_eq!(hears(by_b, 5, "0-9"), none);
    assert_eq!(hears(by_b, 5, ""), none, "hearsay");
    assert_eq!(hears(by_a, 5, "0-8"), [9]);
    assert_eq!(hears(by_a, 5, "1-8"), [0, 9]);
    assert_eq!(hears(by_b, 5, "0-9"), [0, 9], "hearsay");
    assert_eq!(hears(by_a, 5, "0-8"), [9]);
    assert_eq!(hears(by_b, 6, "0-9"), none, "a later claim");
    assert_eq!(hears(by_a, 6, "0-8"), [9]);
    assert_eq!(hears(by_a, 6, "0-9"), none);
    // Another node takes a slot over.
    assert_eq!(hears(by_a, 6, "1-9"), [0]);
    map.hear(&listed("bbb h:2@1 master - 0 0 7 connected 0\n"), |_| true);
    assert_eq!(unserved(&map), none);
}

/// A redirection names a node that may serve the slot.
#[test]
fn redirection_of_a_slot_ends_what_its_old_owner_reported() {
    let mut map = map_of(
        "aaa h:1@1 master - 0 0 5 connected 0-9\nbbb h:2@1 master - 0 0 2 connected 10-16383\n",
    );
    let text = "aaa h:1@1 myself,master - 0 0 5 connected 1-9\nbbb h:2@1 master - 0 0 2 connected 10-16383\n";
    map.hear(&listed(text), |_| true);
    assert!(!map.is_whole());
    map.moved(0, &at("h", 1), &at("h", 2));
    assert!(map.is_whole());
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
    let replaced = "bbb h:1@1 master - 0 0 1 connected\naaa h:2@1 master - 0 0 1 connected 0-9\n";
    map.hear(&listed(replaced), |_| true);
    assert_eq!(address(&map), 2, "the connection leads to another node");
}
