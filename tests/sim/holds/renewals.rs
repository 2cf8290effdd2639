//! Renewals beside other operations of their owner, and the end of a validity. One arranged case per test.

use std::{error::Error as _, sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{Config, Error, Owner, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::support::{LEASE, NEVER, SHORT, SOON, client, network::server, until, waiter};

/// A lock is forced open after the server granted a nested hold, and before the task handles the answer.
#[tokio::test(start_paused = true)]
async fn a_grant_from_before_a_forced_release_is_no_hold() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    network.0.delay.store(10, Relaxed);
    let mut nested = Box::pin(lock.lock());
    let sent = timeout(Duration::from_millis(1), &mut nested).await;
    assert!(sent.is_err());
    // The forced release follows the nested acquisition on the same connection.
    assert!(client.reentrant_lock("a").force_unlock().await.unwrap());
    assert!(outer.is_lost());
    let guard = nested.await.unwrap();
    assert!(!guard.is_lost());
    let holds: Vec<_> = server
        .holders("a")
        .iter()
        .map(|(_, holds)| *holds)
        .collect();
    assert_eq!(holds, [1], "the server lacks the hold of the guard");
}

/// A renewal falls due while an acquisition of its owner is under way.
#[tokio::test(start_paused = true)]
async fn a_renewal_waits_for_an_operation_of_its_owner() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let began = Instant::now();
    let _outer = lock.lock().await.unwrap();
    let renewal = began + LEASE / 3;
    sleep_until(renewal - Duration::from_millis(100)).await;
    network.0.delay.store(200, Relaxed);
    let before = network.scripts();
    let _inner = lock.lock().await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(
        network.scripts(),
        before + 1,
        "a renewal was sent during an acquisition"
    );
    network.0.delay.store(0, Relaxed);
    server.advance(LEASE).await;
    assert!(!_outer.is_lost());
}

/// The server refuses scripts for longer than a call waits.
#[tokio::test(start_paused = true)]
async fn a_refused_extension_names_the_cause() {
    let (server, network) = server();
    let client = client(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    network.0.is_loading.store(true, Relaxed);
    let extended = guard.extend(2 * LEASE).await.unwrap_err();
    let cause = extended.source().expect("a cause").to_string();
    assert!(extended.is_unavailable(), "{extended}");
    assert!(cause.contains("LOADING"), "{cause}");
    network.0.is_loading.store(false, Relaxed);
    guard.extend(2 * LEASE).await.unwrap();
}

/// A refused extension is repeated after a pause, in which the validity ends.
#[tokio::test(start_paused = true)]
async fn a_refused_extension_reports_no_loss_before_the_hold_is_lost() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a").with_lease(SHORT);
    let guard = lock.lock().await.unwrap();
    network.0.is_loading.store(true, Relaxed);
    let valid_until = Instant::from_std(guard.valid_until());
    sleep_until(valid_until - Duration::from_millis(20)).await;
    let extended = guard.extend(LEASE).await;
    assert!(matches!(extended, Err(Error::Lost { .. })), "{extended:?}");
    assert!(guard.is_lost());
}

/// Each grant has expired when its answer arrives. The error names the lease, and the lock is free.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_too_short_for_the_distance_is_named_as_the_cause() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client
        .reentrant_lock("a")
        .with_lease(Duration::from_millis(20));
    // Loads the scripts into the server.
    lock.lock().await.unwrap().unlock().await.unwrap();
    network.0.delay.store(30, Relaxed);
    let error = lock.try_lock_for(3 * SOON).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { reason, .. } if reason.contains("the lease is too short")),
        "{error:?}"
    );
    network.0.delay.store(0, Relaxed);
    sleep(Duration::from_secs(1)).await;
    let guard = lock.try_lock().await.unwrap().expect("the lock is free");
    guard.unlock().await.unwrap();
}

/// A renewal falls due twice while a release is under way.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_being_released_is_not_renewed() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    // Loads the scripts into the server.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let began = Instant::now();
    let guard = lock.lock().await.unwrap();
    sleep_until(began + LEASE / 3 - Duration::from_millis(100)).await;
    network.0.delay.store(700, Relaxed);
    let sent = network.0.sent.load(Relaxed);
    assert_eq!(guard.unlock().await.unwrap(), Released::Fully);
    assert!(
        Instant::now() > began + LEASE / 3 + LEASE / 30,
        "the release was too quick for a second renewal"
    );
    assert_eq!(
        network.0.sent.load(Relaxed) - sent,
        1,
        "a renewal was sent during the release"
    );
}

/// A guard is dropped when its renewal is due. The number of steps decides which comes first.
#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_not_renewed() {
    for steps in 0..12 {
        let (server, network) = server();
        let client = client(&server).await;
        let lock = client.reentrant_lock("a");
        // Loads the scripts into the server.
        let guard = lock.lock().await.unwrap();
        sleep(LEASE / 2).await;
        guard.unlock().await.unwrap();
        let began = Instant::now();
        let guard = lock.lock().await.unwrap();
        sleep_until(began + LEASE / 3).await;
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        let sent = network.0.sent.load(Relaxed);
        drop(guard);
        sleep(SOON).await;
        let after = network.0.sent.load(Relaxed) - sent;
        assert_eq!(
            after, 1,
            "a renewal was sent after the drop, after {steps} steps"
        );
        assert_eq!(server.holders("a"), []);
    }
}

/// Two renewals are due, each in a batch of its own. The network drops both guards when the first renewal is sent.
#[tokio::test(start_paused = true)]
async fn a_guard_dropped_while_its_renewal_is_due_is_not_renewed() {
    let (server, network) = server();
    let config = Config::default().with_watchdog_batch_size(1);
    let client = server.client_with(config).await.unwrap();
    let lock = |name: &str| client.reentrant_lock(name);
    // Loads the scripts into the server.
    let guard = lock("a").lock().await.unwrap();
    sleep(LEASE / 2).await;
    guard.unlock().await.unwrap();
    let guards = vec![
        lock("a").lock().await.unwrap(),
        lock("b").lock().await.unwrap(),
    ];
    let sent = network.0.sent.load(Relaxed);
    *network.0.dropped.lock().unwrap() = guards;
    sleep(LEASE / 2).await;
    assert!(network.0.dropped.lock().unwrap().is_empty());
    let after = network.0.sent.load(Relaxed) - sent;
    assert_eq!(after, 3, "expected one renewal and two releases");
    assert_eq!((server.holders("a"), server.holders("b")), (vec![], vec![]));
}

/// A write hold expires, and a read hold of the same owner keeps the key. Other readers may then enter.
#[tokio::test(start_paused = true)]
async fn a_write_hold_that_the_clock_has_ended_is_given_back() {
    let (server, _) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let owner = Owner::new();
    let lock = one.read_write_lock("a");
    let writing = lock.write().owned_by(&owner).with_lease(SHORT);
    let writing = writing.lock().await.unwrap();
    let _reading = lock.read().owned_by(&owner).lock().await.unwrap();
    let lock = other.read_write_lock("a");
    let guard = timeout(LEASE, lock.read().lock()).await;
    assert!(guard.is_ok_and(|guard| guard.is_ok()), "no reader enters");
    assert!(writing.is_lost());
}

/// The release of a longer inner hold brings the end of the outer hold nearer. A task on another runtime learns of that end in time,
/// although the client's own runtime is blocked.
#[test]
fn earlier_loss_after_an_inner_release_is_reported_on_another_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let (home, here) = (runtime(), runtime());
    let client = home.block_on(async { client(&InMemoryRedis::new()).await });
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    here.block_on(async {
        let lock = client.reentrant_lock("a").owned_by(&Owner::new());
        let outer = lock
            .with_lease(Duration::from_secs(2))
            .lock()
            .await
            .unwrap();
        let inner = lock.with_lease(NEVER).lock().await.unwrap();
        let token = outer.cancellation_token();
        let lost = {
            let waiting = outer.lost();
            tokio::pin!(waiting);
            // The token and the future now wait for the end of the longer hold.
            assert!(timeout(SOON, &mut waiting).await.is_err());
            inner.unlock().await.unwrap();
            home.spawn(async move { is_done.recv().is_ok() });
            timeout(Duration::from_secs(60), async {
                tokio::join!(token.cancelled(), waiting);
            })
            .await
        };
        assert!(lost.is_ok(), "the other runtime does not learn of the loss");
        assert!(outer.is_lost());
        drop(done);
    });
    here.shutdown_background();
    home.shutdown_background();
}

/// The server executes a renewal, and then a forced release. The answer to the renewal arrives after the message of that release.
#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_forced_release_does_not_end_the_verification() {
    let (server, network) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    // A connection answers in order: no message waits behind the late answer to a PING.
    sleep(SHORT).await;
    let holder = one.reentrant_lock("a").lock().await.unwrap();
    let began = Instant::now();
    // Behind a waiter, the client listens to its own lock.
    let waiter = waiter(&one);
    // The second renewal: the first one loads the script. The forced release loads its script too, and finds a connection in use.
    sleep_until(began + 2 * LEASE / 3 - SOON).await;
    assert!(!other.reentrant_lock("b").force_unlock().await.unwrap());
    network.0.answers.store(200, Relaxed);
    let before = network.scripts();
    until(|| network.scripts() > before).await;
    let lock = other.reentrant_lock("a");
    let (forced, entered) = tokio::join!(lock.force_unlock(), timeout(2 * SHORT, waiter));
    assert!(forced.unwrap());
    let (_, _guard) = entered.expect("the hold is not verified").unwrap();
    assert!(holder.is_lost());
}
