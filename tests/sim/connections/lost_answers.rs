//! Operations whose answer is lost or late, and connections that fall silent. One arranged case per test.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::Error;
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep};

use crate::support::{lossy_network::Network, polling_client};

#[tokio::test(start_paused = true)]
async fn a_forced_release_is_not_repeated_when_its_answer_was_lost() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network.clone());
    let client = polling_client(&server).await;
    let lock = client.reentrant_lock("a");
    // Loads the scripts into the server.
    assert!(!lock.force_unlock().await.unwrap());
    let _guard = lock.lock().await.unwrap();
    network.lost.store(1, Relaxed);
    let forced = lock.force_unlock().await;
    assert!(
        matches!(forced, Err(Error::Unavailable { .. })),
        "{forced:?}"
    );
}

/// The answer to an acquisition is lost. Its future is dropped before the client has reconnected.
#[tokio::test(start_paused = true)]
async fn a_hold_granted_to_a_dropped_future_is_released() {
    let (server, network) = (
        InMemoryRedis::new(),
        Network {
            opening: Duration::from_millis(50),
            ..Network::default()
        },
    );
    server.set_faults(network.clone());
    let client = polling_client(&server).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    network.lost.store(1, Relaxed);
    let asking = tokio::time::timeout(Duration::from_millis(10), lock.lock());
    assert!(asking.await.is_err());
    assert_eq!(server.holders("a").len(), 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.holders("a"), []);
}

/// A silent connection delivers nothing, not even its end.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_replaced() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network.clone());
    let client = polling_client(&server).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    network.silence(network.latest());
    let began = Instant::now();
    let guard = lock.lock().await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    guard.unlock().await.unwrap();
}

/// The connection is down at the end of the lease, and the answer to the first sending of the release is lost. The release came too
/// late to be what ended the hold.
#[tokio::test(start_paused = true)]
async fn release_that_was_first_sent_after_the_lease_reports_the_loss() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network.clone());
    let client = polling_client(&server).await;
    let lock = client
        .reentrant_lock("a")
        .with_lease(Duration::from_secs(1));
    // Loads the scripts into the server.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    sleep(Duration::from_millis(800)).await;
    server.stop();
    sleep(Duration::from_millis(100)).await;
    let unlocking = tokio::spawn(guard.unlock());
    sleep(Duration::from_millis(300)).await;
    network.lost.store(1, Relaxed);
    assert_eq!(server.holders("a"), []);
    server.start();
    let unlocked = unlocking.await.unwrap();
    assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    assert_eq!(network.lost.load(Relaxed), 0, "a sending was lost");
}
