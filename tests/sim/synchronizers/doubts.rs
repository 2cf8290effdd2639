//! Requests of semaphores and latches without an answer, which the server may have executed. One arranged case per test, under a
//! paused clock.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{Config, Error, Semaphore};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Fate, Faults},
};
use tokio::time::sleep;
use tracing::Level;

use super::histories::{LONG, SETTLED};
use crate::support::{log_lines::LogLines, network::Network};

/// A connection answers nothing in time after its first script.
#[derive(Clone, Default)]
struct Silence {
    is_over: Arc<AtomicBool>,
    connections: BTreeSet<u64>,
}

impl Faults for Silence {
    fn sending(&mut self, connection: u64, command: &'static str) -> Fate {
        if command == "EVALSHA" {
            self.connections.insert(connection);
        }
        Fate::default()
    }

    fn answering(&mut self, connection: u64) -> Duration {
        match !self.is_over.load(Relaxed) && self.connections.contains(&connection) {
            true => LONG,
            false => Duration::ZERO,
        }
    }
}

/// A refusal writes nothing, so it must not count as a use of the record that makes attempts repeatable.
#[tokio::test(start_paused = true)]
async fn attempt_is_known_through_an_outage_after_many_refusals() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    let client = server.client().await.unwrap();
    let pool = client.semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    pool.acquire().await.unwrap().release().await.unwrap();
    let permit = pool.acquire().await.unwrap();
    for _ in 0..3 {
        sleep(Duration::from_secs(31)).await;
        assert!(pool.try_acquire().await.unwrap().is_none());
    }
    sleep(Duration::from_secs(24)).await;
    server.set_faults(network.clone());
    network.0.connecting.store(20_000, Relaxed);
    network.0.loses_answer.store(true, Relaxed);
    let released = permit.release().await;
    assert!(matches!(released, Err(Error::Unavailable { .. })));
    network.0.connecting.store(0, Relaxed);
    sleep(SETTLED).await;
    assert_eq!(pool.available_permits().await, Ok(1), "released twice");
}

/// The server keeps the record of a client's attempts for as long as that client's configuration says.
#[tokio::test(start_paused = true)]
async fn attempt_is_known_however_short_the_outages_of_other_clients_are() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    let client = server.client().await.unwrap();
    let pool = client.semaphore("pool");
    pool.try_set_permits(2).await.unwrap();
    pool.acquire().await.unwrap().release().await.unwrap();
    let permit = pool.acquire().await.unwrap();
    let config = Config::default().with_outage_wait(Duration::from_secs(1));
    let other = server.client_with(config).await.unwrap().semaphore("pool");
    server.set_faults(network.clone());
    network.0.connecting.store(20_000, Relaxed);
    network.0.loses_answer.store(true, Relaxed);
    let released = tokio::join!(permit.release(), async {
        sleep(Duration::from_millis(1)).await;
        other.acquire().await.unwrap().release().await.unwrap();
    });
    assert!(matches!(released.0, Err(Error::Unavailable { .. })));
    network.0.connecting.store(0, Relaxed);
    sleep(SETTLED).await;
    assert_eq!(pool.available_permits().await, Ok(2), "released twice");
}

/// The server knows the attempts of such a client for a second.
fn forgotten_soon() -> Config {
    Config::default().with_outage_wait(Duration::from_millis(300))
}

/// A semaphore of a client whose attempts are forgotten soon. The scripts are loaded.
async fn forgetful(permits: u32) -> (InMemoryRedis, Network, Semaphore) {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    let client = server.client_with(forgotten_soon()).await.unwrap();
    let pool = client.semaphore("pool");
    pool.try_set_permits(permits).await.unwrap();
    pool.acquire().await.unwrap().release().await.unwrap();
    server.set_faults(network.clone());
    (server, network, pool)
}

/// The server has forgotten the attempt when the connection is back: a repetition would acquire another permit.
#[tokio::test(start_paused = true)]
async fn acquisition_in_doubt_is_given_up_and_logged_before_the_server_forgets_it() {
    let (lines, _guard) = LogLines::record(Level::WARN);
    let (_server, network, pool) = forgetful(3).await;
    network.0.connecting.store(1_500, Relaxed);
    network.0.loses_answer.store(true, Relaxed);
    let acquired = pool.try_acquire().await.map(|permit| permit.is_some());
    assert!(
        matches!(acquired, Err(Error::Unavailable { .. })),
        "{acquired:?}"
    );
    network.0.connecting.store(0, Relaxed);
    sleep(SETTLED).await;
    assert_eq!(pool.available_permits().await, Ok(2), "acquired twice");
    assert_eq!(lines.with("permits were not given back").len(), 1);
}

/// Nothing broke, so nothing is in doubt: the caller's own limit counts.
#[tokio::test(start_paused = true)]
async fn late_answer_of_a_living_connection_counts() {
    let (_server, network, pool) = forgetful(3).await;
    network.0.answers.store(800, Relaxed);
    let permit = pool.try_acquire().await.unwrap().expect("it is free");
    assert_eq!(permit.release().await, Ok(()));
    assert_eq!(pool.available_permits().await, Ok(3));
}

/// The client learns that its request is unanswered with the next connection, when the server has forgotten the attempt.
#[tokio::test(start_paused = true)]
async fn release_in_doubt_is_not_repeated_after_the_server_forgot_it() {
    let (_server, network, pool) = forgetful(3).await;
    let permit = pool.acquire().await.unwrap();
    network.0.connecting.store(1_500, Relaxed);
    network.0.loses_answer.store(true, Relaxed);
    let released = permit.release().await;
    assert!(
        matches!(released, Err(Error::Unavailable { .. })),
        "{released:?}"
    );
    network.0.connecting.store(0, Relaxed);
    sleep(SETTLED).await;
    assert_eq!(pool.available_permits().await, Ok(3), "released twice");
}

/// Releases 40 permits, most of which wait for a batch, and breaks the connection for longer than the server knows an attempt.
async fn releases_through_a_long_outage(loses_the_next: bool) -> i64 {
    let (server, network, pool) = forgetful(40).await;
    let mut permits = Vec::new();
    for _ in 0..40 {
        permits.push(pool.acquire().await.unwrap());
    }
    network.0.answers.store(1_000, Relaxed);
    network.0.connecting.store(1_500, Relaxed);
    // The first releases are sent alone or in small batches, which are not answered. The rest waits for the next batch.
    for permit in permits {
        drop(permit);
        sleep(Duration::from_millis(1)).await;
    }
    network.0.loses_script.store(loses_the_next, Relaxed);
    server.disconnect();
    sleep(Duration::from_secs(1)).await;
    // The next connection opens at once.
    network.0.answers.store(0, Relaxed);
    network.0.connecting.store(0, Relaxed);
    sleep(SETTLED).await;
    assert!(!network.0.loses_script.load(Relaxed));
    pool.available_permits().await.unwrap()
}

/// A release that waits for a batch has not been sent: it is in no doubt, however long the outage lasts.
#[tokio::test(start_paused = true)]
async fn queued_releases_are_sent_after_a_long_outage() {
    assert_eq!(releases_through_a_long_outage(false).await, 40);
}

/// Their first sending is lost: its doubt begins then, and not with the outage.
#[tokio::test(start_paused = true)]
async fn doubt_of_a_queued_release_begins_with_its_sending() {
    assert_eq!(releases_through_a_long_outage(true).await, 40);
}

/// The answers to 1,000 releases are lost. Most repetitions are sent, and are not answered either. The rest waits for a batch, until the
/// server has forgotten the attempts.
#[tokio::test(start_paused = true)]
async fn queued_repetitions_are_not_sent_once_the_server_has_forgotten_the_attempts() {
    const RELEASES: u32 = 1_000;
    let server = InMemoryRedis::new();
    let config = Config::default().with_outage_wait(Duration::from_secs(5));
    let pool = server.client_with(config).await.unwrap().semaphore("pool");
    pool.try_set_permits(RELEASES).await.unwrap();
    // Loads the scripts.
    pool.acquire().await.unwrap().release().await.unwrap();
    pool.acquire_many(RELEASES).await.unwrap().leak();
    let silence = Silence::default();
    server.set_faults(silence.clone());
    let releases = (0..RELEASES).map(|_| {
        let pool = pool.clone();
        async move { pool.release(1).await }
    });
    let releases: Vec<_> = releases.map(tokio::spawn).collect();
    let soon = Duration::from_millis(100);
    sleep(soon).await;
    server.disconnect();
    sleep(Duration::from_secs(3)).await;
    server.stop();
    sleep(Duration::from_secs(20)).await;
    silence.is_over.store(true, Relaxed);
    server.start();
    sleep(SETTLED).await;
    let available = pool.available_permits().await.unwrap();
    let all = i64::from(RELEASES);
    assert!((1..=all).contains(&available), "{available} of {all}");
    drop(releases);
}

/// A repetition finds the id gone, so the release is repeated for as long as the outage lasts.
#[tokio::test(start_paused = true)]
async fn release_of_an_id_is_repeated_after_a_long_outage() {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    let client = server.client_with(forgotten_soon()).await.unwrap();
    let pool = client.permit_expirable_semaphore("ends");
    pool.try_set_permits(1).await.unwrap();
    let permit = pool.with_lease(LONG).acquire().await.unwrap();
    server.set_faults(network.clone());
    network.0.connecting.store(1_500, Relaxed);
    network.0.loses_script.store(true, Relaxed);
    drop(permit);
    sleep(SETTLED).await;
    assert_eq!(pool.acquired_permits().await, Ok(0));
}
