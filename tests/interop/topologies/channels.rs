//! Sharded channels, and those of the whole cluster: who waits on one kind does not hear who publishes on the other.

use testbed::eventually;

use crate::ground::Topology;
use crate::kinds::REENTRANT;
use crate::stage::{AMPLE, LONG, Pace, Version};
use crate::worker::Lock;

/// So that what runs on each topology runs there.
pub async fn java_listens_where_it_is_told_to(version: Version) {
    for (topology, expected) in [
        (Topology::Cluster, [0, 1]),
        (Topology::ClassicCluster, [1, 0]),
    ] {
        let servers = topology.start().await;
        let version = version.on(topology);
        let java = version.java_peer(&servers, Pace::REDISSONS).await;
        let lock = Lock::new(&REENTRANT);
        let (holder, waiter) = (lock.worker(&java), lock.worker(&java));
        holder.lock_for(LONG).await;
        let waiting = waiter.lock();
        let channel = (lock.kind.channel)(&lock.name);
        eventually("Java listens", AMPLE, async || {
            servers.listeners_by_kind(&channel).await == expected
        })
        .await;
        holder.unlock().await;
        waiting.await;
        waiter.unlock().await;
    }
}
