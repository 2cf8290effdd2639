//! What a client does beside replicas and sentinels: one arranged case each, by a paused clock.

use std::time::Duration;

use redisson_lock::{Config, Durability, LockClient, Owner, test_util::simulation::Replicated};
use tokio::time::sleep;

const LEASE: Duration = Duration::from_secs(30);

async fn client(world: &Replicated, durability: Durability) -> LockClient {
    let config = Config {
        durability,
        ..Config::default()
    };
    world.client_with(config).await.expect("the servers are up")
}

/// A release is not waited for: what it makes of the outer lease, a new master may never hear of.
#[tokio::test(start_paused = true)]
async fn an_inner_release_prolongs_only_what_need_not_be_replicated() {
    for (durability, prolongs) in [(Durability::Local, true), (Durability::All, false)] {
        let world = Replicated::new(1);
        let client = client(&world, durability).await;
        let lock = client.reentrant_lock("a").owned_by(&Owner::new());
        let lock = lock.with_lease(LEASE);
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        let before = outer.valid_until();
        sleep(LEASE / 2).await;
        inner.unlock().await.unwrap();
        assert_eq!(outer.valid_until() > before, prolongs, "{durability:?}");
    }
}

/// A master that only clients can reach grants on: a client that hears from the sentinels leaves it.
#[tokio::test(start_paused = true)]
async fn a_master_that_was_replaced_is_left_although_it_answers() {
    let world = Replicated::new(1);
    let client = client(&world, Durability::Auto).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    let before = world.master();
    world.isolate(before);
    sleep(Duration::from_secs(3)).await;
    assert_ne!(world.master(), before, "no replica was promoted");
    let guard = lock.lock().await.unwrap();
    assert_eq!(world.holders("a").len(), 1, "the present master knows it");
    drop(guard);
}
