//! What groups do while they wait, and when they stop. One arranged case per test, under a paused clock.

use std::time::Duration;

use redisson_lock::{All, AnyLock, GroupLock, Owner, Released};
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
