//! One owner at a time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

use redisson_lock::{Kind, Lock, Owner, Released};
use testbed::unique_name;
use tokio::{sync::Barrier, task::JoinSet, task::yield_now};

use super::{
    Subject,
    bed::{Bed, RivalKind},
};

/// Checks that its visitors exclude each other.
#[derive(Default)]
pub struct Room {
    inside: AtomicBool,
    visits: AtomicU32,
}

impl Room {
    pub async fn visit(&self) {
        assert!(!self.inside.swap(true, SeqCst), "two owners are inside");
        for _ in 0..20 {
            yield_now().await;
        }
        self.visits.fetch_add(1, SeqCst);
        self.inside.store(false, SeqCst);
    }

    pub fn visits(&self) -> u32 {
        self.visits.load(SeqCst)
    }
}

const TIMES: u32 = 25;

/// Visits the room `TIMES` times, each time with the lock.
async fn visits<K: Kind>(lock: Lock<K>, room: Arc<Room>) {
    for _ in 0..TIMES {
        let guard = lock.lock().await.unwrap();
        room.visit().await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}

/// Runs a task for `lock` and one for each of its `rivals`.
async fn tasks_visit<S: Subject>(lock: &Lock<S::Kind>, rivals: [&Lock<RivalKind<S>>; 3]) {
    let room = Arc::new(Room::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(visits(lock.clone(), room.clone()));
    for rival in rivals {
        tasks.spawn(visits(rival.clone(), room.clone()));
    }
    tasks.join_all().await;
    assert_eq!(room.visits(), 4 * TIMES);
}

pub async fn tasks_exclude_each_other<S: Subject>() {
    let bed = Bed::<S>::new().await;
    tasks_visit::<S>(&bed.lock, [&bed.rival_same_client(); 3]).await;
    bed.becomes_free().await;
}

pub async fn clients_exclude_each_other<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let (here, other_client) = (bed.rival_same_client(), bed.rival().await);
    tasks_visit::<S>(&bed.lock, [&here, &other_client, &other_client]).await;
    bed.becomes_free().await;
}

pub async fn owners_of_one_task_exclude_each_other<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let first = bed.lock.owned_by(&Owner::new());
    let second = bed.rival_same_client().owned_by(&Owner::new());
    let guard = first.lock().await.unwrap();
    assert!(second.try_lock().await.unwrap().is_none());
    assert!(
        bed.rival_same_client().try_lock().await.unwrap().is_none(),
        "the task's own owner is refused too"
    );
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let guard = second.try_lock().await.unwrap().expect("the lock is free");
    assert!(first.try_lock().await.unwrap().is_none());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

pub async fn scopes_in_one_join_exclude_each_other<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let (room, rival) = (Arc::new(Room::default()), bed.rival_same_client());
    tokio::join!(
        Owner::new().scope(visits(bed.lock.clone(), room.clone())),
        Owner::new().scope(visits(rival.clone(), room.clone())),
        Owner::new().scope(visits(rival, room.clone())),
    );
    assert_eq!(room.visits(), 3 * TIMES);
}

/// Branches of one task share its owner, as documented.
pub async fn the_branches_of_a_join_share_their_owner<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let both_inside = Barrier::new(2);
    let branch = async || {
        let guard = bed.lock.lock().await.unwrap();
        both_inside.wait().await;
        assert_eq!(bed.lock.hold_count().await, Ok(2));
        both_inside.wait().await;
        guard.unlock().await.unwrap()
    };
    let (one, other) = tokio::join!(branch(), branch());
    let mut released = [one, other];
    released.sort_by_key(|released| *released == Released::Fully);
    assert_eq!(
        released,
        [Released::StillHeld { holds: 1 }, Released::Fully]
    );
    assert!(bed.is_free().await);
}

pub async fn a_spawned_task_is_another_owner<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let guard = bed.lock.lock().await.unwrap();
    let rival = bed.rival_same_client();
    let enters = async move { rival.try_lock().await.unwrap().is_some() };
    assert!(!tokio::spawn(enters).await.unwrap());
    drop(guard);
}

pub async fn a_spawned_task_in_a_scope_is_its_owner<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let _guard = bed.lock.lock().await.unwrap();
    let lock = bed.lock.clone();
    let counts = async move {
        let _inner = lock.try_lock().await.unwrap().expect("the owner re-enters");
        lock.hold_count().await
    };
    let counted = tokio::spawn(Owner::current().scope(counts));
    assert_eq!(counted.await.unwrap(), Ok(2));
}

pub async fn handles_on_one_name_are_one_lock<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let handles = [
        bed.lock.clone(),
        S::lock(&bed.client.clone(), &bed.name),
        bed.lock.with_lease(super::bed::SOON),
    ];
    for holder in &handles {
        let guard = holder.lock().await.unwrap();
        for other in &handles {
            assert_eq!(other.is_held().await, Ok(true));
            let rival = bed.rival_same_client().owned_by(&Owner::new());
            assert!(rival.try_lock().await.unwrap().is_none());
        }
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}

pub async fn names_are_locks_of_their_own<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let other_name = unique_name("app:other");
    let guard = bed.lock.lock().await.unwrap();
    let other = S::lock(&bed.client, &other_name).owned_by(&Owner::new());
    let other_guard = other
        .try_lock()
        .await
        .unwrap()
        .expect("another lock is free");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(other.is_held().await, Ok(true));
    assert_eq!(other_guard.unlock().await, Ok(Released::Fully));
}
