//! What the server has told a client about its hold, the client says too.

use futures_util::FutureExt;
use redisson_lock::{Guard, Kind, Lock, LostReason, Owner};

use super::{
    Subject,
    bed::{Bed, assert_gone, only_messages},
};

/// The questions that show whether their owner has the lock. Each returns whether it has, if its answer says so.
const QUESTIONS: [&str; 6] = [
    "is_locked",
    "is_held",
    "hold_count",
    "remaining_lease",
    "holders",
    "force_unlock",
];

/// Asks a question, and returns whether the answer shows a hold.
async fn ask<K: Kind>(question: &str, lock: &Lock<K>) -> bool {
    match question {
        "is_locked" => lock.is_locked().await.unwrap(),
        "is_held" => lock.is_held().await.unwrap(),
        "hold_count" => lock.hold_count().await.unwrap() > 0,
        "remaining_lease" => lock.remaining_lease().await.unwrap().is_some(),
        "holders" => !lock.holders().await.unwrap().is_empty(),
        _ => lock.force_unlock().await.unwrap(),
    }
}

/// Whether the client calls the hold of `guard` lost, in every way that it can say so.
fn is_lost<S: Subject>(bed: &Bed<S>, guard: &Guard<S::Kind>) -> bool {
    let token = guard.cancellation_token();
    let told = guard.lost().now_or_never();
    let lost = guard.is_lost();
    let named = |held: &redisson_lock::HeldLock| held.name.contains(&bed.name);
    assert_eq!(bed.client.holds().iter().any(named), !lost);
    assert_eq!(token.is_cancelled(), lost);
    assert_eq!(told, lost.then_some(LostReason::Gone));
    lost
}

/// A hold that the operator has ended, of which the client is not told yet. A new connection would have asked about it at once, which
/// a busy machine may cause.
async fn gone<S: Subject>(
    bed: &Bed<S>,
    lock: &Lock<S::Kind>,
    operator: &Lock<S::Kind>,
) -> Guard<S::Kind> {
    for _ in 0..5 {
        let guard = lock.lock().await.unwrap();
        assert_eq!(operator.force_unlock().await, Ok(true));
        if !is_lost(bed, &guard) {
            return guard;
        }
    }
    panic!("the client is always told before it asks")
}

pub async fn every_question_about_a_hold_that_is_gone_ends_it<S: Subject>() {
    // No renewal is due during the test.
    let bed = Bed::<S>::with(only_messages()).await;
    let operator = bed.lock_of_other_client().await;
    for question in QUESTIONS {
        for lock in [&bed.lock, &bed.lock.with_lease(super::bed::NEVER)] {
            let guard = gone(&bed, lock, &operator).await;
            assert!(!ask(question, lock).await, "{question}");
            // A reader's side is not freed under a writer, so the answer tells nothing: the client asks again.
            if S::SHARED && question == "force_unlock" {
                assert_eq!(guard.lost().await, LostReason::Gone);
            }
            assert!(is_lost(&bed, &guard), "{question}");
            assert_gone(&guard.unlock().await);
        }
    }
    // Another owner has the lock by now.
    let rival = bed.rival().await;
    for question in ["is_held", "hold_count", "holders"] {
        let guard = bed.lock.lock().await.unwrap();
        assert_eq!(operator.force_unlock().await, Ok(true));
        let inside = rival.lock().await.unwrap();
        let answer = ask(question, &bed.lock).await;
        assert_eq!(answer, question == "holders");
        assert!(is_lost(&bed, &guard), "{question}");
        assert_gone(&guard.unlock().await);
        inside.unlock().await.unwrap();
    }
}

pub async fn another_owners_question_ends_it_too<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let operator = bed.lock_of_other_client().await;
    let other = bed.lock.owned_by(&Owner::new());
    for question in ["is_locked", "remaining_lease", "holders"] {
        let guard = bed.lock.lock().await.unwrap();
        assert_eq!(operator.force_unlock().await, Ok(true));
        assert!(!ask(question, &other).await, "{question}");
        assert!(is_lost(&bed, &guard), "{question}");
        drop(guard);
    }
}

pub async fn a_check_of_a_hold_tells_whether_it_is_there<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let operator = bed.lock_of_other_client().await;
    let guard = bed.lock.lock().await.unwrap();
    assert_eq!(guard.check().await, Ok(()));
    assert!(!is_lost(&bed, &guard));
    assert_eq!(operator.force_unlock().await, Ok(true));
    let inside = bed.rival().await.lock().await.unwrap();
    assert_gone(&guard.check().await);
    assert!(is_lost(&bed, &guard));
    // A known loss needs no answer.
    assert_gone(&guard.check().await);
    assert_eq!(inside.check().await, Ok(()));
    // Another program's data is no hold.
    let guard = bed.rival_same_client().owned_by(&Owner::new());
    inside.unlock().await.unwrap();
    let guard = guard.lock().await.unwrap();
    bed.ask::<u32>(&["DEL", &bed.name]).await;
    bed.ask::<u32>(&["RPUSH", &bed.name, "1"]).await;
    assert_gone(&guard.check().await);
}

/// A question that another task asks at the same time as the lock goes from owner to owner.
pub async fn a_question_ends_no_hold_that_is_there<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let (lock, one, other) = (&bed.lock, Owner::new(), Owner::new());
    let work = async |owner: Owner| {
        let lock = lock.owned_by(&owner);
        for _ in 0..30 {
            let guard = lock.lock().await.unwrap();
            tokio::task::yield_now().await;
            assert!(!guard.is_lost());
            guard.unlock().await.unwrap();
        }
    };
    let questions = async {
        for turn in 0..60 {
            let owner = if turn % 3 == 0 { one } else { other };
            ask(QUESTIONS[turn % 5], &lock.owned_by(&owner)).await;
        }
    };
    tokio::join!(work(one), work(other), questions);
}
