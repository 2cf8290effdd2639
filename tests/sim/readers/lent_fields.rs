//! Readers that share a hold. The *lender* is the owner whose field the hold has on the server; a *joined* reader uses that field.
//! One arranged case per test, under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{Config, Error, LockClient, Owner, Released};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    LEASE, NEVER, OPEN, SHORT, client, hold_counts, network::server, reader, reader_of, started,
    writer_of,
};

/// Acquires and releases a read lock.
async fn reads_once(client: &LockClient) {
    let guard = reader(client).lock().await.unwrap();
    guard.unlock().await.unwrap();
}

/// A joined reader releases its outer hold while its nested acquisition under the lent field is under way, and then acquires a
/// hold of its own.
#[tokio::test(start_paused = true)]
async fn owner_that_reads_by_two_tenures_is_known_to_read() {
    let (server, network) = server();
    let client = client(&server).await;
    let owner = Owner::new();
    let lock = reader_of(&client, &owner);
    let _lender = reader(&client).lock().await.unwrap();
    let outer = lock.lock().await.unwrap();
    assert_eq!(hold_counts(&server), [1]);
    network.0.late_answer.store(1, Relaxed);
    let mut nested = Box::pin(lock.lock());
    assert!(timeout(2 * OPEN, &mut nested).await.is_err());
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
    let other_lock = lock.clone();
    let (nested, other) = tokio::join!(nested, other_lock.lock());
    let (nested, other) = (nested.unwrap(), other.unwrap());
    let count = lock.hold_count().await.unwrap();
    nested.unlock().await.unwrap();
    assert_eq!(lock.hold_count().await, Ok(1));
    let upgrade = writer_of(&client, &owner);
    let refused = timeout(SHORT, upgrade.lock()).await;
    assert!(!other.is_lost());
    assert_eq!(count, 2);
    assert!(
        matches!(refused, Ok(Err(Error::WouldDeadlock { .. }))),
        "{refused:?}"
    );
    other.leak();
    assert_eq!(lock.unlock().await, Ok(Released::Fully));
}

/// A reader times out while it waits for the attempt of the first reader. The remaining waiters still get the answer.
#[tokio::test(start_paused = true)]
async fn reader_that_times_out_delays_no_other_reader() {
    let (server, network) = server();
    let client = client(&server).await;
    reads_once(&client).await;
    network.0.delay.store(5, Relaxed);
    let began = Instant::now();
    let (asks, waits, impatient) = (reader(&client), reader(&client), reader(&client));
    let waited = async {
        let guard = waits.lock().await.unwrap();
        (guard, began.elapsed())
    };
    let (_one, (_two, took), _three) = tokio::join!(
        asks.lock(),
        waited,
        impatient.try_lock_for(Duration::from_millis(1))
    );
    assert!(took <= Duration::from_millis(12), "{took:?}");
}

/// The lender acquires again, and its future is kept and not polled.
#[tokio::test(start_paused = true)]
async fn unpolled_lender_delays_no_other_reader() {
    let (server, network) = server();
    let client = client(&server).await;
    let lender = reader(&client);
    let lent = lender.lock().await.unwrap();
    let other = reader(&client).lock().await.unwrap();
    lent.unlock().await.unwrap();
    sleep(OPEN).await;
    let mut stuck = Box::pin(lender.lock());
    network.0.delay.store(1, Relaxed);
    started(&mut stuck).await;
    let unlocked = other.unlock().await;
    assert_eq!(unlocked, Ok(Released::Fully));
}

/// The nested acquisition of a joined reader is kept and not polled. The lender still acquires.
#[tokio::test(start_paused = true)]
async fn joined_reader_that_is_not_polled_does_not_stop_the_lender() {
    let (server, network) = server();
    let client = client(&server).await;
    let lender = reader(&client);
    let lent = lender.lock().await.unwrap();
    let joined = reader(&client);
    let _outer = joined.lock().await.unwrap();
    lent.unlock().await.unwrap();
    sleep(OPEN).await;
    let mut stuck = Box::pin(joined.lock());
    network.0.delay.store(1, Relaxed);
    started(&mut stuck).await;
    let again = timeout(2 * LEASE, lender.try_lock()).await;
    assert!(matches!(again, Ok(Ok(Some(_)))));
}

/// The unlock of a joined reader is kept and not polled. The lender still acquires.
#[tokio::test(start_paused = true)]
async fn unlock_that_is_not_polled_does_not_stop_the_lender() {
    let (server, network) = server();
    let client = client(&server).await;
    let lender = reader(&client);
    let lent = lender.lock().await.unwrap();
    let joined = reader(&client).lock().await.unwrap();
    lent.unlock().await.unwrap();
    sleep(OPEN).await;
    let mut stuck = Box::pin(joined.unlock());
    network.0.delay.store(1, Relaxed);
    started(&mut stuck).await;
    let again = timeout(2 * LEASE, lender.try_lock()).await;
    assert!(matches!(again, Ok(Ok(Some(_)))));
}

/// The intent of a writer keeps new readers out, including a lender that acquires again.
#[tokio::test(start_paused = true)]
async fn intent_keeps_out_an_owner_whose_field_is_lent() {
    let (server, _) = server();
    let (client, elsewhere) = (client(&server).await, client(&server).await);
    let lender = reader(&client);
    let lent = lender.lock().await.unwrap();
    let _other = reader(&client).lock().await.unwrap();
    lent.unlock().await.unwrap();
    let writer = writer_of(&elsewhere, &Owner::new());
    let _writes = tokio::spawn(async move { writer.lock().await });
    while !server
        .keys()
        .iter()
        .any(|key| key.ends_with(":write_intent"))
    {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(reader(&client).try_lock().await.unwrap().is_none());
    let again = lender.try_lock().await.unwrap();
    assert!(again.is_none(), "{again:?}");
}

/// A reader extends the shared hold. Its release ends the extension.
#[tokio::test(start_paused = true)]
async fn extension_ends_with_the_hold_that_was_extended() {
    let (server, _) = server();
    let client = client(&server).await;
    let extended = reader(&client).lock().await.unwrap();
    let other = reader(&client).lock().await.unwrap();
    extended.extend(20 * LEASE).await.unwrap();
    let late = reader(&client).lock().await.unwrap();
    extended.unlock().await.unwrap();
    drop(late);
    sleep(SHORT).await;
    let left = server.remaining_lease("a").unwrap();
    assert!(left <= LEASE, "{left:?}");
    drop(other);
}

/// The lock is deleted long after readers began to share it. The release of one reader verifies the shared hold.
#[tokio::test(start_paused = true)]
async fn late_release_of_a_reader_verifies_the_shared_hold() {
    let (server, _) = server();
    let client = client(&server).await;
    let one = reader(&client).lock().await.unwrap();
    let other = reader(&client).lock().await.unwrap();
    sleep(SHORT).await;
    assert!(server.delete("a"));
    assert_eq!(one.unlock().await, Ok(Released::Fully));
    sleep(OPEN).await;
    assert!(other.is_lost());
}

#[tokio::test(start_paused = true)]
async fn shutdown_reports_each_sharing_reader_with_one_hold() {
    let (server, _) = server();
    let client = client(&server).await;
    let one = reader(&client).lock().await.unwrap();
    let other = reader(&client).lock().await.unwrap();
    let third = reader(&client).lock().await.unwrap();
    let report = client.shutdown().await;
    let holds: Vec<u32> = report.unreleased.iter().map(|left| left.holds).collect();
    assert_eq!(holds, [1, 1, 1]);
    drop((one, other, third));
}

/// The scripts support at most 1,000 holds of a field.
#[tokio::test(start_paused = true)]
async fn owners_that_share_a_field_share_its_hold_limit() {
    let (server, _) = server();
    let client = client(&server).await;
    let (one, other) = (reader(&client), reader(&client));
    let mut guards = vec![one.lock().await.unwrap(), other.lock().await.unwrap()];
    let refused = loop {
        let reader = if guards.len() % 2 == 0 { &one } else { &other };
        match reader.lock().await {
            Ok(guard) => guards.push(guard),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyHolds { most: 1_000, .. }));
    while let Some(guard) = guards.pop() {
        guard.unlock().await.unwrap();
    }
    assert_eq!(server.keys(), [""; 0]);
}

/// A reconnection verifies holds before readers may join them.
#[tokio::test(start_paused = true)]
async fn no_reader_joins_a_hold_that_is_being_verified() {
    let (server, network) = server();
    let config = Config::default()
        .with_max_poll_interval(NEVER)
        .with_local_hand_off(SHORT);
    let client = server.client_with(config).await.unwrap();
    let _first = reader(&client).lock().await.unwrap();
    network.0.delay.store(20, Relaxed);
    server.delete("a");
    server.disconnect();
    let (sent, began) = (network.0.sent.load(Relaxed), Instant::now());
    while network.0.sent.load(Relaxed) == sent {
        sleep(Duration::from_millis(1)).await;
        assert!(began.elapsed() < SHORT, "no hold is verified");
    }
    let guard = reader(&client).lock().await.unwrap();
    sleep(SHORT / 2).await;
    assert!(
        !guard.is_lost(),
        "the reader joined a hold that the server did not have"
    );
}

/// The unlock of the last reader yields once and is polled no more. The renewals have ended by then.
#[tokio::test(start_paused = true)]
async fn unlock_that_has_begun_ends_the_renewals() {
    let (server, _) = server();
    let client = client(&server).await;
    let last = reader(&client).lock().await.unwrap();
    reads_once(&client).await;
    let mut stuck = Box::pin(last.unlock());
    assert!(futures_util::poll!(&mut stuck).is_pending());
    sleep(4 * LEASE).await;
    assert_eq!(hold_counts(&server), [0_u64; 0], "the hold is renewed");
}

#[tokio::test(start_paused = true)]
async fn unlock_that_has_begun_comes_before_the_shutdown() {
    let (server, _) = server();
    let client = client(&server).await;
    let last = reader(&client).lock().await.unwrap();
    reads_once(&client).await;
    let (unlocked, _) = tokio::join!(last.unlock(), client.shutdown());
    assert_eq!(unlocked, Ok(Released::Fully));
}

/// The owner's write acquisition follows its own unlock, also after another reader has joined.
#[tokio::test(start_paused = true)]
async fn writer_behind_its_own_unlock_is_not_refused() {
    let (server, _) = server();
    let client = client(&server).await;
    let owner = Owner::new();
    let last = reader_of(&client, &owner).lock().await.unwrap();
    reads_once(&client).await;
    let upgrade = writer_of(&client, &owner);
    let (_, writes) = tokio::join!(last.unlock(), upgrade.lock());
    assert!(writes.is_ok());
}

/// The same three cases without a joined reader, for comparison.
#[tokio::test(start_paused = true)]
async fn unshared_reader_can_upgrade_and_is_not_renewed_during_its_unlock() {
    let (server, _) = server();
    let client = client(&server).await;
    let owner = Owner::new();
    let last = reader_of(&client, &owner).lock().await.unwrap();
    let upgrade = writer_of(&client, &owner);
    let (_, writes) = tokio::join!(last.unlock(), upgrade.lock());
    assert!(writes.is_ok());
    writes.unwrap().unlock().await.unwrap();
    let last = reader_of(&client, &owner).lock().await.unwrap();
    let mut stuck = Box::pin(last.unlock());
    let _ = futures_util::poll!(&mut stuck);
    sleep(4 * LEASE).await;
    assert_eq!(hold_counts(&server), [0_u64; 0], "the hold is renewed");
    drop(stuck);
    let last = reader(&client).lock().await.unwrap();
    let (unlocked, _) = tokio::join!(last.unlock(), client.shutdown());
    assert_eq!(unlocked, Ok(Released::Fully));
}

/// The server counts one hold for three readers. A nested hold of each is the next one that the server counts.
#[tokio::test(start_paused = true)]
async fn nested_holds_of_readers_that_share_lose_no_reader() {
    let (server, _) = server();
    let client = client(&server).await;
    let locks = [reader(&client), reader(&client), reader(&client)];
    let mut guards = Vec::new();
    for lock in &locks {
        guards.push(lock.lock().await.unwrap());
    }
    assert_eq!(hold_counts(&server), [1]);
    for lock in &locks {
        guards.push(lock.lock().await.unwrap());
    }
    assert_eq!(hold_counts(&server), [4]);
    assert!(!guards.iter().any(|guard| guard.is_lost()), "{guards:?}");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    assert_eq!(hold_counts(&server), [0_u64; 0]);
}

/// The answer to the last release is lost. A reader that arrives before the repetition does not share the hold that may be gone.
#[tokio::test(start_paused = true)]
async fn hold_whose_release_is_in_doubt_is_not_joined() {
    let (server, network) = server();
    let client = client(&server).await;
    reads_once(&client).await;
    let first = reader(&client).lock().await.unwrap();
    network.0.loses_answer.store(true, Relaxed);
    network.0.connecting.store(5, Relaxed);
    let mut leaving = Box::pin(first.unlock());
    assert!(timeout(OPEN / 2, &mut leaving).await.is_err());
    assert_eq!(hold_counts(&server), [0_u64; 0], "the release was lost");
    let second = reader(&client);
    let (left, second) = tokio::join!(leaving, second.lock());
    let second = second.unwrap();
    assert_eq!(left, Ok(Released::Fully));
    assert_eq!(hold_counts(&server), [1], "the second reader has no hold");
    assert_eq!(second.unlock().await, Ok(Released::Fully));
}
