//! Nested holds with and without a fixed lease (P-R8, P-A6). An inner hold shortens no lease. When
//! it ends, the outer hold's lease applies again.

use std::time::Duration;

use redisson_lock::{Error, Guard, LostReason, Owner, Released};
use tokio::time::timeout;

use super::{
    Subject,
    bed::{Bed, SHORT, SOON, watched},
};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// A slow machine leaves at least this much of a minute, and a second never grows to it.
const MOST_OF_A_MINUTE: Duration = Duration::from_secs(30);

async fn left<S: Subject>(bed: &Bed<S>) -> Duration {
    bed.lock
        .remaining_lease()
        .await
        .unwrap()
        .expect("the lock is held and has an expiry")
}

fn relied_upon<S: Subject>(guard: &Guard<S::Kind>) -> Duration {
    guard
        .valid_until()
        .saturating_duration_since(std::time::Instant::now())
}

/// `outer` is still valid, with most of its minute left.
async fn has_most_of_a_minute<S: Subject>(bed: &Bed<S>, outer: &Guard<S::Kind>) {
    assert!(left(bed).await > MOST_OF_A_MINUTE);
    assert!(relied_upon::<S>(outer) > MOST_OF_A_MINUTE);
}

/// `guard`'s lease expires without a renewal.
async fn runs_out<S: Subject>(bed: &Bed<S>, guard: Guard<S::Kind>) {
    bed.expires_without_renewal().await;
    let reason = timeout(SOON, guard.lost())
        .await
        .expect("the loss is reported");
    assert_eq!(reason, LostReason::Expired);
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
}

async fn ends<S: Subject>(inner: Guard<S::Kind>, holds: u32) {
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds }));
}

pub async fn a_short_lease_inside_shortens_nothing<S: Subject>() {
    let bed = Bed::<S>::with(watched(MINUTE)).await;
    let outer = bed.lock.lock().await.unwrap();
    let inner = bed.lock.with_lease(SECOND).lock().await.unwrap();
    has_most_of_a_minute(&bed, &outer).await;
    ends::<S>(inner, 1).await;
    has_most_of_a_minute(&bed, &outer).await;
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
}

pub async fn a_short_lease_inside_a_longer_one_shortens_nothing<S: Subject>() {
    // The watchdog's lease is the shortest. It must not shorten the minute either.
    let bed = Bed::<S>::with(watched(SHORT)).await;
    let outer = bed.lock.with_lease(MINUTE).lock().await.unwrap();
    let inner = bed.lock.with_lease(SECOND).lock().await.unwrap();
    has_most_of_a_minute(&bed, &outer).await;
    let innermost = bed.lock.lock().await.unwrap();
    bed.held_for(2 * SHORT, &outer, Owner::current(), 3).await;
    has_most_of_a_minute(&bed, &outer).await;
    ends::<S>(innermost, 2).await;
    has_most_of_a_minute(&bed, &outer).await;
    ends::<S>(inner, 1).await;
    has_most_of_a_minute(&bed, &outer).await;
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
}

pub async fn a_long_lease_inside_ends_with_its_hold<S: Subject>() {
    let bed = Bed::<S>::with(watched(2 * SECOND)).await;
    for outer in [bed.lock.with_lease(2 * SECOND), bed.lock.clone()] {
        let outer = outer.lock().await.unwrap();
        let inner = bed.lock.with_lease(MINUTE).lock().await.unwrap();
        has_most_of_a_minute(&bed, &inner).await;
        assert!(
            relied_upon::<S>(&outer) <= 2 * SECOND,
            "the long lease belongs to the inner hold"
        );
        ends::<S>(inner, 1).await;
        assert!(left(&bed).await <= 2 * SECOND);
        assert!(relied_upon::<S>(&outer) <= 2 * SECOND);
        assert_eq!(outer.unlock().await, Ok(Released::Fully));
    }
}

pub async fn a_watched_hold_goes_on_after_a_lease_inside<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    let outer = bed.lock.lock().await.unwrap();
    let inner = bed.lock.with_lease(SHORT / 2).lock().await.unwrap();
    bed.held_for(2 * SHORT, &inner, Owner::current(), 2).await;
    ends::<S>(inner, 1).await;
    bed.held_for(3 * SHORT, &outer, Owner::current(), 1).await;
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
}

pub async fn a_lease_runs_out_after_a_watched_hold_inside<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    let outer = bed.lock.with_lease(SHORT).lock().await.unwrap();
    let inner = bed.lock.lock().await.unwrap();
    bed.held_for(3 * SHORT, &outer, Owner::current(), 2).await;
    ends::<S>(inner, 1).await;
    runs_out(&bed, outer).await;
}

pub async fn watched_lease_watched<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    let outer = bed.lock.lock().await.unwrap();
    let middle = bed.lock.with_lease(SHORT).lock().await.unwrap();
    let inner = bed.lock.lock().await.unwrap();
    bed.held_for(2 * SHORT, &middle, Owner::current(), 3).await;
    ends::<S>(inner, 2).await;
    bed.held_for(2 * SHORT, &middle, Owner::current(), 2).await;
    ends::<S>(middle, 1).await;
    bed.held_for(2 * SHORT, &outer, Owner::current(), 1).await;
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
}

pub async fn lease_watched_lease<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    let outer = bed.lock.with_lease(SHORT).lock().await.unwrap();
    let middle = bed.lock.lock().await.unwrap();
    let inner = bed.lock.with_lease(SHORT).lock().await.unwrap();
    bed.held_for(2 * SHORT, &inner, Owner::current(), 3).await;
    ends::<S>(inner, 2).await;
    bed.held_for(2 * SHORT, &outer, Owner::current(), 2).await;
    ends::<S>(middle, 1).await;
    runs_out(&bed, outer).await;
}

/// Holds may end in any order. The lease is what the remaining holds need.
pub async fn the_outer_hold_may_end_first<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    let outer = bed.lock.lock().await.unwrap();
    let inner = bed.lock.with_lease(SHORT).lock().await.unwrap();
    ends::<S>(outer, 1).await;
    runs_out(&bed, inner).await;

    let outer = bed.lock.with_lease(SHORT).lock().await.unwrap();
    let inner = bed.lock.lock().await.unwrap();
    ends::<S>(outer, 1).await;
    bed.held_for(3 * SHORT, &inner, Owner::current(), 1).await;
    assert_eq!(inner.unlock().await, Ok(Released::Fully));
}
