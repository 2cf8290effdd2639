use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use redisson_lock::{Config, Error, LockClient};
use testbed::{Server, eventually};
use tokio::{task::JoinSet, time::timeout};

use super::{SOON, a_task_waits, listeners, no_client_listens, without_polls};
use crate::witness::busy_at_worst;

const CHANNEL: &str = "redisson_sc:{pool}";

#[tokio::test]
async fn permits_are_acquired_counted_and_released() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    let pool = client.semaphore("pool");
    assert_eq!(pool.available_permits().await, Ok(0));
    assert!(
        pool.try_acquire().await.unwrap().is_none(),
        "no call has set permits"
    );
    assert!(pool.try_set_permits(3).await.unwrap());
    assert!(!pool.try_set_permits(9).await.unwrap());
    let one = pool.acquire().await.unwrap();
    let two = pool.acquire_many(2).await.unwrap();
    assert_eq!((one.permits(), two.permits(), two.name()), (1, 2, "pool"));
    assert_eq!(pool.available_permits().await, Ok(0));
    assert!(pool.try_acquire().await.unwrap().is_none());
    one.release().await.unwrap();
    assert_eq!(pool.available_permits().await, Ok(1));
    assert!(pool.try_acquire_many(2).await.unwrap().is_none());
    drop(two);
    eventually("the dropped permits are released", SOON, async || {
        pool.available_permits().await == Ok(3)
    })
    .await;
    pool.acquire().await.unwrap().leak();
    assert_eq!(pool.available_permits().await, Ok(2));
    pool.release(1).await.unwrap();
    assert_eq!(pool.drain_permits().await, Ok(3));
    assert_eq!(pool.drain_permits().await, Ok(0));
    pool.add_permits(-2).await.unwrap();
    assert_eq!(pool.available_permits().await, Ok(-2));
    assert_eq!(pool.drain_permits().await, Ok(-2));
    pool.add_permits(5).await.unwrap();
    assert_eq!(server.command::<String>(&["GET", "pool"]).await, "5");
    let none = pool.acquire_many(0).await.unwrap();
    none.release().await.unwrap();
    assert_eq!(pool.available_permits().await, Ok(5));
}

#[tokio::test]
async fn waiters_are_woken_by_message() {
    let server = Server::start().await;
    let (client, other) = (
        without_polls(&server.url()).await,
        without_polls(&server.url()).await,
    );
    let pool = client.semaphore("pool");
    let waits = |permits| {
        let pool = client.semaphore("pool");
        tokio::spawn(async move { pool.acquire_many(permits).await })
    };
    let waiting = async |count| {
        eventually("the tasks wait", SOON, async || {
            listeners(&server, CHANNEL).await == count
        })
        .await;
    };
    // The semaphore does not exist yet.
    let first = waits(1);
    waiting(1).await;
    other.semaphore("pool").try_set_permits(1).await.unwrap();
    let first = timeout(SOON, first).await.unwrap().unwrap().unwrap();
    let second = waits(1);
    waiting(1).await;
    first.release().await.unwrap();
    let second = timeout(SOON, second).await.unwrap().unwrap().unwrap();
    let third = waits(1);
    waiting(1).await;
    other.semaphore("pool").add_permits(1).await.unwrap();
    let third = timeout(SOON, third).await.unwrap().unwrap().unwrap();
    let fourth = waits(1);
    waiting(1).await;
    // Redisson adds permits in this way.
    let _: i64 = server.command(&["INCRBY", "pool", "1"]).await;
    let _: i64 = server.command(&["PUBLISH", CHANNEL, "1"]).await;
    let fourth = timeout(SOON, fourth).await.unwrap().unwrap().unwrap();
    drop((second, third, fourth));
    eventually("all permits are released", SOON, async || {
        pool.available_permits().await == Ok(3)
    })
    .await;
    no_client_listens(&server, CHANNEL).await;
}

/// In Redisson, the large request keeps the small one waiting.
#[tokio::test]
async fn a_large_request_does_not_delay_a_small_one() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let pool = client.semaphore("pool");
    pool.try_set_permits(3).await.unwrap();
    let all = pool.acquire_many(3).await.unwrap();
    let much = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire_many(3).await }
    });
    a_task_waits(&server, CHANNEL).await;
    let little = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire().await }
    });
    tokio::task::yield_now().await;
    all.leak();
    pool.release(1).await.unwrap();
    let little = timeout(SOON, little).await.unwrap().unwrap().unwrap();
    assert!(!much.is_finished());
    little.release().await.unwrap();
    pool.release(2).await.unwrap();
    let much = timeout(SOON, much).await.unwrap().unwrap().unwrap();
    assert_eq!(much.permits(), 3);
}

#[tokio::test]
async fn a_wait_ends_in_time_and_leaves_nothing() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let pool = client.semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    let permit = pool.acquire().await.unwrap();
    let wait = Duration::from_millis(100);
    assert!(busy_at_worst(pool.try_acquire_for(wait).await).is_none());
    assert!(busy_at_worst(pool.try_acquire_many_for(2, wait).await).is_none());
    assert!(timeout(wait, pool.acquire()).await.is_err());
    no_client_listens(&server, CHANNEL).await;
    permit.release().await.unwrap();
    let all = pool.try_acquire_for(SOON).await.unwrap();
    assert!(all.is_some_and(|permit| permit.permits() == 1));
}

/// Tasks of several clients arrive, time out and leave. No more permits are out than exist, and
/// none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_shares_permits_and_loses_none() {
    const PERMITS: i64 = 3;
    let server = Server::start().await;
    let (inside, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = without_polls(&server.url()).await;
        let pool = client.semaphore("pool");
        pool.try_set_permits(PERMITS as u32).await.unwrap();
        for task in 0..16 {
            let (pool, inside, most) = (pool.clone(), inside.clone(), most.clone());
            tasks.spawn(async move {
                for round in 0..20_u64 {
                    let permits = i64::from(fastrand::u32(1..=2));
                    // One task in four is dropped at a random time.
                    let limit = match task % 4 {
                        0 => Duration::from_micros(fastrand::u64(..3_000)),
                        _ => SOON,
                    };
                    let taken = timeout(limit, pool.acquire_many(permits as u32)).await;
                    let Ok(taken) = taken else {
                        assert!(task % 4 == 0, "the task waits too long in round {round}");
                        continue;
                    };
                    let taken = taken.unwrap();
                    most.fetch_max(inside.fetch_add(permits, SeqCst) + permits, SeqCst);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(permits, SeqCst);
                    match round % 2 {
                        0 => drop(taken),
                        _ => taken.release().await.unwrap(),
                    }
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!((2..=PERMITS).contains(&most.load(SeqCst)), "{most:?}");
    let client = LockClient::connect(server.url()).await.unwrap();
    eventually("no permit is lost", SOON, async || {
        client.semaphore("pool").available_permits().await == Ok(PERMITS)
    })
    .await;
    no_client_listens(&server, CHANNEL).await;
}

#[tokio::test]
async fn a_poll_finds_permits_that_were_not_announced() {
    let server = Server::start().await;
    let config = Config::default().with_max_poll_interval(Duration::from_millis(100));
    let builder = LockClient::builder().url(server.url()).config(config);
    let client = builder.build().await.unwrap();
    let pool = client.semaphore("pool");
    let waits = [1, 2].map(|permits| {
        let pool = pool.clone();
        tokio::spawn(async move { pool.acquire_many(permits).await })
    });
    a_task_waits(&server, CHANNEL).await;
    let _: String = server.command(&["SET", "pool", "3"]).await;
    for waits in waits {
        timeout(SOON, waits).await.unwrap().unwrap().unwrap().leak();
    }
    assert_eq!(pool.available_permits().await, Ok(0));
}

#[tokio::test]
async fn wrong_keys_bad_names_and_a_closed_client_are_errors() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    let wrong = |error: Error| matches!(error, Error::WrongKind { .. });
    let _: i64 = server.command(&["HSET", "hash", "a", "1"]).await;
    let _: String = server.command(&["SET", "text", "many"]).await;
    for name in ["hash", "text"] {
        let pool = client.semaphore(name);
        assert!(wrong(pool.acquire().await.unwrap_err()), "{name}");
        assert!(wrong(pool.release(1).await.unwrap_err()), "{name}");
        assert!(wrong(pool.try_set_permits(1).await.unwrap_err()), "{name}");
        assert!(wrong(pool.drain_permits().await.unwrap_err()), "{name}");
        assert!(wrong(pool.available_permits().await.unwrap_err()), "{name}");
    }
    let pool = client.semaphore("a\nb");
    let error = pool.acquire().await.unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    let pool = client.semaphore("pool");
    client.shutdown().await;
    assert_eq!(pool.acquire().await.unwrap_err(), Error::Closed);
    assert_eq!(pool.release(1).await.unwrap_err(), Error::Closed);
}

#[tokio::test]
async fn a_shutdown_ends_the_waits_for_permits() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let pool = client.semaphore("pool");
    let waits = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire().await.map(drop) }
    });
    a_task_waits(&server, CHANNEL).await;
    client.shutdown().await;
    let waits = timeout(SOON, waits).await.unwrap().unwrap();
    assert_eq!(waits, Err(Error::Closed));
}

/// Text that Redis cannot count with is refused before anything is written.
#[tokio::test]
async fn text_that_redis_cannot_count_with_is_no_semaphore() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    let wrong = |error: Error| matches!(error, Error::WrongKind { .. });
    for text in ["007", "-0", "9223372036854775808", &"9".repeat(30)] {
        let _: String = server.command(&["SET", "pool", text]).await;
        let (pool, ends) = (
            client.semaphore("pool"),
            client.permit_expirable_semaphore("pool"),
        );
        assert!(wrong(pool.acquire().await.unwrap_err()), "{text}");
        assert!(wrong(pool.release(1).await.unwrap_err()), "{text}");
        assert!(wrong(pool.drain_permits().await.unwrap_err()), "{text}");
        assert!(
            wrong(ends.with_lease(SOON).acquire().await.unwrap_err()),
            "{text}"
        );
        assert!(wrong(ends.set_permits(1).await.unwrap_err()), "{text}");
        assert!(wrong(pool.available_permits().await.unwrap_err()), "{text}");
        assert_eq!(server.command::<i64>(&["DBSIZE"]).await, 1, "{text}");
    }
}

#[tokio::test]
async fn the_largest_numbers_are_exact() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    for most in [i64::MAX, i64::MIN + 1] {
        let pool = client.semaphore("pool");
        let _: String = server.command(&["SET", "pool", &most.to_string()]).await;
        assert_eq!(pool.available_permits().await, Ok(most));
        let error = pool.add_permits(most).await.unwrap_err();
        assert!(matches!(error, Error::Redis { .. }), "{error}");
        assert_eq!(pool.available_permits().await, Ok(most));
        pool.drain_permits().await.unwrap();
        assert_eq!(pool.available_permits().await, Ok(0));
    }
}

/// The names `a` and `{a}` share a channel.
#[tokio::test]
async fn semaphores_with_one_channel_are_two() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let (plain, braced) = (client.semaphore("pool"), client.semaphore("{pool}"));
    let waits = [plain.clone(), braced.clone()]
        .map(|pool| tokio::spawn(async move { pool.acquire().await.map(|permit| permit.leak()) }));
    a_task_waits(&server, CHANNEL).await;
    let [first, second] = waits;
    braced.release(1).await.unwrap();
    timeout(SOON, second).await.unwrap().unwrap().unwrap();
    assert!(!first.is_finished());
    plain.release(1).await.unwrap();
    timeout(SOON, first).await.unwrap().unwrap().unwrap();
    no_client_listens(&server, CHANNEL).await;
}

/// The result that the server keeps for a repetition must not outlive the refused change.
#[tokio::test]
async fn a_release_whose_last_write_is_refused_is_repeated_and_not_taken_for_done() {
    let server = Server::start().await;
    let user = |right: &str| {
        let words = [
            "ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all", right,
        ];
        words.map(str::to_owned)
    };
    let allow = async |right: &str| {
        let words = user(right);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        server.command::<()>(&words).await;
    };
    allow("-incrby").await;
    let url = format!("redis://app:s3cret@127.0.0.1:{}", server.port());
    let client = LockClient::connect(&url).await.unwrap();
    let (pool, latch) = (client.semaphore("pool"), client.count_down_latch("latch"));
    assert_eq!(pool.try_set_permits(1).await, Ok(true));
    let error = pool.release(2).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let is_told = |error: &Error| {
        // In the words of Redis 6, 7 and 8.
        let words = ["NOPERM", "can't run this command", "ACL failure in script"];
        words.iter().any(|words| error.to_string().contains(words))
    };
    assert!(is_told(&error), "{error}");
    assert_eq!(pool.available_permits().await, Ok(1));
    allow("+incrby").await;
    eventually("the release is executed once", SOON, async || {
        pool.available_permits().await == Ok(3)
    })
    .await;

    assert_eq!(latch.try_set_count(2).await, Ok(true));
    allow("-decr").await;
    let error = latch.count_down().await.unwrap_err();
    assert!(is_told(&error), "{error}");
    assert_eq!(latch.count().await, Ok(2));
    allow("+decr").await;
    latch.count_down().await.unwrap();
    assert_eq!(latch.count().await, Ok(1));
}
