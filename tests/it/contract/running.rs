//! `run` acquires, works and releases, and stops the body at a loss.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use redisson_lock::{Error, Kind, Lock, LostReason, Owner};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Duration, timeout},
};

use super::{
    Subject,
    bed::{Bed, SOON, assert_gone, only_messages, watched},
    exclusion::Room,
};

/// Records its drop.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

pub async fn the_result_comes_back_and_the_lock_is_free<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let mut work = vec![1, 2];
    let length = bed
        .lock
        .run(async |guard| {
            assert!(!guard.is_lost());
            assert_eq!(bed.lock.is_held().await, Ok(true));
            work.push(3);
            work.len()
        })
        .await;
    assert_eq!(length, Ok(3));
    assert!(bed.is_free().await);
    let failed: Result<(), _> = bed.lock.run(async |_| Err("no")).await.unwrap();
    assert_eq!(failed, Err("no"), "an error of the body is its result");
    assert!(bed.is_free().await);
}

pub async fn a_lost_hold_stops_the_body<S: Subject>() {
    let bed = Bed::<S>::with(watched(Duration::from_secs(3))).await;
    let other_client = bed.lock_of_other_client().await;
    let dropped = Arc::new(AtomicBool::new(false));
    let on_drop = Dropped(dropped.clone());
    let forced = bed.lock.run(async |_| {
        let _on_drop = on_drop;
        assert_eq!(other_client.force_unlock().await, Ok(true));
        pending::<()>().await;
    });
    let ran = timeout(SOON, forced).await.expect("the body is stopped");
    assert_gone(&ran);
    assert!(dropped.load(SeqCst), "the body is dropped");
    assert!(bed.is_free().await);
}

pub async fn a_body_that_ends_unprotected_is_an_error<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let other_client = bed.lock_of_other_client().await;
    let ran = bed
        .lock
        .run(async |_| other_client.force_unlock().await)
        .await;
    assert!(matches!(&ran, Err(Error::Lost { .. })), "{ran:?}");
    let lock = bed.lock.with_lease(Duration::from_millis(100));
    let ran = timeout(SOON, lock.run(async |_| pending::<()>().await)).await;
    let ran = ran.expect("the body is stopped");
    assert!(
        matches!(
            &ran,
            Err(Error::Lost {
                reason: LostReason::Expired,
                ..
            })
        ),
        "{ran:?}"
    );
}

pub async fn the_body_enters_again<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let inner = async |_: &_| bed.count_of(Owner::current()).await;
    let counted = bed.lock.run(async |_| bed.lock.run(inner).await).await;
    assert_eq!(counted, Ok(Ok(Some(2))));
    assert!(bed.is_free().await);
}

pub async fn a_dropped_run_releases<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let inside = Arc::new(Notify::new());
    let (lock, entered) = (bed.lock.clone(), inside.clone());
    let running = tokio::spawn(async move {
        lock.run(async |_| {
            entered.notify_one();
            pending::<()>().await
        })
        .await
    });
    inside.notified().await;
    assert!(!bed.is_free().await);
    running.abort();
    bed.becomes_free().await;
}

pub async fn a_panic_inside_releases<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let lock = bed.lock.clone();
    let running = tokio::spawn(async move { lock.run(async |_| panic!("on purpose")).await });
    assert!(running.await.unwrap_err().is_panic());
    bed.becomes_free().await;
}

/// The future is `Send + 'static`.
pub async fn the_future_of_run_can_be_spawned<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let lock = bed.lock.clone();
    let spawned = tokio::spawn(async move {
        lock.run(async |guard| {
            tokio::task::yield_now().await;
            !guard.is_lost()
        })
        .await
    });
    assert_eq!(spawned.await.unwrap(), Ok(true));
}

pub async fn run_excludes_other_owners<S: Subject>() {
    async fn runs<K: Kind>(lock: Lock<K>, room: Arc<Room>) {
        for _ in 0..10 {
            lock.run(async |_| room.visit().await).await.unwrap();
        }
    }
    let bed = Bed::<S>::new().await;
    let (room, rival) = (Arc::new(Room::default()), bed.rival_same_client());
    let mut tasks = JoinSet::new();
    tasks.spawn(runs(bed.lock.clone(), room.clone()));
    for _ in 0..3 {
        tasks.spawn(runs(rival.clone(), room.clone()));
    }
    tasks.join_all().await;
    assert_eq!(room.visits(), 40);
}
