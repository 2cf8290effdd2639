//! Operations with an uncertain result: `WAIT` that is cut short, slots of dead nodes, calls that
//! timed out.

use std::time::Duration;

use redisson_lock::{Config, Durability, Error, Released};
use testbed::{Clustered, Proxy, Replicated, Server, eventually, slot_of, unique_name};
use tokio::time::timeout;

use crate::hazards::stage::{GENEROUS, PROMPT, connect, exists};

fn config(durability: Durability) -> Config {
    let mut config = Config::default();
    config.command_wait = GENEROUS;
    config.durability = durability;
    config.replica_wait = Duration::from_secs(5);
    config
}

/// Releases of other locks wait for the same connection. They are executed although their callers
/// timed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_that_timed_out_in_an_outage_is_not_executed_but_a_release_is() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let mut short = Config::default();
    short.command_wait = Duration::from_millis(300);
    let client = connect(&proxy.url(), short).await;
    let elsewhere = connect(&server.url(), Config::default()).await;
    let held = elsewhere.reentrant_lock(unique_name("held"));
    let guard = held.lock().await.unwrap();
    let names = [(); 4].map(|()| unique_name("released"));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.reentrant_lock(name).lock().await.unwrap());
    }
    proxy.faults().refuse(true);
    proxy.faults().cut_all();
    for guard in guards {
        let released = guard.unlock().await;
        assert!(
            matches!(released, Err(Error::Unavailable { .. })),
            "{released:?}"
        );
    }
    let forced = client.reentrant_lock(held.name()).force_unlock().await;
    assert!(
        matches!(forced, Err(Error::Unavailable { .. })),
        "{forced:?}"
    );
    proxy.faults().refuse(false);
    for name in &names {
        eventually(
            "the lock is released after the outage",
            GENEROUS,
            async || !exists(&server, name).await,
        )
        .await;
    }
    // The query follows all requests that waited for the connection.
    eventually("the query is answered", GENEROUS, async || {
        client.reentrant_lock(held.name()).is_locked().await == Ok(true)
    })
    .await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// The error of a `WAIT` on a demoted master looks like that of a server without `WAIT`. The grant
/// once counted, and the client never waited for replicas again (P-T4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t4_a_master_that_is_demoted_during_the_wait_has_no_acknowledgements() {
    let set_up = Replicated::start(1).await;
    let [master, replica] = &set_up.servers[..] else {
        unreachable!("a master and a replica")
    };
    let client = connect(&master.url(), config(Durability::Replicas(1))).await;
    replica.pause();
    let name = unique_name("demoted");
    let lock = client.reentrant_lock(&name);
    let asking =
        tokio::spawn(async move { lock.lock().await.map(|guard| guard.acknowledgements()) });
    eventually("the task waits", GENEROUS, async || {
        master.info("clients").await["blocked_clients"] == "1"
    })
    .await;
    let port = replica.port().to_string();
    master
        .command::<()>(&["REPLICAOF", "127.0.0.1", &port])
        .await;
    eventually("the `WAIT` has ended", GENEROUS, async || {
        master.info("clients").await["blocked_clients"] == "0"
    })
    .await;
    master.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    let asked = timeout(GENEROUS, asking)
        .await
        .expect("the call ends in time");
    match asked.unwrap() {
        // The server is a master again, and the repeated `WAIT` finds no replica.
        Err(Error::Replication { acknowledged, .. }) => assert_eq!(acknowledged, 0),
        other => panic!("{other:?}"),
    }
    eventually("the hold is released", GENEROUS, async || {
        !exists(master, &name).await
    })
    .await;

    replica.resume();
    let port = master.port().to_string();
    replica
        .command::<()>(&["REPLICAOF", "127.0.0.1", &port])
        .await;
    set_up.all_follow(0).await;
    let again = client
        .reentrant_lock(unique_name("again"))
        .lock()
        .await
        .unwrap();
    assert_eq!(
        again.acknowledgements(),
        Some(1),
        "the client still waits for replicas"
    );
    assert_eq!(again.unlock().await, Ok(Released::Fully));
}

/// The same for a slot that moves, where `ASKING` precedes the script.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t4_a_wait_that_is_cut_short_while_its_slot_moves_is_no_acknowledgement() {
    let cluster = Clustered::masters(2).await;
    let client = connect(&cluster.url(), config(Durability::Replicas(1))).await;
    let name = cluster.name_on(0, "asked").await;
    let slot_move = cluster.begin_move(slot_of(&name), 1).await;
    let target = &cluster.servers[1];
    let lock = client.reentrant_lock(&name);
    let asking =
        tokio::spawn(async move { lock.lock().await.map(|guard| guard.acknowledgements()) });
    let mut waiting = None;
    eventually("the task waits", GENEROUS, async || {
        let clients: String = target.command(&["CLIENT", "LIST"]).await;
        let waits = clients.lines().find(|client| client.contains("cmd=wait"));
        let id = waits.and_then(|client| client.split(' ').next()?.strip_prefix("id="));
        waiting = id.map(str::to_owned);
        waiting.is_some()
    })
    .await;
    let unblock = ["CLIENT", "UNBLOCK", &waiting.unwrap(), "ERROR"];
    assert_eq!(target.command::<u32>(&unblock).await, 1);
    let asked = timeout(GENEROUS, asking)
        .await
        .expect("the call ends in time");
    match asked.unwrap() {
        Err(Error::Replication { acknowledged, .. }) => assert_eq!(acknowledged, 0),
        other => panic!("{other:?}"),
    }
    let left: u32 = target.command(&["DBSIZE"]).await;
    assert_eq!(left, 0, "the hold is released");
    cluster.end_move(slot_move).await;
}

/// The client releases a hold that too few replicas have. It repeats a refused release, and does
/// not leave the hold to its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_on_too_few_replicas_is_released_once_the_master_accepts_writes() {
    let server = Server::start().await;
    let client = connect(&server.url(), config(Durability::Replicas(1))).await;
    let name = unique_name("refused");
    let lock = client.reentrant_lock(&name);
    let asking = tokio::spawn(async move { lock.lock().await.map(drop) });
    eventually("the task waits", GENEROUS, async || {
        server.info("clients").await["blocked_clients"] == "1"
    })
    .await;
    let demand = async |replicas: &str| {
        let set = ["CONFIG", "SET", "min-replicas-to-write", replicas];
        server.command::<()>(&set).await;
    };
    demand("1").await;
    eventually("the release is refused", GENEROUS, async || {
        let errors = server.info("errorstats").await;
        errors.contains_key("errorstat_NOREPLICAS")
    })
    .await;
    demand("0").await;
    let asked = timeout(GENEROUS, asking)
        .await
        .expect("the call ends in time");
    assert!(matches!(asked.unwrap(), Err(Error::Replication { .. })));
    eventually("the hold is released", PROMPT, async || {
        !exists(&server, &name).await
    })
    .await;
}

/// An operator gives a dead node's slots to another node. Its epoch is no later than the dead
/// node's, which the cluster has forgotten. The client once asked the dead node for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_a_forgotten_node_belong_to_the_node_that_claims_them() {
    let cluster = Clustered::masters(3).await;
    let client = connect(&cluster.url(), config(Durability::Local)).await;
    let name = cluster.name_on(2, "orphan").await;
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let dead: String = cluster.servers[2].command(&["CLUSTER", "MYID"]).await;
    cluster.kill(2);
    for server in &cluster.servers[..2] {
        server.command::<()>(&["CLUSTER", "FORGET", &dead]).await;
    }
    let add = ["CLUSTER", "ADDSLOTSRANGE", "10922", "16383"];
    cluster.servers[0].command::<()>(&add).await;
    cluster.settled().await;
    let guard = timeout(GENEROUS, client.reentrant_lock(&name).lock()).await;
    let guard = guard.expect("the client asks the new node").unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
