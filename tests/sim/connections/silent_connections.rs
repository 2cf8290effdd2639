//! Connections that die in silence, and servers that are only slow. One arranged case per test, under a paused clock.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{LockClient, Released};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Delivering, Executed, Fate, Faults},
};
use tokio::time::{Instant, sleep};

use crate::support::{SOON, client, polling_client, waiter};

/// Longer than a client keeps a connection on which nothing arrives.
const TOO_LONG: Duration = Duration::from_secs(600);
/// The time limit of a call by default.
const COMMAND_WAIT: Duration = Duration::from_secs(3);

/// A firewall between clients and a server.
#[derive(Clone, Default)]
struct Firewall(Arc<State>);

#[derive(Default)]
struct State {
    /// The time of a command on its way, and of its reply.
    distance: Mutex<Duration>,
    /// How long a further connection takes to open.
    opening: Mutex<Duration>,
    /// The server takes up no command before this time.
    busy_until: Mutex<Option<Instant>>,
    /// The newest connection, and the newest one that the firewall has forgotten.
    latest: AtomicU64,
    forgotten: AtomicU64,
    /// The connection of the last script.
    used: AtomicU64,
    commands: AtomicU64,
}

fn get<T: Copy>(value: &Mutex<T>) -> T {
    *value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set<T>(value: &Mutex<T>, to: T) {
    *value.lock().unwrap_or_else(PoisonError::into_inner) = to;
}

impl Firewall {
    /// Commands of the open connections arrive no more, and new connections work.
    fn forget_all(&self) {
        let latest = self.0.latest.load(Relaxed);
        self.0.forgotten.store(latest, Relaxed);
    }

    fn is_forgotten(&self, connection: u64) -> bool {
        connection <= self.0.forgotten.load(Relaxed)
    }

    /// The server is slow for this time.
    fn keep_busy(&self, time: Duration) {
        set(&self.0.busy_until, Some(Instant::now() + time));
    }
}

impl Faults for Firewall {
    fn connecting(&mut self) -> Duration {
        get(&self.0.opening)
    }

    fn sending(&mut self, connection: u64, _command: &'static str) -> Fate {
        self.0.latest.fetch_max(connection, Relaxed);
        let left = get(&self.0.busy_until).map(|until| until.duration_since(Instant::now()));
        let delay = match self.is_forgotten(connection) {
            true => TOO_LONG,
            false => get(&self.0.distance) + left.unwrap_or_default(),
        };
        Fate {
            delay,
            ending: None,
        }
    }

    fn answering(&mut self, _connection: u64) -> Duration {
        get(&self.0.distance)
    }

    fn delivering(&mut self, connection: u64) -> Delivering {
        match self.is_forgotten(connection) {
            true => Delivering::Never,
            false => Delivering::After(get(&self.0.distance)),
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        self.0.commands.fetch_add(1, Relaxed);
        if executed.command == "EVALSHA" {
            self.0.used.store(executed.connection, Relaxed);
        }
    }
}

/// A server behind a firewall, and a client that has used a lock.
async fn stage() -> (InMemoryRedis, Firewall, LockClient) {
    let (server, firewall) = (InMemoryRedis::new(), Firewall::default());
    server.set_faults(firewall.clone());
    let client = polling_client(&server).await;
    visit(&client).await;
    (server, firewall, client)
}

/// Twice: the first sending of a script has its text.
async fn visit(client: &LockClient) {
    let lock = client.reentrant_lock("a");
    for _ in 0..2 {
        let guard = lock.try_lock().await.unwrap().expect("the lock is free");
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}

/// The client checks connections every 500 ms: the calls come at all times in between.
#[tokio::test(start_paused = true)]
async fn first_call_on_a_connection_that_died_in_silence_succeeds_in_time() {
    for (distance, most) in [(0, 1_000), (30, 1_600), (100, 2_600)] {
        let (_server, firewall, client) = stage().await;
        set(&firewall.0.distance, Duration::from_millis(distance));
        let lock = client.reentrant_lock("a");
        for number in 0..12 {
            sleep(Duration::from_millis(2_000 + 43 * number)).await;
            firewall.forget_all();
            let called = Instant::now();
            let tried = lock.try_lock().await;
            let first = called.elapsed();
            let guard = tried.expect("in time").expect("the lock is free");
            sleep(Duration::from_millis(1_000 + 43 * number)).await;
            firewall.forget_all();
            let called = Instant::now();
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
            let longest = first.max(called.elapsed());
            assert!(
                longest < Duration::from_millis(most).min(COMMAND_WAIT),
                "{longest:?} at {distance} ms"
            );
        }
    }
}

/// The call that waits on the silent connection arrives after all, later than its repetition.
#[tokio::test(start_paused = true)]
async fn call_of_a_silent_connection_is_not_executed_after_its_repetition() {
    let (server, firewall, client) = stage().await;
    firewall.forget_all();
    visit(&client).await;
    // A late acquisition would be held for a lease.
    sleep(TOO_LONG).await;
    assert_eq!(server.holders("a"), []);
    assert!(
        client
            .reentrant_lock("a")
            .try_lock()
            .await
            .unwrap()
            .is_some()
    );
}

/// The waiter's request to subscribe is lost with its connection. Only a message can wake it.
#[tokio::test(start_paused = true)]
async fn waiter_on_connections_that_died_in_silence_hears_the_next_release() {
    let (server, firewall) = (InMemoryRedis::new(), Firewall::default());
    server.set_faults(firewall.clone());
    let waiting = client(&server).await;
    visit(&waiting).await;
    firewall.forget_all();
    let holding = client(&server).await;
    let guard = holding.reentrant_lock("a").lock().await.unwrap();
    let waiter = waiter(&waiting);
    sleep(Duration::from_secs(2)).await;
    assert!(!waiter.is_finished());
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let (entered, guard) = waiter.await.unwrap();
    assert!(entered - released < SOON, "{:?}", entered - released);
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn slow_server_costs_no_connection() {
    let (_server, firewall, client) = stage().await;
    set(&firewall.0.distance, Duration::from_millis(30));
    let used = firewall.0.used.load(Relaxed);
    for number in 0..12 {
        for busy in [600, 1_500, 2_000] {
            sleep(Duration::from_millis(2_000 + 43 * number)).await;
            firewall.keep_busy(Duration::from_millis(busy));
            visit(&client).await;
            assert_eq!(firewall.0.used.load(Relaxed), used, "{busy} ms");
        }
    }
}

/// The new connection would be open before the old one has waited for 2 s.
#[tokio::test(start_paused = true)]
async fn server_that_is_always_slow_is_left_in_peace() {
    let (server, firewall, client) = stage().await;
    let open = server.connections();
    let before = firewall.0.latest.load(Relaxed);
    for _ in 0..20 {
        firewall.keep_busy(Duration::from_millis(1_800));
        visit(&client).await;
    }
    let opened = firewall.0.latest.load(Relaxed) - before;
    assert!(opened <= 4, "{opened} further connections");
    assert_eq!(server.connections(), open);
}

/// No call waits: many clients would all connect to a busy server at their next `PING`.
#[tokio::test(start_paused = true)]
async fn idle_client_of_a_busy_server_opens_no_connection() {
    let (_server, firewall, client) = stage().await;
    sleep(Duration::from_secs(60)).await;
    let before = firewall.0.latest.load(Relaxed);
    for _ in 0..60 {
        firewall.keep_busy(Duration::from_millis(1_800));
        sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(firewall.0.latest.load(Relaxed), before);
    drop(client);
}

/// A firewall that also drops new connections: the old rule finds the end.
#[tokio::test(start_paused = true)]
async fn silence_without_another_connection_ends_by_the_time_of_a_ping() {
    let (_server, firewall, client) = stage().await;
    let used = firewall.0.used.load(Relaxed);
    set(&firewall.0.opening, Duration::from_secs(4));
    firewall.forget_all();
    let called = Instant::now();
    let lock = client.reentrant_lock("a");
    let guard = lock.lock().await.unwrap();
    let found = called.elapsed();
    let after = Duration::from_secs(6)..Duration::from_secs(8);
    assert!(after.contains(&found), "{found:?}");
    assert_ne!(firewall.0.used.load(Relaxed), used);
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_connections_ping_every_five_seconds_at_most() {
    let (_server, firewall, client) = stage().await;
    set(&firewall.0.distance, Duration::from_millis(1));
    sleep(Duration::from_secs(60)).await;
    let before = firewall.0.commands.load(Relaxed);
    sleep(Duration::from_secs(600)).await;
    let commands = firewall.0.commands.load(Relaxed) - before;
    assert!(commands <= 231, "{commands} commands");
    drop(client);
}
