//! Locks that the server takes from their holder: deleted by an operator, expired early, or granted to another owner. One arranged
//! case per test, under a paused clock.

use redisson_lock::{Error, Kind, Lock, LockClient, LostReason, Owner, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LEASE, SHORT, SOON, client, reader, reader_of, writer};

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

/// The lock of one client is deleted, and another client acquires it. The next renewal of the first reveals the loss and leaves
/// the other lease unchanged.
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
    is_lost_to_another(writer, writer).await;
    is_lost_to_another(writer, reader).await;
    is_lost_to_another(reader, writer).await;
    is_lost_to_another(reader, reader).await;
}

/// A reader that renewed too late keeps its field in the hash, because of other readers, but has lost its marker.
#[tokio::test(start_paused = true)]
async fn a_read_hold_without_its_lease_is_not_renewed() {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
    let owner = Owner::new();
    let guard = reader_of(&one, &owner).lock().await.unwrap();
    let _other = reader(&other).lock().await.unwrap();
    let marker = format!("{{a}}:{}:{owner}:rwlock_timeout:1", one.id());
    assert!(server.delete(&marker), "{:?}", server.keys());
    server.advance(LEASE / 2).await;
    assert!(guard.is_lost());
}

/// `unlock` of a leaked hold finds the loss; once the client knows of it, there is no hold.
async fn leaked_hold_is_lost<K: Kind>(lock: impl Fn(&LockClient) -> Lock<K>) {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
    let mine = lock(&one).owned_by(&Owner::new());
    mine.lock().await.unwrap().leak();
    assert!(lock(&other).force_unlock().await.unwrap());
    let others = lock(&other).lock().await.unwrap();
    let lost = mine.unlock().await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    let unknown = mine.unlock().await;
    assert!(matches!(unknown, Err(Error::NotHeld { .. })), "{unknown:?}");
    assert_eq!(others.unlock().await.unwrap(), Released::Fully);
}

#[tokio::test(start_paused = true)]
async fn a_leaked_hold_that_was_forced_out_is_lost() {
    leaked_hold_is_lost(|client| client.reentrant_lock("a")).await;
    leaked_hold_is_lost(|client| client.fenced_lock("a")).await;
    leaked_hold_is_lost(|client| client.fair_lock("a")).await;
    leaked_hold_is_lost(|client| client.simple_lock("a")).await;
    leaked_hold_is_lost(writer).await;
    leaked_hold_is_lost(reader).await;
}

/// A nested acquisition does not revive lost outer holds: another owner may have held the lock in between.
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
    outer_hold_is_lost(writer).await;
    outer_hold_is_lost(reader).await;
}

/// The releaser's lock was deleted and acquired by another client, so its release hands nothing off.
async fn is_not_handed_over<K: Kind>(lock: impl Fn(&LockClient) -> Lock<K>) {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
    let mine = |task: usize| {
        lock(&one)
            .owned_by(&Owner::new())
            .with_lease(LEASE + SHORT * task as u32)
    };
    // Loads the scripts into the server.
    mine(0).lock().await.unwrap().unlock().await.unwrap();
    let first = mine(0).lock().await.unwrap();
    // `first` releases to `second`. `second` releases after its lock was deleted.
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
async fn release_of_a_lost_lock_hands_nothing_off() {
    is_not_handed_over(|client| client.reentrant_lock("a")).await;
    is_not_handed_over(|client| client.fenced_lock("a")).await;
    is_not_handed_over(|client| client.simple_lock("a")).await;
}

/// A client counts a hold as lost before the server ends it. If its owner acquires again in between, the server must not
/// repeat the old token.
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
        "the lease ended before the validity"
    );
    let guard = lock.lock().await.unwrap();
    assert!(
        guard.token() > lost.token(),
        "{} after {}",
        guard.token(),
        lost.token()
    );
}

/// The clock jumps to the end of the validity, and no timer has fired. Each operation reads the clock itself.
#[tokio::test(start_paused = true)]
async fn a_hold_is_over_by_the_clock_before_its_timer_fires() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let owner = Owner::new();
    let lock = client.reentrant_lock("a").owned_by(&owner);
    let over = lock.with_lease(LEASE).lock().await.unwrap();
    let left = over.valid_until() - Instant::now().into_std();
    let mut jump = Box::pin(tokio::time::advance(left + SOON / 50));
    let mut next = Box::pin(lock.lock());
    // The clock jumps in the first poll, and no other task runs before the second.
    assert!(futures_util::poll!(&mut jump).is_pending());
    assert!(over.is_lost());
    assert!(futures_util::poll!(&mut next).is_pending());
    jump.await;
    let next = next.await.unwrap();
    assert_eq!(
        server.holders("a")[0].1,
        1,
        "it was asked for as a nested hold"
    );
    assert!(over.is_lost() && !next.is_lost());
    assert!(matches!(over.unlock().await, Err(Error::Lost { .. })));
    assert_eq!(next.unlock().await.unwrap(), Released::Fully);
}
