//! Two names of a replicated set-up, such as the primary's and the readers' of a managed service. Proxies play the names.

use redisson_lock::{LockClient, Released};
use testbed::{Proxy, Replicated, Server, eventually, unique_name};

use super::{config, works};
use crate::hazards::stage::{GENEROUS, connect, exists, scripts};

/// The names of a master and of its replica.
struct Names {
    set_up: Replicated,
    primary: Proxy,
    reader: Proxy,
}

impl Names {
    async fn start() -> Self {
        let set_up = Replicated::start(1).await;
        let [primary, reader] = [0, 1].map(|node: usize| set_up.servers[node].port());
        let (primary, reader) = (Proxy::start(primary).await, Proxy::start(reader).await);
        Self {
            set_up,
            primary,
            reader,
        }
    }

    fn url(&self) -> String {
        let (primary, reader) = (self.primary.port(), self.reader.port());
        format!("redis-replicated://127.0.0.1:{primary}?node=127.0.0.1:{reader}")
    }

    fn lead_to(&self, primary: usize, reader: usize) {
        let port = |node: usize| self.set_up.servers[node].port();
        self.primary.lead_to(port(primary));
        self.reader.lead_to(port(reader));
    }

    /// Makes the replica the master.
    async fn fail_over(&self) {
        self.set_up.caught_up(0).await;
        let [old, new] = &self.set_up.servers[..] else {
            panic!("the set-up has two servers")
        };
        new.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        let port = new.port().to_string();
        old.command::<()>(&["REPLICAOF", "127.0.0.1", &port]).await;
    }
}

/// Both names are read as two masters with nothing in common.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_names_of_one_server_are_one_master() {
    let server = Server::start().await;
    let (first, second) = (
        Proxy::start(server.port()).await,
        Proxy::start(server.port()).await,
    );
    let hosts = [("127.0.0.1", first.port()), ("127.0.0.1", second.port())];
    for others in [&hosts[..], &[("localhost", server.port())]] {
        let mut url = format!("redis-replicated://127.0.0.1:{}", server.port());
        let mut separator = '?';
        for (host, port) in others {
            url += &format!("{separator}node={host}:{port}");
            separator = '&';
        }
        let client = LockClient::connect(&url).await.unwrap();
        works(&client, &unique_name("named")).await;
        // An unsettled view is asked for ten times a second.
        server.reset_calls().await;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let asked = server.calls().await["info"];
        assert!(asked < 6 * (others.len() as u64 + 1), "{asked} questions");
        client.shutdown().await;
    }
}

/// The name of the readers still leads to the server that has become the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_both_names_lead_to_the_new_master() {
    let names = Names::start().await;
    let client = connect(&names.url(), config()).await;
    let name = unique_name("held");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    names.fail_over().await;
    names.lead_to(1, 1);
    works(&client, &unique_name("new")).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let newcomer = LockClient::connect(&names.url()).await.unwrap();
    works(&newcomer, &unique_name("newcomer")).await;
    // The old master dies, so each open connection ends, and each name is resolved again.
    names.set_up.servers[0].kill();
    for client in [&client, &newcomer] {
        works(client, &unique_name("alone")).await;
    }
}

/// The open connections lead to the servers that the names had before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_exchanged_in_a_failover_are_followed() {
    let names = Names::start().await;
    let client = connect(&names.url(), config()).await;
    works(&client, &unique_name("old")).await;
    names.fail_over().await;
    names.lead_to(1, 0);
    works(&client, &unique_name("new")).await;
    // All of the client's connections to the new master end, and those to its replica stay.
    let new = &names.set_up.servers[1];
    let before = scripts(new).await;
    new.command::<()>(&["CLIENT", "KILL", "TYPE", "normal"])
        .await;
    new.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"])
        .await;
    let held = unique_name("held");
    let lock = client.reentrant_lock(&held);
    let guard = tokio::time::timeout(GENEROUS, lock.lock()).await;
    let guard = guard.expect("the names are resolved again").unwrap();
    assert!(exists(new, &held).await);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    eventually("the new master runs the scripts", GENEROUS, async || {
        scripts(new).await > before
    })
    .await;
}
