//! Queries, which acquire nothing.

use std::time::Duration;

use redisson_lock::{Config, LostReason, Owner, Released};

use super::{
    Subject,
    bed::{Bed, SOON, only_messages},
};
use crate::witness::busy_at_worst;

/// The state of the lock for one owner: locked, held by it, its hold count.
async fn state<K: redisson_lock::Kind>(lock: &redisson_lock::Lock<K>) -> (bool, bool, u32) {
    (
        lock.is_locked().await.unwrap(),
        lock.is_held().await.unwrap(),
        lock.hold_count().await.unwrap(),
    )
}

pub async fn a_free_lock<S: Subject>() {
    let bed = Bed::<S>::new().await;
    assert_eq!(state(&bed.lock).await, (false, false, 0));
    assert_eq!(bed.lock.remaining_lease().await, Ok(None));
}

pub async fn a_held_lock<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let other_client = bed.lock_of_other_client().await;
    let lease = Duration::from_secs(60);
    let guard = bed.lock.with_lease(lease).lock().await.unwrap();
    assert_eq!(state(&bed.lock).await, (true, true, 1));
    let other_owner = bed.lock.owned_by(&Owner::new());
    assert_eq!(state(&other_owner).await, (true, false, 0));
    assert_eq!(state(&other_client).await, (true, false, 0));
    // Another client's owner may have the same number.
    let namesake = other_client.owned_by(&Owner::current());
    assert_eq!(state(&namesake).await, (true, false, 0));
    for lock in [&bed.lock, &other_owner, &other_client] {
        let left = lock
            .remaining_lease()
            .await
            .unwrap()
            .expect("the lock has an expiry");
        assert!(left <= lease && left > lease / 2, "{left:?}");
    }
    for lock in [&bed.lock, &other_client] {
        let holders = lock.holders().await.unwrap();
        let [holder] = &holders[..] else {
            panic!("{holders:?}");
        };
        assert_eq!(
            *holder.owner,
            format!("{}:{}", bed.client.id(), guard.owner())
        );
        assert_eq!(holder.client_id(), Some(bed.client.id()));
        assert_eq!((holder.holds, holder.writes), (1, S::NAME == "write"));
        let left = holder.remaining_lease.expect("the hold has an expiry");
        assert!(left <= lease && left > lease / 2, "{left:?}");
    }
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(state(&bed.lock).await, (false, false, 0));
    assert_eq!(bed.lock.holders().await, Ok(Vec::new()));
}

/// P-A7: a PTTL of -1 is neither a free lock nor a short wait.
pub async fn a_foreign_lock_without_expiry<S: Subject>() {
    let mut config = only_messages();
    config.max_poll_interval = Duration::from_millis(100);
    let bed = Bed::<S>::with(config).await;
    bed.hold_as::<S::Rival>("another:1").await;
    let rival = bed.rival_same_client();
    assert_eq!(state(&rival).await, (true, false, 0));
    assert_eq!(rival.remaining_lease().await, Ok(None));
    let holders = rival.holders().await.unwrap();
    assert_eq!(holders.len(), 1);
    assert_eq!(
        (&*holders[0].owner, holders[0].remaining_lease),
        ("another:1", None)
    );
    assert!(bed.lock.try_lock().await.unwrap().is_none());
    let wait = Duration::from_millis(250);
    assert!(busy_at_worst(bed.lock.try_lock_for(wait).await).is_none());
    assert_eq!(bed.pttl().await, -1, "the foreign lock keeps its state");
    // The foreign holder leaves without a message, so only a poll notices.
    let lock = bed.lock.clone();
    let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
    bed.awaited().await;
    bed.ask::<u32>(&["DEL", &bed.name]).await;
    let entered = tokio::time::timeout(SOON, waiter)
        .await
        .expect("the waiter acquires the lock");
    assert_eq!(entered.unwrap(), Ok(()));
}

pub async fn queries_leave_nothing<S: Subject>() {
    let bed = Bed::<S>::alone(Config::default()).await;
    state(&bed.lock).await;
    let _ = bed.lock.remaining_lease().await.unwrap();
    bed.lock.holders().await.unwrap();
    assert_eq!(bed.keys().await, [""; 0]);
    let guard = bed.lock.with_lease(SOON).lock().await.unwrap();
    bed.ask::<u32>(&["PERSIST", &bed.name]).await;
    state(&bed.lock).await;
    assert_eq!(bed.lock.remaining_lease().await, Ok(None));
    assert_eq!(bed.pttl().await, -1, "a query changes no expiry");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// A hold that this process must not rely on counts as none, whatever the server has.
pub async fn a_lost_hold_counts_as_none<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let guard = bed
        .lock
        .with_lease(Duration::from_secs(3))
        .lock()
        .await
        .unwrap();
    assert_eq!(bed.ask::<u32>(&["PERSIST", &bed.name]).await, 1);
    let reason = tokio::time::timeout(SOON, guard.lost())
        .await
        .expect("the guard reports the loss");
    assert_eq!(reason, LostReason::Expired);
    assert_eq!(
        bed.count_of(Owner::current()).await,
        Some(1),
        "the server still has the hold"
    );
    assert_eq!(state(&bed.lock).await, (true, false, 0));
    drop(guard);
    // The owner's old field does not block its next hold.
    let again = bed.lock.lock().await.unwrap();
    assert_eq!(state(&bed.lock).await, (true, true, 1));
    assert!(bed.pttl().await > 0, "the lock has an expiry again");
    assert_eq!(again.unlock().await, Ok(Released::Fully));
    assert!(bed.is_free().await);
}

pub async fn prefixes_show_in_keys_alone<S: Subject>() {
    let mut config = Config::default();
    config.name_prefix = "app:".into();
    let bed = Bed::<S>::with(config).await;
    let prefixed = format!("app:{}", bed.name);
    assert_eq!((bed.lock.name(), bed.lock.key()), (&*bed.name, &*prefixed));
    let guard = bed.lock.lock().await.unwrap();
    assert_eq!((guard.name(), guard.key()), (&*bed.name, &*prefixed));
    assert_eq!(bed.ask::<u32>(&["EXISTS", &prefixed]).await, 1);
    assert!(
        bed.is_free().await,
        "no key exists under the name without its prefix"
    );
    assert_eq!(bed.ask::<String>(&["TYPE", &prefixed]).await, S::TYPE);
    let shown = format!("{:?} {guard:?}", bed.lock);
    assert!(
        shown.contains(&bed.name) && !shown.contains(&prefixed),
        "{shown}"
    );
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
