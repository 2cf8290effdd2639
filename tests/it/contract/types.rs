//! Every public type implements `Debug`, is `Send`, and shows no secret.

use std::{fmt::Debug, hash::Hash};

use redisson_lock::{
    Config, Error, Guard, Lock, LockClient, LockClientBuilder, LostReason, Owner, OwnerId,
    Released, ShutdownReport, Unreleased,
};
use testbed::Server;

use super::{Subject, bed::Bed};

fn travels<T: Debug + Send + Sync + 'static>() {}
fn is_a_value<T: Clone + PartialEq + Eq>() {}
fn is_a_key<T: Copy + Hash + Eq>() {}
fn is_cloned<T: Clone>() {}
fn is_an_error<T: std::error::Error>() {}

pub async fn every_public_type_is_debug_and_send<S: Subject>() {
    travels::<Config>();
    travels::<Error>();
    travels::<Guard<S::Kind>>();
    travels::<Lock<S::Kind>>();
    travels::<LockClient>();
    travels::<LockClientBuilder>();
    travels::<LostReason>();
    travels::<Owner>();
    travels::<OwnerId>();
    travels::<Released>();
    travels::<ShutdownReport>();
    travels::<Unreleased>();
    is_a_value::<Config>();
    is_a_value::<Error>();
    is_a_value::<Released>();
    is_a_value::<ShutdownReport>();
    is_a_value::<Unreleased>();
    is_a_key::<LostReason>();
    is_a_key::<Owner>();
    is_a_key::<OwnerId>();
    is_cloned::<Lock<S::Kind>>();
    is_cloned::<LockClient>();
    is_an_error::<Error>();
}

fn is_send<T: Send>(future: T) -> T {
    future
}

pub async fn futures_are_send<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let lock = &bed.lock;
    let guard = is_send(lock.lock()).await.unwrap();
    drop(is_send(guard.lost()));
    let _ = is_send(guard.unlock()).await;
    drop(is_send(lock.try_lock()).await);
    drop(is_send(lock.try_lock_for(super::bed::SOON)).await);
    let _ = is_send(lock.unlock()).await;
    let _ = is_send(lock.is_locked()).await;
    let _ = is_send(lock.is_held()).await;
    let _ = is_send(lock.hold_count()).await;
    let _ = is_send(lock.remaining_lease()).await;
    let _ = is_send(lock.force_unlock()).await;
    let _ = is_send(is_send(LockClient::builder()).url(&bed.url).build()).await;
    let _ = is_send(Owner::new().scope(lock.lock())).await;
    let _ = is_send(bed.client.shutdown()).await;
}

/// Thousands of tasks may wait, each with a handle and a future.
pub async fn the_future_of_a_wait_is_small<S: Subject>() {
    let bed = Bed::<S>::new().await;
    assert!(size_of_val(&bed.lock) <= 32, "{}", size_of_val(&bed.lock));
    let wait = bed.lock.lock();
    // The future is smaller in a release build.
    assert!(size_of_val(&wait) <= 304, "{}", size_of_val(&wait));
}

pub async fn nothing_shows_a_password<S: Subject>() {
    let server = Server::start_with(&["--requirepass", "s3cret"]).await;
    let url = format!("redis://:s3cret@127.0.0.1:{}", server.port());
    let builder = LockClient::builder().url(&url);
    let shown = format!("{builder:?} {builder:#?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    let client = builder.build().await.unwrap();
    let lock = S::lock(&client, "order:42");
    let guard = lock.lock().await.unwrap();
    let shown = format!("{client:?} {lock:?} {guard:?} {client:#?} {lock:#?} {guard:#?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(
        shown.contains(&client.id().to_string()) && shown.contains("order:42"),
        "{shown}"
    );
    drop(guard);
    let shown = format!("{:?}", client.shutdown().await);
    assert!(!shown.contains("s3cret"), "{shown}");
}
