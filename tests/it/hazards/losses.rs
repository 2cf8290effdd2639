//! Lost replies and requests, and their repetition.

use std::{sync::Arc, time::Duration};

use redisson_lock::{Lock, LockClient, Released};
use testbed::{Faults, unique_name};
use tokio::{task::JoinSet, time::timeout};

use super::stage::{
    GENEROUS, Locks, PROMPT, Random, Room, Stage, Subject, all_done, count, exists, nested_pair,
    nothing_left, pair, watched,
};

const TASKS: usize = 8;
const NAMES: usize = 3;

/// Eight tasks of two clients make pairs on three names. Each pair may be nested, and may be of the
/// rival kind.
async fn contend<S: Subject>(stage: &Stage, mut random: Random, pairs: u64) {
    let config = || watched(Duration::from_secs(30));
    let clients = [stage.client(config()).await, stage.client(config()).await];
    let rooms: Vec<_> = (0..NAMES)
        .map(|_| (unique_name("losses"), Arc::<Room>::default()))
        .collect();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = clients[task % clients.len()].clone();
        tasks.spawn(visit_all::<S>(client, rooms.clone(), random.split(), pairs));
    }
    all_done(tasks).await;
    let visits: u64 = rooms.iter().map(|(_, room)| room.visits()).sum();
    assert_eq!(visits, TASKS as u64 * pairs, "visits were lost");
    // Leases last 30 s: only a release can have removed the keys by now.
    nothing_left(&stage.server, PROMPT).await;
}

async fn visit_all<S: Subject>(
    client: LockClient,
    rooms: Vec<(String, Arc<Room>)>,
    mut random: Random,
    pairs: u64,
) {
    for _ in 0..pairs {
        let (name, room) = &rooms[random.below(NAMES as u64) as usize];
        match random.below(4) {
            0 => nested_pair::<S>(&client.kind::<S>(name), room).await,
            1 => pair::<S>(&client.kind::<S>(name), room).await,
            2 => nested_pair::<S::Rival>(&client.rival::<S>(name), room).await,
            _ => pair::<S::Rival>(&client.rival::<S>(name), room).await,
        }
    }
}

/// The pairs of each task.
const MANY: u64 = 250;
const SOME: u64 = 30;

async fn replies_are_lost<S: Subject>(pairs: u64) {
    let stage = Stage::new().await;
    let mut random = Random::new();
    stage.faults().seed(random.next());
    stage.faults().lose_replies(0.05);
    // Waiting attempts share a request. On a busy machine few requests travel, and few replies are
    // lost.
    while stage.faults().lost_replies() <= pairs / 3 {
        contend::<S>(&stage, random.split(), pairs).await;
    }
}

pub async fn p_a1_p_a5_five_percent_of_replies_are_lost<S: Subject>() {
    replies_are_lost::<S>(SOME).await;
}

pub async fn p_a1_p_a5_five_percent_of_many_replies_are_lost<S: Subject>() {
    replies_are_lost::<S>(MANY).await;
}

async fn requests_are_lost<S: Subject>(pairs: u64) {
    let stage = Stage::new().await;
    let mut random = Random::new();
    stage.faults().seed(random.next());
    stage.faults().lose_requests(0.05);
    while stage.faults().lost_requests() <= pairs / 3 {
        contend::<S>(&stage, random.split(), pairs).await;
    }
}

pub async fn five_percent_of_requests_are_lost<S: Subject>() {
    requests_are_lost::<S>(SOME).await;
}

pub async fn five_percent_of_many_requests_are_lost<S: Subject>() {
    requests_are_lost::<S>(MANY).await;
}

pub async fn requests_and_replies_are_lost_and_late<S: Subject>() {
    let stage = Stage::new().await;
    let mut random = Random::new();
    stage.faults().seed(random.next());
    stage.faults().lose_requests(0.03);
    stage.faults().lose_replies(0.03);
    stage.faults().delay(Duration::from_millis(1));
    contend::<S>(&stage, random, SOME).await;
}

/// A lock on its own stage, and a way to lose the next script that names it.
struct Single<S: Subject> {
    stage: Stage,
    name: String,
    lock: Lock<S::Kind>,
    lose: fn(&Faults),
}

impl<S: Subject> Single<S> {
    async fn new(lose: fn(&Faults)) -> Self {
        let stage = Stage::new().await;
        let client = stage.client(watched(Duration::from_secs(60))).await;
        let name = unique_name("loss");
        stage.faults().only(Some(name.clone()));
        let lock = client.kind::<S>(&name);
        Self {
            stage,
            name,
            lock,
            lose,
        }
    }

    fn lose_next(&self) {
        (self.lose)(&self.stage.faults());
    }

    fn losses(&self) -> u64 {
        self.stage.faults().lost_replies() + self.stage.faults().lost_requests()
    }

    async fn count(&self) -> u64 {
        count::<S>(&self.stage.server, &self.name).await
    }
}

const WAYS: [fn(&Faults); 2] = [Faults::lose_next_reply, Faults::lose_next_request];

pub async fn p_a1_a_lost_acquire_counts_once<S: Subject>() {
    for lose in WAYS {
        let single = Single::<S>::new(lose).await;
        single.lose_next();
        // The limit is shorter than the lease of the lost grant.
        let locked = timeout(GENEROUS, single.lock.lock()).await;
        let guard = locked
            .expect("the second request recognises the first grant")
            .unwrap();
        assert_eq!(single.losses(), 1);
        assert_eq!(single.lock.hold_count().await, Ok(1));
        assert_eq!(single.count().await, 1);
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        assert!(!exists(&single.stage.server, &single.name).await);
    }
}

pub async fn p_a5_a_lost_unlock_is_no_loss<S: Subject>() {
    for lose in WAYS {
        let single = Single::<S>::new(lose).await;
        let guard = single.lock.lock().await.unwrap();
        single.lose_next();
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        assert_eq!(single.losses(), 1);
        assert!(!exists(&single.stage.server, &single.name).await);
    }
}

pub async fn p_a5_a_lost_unlock_of_a_leaked_hold_is_no_loss<S: Subject>() {
    for lose in WAYS {
        let single = Single::<S>::new(lose).await;
        single.lock.lock().await.unwrap().leak();
        single.lose_next();
        assert_eq!(single.lock.unlock().await, Ok(Released::Fully));
        assert_eq!(single.losses(), 1);
        assert!(!exists(&single.stage.server, &single.name).await);
    }
}

pub async fn p_a1_p_a5_nested_holds_are_counted_once<S: Subject>() {
    for lose in WAYS {
        let single = Single::<S>::new(lose).await;
        let outer = single.lock.lock().await.unwrap();
        single.lose_next();
        let inner = single.lock.lock().await.unwrap();
        assert_eq!(single.lock.hold_count().await, Ok(2));
        assert_eq!(single.count().await, 2);
        single.lose_next();
        assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
        assert_eq!(single.count().await, 1);
        single.lose_next();
        assert_eq!(outer.unlock().await, Ok(Released::Fully));
        assert_eq!(single.losses(), 3);
        assert!(!exists(&single.stage.server, &single.name).await);
    }
}

/// The lost `unlock` released the lock, and another client acquires it before the `unlock` is sent
/// again.
pub async fn p_a5_an_unlock_sent_again_leaves_the_next_holder_alone<S: Subject>() {
    let single = Single::<S>::new(Faults::lose_next_reply).await;
    let other = single
        .stage
        .direct(watched(Duration::from_secs(60)))
        .await
        .rival::<S>(&single.name);
    let guard = single.lock.lock().await.unwrap();
    single.stage.faults().refuse(true);
    single.lose_next();
    let unlock = tokio::spawn(guard.unlock());
    let next = other.lock().await.unwrap();
    let held = dump(&single).await;
    single.stage.faults().refuse(false);
    let unlocked = tokio::time::timeout(GENEROUS, unlock).await;
    assert_eq!(unlocked.unwrap().unwrap(), Ok(Released::Fully));
    assert_eq!(dump(&single).await, held);
    assert_eq!(next.unlock().await, Ok(Released::Fully));
}

async fn dump<S: Subject>(single: &Single<S>) -> Vec<u8> {
    let command = ["DUMP", single.name.as_str()];
    single.stage.server.command(&command).await
}
