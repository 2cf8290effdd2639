//! Host names with several addresses, of which some lead nowhere, and names whose addresses change.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use redisson_lock::{Config, LockClient, LockClientBuilder, Released};
use testbed::{BlackHole, Clustered, Fate, Impostor, Proxy, Replicated, Server, Watched};
use tokio::time::timeout;

use crate::hazards::stage::{GENEROUS, PROMPT};

/// A name server of the tests.
#[derive(Clone, Default)]
struct Names {
    known: Arc<Mutex<HashMap<String, Vec<SocketAddr>>>>,
    asked: Arc<AtomicUsize>,
}

impl Names {
    fn of(name: &str, addresses: &[SocketAddr]) -> Self {
        let names = Self::default();
        names.set(name, addresses);
        names
    }

    fn set(&self, name: &str, addresses: &[SocketAddr]) {
        let mut known = self.known.lock().unwrap();
        known.insert(name.to_owned(), addresses.to_vec());
    }

    /// A client that asks this name server.
    fn client(&self, url: &str) -> LockClientBuilder {
        let names = self.clone();
        let mut config = Config::default();
        config.command_wait = GENEROUS;
        let builder = LockClient::builder().url(url).config(config);
        builder.resolver(move |host, port| {
            names.asked.fetch_add(1, Relaxed);
            let known = names.known.lock().unwrap().get(&host).cloned();
            async move {
                let mut addresses = known.ok_or(io::Error::other("no such name"))?;
                for address in &mut addresses {
                    // A server may have several ports, which its URL or the other nodes name.
                    if address.port() == 0 {
                        address.set_port(port);
                    }
                }
                Ok::<_, io::Error>(addresses)
            }
        })
    }
}

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

async fn locks(client: &LockClient) {
    let guard = client.reentrant_lock("order:42").lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// Connects before the attempt at the first address could time out.
async fn connects(builder: LockClientBuilder) -> LockClient {
    let client = timeout(GENEROUS, builder.connect_timeout(GENEROUS).build()).await;
    let client = client.expect("it does not wait for the first address");
    client.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_that_leads_nowhere_delays_no_connection() {
    let server = Server::start().await;
    let open_hole = BlackHole::open().await;
    let hole = open_hole.address();
    let closed = at(1);
    let elsewhere = SocketAddr::from(([0; 16], 1));
    for before in [
        &[hole][..],
        &[closed],
        &[hole, closed, hole],
        &[elsewhere, hole],
    ] {
        let addresses = [before, &[at(server.port())]].concat();
        let names = Names::of("redis.test", &addresses);
        locks(&connects(names.client("redis://redis.test")).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_replicated_servers_and_nodes_have_names_with_several_addresses() {
    let open_hole = BlackHole::open().await;
    let hole = open_hole.address();
    let watched = Watched::start().await;
    let sentinel = watched.sentinels[0].port();
    let names = Names::of("sentinels.test", &[hole, at(sentinel)]);
    let url = format!("redis-sentinel://sentinels.test/{}", Watched::SERVICE);
    locks(&connects(names.client(&url)).await).await;

    let replicated = Replicated::start(1).await;
    let master = at(replicated.servers[0].port());
    let names = Names::of("primary.test", &[hole, master]);
    locks(&connects(names.client("redis-replicated://primary.test")).await).await;

    let cluster = Clustered::masters(2).await;
    let names = Names::of("seeds.test", &[hole, at(cluster.servers[1].port())]);
    locks(&connects(names.client("redis-cluster://seeds.test")).await).await;
}

/// The connection is lost, and new ones get no answer: no SYN is answered, or sockets open and stay silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_address_that_stops_answering_is_left_for_the_second() {
    let server = Server::start().await;
    let silent = Proxy::start(server.port()).await;
    let mut swallowing = BlackHole::before(server.port());
    for first in [swallowing.address(), at(silent.port())] {
        let second = Proxy::start(server.port()).await;
        let names = Names::of("redis.test", &[first, at(second.port())]);
        let client = connects(names.client("redis://redis.test?endpoint=server")).await;
        locks(&client).await;
        assert_eq!(second.faults().connections(), 0, "the first works");
        if first == swallowing.address() {
            swallowing.swallow().await;
        } else {
            silent.faults().stall(true);
        }
        let working = timeout(PROMPT, locks(&client)).await;
        working.expect("the second address serves within seconds");
        // The next connections try the address that worked.
        let asked = names.asked.load(Relaxed);
        second.faults().cut_all();
        let working = timeout(PROMPT, locks(&client)).await;
        working.expect("the second address serves again");
        assert!(names.asked.load(Relaxed) > asked, "names are resolved anew");
    }
}

/// The program's name server knows another address, and the old server is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_with_another_address_leads_to_the_other_server() {
    let (old, new) = (Server::start().await, Server::start().await);
    let names = Names::of("redis.test", &[at(old.port())]);
    let client = connects(names.client("redis://redis.test")).await;
    locks(&client).await;
    names.set("redis.test", &[at(new.port())]);
    old.kill();
    locks(&client).await;
    assert!(new.calls().await.contains_key("evalsha"));
}

/// A name of a whole set: the replica that answers first refuses writes, and the next connection tries the master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_of_a_master_and_its_replica_leads_to_the_master() {
    let replicated = Replicated::start(1).await;
    let [master, replica] = [0, 1].map(|index| at(replicated.servers[index].port()));
    let names = Names::of("set.test", &[replica, master]);
    let client = names.client("redis-replicated://set.test");
    let client = timeout(GENEROUS, client.retry_start(GENEROUS).build()).await;
    locks(&client.unwrap().unwrap()).await;
}

/// A peer that closes on `HELLO` and on `CLIENT`: the first attempt tries three handshakes, at the same one of two addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_to_connect_resolves_its_name_once() {
    let server = Server::start().await;
    let decide = |words: &[&[u8]]| match &*words[0].to_ascii_uppercase() {
        b"HELLO" | b"CLIENT" => Fate::HangUp,
        _ => Fate::Pass,
    };
    let peer = Impostor::start(Some(server.port()), decide).await;
    let open_hole = BlackHole::open().await;
    let names = Names::of("proxy.test", &[open_hole.address(), peer.address]);
    let builder = names.client("redis://proxy.test?endpoint=proxy");
    locks(&connects(builder).await).await;
    assert_eq!(names.asked.load(Relaxed), peer.connections() - 2);
}

#[tokio::test]
async fn resolver_that_gives_no_address_is_an_error_that_names_the_host() {
    let builder = || LockClient::builder().url("redis://redis.test");
    let failed = builder().resolver(async |_, _| Err::<Vec<_>, _>("the registry is down"));
    let empty = builder().resolver(async |_, _| Ok::<_, String>(Vec::new()));
    let panics = builder().resolver(async |host, _| -> Result<Vec<SocketAddr>, String> {
        panic!("the test has {host} panic")
    });
    for (builder, reason) in [
        (failed, "the registry is down"),
        (empty, "the name has no address"),
        (panics, "the resolver panicked"),
    ] {
        let text = crate::in_full(&builder.build().await.unwrap_err());
        assert!(
            text.contains(reason) && text.contains("redis.test:6379"),
            "{text}"
        );
    }
}

/// Each address has failed for a reason of its own.
#[tokio::test]
async fn error_names_each_address_that_was_tried() {
    let names = Names::of("redis.test", &[at(1), at(2)]);
    let error = names
        .client("redis://redis.test")
        .build()
        .await
        .unwrap_err();
    let text = crate::in_full(&error);
    for part in ["redis.test:6379", "127.0.0.1:1: ", "127.0.0.1:2: "] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn ip_addresses_are_not_resolved() {
    let server = Server::start().await;
    let names = Names::default();
    let url = server.url();
    locks(&names.client(&url).await.unwrap()).await;
    assert_eq!(names.asked.load(Relaxed), 0);
}
