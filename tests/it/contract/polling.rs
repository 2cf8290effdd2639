//! Kinds whose waiters poll.

use redisson_lock::Released;

use super::{
    Subject,
    bed::{Bed, only_messages},
    subjects::Reentrant,
    waiting::{expect_grant, spawn_waiter},
};

/// Java's spin lock is released without a message.
pub async fn a_poll_finds_a_silent_release<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    bed.hold_as::<S::Rival>("another:1").await;
    bed.server.reset_calls().await;
    let waiter = spawn_waiter(&bed.lock);
    bed.wait_for_refusals(2).await;
    bed.ask::<u32>(&["DEL", &bed.name]).await;
    assert_eq!(
        expect_grant(waiter).await.unlock().await,
        Ok(Released::Fully)
    );
}

pub async fn no_client_listens<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let guard = bed.rival().await.lock().await.unwrap();
    bed.server.reset_calls().await;
    let waiter = spawn_waiter(&bed.lock);
    bed.wait_for_refusals(3).await;
    assert_eq!(bed.channels().await, [""; 0]);
    let calls = bed.server.calls().await;
    assert_eq!(calls.get("subscribe"), None, "{calls:?}");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    drop(expect_grant(waiter).await);
}

/// Another kind of lock on the same name may have waiters that listen.
pub async fn a_release_is_announced_to_waiters_of_another_kind<S: Subject>() {
    let bed = Bed::<S>::alone_beside::<Reentrant>(only_messages()).await;
    let guard = bed.lock.lock().await.unwrap();
    let client = bed.another_client().await;
    bed.server.reset_calls().await;
    let waiter = spawn_waiter(&Reentrant::lock(&client, &bed.name));
    bed.wait_for_refusals(1).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(
        expect_grant(waiter).await.unlock().await,
        Ok(Released::Fully)
    );
}
