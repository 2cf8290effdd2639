//! Renewed permits of a semaphore, under a paused clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{Config, LockClient, LostReason, PermitExpirableSemaphore};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Fate, Faults},
};
use tokio::time::{Instant, timeout};

use crate::support::network;

const LEASE: Duration = Duration::from_secs(3);

/// Counts the scripts that are sent.
#[derive(Clone, Default)]
pub struct Scripts(Arc<AtomicU64>);

impl Scripts {
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Faults for Scripts {
    fn sending(&mut self, _connection: u64, command: &'static str) -> Fate {
        let is_script = command.starts_with("EVAL");
        self.0.fetch_add(is_script.into(), Relaxed);
        Fate::default()
    }
}

/// Two clients of a semaphore with one permit. The first client renews its permits.
async fn two(server: &InMemoryRedis) -> [(LockClient, PermitExpirableSemaphore); 2] {
    let (ours, theirs) = (
        server.client().await.unwrap(),
        server.client().await.unwrap(),
    );
    let pool = ours.permit_expirable_semaphore("pool");
    let pool = pool.with_lease(LEASE).renewed();
    assert!(pool.try_set_permits(1).await.unwrap());
    let other = theirs.permit_expirable_semaphore("pool");
    let other = other.with_lease(LEASE);
    [(ours, pool), (theirs, other)]
}

#[tokio::test(start_paused = true)]
async fn a_renewed_permit_outlasts_its_lease_and_its_release_ends_the_renewals() {
    let server = InMemoryRedis::new();
    let [(_ours, pool), (_theirs, other)] = two(&server).await;
    let permit = pool.acquire().await.unwrap();
    for _ in 0..10 {
        server.advance(LEASE).await;
        assert!(!permit.is_lost());
        assert!(permit.valid_until().unwrap() > Instant::now().into_std() + LEASE / 2);
        assert!(other.try_acquire().await.unwrap().is_none());
    }
    assert!(permit.release().await.unwrap());
    let scripts = Scripts::default();
    server.set_faults(scripts.clone());
    server.advance(10 * LEASE).await;
    assert_eq!(
        scripts.count(),
        0,
        "the permit is renewed after its release"
    );
    let renewed = pool.acquire().await.unwrap();
    server.advance(10 * LEASE).await;
    let sent = scripts.count();
    assert!((25..40).contains(&sent), "{sent} scripts in ten leases");
    drop(renewed);
}

/// The request waits for longer than its lease.
#[tokio::test(start_paused = true)]
async fn permit_acquired_through_an_outage_is_valid_and_renewed() {
    let server = InMemoryRedis::new();
    let [(_ours, pool), (_theirs, other)] = two(&server).await;
    server.stop();
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire().await }
    });
    server.advance(4 * LEASE).await;
    server.start();
    let permit = waiting.await.unwrap().unwrap();
    assert!(!permit.is_lost());
    server.advance(4 * LEASE).await;
    assert!(!permit.is_lost());
    assert!(other.try_acquire().await.unwrap().is_none());
}

/// The answer to the first sending is lost, and its repetition is answered after the end of the lease.
#[tokio::test(start_paused = true)]
async fn grant_that_is_over_at_its_answer_is_returned_and_replaced() {
    let (server, network) = network::server();
    let [(_ours, pool), (_theirs, other)] = two(&server).await;
    network.0.loses_answer.store(true, Relaxed);
    network.0.connecting.store(100_000, Relaxed);
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire().await }
    });
    server.advance(4 * LEASE).await;
    network.0.connecting.store(0, Relaxed);
    let permit = waiting.await.unwrap().unwrap();
    assert!(!permit.is_lost());
    assert!(permit.release().await.unwrap());
    server.advance(LEASE).await;
    assert_eq!(other.available_permits().await, Ok(1));
    assert_eq!(other.acquired_permits().await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_leaked_permit_is_renewed_no_more() {
    let server = InMemoryRedis::new();
    let [(_ours, pool), (_theirs, other)] = two(&server).await;
    let permit = pool.acquire().await.unwrap();
    server.advance(LEASE * 2).await;
    let end = Instant::now() + LEASE;
    permit.leak();
    let taken = timeout(LEASE * 2, other.acquire()).await;
    drop(
        taken
            .expect("the lease of the permit does not end")
            .unwrap(),
    );
    assert!(Instant::now() <= end);
}

#[tokio::test(start_paused = true)]
async fn a_permit_released_by_another_client_is_lost_by_the_next_renewal() {
    let server = InMemoryRedis::new();
    let [(_ours, pool), (_theirs, other)] = two(&server).await;
    let permit = pool.acquire().await.unwrap();
    let token = permit.cancellation_token();
    assert!(other.release(permit.id()).await.unwrap());
    let _theirs = other.acquire().await.unwrap();
    assert_eq!(
        timeout(LEASE / 2, permit.lost()).await,
        Ok(LostReason::Gone)
    );
    assert!(permit.is_lost() && token.is_cancelled());
    assert!(!permit.release().await.unwrap());
    assert_eq!(other.available_permits().await, Ok(0));
}

/// The validity counts from the last renewal, and ends before the server's lease.
#[tokio::test(start_paused = true)]
async fn a_permit_is_lost_before_its_end_when_the_server_cannot_be_reached() {
    let server = InMemoryRedis::new();
    let [(_ours, pool), (_theirs, other)] = two(&server).await;
    let permit = pool.acquire().await.unwrap();
    let token = permit.cancellation_token();
    server.advance(2 * LEASE).await;
    let end = Instant::now() + other.lease_left(permit.id()).await.unwrap().unwrap();
    server.stop();
    assert_eq!(permit.lost().await, LostReason::Expired);
    assert!(Instant::now() < end && Instant::now() > end - LEASE / 20);
    assert!(token.is_cancelled());
    server.start();
    let taken = timeout(LEASE * 4, other.acquire()).await;
    let _taken = taken.expect("the permit does not come back").unwrap();
    // A lost permit stays lost after a reconnection.
    server.advance(LEASE / 3).await;
    assert!(permit.is_lost());
}

/// A network whose answers take most of a lease.
struct Slow;

impl Faults for Slow {
    fn answering(&mut self, _connection: u64) -> Duration {
        Duration::from_millis(800)
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_revives_no_permit() {
    let server = InMemoryRedis::new();
    let [(_ours, pool), _theirs] = two(&server).await;
    let lease = Duration::from_secs(1);
    let permit = pool.with_lease(lease).acquire().await.unwrap();
    // Meanwhile the first renewal loads the script into the server.
    server.advance(lease).await;
    server.set_faults(Slow);
    assert_eq!(permit.lost().await, LostReason::Expired);
    // The answer to the renewal arrives now. The renewed lease would still be running.
    server.advance(lease / 5).await;
    assert!(permit.is_lost());
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_less_than_a_lease_costs_no_permit() {
    let server = InMemoryRedis::new();
    let [(_ours, pool), (_theirs, other)] = two(&server).await;
    let permit = pool.acquire().await.unwrap();
    for _ in 0..5 {
        server.advance(LEASE).await;
        server.stop();
        server.advance(LEASE / 3).await;
        server.start();
    }
    server.advance(LEASE).await;
    assert!(!permit.is_lost());
    assert!(other.try_acquire().await.unwrap().is_none());
    assert!(permit.release().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_lost_with_its_client() {
    let server = InMemoryRedis::new();
    let [(ours, pool), (_theirs, other)] = two(&server).await;
    let permit = pool.acquire().await.unwrap();
    let token = permit.cancellation_token();
    let lost = async { tokio::join!(permit.lost(), token.cancelled()).0 };
    let (reason, _) = tokio::join!(lost, ours.shutdown());
    assert_eq!(reason, LostReason::Closed);
    drop(permit);
    let taken = timeout(LEASE * 2, other.acquire()).await;
    drop(
        taken
            .expect("the lease of the permit does not end")
            .unwrap(),
    );
}

/// An unrenewed permit is lost at its end. A permit without an end is never lost.
#[tokio::test(start_paused = true)]
async fn a_permit_that_is_not_renewed_is_lost_at_its_end() {
    let server = InMemoryRedis::new();
    let [(_ours, pool), (_theirs, other)] = two(&server).await;
    let from = Instant::now();
    let permit = other.acquire().await.unwrap();
    let token = permit.cancellation_token();
    assert_eq!(permit.lost().await, LostReason::Expired);
    assert!(from.elapsed() < LEASE && from.elapsed() > LEASE / 2);
    assert!(token.is_cancelled());
    drop(permit);
    let endless = pool.with_lease(Duration::MAX).acquire().await.unwrap();
    server.advance(100 * LEASE).await;
    assert!(timeout(LEASE, endless.lost()).await.is_err());
    assert!(!endless.is_lost());
}

/// The lease of a permit, and whether it outlasts ten of them, by the handle that acquires it.
#[tokio::test(start_paused = true)]
async fn a_permit_is_renewed_unless_its_handle_has_a_lease_alone() {
    let server = InMemoryRedis::new();
    let watchdog = Duration::from_secs(7);
    let config = Config::default().with_watchdog_lease(watchdog);
    let client = server.client_with(config).await.unwrap();
    let pool = client.permit_expirable_semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    for (handle, lease, is_renewed) in [
        (pool.clone(), watchdog, true),
        (pool.renewed(), watchdog, true),
        (pool.with_lease(LEASE), LEASE, false),
        (pool.renewed().with_lease(LEASE), LEASE, true),
        (pool.with_lease(LEASE).renewed(), LEASE, true),
    ] {
        let permit = handle.try_acquire().await.unwrap().unwrap();
        let left = pool.lease_left(permit.id()).await.unwrap();
        assert_eq!(left, Some(lease));
        server.advance(10 * lease).await;
        assert_eq!(permit.is_lost(), !is_renewed, "{lease:?}");
        assert_eq!(permit.release().await, Ok(is_renewed));
    }
}
