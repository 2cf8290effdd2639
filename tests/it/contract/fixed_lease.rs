//! A fixed lease expires.

use std::time::Duration;

use redisson_lock::{Error, LostReason, Owner, Released};
use tokio::time::{Instant, timeout};

use super::{
    Subject,
    bed::{Bed, NEVER, SHORT, SOON, only_messages, watched},
};

const LEASE: Duration = Duration::from_millis(400);

pub async fn a_fixed_lease_runs_out_and_its_holder_knows_first<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let rival = bed.rival().await;
    let begun = Instant::now();
    let guard = bed.lock.with_lease(LEASE).lock().await.unwrap();
    let other = timeout(SOON, rival.lock())
        .await
        .expect("the lease expires")
        .unwrap();
    assert!(
        guard.is_lost(),
        "another owner has the lock before the holder knows of its loss"
    );
    // The server's clock counts whole milliseconds.
    assert!(
        begun.elapsed() + Duration::from_millis(2) >= LEASE,
        "the lease does not end early"
    );
    assert_eq!(other.unlock().await, Ok(Released::Fully));
}

pub async fn a_lock_with_a_fixed_lease_is_not_renewed<S: Subject>() {
    let bed = Bed::<S>::with(watched(Duration::from_millis(90))).await;
    let guard = bed.lock.with_lease(LEASE).lock().await.unwrap();
    let mut left = bed.pttl().await;
    testbed::eventually("the lease expires", SOON, async || {
        let now = bed.pttl().await;
        assert!(now <= left, "from {left} to {now} ms left");
        left = now;
        now == -2
    })
    .await;
    assert!(guard.is_lost());
}

pub async fn the_end_of_a_fixed_lease_cancels_the_token_and_completes_the_future<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let guard = bed.lock.with_lease(LEASE).lock().await.unwrap();
    let token = guard.cancellation_token();
    let cancelled = tokio::spawn({
        let token = token.clone();
        async move { token.cancelled().await }
    });
    let reason = timeout(SOON, guard.lost())
        .await
        .expect("the loss is reported");
    assert_eq!(reason, LostReason::Expired);
    assert!(guard.is_lost());
    timeout(SOON, cancelled)
        .await
        .expect("the token is cancelled")
        .unwrap();
    assert!(std::time::Instant::now() >= guard.valid_until());
    assert!(
        guard.cancellation_token().is_cancelled(),
        "a later token is cancelled too"
    );
    assert_eq!(
        guard.lost().await,
        LostReason::Expired,
        "the future completes each time"
    );
    let unlocked = guard.unlock().await;
    assert!(is_expired(&unlocked, &bed.name), "{unlocked:?}");
}

fn is_expired(unlocked: &Result<Released, Error>, lock: &str) -> bool {
    matches!(unlocked, Err(Error::Lost { name, reason: LostReason::Expired, .. }) if **name == *lock)
}

pub async fn a_late_unlock_harms_no_successor<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let rival = bed.rival().await;
    let late = bed.lock.with_lease(LEASE).lock().await.unwrap();
    let also_late = bed.rival_same_client().owned_by(&Owner::new());
    let inside = timeout(SOON, rival.lock())
        .await
        .expect("the lease expires")
        .unwrap();
    let unlocked = late.unlock().await;
    assert!(is_expired(&unlocked, &bed.name), "{unlocked:?}");
    assert_eq!(rival.hold_count().await, Ok(1));
    assert!(also_late.try_lock().await.unwrap().is_none());
    assert_eq!(inside.unlock().await, Ok(Released::Fully));
}

/// [Invariant 2](../../../docs/invariants.md), for both kinds of lease.
pub async fn validity_ends_before_the_servers_lease<S: Subject>() {
    let bed = Bed::<S>::with(watched(NEVER)).await;
    for lock in [bed.lock.clone(), bed.lock.with_lease(NEVER)] {
        let guard = lock.lock().await.unwrap();
        let granted = std::time::Instant::now();
        let left = bed.pttl().await as u64;
        let expires = granted + Duration::from_millis(left);
        assert!(
            guard.valid_until() < expires,
            "validity must end before the key expires"
        );
        assert!(
            guard.valid_until() > expires - NEVER / 10,
            "validity lasts for most of the lease"
        );
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}

pub async fn a_lease_is_no_longer_than_asked_for<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    // Leases are rounded up to milliseconds. The shortest and the longest allowed are included.
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    for (lease, millis) in [
        (Duration::from_millis(10), 10),
        (Duration::from_micros(60_000_001), 60_001),
        (century, century.as_millis() as i64),
    ] {
        // The shortest lease may end before its grant is usable. The client then acquires again,
        // and never holds twice.
        let guard = bed.lock.with_lease(lease).lock().await.unwrap();
        let left = bed.pttl().await;
        assert!(left <= millis, "{left} of {millis} ms");
        assert!(
            left == -2 || left > millis - 20_000,
            "{left} of {millis} ms"
        );
        drop(guard);
        bed.becomes_free().await;
    }
}
