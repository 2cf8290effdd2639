//! Readers of one client that share a hold. One arranged case per test, under a paused clock.

use std::time::Duration;

use redisson_lock::{Config, Durability, Error, LostReason, Owner, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::support::{
    LEASE, OPEN, SOON, client, hold_counts, parked, reader, started, writer, writer_of,
};

#[tokio::test(start_paused = true)]
async fn server_executes_the_first_acquisition_and_the_last_release() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let first = reader(&client).lock().await.unwrap();
    let second = reader(&client).lock().await.unwrap();
    let third = reader(&client).try_lock().await.unwrap().expect("it reads");
    assert_eq!(hold_counts(&server), [1]);
    assert_eq!(client.holds().len(), 3, "each reader has a hold of its own");
    assert_ne!(first.owner(), second.owner());
    assert_eq!(first.unlock().await, Ok(Released::Fully));
    drop(third);
    sleep(SOON).await;
    assert_eq!(hold_counts(&server), [1], "one reader is left");
    assert!(!second.is_lost());
    assert_eq!(second.unlock().await, Ok(Released::Fully));
    assert_eq!(
        hold_counts(&server),
        [0_u64; 0],
        "the unlock returned before the server released"
    );
    assert_eq!(client.holds().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn concurrent_readers_send_one_attempt() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let mut readers = JoinSet::new();
    for _ in 0..64 {
        let lock = reader(&client);
        readers.spawn(async move { lock.lock().await.expect("it reads") });
    }
    let guards = readers.join_all().await;
    assert_eq!(hold_counts(&server), [1]);
    drop(guards);
    sleep(SOON).await;
    assert_eq!(hold_counts(&server), [0_u64; 0]);
}

#[tokio::test(start_paused = true)]
async fn readers_after_the_hand_off_window_send_attempts() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let _first = reader(&client).lock().await.unwrap();
    sleep(OPEN).await;
    let _second = reader(&client).lock().await.unwrap();
    assert_eq!(hold_counts(&server), [1, 1]);
    let zero = Config::default().with_local_hand_off(Duration::ZERO);
    let strict = server.client_with(zero).await.unwrap();
    let _third = reader(&strict).lock().await.unwrap();
    let _fourth = reader(&strict).lock().await.unwrap();
    assert_eq!(hold_counts(&server), [1, 1, 1, 1]);
}

/// A second hold of an owner, a fixed lease and a stricter durability each need an attempt at the server.
#[tokio::test(start_paused = true)]
async fn readers_do_not_share_nested_fixed_or_more_durable_holds() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let first = reader(&client);
    let _outer = first.lock().await.unwrap();
    let inner = first.lock().await.unwrap();
    assert_eq!(
        hold_counts(&server),
        [2],
        "the server does not know the nested hold"
    );
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    let _fixed = reader(&client).with_lease(LEASE).lock().await.unwrap();
    assert_eq!(hold_counts(&server), [1, 1]);
    let durable = reader(&client).with_durability(Durability::Replicas(1));
    let refused = durable.lock().await;
    assert!(
        matches!(refused, Err(Error::Replication { .. })),
        "{refused:?}"
    );
}

/// The release of the last reader is sent and not answered yet when another reader of the client arrives.
#[tokio::test(start_paused = true)]
async fn hold_whose_release_is_under_way_is_not_joined() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let first = reader(&client).lock().await.unwrap();
    let mut leaving = Box::pin(first.unlock());
    started(&mut leaving).await;
    let second = reader(&client).lock().await.unwrap();
    assert_eq!(leaving.await, Ok(Released::Fully));
    assert_eq!(hold_counts(&server), [1], "the second reader has no hold");
    assert_eq!(second.unlock().await, Ok(Released::Fully));
}

#[tokio::test(start_paused = true)]
async fn reader_beside_a_writer_of_its_own_is_not_joined() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let owner = Owner::new();
    let lock = client.read_write_lock("a");
    let writing = lock.write().clone().owned_by(&owner).lock().await.unwrap();
    let reading = lock.read().clone().owned_by(&owner).lock().await.unwrap();
    assert!(reader(&client).try_lock().await.unwrap().is_none());
    writing.unlock().await.unwrap();
    let other = reader(&client).try_lock().await.unwrap().expect("it reads");
    assert_eq!(hold_counts(&server), [1, 1]);
    reading.unlock().await.unwrap();
    other.unlock().await.unwrap();
}

/// The lender, whose field on the server a second reader uses, releases, acquires again and releases again.
#[tokio::test(start_paused = true)]
async fn lender_releases_and_acquires_again() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let lender = reader(&client);
    let lent = lender.lock().await.unwrap();
    let other = reader(&client).lock().await.unwrap();
    assert_eq!(lent.unlock().await, Ok(Released::Fully));
    assert!(!lender.is_held().await.unwrap());
    assert_eq!(lender.hold_count().await.unwrap(), 0);
    assert!(matches!(lender.unlock().await, Err(Error::NotHeld { .. })));
    sleep(OPEN).await;
    let again = lender.lock().await.unwrap();
    assert_eq!(lender.hold_count().await.unwrap(), 1);
    other.unlock().await.unwrap();
    assert_eq!(hold_counts(&server), [1]);
    assert!(!again.is_lost());
    // The writer would wait for its own read hold.
    let upgrade = writer_of(&client, &again.owner());
    let refused = upgrade.lock().await;
    assert!(
        matches!(refused, Err(Error::WouldDeadlock { .. })),
        "{refused:?}"
    );
    again.unlock().await.unwrap();
    drop(upgrade.lock().await.expect("it writes"));
}

#[tokio::test(start_paused = true)]
async fn reader_that_has_joined_is_refused_to_write() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let _first = reader(&client).lock().await.unwrap();
    let joined = reader(&client).lock().await.unwrap();
    let upgrade = writer_of(&client, &joined.owner());
    let refused = upgrade.lock().await;
    assert!(
        matches!(refused, Err(Error::WouldDeadlock { .. })),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn hold_that_was_joined_is_leaked_and_released_by_its_owner() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let first = reader(&client).lock().await.unwrap();
    let lock = reader(&client);
    lock.lock().await.unwrap().leak();
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    first.unlock().await.unwrap();
    sleep(2 * LEASE).await;
    assert_eq!(hold_counts(&server), [1], "the leaked hold is not renewed");
    assert_eq!(lock.unlock().await, Ok(Released::Fully));
    assert_eq!(hold_counts(&server), [0_u64; 0]);
}

#[tokio::test(start_paused = true)]
async fn all_readers_that_share_a_hold_lose_it_together() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let guards = [
        reader(&client).lock().await.unwrap(),
        reader(&client).lock().await.unwrap(),
    ];
    assert!(server.delete("a"));
    for guard in guards {
        let lost = timeout(LEASE, guard.lost()).await;
        assert_eq!(lost, Ok(LostReason::Gone));
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    }
    drop(reader(&client).lock().await.expect("a new hold"));
}

/// Readers of one client read again and again. A writer of another client enters after their hand-off window, when the holds that
/// began in it have ended.
#[tokio::test(start_paused = true)]
async fn writer_elsewhere_gets_in_between_readers_that_share() {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
    let mut readers = JoinSet::new();
    for _ in 0..16 {
        let lock = reader(&one);
        readers.spawn(async move {
            loop {
                let guard = lock.lock().await.expect("it reads");
                sleep(Duration::from_millis(1)).await;
                guard.unlock().await.expect("it was good");
            }
        });
    }
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        sleep(SOON).await;
        let asked = Instant::now();
        let guard = writer(&other).lock().await.unwrap();
        longest = longest.max(asked.elapsed());
        guard.unlock().await.unwrap();
    }
    assert!(longest <= Duration::from_millis(500), "{longest:?}");
    readers.shutdown().await;
}

/// The reader with the attempt for all readers is kept and not polled. The remaining readers send their own attempts, and no
/// reader waits for it again.
#[tokio::test(start_paused = true)]
async fn unpolled_reader_with_an_attempt_delays_no_other_reader() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let lock = reader(&client);
    let mut stuck = Box::pin(lock.lock());
    // Polled once, the future has sent its attempt.
    started(&mut stuck).await;
    let began = Instant::now();
    let guard = reader(&client).lock().await.unwrap();
    assert!(
        began.elapsed() <= Duration::from_millis(50),
        "{:?}",
        began.elapsed()
    );
    guard.unlock().await.unwrap();
    let again = Instant::now();
    drop(reader(&client).lock().await.unwrap());
    assert!(
        again.elapsed() < Duration::from_millis(50),
        "{:?}",
        again.elapsed()
    );
    drop(stuck.await.expect("the stuck reader gets its hold"));
}

/// Readers that wait behind a writer are dropped while the first of them may already have a hold.
#[tokio::test(start_paused = true)]
async fn dropped_readers_leave_nothing() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let writing = writer(&client).lock().await.unwrap();
    let locks: Vec<_> = (0..8).map(|_| reader(&client)).collect();
    let mut waiting: Vec<_> = locks.iter().map(|lock| Box::pin(lock.lock())).collect();
    for reader in &mut waiting {
        parked(reader).await;
    }
    writing.unlock().await.unwrap();
    // A reader may have a grant by now, and none of them is polled.
    drop(waiting);
    sleep(SOON).await;
    assert_eq!(hold_counts(&server), [0_u64; 0]);
    drop(
        writer(&client)
            .try_lock()
            .await
            .unwrap()
            .expect("it is free"),
    );
}

/// The lock is deleted without a message. The client learns of it at the renewal of its writer.
#[tokio::test(start_paused = true)]
async fn loss_of_a_writer_wakes_a_reader_of_its_client() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let writing = writer(&client).lock().await.unwrap();
    let lock = reader(&client);
    let reading = tokio::spawn(async move { lock.lock().await });
    sleep(SOON).await;
    assert!(server.delete("a"));
    assert_eq!(writing.lost().await, LostReason::Gone);
    let reading = timeout(SOON, reading).await;
    drop(reading.expect("it waits for the end of the lease").unwrap());
}
