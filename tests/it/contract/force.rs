//! Forcing a lock open.

use std::time::Duration;

use redisson_lock::{Error, LostReason, Owner, Released};
use tokio::time::timeout;

use super::{
    Subject,
    bed::{Bed, SOON, assert_gone, only_messages, watched},
};

pub async fn force_unlock_frees_the_lock_and_says_whether_it_was_held<S: Subject>() {
    let bed = Bed::<S>::new().await;
    assert_eq!(bed.lock.force_unlock().await, Ok(false));
    let _guard = bed.lock.lock().await.unwrap();
    let other_client = bed.lock_of_other_client().await;
    assert_eq!(other_client.force_unlock().await, Ok(true));
    assert!(bed.is_free().await);
    assert_eq!(other_client.force_unlock().await, Ok(false));
    let rival = bed.rival().await;
    assert!(rival.try_lock().await.unwrap().is_some());
}

pub async fn force_unlock_reports_the_loss_to_holders_of_its_client_at_once<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.lock.lock().await.unwrap();
    let token = guard.cancellation_token();
    assert_eq!(
        bed.lock.owned_by(&Owner::new()).force_unlock().await,
        Ok(true)
    );
    assert!(guard.is_lost() && token.is_cancelled());
    assert_eq!(guard.lost().await, LostReason::Gone);
    assert_eq!(bed.lock.is_held().await, Ok(false));
    let unlocked = guard.unlock().await;
    assert_gone(&unlocked);
}

pub async fn holders_of_other_clients_learn_of_a_force_unlock_at_their_renewal<S: Subject>() {
    // Renewals are due after 1 s. The lease would end after 3 s.
    let bed = Bed::<S>::with(watched(Duration::from_secs(3))).await;
    let guard = bed.lock.lock().await.unwrap();
    let until = guard.valid_until();
    let other_client = bed.lock_of_other_client().await;
    assert_eq!(other_client.force_unlock().await, Ok(true));
    let reason = timeout(SOON, guard.lost())
        .await
        .expect("the loss is reported");
    assert_eq!(reason, LostReason::Gone);
    assert!(
        std::time::Instant::now() < until,
        "the renewal reports the loss before the lease ends"
    );
    assert!(bed.is_free().await, "the renewal restores nothing");
}

pub async fn force_unlock_wakes_a_waiter<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let _guard = bed.lock.lock().await.unwrap();
    let rival = bed.rival().await;
    bed.server.reset_calls().await;
    let waiter = tokio::spawn(async move { rival.lock().await.map(|_| ()) });
    bed.wait_for_refusals(1).await;
    assert_eq!(bed.lock.force_unlock().await, Ok(true));
    let entered = timeout(SOON, waiter)
        .await
        .expect("a message wakes the waiter");
    assert_eq!(entered.unwrap(), Ok(()));
}

pub async fn every_nested_hold_is_lost<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let outer = bed.lock.lock().await.unwrap();
    let inner = bed.lock.with_lease(SOON).lock().await.unwrap();
    assert_eq!(bed.lock.force_unlock().await, Ok(true));
    assert!(outer.is_lost() && inner.is_lost());
    // The next hold is the first of a new tenure, which the old guards do not affect.
    let next = bed.lock.lock().await.unwrap();
    assert_eq!(bed.count_of(Owner::current()).await, Some(1));
    assert!(matches!(outer.unlock().await, Err(Error::Lost { .. })));
    drop(inner);
    assert_eq!(bed.lock.hold_count().await, Ok(1));
    assert_eq!(next.unlock().await, Ok(Released::Fully));
}

/// The unlock reports the loss, unless a verification of the client's holds came before it.
pub async fn a_forced_out_holder_harms_no_successor<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let other_client = bed.lock_of_other_client().await;
    let forced_out = bed.lock.lock().await.unwrap();
    assert_eq!(other_client.force_unlock().await, Ok(true));
    let inside = bed.rival().await.lock().await.unwrap();
    let unlocked = forced_out.unlock().await;
    assert_gone(&unlocked);
    assert!(!inside.is_lost() && !bed.is_free().await);
    assert_eq!(inside.unlock().await, Ok(Released::Fully));
}

/// The client does not know of the forced release when the owner acquires again. The first hold is
/// gone, so this hold is not a second one.
pub async fn an_acquisition_after_a_force_unlock_is_not_a_second_hold<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let other_client = bed.lock_of_other_client().await;
    let forced_out = bed.lock.lock().await.unwrap();
    assert_eq!(other_client.force_unlock().await, Ok(true));
    let inside = bed.rival().await.lock().await.unwrap();
    assert!(bed.lock.try_lock().await.unwrap().is_none());
    assert_eq!(
        forced_out.lost().await,
        LostReason::Gone,
        "the refusal reports the loss"
    );
    assert_eq!(inside.unlock().await, Ok(Released::Fully));

    let forced_out = bed.lock.lock().await.unwrap();
    assert_eq!(other_client.force_unlock().await, Ok(true));
    let anew = bed.lock.lock().await.unwrap();
    assert!(forced_out.is_lost() && !anew.is_lost());
    assert_eq!(bed.count_of(Owner::current()).await, Some(1));
    drop(forced_out);
    assert_eq!(anew.unlock().await, Ok(Released::Fully));
}

pub async fn a_lock_whose_key_was_overwritten_is_lost<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let guard = bed.lock.lock().await.unwrap();
    bed.ask::<()>(&["SET", &bed.name, "mine"]).await;
    let unlocked = guard.unlock().await;
    assert!(matches!(&unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    assert_eq!(bed.ask::<String>(&["GET", &bed.name]).await, "mine");
}
