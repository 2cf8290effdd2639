//! What happened in the middle, and what did not: acknowledgements that no replica gave, slots of the dead, what was given up.

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

/// The releases of other locks wait for the same connection, and are executed although their callers have given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_given_up_in_an_outage_is_not_executed_but_a_release_is() {
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
        eventually("it is released all the same", GENEROUS, async || {
            !exists(&server, name).await
        })
        .await;
    }
    // Behind whatever else went out when the connection was there again.
    assert_eq!(
        client.reentrant_lock(held.name()).is_locked().await,
        Ok(true)
    );
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// A `WAIT` that ends because its master is one no more was taken for one that the server does not have: the grant
/// counted, and nothing was waited for ever after (P-T4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t4_a_master_that_is_demoted_during_the_wait_has_no_acknowledgements() {
    let set_up = Replicated::start(1).await;
    let [master, replica] = &set_up.servers[..] else {
        unreachable!("one of each")
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
    eventually("the wait is over", GENEROUS, async || {
        master.info("clients").await["blocked_clients"] == "0"
    })
    .await;
    master.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    let asked = timeout(GENEROUS, asking).await.expect("it is answered");
    match asked.unwrap() {
        // Asked again at what is a master again, it is waited for there.
        Err(Error::Replication { acknowledged, .. }) => assert_eq!(acknowledged, 0),
        other => panic!("{other:?}"),
    }
    eventually("the hold is given back", GENEROUS, async || {
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
        "replicas are still waited for"
    );
    assert_eq!(again.unlock().await, Ok(Released::Fully));
}

/// The same where `ASKING` goes before the script, as its slot is on the way to another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t4_on_the_way_of_a_slot_a_wait_that_is_cut_short_is_no_acknowledgement() {
    let cluster = Clustered::masters(2).await;
    let client = connect(&cluster.url(), config(Durability::Replicas(1))).await;
    let name = cluster.name_on(0, "asked").await;
    let on_its_way = cluster.begin_move(slot_of(&name), 1).await;
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
    let asked = timeout(GENEROUS, asking).await.expect("it is answered");
    match asked.unwrap() {
        Err(Error::Replication { acknowledged, .. }) => assert_eq!(acknowledged, 0),
        other => panic!("{other:?}"),
    }
    let left: u32 = target.command(&["DBSIZE"]).await;
    assert_eq!(left, 0, "the hold is given back");
    cluster.end_move(on_its_way).await;
}

/// What too few have is given back, however long the master refuses to: it was left to its lease at the first refusal.
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
    eventually("giving back is refused", GENEROUS, async || {
        let errors = server.info("errorstats").await;
        errors.contains_key("errorstat_NOREPLICAS")
    })
    .await;
    demand("0").await;
    let asked = timeout(GENEROUS, asking).await.expect("it is answered");
    assert!(matches!(asked.unwrap(), Err(Error::Replication { .. })));
    eventually("it is given back", PROMPT, async || {
        !exists(&server, &name).await
    })
    .await;
}

/// What a dead node had, and another got by hand, was asked for at the dead node for ever: the epoch of the other's
/// claim is not later, and need not be where the dead one has been forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_a_forgotten_node_are_where_they_were_put() {
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
    let guard = guard.expect("it is asked for at the right node").unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
