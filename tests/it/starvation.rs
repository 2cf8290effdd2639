//! The runtime, other owners and the server do not starve.

use std::time::{Duration, Instant};

use redisson_lock::{Config, LockClient, LostReason};

use testbed::{Server, eventually, unique_name};
use tokio::time::timeout;

use crate::hazards::stage::{Locks, Subject};

const GENEROUS: Duration = Duration::from_secs(30);

async fn connect(server: &Server, watchdog_lease: Duration) -> LockClient {
    let mut config = Config::default();
    config.watchdog_lease = watchdog_lease;
    let builder = LockClient::builder().url(server.url()).config(config);
    builder.build().await.expect("the server is up")
}

/// A hold that ended within the watchdog's look-ahead once woke the watchdog over and over. On one
/// thread no other task ran until the hold was lost.
#[tokio::test]
async fn a_hold_that_ends_soon_leaves_the_runtime_alone() {
    let server = Server::start().await;
    // The watchdog looks ahead a sixtieth of this: ten seconds.
    let client = connect(&server, Duration::from_secs(600)).await;
    let lock = client.reentrant_lock(unique_name("soon"));
    let guard = lock
        .with_lease(Duration::from_secs(8))
        .lock()
        .await
        .unwrap();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!guard.is_lost(), "50 ms took longer than 8 s");
    let _ = guard.unlock().await.unwrap();
}

/// The release of a dropped guard is queued. Its owner once entered its own old hold again, for
/// ever.
pub async fn an_owner_that_drops_and_locks_again_does_not_starve_another<S: Subject>() {
    let server = Server::start().await;
    let (client, other) = (
        connect(&server, GENEROUS).await,
        connect(&server, GENEROUS).await,
    );
    let name = unique_name("greedy");
    let greedy = client.kind::<S>(&name);
    let greedy = tokio::spawn(async move {
        loop {
            let guard = greedy.lock().await.unwrap();
            assert_eq!(greedy.hold_count().await.unwrap(), 1);
            drop(guard);
        }
    });
    let other = other.rival::<S>(&name);
    let got_in = timeout(GENEROUS, other.lock()).await;
    assert!(!greedy.is_finished(), "the first owner runs on");
    greedy.abort();
    let _ = got_in
        .expect("the waiter acquires the lock")
        .unwrap()
        .unlock()
        .await
        .unwrap();
}

/// Once, each release made all trying waiters try again: a hundred attempts per hand-off.
pub async fn p_w9_a_hand_off_costs_a_few_attempts_however_many_tasks_wait<S: Subject>() {
    const TASKS: u64 = 1_000;
    let server = Server::start().await;
    let client = connect(&server, GENEROUS).await;
    let name = unique_name("crowd");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let lock = client.kind::<S>(&name);
        tasks.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    }
    let all = timeout(2 * GENEROUS, tasks.join_all()).await;
    assert_eq!(all.expect("all tasks acquire the lock").len() as u64, TASKS);
    // Each attempt runs one PTTL. A reader's release runs more of them, and one HMGET.
    let counted = if S::SHARED { "hmget" } else { "pttl" };
    let attempts = server.calls().await[counted] as f64 / TASKS as f64;
    println!("{attempts} attempts per hand-off");
    assert!(attempts <= 10.0, "{attempts} attempts per hand-off");
}

/// The release of an inner hold has no reply, and may have been executed. From then on only the
/// outer hold's lease counts.
pub async fn an_unanswered_inner_release_ends_the_outer_hold_in_time<S: Subject>() {
    let server = Server::start().await;
    let client = connect(&server, GENEROUS).await;
    let lock = client.kind::<S>(unique_name("inner"));
    let outer = lock
        .with_lease(Duration::from_secs(1))
        .lock()
        .await
        .unwrap();
    let inner = lock
        .with_lease(Duration::from_secs(600))
        .lock()
        .await
        .unwrap();
    server.pause();
    let paused = Instant::now();
    drop(inner);
    let lost = timeout(GENEROUS, outer.lost()).await;
    server.resume();
    assert_eq!(lost.expect("the loss is reported"), LostReason::Expired);
    assert!(paused.elapsed() < GENEROUS, "{:?}", paused.elapsed());
}

/// A dropped connection attempt once left its connection open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_connect_leaves_no_connection() {
    let server = Server::start().await;
    let connections = async || {
        let list: String = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).await;
        list.lines().count()
    };
    let before = connections().await;
    let url = server.url();
    for micros in (0..4_000).step_by(100) {
        let _ = timeout(Duration::from_micros(micros), LockClient::connect(&url)).await;
    }
    eventually("all connections are closed", GENEROUS, async || {
        connections().await <= before
    })
    .await;
}
