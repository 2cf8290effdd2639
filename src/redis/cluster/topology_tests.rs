//! Tests of the map of a cluster and its connections.

use std::{sync::Mutex, time::Duration};

use super::*;
use crate::{
    redis::{events, url},
    sync::lock,
};

fn topology(map: AddressMap, nodes: &str) -> Topology {
    let wait = Wait {
        longest: Duration::from_secs(1),
        for_disk: false,
    };
    let (events, _) = events::channel();
    let server = url::parse("rediss://nowhere").unwrap().server;
    let publishing = Publishing::Classic;
    Topology::new(
        server,
        Vec::new(),
        Some(map),
        publishing,
        wait,
        FirstAnswer::of(nodes, Preferred::Name),
        events,
    )
}

/// `connect` waits for a map that serves all slots.
#[tokio::test]
async fn slots_that_their_owner_gave_up_and_claims_again_wake_watchers() {
    let report =
        |slots: &str| format!("aaa 10.0.0.1:7001@1 myself,master - 0 0 1 connected {slots}\n");
    let nowhere: AddressMap = Arc::new(|_, _| ("127.0.0.1".into(), 1));
    let topology = topology(nowhere, &report("0-16383"));
    let mut routes = topology.routes.subscribe();
    for (slots, is_whole) in [("0-16382", false), ("0-16383", true)] {
        topology.hear(&FirstAnswer::of(&report(slots), Preferred::Name).listed);
        assert!(routes.has_changed().unwrap());
        assert_eq!(routes.borrow_and_update().map.is_whole(), is_whole);
    }
    topology.closed.cancel();
}

/// A connection that is replaced would have its calls repeated at the same server.
#[tokio::test]
async fn node_keeps_its_connection_when_its_other_host_changes() {
    let report = |hosts: &str| {
        format!("aaa 10.0.0.1:7001@1{hosts} myself,master - 0 0 1 connected 0-16383\n")
    };
    let same: AddressMap = Arc::new(|host, _| (host.to_owned(), 1));
    let topology = topology(same, &report(",one.example"));
    let node = || topology.routes.borrow().node(0).cloned().unwrap();
    let (first, address) = (node(), node().address.clone());
    let known = topology.server.servers.at(&Endpoint::Tcp(address.clone()));
    let hosts = || {
        let hosts = known.address_order.hosts(&address).into_iter();
        hosts.map(|(host, _)| host).collect::<Vec<_>>()
    };
    assert_eq!(hosts(), ["one.example", "10.0.0.1"]);
    let elsewhere = report(",one.example").replace("10.0.0.1", "10.0.0.9");
    topology.hear(&FirstAnswer::of(&elsewhere, Preferred::Name).listed);
    assert!(Arc::ptr_eq(&first, &node()) && !first.has_left());
    assert_eq!(hosts(), ["one.example", "10.0.0.9"]);
    let renamed = report(",two.example");
    topology.hear(&FirstAnswer::of(&renamed, Preferred::Name).listed);
    assert!(first.has_left());
    topology.closed.cancel();
}

/// The client reaches nodes by TLS under their host names, which their certificates state, and the address map knows
/// only these names.
#[tokio::test]
async fn node_is_reached_by_its_host_name_over_tls_whatever_the_redirection_names() {
    let nodes = "aaa 10.0.0.1:7001@1,one.example master - 0 0 1 connected 0-16383\n\
                 bbb 10.0.0.2:7002@1,two.example master - 0 0 2 connected\n";
    let reached = Arc::new(Mutex::new(Vec::new()));
    let record = reached.clone();
    let map: AddressMap = Arc::new(move |host, _| {
        lock(&record).push(host.to_owned());
        ("127.0.0.1".into(), 1)
    });
    let topology = topology(map, nodes);
    let by_address = topology
        .asking_connection(&("10.0.0.2".into(), 7002))
        .unwrap();
    let by_name = topology
        .asking_connection(&("two.example".into(), 7002))
        .unwrap();
    assert!(Arc::ptr_eq(&by_address, &by_name));
    let _unknown = topology.asking_connection(&("10.0.0.3".into(), 7003));
    let node = ["one.example", "10.0.0.1"];
    assert_eq!(lock(&reached)[..2], node);
    assert_eq!(lock(&reached)[2..], ["two.example", "10.0.0.3"]);
    lock(&reached).clear();
    // No node is reachable, so the client asks every known node, at the host that it prefers.
    topology.refresh().await;
    assert_eq!(*lock(&reached), ["one.example", "two.example"]);
    topology.closed.cancel();
}
