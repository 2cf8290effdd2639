//! Hand-offs between tasks of one client, and its local queue. One arranged case per test, under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{Config, Error, Owner, Released};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    LEASE, NEVER, SHORT, SOON, client, lossy_network::slow_server, network::server, of_each,
    parked, polling_client, waiter,
};

/// A task accepts a hand-off and is not polled. The lock goes to the next waiter, and in the end to the server.
#[tokio::test(start_paused = true)]
async fn unaccepted_hand_off_is_released() {
    let (server, _) = server();
    let config = Config::default().with_local_hand_off(SOON);
    let client = server.client_with(config).await.unwrap();
    let [one, two, three] = of_each(&client);
    let first = one.lock().await.unwrap();
    let mut second = Box::pin(two.lock());
    parked(&mut second).await;
    let mut third = Box::pin(three.lock());
    parked(&mut third).await;
    let released = timeout(Duration::ZERO, first.unlock()).await;
    assert_eq!(released.expect("an answer").unwrap(), Released::Fully);
    assert_eq!(server.holders("a").len(), 1, "the lock was not handed off");
    let began = Instant::now();
    while !server.holders("a").is_empty() {
        sleep(Duration::from_millis(1)).await;
        assert!(
            began.elapsed() < SOON,
            "the lock stays with tasks that are not polled"
        );
    }
    // Each of the two waiters had it for 2 ms.
    assert!(
        began.elapsed() >= Duration::from_millis(4),
        "{:?}",
        began.elapsed()
    );
    drop(
        timeout(SHORT, second)
            .await
            .expect("no waiter enters")
            .unwrap(),
    );
    drop(
        timeout(SHORT, third)
            .await
            .expect("no waiter enters")
            .unwrap(),
    );
}

/// Two tasks have one owner. The first is not polled after a hand-off and loses it, while the second adds a hold.
#[tokio::test(start_paused = true)]
async fn an_owner_has_the_lock_although_one_of_its_tasks_is_not_polled() {
    let (server, network) = server();
    let config = Config::default().with_local_hand_off(SOON);
    let client = server.client_with(config).await.unwrap();
    let [other, its] = of_each(&client);
    let first = other.lock().await.unwrap();
    let mut forgotten = Box::pin(its.lock());
    parked(&mut forgotten).await;
    let second = its.clone();
    let second = tokio::spawn(async move { second.lock().await });
    sleep(Duration::from_millis(1)).await;
    // The client takes the hold from the first task before the server grants one to the second.
    network.0.delay.store(5, Relaxed);
    assert_eq!(first.unlock().await.unwrap(), Released::Fully);
    // A third task that arrives in between waits, and is woken.
    sleep(Duration::from_millis(7)).await;
    assert!(!second.is_finished());
    let between = its.clone();
    let between = tokio::spawn(async move { between.lock().await });
    let second = timeout(SHORT, second).await.expect("no waiter enters");
    let second = second.unwrap().unwrap();
    let between = timeout(SHORT, between).await.expect("no re-entry").unwrap();
    drop(between.unwrap());
    sleep(SHORT).await;
    assert_eq!(its.hold_count().await.unwrap(), 1);
    let third = timeout(SHORT, its.lock()).await.expect("no re-entry");
    assert_eq!(its.hold_count().await.unwrap(), 2);
    drop((second, third));
    drop(
        timeout(SHORT, forgotten)
            .await
            .expect("no waiter enters")
            .unwrap(),
    );
    sleep(SHORT).await;
    assert_eq!(server.holders("a"), vec![]);
}

/// A client shuts down while a hand-off waits for its task. The shutdown releases the hold and does not report it.
#[tokio::test(start_paused = true)]
async fn shutdown_releases_an_unaccepted_hand_off() {
    let (server, _) = server();
    let client = client(&server).await;
    let [one, two] = of_each(&client);
    let first = one.lock().await.unwrap();
    let mut second = Box::pin(two.lock());
    let soon = Duration::from_millis(1);
    assert!(timeout(soon, &mut second).await.is_err());
    assert_eq!(first.unlock().await.unwrap(), Released::Fully);
    assert_eq!(server.holders("a").len(), 1, "the lock was not handed off");
    let report = client.shutdown().await;
    assert!(report.unreleased.is_empty(), "{report:?}");
    assert_eq!(server.holders("a"), vec![]);
    assert!(matches!(second.await, Err(Error::Closed)));
}

/// The second waiter of a client sends nothing. Its timeout still reports a busy lock, and no outage.
#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_behind_another_waiter_reports_a_busy_lock() {
    let (server, _) = server();
    let (holder, waits) = (client(&server).await, client(&server).await);
    let _held = holder.reentrant_lock("a").lock().await.unwrap();
    let [one, two] = of_each(&waits);
    let mut first = Box::pin(one.lock());
    parked(&mut first).await;
    sleep(SHORT).await;
    let second = two.try_lock_for(SHORT).await;
    assert!(matches!(second, Ok(None)), "{second:?}");
}

/// Counts the scripts of a hand-off from one task of a client to the next. The first task has `lease` and keeps the lock for `kept`.
async fn scripts_of_a_hand_off(config: Config, lease: Option<Duration>, kept: Duration) -> u64 {
    let (server, network) = server();
    let client = server.client_with(config).await.unwrap();
    let [one, two] = of_each(&client);
    let one = match lease {
        Some(lease) => one.with_lease(lease),
        None => one,
    };
    // Loads the scripts into the server.
    two.lock().await.unwrap().unlock().await.unwrap();
    let first = one.lock().await.unwrap();
    let second = tokio::spawn(async move { two.lock().await });
    sleep(kept).await;
    let before = network.scripts();
    first.unlock().await.unwrap();
    let second = timeout(SHORT, second).await.expect("no waiter enters");
    assert!(second.unwrap().is_ok());
    network.scripts() - before
}

/// Within the hand-off window the client sends nothing. After it, the client sends a release and the next acquisition.
#[tokio::test(start_paused = true)]
async fn lock_is_handed_off_in_memory_within_the_window() {
    let default = Config::default;
    let off = default().with_local_hand_off(Duration::ZERO);
    let (soon, late) = (Duration::from_millis(1), Duration::from_millis(2));
    assert_eq!(scripts_of_a_hand_off(default(), None, soon).await, 0);
    assert_eq!(scripts_of_a_hand_off(default(), None, late).await, 2);
    assert_eq!(scripts_of_a_hand_off(default(), Some(LEASE), soon).await, 2);
    assert_eq!(scripts_of_a_hand_off(off, None, soon).await, 2);
}

/// The client subscribes after 50 ms. So a forced release by another client wakes the waiters of its local queue.
#[tokio::test(start_paused = true)]
async fn forced_release_by_another_client_wakes_the_local_queue() {
    let (server, _) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    // Without renewals, only the message reveals the loss.
    let holder = one
        .reentrant_lock("a")
        .with_lease(NEVER)
        .lock()
        .await
        .unwrap();
    let waiter = waiter(&one);
    sleep(SHORT).await;
    let forced = Instant::now();
    assert!(other.reentrant_lock("a").force_unlock().await.unwrap());
    let (entered, _guard) = timeout(SHORT, waiter)
        .await
        .expect("no waiter enters")
        .unwrap();
    assert!(entered - forced < SOON, "{:?}", entered - forced);
    assert!(holder.is_lost());
}

/// A shutdown wakes the whole local queue, although the lock is held and the first waiter is not polled.
#[tokio::test(start_paused = true)]
async fn shutdown_wakes_the_local_queue() {
    let (server, _) = server();
    let client = client(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let [first, others @ ..] = of_each::<3>(&client);
    let mut forgotten = Box::pin(first.lock());
    parked(&mut forgotten).await;
    let waiters = others.map(|lock| tokio::spawn(async move { lock.lock().await }));
    sleep(SHORT).await;
    client.shutdown().await;
    for waiter in waiters {
        let told = timeout(SOON, waiter)
            .await
            .expect("a waiter sleeps on")
            .unwrap();
        assert!(matches!(told, Err(Error::Closed)), "{told:?}");
    }
    drop(guard);
}

/// The message of a release is lost. The message of a later release by another client does not count as its echo.
#[tokio::test(start_paused = true)]
async fn lost_echo_is_not_awaited_without_end() {
    let (server, network) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let mine = || one.reentrant_lock("a").owned_by(&Owner::new());
    // Loads the scripts into the server.
    mine().lock().await.unwrap().unlock().await.unwrap();
    let first = mine().lock().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let lock = mine();
        waiting.push(tokio::spawn(async move { lock.lock().await }));
        sleep(SOON).await;
    }
    let third = waiting.remove(1);
    network.0.is_mute.store(true, Relaxed);
    first.unlock().await.unwrap();
    let second = waiting.remove(0).await.unwrap().unwrap();
    sleep(SHORT).await;
    network.0.is_mute.store(false, Relaxed);
    assert!(server.delete("a"));
    let theirs = other.reentrant_lock("a").lock().await.unwrap();
    server.advance(LEASE / 2).await;
    assert!(second.is_lost());
    assert!(!third.is_finished());
    let released = Instant::now();
    theirs.unlock().await.unwrap();
    let guard = timeout(LEASE, third).await.expect("no waiter enters");
    assert!(released.elapsed() < SOON, "{:?}", released.elapsed());
    drop(guard);
}

/// The watchdog renews a hold that was handed off, like any other.
#[tokio::test(start_paused = true)]
async fn handed_off_hold_is_renewed() {
    let (server, network) = server();
    let client = client(&server).await;
    let [one, two] = of_each(&client);
    let first = one.lock().await.unwrap();
    let second = tokio::spawn(async move { two.lock().await });
    sleep(Duration::from_millis(1)).await;
    let before = network.scripts();
    first.unlock().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(network.scripts(), before, "the lock was not handed off");
    server.advance(2 * LEASE).await;
    assert!(!second.is_lost());
    assert_eq!(server.holders("a").len(), 1);
}

/// The lock is handed off while the request that forces it open is on its way. The report of the loss goes to the new holder.
#[tokio::test(start_paused = true)]
async fn forced_release_ends_a_hold_that_was_handed_off_meanwhile() {
    let (server, network) = server();
    let config = Config::default().with_local_hand_off(SHORT);
    let client = server.client_with(config).await.unwrap();
    let [one, two] = of_each(&client);
    let first = one.lock().await.unwrap();
    let second = tokio::spawn(async move { two.lock().await });
    sleep(SOON).await;
    network.0.delay.store(10, Relaxed);
    let (forced, second) = tokio::join!(one.force_unlock(), async {
        sleep(Duration::from_millis(1)).await;
        first.unlock().await.unwrap();
        second.await.unwrap().unwrap()
    });
    assert!(forced.unwrap());
    assert!(second.is_lost());
}

/// The server answers no task for the `outage_wait`. All that have waited as long fail together, not one after the other.
#[tokio::test(start_paused = true)]
async fn outage_ends_all_waits_of_the_local_queue() {
    let (server, _) = server();
    let client = client(&server).await;
    let locks: [_; 5] = of_each(&client);
    server.stop();
    let began = Instant::now();
    let waiting = locks.map(|lock| tokio::spawn(async move { lock.lock().await.map(drop) }));
    for waiting in waiting {
        let told = waiting.await.unwrap();
        assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    }
    let limit = Config::default().outage_wait + Config::default().command_wait;
    assert!(began.elapsed() <= limit, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn try_lock_follows_the_release_of_a_dropped_guard() {
    let (server, _) = slow_server(Duration::from_millis(5));
    let client = polling_client(&server).await;
    let lock = |owner: &Owner| client.reentrant_lock("a").owned_by(owner);
    let (one, other) = (Owner::new(), Owner::new());
    drop(lock(&one).lock().await.unwrap());
    assert!(lock(&other).try_lock().await.unwrap().is_some());
}
