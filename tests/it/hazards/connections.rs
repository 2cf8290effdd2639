//! Killed and cut connections, flushed scripts: waiters acquire the lock, and holders keep it
//! (P-W4, P-T1).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use redisson_lock::{Lock, LockClient, Released};
use testbed::{Server, eventually, unique_name};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use super::stage::{
    GENEROUS, Locks, PROMPT, Random, Room, Stage, Subject, all_done, connect, count, is_waited_for,
    let_pass, nothing_left, pair, woken_only,
};

const NORMAL: &str = "normal";
const PUBSUB: &str = "pubsub";

/// Kills all connections of a type except this one.
async fn kill(server: &Server, kind: &str) -> u64 {
    server
        .command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
        .await
}

/// Kills connections while one client holds and another waits. The release follows the last kill,
/// so its message may find no subscriber.
async fn kill_while_waiting<S: Subject>(kinds: &[&str]) {
    let stage = Stage::new().await;
    let (holder, waiter) = (
        stage.direct(woken_only()).await,
        stage.direct(woken_only()).await,
    );
    let name = unique_name("kills");
    let room = Arc::<Room>::default();
    for _ in 0..5 {
        let guard = holder.rival::<S>(&name).lock().await.unwrap();
        let lock = waiter.kind::<S>(&name);
        let room = room.clone();
        let waiting = tokio::spawn(async move { pair::<S>(&lock, &room).await });
        for _ in 0..3 {
            eventually("the waiter listens", GENEROUS, async || {
                is_waited_for::<S>(&stage.server, &name).await
            })
            .await;
            for kind in kinds {
                eventually("a connection is killed", GENEROUS, async || {
                    kill(&stage.server, kind).await > 0
                })
                .await;
            }
        }
        assert!(!guard.is_lost());
        assert_eq!(count::<S::Rival>(&stage.server, &name).await, 1);
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        gets_in(waiting).await;
    }
    assert_eq!(room.visits(), 5);
    nothing_left(&stage.server, PROMPT).await;
}

async fn gets_in(waiting: JoinHandle<()>) {
    let got_in = timeout(GENEROUS, waiting).await;
    got_in
        .expect("the waiter acquires the lock")
        .expect("the waiter does not panic");
}

pub async fn p_w4_both_connections_are_killed_while_waiting<S: Subject>() {
    kill_while_waiting::<S>(&[NORMAL, PUBSUB]).await;
}

pub async fn p_w4_the_scripts_connection_is_killed_while_waiting<S: Subject>() {
    kill_while_waiting::<S>(&[NORMAL]).await;
}

pub async fn p_w4_the_subscriptions_connection_is_killed_while_waiting<S: Subject>() {
    kill_while_waiting::<S>(&[PUBSUB]).await;
}

async fn pairs<S: Subject>(lock: Lock<S::Kind>, room: Arc<Room>, stop: Arc<AtomicBool>) -> u64 {
    let mut pairs = 0;
    while !stop.load(SeqCst) {
        pair::<S>(&lock, &room).await;
        pairs += 1;
    }
    pairs
}

/// Eight tasks of two clients acquire two locks until `stop` is set.
struct Crowd {
    stop: Arc<AtomicBool>,
    rooms: [Arc<Room>; 2],
    tasks: JoinSet<u64>,
}

impl Crowd {
    fn start<S: Subject>(clients: &[LockClient; 2], prefix: &str) -> Self {
        let names = [unique_name(prefix), unique_name(prefix)];
        let mut crowd = Self {
            stop: Arc::default(),
            rooms: Default::default(),
            tasks: JoinSet::new(),
        };
        for task in 0..8 {
            let (client, name) = (&clients[task / 4], &names[task % 2]);
            let (room, stop) = (crowd.rooms[task % 2].clone(), crowd.stop.clone());
            // Two of each four are rivals.
            if task % 4 < 2 {
                let lock = client.kind::<S>(name);
                crowd.tasks.spawn(pairs::<S>(lock, room, stop));
            } else {
                let lock = client.rival::<S>(name);
                crowd.tasks.spawn(pairs::<S::Rival>(lock, room, stop));
            }
        }
        crowd
    }

    fn visits(&self) -> u64 {
        self.rooms.iter().map(|room| room.visits()).sum()
    }

    /// Ends when all tasks have left, and checks that each visit was counted.
    async fn end(mut self) {
        self.stop.store(true, SeqCst);
        let pairs = all_done(std::mem::take(&mut self.tasks)).await;
        let pairs: u64 = pairs.into_iter().sum();
        assert_eq!(self.visits(), pairs, "visits were lost");
    }
}

pub async fn p_t1_scripts_are_flushed_in_a_loop<S: Subject>() {
    let stage = Stage::new().await;
    let clients = [
        stage.direct(woken_only()).await,
        stage.direct(woken_only()).await,
    ];
    let crowd = Crowd::start::<S>(&clients, "flushes");
    let mut admin = stage.server.admin().await;
    // A client that keeps the lock for a row of visits needs no script, so scripts are counted too.
    eventually("1,000 visits, and scripts anew", GENEROUS * 2, async || {
        let flushed = redis::cmd("SCRIPT")
            .arg("FLUSH")
            .query_async(&mut admin)
            .await;
        let () = flushed.expect("scripts can be flushed");
        let evals = stage.server.calls().await.get("eval").copied();
        crowd.visits() >= 1000 && evals > Some(10)
    })
    .await;
    crowd.end().await;
    nothing_left(&stage.server, PROMPT).await;
}

pub async fn many_cuts_while_locks_are_taken<S: Subject>() {
    let stage = Stage::new().await;
    let mut random = Random::new();
    let clients = [
        stage.client(woken_only()).await,
        stage.client(woken_only()).await,
    ];
    let crowd = Crowd::start::<S>(&clients, "cuts");
    for _ in 0..30 {
        let_pass(random.up_to(Duration::from_millis(100))).await;
        stage.faults().cut_all();
    }
    let before = crowd.visits();
    eventually("locks are acquired again", GENEROUS, async || {
        crowd.visits() > before + 100
    })
    .await;
    crowd.end().await;
    nothing_left(&stage.server, PROMPT).await;
    // Two connections of each client, and no other through the proxy.
    eventually("no connection is left over", PROMPT, async || {
        stage.faults().connections() == 4
    })
    .await;
}

/// The proxy refuses and cuts each new connection. Connections do not pile up.
pub async fn refused_connections_are_retried_until_one_succeeds<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(woken_only()).await;
    let name = unique_name("refused");
    let lock = client.kind::<S>(&name);
    let guard = lock.lock().await.unwrap();
    stage.faults().refuse(true);
    stage.faults().cut_all();
    let second = client.kind::<S>(unique_name("refused"));
    let waiting = tokio::spawn(async move { second.lock().await.map(drop) });
    let_pass(Duration::from_millis(400)).await;
    assert!(!waiting.is_finished() && !guard.is_lost());
    stage.faults().refuse(false);
    timeout(GENEROUS, waiting)
        .await
        .expect("the waiter acquires the lock")
        .unwrap()
        .unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    nothing_left(&stage.server, PROMPT).await;
    eventually("both connections are back", PROMPT, async || {
        stage.faults().connections() == 2
    })
    .await;
}

/// A managed service moves a name to another server in this way.
pub async fn the_client_leaves_a_server_that_became_a_replica<S: Subject>() {
    let (server, other) = (Server::start().await, Server::start().await);
    let client = connect(&server.url(), woken_only()).await;
    let lock = client.kind::<S>(unique_name("replica"));
    lock.run(async |_| ()).await.unwrap();
    // The test asks on one connection, so that all further ones are the client's.
    let admin = server.admin().await;
    let connections = async || {
        let stats: String = redis::cmd("INFO")
            .arg("stats")
            .query_async(&mut admin.clone())
            .await
            .unwrap();
        let count = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = connections().await + 1;
    let port = other.port().to_string();
    server
        .command::<()>(&["REPLICAOF", "127.0.0.1", &port])
        .await;
    let asking = tokio::spawn(async move { lock.lock().await?.unlock().await });
    eventually("the client connects again", GENEROUS, async || {
        connections().await > before
    })
    .await;
    server.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    let entered = timeout(GENEROUS, asking)
        .await
        .expect("the waiter acquires the lock");
    assert_eq!(entered.unwrap(), Ok(Released::Fully));
}
