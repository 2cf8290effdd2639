//! Prints how long a failover takes, and which part of that is the client's. It fails only when a
//! step does not end.
//!
//! `TOPOLOGY_ROUNDS=10 tools/run-tests.sh --threads 1 it 'with sentinels' sentinel::timing
//! --nocapture` (after `make programs`)

use std::time::{Duration, Instant};

use redisson_lock::LockClient;
use testbed::{Server, Watched, unique_name};
use tokio::{task::JoinSet, time::timeout};

use super::{config, rounds};
use crate::hazards::stage::{GENEROUS, connect};

/// The time when a sentinel first names another master than the one on `old`.
async fn named(sentinels: &[Server], old: u16) -> Instant {
    let mut asking = JoinSet::new();
    for sentinel in sentinels {
        let mut admin = sentinel.admin().await;
        asking.spawn(async move {
            loop {
                let (_, port): (String, u16) = redis::cmd("SENTINEL")
                    .arg(&["GET-MASTER-ADDR-BY-NAME", Watched::SERVICE])
                    .query_async(&mut admin)
                    .await
                    .expect("a sentinel answers");
                if port != old {
                    return Instant::now();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }
    asking.join_next().await.unwrap().unwrap()
}

/// The time when a lock is acquired that is requested now.
async fn locked(client: LockClient) -> Instant {
    let lock = client.reentrant_lock(unique_name("first"));
    let _guard = timeout(2 * GENEROUS, lock.lock())
        .await
        .expect("the lock is acquired in time")
        .unwrap();
    Instant::now()
}

async fn time(what: &str, fail: impl Fn(&Server)) {
    let mut parts = Vec::new();
    for _ in 0..rounds() {
        let set_up = Watched::start().await;
        let mut config = config();
        config.command_wait = 2 * GENEROUS;
        let client = connect(&set_up.url(), config).await;
        let master = &set_up.replicated.servers[0];
        let named = named(&set_up.sentinels, master.port());
        fail(master);
        let start = Instant::now();
        let (locked, named) = tokio::join!(tokio::spawn(locked(client)), named);
        let locked = locked.unwrap();
        let part = locked.saturating_duration_since(named);
        println!(
            "{what}: {:?} to the first lock: {:?} until a sentinel names the new master, {part:?} after that",
            locked - start,
            named - start,
        );
        parts.push(part);
    }
    parts.sort_unstable();
    println!(
        "{what}: the client's part: median {:?}, longest {:?}",
        parts[parts.len() / 2],
        parts[parts.len() - 1]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_masters_death() {
    time("kill -9", Server::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_masters_sleep() {
    time("SIGSTOP", Server::pause).await;
}
