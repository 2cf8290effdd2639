//! Many readers: how they acquire the lock, the limit of their holds, and losses that peers cause.

use std::time::Duration;

use redisson_lock::{Error, LostReason, Owner, Released};
use testbed::eventually;
use tokio::task::JoinSet;

use super::{Shelf, entry};
use crate::witness::{SOON, only_messages, watched};

/// One message admits all waiting readers of several processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiting_readers_enter_when_a_writer_leaves() {
    let shelf = Shelf::new().await;
    let writer = shelf.lock(&shelf.witness.a_client().await);
    let writing = writer.write().lock().await.unwrap();
    let mut readers = JoinSet::new();
    shelf.witness.server.reset_calls().await;
    for _ in 0..2 {
        let each = only_messages().with_local_hand_off(Duration::ZERO);
        let client = shelf.witness.client(each).await;
        for _ in 0..10 {
            let read = shelf.lock(&client).read().owned_by(&Owner::new());
            readers.spawn(async move { read.lock().await });
        }
    }
    let tried = async || shelf.witness.ran(&["pttl"]).await >= 40;
    eventually("the readers are parked", SOON, tried).await;
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    // All readers hold the lock at the same time.
    let guards = tokio::time::timeout(SOON, readers.join_all()).await;
    let guards = guards.expect("all readers acquire the lock");
    let fields: u64 = shelf.witness.ask(&["HLEN", &shelf.name]).await;
    assert_eq!(fields, 21);
    for guard in guards {
        let _ = guard.unwrap().unlock().await.unwrap();
    }
    shelf.witness.nothing_left().await;
}

/// The same without a message: the writer died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiting_readers_enter_when_a_writers_lease_runs_out() {
    let shelf = Shelf::new().await;
    let dead = ["HSET", &shelf.name, "mode", "write", "a:1:write", "1"];
    let () = shelf.witness.ask(&dead).await;
    let () = shelf.witness.ask(&["PEXPIRE", &shelf.name, "1500"]).await;
    let client = shelf.witness.client(watched(SOON * 3)).await;
    let mut readers = JoinSet::new();
    for _ in 0..20 {
        let read = shelf.lock(&client).read().owned_by(&Owner::new());
        readers.spawn(async move { read.lock().await });
    }
    let guards = tokio::time::timeout(Duration::from_secs(4), readers.join_all()).await;
    for guard in guards.expect("the readers follow each other without a poll") {
        let _ = guard.unwrap().unlock().await.unwrap();
    }
    shelf.witness.nothing_left().await;
}

/// The last reader's release wakes a writer, of the same process or of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_reader_lets_a_writer_in() {
    let shelf = Shelf::new().await;
    let clients = [
        shelf.witness.client(only_messages()).await,
        shelf.witness.client(only_messages()).await,
    ];
    for client in &clients {
        let mut readers = Vec::new();
        for reader in &clients {
            readers.push(shelf.lock(reader).read().lock().await.unwrap());
        }
        shelf.witness.server.reset_calls().await;
        let write = shelf.lock(client).write().owned_by(&Owner::new());
        let writer = tokio::spawn(async move { write.lock().await });
        shelf.witness.have_run(2).await;
        shelf.witness.has_a_subscriber(&shelf.channel()).await;
        for reading in readers {
            assert!(!writer.is_finished(), "the writer enters beside a reader");
            assert_eq!(reading.unlock().await, Ok(Released::Fully));
        }
        let writing = crate::witness::done("the waiter is notified", writer)
            .await
            .unwrap();
        assert_eq!(writing.unlock().await, Ok(Released::Fully));
    }
    shelf.witness.nothing_left().await;
}

/// Each release of Redisson reads every marker of a count: 775 ms of the server at 1,000,000
/// (measured).
#[tokio::test]
async fn p_rw6_one_owner_has_a_thousand_read_holds_at_most() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let mut guards = Vec::new();
    for _ in 0..1000 {
        guards.push(lock.read().lock().await.unwrap());
    }
    for tried in [
        lock.read().lock().await.map(Some),
        lock.read().try_lock().await,
    ] {
        let refused = tried.map(drop);
        let most = matches!(&refused, Err(Error::TooManyHolds { most: 1000, .. }));
        assert!(most, "{refused:?}");
    }
    // Other owners have their own limit.
    let other = lock.read().owned_by(&Owner::new()).lock().await.unwrap();
    drop(guards.pop());
    guards.push(lock.read().lock().await.expect("a hold is available again"));
    drop(guards);
    assert_eq!(other.unlock().await, Ok(Released::Fully));
    shelf.witness.nothing_left().await;
}

/// Another owner's count may have any value.
#[tokio::test]
async fn p_rw6_another_owners_count_costs_no_more() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let reading = lock.read().lock().await.unwrap();
    for (reader, count) in [
        ("a:1", "1000000000"),
        ("a:2", "-5"),
        ("a:3", "many"),
        ("a:4", ""),
    ] {
        let () = shelf
            .witness
            .ask(&["HSET", &shelf.name, reader, count])
            .await;
    }
    shelf.witness.server.reset_calls().await;
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    let looks = shelf.witness.ran(&["pttl"]).await;
    assert!(looks <= 1100, "{looks} markers were read");
    assert!(shelf.is_free().await, "no reader is left");
}

/// Redisson 3.44 to 3.52 deletes the hash under readers whose markers it does not find (measured).
#[tokio::test]
async fn p_rw4_a_reader_whose_field_is_gone_loses_its_hold() {
    let shelf = Shelf::new().await;
    let lease = Duration::from_secs(2);
    let client = shelf.witness.client(watched(lease)).await;
    let lock = shelf.lock(&client);
    // The renewal reports the loss.
    let reading = lock.read().lock().await.unwrap();
    let () = shelf.witness.ask(&["DEL", &shelf.name]).await;
    let lost = tokio::time::timeout(SOON, reading.lost()).await;
    assert_eq!(lost.expect("the loss is reported"), LostReason::Gone);
    // The release reports the loss, with another reader inside.
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let owner = Owner::new();
    let reading = lock.read().owned_by(&owner).lock().await.unwrap();
    let () = shelf.witness.ask(&["DEL", &shelf.name]).await;
    let other = shelf.java_reads(1, 30_000).await;
    let gone = reading.unlock().await;
    assert!(matches!(gone, Err(Error::Lost { .. })), "{gone:?}");
    let count: u32 = shelf.witness.ask(&["HGET", &shelf.name, &other]).await;
    assert_eq!(count, 1, "the other reader is still there");
}

/// The marker of a live reader is gone, and its field is not. For other clients its lease has
/// ended.
#[tokio::test]
async fn p_rw4_a_reader_without_its_marker_loses_its_hold() {
    let shelf = Shelf::new().await;
    let each = watched(Duration::from_secs(2)).with_local_hand_off(Duration::ZERO);
    let client = shelf.witness.client(each).await;
    let owner = Owner::new();
    let lock = shelf.lock(&client);
    let reading = lock.read().owned_by(&owner).lock().await.unwrap();
    let other = lock.read().owned_by(&Owner::new()).lock().await.unwrap();
    let marker = shelf.marker(&entry(&client, owner), 1);
    let () = shelf.witness.ask(&["DEL", &marker]).await;
    let lost = tokio::time::timeout(SOON, reading.lost()).await;
    assert_eq!(lost.expect("the loss is reported"), LostReason::Gone);
    assert!(!other.is_lost());
    assert_eq!(other.unlock().await, Ok(Released::Fully));
    assert!(shelf.is_free().await);
}

/// Live readers keep a writer out, a dead one does not, however many come and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_reader_does_not_starve_writers() {
    let shelf = Shelf::new().await;
    let client = shelf.witness.client(watched(Duration::from_secs(2))).await;
    shelf.java_reads(1, 1000).await;
    let write = shelf.lock(&client).write().owned_by(&Owner::new());
    let writer = tokio::spawn(async move { write.lock().await });
    // Readers follow each other, with moments without a live one.
    let lock = shelf.lock(&client);
    let readers = tokio::spawn(async move {
        loop {
            let read = lock.read().owned_by(&Owner::new());
            let _ = read.lock().await.unwrap().unlock().await.unwrap();
        }
    });
    let writing = crate::witness::done("the writer acquires the lock", writer).await;
    let _ = writing.unwrap().unlock().await.unwrap();
    readers.abort();
}
