//! Changes of the side: re-entry of both, downgrade, upgrade.

use std::time::Duration;

use redisson_lock::{Error, LostReason, Owner, Released};
use testbed::Proxy;
use tokio::{task::JoinSet, time::timeout};

use super::{Shelf, me};
use crate::witness::{Listener, SOON, connect, done, only_messages, watched};

/// The hold counts of both sides, in the client and on the server, in any order of their ends.
#[tokio::test]
async fn both_sides_are_entered_again_and_left_in_any_order() {
    let shelf = Shelf::new().await;
    let client = shelf.witness.a_client().await;
    let lock = shelf.lock(&client);
    let other = shelf.lock(&client);
    let other = (
        other.read().owned_by(&Owner::new()),
        other.write().owned_by(&Owner::new()),
    );
    let counts = async || {
        let [reads, writes] = [me(&client), format!("{}:write", me(&client))];
        let words = ["HMGET", &shelf.name, &reads, &writes];
        let (reads, writes): (Option<u32>, Option<u32>) = shelf.witness.ask(&words).await;
        assert_eq!(lock.read().hold_count().await, Ok(reads.unwrap_or(0)));
        assert_eq!(lock.write().hold_count().await, Ok(writes.unwrap_or(0)));
        (reads.unwrap_or(0), writes.unwrap_or(0))
    };
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let mut writes = Vec::new();
        let mut reads = Vec::new();
        for holds in 1..=2 {
            writes.push(lock.write().lock().await.unwrap());
            reads.push(lock.read().lock().await.unwrap());
            assert_eq!(counts().await, (holds, holds));
        }
        for (ended, number) in order.into_iter().enumerate() {
            let writing = !writes.is_empty();
            assert!(other.1.try_lock().await.unwrap().is_none());
            assert_eq!(other.0.try_lock().await.unwrap().is_none(), writing);
            if number % 2 == 0 && !writes.is_empty() {
                let _ = writes.pop().unwrap().unlock().await.unwrap();
            } else if let Some(reading) = reads.pop() {
                let _ = reading.unlock().await.unwrap();
            } else {
                let _ = writes.pop().unwrap().unlock().await.unwrap();
            }
            let (reads, writes) = (reads.len() as u32, writes.len() as u32);
            assert_eq!(counts().await, (reads, writes), "{ended} of {order:?}");
        }
        shelf.witness.nothing_left().await;
    }
}

/// Redisson publishes nothing at a downgrade (measured), and waiting readers sleep on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_w10_a_downgrade_lets_waiting_readers_in() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let mut listener = Listener::on(&shelf.witness.server, &shelf.channel()).await;
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    let waiter = shelf.witness.client(only_messages()).await;
    shelf.witness.server.reset_calls().await;
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let read = shelf.lock(&waiter).read().owned_by(&Owner::new());
        readers.spawn(async move { read.lock().await });
    }
    shelf.witness.have_run(6).await;
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    assert_eq!(listener.messages().await, ["1"]);
    drop(listener);
    let guards = timeout(SOON, readers.join_all()).await;
    let guards = guards.expect("a message wakes the readers");
    assert_eq!(shelf.mode().await.as_deref(), Some("read"));
    for guard in guards {
        let _ = guard.unwrap().unlock().await.unwrap();
    }
    // The last read release publishes a message, as usual.
    let mut listener = Listener::on(&shelf.witness.server, &shelf.channel()).await;
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    assert_eq!(listener.messages().await, ["0"]);
    drop(listener);
    shelf.witness.nothing_left().await;
}

/// `Guard::downgrade` does what the two calls do: readers enter, no writer does, and the terms stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_guard_becomes_a_read_guard() {
    let shelf = Shelf::new().await;
    let client = shelf.witness.client(only_messages()).await;
    let (lock, other) = (
        shelf.lock(&client),
        shelf.lock(&shelf.witness.a_client().await),
    );
    let lease = Duration::from_secs(100);
    for lock in [lock.write().clone(), lock.write().with_lease(lease)] {
        let writing = lock.lock().await.unwrap();
        let (owner, left) = (writing.owner(), shelf.pttl().await);
        let read = other.read().owned_by(&Owner::new());
        let reader = tokio::spawn(async move { read.lock().await });
        let reading = writing.downgrade().await.unwrap();
        assert_eq!(
            (reading.owner(), shelf.mode().await.as_deref()),
            (owner, Some("read"))
        );
        let valid = reading.valid_until() - std::time::Instant::now();
        assert!(valid.as_millis().abs_diff(left as u128) < u128::from(left.unsigned_abs() / 10));
        let beside = done("a waiting reader enters", reader).await.unwrap();
        let write = other.write().owned_by(&Owner::new());
        assert!(write.try_lock().await.unwrap().is_none());
        beside.unlock().await.unwrap();
        assert_eq!(reading.unlock().await, Ok(Released::Fully));
    }
    // The owner writes still, by its outer hold.
    let outer = lock.write().lock().await.unwrap();
    let inner = lock
        .write()
        .lock()
        .await
        .unwrap()
        .downgrade()
        .await
        .unwrap();
    assert_eq!(shelf.mode().await.as_deref(), Some("write"));
    assert!(other.read().try_lock().await.unwrap().is_none());
    let inner_of_outer = outer.downgrade().await.unwrap();
    assert_eq!(lock.read().hold_count().await, Ok(2));
    drop((inner, inner_of_outer));
    shelf.witness.nothing_left().await;
}

/// A downgrade of a lost hold reads nothing, whichever owner has the lock.
#[tokio::test]
async fn a_lost_write_guard_becomes_nothing() {
    let shelf = Shelf::new().await;
    let client = shelf.witness.client(only_messages()).await;
    let (lock, other) = (
        shelf.lock(&client),
        shelf.lock(&shelf.witness.a_client().await),
    );
    for side in ["free", "writes", "reads"] {
        let writing = lock.write().lock().await.unwrap();
        assert_eq!(other.write().force_unlock().await, Ok(true));
        let inside = match side {
            "writes" => Some(other.write().lock().await.unwrap().into_dyn()),
            "reads" => Some(other.read().lock().await.unwrap().into_dyn()),
            _ => None,
        };
        let error = writing.downgrade().await.unwrap_err();
        assert!(error.is_lost(), "{side}: {error}");
        assert_eq!(lock.read().is_held().await, Ok(false), "{side}");
        assert!(client.holds().is_empty(), "{side}");
        drop(inside);
        shelf.witness.nothing_left().await;
    }
}

/// A reader whose side was forced open elsewhere is told when a writer of its client is let in, and the other way round.
#[tokio::test]
async fn a_grant_of_one_side_ends_holds_of_the_other_side() {
    let shelf = Shelf::new().await;
    let client = shelf.witness.client(only_messages()).await;
    let (lock, operator) = (
        shelf.lock(&client),
        shelf.lock(&shelf.witness.a_client().await),
    );
    let next = Owner::new();
    let reading = lock.read().lock().await.unwrap();
    assert_eq!(operator.read().force_unlock().await, Ok(true));
    let writing = lock.write().owned_by(&next).lock().await.unwrap();
    let told = timeout(SOON, reading.lost())
        .await
        .expect("the reader is told");
    assert_eq!(told, LostReason::Gone);
    assert_eq!(operator.write().force_unlock().await, Ok(true));
    let reading = lock.read().lock().await.unwrap();
    let told = timeout(SOON, writing.lost())
        .await
        .expect("the writer is told");
    assert_eq!(told, LostReason::Gone);
    assert!(!reading.is_lost());
    reading.unlock().await.unwrap();
    drop(writing);
    shelf.witness.nothing_left().await;
}

/// A downgrade keeps writers out without a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_lets_no_writer_in() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let other = shelf.witness.a_client().await;
    for _ in 0..50 {
        let writing = lock.write().lock().await.unwrap();
        let write = shelf.lock(&other).write().owned_by(&Owner::new());
        let writer = tokio::spawn(async move { write.lock().await });
        let reading = lock.read().lock().await.unwrap();
        assert_eq!(writing.unlock().await, Ok(Released::Fully));
        let again = lock.read().lock().await.unwrap();
        assert!(
            !writer.is_finished(),
            "the writer acquired the lock beside a reader"
        );
        assert!(!reading.is_lost() && !again.is_lost());
        assert_eq!(again.unlock().await, Ok(Released::StillHeld { holds: 1 }));
        assert_eq!(reading.unlock().await, Ok(Released::Fully));
        let _ = done("the loss is reported", writer)
            .await
            .unwrap()
            .unlock()
            .await
            .unwrap();
    }
    shelf.witness.nothing_left().await;
}

/// In Redisson an upgrade waits for itself for ever.
#[tokio::test]
async fn p_rw3_an_upgrade_is_refused_at_once() {
    let shelf = Shelf::new().await;
    let client = shelf.witness.a_client().await;
    let lock = shelf.lock(&client);
    let reading = lock.read().lock().await.unwrap();
    shelf.witness.server.reset_calls().await;
    for tried in [
        lock.write().lock().await.map(Some),
        lock.write().try_lock().await,
        lock.write().try_lock_for(10 * SOON).await,
        lock.write().run(async |_| ()).await.map(|()| None),
    ] {
        let refused = tried.map(drop);
        assert!(
            matches!(refused, Err(Error::WouldDeadlock { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(shelf.witness.scripts().await, 0, "no request is needed");
    // Other owners are refused as usual, and a reader inside a write hold may write again.
    let other = lock.write().owned_by(&Owner::new()).try_lock().await;
    assert!(other.unwrap().is_none());
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    let again = lock.write().lock().await.expect("the owner writes already");
    assert_eq!(writing.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(again.unlock().await, Ok(Released::Fully));
    let refused = lock.write().try_lock().await.map(drop);
    assert!(
        matches!(refused, Err(Error::WouldDeadlock { .. })),
        "{refused:?}"
    );
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    shelf.witness.nothing_left().await;
}

/// A read hold that was just dropped, unlocked after a leak, or lost, is no obstacle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_rw3_a_read_hold_that_has_ended_is_no_deadlock() {
    let shelf = Shelf::new().await;
    // `force_unlock` leaves the markers of readers until their leases end.
    let client = shelf.witness.client(watched(Duration::from_secs(3))).await;
    let lock = shelf.lock(&client);
    for round in 0..100 {
        drop(lock.read().lock().await.unwrap());
        let writing = if round % 2 == 0 {
            lock.write().lock().await
        } else {
            let tried = lock.write().try_lock().await;
            tried.map(|guard| guard.expect("the lock is free"))
        };
        drop(writing.expect("the owner no longer reads"));
    }
    lock.read().lock().await.unwrap().leak();
    let refused = lock.write().try_lock().await.map(drop);
    assert!(
        matches!(refused, Err(Error::WouldDeadlock { .. })),
        "{refused:?}"
    );
    assert_eq!(lock.read().unlock().await, Ok(Released::Fully));
    let _ = lock.write().lock().await.unwrap().unlock().await.unwrap();

    let lease = Duration::from_millis(100);
    let reading = lock.read().with_lease(lease).lock().await.unwrap();
    reading.lost().await;
    let _ = lock.write().lock().await.unwrap().unlock().await.unwrap();
    drop(reading);
    let reading = lock.read().lock().await.unwrap();
    assert!(lock.read().force_unlock().await.unwrap());
    let _ = lock.write().lock().await.unwrap().unlock().await.unwrap();
    drop(reading);
    shelf.witness.nothing_left().await;
}

/// The reply of a read release is lost, and the owner writes at once. Its own read hold is no
/// obstacle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_on_one_side_do_not_harm_the_other() {
    let shelf = Shelf::new().await;
    let proxy = Proxy::start(shelf.witness.server.port()).await;
    let lock = shelf.lock(&connect(&proxy.url(), watched(SOON * 3)).await);
    let faults = proxy.faults();
    faults.only(Some(shelf.name.clone()));
    for round in 0..12_u32 {
        let lose = |step: u32| {
            if round % 6 == step && round < 6 {
                faults.lose_next_reply();
            } else if round % 6 == step {
                faults.lose_next_request();
            }
        };
        lose(0);
        let writing = lock.write().lock().await.unwrap();
        lose(1);
        let reading = lock.read().lock().await.unwrap();
        lose(2);
        assert_eq!(writing.unlock().await, Ok(Released::Fully), "round {round}");
        assert_eq!(shelf.mode().await.as_deref(), Some("read"));
        lose(3);
        assert_eq!(reading.unlock().await, Ok(Released::Fully), "round {round}");
        lose(4);
        let writing = lock.write().lock().await.unwrap();
        lose(5);
        assert_eq!(writing.unlock().await, Ok(Released::Fully), "round {round}");
    }
    assert_eq!((faults.lost_replies(), faults.lost_requests()), (6, 6));
    shelf.witness.nothing_left().await;
}

/// `force_unlock` ends its own side, and the holds of the same owner that depend on it.
#[tokio::test]
async fn forcing_one_side_leaves_the_other() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let reading = lock.read().lock().await.unwrap();
    assert_eq!(lock.write().force_unlock().await, Ok(false));
    assert!(!reading.is_lost());
    assert_eq!(lock.read().force_unlock().await, Ok(true));
    assert!(reading.is_lost());
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    assert_eq!(lock.read().force_unlock().await, Ok(false));
    assert!(!writing.is_lost() && !reading.is_lost());
    assert_eq!(lock.write().force_unlock().await, Ok(true));
    assert!(writing.is_lost() && reading.is_lost());
    assert!(shelf.is_free().await);
}
