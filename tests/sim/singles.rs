//! What a history cannot show, or only in many: rules that take one arranged case each, by a paused clock.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::lines::Lines;
use futures_util::FutureExt;
use redisson_lock::{
    All, Config, Error, GroupLock, Lock, LockClient, Majority, Owner, Reentrant, Released,
    test_util::{
        InMemoryRedis,
        simulation::{Delivering, Ending, Executed, Fate, Faults, Frame},
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
async fn a_shutdown_reports_the_holds_that_it_leaves() {
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
async fn a_shutdown_does_not_report_a_hold_released_after_a_refused_unlock() {
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
async fn a_hold_granted_to_a_dropped_future_is_released() {
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

/// A lock of one owner, for a fixed time.
fn leased(client: &LockClient, owner: &Owner, lease: Duration) -> Lock<Reentrant> {
    client.reentrant_lock("a").owned_by(owner).with_lease(lease)
}

#[tokio::test(start_paused = true)]
async fn an_outer_lease_begins_anew_on_both_sides_when_an_inner_hold_ends() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let lock = leased(&client, &Owner::new(), Duration::from_secs(3));
    let outer = lock.lock().await.unwrap();
    let before = outer.valid_until();
    let inner = lock.lock().await.unwrap();
    server.advance(Duration::from_millis(2_700)).await;
    inner.unlock().await.unwrap();
    let ours = outer.valid_until() - Instant::now().into_std();
    let servers = server.remaining_lease("a").unwrap();
    assert!(
        ours < servers && servers - ours <= Duration::from_millis(33),
        "{ours:?}, {servers:?}"
    );
    assert!(outer.valid_until() > before);
    server.advance(Duration::from_millis(2_500)).await;
    assert_eq!(outer.unlock().await.unwrap(), Released::Fully);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_long_inner_lease_does_not_shorten_the_outer_validity() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let owner = Owner::new();
    let outer = leased(&client, &owner, Duration::from_secs(3))
        .lock()
        .await
        .unwrap();
    let before = outer.valid_until();
    let inner = leased(&client, &owner, Duration::from_secs(20))
        .lock()
        .await
        .unwrap();
    assert_eq!(outer.valid_until(), before);
    assert!(inner.valid_until() > before + Duration::from_secs(15));
    server.advance(Duration::from_secs(10)).await;
    assert!(!outer.is_lost(), "the inner hold keeps the lock");
    inner.unlock().await.unwrap();
    assert!(outer.valid_until() > before);
    server.advance(Duration::from_secs(3)).await;
    assert!(outer.is_lost() && server.holders("a").is_empty());
}

/// The answer to a nested acquisition is lost, and its future is dropped: its longer lease goes with it.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_dropped_nested_acquisition_leaves_the_outer_lease() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network.clone());
    let client = client(&server).await;
    let owner = Owner::new();
    let outer = leased(&client, &owner, Duration::from_secs(2))
        .lock()
        .await
        .unwrap();
    network.lost.store(1, Relaxed);
    let nested = leased(&client, &owner, Duration::from_secs(20));
    assert!(nested.lock().now_or_never().is_none());
    server.advance(Duration::from_secs(1)).await;
    assert_eq!(server.holders("a")[0].1, 1);
    let servers = server.remaining_lease("a").unwrap();
    let ours = outer.valid_until() - Instant::now().into_std();
    assert!(
        ours < servers && servers < Duration::from_secs(2),
        "{ours:?}, {servers:?}"
    );
    server.advance(Duration::from_secs(2)).await;
    assert!(outer.is_lost() && server.holders("a").is_empty());
}

/// The last hundredth of a lease is not the holder's any more, but the server's still: a day's lease has a quarter of an hour.
#[tokio::test(start_paused = true)]
async fn a_lock_unlocked_at_the_very_end_of_its_lease_is_free() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    for unlocks in [true, false] {
        let guard = leased(&client, &Owner::new(), DAY).lock().await.unwrap();
        server.advance(DAY.mul_f64(0.995)).await;
        assert!(guard.is_lost() && server.holders("a").len() == 1);
        match unlocks {
            true => assert!(matches!(guard.unlock().await, Err(Error::Lost { .. }))),
            false => drop(guard),
        }
        server.advance(Duration::from_millis(10)).await;
        assert_eq!(server.holders("a"), []);
    }
}

/// Two branches of one task wait for one lock: what one gets, the other has as well.
#[tokio::test(start_paused = true)]
async fn an_owner_that_enters_takes_its_other_waiters_along() {
    let server = InMemoryRedis::new();
    let (holding, waiting) = (client(&server).await, client(&server).await);
    let (held, owner) = (holding.fair_lock("b").lock().await.unwrap(), Owner::new());
    let guard = leased(&holding, &Owner::new(), Duration::from_secs(60))
        .lock()
        .await
        .unwrap();
    let lock = waiting.reentrant_lock("a").owned_by(&owner);
    let fair = waiting.fair_lock("b").owned_by(&owner);
    let both = tokio::spawn(async move {
        let one = tokio::join!(lock.lock(), lock.lock());
        let other = tokio::join!(fair.lock(), fair.lock());
        (
            one.0.unwrap(),
            one.1.unwrap(),
            other.0.unwrap(),
            other.1.unwrap(),
        )
    });
    sleep(Duration::from_secs(1)).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    held.unlock().await.unwrap();
    let _held = both.await.unwrap();
    let took = released.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?}");
}

/// One branch waits, and another of the same owner gets the lock without waiting.
#[tokio::test(start_paused = true)]
async fn an_owner_that_tries_takes_its_waiters_along() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network);
    let (holding, waiting) = (client(&server).await, client(&server).await);
    let guard = holding.reentrant_lock("a").lock().await.unwrap();
    let lock = waiting.reentrant_lock("a").owned_by(&Owner::new());
    let (first, second) = tokio::join!(
        async {
            let guard = lock.lock().await.unwrap();
            (guard, Instant::now())
        },
        async {
            sleep(Duration::from_secs(1)).await;
            // Of this release no message tells.
            server.delete("a");
            let guard = lock.try_lock().await.unwrap().expect("it is free");
            (guard, Instant::now())
        }
    );
    assert!(first.1 - second.1 < Duration::from_millis(100));
    drop(guard);
}

/// Three of five servers are dead. The tasks keep each other from the two that live, but that is not why none enters.
#[tokio::test(start_paused = true)]
async fn a_majority_that_cannot_be_had_is_unavailable_from_every_method() {
    let (mut locks, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let server = InMemoryRedis::new();
        locks.push(client(&server).await.reentrant_lock("a"));
        servers.push(server);
    }
    servers[..3].iter().for_each(InMemoryRedis::stop);
    let tasks = (0..4).map(|_| {
        let group = GroupLock::<Majority>::of(locks.clone()).owned_by(&Owner::new());
        async move {
            let waited = group.try_lock_for(Duration::from_secs(2)).await;
            assert!(
                matches!(waited, Err(Error::Unavailable { .. })),
                "{waited:?}"
            );
            let tried = group.try_lock().await;
            assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
        }
    });
    futures_util::future::join_all(tasks).await;
}

#[tokio::test(start_paused = true)]
async fn a_majority_held_by_another_owner_is_busy_although_a_server_is_dead() {
    let (mut locks, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let server = InMemoryRedis::new();
        locks.push(client(&server).await.reentrant_lock("a"));
        servers.push(server);
    }
    let group = |owner: &Owner| GroupLock::<Majority>::of(locks.clone()).owned_by(owner);
    let guard = group(&Owner::new()).lock().await.unwrap();
    servers[0].stop();
    let other = group(&Owner::new());
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(
        other
            .try_lock_for(Duration::from_secs(2))
            .await
            .unwrap()
            .is_none()
    );
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_releases_leaves_nothing() {
    let server = InMemoryRedis::new();
    let (client, other) = (client(&server).await, client(&server).await);
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    client.fair_lock("b").lock().await.unwrap().leak();
    client
        .read_write_lock("c")
        .write()
        .lock()
        .await
        .unwrap()
        .leak();
    let lock = other.reentrant_lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await.map(|guard| guard.valid_until()) });
    sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    let report = client.shutdown_and_release().await;
    assert!(report.unreleased.is_empty(), "{report:?}");
    assert!(guard.is_lost());
    waiter.await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(server.holders("b").is_empty() && server.holders("c").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_report_an_expired_hold() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let guard = leased(&client, &Owner::new(), Duration::from_secs(5))
        .lock()
        .await
        .unwrap();
    server.fail_next(1);
    assert!(matches!(guard.unlock().await, Err(Error::Redis { .. })));
    server.advance(Duration::from_secs(6)).await;
    assert!(client.shutdown().await.unreleased.is_empty());
}

/// A task waits for a child that waits for the task's lock.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_own_child_is_logged_once() {
    let (lines, _kept) = Lines::keep_from(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    let owner = Owner::new();
    let guard = lock.owned_by(&owner).lock().await.unwrap();
    let child = tokio::spawn(async move { lock.lock().await.map(drop) });
    sleep(Duration::from_millis(9_900)).await;
    assert!(lines.with("owner.spawn").is_empty());
    sleep(Duration::from_secs(25)).await;
    let said = lines.with("owner.spawn");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains(&format!("holder={owner}")) && said[0].contains("name=a"),
        "{said:?}"
    );
    drop(guard);
    child.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_wait_is_not_reported_as_a_deadlock() {
    let (lines, _kept) = Lines::keep_from(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let with = |warning: Option<Duration>| Config::default().with_deadlock_warning(warning);
    let one = server
        .client_with(with(Some(Duration::from_secs(1))))
        .await
        .unwrap();
    let quiet = server.client_with(with(None)).await.unwrap();
    let other = client(&server).await;
    let guards = [
        other.reentrant_lock("a").lock().await.unwrap(),
        quiet.reentrant_lock("b").lock().await.unwrap(),
    ];
    let locks = [one.reentrant_lock("a"), quiet.reentrant_lock("b")];
    let mut tasks: Vec<_> = locks
        .into_iter()
        .map(|lock| tokio::spawn(async move { lock.lock().await.map(drop) }))
        .collect();
    // Each waits for long, and none holds for long.
    tasks.extend((0..20).map(|_| {
        let lock = one.reentrant_lock("c");
        tokio::spawn(async move {
            let _guard = lock.lock().await?;
            sleep(Duration::from_millis(300)).await;
            Ok(())
        })
    }));
    sleep(Duration::from_secs(5)).await;
    drop(guards);
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(lines.with("owner.spawn"), [""; 0]);
}

/// One of five servers is down when the process starts.
#[tokio::test(start_paused = true)]
async fn a_client_that_starts_lazily_is_a_member_that_cannot_be_reached_until_it_can() {
    let (mut locks, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        servers.push(InMemoryRedis::new());
    }
    servers[1].stop();
    for server in &servers {
        let client = server.builder().lazy(true).build().await.unwrap();
        locks.push(client.reentrant_lock("a"));
    }
    sleep(Duration::from_millis(100)).await;
    let group = GroupLock::<Majority>::of(locks.clone());
    let guard = group.try_lock().await.unwrap().expect("four are enough");
    assert_eq!(guard.unlock().await.unwrap(), Released::Fully);
    let tried = locks[1].try_lock().await;
    assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    servers[1].start();
    let alone = locks[1].lock().await.unwrap();
    alone.unlock().await.unwrap();
}

/// A client has died that left so many waiters in a queue, each of which had just refreshed its place. Says how long the one
/// behind them waits from the release on.
async fn behind_the_dead(dead: u64) -> Duration {
    let server = InMemoryRedis::new();
    let living = client(&server).await;
    let guard = living.fair_lock("a").lock().await.unwrap();
    let raw = server.raw().await.unwrap();
    let Ok(Frame::List(time)) = raw.send("TIME", &[""; 0]).await else {
        panic!("there is no time");
    };
    let Frame::Text(seconds) = &time[0] else {
        panic!("there are no seconds");
    };
    let seconds: u64 = String::from_utf8_lossy(seconds).parse().unwrap();
    let until = ((seconds + 15) * 1_000).to_string();
    let first = 4_611_686_018_427_387_904u64;
    for number in 0..dead {
        let owner = format!("01234567-89ab-cdef-0123-456789abcdef:{}", first + number);
        let queue = ["redisson_lock_queue:{a}", &owner];
        raw.send("RPUSH", &queue).await.unwrap();
        let place = ["redisson_lock_timeout:{a}", &until, &owner];
        raw.send("ZADD", &place).await.unwrap();
    }
    let lock = living.fair_lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await.map(|_guard| Instant::now()) });
    sleep(Duration::from_millis(100)).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    waiter.await.unwrap().unwrap() - released
}

#[tokio::test(start_paused = true)]
async fn a_dead_head_of_a_fair_queue_costs_the_next_six_seconds_at_most() {
    let took = behind_the_dead(1).await;
    assert!(took <= Duration::from_secs(6), "{took:?}");
    let took = behind_the_dead(4).await;
    assert!(took <= Duration::from_secs(8), "{took:?}");
}
