//! Many names, waits and clients leave nothing behind. `make soak` sets `LONG` for long runs.

use std::time::Duration;

use redisson_lock::{LockClient, Owner};
use testbed::{Server, eventually};
use tokio::{task::JoinSet, time::Instant};

use super::{SOON, memory};

/// Tasks that run at the same time.
const AT_ONCE: usize = 64;

pub fn is_long() -> bool {
    std::env::var_os("LONG").is_some()
}

/// The number of repetitions in a short run and in a long one.
fn times(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs `one` with each number, many at a time, and prints what memory and descriptors have grown
/// by. The first tenth is not counted, because tables grow to their size.
async fn leaves_nothing<F: Future<Output = ()> + Send + 'static>(
    what: &str,
    count: usize,
    one: impl Fn(usize) -> F,
) {
    let mut tasks = JoinSet::new();
    let (mut before, began) = ((memory(), descriptors()), Instant::now());
    for number in 0..count {
        if tasks.len() >= AT_ONCE {
            tasks.join_next().await.unwrap().unwrap();
        }
        if number == count / 10 {
            before = (memory(), descriptors());
        }
        tasks.spawn(one(number));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let grown = memory().saturating_sub(before.0) >> 20;
    println!(
        "{count} {what} in {:?}: RSS {} MiB, {grown} MiB more; {} descriptors, {} before",
        began.elapsed(),
        memory() >> 20,
        descriptors(),
        before.1,
    );
    // In a short run other tests share this process.
    if is_long() {
        assert!(grown <= 32, "{what}: {grown} MiB");
        assert!(descriptors() <= before.1 + 4, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_leave_nothing() {
    let server = Server::start().await;
    let client = LockClient::connect(&server.url()).await.unwrap();
    leaves_nothing("names", times(5_000, 1_000_000), |number| {
        let lock = client.reentrant_lock(format!("name:{number}"));
        async move {
            let _ = lock.lock().await.unwrap().unlock().await.unwrap();
        }
    })
    .await;
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contended_names_leave_nothing() {
    let server = Server::start().await;
    let client = LockClient::connect(&server.url()).await.unwrap();
    let other = LockClient::connect(&server.url()).await.unwrap();
    leaves_nothing("contended names", times(500, 200_000), |number| {
        let lock = client.reentrant_lock(format!("name:{number}"));
        let held = other.reentrant_lock(format!("name:{number}"));
        async move {
            let guard = held.lock().await.unwrap();
            let busy = lock.owned_by(&Owner::new());
            let waiting = tokio::spawn(async move { busy.lock().await.map(drop) });
            tokio::task::yield_now().await;
            let _ = guard.unlock().await.unwrap();
            waiting.await.unwrap().unwrap();
        }
    })
    .await;
    let gone = async || {
        server.command::<u32>(&["DBSIZE"]).await == 0
            && server
                .command::<Vec<String>>(&["PUBSUB", "CHANNELS"])
                .await
                .is_empty()
    };
    eventually("nothing is left on the server", SOON, gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_leave_nothing() {
    let server = Server::start().await;
    let url = server.url();
    leaves_nothing("clients", times(50, 2_000), |number| {
        let url = url.clone();
        async move {
            let client = LockClient::connect(&url).await.unwrap();
            let lock = client.reentrant_lock(format!("name:{number}"));
            let _ = lock.lock().await.unwrap().unlock().await.unwrap();
            match number % 2 {
                0 => drop(client.shutdown().await),
                // A dropped client ends too.
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    })
    .await;
    let gone = async || {
        let clients: String = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).await;
        clients
            .lines()
            .filter(|line| line.contains("addr=127"))
            .count()
            == 0
    };
    eventually("no connection is left", SOON, gone).await;
}
