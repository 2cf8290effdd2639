//! Failovers to a replica that lacks the last writes of a holder. One arranged case per test, under a paused clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{Config, Durability, DynGuard, DynLock, Error, LockClient, Owner};
use redisson_lock_test::simulation::{Faults, Replicated};
use tokio::time::{Instant, sleep};

use crate::support::{LEASE, SHORT, SOON, network::Network, started, until};

/// Longer than a client takes to reach the new master, and to verify its holds there.
const RECOVERED: Duration = Duration::from_secs(5);
/// A lag in which no write reaches a replica.
const ENDLESS: Duration = Duration::from_secs(1_000_000_000);

/// Locks of one owner, of each kind of data.
fn locks(client: &LockClient) -> [DynLock; 6] {
    let (owner, both) = (Owner::new(), client.read_write_lock("a"));
    [
        client.reentrant_lock("a").owned_by(&owner).into_dyn(),
        client.fenced_lock("a").owned_by(&owner).into_dyn(),
        client.fair_lock("a").owned_by(&owner).into_dyn(),
        both.read().owned_by(&owner).into_dyn(),
        both.write().owned_by(&owner).into_dyn(),
        client.simple_lock("a").owned_by(&owner).into_dyn(),
    ]
}

/// A world in which replicas have each write at once, and a lock of its client.
async fn world(kind: usize) -> (Replicated, DynLock) {
    let world = Replicated::new(1);
    let config = Config::default().with_durability(Durability::Local);
    let client = world.client_with(config).await.unwrap();
    let lock = locks(&client)[kind].clone();
    (world, lock)
}

/// Lets no further write reach a replica.
async fn lose_writes(world: &Replicated) {
    sleep(SHORT).await;
    world.set_lag(ENDLESS);
}

/// Replaces the master, which hangs. Returns once the client has verified its holds at the new one.
async fn fail_over(world: &Replicated) {
    let before = world.master();
    world.hang(before);
    until(|| world.master() != before).await;
    world.set_lag(Duration::ZERO);
    sleep(RECOVERED).await;
}

/// The new master keeps the lock for as long as the guard counts as valid.
fn assert_kept(world: &Replicated, guard: &DynGuard, case: &str) {
    assert!(!guard.is_lost(), "{case}: {guard:?}");
    let valid = guard.valid_until() - Instant::now().into_std();
    let kept = world.remaining_lease("a").unwrap_or_default();
    assert!(
        kept >= valid,
        "{case}: valid for {valid:?}, kept for {kept:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn extension_that_a_failover_has_lost_is_made_good() {
    for kind in 0..6 {
        for lease in [None, Some(LEASE)] {
            let (world, lock) = world(kind).await;
            let lock = match lease {
                Some(lease) => lock.with_lease(lease),
                None => lock,
            };
            let guard = lock.lock().await.unwrap();
            lose_writes(&world).await;
            guard.extend(20 * LEASE).await.unwrap();
            fail_over(&world).await;
            assert_kept(&world, &guard, &format!("{lock:?}, {lease:?}"));
        }
    }
}

/// Refuses the next scripts.
struct Refusing {
    left: Arc<AtomicU32>,
    words: &'static str,
}

impl Faults for Refusing {
    fn refusal(&mut self, command: &'static str) -> Option<String> {
        let before = |left: u32| left.checked_sub(1);
        let is_refused =
            command.starts_with("EVAL") && self.left.fetch_update(Relaxed, Relaxed, before).is_ok();
        is_refused.then(|| self.words.into())
    }
}

/// The plain renewals that follow know nothing of the extension.
#[tokio::test(start_paused = true)]
async fn verification_that_the_new_master_refuses_is_repeated() {
    for words in [
        "LOADING Redis is loading the dataset in memory",
        "NOREPLICAS Not enough good replicas to write.",
        "READONLY You can't write against a read only replica.",
        "CLUSTERDOWN The cluster is down",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "ERR max requests limit exceeded",
    ] {
        for lease in [None, Some(LEASE)] {
            let (world, lock) = world(0).await;
            let lock = match lease {
                Some(lease) => lock.with_lease(lease),
                None => lock,
            };
            let guard = lock.lock().await.unwrap();
            lose_writes(&world).await;
            guard.extend(20 * LEASE).await.unwrap();
            let left = Arc::new(AtomicU32::new(3));
            world.set_faults(Refusing {
                left: left.clone(),
                words,
            });
            fail_over(&world).await;
            assert_eq!(left.load(Relaxed), 0, "{words}, {lease:?}");
            assert_kept(&world, &guard, &format!("{words}, {lease:?}"));
        }
    }
}

/// The old master has answered, and the caller reads the answer after the verification at the new one.
#[tokio::test(start_paused = true)]
async fn extension_that_its_caller_reads_late_is_made_good() {
    for kind in 0..6 {
        for lease in [None, Some(LEASE)] {
            let (world, lock) = world(kind).await;
            let lock = match lease {
                Some(lease) => lock.with_lease(lease),
                None => lock,
            };
            let guard = lock.lock().await.unwrap();
            lose_writes(&world).await;
            let mut extending = Box::pin(guard.extend(20 * LEASE));
            started(&mut extending).await;
            sleep(SHORT).await;
            fail_over(&world).await;
            extending.await.unwrap();
            sleep(SHORT).await;
            assert_kept(&world, &guard, &format!("{lock:?}, {lease:?}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn inner_release_that_its_caller_reads_late_is_made_good() {
    for kind in 0..5 {
        let (world, lock) = world(kind).await;
        let lock = lock.with_lease(LEASE);
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        sleep(LEASE / 2).await;
        lose_writes(&world).await;
        let mut releasing = Box::pin(inner.unlock());
        started(&mut releasing).await;
        sleep(SHORT).await;
        fail_over(&world).await;
        releasing.await.unwrap();
        sleep(SHORT).await;
        assert_kept(&world, &outer, &format!("{lock:?}"));
    }
}

/// An operation puts off the verification of one hold, while that of the other one waits for replicas. One connection has all requests
/// that wait, so the server executes the former after that wait, and not a pause later.
#[tokio::test(start_paused = true)]
async fn verification_that_is_put_off_follows_its_batch_at_once() {
    let world = Replicated::new(1);
    let config = Config::default().with_durability(Durability::Majority);
    let wait = config.replica_wait;
    let client = world.client_with(config).await.unwrap();
    let [first, second] = ["a", "b"].map(|name| client.reentrant_lock(name).with_lease(LEASE));
    let (first, _second) = (first.lock().await.unwrap(), second.lock().await.unwrap());
    world.set_lag(ENDLESS);
    let mut extending = Box::pin(first.extend(LEASE));
    started(&mut extending).await;
    sleep(2 * wait).await;
    let other = client.reentrant_lock("c");
    assert!(!other.is_locked().await.unwrap());
    let network = Network::default();
    world.set_faults(network.clone());
    // The connection that waits for replicas stays.
    network.0.loses_script.store(true, Relaxed);
    let began = Instant::now();
    assert!(!other.is_locked().await.unwrap());
    until(|| network.scripts() > 2).await;
    assert!(began.elapsed() < wait + SOON / 2, "{:?}", began.elapsed());
}

/// The release of the inner hold gives the outer one a new lease.
#[tokio::test(start_paused = true)]
async fn lease_of_an_inner_release_that_a_failover_has_lost_is_made_good() {
    for kind in 0..5 {
        let (world, lock) = world(kind).await;
        let lock = lock.with_lease(LEASE);
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        sleep(LEASE / 2).await;
        lose_writes(&world).await;
        inner.unlock().await.unwrap();
        fail_over(&world).await;
        assert_kept(&world, &outer, &format!("{lock:?}"));
    }
}

/// The new master has the outer hold, with its own lease.
#[tokio::test(start_paused = true)]
async fn lease_of_a_nested_hold_that_a_failover_has_lost_is_made_good() {
    for kind in 0..5 {
        let (world, lock) = world(kind).await;
        let outer = lock.with_lease(LEASE).lock().await.unwrap();
        lose_writes(&world).await;
        let inner = lock.with_lease(20 * LEASE).lock().await.unwrap();
        fail_over(&world).await;
        assert_kept(&world, &inner, &format!("{lock:?}"));
        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();
        assert_eq!(world.holders("a"), []);
    }
}

/// An owner of which the new master has the first of `holds` holds.
async fn first_of(holds: usize, kind: usize) -> (Replicated, DynLock, Vec<DynGuard>) {
    let (world, lock) = world(kind).await;
    let mut guards = vec![lock.lock().await.unwrap()];
    lose_writes(&world).await;
    while guards.len() < holds {
        guards.push(lock.lock().await.unwrap());
    }
    (world, lock, guards)
}

/// The holds are lost, and the lock is free long before the end of their lease.
async fn assert_given_back(world: &Replicated, guards: Vec<DynGuard>, lock: &DynLock) {
    sleep(SHORT).await;
    assert!(guards.iter().all(DynGuard::is_lost), "{lock:?}: {guards:?}");
    assert_eq!(world.holders("a"), [], "{lock:?}: the last hold is left");
}

#[tokio::test(start_paused = true)]
async fn release_that_finds_too_few_holds_leaves_none() {
    for kind in 0..5 {
        let (world, lock, mut guards) = first_of(3, kind).await;
        fail_over(&world).await;
        assert!(!guards[0].is_lost() && world.holders("a")[0].1 == 1);
        let released = guards.remove(2).unlock().await;
        assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
        assert_given_back(&world, guards, &lock).await;
    }
}

/// The caller is gone when the answer arrives.
#[tokio::test(start_paused = true)]
async fn dropped_acquisition_that_finds_too_few_holds_leaves_none() {
    for kind in 0..5 {
        let (world, lock, guards) = first_of(2, kind).await;
        fail_over(&world).await;
        let network = Network::default();
        world.set_faults(network.clone());
        network.0.delay.store(5, Relaxed);
        let mut nested = Box::pin(lock.lock());
        started(&mut nested).await;
        drop(nested);
        assert_given_back(&world, guards, &lock).await;
    }
}

/// The old master hangs before it can answer, so the client gives back the hold that it may have granted.
#[tokio::test(start_paused = true)]
async fn doubtful_acquisition_that_finds_too_few_holds_leaves_none() {
    for kind in 0..5 {
        let (world, lock, guards) = first_of(2, kind).await;
        let before = world.master();
        world.hang(before);
        let mut nested = Box::pin(lock.lock());
        started(&mut nested).await;
        drop(nested);
        fail_over(&world).await;
        assert_given_back(&world, guards, &lock).await;
    }
}
