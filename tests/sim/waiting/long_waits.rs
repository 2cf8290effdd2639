//! Log lines of long waits. One arranged case per test, under a paused clock.

use std::time::Duration;

use redisson_lock::{Config, LockClient, Owner};
use redisson_lock_test::InMemoryRedis;
use tokio::time::sleep;

use crate::support::{log_lines::LogLines, polling_client};

fn owner_of(client: &LockClient, owner: Owner) -> String {
    format!("{}:{owner}", client.id())
}

/// A client that logs waits of this many seconds.
async fn slow(server: &InMemoryRedis, slow_wait: u64) -> LockClient {
    let mut config = Config::default();
    config.slow_wait = Some(Duration::from_secs(slow_wait));
    config.deadlock_warning = None;
    server.client_with(config).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_slow_wait_is_logged_with_the_holder_each_time_it_has_doubled() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let (holder, waiter) = (polling_client(&server).await, slow(&server, 2).await);
    let owner = Owner::new();
    let guard = holder
        .reentrant_lock("a")
        .owned_by(&owner)
        .lock()
        .await
        .unwrap();
    // Five tasks wait, and the log names only the one that has waited for longest.
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let lock = waiter.reentrant_lock("a");
            tokio::spawn(async move { lock.lock().await?.unlock().await })
        })
        .collect();
    sleep(Duration::from_millis(1_900)).await;
    assert_eq!(lines.with("a task waits for a lock"), [""; 0]);
    sleep(Duration::from_secs(18)).await;
    let told = lines.with("a task waits for a lock");
    // Logged after 2, 4, 8 and 16 s; the last may come a look later.
    assert!((3..=4).contains(&told.len()), "{told:#?}");
    for line in &told {
        assert!(
            line.contains("name=a ") && line.contains(&owner_of(&holder, owner)),
            "{line}"
        );
    }
    guard.unlock().await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    // The next wait starts again at the first threshold.
    let guard = holder.reentrant_lock("a").lock().await.unwrap();
    let lock = waiter.reentrant_lock("a");
    let task = tokio::spawn(async move { lock.lock().await?.unlock().await });
    sleep(Duration::from_millis(4_500)).await;
    assert!(lines.with("a task waits for a lock").len() > told.len());
    guard.unlock().await.unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_wait_for_a_lock_of_the_same_client_names_its_holder() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = slow(&server, 1).await;
    let owner = Owner::new();
    let guard = client
        .reentrant_lock("a")
        .owned_by(&owner)
        .lock()
        .await
        .unwrap();
    let lock = client.reentrant_lock("a");
    let task = tokio::spawn(async move { lock.lock().await?.unlock().await });
    sleep(Duration::from_millis(2_500)).await;
    let told = lines.with("a task waits for a lock");
    assert!(
        !told.is_empty() && told[0].contains(&owner.to_string()),
        "{told:?}"
    );
    drop(guard);
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn waits_are_not_logged_by_default() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let (holder, waiter) = (polling_client(&server).await, polling_client(&server).await);
    let guard = holder.reentrant_lock("a").lock().await.unwrap();
    let lock = waiter.reentrant_lock("a");
    let task = tokio::spawn(async move { lock.lock().await?.unlock().await });
    sleep(Duration::from_secs(100)).await;
    assert_eq!(lines.with(""), [""; 0]);
    guard.unlock().await.unwrap();
    task.await.unwrap().unwrap();
}

/// A task waits for a child, and the child waits for the task's lock.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_own_child_is_logged_once() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
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
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let with = |warning: Option<Duration>| Config::default().with_deadlock_warning(warning);
    let one = server
        .client_with(with(Some(Duration::from_secs(1))))
        .await
        .unwrap();
    let quiet = server.client_with(with(None)).await.unwrap();
    let other = polling_client(&server).await;
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
