//! Kinds whose waiters subscribe to the release.

use redisson_lock::Released;
use testbed::eventually;

use super::{
    Subject,
    bed::{Bed, SOON, only_messages},
    waiting::{expect_grant, spawn_waiter},
};

/// One connection of a client listens for all of its waiters, and unsubscribes after the last.
pub async fn waiters_share_a_connection_and_leave_it<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let rival = bed.rival().await;
    let guard = bed.lock.lock().await.unwrap();
    bed.server.reset_calls().await;
    let first = spawn_waiter(&rival);
    bed.wait_for_refusals(1).await;
    // Further waiters may stand in the local queue and send nothing.
    let waiters = [first, spawn_waiter(&rival), spawn_waiter(&rival)];
    let listeners: String = bed.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    let ours = |line: &&str| !line.contains("name=sentinel-");
    let listening = listeners.lines().filter(ours).count();
    assert_eq!(listening, 1, "{listeners}");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    for waiter in waiters {
        // The waiters acquire the lock in any order.
        tokio::spawn(async move { drop(expect_grant(waiter).await) });
    }
    eventually("no client subscribes any more", SOON, async || {
        bed.channels().await.is_empty()
    })
    .await;
    bed.becomes_free().await;
}
