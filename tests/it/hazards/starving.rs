//! Futures that are not polled, and blocked runtimes: other tasks go on, and the guard reports a
//! loss at once.

use std::{pin::Pin, sync::Arc, time::Duration};

use redisson_lock::{Error, Guard, Kind, Lock, LockClient, Owner};
use testbed::{Server, eventually, unique_name};
use tokio::{task::JoinSet, time::timeout};

use super::stage::{
    GENEROUS, Locks, PROMPT, Random, Room, Stage, Subject, all_done, connect, exists,
    is_waited_for, let_pass, nested_pair, nothing_left, watched, woken_only,
};

type Unpolled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls a future `polls` times and returns it.
async fn left_alone(future: impl Future + Send + 'static, polls: u64) -> Unpolled {
    let mut future: Unpolled = Box::pin(async move { drop(future.await) });
    let polled = crate::witness::poll_and_drop(future.as_mut(), polls);
    let _ = timeout(Duration::from_millis(100), polled).await;
    future
}

async fn lock_and_keep<K: Kind>(lock: Lock<K>) {
    let _guard = lock.lock().await;
    std::future::pending().await
}

/// Futures in every state, each of which keeps its hold, request or place in the queue.
async fn forgotten<S: Subject>(client: &LockClient, random: &mut Random) -> Vec<Unpolled> {
    let mut futures = Vec::new();
    let mut holds = Vec::new();
    for number in 0..60 {
        let owned = |lock: Lock<S::Kind>| lock.owned_by(&Owner::new());
        let lock = owned(client.kind::<S>(unique_name("forgotten")));
        let polls = 1 + random.below(2);
        match number % 4 {
            0 => futures.push(left_alone(lock_and_keep(lock), polls).await),
            1 => {
                let guard = lock.lock().await.unwrap();
                futures.push(left_alone(guard.unlock(), polls).await);
            }
            2 => {
                holds.push(lock.lock().await.unwrap());
                futures.push(left_alone(lock_and_keep(owned(lock)), polls).await);
            }
            _ => futures.push(left_alone(async move { lock.hold_count().await }, polls).await),
        }
    }
    futures.push(Box::pin(async move { drop(holds) }));
    futures
}

pub async fn unpolled_futures_delay_no_other_task<S: Subject>() {
    let stage = Stage::new().await;
    let mut random = Random::new();
    let client = stage.client(watched(Duration::from_secs(60))).await;
    // With a delay, the first polls leave a request under way.
    stage.faults().delay(Duration::from_millis(2));
    let futures = forgotten::<S>(&client, &mut random).await;
    stage.faults().delay(Duration::ZERO);
    let mut tasks = JoinSet::new();
    let (name, room) = (unique_name("lively"), Arc::<Room>::default());
    for _ in 0..4 {
        let (lock, room) = (client.kind::<S>(&name), room.clone());
        tasks.spawn(async move {
            for _ in 0..40 {
                nested_pair::<S>(&lock, &room).await;
            }
        });
    }
    all_done(tasks).await;
    assert_eq!(room.visits(), 160);
    drop(futures);
    nothing_left(&stage.server, PROMPT).await;
}

/// The first waiter is notified but not polled. The next poll passes over it.
pub async fn an_unpolled_waiter_delays_other_waiters_for_one_poll_at_most<S: Subject>() {
    let server = Server::start().await;
    let client = connect(&server.url(), watched(Duration::from_secs(300))).await;
    let name = unique_name("front");
    let other = connect(&server.url(), woken_only()).await;
    let guard = other.rival::<S>(&name).lock().await.unwrap();
    let waiter = || client.kind::<S>(&name).owned_by(&Owner::new());
    let mut forgotten: Unpolled = Box::pin(lock_and_keep(waiter()));
    let waits = async || is_waited_for::<S>(&server, &name).await;
    tokio::select! {
        () = &mut forgotten => unreachable!("it waits"),
        () = eventually("the first waiter waits", PROMPT, waits) => {}
    }
    let next = waiter();
    let next = tokio::spawn(async move { next.lock().await.map(drop) });
    let_pass(Duration::from_millis(100)).await;
    let _ = guard.unlock().await.unwrap();
    let got_in = timeout(PROMPT, next)
        .await
        .expect("the waiter acquires the lock");
    got_in.unwrap().unwrap();
    drop(forgotten);
    nothing_left(&server, PROMPT).await;
}

/// The watchdog renews an owner's hold while a future of the same owner is not polled.
async fn renewed_beside<S: Subject>(forget: impl AsyncFnOnce(&Lock<S::Kind>) -> Unpolled) {
    let stage = Stage::new().await;
    let lease = Duration::from_secs(2);
    let client = stage.client(watched(lease)).await;
    let lock = client.kind::<S>(unique_name("own")).owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    stage.faults().delay(Duration::from_millis(20));
    let forgotten = forget(&lock).await;
    stage.faults().delay(Duration::ZERO);
    let_pass(lease * 2).await;
    assert!(!outer.is_lost(), "the outer hold was not renewed");
    drop(forgotten);
    let _ = outer.unlock().await.unwrap();
    nothing_left(&stage.server, PROMPT).await;
}

#[expect(
    clippy::async_yields_async,
    reason = "the closure returns an unpolled future"
)]
pub async fn an_unpolled_inner_lock_does_not_stop_the_outer_holds_renewal<S: Subject>() {
    renewed_beside::<S>(async |lock| {
        let lock = lock.clone();
        left_alone(async move { drop(lock.lock().await) }, 1).await
    })
    .await;
}

#[expect(
    clippy::async_yields_async,
    reason = "the closure returns an unpolled future"
)]
pub async fn an_unpolled_inner_unlock_does_not_stop_the_outer_holds_renewal<S: Subject>() {
    renewed_beside::<S>(async |lock| {
        let inner = lock.lock().await.unwrap();
        left_alone(async move { inner.unlock().await }, 1).await
    })
    .await;
}

const SHORT: Duration = Duration::from_secs(1);

/// Runs `body` on one thread, so that a block stops the watchdog too.
async fn on_one_thread<F: Future<Output = ()> + 'static>(body: fn() -> F) {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(body());
    };
    tokio::task::spawn_blocking(run)
        .await
        .expect("the body does not panic");
}

/// Blocks the thread for longer than a lease.
fn block() {
    std::thread::sleep(SHORT + SHORT / 2);
}

pub async fn p_r9_after_a_blocked_runtime_the_loss_is_seen_first<S: Subject>() {
    on_one_thread(|| async {
        let server = Server::start().await;
        let client = connect(&server.url(), watched(SHORT)).await;
        let lock = client.kind::<S>(unique_name("blocked"));
        let guard = lock.lock().await.unwrap();
        assert!(!guard.is_lost());
        block();
        assert!(guard.is_lost());
        assert!(!exists(&server, lock.name()).await);
        let unlocked = guard.unlock().await;
        assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    })
    .await;
}

pub async fn p_r9_run_stops_a_body_that_blocked_past_its_lease<S: Subject>() {
    on_one_thread(|| async {
        let server = Server::start().await;
        let client = connect(&server.url(), watched(SHORT)).await;
        let lock = client.kind::<S>(unique_name("blocked"));
        let mut went_on = false;
        let ran = lock
            .run(async |_: &Guard<S::Kind>| {
                block();
                tokio::task::yield_now().await;
                went_on = true;
            })
            .await;
        assert!(matches!(ran, Err(Error::Lost { .. })), "{ran:?}");
        assert!(!went_on);
        // The same for a body that ends without another await: it was unprotected at its end.
        let ran = lock.run(async |_: &Guard<S::Kind>| block()).await;
        assert!(matches!(ran, Err(Error::Lost { .. })), "{ran:?}");
    })
    .await;
}

/// A blocked runtime does not lose a hold whose lease lasts longer than the block.
pub async fn a_short_block_costs_no_hold<S: Subject>() {
    on_one_thread(|| async {
        let server = Server::start().await;
        let client = connect(&server.url(), woken_only()).await;
        let lock = client.kind::<S>(unique_name("blocked"));
        let guard = lock.lock().await.unwrap();
        block();
        eventually("the lock is still held", GENEROUS, async || {
            lock.is_held().await.unwrap()
        })
        .await;
        let _ = guard.unlock().await.unwrap();
        nothing_left(&server, PROMPT).await;
    })
    .await;
}
