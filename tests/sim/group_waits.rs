//! What groups do while they wait, and when they stop. One arranged case per test, under a paused clock.

use std::time::Duration;

use redisson_lock::{
    All, AnyLock, GroupLock, Guard, LockClient, Majority, Owner, Reentrant, Released,
    test_util::InMemoryRedis,
};
use tokio::time::{sleep, timeout};

use crate::network::{self, SHORT};

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

/// Holds `name` for another owner.
async fn hold(client: &LockClient, name: &str) -> Guard<Reentrant> {
    let lock = client.reentrant_lock(name).owned_by(&Owner::new());
    lock.lock().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_group_with_both_sides_of_a_lock_returns_during_its_yield() {
    let (server, _) = network::server();
    let (client, other) = (
        network::client(&server).await,
        network::client(&server).await,
    );
    let (owner, lock) = (Owner::new(), client.read_write_lock("a"));
    let sides = [AnyLock::from(lock.write()), AnyLock::from(lock.read())];
    let group = GroupLock::<All>::of(sides).owned_by(&owner);
    let guard = group.lock().await.unwrap();
    let waiter = tokio::spawn(async move {
        let guard = other.read_write_lock("a").write().lock().await.unwrap();
        guard.unlock().await.unwrap();
    });
    until(|| !server.channels().is_empty()).await;
    guard.unlock().await.unwrap();
    let guard = timeout(SHORT, group.lock()).await.unwrap().unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Released::Fully);
    waiter.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_majority_does_without_the_awaited_member_that_fails() {
    let servers = [(); 3].map(|()| InMemoryRedis::new());
    let (mut clients, mut locks, mut guards) = (Vec::new(), Vec::new(), Vec::new());
    for server in &servers {
        let client = network::client(server).await;
        locks.push(client.reentrant_lock("a"));
        clients.push(client);
        guards.push(hold(&network::client(server).await, "a").await);
    }
    let group = GroupLock::<Majority>::of(locks);
    let waiting = tokio::spawn(async move { group.lock().await });
    let is_awaited = |server: &InMemoryRedis| !server.channels().is_empty();
    until(|| servers.iter().any(is_awaited)).await;
    let awaited = servers.iter().position(is_awaited).unwrap();
    clients[awaited].shutdown().await;
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    let guard = timeout(5 * SHORT, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.names().count(), 2);
}
