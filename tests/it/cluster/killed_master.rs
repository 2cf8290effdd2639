//! A multi-lock over a master that is killed goes on soon after a single lock of the same shard.
//!
//! `TOPOLOGY_ROUNDS` sets the number of rounds, 1 by default.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use redisson_lock::{Config, LockClient};
use testbed::{Clustered, eventually};
use tokio::task::JoinSet;

use super::upheaval::rounds;
use crate::hazards::stage::{GENEROUS, all_done, connect};

/// The longest time that a multi-lock stands still beyond a single lock.
const BEYOND: Duration = Duration::from_secs(2);

/// The times of acquisitions by several tasks.
#[derive(Default)]
struct Times(Mutex<Vec<Instant>>);

impl Times {
    fn add(&self) {
        self.0.lock().unwrap().push(Instant::now());
    }

    fn since(&self, begin: Instant) -> usize {
        let times = self.0.lock().unwrap();
        times.iter().filter(|at| **at > begin).count()
    }

    /// The longest time without an acquisition that ended after `begin`.
    fn longest_gap(&self, begin: Instant) -> Duration {
        let times = self.0.lock().unwrap();
        let mut times = times.clone();
        times.sort();
        let pairs = times.windows(2).filter(|pair| pair[1] > begin);
        pairs
            .map(|pair| pair[1] - pair[0])
            .max()
            .unwrap_or_default()
    }
}

async fn keep_locking(
    client: LockClient,
    names: Vec<String>,
    times: Arc<Times>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(SeqCst) {
        let done = match &names[..] {
            [name] => match client.reentrant_lock(name).lock().await {
                Ok(guard) => {
                    times.add();
                    guard.unlock().await.map(drop)
                }
                Err(error) => Err(error),
            },
            names => match client.multi_lock(names).lock().await {
                Ok(guard) => {
                    times.add();
                    guard.unlock().await.map(drop)
                }
                Err(error) => Err(error),
            },
        };
        match done {
            Ok(()) => {}
            // A replica that copies its new master's data may be too slow for an acknowledgement.
            Err(error) if error.is_retryable() => println!("{names:?}: {error}"),
            Err(error) => panic!("{names:?}: {error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_lock_goes_on_with_single_locks_after_a_master_is_killed() {
    let cluster = Clustered::start().await;
    let mut gaps: Vec<(Duration, Duration)> = Vec::new();
    for round in 0..rounds() {
        cluster.settled().await;
        let mut masters = Vec::new();
        for node in 0..cluster.servers.len() {
            if cluster.is_master(node).await {
                masters.push(node);
            }
        }
        let mut names = Vec::new();
        for node in &masters {
            names.push(cluster.name_on(*node, "multi").await);
        }
        let single = vec![cluster.name_on(masters[0], "single").await];
        let (of_single, of_multi) = (Arc::<Times>::default(), Arc::<Times>::default());
        let stop = Arc::<AtomicBool>::default();
        let (mut clients, mut tasks) = (Vec::new(), JoinSet::new());
        for _ in 0..2 {
            let client = connect(&cluster.url(), Config::default()).await;
            for (names, times) in [(&single, &of_single), (&names, &of_multi)] {
                for _ in 0..2 {
                    let (client, names) = (client.clone(), names.clone());
                    let (times, stop) = (times.clone(), stop.clone());
                    tasks.spawn(keep_locking(client, names, times, stop));
                }
            }
            clients.push(client);
        }
        let begin = Instant::now();
        let go_on = async |since: Instant| {
            let both = [&of_single, &of_multi];
            eventually("both sorts are acquired", 4 * GENEROUS, async || {
                both.iter().all(|times| times.since(since) > 10)
            })
            .await;
        };
        go_on(begin).await;
        let killed = Instant::now();
        cluster.kill(masters[0]);
        // Holds from before the kill may be released meanwhile.
        go_on(killed + Duration::from_millis(500)).await;
        let (single, multi) = (of_single.longest_gap(killed), of_multi.longest_gap(killed));
        println!("round {round}: single {single:?}, multi {multi:?}");
        stop.store(true, SeqCst);
        all_done(tasks).await;
        cluster.restart(masters[0]).await;
        gaps.push((single, multi));
    }
    let is_soon = |(single, multi): &(Duration, Duration)| *multi <= *single + BEYOND;
    assert!(gaps.iter().all(is_soon), "single and multi: {gaps:?}");
}
