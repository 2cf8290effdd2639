//! A slot of a cluster moves to another master while services of both languages use a lock in it.

use testbed::{Clustered, slot_of};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ground::{Ground, Topology};
use crate::kinds::REENTRANT;
use crate::stage::{AMPLE, LONG, Stage, Version};
use crate::worker::Lock;

/// Four waiters wait for a lock whose slot moves to another master. Then the lock is released. No
/// lease ends and no poll comes (P-W7).
pub async fn waiters_of_a_slot_that_moves(version: Version) {
    let stage = version.stage().await;
    for peer in [&stage.java, &stage.rust] {
        // Counters of other tests are on the first master.
        let (cluster, kind) = (cluster(&stage), &REENTRANT);
        let name = cluster.name_on(1, "moves").await;
        let lock = Lock { name, kind };
        let holder = lock.worker(peer);
        holder.lock_for(LONG).await;
        let waiters = match version.on {
            // Redisson does not subscribe again after the old master has dropped a sharded channel.
            // Its waiters sleep until the lease ends (measured with 4.7.0), so they take no part
            // here.
            Topology::Cluster => [&stage.rust; 4],
            _ => [&stage.java, &stage.rust, &stage.java, &stage.rust],
        };
        let waiters = waiters.map(|peer| lock.worker(peer));
        let mut waiting = JoinSet::new();
        for (index, waiter) in waiters.iter().enumerate() {
            let inside = waiter.lock_for(LONG);
            waiting.spawn(async move {
                inside.await;
                index
            });
        }
        let processes = if version.on == Topology::Cluster {
            1
        } else {
            2
        };
        stage.waiting_processes(&lock, processes).await;
        let slot = slot_of(&lock.name);
        // Valkey 9 has databases of clusters, and moves slots by one command.
        match cluster.servers[2].database() {
            Some(_) => cluster.move_atomically(slot..=slot, 2).await,
            None => cluster.move_slot(slot, 2).await,
        }
        let mut inside = &holder;
        while !waiting.is_empty() {
            inside.unlock_while_it_moves().await;
            let next = timeout(AMPLE, waiting.join_next()).await;
            let Ok(next) = next else {
                let (fields, pttl) = (stage.fields(&lock).await, stage.pttl(&lock).await);
                panic!(
                    "{inside}'s unlock has woken no waiter; on the server: {fields:?}, {pttl} ms"
                );
            };
            inside = &waiters[next
                .expect("a task waits")
                .expect("the waiter acquires the lock")];
        }
        inside.unlock_while_it_moves().await;
        assert_eq!(stage.pttl(&lock).await, -2);
    }
}

fn cluster(stage: &Stage) -> &Clustered {
    match &stage.server {
        Ground::Clustered(cluster) => cluster,
        other => panic!("no cluster: {other:?}"),
    }
}
