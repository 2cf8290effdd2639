//! What a history cannot show, or only in many: rules that take one arranged case each, by a paused clock.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{
    All, Error, GroupLock, LockClient, Majority, Owner, Released,
    test_util::{
        InMemoryRedis,
        simulation::{Delivering, Ending, Executed, Fate, Faults},
    },
};
use tokio::time::{Instant, sleep};

/// A network that takes its time, forgets answers and goes silent when it is told to.
#[derive(Clone, Default)]
struct Network {
    delay: Duration,
    /// How long a connection takes to open.
    opening: Duration,
    /// So many answers to scripts are lost, and their connections with them.
    lost: Arc<AtomicU32>,
    silent: Arc<Mutex<BTreeSet<u64>>>,
    /// The scripts that were run.
    scripts: Arc<AtomicU64>,
    latest: Arc<AtomicU64>,
}

impl Network {
    fn slow(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// The connection that was opened last.
    fn latest(&self) -> u64 {
        self.latest.load(Relaxed)
    }

    /// The connections up to this one fall silent.
    fn silence(&self, last: u64) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.extend(0..=last);
    }

    fn is_silent(&self, connection: u64) -> bool {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.contains(&connection)
    }
}

impl Faults for Network {
    fn connecting(&mut self) -> Duration {
        self.opening
    }

    fn sending(&mut self, connection: u64, command: &'static str) -> Fate {
        self.latest.fetch_max(connection, Relaxed);
        let delay = match self.is_silent(connection) {
            true => Duration::from_secs(1_000_000),
            false => self.delay,
        };
        let left = |lost: u32| lost.checked_sub(1);
        let loses =
            command.starts_with("EVAL") && self.lost.fetch_update(Relaxed, Relaxed, left).is_ok();
        Fate {
            delay,
            ending: loses.then_some(Ending::Unanswered),
        }
    }

    fn delivering(&mut self, connection: u64) -> Delivering {
        match self.is_silent(connection) {
            true => Delivering::Never,
            false => Delivering::After(self.delay),
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        if executed.command.starts_with("EVAL") {
            self.scripts.fetch_add(1, Relaxed);
        }
    }
}

async fn client(server: &InMemoryRedis) -> LockClient {
    server.client().await.expect("the server is up")
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_is_not_repeated_when_its_answer_was_lost() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network.clone());
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    // The scripts are known from here on.
    assert!(!lock.force_unlock().await.unwrap());
    let _guard = lock.lock().await.unwrap();
    network.lost.store(1, Relaxed);
    let forced = lock.force_unlock().await;
    assert!(
        matches!(forced, Err(Error::Unavailable { .. })),
        "{forced:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_what_it_leaves() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    client.reentrant_lock("a").lock().await.unwrap().leak();
    server.stop();
    let report = client.shutdown().await;
    let left: Vec<_> = report
        .unreleased
        .iter()
        .map(|left| (&*left.name, left.holds))
        .collect();
    assert_eq!(left, [("a", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_a_release_that_was_refused() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    server.fail_next(1);
    assert!(matches!(guard.unlock().await, Err(Error::Redis { .. })));
    let report = client.shutdown().await;
    let left: Vec<_> = report
        .unreleased
        .iter()
        .map(|left| (&*left.name, left.holds))
        .collect();
    assert_eq!(left, [("a", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_report_what_was_released_later() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    server.fail_next(1);
    assert!(matches!(inner.unlock().await, Err(Error::Redis { .. })));
    assert_eq!(outer.unlock().await.unwrap(), Released::Fully);
    assert!(client.shutdown().await.unreleased.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_releases_of_dropped_guards() {
    let (server, network) = (
        InMemoryRedis::new(),
        Network::slow(Duration::from_millis(5)),
    );
    server.set_faults(network);
    let client = client(&server).await;
    drop(client.reentrant_lock("a").lock().await.unwrap());
    assert!(client.shutdown().await.unreleased.is_empty());
    assert!(server.holders("a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_try_comes_after_the_release_of_a_guard_that_was_dropped() {
    let (server, network) = (
        InMemoryRedis::new(),
        Network::slow(Duration::from_millis(5)),
    );
    server.set_faults(network);
    let client = client(&server).await;
    let lock = |owner: &Owner| client.reentrant_lock("a").owned_by(owner);
    let (one, other) = (Owner::new(), Owner::new());
    drop(lock(&one).lock().await.unwrap());
    assert!(lock(&other).try_lock().await.unwrap().is_some());
}

/// The answer to an acquisition is lost, and its future is dropped before there is another connection.
#[tokio::test(start_paused = true)]
async fn what_a_dropped_future_may_have_been_granted_is_given_back() {
    let (server, network) = (
        InMemoryRedis::new(),
        Network {
            opening: Duration::from_millis(50),
            ..Network::default()
        },
    );
    server.set_faults(network.clone());
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    network.lost.store(1, Relaxed);
    let asking = tokio::time::timeout(Duration::from_millis(10), lock.lock());
    assert!(asking.await.is_err());
    assert_eq!(server.holders("a").len(), 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.holders("a"), []);
}

#[tokio::test(start_paused = true)]
async fn a_majority_does_not_wait_for_a_slow_member() {
    let mut locks = Vec::new();
    for delay in [0, 0, 40] {
        let server = InMemoryRedis::new();
        let client = client(&server).await;
        server.set_faults(Network::slow(Duration::from_millis(delay)));
        locks.push(client.reentrant_lock("a"));
    }
    let began = Instant::now();
    let guard = GroupLock::<Majority>::of(locks).lock().await.unwrap();
    assert!(
        began.elapsed() < Duration::from_millis(20),
        "{:?}",
        began.elapsed()
    );
    drop(guard);
}

/// The most scripts that two groups need for one acquisition and release, where they meet all the time.
const MOST_SCRIPTS: u64 = 30;

#[tokio::test(start_paused = true)]
async fn groups_in_opposite_order_do_not_meet_again_and_again() {
    const TIMES: u64 = 30;
    let (server, network) = (
        InMemoryRedis::new(),
        Network::slow(Duration::from_millis(1)),
    );
    server.set_faults(network.clone());
    let mut tasks = Vec::new();
    for names in [["a", "b"], ["b", "a"]] {
        let client = client(&server).await;
        let group = GroupLock::<All>::of(names.map(|name| client.reentrant_lock(name)));
        tasks.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                group.lock().await.unwrap().unlock().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let scripts = network.scripts.load(Relaxed);
    assert!(scripts < 2 * TIMES * MOST_SCRIPTS, "{scripts} scripts");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_several_operations_costs_none_of_them() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let group = GroupLock::<All>::of(["a", "b", "c"].map(|name| client.reentrant_lock(name)));
    server.fail_next(1);
    let guard = group.lock().await.unwrap();
    server.fail_next(1);
    assert_eq!(guard.unlock().await.unwrap(), Released::Fully);
}

/// Readers of another client follow one another without a gap.
#[tokio::test(start_paused = true)]
async fn a_writer_enters_between_readers_that_overlap() {
    let (server, network) = (
        InMemoryRedis::new(),
        Network::slow(Duration::from_millis(1)),
    );
    server.set_faults(network);
    let (reading, writing) = (client(&server).await, client(&server).await);
    for reader in 0..4 {
        let lock = reading.read_write_lock("a");
        tokio::spawn(async move {
            sleep(Duration::from_millis(7 * reader)).await;
            loop {
                let guard = lock.read().lock().await.unwrap();
                sleep(Duration::from_millis(25)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    sleep(Duration::from_millis(100)).await;
    let lock = writing.read_write_lock("a");
    let entered = tokio::time::timeout(Duration::from_secs(5), lock.write().lock()).await;
    assert!(entered.is_ok_and(|guard| guard.is_ok()), "no writer enters");
}

/// A connection of which nothing is heard any more, not even its end, is given up.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_replaced() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network.clone());
    let client = client(&server).await;
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
