//! Groups with slow, unreachable, lost or contended members. One arranged case per test, under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{All, Error, GroupLock, Lock, Majority, Owner, Reentrant, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    SHORT, client,
    lossy_network::{Network, slow_server},
    network::server,
    polling_client,
};

#[tokio::test(start_paused = true)]
async fn a_majority_does_not_wait_for_a_slow_member() {
    let mut locks = Vec::new();
    for delay in [0, 0, 40] {
        let server = InMemoryRedis::new();
        let client = polling_client(&server).await;
        server.set_faults(Network::slow(Duration::from_millis(delay)));
        locks.push(client.reentrant_lock("a"));
    }
    let began = Instant::now();
    let guard = GroupLock::<Majority>::of(locks).lock().await.unwrap();
    assert!(
        began.elapsed() < Duration::from_millis(20),
        "{:?}",
        began.elapsed()
    );
    drop(guard);
}

/// The most scripts for one acquisition and release, when two groups contend all the time.
const MOST_SCRIPTS: u64 = 30;

#[tokio::test(start_paused = true)]
async fn groups_in_opposite_order_need_few_scripts() {
    const TIMES: u64 = 30;
    let (server, network) = slow_server(Duration::from_millis(1));
    let mut tasks = Vec::new();
    for names in [["a", "b"], ["b", "a"]] {
        let client = polling_client(&server).await;
        let group = GroupLock::<All>::of(names.map(|name| client.reentrant_lock(name)));
        tasks.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                group.lock().await.unwrap().unlock().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let scripts = network.scripts.load(Relaxed);
    assert!(scripts < 2 * TIMES * MOST_SCRIPTS, "{scripts} scripts");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_several_operations_costs_none_of_them() {
    let (server, network) = server();
    let client = polling_client(&server).await;
    let group = GroupLock::<All>::of(["a", "b", "c"].map(|name| client.reentrant_lock(name)));
    network.0.refused.store(1, Relaxed);
    let guard = group.lock().await.unwrap();
    network.0.refused.store(1, Relaxed);
    assert_eq!(guard.unlock().await.unwrap(), Released::Fully);
}

/// A lock at each of five servers.
async fn five_locks() -> (Vec<Lock<Reentrant>>, Vec<InMemoryRedis>) {
    let (mut locks, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let server = InMemoryRedis::new();
        locks.push(polling_client(&server).await.reentrant_lock("a"));
        servers.push(server);
    }
    (locks, servers)
}

/// Three of five servers are down. The tasks also contend for the other two, but the error names the outage.
#[tokio::test(start_paused = true)]
async fn a_majority_that_cannot_be_had_is_unavailable_from_every_method() {
    let (locks, servers) = five_locks().await;
    servers[..3].iter().for_each(InMemoryRedis::stop);
    let tasks = (0..4).map(|_| {
        let group = GroupLock::<Majority>::of(locks.clone()).owned_by(&Owner::new());
        async move {
            let waited = group.try_lock_for(Duration::from_secs(2)).await;
            assert!(
                matches!(waited, Err(Error::Unavailable { .. })),
                "{waited:?}"
            );
            let tried = group.try_lock().await;
            assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
        }
    });
    futures_util::future::join_all(tasks).await;
}

#[tokio::test(start_paused = true)]
async fn a_majority_held_by_another_owner_is_busy_although_a_server_is_dead() {
    let (locks, servers) = five_locks().await;
    let group = |owner: &Owner| GroupLock::<Majority>::of(locks.clone()).owned_by(owner);
    let guard = group(&Owner::new()).lock().await.unwrap();
    servers[0].stop();
    let other = group(&Owner::new());
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(
        other
            .try_lock_for(Duration::from_secs(2))
            .await
            .unwrap()
            .is_none()
    );
    drop(guard);
}

/// One of five servers is down when the process starts.
#[tokio::test(start_paused = true)]
async fn lazy_client_is_an_unavailable_member_until_its_server_starts() {
    let (mut locks, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        servers.push(InMemoryRedis::new());
    }
    servers[1].stop();
    for server in &servers {
        let client = server.builder().lazy(true).build().await.unwrap();
        locks.push(client.reentrant_lock("a"));
    }
    sleep(Duration::from_millis(100)).await;
    let group = GroupLock::<Majority>::of(locks.clone());
    let guard = group
        .try_lock()
        .await
        .unwrap()
        .expect("four of five are a majority");
    assert_eq!(guard.unlock().await.unwrap(), Released::Fully);
    let tried = locks[1].try_lock().await;
    assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    servers[1].start();
    let alone = locks[1].lock().await.unwrap();
    alone.unlock().await.unwrap();
}

/// Two groups of one owner have the same members in opposite orders. Each holds the operation lock that the other waits for.
#[tokio::test(start_paused = true)]
async fn two_groups_of_one_owner_do_not_wait_for_each_other() {
    let (server, network) = server();
    network.0.delay.store(1, Relaxed);
    let client = client(&server).await;
    let owner = Owner::new();
    let group = |names: [&str; 2]| {
        let locks = names.map(|name| client.reentrant_lock(name));
        GroupLock::<All>::of(locks).owned_by(&owner)
    };
    let (one, other) = (group(["a", "b"]), group(["b", "a"]));
    let both = timeout(SHORT, async { tokio::join!(one.lock(), other.lock()) }).await;
    let (one, other) = both.expect("a group waits without end");
    one.unwrap().unlock().await.unwrap();
    assert_eq!(other.unwrap().unlock().await.unwrap(), Released::Fully);
}

#[tokio::test(start_paused = true)]
async fn a_majority_is_valid_without_the_locks_that_it_has_lost() {
    let servers = [(); 3].map(|()| InMemoryRedis::new());
    let mut locks = Vec::new();
    let mut clients = Vec::new();
    for (server, lease) in servers.iter().zip([60, 30, 10]) {
        let member = client(server).await;
        let lock = member.reentrant_lock("a");
        locks.push(lock.with_lease(Duration::from_secs(lease)));
        clients.push(member);
    }
    let guard = GroupLock::<redisson_lock::Majority>::of(locks);
    let guard = guard.lock().await.unwrap();
    let left = || {
        let now = Instant::now().into_std();
        guard.valid_until().saturating_duration_since(now)
    };
    assert!(left() > Duration::from_secs(25));
    servers[0].restart();
    sleep(SHORT).await;
    assert!(
        !guard.is_lost() && left() < Duration::from_secs(10),
        "{:?}",
        left()
    );
    sleep(Duration::from_secs(10)).await;
    assert!(guard.is_lost() && left().is_zero(), "{:?}", left());
}
