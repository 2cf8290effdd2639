//! Writers and readers of one lock. One arranged case per test, under a paused clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;
use redisson_lock::Owner;
use redisson_lock_test::{InMemoryRedis, simulation::Pushed};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    LEASE, SHORT, SOON, client, lossy_network::slow_server, parked, polling_client, reader,
    reader_of, started, writer, writer_of,
};

/// A writer's field in a hash of mode `read` is no hold of this crate or of Redisson.
#[tokio::test(start_paused = true)]
async fn a_writer_does_not_enter_beside_readers_by_a_field_that_was_left() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let owner = Owner::new();
    let writer = format!("{}:{owner}:write", client.id());
    let data = server.raw().await.unwrap();
    let java = "11111111-2222-4333-8444-555555555555:47";
    let fields = ["a", "mode", "read", &writer, "1", java, "1"];
    data.send("HSET", &fields).await.unwrap();
    data.send("PEXPIRE", &["a", "30000"]).await.unwrap();
    let lock = writer_of(&client, &owner);
    assert!(lock.try_lock().await.unwrap().is_none());
}

/// A writer that also reads releases its write hold. The key then expires with the shorter lease of the read hold.
#[tokio::test(start_paused = true)]
async fn a_downgrade_leaves_the_lease_of_the_read_hold() {
    let server = InMemoryRedis::new();
    let (holding, waiting) = (client(&server).await, client(&server).await);
    let owner = Owner::new();
    let writing = writer_of(&holding, &owner).lock().await.unwrap();
    let reading = reader_of(&holding, &owner).with_lease(SHORT);
    let reading = reading.lock().await.unwrap();
    writing.unlock().await.unwrap();
    let left = server.remaining_lease("a").expect("the read hold is left");
    assert!(left <= SHORT, "{left:?}");
    let began = Instant::now();
    let guard = timeout(LEASE, writer(&waiting).lock()).await;
    assert!(guard.is_ok_and(|guard| guard.is_ok()));
    let took = began.elapsed();
    assert!(took < SHORT + SOON, "{took:?}");
    assert!(reading.is_lost());
}

/// The intent of a writer that waits keeps new readers out, and ends with the wait.
#[tokio::test(start_paused = true)]
async fn a_writer_that_gives_up_lets_readers_in() {
    let server = InMemoryRedis::new();
    let (reading, writing) = (client(&server).await, client(&server).await);
    let new_reader = || reader(&reading);
    let _reader = new_reader().lock().await.unwrap();
    let lock = writer(&writing);
    let writer = tokio::spawn(async move { lock.lock().await.map(drop) });
    let intent = || server.remaining_lease("{a}:write_intent");
    // Each refused attempt makes the next intent longer.
    let until = Instant::now() + LEASE;
    while intent().is_none_or(|left| left < SOON) {
        assert!(Instant::now() < until, "the writer sets no long intent");
        sleep(Duration::from_millis(1)).await;
    }
    assert!(new_reader().try_lock().await.unwrap().is_none());
    writer.abort();
    sleep(Duration::from_millis(1)).await;
    assert!(new_reader().try_lock().await.unwrap().is_some());
}

/// Redisson reads the payload: `1` wakes all waiters of a client, `0` wakes one.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_writer_is_a_message_for_all_waiters() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let java = server.raw().await.unwrap();
    let mut messages = java.messages();
    let channel = "redisson_rwlock:{a}";
    java.send("SUBSCRIBE", &[channel]).await.unwrap();
    let owner = Owner::new();
    let (reading, writing) = (reader_of(&client, &owner), writer_of(&client, &owner));
    let mut heard = async |payload: &str| {
        let message = timeout(SHORT, messages.next()).await;
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        let channel = Bytes::from_static(channel.as_bytes());
        assert_eq!(message, Ok(Some(Pushed::message(channel, payload))));
    };
    writing.lock().await.unwrap().unlock().await.unwrap();
    heard("1").await;
    reading.lock().await.unwrap().unlock().await.unwrap();
    heard("0").await;
    let writer = writing.lock().await.unwrap();
    let reader = reading.lock().await.unwrap();
    writer.unlock().await.unwrap();
    heard("1").await;
    reader.unlock().await.unwrap();
    heard("0").await;
}

/// Readers of two clients wait for a writer of a third. One message wakes all of them.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_writer_lets_all_readers_in() {
    let server = InMemoryRedis::new();
    let writing = client(&server).await;
    let guard = writer(&writing).lock().await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..2 {
        let client = client(&server).await;
        for _ in 0..3 {
            let lock = reader(&client);
            readers.push(tokio::spawn(async move {
                let guard = lock.lock().await.expect("a read hold");
                (Instant::now(), guard)
            }));
        }
    }
    sleep(SHORT).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        let (entered, guard) = timeout(LEASE, reader)
            .await
            .expect("readers enter")
            .unwrap();
        assert!(entered - released < SOON, "{:?}", entered - released);
        guards.push(guard);
    }
    // One reader of each client acquires for all of them.
    assert_eq!(server.holders("a").len(), 2);
}

/// Readers of another client overlap, so that the lock is never free.
#[tokio::test(start_paused = true)]
async fn a_writer_enters_between_readers_that_overlap() {
    let (server, _) = slow_server(Duration::from_millis(1));
    let (reading, writing) = (polling_client(&server).await, polling_client(&server).await);
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

/// What docs/read-write-lock.md recommends beside readers for which intents are too short. The gate is a lock of another name.
#[tokio::test(start_paused = true)]
async fn a_gate_lets_a_writer_in_between_readers_of_any_length() {
    for work in [20, 150, 400].map(Duration::from_millis) {
        let (server, _) = slow_server(Duration::from_millis(1));
        let (reading, writing) = (polling_client(&server).await, polling_client(&server).await);
        let reads = Arc::new(AtomicU32::new(0));
        for reader in 0..8 {
            let (gate, lock) = (reading.fair_lock("gate"), reading.read_write_lock("a"));
            let reads = reads.clone();
            tokio::spawn(async move {
                sleep(work / 8 * reader).await;
                loop {
                    let pass = gate.lock().await.unwrap();
                    let guard = lock.read().lock().await.unwrap();
                    pass.unlock().await.unwrap();
                    sleep(work).await;
                    guard.unlock().await.unwrap();
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        sleep(2 * work).await;
        let (gate, lock) = (writing.fair_lock("gate"), writing.read_write_lock("a"));
        for _ in 0..3 {
            let (asked, before) = (Instant::now(), reads.load(Relaxed));
            let pass = gate.lock().await.unwrap();
            let guard = timeout(3 * work + SHORT, lock.write().lock()).await;
            let guard = guard.expect("a writer enters").unwrap();
            guard.unlock().await.unwrap();
            pass.unlock().await.unwrap();
            // The present readers end, and each reader before it at the gate has one turn.
            assert!(asked.elapsed() < 2 * work + SHORT, "{:?}", asked.elapsed());
            sleep(3 * work).await;
            // The readers overlap: one alone would have three turns.
            let since = reads.load(Relaxed) - before;
            assert!(since >= 12, "{since} reads in {:?}", asked.elapsed());
        }
    }
}

/// One reader waits for the writer, and another is kept and not polled while its attempt is under way. The writer's own read waits for
/// neither.
#[tokio::test(start_paused = true)]
async fn a_writer_reads_while_readers_wait_for_it() {
    let (server, _) = slow_server(Duration::from_millis(1));
    let (client, owner) = (client(&server).await, Owner::new());
    let writing = writer_of(&client, &owner).lock().await.unwrap();
    let lock = reader(&client);
    let mut waiting = Box::pin(lock.lock());
    parked(&mut waiting).await;
    let lock = reader(&client);
    let mut stuck = Box::pin(lock.lock());
    started(&mut stuck).await;
    let reading = timeout(2 * SOON, reader_of(&client, &owner).lock()).await;
    let reading = reading.expect("it waits for another reader").unwrap();
    assert_eq!(server.holders("a").len(), 2);
    writing.unlock().await.unwrap();
    let readers = async { tokio::try_join!(waiting, stuck) };
    let readers = timeout(SHORT, readers).await.expect("readers enter");
    drop((readers.unwrap(), reading));
}
