//! A hold without a fixed lease is renewed for as long as it lasts.

use std::time::Duration;

use redisson_lock::{Owner, Released};
use testbed::eventually;

use super::{
    Subject,
    bed::{Bed, SHORT, SOON, watched},
};

pub async fn a_hold_outlives_many_leases<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    let rival = bed.rival().await;
    let guard = bed.lock.lock().await.unwrap();
    bed.held_for(5 * SHORT, &guard, Owner::current(), 1).await;
    assert!(rival.try_lock().await.unwrap().is_none());
    let left = bed.pttl().await;
    assert!((1..=SHORT.as_millis() as i64).contains(&left), "{left} ms");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// Renewals come every third of the lease, well before its end. A verification, which is a renewal, may
/// come earlier: a client verifies its holds after each connection that it makes.
pub async fn a_hold_at_rest_is_renewed_in_time<S: Subject>() {
    let lease = Duration::from_secs(3);
    let bed = Bed::<S>::alone(watched(lease)).await;
    let guard = bed.lock.lock().await.unwrap();
    let least = lease / 3 - lease / 30;
    let mut gained = Duration::ZERO;
    for _ in 0..3 {
        if gained < least {
            let before = guard.valid_until();
            bed.server.reset_calls().await;
            let is_renewed = async || guard.valid_until() > before;
            eventually("the lease is renewed", SOON, is_renewed).await;
            gained = guard.valid_until() - before;
        }
    }
    assert!(gained >= least, "renewed after {gained:?} of {lease:?}");
    assert!(gained < lease);
    let calls = bed.server.calls().await;
    let renewals = calls.get("evalsha").copied().unwrap_or(0);
    assert_eq!(renewals, 1, "one call is a renewal: {calls:?}");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

pub async fn a_released_hold_is_not_renewed<S: Subject>() {
    let bed = Bed::<S>::with(watched(SHORT)).await;
    let owner = Owner::new();
    let lock = bed.lock.owned_by(&owner);
    assert_eq!(
        lock.lock().await.unwrap().unlock().await,
        Ok(Released::Fully)
    );
    // A late renewal would find the same owner's field, and extend a lease that must expire (P-R2).
    bed.hold_as::<S>(&bed.owner(owner)).await;
    let lease = (2 * SHORT.as_millis()).to_string();
    for key in bed.keys_of_a_hold(owner) {
        bed.ask::<u32>(&["PEXPIRE", &key, &lease]).await;
    }
    bed.expires_without_renewal().await;
}

pub async fn many_holds_are_renewed_side_by_side<S: Subject>() {
    let mut config = watched(2 * SHORT);
    config.watchdog_batch_size = 3;
    let bed = Bed::<S>::with(config).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        let lock = S::lock(&bed.client, &format!("{}:{number}", bed.name));
        guards.push(lock.lock().await.unwrap());
    }
    let first = bed.lock.lock().await.unwrap();
    bed.held_for(5 * SHORT, &first, Owner::current(), 1).await;
    for guard in guards {
        assert!(!guard.is_lost());
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}
