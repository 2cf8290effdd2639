//! Slots of nodes without a network. A real cluster of Redis 7.0.15 answers the same, word for word.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    super::{ConnectionId, Frame, Server, Settings},
    Membership, hash_slot,
};

/// Of slot 1436, which the first of the nodes has.
const KEY: &str = "reentrant:1";
const SLOT: u16 = 1436;
const NOT_LOCAL: &str = "ERR Script attempted to access a non local key in a cluster node";
const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

struct Bed {
    nodes: Vec<(Server, ConnectionId)>,
}

impl Bed {
    fn new() -> Self {
        let addresses: Arc<[_]> = (1..=3).map(|port| ("h".to_owned(), port)).collect();
        let nodes = (0..3).map(|node| {
            let member = Membership::new(node, addresses.clone());
            let mut server = Server::member(Settings::default(), member);
            let connection = server.open("client:1", 0);
            (server, connection)
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    fn cluster(&mut self, node: usize) -> &mut Membership {
        let cluster = self.nodes[node].0.data.cluster.as_deref_mut();
        cluster.expect("it is a node of a cluster")
    }

    fn run(&mut self, node: usize, words: &[&str]) -> Frame {
        let (server, connection) = &mut self.nodes[node];
        let args = words[1..].iter().map(|word| (*word).to_owned().into());
        let args: Vec<Bytes> = args.collect();
        server.execute(*connection, words[0], &args, 1_000, &mut Vec::new())
    }

    fn refused(&mut self, node: usize, words: &[&str]) -> String {
        match self.run(node, words) {
            Frame::Error(message) => message,
            other => panic!("{words:?} answered {other:?}"),
        }
    }

    /// The slot is on its way from the first node to the second.
    fn begin_move(&mut self) {
        self.cluster(1).expect(SLOT, 0);
        self.cluster(0).send(SLOT, 1);
    }
}

#[test]
fn slots_are_those_of_redis() {
    let slots = [
        "123456789",
        "foo",
        KEY,
        "foo{}{bar}",
        "{user1000}.following",
        "{a}1",
    ];
    let slots = slots.map(|key| hash_slot(key.as_bytes()));
    assert_eq!(slots, [12_739, 12_182, SLOT, 8_363, 3_443, 15_495]);
    assert_eq!(hash_slot(b"foo{{bar}}zap"), hash_slot(b"{bar"));
}

#[test]
fn a_key_is_served_where_its_slot_is() {
    let mut bed = Bed::new();
    assert_eq!(bed.run(0, &["EXISTS", KEY]), Frame::Number(0));
    assert_eq!(bed.refused(1, &["EXISTS", KEY]), "MOVED 1436 h:1");
    assert_eq!(bed.refused(2, &["SSUBSCRIBE", KEY]), "MOVED 1436 h:1");
    let message = "CROSSSLOT Keys in request don't hash to the same slot";
    assert_eq!(bed.refused(0, &["EXISTS", KEY, "foo"]), message);
    assert_eq!(
        bed.refused(1, &["SELECT", "1"]),
        "ERR SELECT is not allowed in cluster mode"
    );
    // Commands without a key are served anywhere.
    assert_eq!(bed.run(1, &["PUBLISH", KEY, "m"]), Frame::Number(0));
}

#[test]
fn a_slot_on_its_way_is_served_at_both_ends() {
    let mut bed = Bed::new();
    bed.run(0, &["SET", KEY, "1"]);
    bed.begin_move();
    let other = "{reentrant:1}x";
    assert_eq!(bed.run(0, &["EXISTS", KEY]), Frame::Number(1));
    assert_eq!(bed.refused(0, &["GET", other]), "ASK 1436 h:2");
    assert_eq!(bed.refused(0, &["EXISTS", KEY, other]), TRY_AGAIN);
    assert_eq!(
        bed.refused(0, &["EVAL", "return 1", "2", KEY, other]),
        TRY_AGAIN
    );
    assert_eq!(bed.run(0, &["SPUBLISH", other, "m"]), Frame::Number(0));
    assert_eq!(bed.refused(1, &["SET", other, "1"]), "MOVED 1436 h:1");
    bed.run(1, &["ASKING"]);
    assert_eq!(bed.refused(1, &["EXISTS", KEY, other]), TRY_AGAIN);
    bed.run(1, &["ASKING"]);
    assert_eq!(bed.run(1, &["EXISTS", other]), Frame::Number(0));
    assert_eq!(bed.refused(1, &["EXISTS", other]), "MOVED 1436 h:1");
}

#[test]
fn a_script_finds_only_what_the_node_serves() {
    let mut bed = Bed::new();
    let gone = "redis.call('DEL', KEYS[1]) return redis.pcall('EXISTS', KEYS[1])";
    bed.run(0, &["SET", KEY, "1"]);
    bed.begin_move();
    assert_eq!(bed.refused(0, &["EVAL", gone, "1", KEY]), NOT_LOCAL);
    bed.run(1, &["ASKING"]);
    assert_eq!(bed.run(1, &["EVAL", gone, "1", KEY]), Frame::Number(0));
    let another = "return redis.pcall('GET', '{reentrant:2}')";
    let message = "ERR Script attempted to access keys that do not hash to the same slot";
    let slot = hash_slot(b"reentrant:2");
    bed.cluster(0).set_owner(slot, Some(0));
    assert_eq!(bed.refused(0, &["EVAL", another, "1", "{06S}"]), message);
    assert_eq!(bed.run(0, &["EVAL", another, "0"]), Frame::Null);
}

#[test]
fn a_cluster_that_lacks_a_slot_serves_none() {
    let mut bed = Bed::new();
    for node in 0..3 {
        bed.cluster(node).set_owner(SLOT, None);
    }
    let get = |key: &str| format!("return redis.pcall('GET', '{key}')");
    let down = "ERR Script attempted to execute a command while the cluster is down";
    assert_eq!(
        bed.refused(0, &["GET", KEY]),
        "CLUSTERDOWN Hash slot not served"
    );
    assert_eq!(
        bed.refused(2, &["GET", "{a}1"]),
        "CLUSTERDOWN The cluster is down"
    );
    assert_eq!(bed.refused(2, &["EVAL", &get("{a}1"), "0"]), down);
    assert_eq!(bed.refused(2, &["EVAL", &get(KEY), "0"]), NOT_LOCAL);
    assert_eq!(bed.run(2, &["SPUBLISH", "{a}1", "m"]), Frame::Number(0));
}

#[test]
fn nodes_believe_the_later_claim() {
    let mut bed = Bed::new();
    bed.cluster(1).set_owner(SLOT, Some(1));
    bed.cluster(1).claim_anew();
    let (old, new) = (bed.cluster(0).clone(), bed.cluster(1).clone());
    assert_eq!(bed.cluster(0).hear(&new), [SLOT]);
    assert!(bed.cluster(2).hear(&new).is_empty());
    assert!(bed.cluster(2).hear(&old).is_empty());
    let Frame::Text(text) = bed.run(2, &["CLUSTER", "NODES"]) else {
        panic!("a text");
    };
    let text = String::from_utf8_lossy(&text);
    let ends: Vec<_> = text
        .lines()
        .map(|line| line.split_once(" - ").unwrap())
        .collect();
    assert_eq!(ends[0].1, "0 0 1 connected 0-1435 1437-5461");
    assert_eq!(ends[1].1, "0 0 4 connected 1436 5462-10922");
    assert_eq!(ends[2].1, "0 0 3 connected 10923-16383");
    assert!(
        ends[2].0.ends_with(" h:3@10003 myself,master"),
        "{}",
        ends[2].0
    );
}

#[test]
fn subscriptions_end_with_the_slot() {
    let mut bed = Bed::new();
    bed.run(0, &["HELLO", "3"]);
    bed.run(0, &["SSUBSCRIBE", KEY]);
    bed.run(0, &["SSUBSCRIBE", "{06S}"]);
    bed.nodes[0].0.end_subscriptions(SLOT);
    let Frame::Text(info) = bed.run(0, &["CLIENT", "INFO"]) else {
        panic!("a text");
    };
    assert!(String::from_utf8_lossy(&info).contains(" ssub=1 "));
}
