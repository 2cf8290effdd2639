//! Waits behind readers, dead waiters, dropped guards and tasks of the same owner, and what the log says of long ones.

use std::time::Duration;

use redisson_lock::{
    Config, Owner,
    test_util::{InMemoryRedis, simulation::Frame},
};
use tokio::time::{Instant, sleep};

use crate::{
    lines::Lines,
    lossy_network::{Network, client},
    nested_leases::leased,
};

#[tokio::test(start_paused = true)]
async fn a_try_comes_after_the_release_of_a_guard_that_was_dropped() {
    let (server, network) = (
        InMemoryRedis::new(),
        Network::slow(Duration::from_millis(5)),
    );
    server.set_faults(network);
    let client = client(&server).await;
    let lock = |owner: &Owner| client.reentrant_lock("a").owned_by(owner);
    let (one, other) = (Owner::new(), Owner::new());
    drop(lock(&one).lock().await.unwrap());
    assert!(lock(&other).try_lock().await.unwrap().is_some());
}

/// Readers of another client overlap, so that the lock is never free.
#[tokio::test(start_paused = true)]
async fn a_writer_enters_between_readers_that_overlap() {
    let (server, network) = (
        InMemoryRedis::new(),
        Network::slow(Duration::from_millis(1)),
    );
    server.set_faults(network);
    let (reading, writing) = (client(&server).await, client(&server).await);
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

/// Two branches of one task wait for the same lock. When one acquires it, the other enters by re-entry.
#[tokio::test(start_paused = true)]
async fn waiters_of_one_owner_enter_together() {
    let server = InMemoryRedis::new();
    let (holding, waiting) = (client(&server).await, client(&server).await);
    let (held, owner) = (holding.fair_lock("b").lock().await.unwrap(), Owner::new());
    let guard = leased(&holding, &Owner::new(), Duration::from_secs(60))
        .lock()
        .await
        .unwrap();
    let lock = waiting.reentrant_lock("a").owned_by(&owner);
    let fair = waiting.fair_lock("b").owned_by(&owner);
    let both = tokio::spawn(async move {
        let one = tokio::join!(lock.lock(), lock.lock());
        let other = tokio::join!(fair.lock(), fair.lock());
        (
            one.0.unwrap(),
            one.1.unwrap(),
            other.0.unwrap(),
            other.1.unwrap(),
        )
    });
    sleep(Duration::from_secs(1)).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    held.unlock().await.unwrap();
    let _held = both.await.unwrap();
    let took = released.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?}");
}

/// One branch waits. Another branch of the same owner acquires the lock without a wait.
#[tokio::test(start_paused = true)]
async fn try_lock_lets_waiters_of_its_owner_enter() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network);
    let (holding, waiting) = (client(&server).await, client(&server).await);
    let guard = holding.reentrant_lock("a").lock().await.unwrap();
    let lock = waiting.reentrant_lock("a").owned_by(&Owner::new());
    let (first, second) = tokio::join!(
        async {
            let guard = lock.lock().await.unwrap();
            (guard, Instant::now())
        },
        async {
            sleep(Duration::from_secs(1)).await;
            // A deletion publishes no message.
            server.delete("a");
            let guard = lock.try_lock().await.unwrap().expect("the lock is free");
            (guard, Instant::now())
        }
    );
    assert!(first.1 - second.1 < Duration::from_millis(100));
    drop(guard);
}

/// A task waits for a child, and the child waits for the task's lock.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_own_child_is_logged_once() {
    let (lines, _kept) = Lines::keep_from(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    let owner = Owner::new();
    let guard = lock.owned_by(&owner).lock().await.unwrap();
    let child = tokio::spawn(async move { lock.lock().await.map(drop) });
    sleep(Duration::from_millis(9_900)).await;
    assert!(lines.with("owner.spawn").is_empty());
    sleep(Duration::from_secs(25)).await;
    let logged = lines.with("owner.spawn");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(
        logged[0].contains(&format!("holder={owner}")) && logged[0].contains("name=a"),
        "{logged:?}"
    );
    drop(guard);
    child.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_wait_is_not_reported_as_a_deadlock() {
    let (lines, _kept) = Lines::keep_from(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let with = |warning: Option<Duration>| Config::default().with_deadlock_warning(warning);
    let one = server
        .client_with(with(Some(Duration::from_secs(1))))
        .await
        .unwrap();
    let quiet = server.client_with(with(None)).await.unwrap();
    let other = client(&server).await;
    let guards = [
        other.reentrant_lock("a").lock().await.unwrap(),
        quiet.reentrant_lock("b").lock().await.unwrap(),
    ];
    let locks = [one.reentrant_lock("a"), quiet.reentrant_lock("b")];
    let mut tasks: Vec<_> = locks
        .into_iter()
        .map(|lock| tokio::spawn(async move { lock.lock().await.map(drop) }))
        .collect();
    // Each task waits for long, and no task holds for long.
    tasks.extend((0..20).map(|_| {
        let lock = one.reentrant_lock("c");
        tokio::spawn(async move {
            let _guard = lock.lock().await?;
            sleep(Duration::from_millis(300)).await;
            Ok(())
        })
    }));
    sleep(Duration::from_secs(5)).await;
    drop(guards);
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(lines.with("owner.spawn"), [""; 0]);
}

/// A process dies and leaves `dead` waiters in a fair queue, each with a fresh entry. Returns how long the next living waiter waits
/// after the release.
async fn behind_the_dead(dead: u64) -> Duration {
    let server = InMemoryRedis::new();
    let living = client(&server).await;
    let guard = living.fair_lock("a").lock().await.unwrap();
    let raw = server.raw().await.unwrap();
    let Ok(Frame::List(time)) = raw.send("TIME", &[""; 0]).await else {
        panic!("TIME answers no list");
    };
    let Frame::Text(seconds) = &time[0] else {
        panic!("TIME answers no seconds");
    };
    let seconds: u64 = String::from_utf8_lossy(seconds).parse().unwrap();
    let until = ((seconds + 15) * 1_000).to_string();
    let first = 4_611_686_018_427_387_904u64;
    for number in 0..dead {
        let owner = format!("01234567-89ab-cdef-0123-456789abcdef:{}", first + number);
        let queue = ["redisson_lock_queue:{a}", &owner];
        raw.send("RPUSH", &queue).await.unwrap();
        let place = ["redisson_lock_timeout:{a}", &until, &owner];
        raw.send("ZADD", &place).await.unwrap();
    }
    let lock = living.fair_lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await.map(|_guard| Instant::now()) });
    sleep(Duration::from_millis(100)).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    waiter.await.unwrap().unwrap() - released
}

#[tokio::test(start_paused = true)]
async fn a_dead_head_of_a_fair_queue_costs_the_next_six_seconds_at_most() {
    let took = behind_the_dead(1).await;
    assert!(took <= Duration::from_secs(6), "{took:?}");
    let took = behind_the_dead(4).await;
    assert!(took <= Duration::from_secs(8), "{took:?}");
}
