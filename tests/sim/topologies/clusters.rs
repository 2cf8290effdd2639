//! Clients of a cluster whose slots change owners: cases that histories seldom reach, under a paused clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{Config, Error, LockClient, Owner, ShardedPubSub};
use redisson_lock_test::simulation::{Cluster, Executed, Fate, Faults};
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use super::name_on;
use crate::support::log_lines::LogLines;

/// The watchdog renews after a third of this.
const LEASE: Duration = Duration::from_secs(60);
/// Shorter than the pause between two renewals, and longer than a client takes to notice that a slot has moved.
const SOON: Duration = Duration::from_secs(7);

/// A client that does not poll: only messages and moved slots wake its waiters.
async fn client(cluster: &Cluster) -> LockClient {
    client_with(cluster, ShardedPubSub::Auto).await
}

async fn client_with(cluster: &Cluster, sharded_pubsub: ShardedPubSub) -> LockClient {
    let config = Config::default()
        .with_watchdog_lease(LEASE)
        .with_max_poll_interval(Duration::from_secs(3_600))
        .with_sharded_pubsub(sharded_pubsub);
    let client = cluster.client_with(config).await.expect("the nodes are up");
    // The client requests the map every 200 ms until it has all connections.
    sleep(Duration::from_secs(1)).await;
    client
}

/// Tells every node the current owners of all slots.
fn hear_all(cluster: &Cluster) {
    (0..cluster.nodes()).for_each(|node| cluster.hear_all(node));
}

#[tokio::test(start_paused = true)]
async fn a_hold_lost_in_a_takeover_is_reported_before_its_renewal() {
    let cluster = Cluster::new(3);
    let client = client(&cluster).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let owner = cluster.owner(Cluster::slot_of("a")).unwrap();
    cluster.stop(owner);
    cluster.take_over(owner, (owner + 1) % 3, |_| false);
    hear_all(&cluster);
    let told = timeout(SOON, guard.lost()).await;
    assert!(
        told.is_ok(),
        "the client does not verify the hold on the new owner of its slot"
    );
}

/// The channel of such a latch is in another slot than its key, where the node refuses a sharded message.
#[tokio::test(start_paused = true)]
async fn latch_with_braces_is_refused_with_sharded_messages() {
    let cluster = Cluster::new(3);
    let client = client(&cluster).await;
    let set = client.count_down_latch("{a}:x").try_set_count(3).await;
    assert!(matches!(set, Err(Error::InvalidName { .. })), "{set:?}");
    assert_eq!(
        client.count_down_latch("a:x").try_set_count(3).await,
        Ok(true)
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_message_went_to_another_node_enters_once_the_slot_has_moved() {
    let cluster = Cluster::new(3);
    let (holding, waiting) = (client(&cluster).await, client(&cluster).await);
    let guard = holding.reentrant_lock("a").lock().await.unwrap();
    let lock = waiting.reentrant_lock("a").owned_by(&Owner::new());
    let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
    sleep(Duration::from_secs(1)).await;
    let slot = Cluster::slot_of("a");
    let from = cluster.owner(slot).unwrap();
    let moving = cluster.begin_move(slot, (from + 1) % 3).unwrap();
    assert!(cluster.move_key(moving));
    // The message is published on the importing node, where no client can subscribe yet.
    guard.unlock().await.unwrap();
    cluster.end_move(moving);
    hear_all(&cluster);
    let began = Instant::now();
    let entered = timeout(SOON, waiter).await;
    assert!(entered.is_ok(), "nothing wakes the waiter");
    // The ended subscription reveals the move, before the client's look at the map every 5 s.
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

/// No message announces the loss of a lock, and the connections of its waiters stay open. Unless the waiter's client happens to listen
/// at the owner, it learns of the loss only by the move of the slot.
#[tokio::test(start_paused = true)]
async fn a_waiter_enters_soon_after_its_lock_was_lost_in_a_takeover() {
    for round in 0..12 {
        let (cluster, owner) = (Cluster::new(3), round % 3);
        let holding = client_with(&cluster, ShardedPubSub::Off).await;
        let waiting = client_with(&cluster, ShardedPubSub::Off).await;
        let name = name_on(&cluster, owner, "a");
        let _held = holding.reentrant_lock(&name).lock().await.unwrap();
        let waiter = tokio::spawn(async move { waiting.reentrant_lock(name).lock().await });
        sleep(Duration::from_secs(1)).await;
        cluster.take_over(owner, (owner + 1) % 3, |_| false);
        hear_all(&cluster);
        let entered = timeout(SOON, waiter).await;
        let entered = entered.unwrap_or_else(|_| panic!("nothing wakes the waiter, {owner}"));
        entered.unwrap().unwrap().unlock().await.unwrap();
    }
}

/// The ended connection makes the client request the map, before its look every 5 s.
#[tokio::test(start_paused = true)]
async fn a_client_finds_the_owner_of_a_slot_soon_after_the_last_one_has_died() {
    let cluster = Cluster::new(3);
    let client = client(&cluster).await;
    let owner = cluster.owner(Cluster::slot_of("a")).unwrap();
    cluster.stop(owner);
    cluster.take_over(owner, (owner + 1) % 3, |_| false);
    hear_all(&cluster);
    let entered = timeout(Duration::from_secs(2), client.reentrant_lock("a").lock()).await;
    assert!(entered.is_ok(), "the client does not request the map");
}

/// A redirection shows that the map is outdated, so the client requests the whole map at once.
#[tokio::test(start_paused = true)]
async fn a_redirection_shows_the_loss_of_holds_in_other_slots() {
    let cluster = Cluster::new(3);
    let client = client(&cluster).await;
    let owner = cluster.owner(Cluster::slot_of("a")).unwrap();
    let beside = name_on(&cluster, owner, "b");
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    cluster.stop(owner);
    cluster.take_over(owner, (owner + 1) % 3, |_| false);
    hear_all(&cluster);
    let began = Instant::now();
    let _other = client.reentrant_lock(beside).lock().await.unwrap();
    let told = timeout(SOON, guard.lost()).await;
    assert!(told.is_ok(), "the client does not verify the hold");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// Some clients use sharded Pub/Sub and some do not. Neither group gets the messages of the other, and the log says so.
#[tokio::test(start_paused = true)]
async fn wait_that_a_poll_ended_logs_mixed_sharded_pubsub() {
    for (own, others) in [
        (ShardedPubSub::Off, ShardedPubSub::On),
        (ShardedPubSub::On, ShardedPubSub::Off),
        (ShardedPubSub::On, ShardedPubSub::On),
    ] {
        let cluster = Cluster::new(3);
        let client = async |sharded_pubsub| {
            let config = Config::default().with_sharded_pubsub(sharded_pubsub);
            cluster.client_with(config).await.unwrap()
        };
        let (theirs, listens) = (client(others).await, client(others).await);
        let ours = client(own).await;
        let (log, _guard) = LogLines::record(Level::WARN);
        // The names "a" and "{a}" have the same channel, so a waiter for one gets the messages of the other.
        let held = ["a", "{a}"].map(|name| theirs.reentrant_lock(name).owned_by(&Owner::new()));
        let [first, _second] = [held[0].lock().await.unwrap(), held[1].lock().await.unwrap()];
        let waits = |client: &LockClient, name| {
            let lock = client.reentrant_lock(name).owned_by(&Owner::new());
            tokio::spawn(async move { lock.lock().await })
        };
        let (_other, waiter) = (waits(&listens, "{a}"), waits(&ours, "a"));
        sleep(Duration::from_secs(1)).await;
        first.unlock().await.unwrap();
        let entered = timeout(SOON, waiter)
            .await
            .expect("the waiter does not poll");
        let _entered = entered.unwrap().unwrap();
        sleep(Duration::from_secs(1)).await;
        let told = log.with("sharded_pubsub").len();
        assert_eq!(
            told,
            usize::from(own != others),
            "{own:?} beside {others:?}"
        );
    }
}

/// Records the first `ASKING` command and delays it by 200 ms.
struct Asking(Arc<AtomicBool>);

impl Faults for Asking {
    fn sending(&mut self, _connection: u64, command: &'static str) -> Fate {
        let is_first = command == "ASKING" && !self.0.swap(true, Relaxed);
        Fate {
            delay: Duration::from_millis(if is_first { 200 } else { 0 }),
            ending: None,
        }
    }
}

/// The lock is free and has no key, and its queue has moved to the importing node. The waiter's `ASKING` reaches that node when
/// it owns the slot and the slot already leaves it again.
#[tokio::test(start_paused = true)]
async fn a_queue_is_not_left_behind_by_a_slot_that_moves_twice() {
    let cluster = Cluster::new(3);
    let asked = Arc::new(AtomicBool::new(false));
    cluster.set_faults(Asking(asked.clone()));
    let (holding, waiting) = (client(&cluster).await, client(&cluster).await);
    let short = holding.fair_lock("a").with_lease(Duration::from_secs(2));
    short.lock().await.unwrap().leak();
    let waiter = tokio::spawn(async move { waiting.fair_lock("a").lock().await });
    sleep(Duration::from_secs(1)).await;
    let slot = Cluster::slot_of("a");
    let from = cluster.owner(slot).unwrap();
    let first = cluster.begin_move(slot, (from + 1) % 3).unwrap();
    while cluster.move_key(first) {}
    // The waiter sends its next attempt at the end of the lease.
    while !asked.load(Relaxed) {
        sleep(Duration::from_millis(1)).await;
    }
    cluster.end_move(first);
    let second = cluster.begin_move(slot, (from + 2) % 3).unwrap();
    sleep(Duration::from_secs(1)).await;
    while cluster.move_key(second) {}
    cluster.end_move(second);
    hear_all(&cluster);
    let entered = timeout(SOON, waiter).await.expect("the lock is free");
    entered.unwrap().unwrap().unlock().await.unwrap();
    let left = cluster.keys();
    assert!(left.is_empty(), "{left:?} are left");
}

/// Notes an `ASK`. Connections that are opened afterwards take a while.
struct SlowTarget(Arc<AtomicBool>);

impl Faults for SlowTarget {
    fn connecting(&mut self) -> Duration {
        Duration::from_millis(if self.0.load(Relaxed) { 500 } else { 0 })
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        if format!("{:?}", executed.answer).contains("ASK ") {
            self.0.store(true, Relaxed);
        }
    }
}

/// While the connection to the target of an `ASK` opens, the slot arrives there, returns and leaves again. The target would grant
/// the lock then, as it does not have its key.
#[tokio::test(start_paused = true)]
async fn outdated_redirection_does_not_grant_a_held_lock() {
    let cluster = Cluster::new(3);
    let (holding, asking) = (client(&cluster).await, client(&cluster).await);
    let _held = holding.reentrant_lock("a").lock().await.unwrap();
    let redirected = Arc::new(AtomicBool::new(false));
    cluster.set_faults(SlowTarget(redirected.clone()));
    let slot = Cluster::slot_of("a");
    let from = cluster.owner(slot).unwrap();
    let to = (from + 1) % 3;
    let first = cluster.begin_move(slot, to).unwrap();
    assert!(cluster.move_key(first));
    let attempt = tokio::spawn(async move { asking.reentrant_lock("a").try_lock().await });
    while !redirected.load(Relaxed) {
        sleep(Duration::from_millis(1)).await;
    }
    cluster.end_move(first);
    hear_all(&cluster);
    let back = cluster.begin_move(slot, from).unwrap();
    assert!(cluster.move_key(back));
    cluster.end_move(back);
    hear_all(&cluster);
    let _again = cluster.begin_move(slot, to).unwrap();
    let granted = attempt.await.unwrap().unwrap();
    assert!(granted.is_none(), "the lock has a holder");
}

/// A slot moves key by key. A marker of a read hold that arrives after the release of an inner hold would replace the one that the
/// release has set.
#[tokio::test(start_paused = true)]
async fn released_read_hold_leaves_the_lease_that_the_outer_one_relies_upon() {
    let cluster = Cluster::new(3);
    let client = client(&cluster).await;
    let lock = client.read_write_lock("a").read().with_lease(LEASE);
    let outer = lock.lock().await.unwrap();
    sleep(LEASE / 2).await;
    let inner = lock.lock().await.unwrap();
    let slot = Cluster::slot_of("a");
    let from = cluster.owner(slot).unwrap();
    let moving = cluster.begin_move(slot, (from + 1) % 3).unwrap();
    // The hash.
    assert!(cluster.move_key(moving));
    let released = tokio::spawn(inner.unlock());
    sleep(Duration::from_secs(1)).await;
    cluster.end_move(moving);
    hear_all(&cluster);
    released.await.unwrap().unwrap();
    let keys = cluster.keys();
    let marker = keys.iter().find(|key| key.ends_with("rwlock_timeout:1"));
    let kept = cluster.remaining_lease(marker.expect("the outer hold has a marker"));
    let relied = outer.valid_until() - Instant::now().into_std();
    assert!(relied > LEASE / 2, "the release extends the outer hold");
    assert!(kept >= Some(relied), "{kept:?} is left, of {relied:?}");
}

/// The target of a moving slot dies: each hold that it has costs its batch an attempt to connect. The holds at the other node
/// must not wait for these attempts one after the other.
#[tokio::test(start_paused = true)]
async fn dead_target_of_a_slot_delays_no_renewal_at_the_source_for_long() {
    let cluster = Cluster::new(3);
    let client = client(&cluster).await;
    let slot = Cluster::slot_of("{t}0");
    let from = cluster.owner(slot).unwrap();
    let to = (from + 1) % 3;
    let mut guards = Vec::new();
    for name in (0..10).map(|number| format!("{{t}}{number}")) {
        let lock = client.reentrant_lock(name).owned_by(&Owner::new());
        guards.push(lock.lock().await.unwrap());
    }
    let moving = cluster.begin_move(slot, to).unwrap();
    for _ in 0..5 {
        assert!(cluster.move_key(moving));
    }
    cluster.stop(to);
    // The renewals, and the time for one attempt to connect.
    sleep(LEASE / 3 + Duration::from_secs(2)).await;
    let least = Instant::now().into_std() + LEASE - Duration::from_secs(4);
    let renewed = guards.iter().filter(|guard| guard.valid_until() > least);
    assert_eq!(renewed.count(), 5, "{guards:?}");
}

/// Counts the script calls.
struct ScriptCalls(Arc<AtomicUsize>);

impl Faults for ScriptCalls {
    fn executed(&mut self, executed: &Executed<'_>) {
        if executed.command.starts_with("EVAL") {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn answering(&mut self, _connection: u64) -> Duration {
        Duration::from_micros(500)
    }
}

/// The source of a slot hears of the end of its migration before the target. Each followed redirection has the hold verified,
/// and the verification is redirected too.
#[tokio::test(start_paused = true)]
async fn nodes_that_redirect_to_each_other_cause_no_storm_of_calls() {
    for lease in [None, Some(LEASE)] {
        let cluster = Cluster::new(3);
        let client = client(&cluster).await;
        let lock = client.reentrant_lock("a");
        let lock = match lease {
            Some(lease) => lock.with_lease(lease),
            None => lock,
        };
        let guard = lock.lock().await.unwrap();
        let slot = Cluster::slot_of("a");
        let to = (cluster.owner(slot).unwrap() + 1) % 3;
        let moving = cluster.begin_move(slot, to).unwrap();
        cluster.end_move_at_source(moving);
        let calls = Arc::new(AtomicUsize::new(0));
        cluster.set_faults(ScriptCalls(calls.clone()));
        let asking = tokio::spawn(async move { lock.remaining_lease().await });
        for _ in 0..200 {
            sleep(Duration::from_millis(1)).await;
            let called = calls.load(Relaxed);
            assert!(called < 100, "{called} script calls, {lease:?}");
        }
        cluster.end_move(moving);
        hear_all(&cluster);
        let left = timeout(SOON, asking).await.expect("an answer");
        assert!(left.unwrap().unwrap().is_some());
        guard.unlock().await.unwrap();
    }
}

/// The hold outlives the move, as the nodes keep their data, and a waiter enters once it is released.
#[tokio::test(start_paused = true)]
async fn nodes_that_come_back_at_other_addresses_are_found_by_their_names() {
    let cluster = Cluster::new(3);
    let (holding, waiting) = (client(&cluster).await, client(&cluster).await);
    let guard = holding.reentrant_lock("a").lock().await.unwrap();
    let lock = waiting.reentrant_lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await?.unlock().await });
    sleep(Duration::from_secs(1)).await;
    for _ in 0..3 {
        cluster.move_elsewhere();
        sleep(SOON).await;
        assert!(!guard.is_lost());
        let other = waiting.reentrant_lock("b");
        let found = timeout(Duration::from_secs(10), other.lock());
        let found = found.await.expect("the new addresses are found");
        found.unwrap().unlock().await.unwrap();
    }
    assert!(!waiter.is_finished());
    guard.unlock().await.unwrap();
    let entered = timeout(SOON, waiter).await;
    entered.expect("the message arrives").unwrap().unwrap();
}
