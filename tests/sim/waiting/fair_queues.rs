//! Fair locks whose queue contains waiters of Redisson or of dead processes. The tests write these entries as data, by
//! docs/protocol.md. One arranged case per test, under a paused clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{Config, LockClient, Owner};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Delivering, Fate, Faults, Frame, RawConnection},
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{NEVER, SOON, lossy_network::Network};

const QUEUE: &str = "redisson_lock_queue:{a}";
const PLACES: &str = "redisson_lock_timeout:{a}";

/// The data of a fair lock `a`, as another process writes and reads it.
struct Data(RawConnection);

impl Data {
    async fn of(server: &InMemoryRedis) -> Self {
        Self(server.raw().await.expect("the server is up"))
    }

    async fn send(&self, name: &'static str, words: &[&str]) -> Frame {
        match self.0.send(name, words).await {
            Ok(Frame::Error(message)) => panic!("{name}: {message}"),
            Ok(answer) => answer,
            Err(reason) => panic!("{name}: {reason}"),
        }
    }

    /// The time of the server's clock, in milliseconds.
    async fn now(&self) -> i64 {
        let Frame::List(parts) = self.send("TIME", &[]).await else {
            panic!("the time is a list");
        };
        let [seconds, micros] = &parts[..] else {
            panic!("the time has two parts");
        };
        number(seconds) * 1_000 + number(micros) / 1_000
    }

    /// Adds a waiter to the queue. Its place ends `millis` from now.
    async fn waits(&self, owner: &str, millis: i64) {
        let score = (self.now().await + millis).to_string();
        self.send("RPUSH", &[QUEUE, owner]).await;
        self.send("ZADD", &[PLACES, &score, owner]).await;
    }

    /// The remaining time of a waiter's place, in milliseconds.
    async fn place_left(&self, owner: &str) -> Option<i64> {
        match self.send("ZSCORE", &[PLACES, owner]).await {
            Frame::Null => None,
            score => Some(number(&score) - self.now().await),
        }
    }

    async fn is_held_by(&self, owner: &str) {
        self.send("HSET", &["a", owner, "1"]).await;
        self.send("PEXPIRE", &["a", "3000000"]).await;
    }
}

fn number(frame: &Frame) -> i64 {
    match frame {
        Frame::Number(number) => *number,
        Frame::Text(text) => String::from_utf8_lossy(text)
            .parse::<f64>()
            .unwrap_or_else(|_| panic!("{text:?} is no number"))
            as i64,
        other => panic!("{other:?} is no number"),
    }
}

/// A thread of a Java service.
const JAVA: &str = "11111111-2222-4333-8444-555555555555:47";

/// A task of a process of this crate that died.
fn dead(task: u64) -> String {
    format!(
        "99999999-2222-4333-8444-555555555555:{}",
        4_611_686_018_427_388_000 + task
    )
}

async fn client(server: &InMemoryRedis, max_poll_interval: Duration) -> LockClient {
    let config = Config::default().with_max_poll_interval(max_poll_interval);
    server.client_with(config).await.expect("the server is up")
}

/// A task that acquires the lock, releases it, and returns when it acquired it.
fn waiter(client: &LockClient) -> tokio::task::JoinHandle<Instant> {
    let lock = client.fair_lock("a").owned_by(&Owner::new());
    tokio::spawn(async move {
        let guard = lock.lock().await.expect("an acquisition");
        let entered = Instant::now();
        guard.unlock().await.expect("a release");
        entered
    })
}

/// A waiter of Redisson does not refresh its place, so the place may time out during a long hold.
#[tokio::test(start_paused = true)]
async fn a_release_gives_a_java_waiter_its_turn() {
    let server = InMemoryRedis::new();
    let (holding, other) = (client(&server, NEVER).await, client(&server, NEVER).await);
    let data = Data::of(&server).await;
    let guard = holding.fair_lock("a").lock().await.unwrap();
    data.waits(JAVA, -1_000).await;
    guard.unlock().await.unwrap();
    assert!(other.fair_lock("a").try_lock().await.unwrap().is_none());
    assert!(data.place_left(JAVA).await.is_some_and(|left| left > 0));
}

/// A release notifies the first waiter that may be alive.
#[tokio::test(start_paused = true)]
async fn a_release_removes_waiters_of_a_process_that_died() {
    let server = InMemoryRedis::new();
    let (holding, waiting) = (client(&server, NEVER).await, client(&server, NEVER).await);
    let data = Data::of(&server).await;
    let guard = holding.fair_lock("a").lock().await.unwrap();
    for task in 0..3 {
        data.waits(&dead(task), -1_000).await;
    }
    let waiter = waiter(&waiting);
    sleep(Duration::from_secs(1)).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let took = waiter.await.unwrap() - released;
    assert!(took < SOON, "{took:?}");
}

/// A hold outlasts a place. A waiter that polls keeps its place all the same.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_asks_keeps_its_place() {
    let server = InMemoryRedis::new();
    let max_poll_interval = Duration::from_secs(1);
    let holding = client(&server, NEVER).await;
    let clients = [
        client(&server, max_poll_interval).await,
        client(&server, max_poll_interval).await,
    ];
    let guard = holding.fair_lock("a").lock().await.unwrap();
    let first = waiter(&clients[0]);
    sleep(max_poll_interval / 2).await;
    let second = waiter(&clients[1]);
    sleep(20 * max_poll_interval).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert!(released <= first && first <= second);
    assert!(second - released < SOON, "{:?}", second - released);
}

/// A process of this crate dies with several waiters. Their places last long, because a waiter of Redisson preceded them.
#[tokio::test(start_paused = true)]
async fn dead_waiters_of_one_process_cost_two_places_and_no_more() {
    let server = InMemoryRedis::new();
    let max_poll_interval = Duration::from_secs(1);
    // A refreshed place lasts for three poll intervals.
    let place = 3 * max_poll_interval;
    let waiting = client(&server, max_poll_interval).await;
    let data = Data::of(&server).await;
    for task in 0..5 {
        data.waits(&dead(task), 300_000).await;
    }
    let began = Instant::now();
    let took = waiter(&waiting).await.unwrap() - began;
    assert!(
        took > place && took < 2 * place + 2 * max_poll_interval,
        "{took:?}"
    );
}

/// An operator deletes the lock, and no message announces it.
#[tokio::test(start_paused = true)]
async fn a_newcomer_wakes_the_head_of_a_queue_for_a_free_lock() {
    let server = InMemoryRedis::new();
    let holding = client(&server, NEVER).await;
    let (first, second) = (client(&server, NEVER).await, client(&server, NEVER).await);
    let guard = holding.fair_lock("a").lock().await.unwrap();
    let head = waiter(&first);
    sleep(Duration::from_secs(1)).await;
    assert!(server.delete("a"));
    let came = Instant::now();
    let newcomer = waiter(&second);
    for entered in [head, newcomer] {
        let took = timeout(Duration::from_secs(5), entered).await;
        let took = took.expect("no waiter enters").unwrap() - came;
        assert!(took < SOON, "{took:?}");
    }
    drop(guard);
}

/// Each attempt of a waiter adds the time since its previous attempt to its place. The server may have added it already for an
/// attempt whose answer was lost.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_not_prolong_a_place() {
    let server = InMemoryRedis::new();
    let network = Network::default();
    server.set_faults(network.clone());
    let max_poll_interval = Duration::from_secs(10);
    let waiting = client(&server, max_poll_interval).await;
    let data = Data::of(&server).await;
    data.is_held_by(JAVA).await;
    data.waits(&JAVA.replace("47", "48"), 300_000).await;
    let owner = Owner::new();
    let lock = waiting.fair_lock("a").owned_by(&owner);
    let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
    let field = format!("{}:{owner}", waiting.id());
    sleep(max_poll_interval / 2).await;
    let before = data.place_left(&field).await.expect("a place");
    for _ in 0..5 {
        network.lost.store(1, Relaxed);
        sleep(max_poll_interval).await;
        assert_eq!(network.lost.load(Relaxed), 0, "no answer was dropped");
    }
    let after = data.place_left(&field).await.expect("a place");
    let allowed = max_poll_interval.as_millis() as i64 / 2;
    assert!(
        (before - allowed..before + allowed).contains(&after),
        "the place lasted for {before} ms before the losses, and for {after} ms after them"
    );
    waiter.abort();
}

/// A network with slow messages. The n-th script from now on is late. Zero: none.
#[derive(Clone, Default)]
struct SlowScript(Arc<AtomicU32>);

impl Faults for SlowScript {
    fn sending(&mut self, _connection: u64, command: &'static str) -> Fate {
        let mut fate = Fate::default();
        if command.starts_with("EVAL") {
            let before = self.0.load(Relaxed);
            self.0.store(before.saturating_sub(1), Relaxed);
            fate.delay = if before == 1 { SOON } else { Duration::ZERO };
        }
        fate
    }

    fn delivering(&mut self, _connection: u64) -> Delivering {
        Delivering::After(Duration::from_millis(10))
    }
}

/// A grant arrives after its lease. Its release notifies the next waiter, and its owner sends an attempt before that waiter does.
#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_too_late_does_not_put_its_owner_before_the_next_waiter() {
    let server = InMemoryRedis::new();
    let network = SlowScript::default();
    server.set_faults(network.clone());
    let first = client(&server, NEVER).await;
    let lock = first.fair_lock("a");
    // Loads the scripts into the server.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    let late = client(&server, NEVER).await;
    let lock = late.fair_lock("a").with_lease(SOON);
    let late = tokio::spawn(async move { lock.lock().await.map(drop) });
    sleep(SOON).await;
    let next = client(&server, NEVER).await;
    let next = tokio::spawn(async move { next.fair_lock("a").lock().await.map(drop) });
    sleep(SOON).await;
    // The first script is the release, the second the grant.
    network.0.store(2, Relaxed);
    guard.unlock().await.unwrap();
    for waiter in [next, late] {
        let entered = timeout(4 * SOON, waiter).await;
        entered.expect("no waiter enters").unwrap().unwrap();
    }
    assert_eq!(network.0.load(Relaxed), 0, "no script was delayed");
}

/// A process dies and leaves `dead_waiters` in a fair queue, each with a fresh entry. Returns how long the next living waiter waits
/// after the release.
async fn behind_the_dead(dead_waiters: u64) -> Duration {
    let server = InMemoryRedis::new();
    let living = client(&server, Config::default().max_poll_interval).await;
    let guard = living.fair_lock("a").lock().await.unwrap();
    let data = Data::of(&server).await;
    for task in 0..dead_waiters {
        data.waits(&dead(task), 15_000).await;
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
