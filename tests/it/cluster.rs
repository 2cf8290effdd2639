//! A cluster whose nodes hold the locks, move slots, die and come back.

mod addresses;
mod connecting;
mod frozen;
mod health;
mod killed_master;
mod migration;
mod preferred;
mod upheaval;

use std::{sync::Arc, time::Duration};

use redisson_lock::{Config, Error, LockClient, Released, ShardedPubSub};
use testbed::{Clustered, eventually, slot_of};
use tokio::{task::JoinSet, time::timeout};

use crate::hazards::stage::{GENEROUS, Room, all_done, connect};

fn config() -> Config {
    let mut config = Config::default();
    config.command_wait = GENEROUS;
    config
}

/// Only a message wakes a waiter.
fn only_messages(sharded: ShardedPubSub) -> Config {
    let mut config = config();
    config.max_poll_interval = Duration::from_secs(600);
    config.watchdog_lease = Duration::from_secs(600);
    config.sharded_pubsub = sharded;
    config
}

/// Only a message wakes the waiter of another client, on each node.
async fn a_release_wakes_on_every_node(sharded: ShardedPubSub) {
    let cluster = Clustered::masters(3).await;
    let clients = [
        connect(&cluster.url(), only_messages(sharded)).await,
        connect(&cluster.url(), only_messages(sharded)).await,
    ];
    let listing = match sharded {
        ShardedPubSub::Off => "CHANNELS",
        _ => "SHARDCHANNELS",
    };
    for node in 0..3 {
        let name = cluster.name_on(node, "woken").await;
        let guard = clients[0].reentrant_lock(&name).lock().await.unwrap();
        let waiter = clients[1].reentrant_lock(&name);
        let waiting = tokio::spawn(async move { waiter.lock().await?.unlock().await });
        let listens = async || {
            let mut channels = Vec::new();
            for server in &cluster.servers {
                channels.extend(server.command::<Vec<String>>(&["PUBSUB", listing]).await);
            }
            !channels.is_empty()
        };
        eventually("a client subscribes", GENEROUS, listens).await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        let waited = timeout(GENEROUS, waiting)
            .await
            .expect("a message wakes the waiter");
        assert_eq!(waited.unwrap(), Ok(Released::Fully));
        eventually("no client subscribes", GENEROUS, async || !listens().await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_within_the_shard() {
    a_release_wakes_on_every_node(ShardedPubSub::Auto).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_across_all_nodes_without_sharded_messages() {
    a_release_wakes_on_every_node(ShardedPubSub::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t9_names_whose_keys_would_be_apart_are_refused_with_the_reason() {
    let cluster = Clustered::masters(2).await;
    let client = connect(&cluster.url(), config()).await;
    for name in ["a{b", "{}x", "a}b"] {
        match client.reentrant_lock(name).try_lock().await {
            Err(Error::InvalidName { reason, .. }) => assert!(reason.contains("slot"), "{reason}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    for name in ["a{b}c", "{a}{", "{{a}"] {
        let guard = client.fair_lock(name).lock().await.unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::Fully), "{name}");
    }
}

/// A held lock's slot moves while four tasks wait for it. The holder releases during the move, or
/// after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_w7_p_fr12_waiters_follow_the_slot() {
    for release_during_the_move in [true, false] {
        let cluster = Clustered::masters(2).await;
        let name = cluster.name_on(0, "moving").await;
        let holder = connect(&cluster.url(), config()).await;
        let guard = holder.reentrant_lock(&name).lock().await.unwrap();
        let room = Arc::<Room>::default();
        let mut waiting = JoinSet::new();
        for _ in 0..2 {
            let client = connect(&cluster.url(), config()).await;
            for _ in 0..2 {
                let (client, name, room) = (client.clone(), name.clone(), room.clone());
                waiting.spawn(async move { visit(&client, &name, &room).await });
            }
        }
        let listening = async || {
            let listening: Vec<redis::Value> = cluster.servers[0]
                .command(&["PUBSUB", "SHARDNUMSUB", &channel(&name)])
                .await;
            listening.get(1) == Some(&redis::Value::Int(2))
        };
        eventually("both clients listen", GENEROUS, listening).await;
        let slot_move = cluster.begin_move(slot_of(&name), 1).await;
        if release_during_the_move {
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
            cluster.move_keys(slot_move).await;
            cluster.end_move(slot_move).await;
        } else {
            cluster.move_keys(slot_move).await;
            cluster.end_move(slot_move).await;
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
        }
        timeout(GENEROUS, all_done(waiting))
            .await
            .expect("all tasks acquire the lock");
        assert_eq!(room.visits(), 4);
    }
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

async fn visit(client: &LockClient, name: &str, room: &Room) {
    let guard = client.reentrant_lock(name).lock().await.unwrap();
    room.visit().await;
    guard.unlock().await.unwrap();
}

/// A shard's replica takes over from its master: its holds go on, and the waiter acquires the lock.
async fn survives(fail: impl AsyncFn(&Clustered, usize)) {
    let cluster = Clustered::start().await;
    let client = connect(&cluster.url(), only_messages(ShardedPubSub::Auto)).await;
    let other = connect(&cluster.url(), only_messages(ShardedPubSub::Auto)).await;
    let (held, waited) = (
        cluster.name_on(0, "held").await,
        cluster.name_on(0, "waited").await,
    );
    let guard = client.reentrant_lock(&held).lock().await.unwrap();
    let holder = client.reentrant_lock(&waited).lock().await.unwrap();
    let waiter = other.reentrant_lock(&waited);
    let waiting = tokio::spawn(async move { waiter.lock().await?.unlock().await });
    eventually("the task waits", GENEROUS, async || {
        let channels: Vec<String> = cluster.servers[0]
            .command(&["PUBSUB", "SHARDCHANNELS"])
            .await;
        !channels.is_empty()
    })
    .await;
    let replica = cluster.replica_of(0).await;
    eventually("the replica has both keys", GENEROUS, async || {
        let has: u32 = cluster.servers[replica].command(&["DBSIZE"]).await;
        has == 2
    })
    .await;
    fail(&cluster, replica).await;
    cluster.takes_over(replica).await;
    let released = timeout(GENEROUS, holder.unlock())
        .await
        .expect("the lock is released");
    assert_eq!(released, Ok(Released::Fully));
    let entered = timeout(GENEROUS, waiting)
        .await
        .expect("the waiter acquires the lock");
    assert_eq!(entered.unwrap(), Ok(Released::Fully));
    assert!(!guard.is_lost());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let left: u32 = cluster.servers[replica].command(&["DBSIZE"]).await;
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_failover_is_followed() {
    survives(async |cluster, replica| cluster.order_failover(replica).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_a_master_is_survived() {
    survives(async |cluster, _| cluster.kill(0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t5_a_master_that_was_paused_is_not_believed_after_its_replacement() {
    survives(async |cluster, replica| {
        cluster.pause(0);
        cluster.takes_over(replica).await;
        cluster.resume(0);
    })
    .await;
}
