//! Semaphores and latches whose waits meet outages, shutdowns or unpolled futures. One arranged case per test,
//! under a paused clock.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use redisson_lock::{Config, Error, Semaphore};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Calm, Delivering, Faults},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tracing::Level;

use super::histories::{LONG, SETTLED};
use crate::support::{log_lines::LogLines, network::Network};

/// A latch without an answer is not reported as closed; one that was closed at the last answer is.
#[tokio::test(start_paused = true)]
async fn wait_for_a_latch_without_an_answer_is_unavailable() {
    let server = InMemoryRedis::new();
    let client = server.client().await.unwrap();
    let ready = client.count_down_latch("ready");
    assert_eq!(ready.try_set_count(1).await, Ok(true));
    let wait = Duration::from_secs(1);
    let waiting = tokio::spawn({
        let ready = ready.clone();
        async move { ready.wait_for(2 * wait).await }
    });
    sleep(wait).await;
    server.stop();
    let unanswered = ready.wait_for(wait).await;
    assert!(
        matches!(unanswered, Err(Error::Unavailable { .. })),
        "{unanswered:?}"
    );
    assert_eq!(waiting.await.unwrap(), Ok(false));
}

/// Another client publishes during each attempt, so no refusal is up to date.
#[tokio::test(start_paused = true)]
async fn timed_acquire_ends_in_time_beside_ever_new_messages() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    let client = server.client().await.unwrap();
    let pool = client.semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    let permit = pool.acquire().await.unwrap();
    server.set_faults(network.clone());
    network.0.answers.store(20, Relaxed);
    let raw = Arc::new(server.raw().await.unwrap());
    let mut messages = JoinSet::new();
    messages.spawn(async move {
        loop {
            let raw = raw.clone();
            tokio::spawn(async move { raw.send("PUBLISH", &["redisson_sc:{pool}", "1"]).await });
            sleep(Duration::from_millis(5)).await;
        }
    });
    let began = Instant::now();
    let wait = Duration::from_secs(1);
    let tried = timeout(2 * wait, pool.try_acquire_for(wait)).await;
    assert!(tried.expect("it waits on").unwrap().is_none());
    assert!(
        began.elapsed() <= wait + Duration::from_millis(100),
        "{:?}",
        began.elapsed()
    );
    permit.release().await.unwrap();
}

/// The client's own reply says how many permits are left.
#[tokio::test(start_paused = true)]
async fn release_wakes_a_waiter_of_its_client_without_a_message() {
    struct Mute;
    impl Faults for Mute {
        fn delivering(&mut self, _connection: u64) -> Delivering {
            Delivering::Never
        }
    }
    let server = InMemoryRedis::new();
    let config = Config::default().with_max_poll_interval(LONG);
    let client = server.client_with(config).await.unwrap();
    let pool = client.semaphore("pool");
    pool.try_set_permits(2).await.unwrap();
    server.set_faults(Mute);
    let (one, other) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    let mut waiters = JoinSet::new();
    for _ in 0..2 {
        let pool = pool.clone();
        waiters.spawn(async move { pool.acquire().await.unwrap().leak() });
    }
    // By then the hand-off window is over.
    sleep(Duration::from_secs(1)).await;
    one.release().await.unwrap();
    drop(other);
    let served = timeout(Duration::from_secs(1), waiters.join_all()).await;
    assert!(served.is_ok(), "a waiter sleeps beside a free permit");
}

/// The refusals arrive when the caller has gone.
#[tokio::test(start_paused = true)]
async fn release_that_is_refused_in_the_background_is_logged_and_repeated() {
    struct Refusing;
    impl Faults for Refusing {
        fn refusal(&mut self, command: &'static str) -> Option<String> {
            let is_script = command.starts_with("EVAL");
            is_script.then(|| "NOPERM this user has no permissions".into())
        }
    }
    let (lines, _guard) = LogLines::record(Level::WARN);
    let server = InMemoryRedis::new();
    let config = Config::default().with_command_wait(Duration::from_secs(1));
    let client = server.client_with(config).await.unwrap();
    let pool = client.semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    let permit = pool.acquire().await.unwrap();
    server.set_faults(Refusing);
    let released = permit.release().await;
    let refused = released.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("NOPERM"), "{refused}");
    sleep(Duration::from_secs(50)).await;
    assert_eq!(lines.with("refuses a release").len(), 1);
    server.set_faults(Calm);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(pool.available_permits().await, Ok(1));
}

/// A shutdown waits for requests that are under way.
#[tokio::test(start_paused = true)]
async fn permits_granted_or_released_during_a_shutdown_are_given_back() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    let client = server.client().await.unwrap();
    let pool = client.semaphore("pool");
    let ends = client.permit_expirable_semaphore("ends");
    pool.try_set_permits(4).await.unwrap();
    ends.try_set_permits(3).await.unwrap();
    let lease = SETTLED;
    let (early, one, dropped) = (
        pool.acquire().await.unwrap(),
        pool.acquire().await.unwrap(),
        ends.with_lease(lease).acquire().await.unwrap(),
    );
    server.set_faults(network.clone());
    network.0.answers.store(500, Relaxed);
    let late = tokio::spawn(async move { pool.acquire_many(2).await });
    let late_end = tokio::spawn(async move { ends.with_lease(lease).acquire().await });
    let early = tokio::spawn(early.release());
    sleep(Duration::from_millis(100)).await;
    let shutdown = tokio::spawn(async move { client.shutdown().await });
    sleep(Duration::from_millis(100)).await;
    assert_eq!(one.release().await, Err(Error::Closed));
    drop(dropped);
    shutdown.await.unwrap();
    assert_eq!(early.await.unwrap(), Ok(()));
    assert_eq!(late.await.unwrap().map(drop), Err(Error::Closed));
    assert_eq!(late_end.await.unwrap().map(drop), Err(Error::Closed));
    let client = server.client().await.unwrap();
    assert_eq!(client.semaphore("pool").available_permits().await, Ok(4));
    let ends = client.permit_expirable_semaphore("ends");
    assert_eq!(ends.available_permits().await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn permit_handed_to_an_unpolled_future_goes_to_the_next_waiter() {
    let server = InMemoryRedis::new();
    let (one, other) = (
        server.client().await.unwrap(),
        server.client().await.unwrap(),
    );
    // The permit is handed off in memory, or by a message of the server.
    for holder in [&one, &other] {
        passes_a_future_that_is_not_polled(&one.semaphore("pool"), &holder.semaphore("pool")).await;
    }
}

async fn passes_a_future_that_is_not_polled(pool: &Semaphore, holder: &Semaphore) {
    holder.try_set_permits(1).await.unwrap();
    let held = holder.acquire().await.unwrap();
    // A future that a `select!` keeps, for example, and does not poll.
    let mut kept = Box::pin(pool.acquire());
    assert!(timeout(Duration::from_millis(10), &mut kept).await.is_err());
    let next = pool.clone();
    let next = tokio::spawn(async move { next.acquire().await?.release().await });
    sleep(Duration::from_millis(10)).await;
    held.release().await.unwrap();
    let entered = timeout(Duration::from_secs(1), next).await;
    entered
        .expect("the permit stays with a future that is not polled")
        .unwrap()
        .unwrap();
    // The kept future still waits for its permit.
    let permit = timeout(Duration::from_secs(1), kept).await;
    permit
        .expect("it is free")
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(pool.available_permits().await, Ok(1));
}
