//! A client's operations on a lock wait for the releases of its dropped guards.

use futures_util::FutureExt;
use redisson_lock::{Config, LockClient, Owner, Released};
use testbed::{Proxy, Server, unique_name};
use tokio::time::timeout;

use crate::hazards::stage::{GENEROUS, connect};

/// Enough rounds to show a race that one of three rounds loses.
const ROUNDS: usize = 100;

async fn client_of(server: &Server) -> LockClient {
    connect(&server.url(), Config::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlock_after_a_dropped_inner_guard_releases_the_lock() {
    let server = Server::start().await;
    let client = client_of(&server).await;
    let lock = client.reentrant_lock(unique_name("outer"));
    for _ in 0..ROUNDS {
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        drop(inner);
        assert_eq!(outer.unlock().await, Ok(Released::Fully));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_after_a_dropped_guard_says_free() {
    let server = Server::start().await;
    let client = client_of(&server).await;
    let lock = client.reentrant_lock(unique_name("query"));
    for _ in 0..ROUNDS {
        drop(lock.lock().await.unwrap());
        assert_eq!(lock.is_locked().await, Ok(false));
        drop(lock.lock().await.unwrap());
        assert_eq!(lock.remaining_lease().await, Ok(None));
        drop(lock.lock().await.unwrap());
        assert_eq!(lock.force_unlock().await, Ok(false));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_lock_of_another_owner_after_a_dropped_guard_succeeds() {
    let server = Server::start().await;
    let client = client_of(&server).await;
    let (name, beside) = (unique_name("other"), unique_name("beside"));
    let lock = client.reentrant_lock(&name);
    let other = lock.owned_by(&Owner::new());
    let group = client.multi_lock([&name, &beside]).owned_by(&Owner::new());
    for _ in 0..ROUNDS {
        drop(lock.lock().await.unwrap());
        let guard = other.try_lock().await.unwrap();
        drop(guard.expect("the dropped guard is released first"));
        let guard = group.try_lock().await.unwrap();
        drop(guard.expect("the dropped guard is released first"));
    }
}

/// An attempt whose future was dropped is granted while the owner's next call waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_to_a_dropped_future_is_not_counted_by_the_next_call() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = connect(&proxy.url(), Config::default()).await;
    let owner = Owner::new();
    // From now on the server caches the scripts, so each takes one request.
    let first = client.reentrant_lock(unique_name("first")).lock().await;
    assert_eq!(first.unwrap().unlock().await, Ok(Released::Fully));
    for _ in 0..ROUNDS {
        let name = unique_name("abandoned");
        let (plain, once) = (
            client.reentrant_lock(&name).owned_by(&owner),
            client
                .non_reentrant_lock(format!("{name}:once"))
                .owned_by(&owner),
        );
        proxy.faults().stall_replies(true);
        let (mut abandoned, mut abandoned_once) = (Box::pin(plain.lock()), Box::pin(once.lock()));
        assert!((&mut abandoned).now_or_never().is_none());
        assert!((&mut abandoned_once).now_or_never().is_none());
        drop((abandoned, abandoned_once));
        let next = async {
            let guard = plain.lock().await.unwrap();
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
            let guard = once.lock().await.expect("the owner has no hold");
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
        };
        let mut next = Box::pin(timeout(GENEROUS, next));
        assert!((&mut next).now_or_never().is_none());
        proxy.faults().stall_replies(false);
        next.await.expect("the attempts end in time");
    }
}
