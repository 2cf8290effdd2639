//! A node of a cluster hangs for less than the node timeout. No operation on the other nodes waits for it (P-R5, P-FR11), under a
//! paused clock. `tests/it/cluster/frozen.rs` shows the same on real nodes.

use std::time::Duration;

use redisson_lock::{Config, LockClient, Owner, ShardedPubSub};
use redisson_lock_test::simulation::{Cluster, Faults};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::name_on;

/// The time that a reply takes.
const REPLY: Duration = Duration::from_millis(1);
/// The time for which the node hangs.
const HANGS: Duration = Duration::from_secs(10);
/// The interval between two operations of a task.
const PACE: Duration = Duration::from_millis(40);
/// Without shards, a client listens at one node. If that node hangs, the client changes to another one within this time.
const FINDS_OUT: Duration = Duration::from_secs(4);
/// The node that hangs.
const HANGING: usize = 0;

struct Replies;

impl Faults for Replies {
    fn answering(&mut self, _connection: u64) -> Duration {
        REPLY
    }
}

/// A client that only messages wake.
async fn client(cluster: &Cluster, sharded: ShardedPubSub, lease: Duration) -> LockClient {
    let config = Config::default()
        .with_command_wait(Duration::from_secs(60))
        .with_max_poll_interval(Duration::from_secs(600))
        .with_watchdog_lease(lease)
        .with_sharded_pubsub(sharded);
    cluster.client_with(config).await.expect("the nodes are up")
}

/// Acquires and releases a lock at each tick between two times. Returns the longest time from a tick to the acquisition.
async fn longest_acquisition(
    client: LockClient,
    name: String,
    (from, until): (Instant, Instant),
) -> Duration {
    let lock = client.reentrant_lock(name);
    let (mut due, mut longest) = (Instant::now(), Duration::ZERO);
    while due < until {
        sleep_until(due).await;
        let guard = lock.lock().await.unwrap();
        if due >= from {
            longest = longest.max(due.elapsed());
        }
        // The task of the other client arrives meanwhile, and waits.
        sleep(PACE / 4).await;
        guard.unlock().await.unwrap();
        due = (due + PACE).max(Instant::now());
    }
    longest
}

#[tokio::test(start_paused = true)]
async fn p_r5_p_fr11_a_node_that_hangs_delays_no_operation_on_the_others() {
    for sharded in [ShardedPubSub::Auto, ShardedPubSub::Off] {
        let cluster = Cluster::new(3);
        cluster.set_faults(Replies);
        let long = Duration::from_secs(60);
        let holder = client(&cluster, sharded, Duration::from_secs(3)).await;
        let (one, other) = (
            client(&cluster, sharded, long).await,
            client(&cluster, sharded, long).await,
        );
        let on_hanging = name_on(&cluster, HANGING, "hanging");
        let held = one.reentrant_lock(&on_hanging).lock().await.unwrap();
        let mut renewed = Vec::new();
        for number in 0..40 {
            let name = name_on(&cluster, 1 + number % 2, &format!("renewed{number}-"));
            renewed.push(holder.reentrant_lock(name).lock().await.unwrap());
        }
        // Each client requests the map every 200 ms until it has all connections.
        sleep(Duration::from_secs(1)).await;
        cluster.hang(HANGING, HANGS);
        let hung = Instant::now();
        for _ in 0..20 {
            let lock = other.reentrant_lock(&on_hanging).owned_by(&Owner::new());
            tokio::spawn(async move { lock.try_lock_for(HANGS).await });
        }
        let from = match sharded {
            ShardedPubSub::Off => hung + FINDS_OUT,
            _ => hung,
        };
        let mut acquisitions = JoinSet::new();
        for node in [1, 2] {
            for (client, alone) in [(&one, "alone"), (&other, "apart")] {
                let alone = name_on(&cluster, node, alone);
                let contended = name_on(&cluster, node, "contended");
                for name in [alone, contended] {
                    let times = (from, hung + HANGS);
                    acquisitions.spawn(longest_acquisition(client.clone(), name, times));
                }
            }
        }
        let longest = acquisitions.join_all().await.into_iter().max().unwrap();
        // The other client's work, its release, the message, and an attempt.
        assert!(longest <= PACE, "{longest:?}, {sharded:?}");
        assert!(!held.is_lost());
        for guard in renewed {
            assert!(!guard.is_lost(), "{guard:?}");
            guard.unlock().await.unwrap();
        }
    }
}

/// How the node fails. It keeps its other slots.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// The call is at the node.
    Hangs,
    /// The call waits for a connection.
    Stops,
}

/// A slot leaves a node that does not answer. A call of that slot does not wait for the node.
#[tokio::test(start_paused = true)]
async fn call_to_a_failed_node_follows_its_slot() {
    for failure in [Failure::Hangs, Failure::Stops] {
        let cluster = Cluster::new(3);
        let client = client(&cluster, ShardedPubSub::Auto, Duration::from_secs(60)).await;
        sleep(Duration::from_secs(1)).await;
        match failure {
            Failure::Hangs => cluster.hang(HANGING, Duration::from_secs(600)),
            Failure::Stops => cluster.stop(HANGING),
        }
        let name = name_on(&cluster, HANGING, "moves");
        let slot = Cluster::slot_of(&name);
        let calling = tokio::spawn(async move { client.reentrant_lock(name).try_lock().await });
        sleep(PACE).await;
        assert!(!calling.is_finished(), "{failure:?}");
        let moving = cluster.begin_move(slot, HANGING + 1).unwrap();
        cluster.end_move(moving);
        (0..cluster.nodes()).for_each(|node| cluster.hear_all(node));
        // The client requests the map every 5 s.
        let called = timeout(Duration::from_secs(7), calling).await;
        let entered = called.unwrap_or_else(|_| panic!("the call waits for the node: {failure:?}"));
        assert!(entered.unwrap().unwrap().is_some(), "{failure:?}");
    }
}
