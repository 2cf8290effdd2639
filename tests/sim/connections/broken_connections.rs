//! Commands, answers and holds of a connection that breaks. One arranged case per test, under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::Owner;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LEASE, SHORT, SOON, client, network::server, waiter};

/// A task gives up while its client has no connection.
#[tokio::test(start_paused = true)]
async fn an_acquisition_given_up_before_it_was_sent_is_not_sent() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    server.stop();
    sleep(SOON).await;
    assert!(timeout(SOON, lock.lock()).await.is_err());
    let before = network.scripts();
    server.start();
    sleep(Duration::from_secs(10)).await;
    assert!(
        lock.try_lock().await.unwrap().is_some(),
        "the client has not reconnected"
    );
    sleep(SOON).await;
    // One acquisition, and the release of its guard.
    assert_eq!(network.scripts(), before + 2);
}

/// The pauses between attempts to connect are long by then, and a caller does not wait for their ends.
#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_is_connected_soon_after_the_server_is_back() {
    let (server, _network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    for turn in 0..40 {
        server.stop();
        sleep(SOON + Duration::from_millis(77) * turn).await;
        let asked = lock.is_locked();
        let back = async {
            sleep(Duration::from_secs(2)).await;
            server.start();
            Instant::now()
        };
        let answered = async {
            asked
                .await
                .expect("the server is back before the call ends");
            Instant::now()
        };
        let (back, answered) = tokio::join!(back, answered);
        let after = answered - back;
        assert!(after < Duration::from_millis(400), "{after:?}");
    }
}

/// The server may execute commands of a broken connection later, unless the client kills the connection.
#[tokio::test(start_paused = true)]
async fn a_command_of_a_broken_connection_is_not_executed_later() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    network.0.late.store(1, Relaxed);
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(network.0.late.load(Relaxed), 0, "no command was delayed");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(server.holders("a"), []);
}

/// The connection that would kill the broken one breaks first.
#[tokio::test(start_paused = true)]
async fn a_command_of_a_connection_before_the_last_is_not_executed_later() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    network.0.late.store(1, Relaxed);
    // The first `CLIENT` command returns the number of the new connection; the second kills the old one.
    network.0.lost_client.store(2, Relaxed);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let left = [&network.0.late, &network.0.lost_client].map(|left| left.load(Relaxed));
    assert_eq!(left, [0, 0], "no command was delayed or lost");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(server.holders("a"), []);
}

/// A wrong answer to a PING shows that answers and commands no longer match.
#[tokio::test(start_paused = true)]
async fn a_connection_with_another_answer_to_a_ping_is_replaced() {
    let (server, network) = server();
    let _client = client(&server).await;
    let before = network.0.latest.load(Relaxed);
    network.0.shifts.store(true, Relaxed);
    sleep(Duration::from_secs(10)).await;
    network.0.shifts.store(false, Relaxed);
    sleep(Duration::from_secs(10)).await;
    assert!(
        network.0.latest.load(Relaxed) > before,
        "no other connection was opened"
    );
}

/// A reconnection verifies all holds, so a loss of data shows before the next renewal.
#[tokio::test(start_paused = true)]
async fn a_reconnection_reveals_lost_holds() {
    let (server, _) = server();
    let client = client(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    sleep(SHORT).await;
    server.restart();
    assert!(timeout(SHORT, guard.lost()).await.is_ok());
}

/// The next waiter asks right behind a release. The connection ends with both, and the new one carries the attempt first: the hold of
/// the waiter's own client refuses it.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_lost_release_enters_when_the_release_is_repeated() {
    for is_lost in [true, false] {
        let (server, network) = server();
        let client = client(&server).await;
        let lock = client.reentrant_lock("a");
        // Loads the scripts into the server.
        lock.lock().await.unwrap().unlock().await.unwrap();
        let guard = lock.owned_by(&Owner::new()).lock().await.unwrap();
        let waiter = waiter(&client);
        sleep(SHORT).await;
        match is_lost {
            true => network.0.loses_script.store(true, Relaxed),
            false => network.0.loses_answer.store(true, Relaxed),
        }
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let entered = timeout(LEASE / 2, waiter).await;
        let (entered, _guard) = entered.expect("the waiter sleeps on").unwrap();
        let took = entered - released;
        assert!(took < SHORT, "{took:?}, {is_lost}");
    }
}
