//! Wake-ups of waiters, and the number of their attempts. One arranged case per test, under a paused clock.

use std::{
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::Duration,
};

use redisson_lock::{Error, LockClient, LostReason, Owner, Released};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Fate, Faults},
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    LEASE, NEVER, SHORT, SOON, client,
    network::{Network, server},
    parked, waiter,
};

#[tokio::test(start_paused = true)]
async fn a_message_for_one_waiter_wakes_one() {
    const WAITERS: u64 = 20;
    let (server, network) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = other.reentrant_lock("a").lock().await.unwrap();
    for _ in 0..WAITERS {
        let lock = one.reentrant_lock("a").owned_by(&Owner::new());
        tokio::spawn(async move {
            let _guard = lock.lock().await;
            sleep(NEVER).await;
        });
    }
    sleep(SHORT).await;
    let before = network.scripts();
    guard.unlock().await.unwrap();
    sleep(SOON).await;
    assert_eq!(server.holders("a").len(), 1);
    // The release and an acquisition.
    let scripts = network.scripts() - before;
    assert!(scripts <= 3, "{scripts} scripts");
}

/// The refusal told the waiter how long the lease lasts.
#[tokio::test(start_paused = true)]
async fn a_waiter_asks_when_the_lease_is_over_and_not_before() {
    let (server, network) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = other.reentrant_lock("a").with_lease(LEASE).lock().await;
    guard.unwrap().leak();
    let began = Instant::now();
    let lock = one.reentrant_lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await.map(|_guard| Instant::now()) });
    sleep(SHORT).await;
    let before = network.scripts();
    sleep(LEASE - 2 * SHORT).await;
    assert_eq!(
        network.scripts(),
        before,
        "the waiter asked before the end of the lease"
    );
    let entered = waiter.await.unwrap().unwrap() - began;
    assert!(entered < LEASE + SOON, "{entered:?}");
}

/// An operator deletes the lock. The next renewal reveals the loss to the holder and to the waiters of its client.
#[tokio::test(start_paused = true)]
async fn waiters_enter_when_their_own_client_finds_the_lock_lost() {
    let (server, _) = server();
    let client = client(&server).await;
    let began = Instant::now();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let waiter = waiter(&client);
    sleep(SHORT).await;
    assert!(server.delete("a"));
    let (entered, _guard) = waiter.await.unwrap();
    assert!(
        entered < began + LEASE / 3 + 2 * SOON,
        "{:?}",
        entered - began
    );
    assert!(guard.is_lost());
}

/// Answers are slow and messages are not. Each round releases the lock 10 ms later in the acquisition.
#[tokio::test(start_paused = true)]
async fn a_release_is_heard_at_every_moment_of_an_acquisition() {
    for moment in (0..500).step_by(10) {
        let (server, network) = server();
        let (one, other) = (client(&server).await, client(&server).await);
        let guard = other.reentrant_lock("a").lock().await.unwrap();
        network.0.answers.store(100, Relaxed);
        let waiter = waiter(&one);
        sleep(Duration::from_millis(moment)).await;
        let released = Instant::now();
        let (released_at, entered) = tokio::join!(guard.unlock(), timeout(LEASE, waiter));
        assert_eq!(released_at.unwrap(), Released::Fully);
        let (entered, _guard) = entered.expect("no waiter enters").unwrap();
        let took = entered - released;
        assert!(took < SHORT, "{took:?}, released after {moment} ms");
    }
}

/// Delays subscriptions by 100 ms.
struct LateSubscriptions;

impl Faults for LateSubscriptions {
    fn sending(&mut self, _connection: u64, command: &'static str) -> Fate {
        let is_late = command.ends_with("SUBSCRIBE");
        Fate {
            delay: SHORT / 10 * u32::from(is_late),
            ..Fate::default()
        }
    }
}

/// A message before the subscription is lost. Each round releases the lock 10 ms later.
#[tokio::test(start_paused = true)]
async fn a_release_is_noticed_at_every_moment_of_a_subscription() {
    for moment in (0..300).step_by(10) {
        let server = InMemoryRedis::new();
        server.set_faults(LateSubscriptions);
        let (one, other) = (client(&server).await, client(&server).await);
        let guard = other.reentrant_lock("a").lock().await.unwrap();
        let waiter = waiter(&one);
        sleep(Duration::from_millis(moment)).await;
        guard.unlock().await.unwrap();
        let entered = timeout(SHORT, waiter).await;
        assert!(entered.is_ok(), "no waiter enters after {moment} ms");
    }
}

/// The lock is forced open before the answer to a grant arrives. The message of the forced release then wakes the next waiter.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_out_of_date_on_arrival_wakes_the_next() {
    let (server, network) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = other.reentrant_lock("a").lock().await.unwrap();
    let first = waiter(&one);
    sleep(SOON).await;
    let second = waiter(&one);
    sleep(SHORT).await;
    network.0.answers.store(100, Relaxed);
    let lock = other.reentrant_lock("a").owned_by(&Owner::new());
    let (released, forced, entered) = tokio::join!(
        guard.unlock(),
        async {
            sleep(SOON).await;
            lock.force_unlock().await
        },
        timeout(SHORT, second),
    );
    assert_eq!(released.unwrap(), Released::Fully);
    assert!(forced.unwrap(), "the lock was free");
    let (_, _second) = entered.expect("the second waiter sleeps on").unwrap();
    let (_, first) = first.await.unwrap();
    assert_eq!(server.holders("a").len(), 1);
    server.advance(LEASE / 2).await;
    assert!(first.is_lost() && !_second.is_lost());
}

/// The release of a writer wakes all readers of a client at once.
#[tokio::test(start_paused = true)]
async fn readers_enter_together() {
    let (server, network) = server();
    let (reading, writing) = (client(&server).await, client(&server).await);
    let guard = writing.read_write_lock("a").write().lock().await.unwrap();
    let readers = Vec::from_iter((0..20).map(|_| {
        let lock = reading.read_write_lock("a").read().owned_by(&Owner::new());
        tokio::spawn(async move { lock.lock().await.map(|guard| (Instant::now(), guard)) })
    }));
    sleep(SHORT).await;
    network.0.delay.store(5, Relaxed);
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        let (entered, guard) = reader.await.unwrap().unwrap();
        assert!(entered - released < SOON, "{:?}", entered - released);
        guards.push(guard);
    }
}

/// The server has forgotten the script of the release, but knows that of the acquisition. The next waiter therefore sends its attempt
/// before the release is repeated, and the refusal arrives after the message.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_asked_before_the_release_is_notified_of_it() {
    let (server, network) = server();
    let client = client(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let waiter = waiter(&client);
    sleep(SOON).await;
    // Delays the answer to the second script from now: each executed script counts down by one.
    network.0.late_answer.store(3, Relaxed);
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let (entered, _guard) = waiter.await.unwrap();
    assert_eq!(
        network.0.late_answer.load(Relaxed),
        0,
        "no answer was delayed"
    );
    assert!(entered - released < SHORT, "{:?}", entered - released);
}

/// A waiter is woken by a release and gives up before it sends an attempt. The next waiter gets the wake-up.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_passes_its_message_on() {
    let (server, _) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = other.reentrant_lock("a").lock().await.unwrap();
    let lock = one.reentrant_lock("a").owned_by(&Owner::new());
    let mut leaving = Box::pin(lock.lock());
    parked(&mut leaving).await;
    let waiter = waiter(&one);
    // Short enough that no task polls.
    let short = Duration::from_millis(10);
    sleep(short).await;
    guard.unlock().await.unwrap();
    sleep(short).await;
    assert_eq!(server.holders("a"), []);
    let left = Instant::now();
    drop(leaving);
    let (entered, _guard) = waiter.await.unwrap();
    assert!(entered - left < short, "{:?}", entered - left);
}

/// Tasks of one client wait for a lock of another client, `delay` ms away. Returns the scripts of 9 s, and the order of entry.
async fn crowd_so_far_away(delay: u64, tasks: u64) -> (u64, Vec<u64>) {
    let (network, server) = (Network::default(), InMemoryRedis::new());
    server.set_faults(network.clone());
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let held = theirs.reentrant_lock("a").lock().await.unwrap();
    network.0.delay.store(delay, Relaxed);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut all = Vec::new();
    for task in 0..tasks {
        let (lock, order) = (ours.reentrant_lock("a"), order.clone());
        all.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push(task);
            guard.unlock().await.unwrap();
        }));
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_secs(2)).await;
    let before = network.scripts();
    sleep(Duration::from_secs(9)).await;
    let asked = network.scripts() - before;
    held.unlock().await.unwrap();
    for task in all {
        task.await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    (asked, order)
}

/// A slow answer does not count as a task that is not polled.
#[tokio::test(start_paused = true)]
async fn a_crowd_far_from_its_server_listens_and_enters_in_order() {
    for delay in [0, 45, 60, 80, 95] {
        let (asked, order) = crowd_so_far_away(delay, 4).await;
        assert!(asked <= 6, "{asked} scripts, {delay} ms away");
        assert_eq!(order, [0, 1, 2, 3], "{delay} ms away");
    }
    // Beyond that distance, the first waiter goes last: its client has not yet measured how long an answer takes.
    for delay in [120, 150, 250] {
        let (asked, order) = crowd_so_far_away(delay, 4).await;
        assert!(asked <= 6, "{asked} scripts, {delay} ms away");
        assert_eq!(order.len(), 4);
    }
}

/// The release of a hold that is gone publishes nothing. Another client's message, which arrives before the answer, is no echo of it.
#[tokio::test(start_paused = true)]
async fn a_message_during_the_release_of_a_lost_hold_wakes_a_waiter() {
    let (server, network) = server();
    let (ours, first, theirs) = (
        client(&server).await,
        client(&server).await,
        client(&server).await,
    );
    let lock = |client: &LockClient| client.reentrant_lock("a").owned_by(&Owner::new());
    // Loads the scripts into the server.
    lock(&ours).lock().await.unwrap().unlock().await.unwrap();
    let _first = lock(&first).lock().await.unwrap();
    let waiter = waiter(&ours);
    sleep(SHORT).await;
    // A deletion publishes no message.
    assert!(server.delete("a"));
    let lost = lock(&ours).try_lock().await.unwrap().expect("it is free");
    assert!(server.delete("a"));
    let held = lock(&theirs).try_lock().await.unwrap();
    let held = held.expect("it is free");
    network.0.answers.store(100, Relaxed);
    let (lost, _, entered) = tokio::join!(
        lost.unlock(),
        async {
            sleep(SOON).await;
            held.unlock().await
        },
        timeout(SHORT, waiter),
    );
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    let (_, _guard) = entered.expect("the waiter sleeps on").unwrap();
}

/// A task is granted the lock without a wait, beside a waiter of its client. Its hold ends without a message and without a release.
#[tokio::test(start_paused = true)]
async fn the_loss_of_a_hold_beside_a_waiter_wakes_it() {
    let (server, _) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = |client: &LockClient| client.reentrant_lock("a").owned_by(&Owner::new());
    let _held = lock(&other).with_lease(NEVER).lock().await.unwrap();
    let waiter = waiter(&one);
    sleep(SHORT).await;
    assert!(server.delete("a"));
    let beside = lock(&one).try_lock().await.unwrap().expect("it is free");
    assert!(server.delete("a"));
    assert_eq!(beside.lost().await, LostReason::Gone);
    let lost = Instant::now();
    let (entered, _guard) = timeout(SHORT, waiter)
        .await
        .expect("the waiter sleeps on")
        .unwrap();
    assert!(entered - lost < SOON, "{:?}", entered - lost);
}
