//! Clients, owners and times that arranged cases share, networks with faults, and recorded log lines.

pub mod log_lines;
pub mod lossy_network;
pub mod network;

use std::{pin::Pin, time::Duration};

use redisson_lock::{Config, Guard, Lock, LockClient, Owner, Read, Reentrant, Write};
use redisson_lock_test::InMemoryRedis;
use tokio::{
    task::yield_now,
    time::{Instant, sleep, timeout},
};

/// The lease of the default configuration.
pub const LEASE: Duration = Duration::from_secs(30);
pub const SHORT: Duration = Duration::from_secs(1);
/// The most time that an undisturbed task needs to acquire a free lock.
pub const SOON: Duration = Duration::from_millis(50);
pub const NEVER: Duration = Duration::from_secs(3_600);
/// The hand-off window, in which readers may join a hold.
pub const OPEN: Duration = Duration::from_millis(2);

/// A client that does not poll: only messages and the ends of leases wake its waiters.
pub async fn client(server: &InMemoryRedis) -> LockClient {
    let config = Config::default().with_max_poll_interval(NEVER);
    server.client_with(config).await.expect("the server is up")
}

/// Polls `future` until it waits for the server or for a wake-up, but not until its next poll of the server.
pub async fn parked<F: Future + ?Sized>(future: &mut Pin<Box<F>>) {
    let soon = Duration::from_millis(10);
    assert!(timeout(soon, future).await.is_err(), "it has ended");
}

/// A lock per task of the client, each with an owner of its own.
pub fn of_each<const N: usize>(client: &LockClient) -> [Lock<Reentrant>; N] {
    [(); N].map(|()| client.reentrant_lock("a").owned_by(&Owner::new()))
}

/// A task that acquires the lock, and returns the time and the guard.
pub fn waiter(client: &LockClient) -> tokio::task::JoinHandle<(Instant, Guard<Reentrant>)> {
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    tokio::spawn(async move {
        let guard = lock.lock().await.expect("the lock is had");
        (Instant::now(), guard)
    })
}

/// A client with the default configuration, whose waiters also poll.
pub async fn polling_client(server: &InMemoryRedis) -> LockClient {
    server.client().await.expect("the server is up")
}

pub fn reader_of(client: &LockClient, owner: &Owner) -> Lock<Read> {
    client.read_write_lock("a").read().clone().owned_by(owner)
}

pub fn writer_of(client: &LockClient, owner: &Owner) -> Lock<Write> {
    client.read_write_lock("a").write().clone().owned_by(owner)
}

/// A read lock with an owner of its own.
pub fn reader(client: &LockClient) -> Lock<Read> {
    reader_of(client, &Owner::new())
}

/// A write lock with an owner of its own.
pub fn writer(client: &LockClient) -> Lock<Write> {
    writer_of(client, &Owner::new())
}

/// The hold count of each field on the server.
pub fn hold_counts(server: &InMemoryRedis) -> Vec<u64> {
    let holders = server.holders("a").into_iter();
    holders.map(|(_, count)| count).collect()
}

/// Polls `future`, lets other tasks run, and polls it again: its request is under way.
pub async fn started<F: Future + Unpin>(future: &mut F) {
    tokio::select! {
        biased;
        _ = future => panic!("an answer without a delay"),
        () = yield_now() => {}
    }
}

/// Waits until the condition holds.
pub async fn until(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), holds)
        .await
        .expect("the condition never holds");
}
