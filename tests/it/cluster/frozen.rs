//! A shard is paused for less than the node timeout. Operations on the other shards are not delayed
//! (P-R5, P-FR11).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use redisson_lock::{Config, Durability, LockClient, Released, ShardedPubSub};
use testbed::Clustered;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::hazards::stage::{GENEROUS, all_done, connect, let_pass};

const QUIET: Duration = Duration::from_secs(5);
const FROZEN: Duration = Duration::from_secs(10);
/// The interval between two operations of a task. A slow operation also counts for those that it
/// delays.
const PACE: Duration = Duration::from_millis(40);
/// Tasks of each sort.
const TASKS: usize = 4;
/// A busy machine causes delays of its own, also on a second cluster without a paused shard, and
/// perhaps on one of them alone. A client that waits for the paused shard fails each attempt.
const ATTEMPTS: usize = 3;
/// The most rounds, with those in which the machine was too busy for the traffic without a paused shard: they show nothing.
const ROUNDS: usize = 9;
/// Without shards, a client listens at one node, which may be the paused one. Within this time it
/// changes the node.
const FINDS_OUT: Duration = Duration::from_secs(4);
/// The shard that is paused.
const SLEEPER: usize = 0;

/// The durations of operations of one sort, from the time when they were due.
#[derive(Default)]
struct Times(Mutex<Vec<Duration>>);

impl Times {
    fn add(&self, mut time: Duration) {
        let mut times = self.0.lock().unwrap();
        times.push(time);
        while let Some(less) = time.checked_sub(PACE) {
            times.push(less);
            time = less;
        }
    }

    /// The 99th percentile since the last call, which was `window` ago. `MAX` if too few operations
    /// ended.
    fn p99(&self, window: Duration) -> Duration {
        let mut times = std::mem::take(&mut *self.0.lock().unwrap());
        times.sort_unstable();
        let due = TASKS * (window.as_millis() / PACE.as_millis()) as usize;
        match times.len() * 10 < due * 8 {
            true => Duration::MAX,
            false => times[times.len() * 99 / 100],
        }
    }
}

/// Only a message wakes a waiter.
fn config(sharded: ShardedPubSub) -> Config {
    let mut config = Config::default();
    config.command_wait = GENEROUS;
    config.max_poll_interval = Duration::from_secs(600);
    config.watchdog_lease = Duration::from_secs(60);
    config.sharded_pubsub = sharded;
    config
}

/// Runs `operation` at each tick until `stop` is set.
async fn at_each_tick(stop: Arc<AtomicBool>, mut operation: impl AsyncFnMut(Instant)) {
    let mut due = Instant::now();
    while !stop.load(SeqCst) {
        sleep_until(due).await;
        operation(due).await;
        while due < Instant::now() {
            due += PACE;
        }
    }
}

/// Tasks that lock and unlock on the shards that are not paused.
#[derive(Default)]
struct Traffic {
    stop: Arc<AtomicBool>,
    /// Acquisitions and releases of locks without contention.
    pairs: Arc<Times>,
    /// Acquisitions of locks that two clients always want.
    hand_offs: Arc<Times>,
    tasks: JoinSet<()>,
}

impl Traffic {
    async fn begin(cluster: &Clustered, sharded: ShardedPubSub) -> Self {
        let mut traffic = Self::default();
        for node in 1..3 {
            let contended = cluster.name_on(node, "contended").await;
            for _ in 0..2 {
                let client = connect(&cluster.url(), config(sharded)).await;
                let alone = cluster.name_on(node, "alone").await;
                traffic.pairs_of(&client, &alone);
                traffic.hand_offs_of(&client, &contended);
            }
        }
        traffic
    }

    fn pairs_of(&mut self, client: &LockClient, name: &str) {
        let (lock, times) = (client.reentrant_lock(name), self.pairs.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(at_each_tick(stop, async move |due| {
            let guard = lock.lock().await.unwrap();
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
            times.add(due.elapsed());
        }));
    }

    fn hand_offs_of(&mut self, client: &LockClient, name: &str) {
        let (lock, times) = (client.reentrant_lock(name), self.hand_offs.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(at_each_tick(stop, async move |due| {
            let guard = lock.lock().await.unwrap();
            times.add(due.elapsed());
            // Meanwhile the other task arrives and waits.
            let_pass(PACE / 4).await;
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
        }));
    }

    fn p99(&self, window: Duration) -> [Duration; 2] {
        [self.pairs.p99(window), self.hand_offs.p99(window)]
    }

    async fn end(self) {
        self.stop.store(true, SeqCst);
        all_done(self.tasks).await;
    }
}

/// A client holds short leases on the other shards and a long one on the paused shard, for which
/// many tasks wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p_r5_p_fr11_a_shard_asleep_delays_no_client_of_the_rest() {
    let options = [
        "--cluster-node-timeout",
        "60000",
        "--cluster-require-full-coverage",
        "no",
    ];
    let cluster = Clustered::start_with(3, false, &options).await;
    let control = Clustered::start_with(3, false, &options).await;
    let mut renewed = config(ShardedPubSub::Auto);
    renewed.watchdog_lease = Duration::from_secs(3);
    let holder = connect(&cluster.url(), renewed).await;
    let mut awake = Vec::new();
    for number in 0..40 {
        let name = cluster.name_on(1 + number % 2, "awake").await;
        awake.push(holder.reentrant_lock(&name).lock().await.unwrap());
    }
    for sharded in [ShardedPubSub::Auto, ShardedPubSub::Off] {
        let traffic = Traffic::begin(&cluster, sharded).await;
        let beside = Traffic::begin(&control, sharded).await;
        let client = connect(&cluster.url(), config(sharded)).await;
        let on_sleeper = cluster.name_on(SLEEPER, "asleep").await;
        let asleep = client.reentrant_lock(&on_sleeper).lock().await.unwrap();
        let rival = connect(&cluster.url(), config(sharded)).await;
        let (mut attempts, mut rounds) = (0, 0);
        loop {
            rounds += 1;
            let_pass(Duration::from_secs(1)).await;
            let _warm_up = (traffic.p99(QUIET), beside.p99(QUIET));
            let_pass(QUIET).await;
            let quiet = traffic.p99(QUIET);
            cluster.pause(SLEEPER);
            let mut waiting = JoinSet::new();
            for _ in 0..20 {
                let lock = rival.reentrant_lock(&on_sleeper);
                waiting.spawn(async move { lock.try_lock_for(FROZEN).await });
            }
            if sharded == ShardedPubSub::Off {
                let_pass(FINDS_OUT).await;
                traffic.p99(FINDS_OUT);
            }
            beside.p99(FROZEN);
            let_pass(FROZEN).await;
            let (frozen, beside) = (traffic.p99(FROZEN), beside.p99(FROZEN));
            cluster.resume(SLEEPER);
            all_done(waiting).await;
            let message = format!("{quiet:?}, then {frozen:?}, beside it {beside:?}");
            println!("{sharded:?}: p99 of pairs and hand-overs {message}");
            let good = |sort: usize| {
                let most = quiet[sort].max(beside[sort]).saturating_mul(3);
                frozen[sort] < Duration::MAX && frozen[sort] <= most
            };
            if good(0) && good(1) {
                break;
            }
            let shows = |p99: [Duration; 2]| !p99.contains(&Duration::MAX);
            attempts += usize::from(shows(quiet) && shows(beside));
            assert!(attempts < ATTEMPTS && rounds < ROUNDS, "{message}");
        }
        traffic.end().await;
        beside.end().await;
        assert!(!asleep.is_lost());
        assert_eq!(asleep.unlock().await, Ok(Released::Fully));
    }
    for guard in awake {
        assert!(!guard.is_lost());
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}

/// Where no replica is connected, a wait for the connected ones ends at once. It does not wait for
/// the paused master, which is listed as a replica of its successor. A client that waits for no
/// replica serves as the comparison.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_master_that_hung_is_not_waited_for_once_it_is_replaced() {
    let options = ["--cluster-node-timeout", "1000"];
    let cluster = Clustered::start_with(3, true, &options).await;
    cluster.settled().await;
    let mut waits_for_none = Config::default();
    waits_for_none.durability = Durability::Local;
    let mut entering = Vec::new();
    for config in [Config::default(), waits_for_none] {
        let client = connect(&cluster.url(), config).await;
        let lock = client.reentrant_lock(&cluster.name_on(SLEEPER, "hung").await);
        assert_eq!(
            lock.lock().await.unwrap().unlock().await,
            Ok(Released::Fully)
        );
        entering.push((client, lock));
    }
    cluster.pause(SLEEPER);
    let began = Instant::now();
    let entered = entering.into_iter().map(async |(client, lock)| {
        let guard = lock.lock().await.unwrap();
        let entered = began.elapsed();
        drop((guard, client));
        entered
    });
    let entered = join_all(entered).await;
    println!("by default and without replicas: {entered:?}");
    let more = entered[0].saturating_sub(entered[1]);
    // Connections are checked every 500 ms, at any phase.
    assert!(more <= Duration::from_secs(1), "{entered:?}");
}
