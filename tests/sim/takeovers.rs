//! What a client learns of a lock that it held and that the server has taken from it: deleted by an operator, over before
//! its time, or another owner's by now. One arranged case each, by a paused clock.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use redisson_lock::{
    Config, Error, Kind, Lock, LockClient, LostReason, Owner, Released,
    test_util::{InMemoryRedis, simulation::Pushed},
};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(1);
/// What an undisturbed task may take to be inside once it can be.
const SOON: Duration = Duration::from_millis(50);
const NEVER: Duration = Duration::from_secs(3_600);

/// A client that never asks by itself.
async fn client(server: &InMemoryRedis) -> LockClient {
    let config = Config::default().with_poll_floor(NEVER);
    server.client_with(config).await.expect("the server is up")
}

fn read(client: &LockClient) -> Lock<redisson_lock::Read> {
    client.read_write_lock("a").read().clone()
}

fn write(client: &LockClient) -> Lock<redisson_lock::Write> {
    client.read_write_lock("a").write().clone()
}

/// The holders of the lock, without their counts.
fn holders(server: &InMemoryRedis) -> Vec<String> {
    let mut holders: Vec<_> = server
        .holders("a")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    holders.sort();
    holders
}

/// The lock of one client is deleted and taken by another: the first learns of it by its next renewal, which leaves the
/// lease of the other as it is.
async fn is_lost_to_another<K: Kind, L: Kind>(
    mine: impl Fn(&LockClient) -> Lock<K>,
    others: impl Fn(&LockClient) -> Lock<L>,
) {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = mine(&one).lock().await.unwrap();
    sleep(SHORT).await;
    assert!(server.delete("a"));
    let _others = others(&other).with_lease(LEASE).lock().await.unwrap();
    let held_by = holders(&server);
    let until = Instant::now() + LEASE;
    server.advance(LEASE / 2).await;
    assert!(guard.is_lost(), "{}", std::any::type_name::<K>());
    assert_eq!(guard.lost().await, LostReason::Gone);
    assert_eq!(holders(&server), held_by);
    let left = server.remaining_lease("a").expect("another's lock");
    assert!(
        Instant::now() + left <= until,
        "a renewal prolonged another's lease"
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_keep_a_lock_of_another_owner() {
    let reentrant = |client: &LockClient| client.reentrant_lock("a");
    is_lost_to_another(reentrant, reentrant).await;
    let fenced = |client: &LockClient| client.fenced_lock("a");
    is_lost_to_another(fenced, fenced).await;
    let fair = |client: &LockClient| client.fair_lock("a");
    is_lost_to_another(fair, fair).await;
    let simple = |client: &LockClient| client.simple_lock("a");
    is_lost_to_another(simple, simple).await;
    is_lost_to_another(write, write).await;
    is_lost_to_another(write, read).await;
    is_lost_to_another(read, write).await;
    is_lost_to_another(read, read).await;
}

/// What is left of a reader that could not renew in time: its field, which the hash of other readers keeps.
#[tokio::test(start_paused = true)]
async fn a_read_hold_without_its_lease_is_not_renewed() {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
    let owner = Owner::new();
    let guard = read(&one).owned_by(&owner).lock().await.unwrap();
    let _other = read(&other).lock().await.unwrap();
    let marker = format!("{{a}}:{}:{owner}:rwlock_timeout:1", one.id());
    assert!(server.delete(&marker), "{:?}", server.keys());
    server.advance(LEASE / 2).await;
    assert!(guard.is_lost());
}

/// An inner hold is no hold of a lock whose outer holds are gone: another owner may have been inside meanwhile.
async fn outer_hold_is_lost<K: Kind>(lock: impl Fn(&LockClient) -> Lock<K>) {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let lock = lock(&client).owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    assert!(server.delete("a"));
    let inner = lock.lock().await.unwrap();
    assert!(outer.is_lost(), "{}", std::any::type_name::<K>());
    assert_eq!(inner.unlock().await.unwrap(), Released::Fully);
    assert_eq!(holders(&server), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_nested_acquisition_finds_that_the_outer_hold_is_gone() {
    outer_hold_is_lost(|client| client.reentrant_lock("a")).await;
    outer_hold_is_lost(|client| client.fenced_lock("a")).await;
    outer_hold_is_lost(|client| client.fair_lock("a")).await;
    outer_hold_is_lost(write).await;
    outer_hold_is_lost(read).await;
}

/// A lock that one task of a client hands to the next does not belong to the releaser.
async fn is_not_handed_over<K: Kind>(lock: impl Fn(&LockClient) -> Lock<K>) {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
    let mine = |task: usize| {
        lock(&one)
            .owned_by(&Owner::new())
            .with_lease(LEASE + SHORT * task as u32)
    };
    // The server knows the scripts from here on.
    mine(0).lock().await.unwrap().unlock().await.unwrap();
    let first = mine(0).lock().await.unwrap();
    // The first release is published, the second hands over.
    let mut waiting = Vec::new();
    for task in 1..4 {
        let lock = mine(task);
        waiting.push(tokio::spawn(async move { lock.lock().await }));
        sleep(SOON).await;
    }
    let third = waiting.split_off(1);
    first.unlock().await.unwrap();
    let second = waiting.remove(0).await.unwrap().unwrap();
    assert!(server.delete("a"));
    let guard = lock(&other).with_lease(LEASE).lock().await.unwrap();
    let held_by = holders(&server);
    let released = second.unlock().await;
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    sleep(SOON).await;
    assert_eq!(holders(&server), held_by);
    assert!(!third.iter().any(|task| task.is_finished()));
    guard.unlock().await.unwrap();
    let mut inside = 0;
    for task in third {
        let entered = timeout(LEASE, task).await;
        inside += usize::from(entered.expect("the waiters enter").unwrap().is_ok());
    }
    assert_eq!(inside, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_another_owner_is_not_handed_over() {
    is_not_handed_over(|client| client.reentrant_lock("a")).await;
    is_not_handed_over(|client| client.fenced_lock("a")).await;
    is_not_handed_over(|client| client.simple_lock("a")).await;
}

/// What a client gives up as lost, before the server does, may still be there when its owner asks again: with a token that
/// other clients have heard is over.
#[tokio::test(start_paused = true)]
async fn a_hold_after_a_lost_one_has_a_token_of_its_own() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let lock = client
        .fenced_lock("a")
        .owned_by(&Owner::new())
        .with_lease(LEASE);
    let lost = lock.lock().await.unwrap();
    let over = tokio::time::Instant::from_std(lost.valid_until());
    tokio::time::sleep_until(over).await;
    assert!(lost.is_lost());
    assert!(
        server.remaining_lease("a").is_some(),
        "clocks differ by less"
    );
    let guard = lock.lock().await.unwrap();
    assert!(
        guard.token() > lost.token(),
        "{} after {}",
        guard.token(),
        lost.token()
    );
}

/// The field of a writer in a hash that readers have: no hold of this crate's or of Redisson's.
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
    let lock = write(&client).owned_by(&owner);
    assert!(lock.try_lock().await.unwrap().is_none());
}

/// Of a writer that reads as well, the shorter lease of its read hold is left.
#[tokio::test(start_paused = true)]
async fn a_downgrade_leaves_the_lease_of_the_read_hold() {
    let server = InMemoryRedis::new();
    let (holding, waiting) = (client(&server).await, client(&server).await);
    let owner = Owner::new();
    let writing = write(&holding).owned_by(&owner).lock().await.unwrap();
    let reading = read(&holding).owned_by(&owner).with_lease(SHORT);
    let reading = reading.lock().await.unwrap();
    writing.unlock().await.unwrap();
    let left = server.remaining_lease("a").expect("the read hold is left");
    assert!(left <= SHORT, "{left:?}");
    let began = Instant::now();
    let guard = timeout(LEASE, write(&waiting).lock()).await;
    assert!(guard.is_ok_and(|guard| guard.is_ok()));
    let took = began.elapsed();
    assert!(took < SHORT + SOON, "{took:?}");
    assert!(reading.is_lost());
}

/// A writer that waits keeps new readers out for moments, and no longer than it waits.
#[tokio::test(start_paused = true)]
async fn a_writer_that_gives_up_lets_readers_in() {
    let server = InMemoryRedis::new();
    let (reading, writing) = (client(&server).await, client(&server).await);
    let new_reader = || read(&reading).owned_by(&Owner::new());
    let _reader = new_reader().lock().await.unwrap();
    let lock = write(&writing);
    let writer = tokio::spawn(async move { lock.lock().await.map(drop) });
    let intent = || server.remaining_lease("{a}:write_intent");
    // Moments in which the writer did not get in grow longer.
    let until = Instant::now() + LEASE;
    while intent().is_none_or(|left| left < SOON) {
        assert!(Instant::now() < until, "no reader is kept out");
        sleep(Duration::from_millis(1)).await;
    }
    assert!(new_reader().try_lock().await.unwrap().is_none());
    writer.abort();
    sleep(Duration::from_millis(1)).await;
    assert!(new_reader().try_lock().await.unwrap().is_some());
}

/// Redisson's waiters wake by the payload: `1` is for all of a client's, `0` for one.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_writer_is_a_message_for_all_waiters() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let java = server.raw().await.unwrap();
    let mut messages = java.messages();
    let channel = "redisson_rwlock:{a}";
    java.send("SUBSCRIBE", &[channel]).await.unwrap();
    let owner = Owner::new();
    let (reading, writing) = (
        read(&client).owned_by(&owner),
        write(&client).owned_by(&owner),
    );
    let mut heard = async |payload: &str| {
        let message = timeout(SHORT, messages.next()).await;
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        let channel = Bytes::from_static(channel.as_bytes());
        assert_eq!(message, Ok(Some(Pushed::Message { channel, payload })));
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

/// Readers of two clients wait for a writer of a third, with one message for all of them.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_writer_lets_all_readers_in() {
    let server = InMemoryRedis::new();
    let writing = client(&server).await;
    let guard = write(&writing).lock().await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..2 {
        let client = client(&server).await;
        for _ in 0..3 {
            let lock = read(&client).owned_by(&Owner::new());
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
    // One reader of each client asks for all.
    assert_eq!(server.holders("a").len(), 2);
}
