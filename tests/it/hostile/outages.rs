//! The cost of a client while its server is down.

use std::time::Duration;

use redisson_lock::{Config, Error, Guard, LockClient, Owner, Reentrant};
use testbed::{Server, eventually};
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    SOON,
    log_lines::LogLines,
    long::{descriptors, is_long},
    memory,
};

/// Counts the attempts at a port where every connection is closed at once.
async fn attempts_at(port: u16, time: Duration) -> usize {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let mut attempts = 0;
    let counting = async {
        while listener.accept().await.is_ok() {
            attempts += 1;
        }
    };
    let _ = tokio::time::timeout(time, counting).await;
    attempts
}

/// A client that holds this many locks, with leases of 3 s.
async fn client_with_holds(
    server: &Server,
    prefix: &str,
    holds: usize,
) -> (LockClient, Vec<Guard<Reentrant>>) {
    let mut config = Config::default();
    config.watchdog_lease = Duration::from_secs(3);
    let builder = LockClient::builder().url(server.url()).config(config);
    let client = builder.build().await.unwrap();
    let mut guards = Vec::new();
    for number in 0..holds {
        let lock = client.reentrant_lock(format!("{prefix}:{number}"));
        guards.push(lock.lock().await.unwrap());
    }
    (client, guards)
}

/// The outage lasts 12 s, longer than the leases. With `LONG` it lasts a minute, and memory is
/// checked too.
#[tokio::test]
async fn an_outage_bounds_log_lines_and_connection_attempts() {
    let seconds = if is_long() { 60 } else { 12 };
    let (lines, _keep) = LogLines::record(tracing::Level::INFO);
    let server = Server::start().await;
    let (client, guards) = client_with_holds(&server, "held", 200).await;
    let mut waiters = JoinSet::new();
    for number in 0..200 {
        let lock = client.reentrant_lock(format!("held:{number}"));
        waiters.spawn(async move { lock.owned_by(&Owner::new()).lock().await.map(drop) });
    }
    let subscribed = async || {
        server
            .command::<Vec<String>>(&["PUBSUB", "CHANNELS"])
            .await
            .len()
            == 200
    };
    eventually("all waiters subscribe", SOON, subscribed).await;
    let port = server.port();
    let before = (memory(), descriptors());
    server.kill();
    let attempts = attempts_at(port, Duration::from_secs(seconds)).await;
    assert!(
        attempts <= 10 + seconds as usize,
        "{attempts} attempts in {seconds} s"
    );
    assert!(guards.iter().all(|guard| guard.is_lost()));
    let logged = lines.with("");
    assert!(logged.len() <= 10, "{logged:#?}");
    let during = (memory(), descriptors());
    assert!(!lines.with("a hold was lost").is_empty());
    assert!(
        !lines.with(&format!("server=127.0.0.1:{port}")).is_empty(),
        "{logged:#?}"
    );
    server.restart().await;
    drop(guards);
    let again = async || lines.with("connected to Redis again").len() == 2;
    let over = eventually("both recoveries are logged", SOON, again);
    tokio::select! {
        () = over => {}
        () = tokio::time::sleep(SOON / 2) => panic!("{:#?}", lines.with("")),
    }
    while let Some(entered) = waiters.join_next().await {
        let _: Result<(), Error> = entered.unwrap();
    }
    let logged = lines.with("");
    assert!(logged.len() <= 10, "{logged:#?}");
    let after = (memory(), descriptors());
    println!(
        "an outage of {seconds} s with 200 holds and 200 waiters: {attempts} attempts, {} lines; RSS {}, {} and {} KiB, {}, \
         {} and {} descriptors before, during and after it",
        logged.len(),
        before.0 >> 10,
        during.0 >> 10,
        after.0 >> 10,
        before.1,
        during.1,
        after.1,
    );
    // In a short run other tests share this process.
    if is_long() {
        // The allocator may keep a few pages from the first loss of 200 holds.
        assert!(after.0 <= before.0 * 11 / 10 + (4 << 20));
        assert!(after.1 <= before.1 + 4);
    }
}

/// Each hold once logged each refused renewal: 9,600 lines in 4 s.
#[tokio::test]
async fn refused_renewals_of_many_holds_bound_the_log_lines() {
    let (lines, _keep) = LogLines::record(tracing::Level::INFO);
    let server = Server::start().await;
    let (_client, guards) = client_with_holds(&server, "refused", 500).await;
    let refuse = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    let () = server.command(&refuse).await;
    let lost = async || guards.iter().all(|guard| guard.is_lost());
    eventually("the leases expire", SOON, lost).await;
    let logged = lines.with("");
    assert!(!lines.with("a hold was lost").is_empty(), "{logged:#?}");
    assert!(logged.len() <= 10, "{logged:#?}");
}

/// Set in the child process of a test.
const IS_CHILD: &str = "REDISSON_LOCK_TEST_MEMORY_CHILD";

/// Runs itself again as a child process: the memory of this process is that of all tests.
#[tokio::test]
async fn calls_that_time_out_in_an_outage_take_no_memory() {
    if std::env::var(IS_CHILD).is_ok() {
        return memory_of_calls_that_time_out().await;
    }
    let this = "hostile::outages::calls_that_time_out_in_an_outage_take_no_memory";
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture"])
        .env(IS_CHILD, "1")
        .kill_on_drop(true)
        .output();
    let done = child.await.unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    println!("{text}");
    let has_measured = text.contains("100 tasks whose calls time out");
    assert!(done.status.success() && has_measured, "{done:?}");
}

async fn memory_of_calls_that_time_out() {
    let server = Server::start().await;
    let mut config = Config::default();
    config.command_wait = Duration::from_millis(50);
    let builder = LockClient::builder().url(server.url()).config(config);
    let client = builder.build().await.unwrap();
    server.kill();
    let mut tasks = JoinSet::new();
    let seconds = if is_long() { 48 } else { 8 };
    let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
    for number in 0..100 {
        let client = client.clone();
        tasks.spawn(async move {
            let lock = client.fair_lock(format!("fair:{number}"));
            while tokio::time::Instant::now() < until {
                let _ = lock.is_locked().await;
                let _ = lock.try_lock_for(Duration::from_millis(20)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let early = memory();
    while tasks.join_next().await.is_some() {}
    let grown = memory().saturating_sub(early);
    server.restart().await;
    let lock = client.reentrant_lock("after");
    let guard = super::within(lock.lock()).await.unwrap();
    let _ = guard.unlock().await;
    // A call that timed out is not sent after the outage. The tasks made a thousand calls a second.
    let calls = server.calls().await;
    let scripts: u64 = ["eval", "evalsha"]
        .iter()
        .filter_map(|name| calls.get(*name))
        .sum();
    assert!(scripts < 100, "{calls:?}");
    let after = memory();
    println!(
        "100 tasks whose calls time out for {seconds} s: RSS {} KiB, {} KiB more in the outage, {} KiB after it",
        early >> 10,
        grown >> 10,
        after >> 10
    );
    // A leak once took 90 MB.
    assert!(grown < 16 << 20, "{grown} bytes in {seconds} s");
    if is_long() {
        assert!(after <= early * 11 / 10);
    }
}
