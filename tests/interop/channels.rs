//! Sharded channels and channels of the whole cluster: a subscriber to one type receives no
//! messages of the other.

use testbed::eventually;

use crate::ground::Topology;
use crate::kinds::REENTRANT;
use crate::stage::{AMPLE, LONG, Version};
use crate::worker::Lock;

/// Both languages choose the type by themselves, or by their settings. Otherwise tests of the two
/// clusters could test the same.
pub async fn both_languages_subscribe_to_one_sort_of_channel(version: Version) {
    let stage = version.stage().await;
    let expected = match version.on {
        Topology::Cluster => [0, 1],
        _ => [1, 0],
    };
    for peer in [&stage.java, &stage.rust] {
        let lock = Lock::new(&REENTRANT);
        let (holder, waiter) = (lock.worker(peer), lock.worker(peer));
        holder.lock_for(LONG).await;
        let waiting = waiter.lock();
        let channel = (lock.kind.channel)(&lock.name);
        eventually(&format!("{} listens", peer.name()), AMPLE, async || {
            stage.server.listeners_by_kind(&channel).await == expected
        })
        .await;
        holder.unlock().await;
        waiting.await;
        waiter.unlock().await;
    }
}
