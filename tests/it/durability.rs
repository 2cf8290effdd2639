//! Acquisitions and renewals that wait for replicas.

use std::time::{Duration, Instant};

use redisson_lock::{Config, Durability, Error, LockClient, LostReason, Released};
use testbed::{Clustered, Replicated, Server, eventually, unique_name};
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet, time::timeout};

use crate::hazards::stage::{GENEROUS, all_done, connect, exists};

/// A long `command_wait` and `replica_wait`.
fn config(durability: Durability) -> Config {
    let mut config = Config::default();
    config.command_wait = GENEROUS;
    config.durability = durability;
    config.replica_wait = GENEROUS / 2;
    config
}

/// Like [`config`], with a short `replica_wait`.
fn hasty(durability: Durability) -> Config {
    let mut config = config(durability);
    config.replica_wait = Duration::from_millis(300);
    config
}

/// Replicas that their master keeps however long they are paused.
async fn with_patient_master(replicas: usize) -> Replicated {
    Replicated::start_with(replicas, &["--repl-timeout", "3600"]).await
}

/// The master's URL, which names no replicas.
fn alone(set_up: &Replicated) -> String {
    set_up.servers[0].url()
}

async fn calls(server: &Server, command: &str) -> u64 {
    let calls = server.calls().await;
    calls.get(command).copied().unwrap_or_default()
}

async fn acknowledged(client: &LockClient) -> Option<u32> {
    let lock = client.reentrant_lock(unique_name("acknowledged"));
    let guard = lock.lock().await.unwrap();
    let acknowledged = guard.acknowledgements();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    acknowledged
}

/// Tries to acquire a lock that too few replicas get, and returns how many did. No hold is left.
async fn too_few(client: &LockClient, server: &Server, wanted: u32) -> u32 {
    let name = unique_name("too few");
    match client.reentrant_lock(&name).lock().await {
        Err(Error::Replication {
            name: of,
            acknowledged,
            wanted: expected,
            ..
        }) => {
            assert_eq!((&*of, expected), (&*name, wanted));
            assert!(!exists(server, &name).await, "the hold is released");
            acknowledged
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_waits_for_no_replica_unless_configured() {
    let set_up = Replicated::start(1).await;
    let server = &set_up.servers[0];
    let client = connect(&alone(&set_up), config(Durability::Auto)).await;
    assert_eq!(acknowledged(&client).await, None);
    assert_eq!(calls(server, "wait").await, 0);
    let lock = client.reentrant_lock(unique_name("configured"));
    let guard = lock.with_durability(Durability::All).lock().await.unwrap();
    assert_eq!(guard.acknowledgements(), Some(1));
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(
        calls(server, "wait").await,
        1,
        "a release waits for no replica"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_waits_for_one_replica_as_redisson_does() {
    let set_up = with_patient_master(2).await;
    let client = connect(&set_up.url(), config(Durability::Auto)).await;
    assert!(acknowledged(&client).await >= Some(1));
    // A paused replica keeps no client from another one.
    set_up.servers[1].pause();
    assert_eq!(acknowledged(&client).await, Some(1));
    set_up.servers[1].resume();
}

/// The client counted the servers of the URL, where Redisson asks the master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_waits_for_a_connected_replica_that_the_url_does_not_name() {
    let set_up = Replicated::start(2).await;
    let server = &set_up.servers[0];
    let url = format!("redis-replicated://127.0.0.1:{}", server.port());
    let client = connect(&url, config(Durability::Auto)).await;
    assert!(acknowledged(&client).await >= Some(1));
    let client = connect(&url, config(Durability::All)).await;
    assert_eq!(acknowledged(&client).await, Some(2));
    // A replica that arrives later counts too.
    let alone = Server::start().await;
    let url = format!("redis-replicated://127.0.0.1:{}", alone.port());
    let client = connect(&url, config(Durability::Auto)).await;
    assert_eq!(acknowledged(&client).await, None);
    let master = format!("127.0.0.1 {}", alone.port());
    let _replica = Server::start_with(&["--replicaof", &master]).await;
    eventually("the replica acknowledges", GENEROUS, async || {
        acknowledged(&client).await == Some(1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_waits_for_no_replica_if_none_is_connected() {
    let set_up = Replicated::start(1).await;
    let client = connect(&set_up.url(), config(Durability::Auto)).await;
    assert_eq!(acknowledged(&client).await, Some(1));
    set_up.servers[1].kill();
    eventually("the master has no replica", GENEROUS, async || {
        set_up.servers[0].info("replication").await["connected_slaves"] == "0"
    })
    .await;
    eventually("the client waits for no replica", GENEROUS, async || {
        acknowledged(&client).await == Some(0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_acknowledgements_are_an_error_and_leave_nothing() {
    let set_up = with_patient_master(2).await;
    let server = &set_up.servers[0];
    let patient = connect(&set_up.url(), config(Durability::All)).await;
    assert_eq!(acknowledged(&patient).await, Some(2));
    // Long enough for the acknowledgement of the other replica.
    let waits = config(Durability::All).with_replica_wait(Duration::from_secs(3));
    let client = connect(&set_up.url(), waits).await;
    set_up.servers[1].pause();
    assert_eq!(too_few(&client, server, 2).await, 1);
    let majority = connect(&set_up.url(), config(Durability::Majority)).await;
    assert_eq!(acknowledged(&majority).await, Some(1));
    set_up.servers[2].pause();
    let majority = connect(&set_up.url(), hasty(Durability::Majority)).await;
    assert_eq!(too_few(&majority, server, 1).await, 0);
    let as_redisson = connect(&set_up.url(), hasty(Durability::Auto)).await;
    assert_eq!(too_few(&as_redisson, server, 1).await, 0);
    let three = connect(&set_up.url(), hasty(Durability::Replicas(3))).await;
    assert_eq!(too_few(&three, server, 3).await, 0);
    for replica in &set_up.servers[1..] {
        replica.resume();
    }
}

/// The text of the error of an acquisition, and the number of connected replicas.
async fn shortfall(client: &LockClient) -> Option<(String, Option<u32>)> {
    let lock = client.reentrant_lock(unique_name("short"));
    match lock.lock().await {
        Ok(guard) => {
            guard.unlock().await.unwrap();
            None
        }
        Err(error @ Error::Replication { connected, .. }) => Some((error.to_string(), connected)),
        Err(other) => panic!("{other:?}"),
    }
}

/// The advice was to raise `replica_wait`, which helps against neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_tells_a_stopped_replica_from_a_missing_one() {
    let set_up = with_patient_master(2).await;
    let too_many = connect(&set_up.url(), hasty(Durability::Replicas(3))).await;
    let (text, connected) = shortfall(&too_many).await.unwrap();
    assert_eq!(connected, Some(2));
    assert!(text.contains("2 are connected to the master"), "{text}");
    for replica in &set_up.servers[1..] {
        replica.pause();
    }
    for durability in [Durability::Auto, Durability::Majority, Durability::All] {
        let client = connect(&set_up.url(), hasty(durability)).await;
        let (text, connected) = shortfall(&client).await.unwrap();
        assert_eq!(connected, Some(2));
        for part in [
            "does not acknowledge",
            "`lag`",
            "INFO replication",
            "disconnect",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
    for replica in &set_up.servers[1..] {
        replica.resume();
    }
}

/// `redis-cli --replica` and tools for migrations are replicas that are online for ever and acknowledge nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_that_reads_the_stream_is_named_and_can_be_disconnected() {
    let server = Server::start_with(&["--repl-diskless-sync-delay", "0"]).await;
    let url = format!("redis-replicated://127.0.0.1:{}", server.port());
    let client = connect(&url, hasty(Durability::Auto)).await;
    assert_eq!(shortfall(&client).await, None);
    let mut tool = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    tool.write_all(b"SYNC\r\n").await.unwrap();
    let reading =
        tokio::spawn(async move { tokio::io::copy(&mut tool, &mut tokio::io::sink()).await });
    eventually("the tool is a replica", GENEROUS, async || {
        let info = server.info("replication").await;
        info.get("slave0")
            .is_some_and(|replica| replica.contains("state=online"))
    })
    .await;
    eventually("the error names it", GENEROUS, async || {
        let found = shortfall(&client).await;
        found.is_some_and(|(text, connected)| connected == Some(1) && text.contains("disconnect"))
    })
    .await;
    server
        .command::<u32>(&["CLIENT", "KILL", "TYPE", "replica"])
        .await;
    reading.await.unwrap().unwrap();
    eventually("locks work again", GENEROUS, async || {
        shortfall(&client).await.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_hold_that_too_few_have_leaves_the_outer_one() {
    let set_up = with_patient_master(1).await;
    let client = connect(&set_up.url(), hasty(Durability::Local)).await;
    let name = unique_name("nested");
    let lock = client.reentrant_lock(&name);
    let outer = lock.lock().await.unwrap();
    set_up.servers[1].pause();
    let inner = lock.with_durability(Durability::All).lock().await;
    assert!(matches!(inner, Err(Error::Replication { .. })), "{inner:?}");
    assert_eq!(lock.hold_count().await, Ok(1));
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
    set_up.servers[1].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_on_too_few_replicas_is_kept_without_the_replica_check() {
    let set_up = with_patient_master(1).await;
    let mut config = hasty(Durability::All);
    config.check_replicas = false;
    let client = connect(&set_up.url(), config).await;
    set_up.servers[1].pause();
    assert_eq!(acknowledged(&client).await, Some(0));
    set_up.servers[1].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_fr13_no_other_command_waits_behind_a_replica_wait() {
    let set_up = with_patient_master(1).await;
    let client = connect(&alone(&set_up), config(Durability::Local)).await;
    set_up.servers[1].pause();
    let slow = client
        .reentrant_lock(unique_name("slow"))
        .with_durability(Durability::All);
    let slow = tokio::spawn(async move { slow.lock().await?.unlock().await });
    eventually("the task waits", GENEROUS, async || {
        let clients = set_up.servers[0].info("clients").await;
        clients["blocked_clients"] == "1"
    })
    .await;
    assert_eq!(acknowledged(&client).await, None);
    assert!(!slow.is_finished());
    set_up.servers[1].resume();
    assert_eq!(slow.await.unwrap(), Ok(Released::Fully));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_acquisitions_share_a_wait_for_replicas() {
    let set_up = Replicated::start(1).await;
    let server = &set_up.servers[0];
    let client = connect(&alone(&set_up), config(Durability::All)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let client = client.clone();
        tasks.spawn(async move { assert_eq!(acknowledged(&client).await, Some(1)) });
    }
    all_done(tasks).await;
    let waits = calls(server, "wait").await;
    assert!((1..100).contains(&waits), "{waits}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_waits_once() {
    let set_up = Replicated::start(1).await;
    let server = &set_up.servers[0];
    let client = connect(&alone(&set_up), config(Durability::All)).await;
    // From now on the server caches the script.
    assert_eq!(acknowledged(&client).await, Some(1));
    let before = calls(server, "wait").await;
    let guard = client
        .multi_lock((0..50).map(|_| unique_name("member")))
        .lock()
        .await
        .unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(calls(server, "wait").await, before + 1);
}

/// A renewal that too few replicas get does not lengthen the hold. One that enough get does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_is_as_durable_as_its_hold() {
    let set_up = with_patient_master(1).await;
    let mut config = config(Durability::Majority);
    config.replica_wait = Duration::from_secs(1);
    // A renewal is sent every 3 s. After the last one, the server has 6 s for the release before
    // the key expires.
    config.watchdog_lease = Duration::from_secs(9);
    let client = connect(&set_up.url(), config).await;
    let name = unique_name("renewed");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    let first = guard.valid_until();
    eventually("the lease is renewed", GENEROUS, async || {
        guard.valid_until() > first
    })
    .await;
    set_up.servers[1].pause();
    let server = &set_up.servers[0];
    let reason = timeout(GENEROUS, guard.lost()).await;
    // Failed once on a busy machine. The message below tells a master without replicas from a late
    // timer.
    let left = guard
        .valid_until()
        .saturating_duration_since(Instant::now());
    let replication = server.info("replication").await;
    let calls = server.calls().await;
    assert_eq!(
        reason,
        Ok(LostReason::Expired),
        "valid for {left:?}; {replication:?}; {calls:?}"
    );
    // The master has renewed the hold all the same. The client releases it, and does not wait for
    // its lease.
    eventually("the hold is released", GENEROUS, async || {
        !exists(server, &name).await
    })
    .await;
    assert_eq!(server.info("stats").await["expired_keys"], "0");
    set_up.servers[1].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t1_a_script_that_is_forgotten_is_sent_again() {
    let set_up = Replicated::start(1).await;
    let client = connect(&alone(&set_up), config(Durability::All)).await;
    assert_eq!(acknowledged(&client).await, Some(1));
    set_up.servers[0].command::<()>(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(acknowledged(&client).await, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t4_an_acquisition_succeeds_where_wait_or_role_is_refused() {
    let set_up = Replicated::start(1).await;
    for (forbidden, durability, expected) in [
        ("-wait", Durability::Auto, None),
        // Without ROLE the number of replicas is unknown.
        ("-role", Durability::Replicas(1), Some(1)),
    ] {
        let rules = [
            "ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", "&*", "+@all", forbidden,
        ];
        set_up.servers[0].command::<()>(&rules).await;
        let url = alone(&set_up).replace("redis://", "redis://app:pw@");
        let client = connect(&url, config(Durability::All)).await;
        let lock = client.reentrant_lock(unique_name("refused"));
        for _ in 0..2 {
            let guard = lock.with_durability(durability).lock().await.unwrap();
            assert_eq!(guard.acknowledgements(), expected, "{forbidden}");
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
        }
    }
}

/// Without `WAITAOF`, or without an append-only file, the client uses `WAIT`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_are_waited_for_where_that_can_be() {
    let set_up = Replicated::start_with(1, &["--appendonly", "yes"]).await;
    let server = &set_up.servers[0];
    let mut config = config(Durability::All);
    config.wait_for_disk = true;
    let client = connect(&alone(&set_up), config).await;
    assert_eq!(acknowledged(&client).await, Some(1));
    let knows: Vec<redis::Value> = server.command(&["COMMAND", "INFO", "WAITAOF"]).await;
    let (used, unused) = match knows.first() {
        Some(redis::Value::Nil) | None => ("wait", "waitaof"),
        _ => ("waitaof", "wait"),
    };
    let before = calls(server, used).await;
    assert_eq!(acknowledged(&client).await, Some(1));
    assert_eq!(calls(server, used).await, before + 1);
    assert_eq!(calls(server, unused).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_in_between_is_replaced() {
    let set_up = Replicated::start(2).await;
    let client = connect(&set_up.url(), config(Durability::Majority)).await;
    assert!(acknowledged(&client).await >= Some(1));
    set_up.servers[0].kill();
    let new = &set_up.servers[1];
    new.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    let port = new.port().to_string();
    set_up.servers[2]
        .command::<()>(&["REPLICAOF", "127.0.0.1", &port])
        .await;
    assert_eq!(acknowledged(&client).await, Some(1));
}

/// Waits for replicas end with the client, on a single master and on a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_waited_shuts_down() {
    let replicated = Replicated::start(1).await;
    let cluster = Clustered::start_with(1, true, &[]).await;
    for url in [replicated.url(), cluster.url()] {
        let client = connect(&url, config(Durability::All)).await;
        assert_eq!(acknowledged(&client).await, Some(1), "{url}");
        let closed = timeout(GENEROUS, client.shutdown()).await;
        assert_eq!(
            closed.expect("the task ends in time").unreleased,
            [],
            "{url}"
        );
    }
}
