//! A master that sentinels monitor, or that its replicas report: found, lost, and found again.
//!
//! `TOPOLOGY_ROUNDS=<number>` sets the number of failovers of each kind (1 by default), each with
//! its own servers.

mod failover;
mod finding;
mod ledger;
mod losses;
mod names;
mod replicated;
mod timing;
mod tls;

use redisson_lock::{Config, LockClient, Released};
use testbed::{Server, Watched, eventually};

use crate::hazards::stage::{GENEROUS, PROMPT, subscriptions};

/// Redisson's settings, with a `command_wait` that outlasts a failover.
fn config() -> Config {
    let mut config = Config::default();
    config.command_wait = GENEROUS;
    config
}

fn rounds() -> usize {
    let given = std::env::var("TOPOLOGY_ROUNDS").ok();
    given.map_or(1, |rounds| {
        rounds.parse().expect("TOPOLOGY_ROUNDS is a number")
    })
}

/// Acquires and releases a lock without contention.
async fn works(client: &LockClient, name: &str) {
    let lock = client.reentrant_lock(name);
    let guard = tokio::time::timeout(GENEROUS, lock.lock()).await;
    let guard = guard.expect("a master is found").expect("a master answers");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// Counts the connections of lock clients to a server or a sentinel.
async fn connections(server: &Server) -> usize {
    let list: String = server.command(&["CLIENT", "LIST"]).await;
    let is_ours = |line: &&str| {
        let field = |name: &str| {
            let mut words = line.split(' ');
            words
                .find_map(|word| word.strip_prefix(name))
                .unwrap_or_default()
        };
        !field("name=").starts_with("sentinel-")
            && !field("flags=").contains(['S', 'M', 'U'])
            && !field("addr=").ends_with(":0")
    };
    list.lines().filter(is_ours).count()
}

/// Fails if a lock, a queue entry or a subscription is left on the master `new`, or a connection
/// after the clients' shutdown.
async fn left_clean(set_up: &Watched, new: usize, clients: &[LockClient]) {
    let master = &set_up.replicated.servers[new];
    eventually("no key is left", PROMPT, async || {
        master
            .command::<Vec<String>>(&["KEYS", "*"])
            .await
            .is_empty()
    })
    .await;
    eventually("no subscription is left", PROMPT, async || {
        let mut channels = subscriptions(master).await;
        channels.retain(|channel| !channel.starts_with("__sentinel__"));
        channels.is_empty()
    })
    .await;
    for client in clients {
        let report = client.shutdown().await;
        assert_eq!(report.unreleased, [], "no hold is unreleased");
    }
    for server in [master].into_iter().chain(&set_up.sentinels) {
        eventually("no connection is left", PROMPT, async || {
            connections(server).await == 0
        })
        .await;
    }
}
