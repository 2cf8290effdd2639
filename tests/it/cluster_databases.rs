//! A database of a cluster other than 0 (Valkey 9, `cluster-databases`), while slots move by one command. `tools/run-tests.sh` leaves these
//! tests out on other servers.
//!
//! `CLUSTER_DATABASES=4` runs the tests of clusters and of the contract in such a database.

use std::{sync::Arc, time::Duration};

use redisson_lock::{Config, Error, LockClient, Released};
use testbed::{Clustered, eventually, slot_of};
use tokio::{task::JoinSet, time::timeout};

use crate::hazards::stage::{GENEROUS, Room, all_done, connect, let_pass, watched};

const DATABASES: [&str; 2] = ["--cluster-databases", "4"];

async fn start(masters: usize) -> Clustered {
    Clustered::start_with(masters, false, &DATABASES).await
}

/// The URL with another database than the last.
fn of_database(cluster: &Clustered, database: u32) -> String {
    cluster.url().replacen("/3?", &format!("/{database}?"), 1)
}

/// Only a message wakes a waiter.
fn only_messages() -> Config {
    let mut config = watched(Duration::from_secs(600));
    config.max_poll_interval = Duration::from_secs(600);
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_another_lock_in_another_database() {
    let cluster = start(2).await;
    let last = connect(&cluster.url(), only_messages()).await;
    let waiting = connect(&cluster.url(), only_messages()).await;
    let first = connect(&of_database(&cluster, 0), only_messages()).await;
    for node in 0..2 {
        let name = cluster.name_on(node, "database").await;
        let guard = last.reentrant_lock(&name).lock().await.unwrap();
        let of_first = first.reentrant_lock(&name).try_lock().await.unwrap();
        let of_first = of_first.expect("the name is free in database 0");
        let exists: bool = cluster.servers[node].command(&["EXISTS", &name]).await;
        assert!(exists, "the lock of node {node} is in the last database");

        let waiter = waiting.reentrant_lock(&name);
        let mut waiter = tokio::spawn(async move { waiter.lock().await?.unlock().await });
        eventually("the waiter subscribes", GENEROUS, async || {
            let listed = ["PUBSUB", "SHARDCHANNELS"];
            let channels: Vec<String> = cluster.servers[node].command(&listed).await;
            !channels.is_empty()
        })
        .await;
        // Messages know no databases: this one wakes the waiter, which is refused and waits on.
        assert_eq!(of_first.unlock().await, Ok(Released::Fully));
        let_pass(Duration::from_millis(500)).await;
        assert!(
            !waiter.is_finished(),
            "the lock of the last database is held"
        );
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        let waited = timeout(GENEROUS, &mut waiter).await;
        let waited = waited.expect("a message wakes the waiter");
        assert_eq!(waited.unwrap(), Ok(Released::Fully));
    }
}

#[tokio::test]
async fn a_database_beyond_the_last_is_refused_in_the_servers_words() {
    let cluster = start(1).await;
    let refused = LockClient::connect(&of_database(&cluster, 4)).await;
    let error = refused.expect_err("there are databases 0 to 3");
    assert!(
        error.to_string().contains("DB index is out of range"),
        "{error}"
    );
    assert!(!matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// All slots of the names move to and fro. A hold outlasts its lease by renewals, and further tasks contend for two names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_keep_their_promises_while_slots_move_atomically() {
    const MOVES: usize = 6;
    let cluster = start(2).await;
    let config = || watched(Duration::from_secs(3));
    let names = [
        cluster.name_on(0, "moving").await,
        cluster.name_on(0, "moving").await,
    ];
    let held = format!("{{{}}}:held", names[0]);
    let holder = connect(&cluster.url(), config()).await;
    let guard = holder.reentrant_lock(&held).lock().await.unwrap();

    let (ends, end) = tokio::sync::watch::channel(false);
    let mut tasks = JoinSet::new();
    let rooms = [Arc::<Room>::default(), Arc::<Room>::default()];
    for client in 0..3 {
        let client_of_tasks = connect(&cluster.url(), config()).await;
        for (name, room) in names.iter().zip(&rooms) {
            let (client_of_task, name) = (client_of_tasks.clone(), name.clone());
            let (room, end) = (room.clone(), end.clone());
            tasks.spawn(async move {
                while !*end.borrow() {
                    let guard = match client % 2 {
                        0 => client_of_task.reentrant_lock(&name).lock().await,
                        _ => {
                            client_of_task
                                .reentrant_lock(&name)
                                .with_lease(GENEROUS)
                                .lock()
                                .await
                        }
                    };
                    let guard = guard.expect("the lock is acquired while its slot moves");
                    room.visit().await;
                    let released = guard.unlock().await;
                    assert_eq!(released, Ok(Released::Fully), "client {client}");
                }
            });
        }
    }
    for round in 0..MOVES {
        let before = rooms.each_ref().map(|room| room.visits());
        for slot in [slot_of(&names[0]), slot_of(&names[1])] {
            cluster.move_atomically(slot..=slot, 1 - round % 2).await;
        }
        eventually("tasks enter after the move", GENEROUS, async || {
            let visits = rooms.each_ref().map(|room| room.visits());
            visits
                .iter()
                .zip(before)
                .all(|(now, before)| *now > before + 3)
        })
        .await;
        assert!(!guard.is_lost(), "round {round}");
    }
    ends.send_replace(true);
    all_done(tasks).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    for server in &cluster.servers {
        let keys: Vec<String> = server.command(&["KEYS", "*"]).await;
        assert!(keys.is_empty(), "{keys:?}");
    }
}
