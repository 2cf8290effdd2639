//! Futures dropped at every await point and tasks aborted at any time leave nothing behind (P-A3).

use std::{sync::Arc, time::Duration};

use redisson_lock::{Error, Lock, LockClient, Owner};
use testbed::{eventually, unique_name};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::stage::{
    GENEROUS, Locks, PROMPT, Random, Room, Stage, Subject, all_done, count, counts, exists,
    is_waited_for, let_pass, nothing_left, pttl, scripts, watched, woken_only,
};
use crate::witness::{busy_at_worst, poll_and_drop};

/// More polls than any operation takes.
const MOST_POLLS: u64 = 9;
const LONGEST: Duration = Duration::from_millis(8);

/// One operation, dropped after a random number of polls or at a random time, whichever comes first.
async fn drop_one<S: Subject>(lock: &Lock<S::Kind>, room: &Room, random: &mut Random) {
    let (polls, limit) = (random.below(MOST_POLLS), random.up_to(LONGEST));
    let visit = async || room.visit_as::<S>().await;
    match random.below(4) {
        0 => {
            let locked = async {
                let guard = lock
                    .lock()
                    .await
                    .expect("only a drop ends the attempt early");
                visit().await;
                drop(guard);
            };
            let _ = timeout(limit, poll_and_drop(locked, polls)).await;
        }
        1 => {
            let wait = random.up_to(LONGEST);
            let tried = async {
                if let Some(_guard) = busy_at_worst(lock.try_lock_for(wait).await) {
                    visit().await;
                }
            };
            let _ = timeout(limit, poll_and_drop(tried, polls)).await;
        }
        2 => {
            let locked = timeout(GENEROUS, lock.lock()).await;
            let guard = locked.expect("the lock becomes free").unwrap();
            visit().await;
            let _ = timeout(limit, poll_and_drop(guard.unlock(), polls)).await;
        }
        _ => {
            let run = lock.run(async |_| visit().await);
            let _ = timeout(limit, poll_and_drop(run, polls)).await;
        }
    }
}

/// One task's quarter of the drops. Most have a new owner: what one leaves behind blocks the next.
async fn drop_many<S: Subject>(
    client: LockClient,
    rooms: Arc<[(String, Room)]>,
    drops: usize,
    mut random: Random,
) {
    for _ in 0..drops {
        let (name, room) = &rooms[random.below(rooms.len() as u64) as usize];
        let owner = match random.below(4) {
            0 => Owner::current(),
            _ => Owner::new(),
        };
        if random.below(2) == 0 {
            let lock = client.kind::<S>(name).owned_by(&owner);
            drop_one::<S>(&lock, room, &mut random).await;
        } else {
            let lock = client.rival::<S>(name).owned_by(&owner);
            drop_one::<S::Rival>(&lock, room, &mut random).await;
        }
    }
}

async fn all_is_free_at_once<S: Subject>(
    stage: &Stage,
    client: &LockClient,
    rooms: &[(String, Room)],
) {
    nothing_left(&stage.server, PROMPT).await;
    for (name, _) in rooms {
        // A request whose future was dropped may still acquire the lock and release it.
        let lock = client.kind::<S>(name);
        let guard = lock.try_lock_for(PROMPT).await.unwrap();
        let _ = guard.expect("the lock is free").unlock().await.unwrap();
    }
}

async fn random_drops<S: Subject>(drops: usize, lease: Duration) {
    let stage = Stage::new().await;
    let mut random = Random::new();
    stage.faults().delay(Duration::from_millis(1));
    let client = stage.client(watched(lease)).await;
    let rooms: Arc<[_]> = [unique_name("drops"), unique_name("drops")]
        .map(|name| (name, Room::default()))
        .into();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        tasks.spawn(drop_many::<S>(
            client.clone(),
            rooms.clone(),
            drops / 4,
            random.split(),
        ));
    }
    all_done(tasks).await;
    all_is_free_at_once::<S>(&stage, &client, &rooms).await;
    stage.server.reset_calls().await;
    let_pass(lease.min(Duration::from_secs(2))).await;
    assert_eq!(scripts(&stage.server).await, 0, "a lock is still renewed");
}

pub async fn p_a3_a_thousand_futures_dropped_leave_nothing<S: Subject>() {
    random_drops::<S>(1_000, Duration::from_secs(60)).await;
}

pub async fn p_a3_a_thousand_futures_dropped_leave_no_renewal<S: Subject>() {
    random_drops::<S>(1_000, Duration::from_secs(2)).await;
}

pub async fn p_a3_futures_dropped_leave_nothing<S: Subject>() {
    random_drops::<S>(200, Duration::from_secs(1)).await;
}

pub async fn p_a3_tasks_aborted_at_any_time_leave_nothing<S: Subject>() {
    let stage = Stage::new().await;
    let mut random = Random::new();
    stage.faults().delay(Duration::from_millis(1));
    let client = stage.client(watched(Duration::from_secs(60))).await;
    let rooms: Arc<[_]> = [(unique_name("aborts"), Room::default())].into();
    for _ in 0..60 {
        let task = |random: Random| drop_many::<S>(client.clone(), rooms.clone(), 1000, random);
        let tasks: [_; 3] = std::array::from_fn(|_| tokio::spawn(task(random.split())));
        let_pass(random.up_to(LONGEST)).await;
        for task in tasks {
            task.abort();
            let ended = task.await.map_err(|error| error.is_panic());
            assert_ne!(ended, Err(true), "a task failed");
        }
    }
    all_is_free_at_once::<S>(&stage, &client, &rooms).await;
}

/// The server executed a request that timed out. The client releases its hold once the reply
/// arrives.
pub async fn p_a2_a_hold_granted_to_a_timed_out_attempt_is_released<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(watched(Duration::from_secs(60))).await;
    let name = unique_name("late");
    let lock = client.kind::<S>(&name);
    // The server caches the scripts.
    let _ = lock.lock().await.unwrap().unlock().await.unwrap();
    stage.faults().stall_replies(true);
    let tried = lock.try_lock_for(Duration::from_millis(200)).await;
    assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    eventually("the server executes the request", PROMPT, async || {
        exists(&stage.server, &name).await
    })
    .await;
    stage.faults().stall_replies(false);
    nothing_left(&stage.server, PROMPT).await;
    assert_eq!(lock.hold_count().await, Ok(0));
}

/// The same for a dropped future, whose owner has held the lock already.
pub async fn p_a2_a_dropped_inner_hold_is_released_and_the_outer_one_stays<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(watched(Duration::from_secs(60))).await;
    let name = unique_name("late");
    let lock = client.kind::<S>(&name);
    let outer = lock.lock().await.unwrap();
    stage.faults().stall_replies(true);
    let inner = timeout(Duration::from_millis(200), lock.lock()).await;
    assert!(inner.is_err());
    eventually("the server executes the request", PROMPT, async || {
        count::<S>(&stage.server, &name).await == 2
    })
    .await;
    stage.faults().stall_replies(false);
    eventually("the inner hold is released", PROMPT, async || {
        count::<S>(&stage.server, &name).await == 1
    })
    .await;
    assert!(!outer.is_lost());
    let _ = outer.unlock().await.unwrap();
    nothing_left(&stage.server, PROMPT).await;
}

/// The reply of an inner acquire with a short lease is lost, and its future is dropped before the
/// client reconnects. The release of the inner hold must not cut the outer hold's validity (P-R8).
pub async fn p_r8_the_release_of_an_unanswered_inner_hold_keeps_the_outer_lease<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(watched(Duration::from_secs(60))).await;
    let name = unique_name("doubt");
    let lock = client.kind::<S>(&name).owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    stage.faults().only(Some(name.clone()));
    stage.faults().refuse(true);
    stage.faults().lose_next_reply();
    let short = lock.with_lease(Duration::from_millis(300));
    let inner = tokio::spawn(async move { short.lock().await.map(drop) });
    eventually("the reply was lost", GENEROUS, async || {
        stage.faults().lost_replies() == 1
    })
    .await;
    inner.abort();
    let _ = inner.await;
    stage.server.reset_calls().await;
    stage.faults().refuse(false);
    eventually("the inner hold is released", PROMPT, async || {
        let counts = counts::<S>(&stage.server, &name).await;
        counts.is_empty() || counts == [1]
    })
    .await;
    let server_has = Duration::from_millis(pttl(&stage.server, &name).await.max(0) as u64);
    let relied_upon = outer.valid_until() - Instant::now().into_std();
    assert!(
        outer.is_lost() || relied_upon <= server_has,
        "valid for {relied_upon:?}, but the server expires it in {server_has:?}"
    );
    let _ = outer.unlock().await.expect("the outer hold stays");
}

/// A dropped waiter leaves no subscription, and takes no notification with it (P-W3).
pub async fn p_a3_dropped_waiters_leave_no_subscription<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(watched(Duration::from_secs(60))).await;
    let name = unique_name("waiters");
    let lock = client.kind::<S>(&name);
    let other = stage.direct(woken_only()).await;
    let guard = other.rival::<S>(&name).lock().await.unwrap();
    for _ in 0..20 {
        let waiter = lock.owned_by(&Owner::new());
        let waiting = tokio::spawn(async move { waiter.lock().await.map(drop) });
        eventually("the task waits", GENEROUS, async || {
            is_waited_for::<S>(&stage.server, &name).await
        })
        .await;
        waiting.abort();
        eventually("the task no longer waits", PROMPT, async || {
            !is_waited_for::<S>(&stage.server, &name).await
        })
        .await;
    }
    let _ = guard.unlock().await.unwrap();
    nothing_left(&stage.server, PROMPT).await;
}

/// Dropped queries do not make a quiet connection look as if it awaited replies.
#[tokio::test]
async fn dropped_queries_leave_the_connection_quiet() {
    let stage = Stage::new().await;
    let client = stage.client(watched(Duration::from_secs(60))).await;
    let lock = client.reentrant_lock(unique_name("queries"));
    stage.faults().delay(Duration::from_millis(5));
    for _ in 0..5 {
        let asked = timeout(Duration::from_millis(1), lock.is_locked()).await;
        assert!(asked.is_err(), "the reply came before the drop");
    }
    stage.faults().delay(Duration::ZERO);
    assert_eq!(lock.is_locked().await, Ok(false));
    stage.server.reset_calls().await;
    let_pass(Duration::from_secs(4)).await;
    let pings = stage.server.calls().await.get("ping").copied().unwrap_or(0);
    // Each of the two connections may send one PING.
    assert!(pings <= 2, "{pings} PINGs in 4 s on quiet connections");
}
