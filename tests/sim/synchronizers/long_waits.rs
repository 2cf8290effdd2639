//! Log lines of waits at semaphores and latches. One arranged case per test, under a paused clock.

use std::time::Duration;

use redisson_lock::{Config, Error, LockClient};
use redisson_lock_test::InMemoryRedis;
use tokio::{task::JoinHandle, time::sleep};

use super::renewed_permits::Scripts;
use crate::support::log_lines::LogLines;

const SLOW: &str = "a task waits for permits";
const NEVER_GIVEN: &str = "never given any";
const TOO_FEW: &str = "more permits than the semaphore has";
const STUCK: &str = "while guards of this client hold some";
const LOST: &str = "no process has released any";

/// A client that logs waits of two seconds, and suspicious ones after four.
async fn watching(server: &InMemoryRedis) -> LockClient {
    let config = Config::default()
        .with_slow_wait(Duration::from_secs(2))
        .with_deadlock_warning(Duration::from_secs(4));
    server.client_with(config).await.unwrap()
}

fn waiting<T: Send + 'static>(
    wait: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> JoinHandle<Result<T, Error>> {
    tokio::spawn(wait)
}

#[tokio::test(start_paused = true)]
async fn a_slow_wait_is_logged_with_what_the_server_has_each_time_it_has_doubled() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let (holder, waiter) = (server.client().await.unwrap(), watching(&server).await);
    let pool = holder.semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    let ends = holder.permit_expirable_semaphore("ends");
    ends.try_set_permits(2).await.unwrap();
    let latch = holder.count_down_latch("ready");
    latch.try_set_count(3).await.unwrap();
    let held = (pool.acquire().await, ends.acquire_many(2).await);
    let (pool, ends, ready) = (
        waiter.semaphore("pool"),
        waiter.permit_expirable_semaphore("ends"),
        waiter.count_down_latch("ready"),
    );
    // Three tasks wait at each, and the log names only the one that has waited for longest.
    let tasks: Vec<_> = (0..3)
        .flat_map(|_| {
            let (pool, ends, ready) = (pool.clone(), ends.clone(), ready.clone());
            [
                waiting(async move { pool.acquire().await.map(drop) }),
                waiting(async move { ends.acquire().await.map(drop) }),
                waiting(async move { ready.wait().await }),
            ]
        })
        .collect();
    sleep(Duration::from_millis(1_900)).await;
    assert_eq!(lines.with("a task waits"), [""; 0]);
    sleep(Duration::from_secs(18)).await;
    for (line, name, found) in [
        (SLOW, "name=pool ", "permits=\"0\""),
        (SLOW, "name=ends ", "permits=\"0 available, 2 acquired\""),
        ("a task waits for a latch", "name=ready ", "count=\"3\""),
    ] {
        let mut told = lines.with(line);
        told.retain(|line| line.contains(name));
        // Logged after 2, 4, 8 and 16 s; the last may come a look later.
        assert!((3..=4).contains(&told.len()), "{told:#?}");
        assert!(told.iter().all(|line| line.contains(found)), "{told:#?}");
    }
    drop(held);
    for _ in 0..3 {
        latch.count_down().await.unwrap();
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_permits_of_its_own_client_is_logged_once() {
    for expires in [false, true] {
        let (lines, _kept) = LogLines::record(tracing::Level::WARN);
        let server = InMemoryRedis::new();
        let client = watching(&server).await;
        let pool = client.semaphore("pool");
        let ends = client.permit_expirable_semaphore("pool");
        pool.try_set_permits(1).await.unwrap();
        // The task has the only permit, and waits for a second one.
        let task = match expires {
            true => waiting(async move {
                let _first = ends.acquire().await?;
                ends.acquire().await.map(drop)
            }),
            false => waiting(async move {
                let _first = pool.acquire().await?;
                pool.acquire().await.map(drop)
            }),
        };
        sleep(Duration::from_millis(3_900)).await;
        assert_eq!(lines.with(STUCK), [""; 0]);
        sleep(Duration::from_secs(200)).await;
        let told = lines.with(STUCK);
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].contains("name=pool ") && told[0].contains("held=1 "));
        assert_eq!(lines.with(LOST), [""; 0], "the client has the permit");
        task.abort();
    }
}

/// Permits that are held for long by another process, released soon, leaked or lost tell of no deadlock within the client.
#[tokio::test(start_paused = true)]
async fn an_ordinary_wait_for_permits_is_not_reported_as_a_deadlock() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let (client, other) = (watching(&server).await, server.client().await.unwrap());
    let [held, busy, leaked] = ["held", "busy", "leaked"].map(|name| client.semaphore(name));
    for pool in [&held, &busy, &leaked] {
        pool.try_set_permits(1).await.unwrap();
    }
    let ended = client.permit_expirable_semaphore("ended");
    ended.try_set_permits(1).await.unwrap();
    let _theirs = other.semaphore("held").acquire().await.unwrap();
    leaked.acquire().await.unwrap().leak();
    let lease = Duration::from_secs(1);
    // Its guard is kept, and its permit goes to another process.
    let _ended = ended.with_lease(lease).acquire().await.unwrap();
    let next = other.permit_expirable_semaphore("ended").acquire().await;
    let mut tasks: Vec<_> = [held, leaked]
        .map(|pool| waiting(async move { pool.acquire().await.map(drop) }))
        .into();
    tasks.push(waiting(async move { ended.acquire().await.map(drop) }));
    tasks.extend((0..40).map(|_| {
        let pool = busy.clone();
        waiting(async move {
            let _permit = pool.acquire().await?;
            sleep(Duration::from_millis(300)).await;
            Ok(())
        })
    }));
    sleep(Duration::from_secs(12)).await;
    assert_eq!(lines.with(STUCK), [""; 0]);
    assert_eq!(lines.with(LOST).len(), 2, "of those held and leaked");
    drop(next);
    tasks.iter().for_each(JoinHandle::abort);
}

/// A killed process leaves the semaphore without permits, and the program that follows it waits.
#[tokio::test(start_paused = true)]
async fn a_wait_for_permits_of_a_killed_process_is_logged_once() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let config = Config::default().with_deadlock_warning(Duration::from_secs(4));
    let (killed, next) = (
        server.client().await.unwrap(),
        server.client_with(config).await.unwrap(),
    );
    let pool = killed.semaphore("pool");
    pool.try_set_permits(2).await.unwrap();
    pool.acquire_many(2).await.unwrap().leak();
    let endless = killed.permit_expirable_semaphore("endless");
    let endless = endless.with_lease(Duration::MAX);
    endless.try_set_permits(1).await.unwrap();
    endless.acquire().await.unwrap().leak();
    // A permit with an end comes back.
    let ends = killed.permit_expirable_semaphore("ends");
    ends.try_set_permits(1).await.unwrap();
    ends.acquire().await.unwrap().leak();
    killed.shutdown().await;
    let (pool, endless, ends) = (
        next.semaphore("pool"),
        next.permit_expirable_semaphore("endless"),
        next.permit_expirable_semaphore("ends"),
    );
    let waits = [
        waiting(async move { endless.acquire().await.map(drop) }),
        waiting(async move { ends.acquire().await.map(drop) }),
    ];
    for _ in 0..3 {
        let again = pool.try_acquire_for(Duration::from_secs(20)).await.unwrap();
        assert!(again.is_none());
    }
    for name in ["name=pool ", "name=endless "] {
        let told = lines.with(name);
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].contains(LOST), "{told:#?}");
    }
    assert_eq!(lines.with("name=ends "), [""; 0]);
    let [_, ends] = waits;
    assert!(ends.is_finished(), "its permit came back");
    // What the line says to do.
    pool.add_permits(2).await.unwrap();
    drop(pool.acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_wait_at_a_semaphore_without_permits_is_logged_once() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = watching(&server).await;
    let (pool, ends) = (
        client.semaphore("pool"),
        client.permit_expirable_semaphore("ends"),
    );
    // A call that does not wait gets its answer.
    assert!(pool.try_acquire().await.unwrap().is_none());
    assert!(ends.try_acquire().await.unwrap().is_none());
    assert_eq!(lines.with(""), [""; 0]);
    for _ in 0..3 {
        let second = Duration::from_secs(1);
        assert!(pool.try_acquire_for(second).await.unwrap().is_none());
        assert!(ends.try_acquire_for(second).await.unwrap().is_none());
    }
    let tasks: Vec<_> = (0..3)
        .flat_map(|_| {
            let (pool, ends) = (pool.clone(), ends.clone());
            [
                waiting(async move { pool.acquire().await.map(drop) }),
                waiting(async move { ends.acquire().await.map(drop) }),
            ]
        })
        .collect();
    sleep(Duration::from_millis(100)).await;
    let told = lines.with(NEVER_GIVEN);
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].contains("name=pool ") && told[1].contains("name=ends "));
    assert!(told[0].contains("try_set_permits"), "{told:#?}");
    // Another client has not been told.
    let other = server.client().await.unwrap().semaphore("pool");
    assert!(
        other
            .try_acquire_for(Duration::from_secs(1))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(lines.with(NEVER_GIVEN).len(), 3);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lines.with(NEVER_GIVEN).len(), 3);
    assert_eq!(lines.with(LOST), [""; 0], "the first line said what to do");
    assert!(pool.try_set_permits(1).await.unwrap());
    assert!(ends.try_set_permits(1).await.unwrap());
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    // A semaphore that has permits again, and none left, is no news.
    let _held = pool.acquire().await.unwrap();
    assert!(
        pool.try_acquire_for(Duration::from_secs(1))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(lines.with(NEVER_GIVEN).len(), 3);
}

/// The expirable semaphore finds the number that a plain one has left, and no permit of which it knows.
#[tokio::test(start_paused = true)]
async fn a_wait_for_more_permits_than_there_are_is_logged_with_the_remedy() {
    let (lines, _kept) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let plain = client.semaphore("pool");
    plain.try_set_permits(2).await.unwrap();
    plain.acquire_many(2).await.unwrap().leak();
    let pool = client.permit_expirable_semaphore("pool");
    assert!(!pool.try_set_permits(2).await.unwrap());
    let waits = waiting({
        let pool = pool.clone();
        async move { pool.acquire_many(2).await }
    });
    sleep(Duration::from_millis(100)).await;
    let told = lines.with(TOO_FEW);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(
        told[0].contains("name=pool wanted=2 permits=0"),
        "{told:#?}"
    );
    pool.set_permits(2).await.unwrap();
    let permits = waits.await.unwrap().unwrap();
    // All permits are acquired: that is an ordinary wait.
    assert!(
        pool.try_acquire_for(Duration::from_secs(1))
            .await
            .unwrap()
            .is_none()
    );
    drop(permits);
    // A waiter for more than the semaphore has, whose name the log has told.
    let other = server
        .client()
        .await
        .unwrap()
        .permit_expirable_semaphore("pool");
    let many = other.try_acquire_many_for(3, Duration::from_secs(1)).await;
    assert!(many.unwrap().is_none());
    assert!(lines.with(TOO_FEW)[1].contains("wanted=3 permits=2"));
}

/// Neither the warnings nor the check of the other sort sends a script for a permit that is available.
#[tokio::test(start_paused = true)]
async fn an_available_permit_takes_one_script() {
    let server = InMemoryRedis::new();
    let client = watching(&server).await;
    let (pool, ends) = (
        client.semaphore("pool"),
        client.permit_expirable_semaphore("ends"),
    );
    pool.try_set_permits(5).await.unwrap();
    ends.try_set_permits(5).await.unwrap();
    // The server gets to know the scripts.
    pool.acquire().await.unwrap().release().await.unwrap();
    ends.acquire().await.unwrap().release().await.unwrap();
    let scripts = Scripts::default();
    server.set_faults(scripts.clone());
    let permit = pool.acquire().await.unwrap();
    assert_eq!(scripts.count(), 1);
    let other = ends.acquire().await.unwrap();
    assert_eq!(scripts.count(), 2);
    drop((permit, other));
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_or_latch_refuses_the_name_of_an_expirable_semaphore() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let ends = client.permit_expirable_semaphore("pool");
    ends.try_set_permits(1).await.unwrap();
    let (plain, latch) = (client.semaphore("pool"), client.count_down_latch("pool"));
    let permit = ends.acquire().await.unwrap();
    let second = Duration::from_secs(1);
    for refused in [
        plain.try_set_permits(3).await.map(drop),
        plain.try_acquire().await.map(drop),
        plain.try_acquire_many_for(3, second).await.map(drop),
        plain.try_acquire_for(second).await.map(drop),
        latch.try_set_count(3).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::WrongKind { .. }), "{text}");
        assert!(text.contains("an expirable semaphore"), "{text}");
    }
    // The semaphore itself goes on.
    assert!(!ends.try_set_permits(3).await.unwrap());
    assert!(ends.try_acquire().await.unwrap().is_none());
    assert!(permit.release().await.unwrap());
    assert_eq!(ends.permits().await, Ok(1));
}
