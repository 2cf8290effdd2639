//! Slots move, masters die and clusters are replaced while tasks always want locks.
//!
//! `TOPOLOGY_ROUNDS` sets the number of rounds, 1 by default.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use redisson_lock::{Config, Error, LockClient, LostReason, Released};
use testbed::{Clustered, Server, eventually, slot_of};
use tokio::{task::JoinSet, time::timeout};

use crate::hazards::stage::{GENEROUS, Room, all_done, connect, let_pass, watched};

pub(super) fn rounds() -> usize {
    let rounds = std::env::var("TOPOLOGY_ROUNDS");
    rounds.map_or(1, |rounds| {
        rounds.parse().expect("TOPOLOGY_ROUNDS is a number")
    })
}

/// A release that a failover loses ends with the lease.
fn config() -> Config {
    watched(Duration::from_secs(6))
}

/// Tasks of three clients that always want the same names.
struct Crowd {
    clients: Vec<LockClient>,
    rooms: Vec<Arc<Room>>,
    tasks: JoinSet<()>,
    stop: Arc<AtomicBool>,
}

impl Crowd {
    async fn gather(cluster: &Clustered, names: &[String]) -> Self {
        let mut crowd = Self {
            clients: Vec::new(),
            rooms: names.iter().map(|_| Arc::default()).collect(),
            tasks: JoinSet::new(),
            stop: Arc::default(),
        };
        for _ in 0..3 {
            let client = connect(&cluster.url(), config()).await;
            for (name, room) in names.iter().zip(&crowd.rooms) {
                let (client, name, room) = (client.clone(), name.clone(), room.clone());
                crowd
                    .tasks
                    .spawn(keep_coming(client, name, room, crowd.stop.clone()));
            }
            crowd.clients.push(client);
        }
        crowd.all_acquire().await;
        crowd
    }

    /// Waits until each lock has been acquired twice more.
    async fn all_acquire(&self) {
        let before: Vec<_> = self.rooms.iter().map(|room| room.visits()).collect();
        let visited = async || {
            let mut rooms = self.rooms.iter().zip(&before);
            rooms.all(|(room, before)| room.visits() >= before + 2)
        };
        eventually("all tasks acquire the lock", GENEROUS, visited).await;
    }

    /// Stops the tasks. They leave no keys, subscriptions or connections at the live nodes.
    async fn disperse(self, servers: impl IntoIterator<Item = &Server>) {
        self.stop.store(true, SeqCst);
        all_done(self.tasks).await;
        let servers: Vec<_> = servers.into_iter().collect();
        for server in &servers {
            let nothing = async || {
                let keys: Vec<String> = server.command(&["KEYS", "*"]).await;
                let channels: Vec<String> = server.command(&["PUBSUB", "SHARDCHANNELS"]).await;
                keys.is_empty() && channels.is_empty()
            };
            eventually("no hold, no subscription is left", GENEROUS, nothing).await;
        }
        for client in self.clients {
            assert_eq!(client.shutdown().await.unreleased, []);
        }
        for server in servers {
            let no_connection = async || {
                let list: String = server.command(&["CLIENT", "LIST"]).await;
                // Nodes of the cluster have connections too. `MIGRATE` keeps one for 10 s.
                let of_nodes = ["flags=S", "flags=M", "cmd=restore-asking"];
                let mut ours = list.lines().filter(|line| line.contains("addr=127.0.0.1"));
                ours.all(|line| of_nodes.iter().any(|word| line.contains(word)))
            };
            eventually("no connection is left", GENEROUS, no_connection).await;
        }
    }
}

async fn keep_coming(client: LockClient, name: String, room: Arc<Room>, stop: Arc<AtomicBool>) {
    let lock = client.reentrant_lock(&name);
    while !stop.load(SeqCst) {
        let guard = match lock.lock().await {
            Ok(guard) => guard,
            // A replica that copies its new master's data may be too slow for an acknowledgement.
            Err(error) if error.is_retryable() => {
                println!("{name}: {error}");
                continue;
            }
            Err(error) => panic!("{name}: {error:?}"),
        };
        if !guard.is_lost() {
            room.visit().await;
        }
        match guard.unlock().await {
            Ok(Released::Fully) | Err(Error::Lost { .. } | Error::Unavailable { .. }) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// Slots move back and forth while tasks want the locks in them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_to_and_fro_under_load() {
    let cluster = Clustered::masters(2).await;
    let mut names = Vec::new();
    for node in 0..10 {
        names.push(cluster.name_on(node % 2, "moving").await);
    }
    let crowd = Crowd::gather(&cluster, &names).await;
    for _ in 0..2 * rounds() {
        for name in &names {
            let slot = slot_of(name);
            let to = 1 - cluster.owner_of(slot).await;
            cluster.move_slot(slot, to).await;
        }
        crowd.all_acquire().await;
    }
    crowd.disperse(&cluster.servers).await;
}

/// Masters die one after the other, each once the previous one is back as a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_die_in_a_row() {
    let cluster = Clustered::start().await;
    let mut names = Vec::new();
    for node in 0..3 {
        names.push(cluster.name_on(node, "failing").await);
    }
    let crowd = Crowd::gather(&cluster, &names).await;
    for _ in 0..rounds() {
        for name in &names[..2] {
            for _ in 0..2 {
                let master = cluster.owner_of(slot_of(name)).await;
                let replica = cluster.replica_of(master).await;
                cluster.kill(master);
                cluster.takes_over(replica).await;
                let since = std::time::Instant::now();
                crowd.all_acquire().await;
                println!("acquired after {:?}", since.elapsed());
                cluster.restart(master).await;
                cluster.settled().await;
            }
        }
    }
    crowd.disperse(&cluster.servers).await;
}

/// Holders learn of the loss, waiters acquire the locks, and all slots can be used.
async fn survives_a_replacement_of_the_cluster(
    clients: &[LockClient; 2],
    names: &[String],
    cluster: Clustered,
    renew: impl AsyncFnOnce(Clustered) -> Clustered,
) {
    let mut guards = Vec::new();
    let mut waiting = JoinSet::new();
    for name in names {
        guards.push(clients[0].reentrant_lock(name).lock().await.unwrap());
        let lock = clients[1].reentrant_lock(name);
        waiting.spawn(async move {
            // The hold may be lost with the next server that ends.
            let _ = lock.lock().await.unwrap().unlock().await;
        });
    }
    let_pass(Duration::from_millis(300)).await;
    let cluster = renew(cluster).await;
    for guard in guards {
        let lost = timeout(GENEROUS, guard.lost())
            .await
            .expect("the loss is reported");
        assert_eq!(lost, LostReason::Gone, "before its lease has ended");
    }
    timeout(GENEROUS, all_done(waiting))
        .await
        .expect("all waiters acquire the lock");
    for client in clients {
        for name in names {
            let had = timeout(GENEROUS, client.reentrant_lock(name).lock()).await;
            let guard = had.expect("the lock is acquired").unwrap();
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
        }
    }
    drop(cluster);
}

fn long_lease() -> Config {
    let mut config = watched(Duration::from_secs(600));
    config.max_poll_interval = Duration::from_secs(5);
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_start_anew() {
    let cluster = Clustered::masters(3).await;
    let mut names = Vec::new();
    for node in 0..3 {
        names.push(cluster.name_on(node, "restarted").await);
    }
    let clients = [
        connect(&cluster.url(), long_lease()).await,
        connect(&cluster.url(), long_lease()).await,
    ];
    survives_a_replacement_of_the_cluster(&clients, &names, cluster, async |cluster| {
        for node in 0..3 {
            cluster.kill(node);
        }
        for node in 0..3 {
            cluster.restart(node).await;
        }
        cluster.settled().await;
        cluster
    })
    .await;
}

/// Another cluster on the same ports, with other slots and data, lower epochs, and perhaps fewer
/// nodes.
async fn another_cluster_takes_its_place(masters: usize) {
    let cluster = Clustered::masters(3).await;
    let mut names = Vec::new();
    for node in 0..3 {
        names.push(cluster.name_on(node, "anew").await);
        let slot = slot_of(&names[node]);
        // Each move raises the epochs of the old cluster.
        cluster.move_slot(slot, (node + 1) % 3).await;
    }
    let clients = [
        connect(&cluster.url(), long_lease()).await,
        connect(&cluster.url(), long_lease()).await,
    ];
    survives_a_replacement_of_the_cluster(&clients, &names, cluster, async |mut cluster| {
        cluster.begin_anew(masters).await;
        cluster
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_takes_its_place_on_the_same_ports() {
    another_cluster_takes_its_place(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_smaller_cluster_takes_its_place_on_the_same_ports() {
    another_cluster_takes_its_place(2).await;
}
