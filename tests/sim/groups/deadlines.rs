//! Waits of groups, and their deadlines. One arranged case per test, under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{
    All, AnyLock, Error, GroupLock, Guard, LockClient, Majority, Owner, Reentrant, Released,
};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Executed, Fate, Faults},
};
use tokio::time::{Instant, timeout};

use crate::support::{LEASE, NEVER, SHORT, client, lossy_network::Network, network::server, until};

const WAIT: Duration = Duration::from_secs(1);
/// Time after a deadline in which a group may still wait for answers.
const GRACE: Duration = Duration::from_millis(200);

/// A server that executes this many scripts and then stays silent.
struct SilentAfter(u32);

impl Faults for SilentAfter {
    fn sending(&mut self, _connection: u64, _command: &'static str) -> Fate {
        let delay = match self.0 {
            0 => NEVER,
            _ => Duration::ZERO,
        };
        Fate {
            delay,
            ending: None,
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        if executed.command.starts_with("EVAL") {
            self.0 = self.0.saturating_sub(1);
        }
    }
}

/// Holds `name` for another owner.
async fn hold(client: &LockClient, name: &str) -> Guard<Reentrant> {
    let lock = client.reentrant_lock(name).owned_by(&Owner::new());
    lock.lock().await.unwrap()
}

/// A client whose server knows the scripts.
async fn warmed_up(server: &InMemoryRedis) -> LockClient {
    let client = client(server).await;
    hold(&client, "warm").await.unlock().await.unwrap();
    client
}

#[tokio::test(start_paused = true)]
async fn a_group_with_both_sides_of_a_lock_returns_during_its_yield() {
    let (server, _) = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let (owner, lock) = (Owner::new(), client.read_write_lock("a"));
    let sides = [AnyLock::from(lock.write()), AnyLock::from(lock.read())];
    let group = GroupLock::<All>::of(sides).owned_by(&owner);
    let guard = group.lock().await.unwrap();
    let waiter = tokio::spawn(async move {
        let guard = other.read_write_lock("a").write().lock().await.unwrap();
        guard.unlock().await.unwrap();
    });
    until(|| !server.channels().is_empty()).await;
    guard.unlock().await.unwrap();
    let guard = timeout(SHORT, group.lock()).await.unwrap().unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Released::Fully);
    waiter.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_majority_does_without_the_awaited_member_that_fails() {
    let servers = [(); 3].map(|()| InMemoryRedis::new());
    let (mut clients, mut locks, mut guards) = (Vec::new(), Vec::new(), Vec::new());
    for server in &servers {
        let member = client(server).await;
        locks.push(member.reentrant_lock("a"));
        clients.push(member);
        guards.push(hold(&client(server).await, "a").await);
    }
    let group = GroupLock::<Majority>::of(locks);
    let waiting = tokio::spawn(async move { group.lock().await });
    let is_awaited = |server: &InMemoryRedis| !server.channels().is_empty();
    until(|| servers.iter().any(is_awaited)).await;
    let awaited = servers.iter().position(is_awaited).unwrap();
    clients[awaited].shutdown().await;
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    let guard = timeout(5 * SHORT, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.names().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_group_sends_nothing_after_its_deadline() {
    let (server, network) = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let _guard = hold(&other, "b").await;
    let group = client.multi_lock(["a", "b"]);
    let mut waiting = Box::pin(group.try_lock_for(WAIT));
    let before = WAIT - Duration::from_millis(1);
    assert!(timeout(before, &mut waiting).await.is_err());
    let sent = network.0.sent.load(Relaxed);
    assert!(waiting.await.unwrap().is_none());
    assert_eq!(network.0.sent.load(Relaxed), sent);
}

/// The group waits for one member, and another one becomes free.
#[tokio::test(start_paused = true)]
async fn a_majority_asks_all_members_again_at_its_deadline() {
    let servers = [(); 3].map(|()| InMemoryRedis::new());
    let mut locks = Vec::new();
    for server in &servers {
        locks.push(client(server).await.reentrant_lock("a"));
    }
    let others = [client(&servers[0]).await, client(&servers[1]).await];
    let mut guards = [
        Some(hold(&others[0], "a").await),
        Some(hold(&others[1], "a").await),
    ];
    let group = GroupLock::<Majority>::of(locks);
    let waiting = tokio::spawn(async move { group.try_lock_for(WAIT / 2).await });
    until(|| servers.iter().any(|server| !server.channels().is_empty())).await;
    let free = usize::from(!servers[0].channels().is_empty());
    guards[free].take().unwrap().unlock().await.unwrap();
    let guard = waiting.await.unwrap().unwrap().expect("two are free");
    assert_eq!(guard.names().count(), 2);
}

/// The server grants the awaited member at the last moment. The group sends one attempt at the remaining members, and releases what it has.
#[tokio::test(start_paused = true)]
async fn a_group_keeps_no_members_after_its_deadline() {
    let (server, network) = server();
    let (client, other) = (warmed_up(&server).await, warmed_up(&server).await);
    let first = hold(&other, "a").await;
    let _second = hold(&other, "b").await;
    network.0.answers.store(30, Relaxed);
    let group = client.multi_lock(["a", "b"]);
    let mut waiting = Box::pin(group.try_lock_for(WAIT));
    let before = WAIT - Duration::from_millis(15);
    assert!(timeout(before, &mut waiting).await.is_err());
    let release = tokio::spawn(first.unlock());
    // The message has arrived, and the attempt at the first member is under way.
    assert!(
        timeout(Duration::from_millis(10), &mut waiting)
            .await
            .is_err()
    );
    let sent = network.0.sent.load(Relaxed);
    assert!(waiting.await.unwrap().is_none());
    release.await.unwrap().unwrap();
    // One attempt at the second member, and the release of the first one.
    assert_eq!(network.0.sent.load(Relaxed), sent + 2);
}

#[tokio::test(start_paused = true)]
async fn a_group_does_not_wait_for_its_releases_beyond_its_deadline() {
    let (silent, server) = (InMemoryRedis::new(), InMemoryRedis::new());
    let locks = [
        warmed_up(&silent).await.reentrant_lock("a"),
        warmed_up(&server).await.reentrant_lock("b"),
    ];
    let _guard = hold(&client(&server).await, "b").await;
    silent.set_faults(SilentAfter(1));
    let began = Instant::now();
    let taken = GroupLock::<All>::of(locks).try_lock_for(WAIT).await;
    assert!(taken.unwrap().is_none());
    assert_eq!(silent.holders("a").len(), 1);
    assert!(
        began.elapsed() <= WAIT + GRACE,
        "late by {:?}",
        began.elapsed() - WAIT
    );
}

/// The group gives back the member beyond the refused one to a server that does not answer.
#[tokio::test(start_paused = true)]
async fn a_silent_server_does_not_prolong_the_time_for_which_members_are_kept() {
    let (silent, server) = (InMemoryRedis::new(), InMemoryRedis::new());
    let others = warmed_up(&server).await;
    let last = warmed_up(&silent).await.reentrant_lock("d");
    let mut locks = ["a", "b", "c"]
        .map(|name| others.reentrant_lock(name))
        .to_vec();
    locks.push(last);
    let other = client(&server).await;
    let (awaited, _refused) = (hold(&other, "b").await, hold(&other, "c").await);
    // An acquisition and a release in the first round, and an acquisition in the second one.
    silent.set_faults(SilentAfter(3));
    let group = GroupLock::<All>::of(locks);
    let _waiting = tokio::spawn(async move { group.lock().await });
    until(|| !server.channels().is_empty()).await;
    awaited.unlock().await.unwrap();
    until(|| !server.holders("a").is_empty()).await;
    let kept_since = Instant::now();
    until(|| server.holders("a").is_empty()).await;
    let kept_for = kept_since.elapsed();
    assert!(kept_for < Duration::from_millis(400), "{kept_for:?}");
}

/// Three locks of one name, each with a server of its own: the delay of its answers, and its lease.
async fn majority(members: [(u64, Duration); 3]) -> (GroupLock<Majority>, [InMemoryRedis; 3]) {
    let servers = [(); 3].map(|()| InMemoryRedis::new());
    let mut locks = Vec::new();
    for (server, (delay, lease)) in servers.iter().zip(members) {
        let client = warmed_up(server).await;
        let delay = Duration::from_millis(delay);
        server.set_faults(Network::slow(delay));
        locks.push(client.reentrant_lock("a").with_lease(lease));
    }
    (GroupLock::<Majority>::of(locks), servers)
}

#[tokio::test(start_paused = true)]
async fn a_majority_whose_grants_end_too_early_is_unavailable() {
    let brief = Duration::from_millis(20);
    let (group, servers) = majority([(0, brief), (40, LEASE), (0, LEASE)]).await;
    let _guard = hold(&client(&servers[2]).await, "a").await;
    let tried = group.try_lock().await;
    assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    // `lock` reports it as well, after `Config::outage_wait`.
    let locked = timeout(NEVER, group.lock()).await.unwrap();
    assert!(
        matches!(locked, Err(Error::Unavailable { .. })),
        "{locked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_whose_grants_end_too_early_is_unavailable() {
    let (brief, server, slow) = (
        Duration::from_millis(20),
        InMemoryRedis::new(),
        InMemoryRedis::new(),
    );
    let locks = [
        warmed_up(&server)
            .await
            .reentrant_lock("a")
            .with_lease(brief),
        warmed_up(&slow).await.reentrant_lock("b"),
    ];
    slow.set_faults(Network::slow(2 * brief));
    let group = GroupLock::<All>::of(locks);
    let locked = timeout(NEVER, group.lock()).await.unwrap();
    assert!(
        matches!(locked, Err(Error::Unavailable { .. })),
        "{locked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_is_still_valid_is_not_waited_to_its_end() {
    let brief = Duration::from_millis(50);
    let (group, _servers) = majority([(20, brief), (20, brief), (3_000, brief)]).await;
    let guard = group.try_lock().await.unwrap().expect("two of three");
    assert!(!guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_majority_waits_for_the_rest_if_a_grant_has_ended() {
    let brief = Duration::from_millis(20);
    let (group, _servers) = majority([(0, brief), (40, LEASE), (100, LEASE)]).await;
    let guard = group.try_lock().await.unwrap().expect("two are valid");
    assert!(!guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn members_of_one_name_keep_the_order_of_the_caller() {
    let servers = [(); 2].map(|()| InMemoryRedis::new());
    let (mut clients, mut guards) = (Vec::new(), Vec::new());
    for server in &servers {
        clients.push(client(server).await);
        guards.push(hold(&client(server).await, "a").await);
    }
    for first in [0, 1] {
        let locks = [first, 1 - first].map(|index| clients[index].reentrant_lock("a"));
        let group = GroupLock::<All>::of(locks);
        let waiting = Box::pin(group.lock());
        assert!(timeout(SHORT, waiting).await.is_err());
        until(|| servers.iter().all(|server| server.channels().is_empty())).await;
        let waiting = tokio::spawn(async move { group.lock().await });
        until(|| servers.iter().any(|server| !server.channels().is_empty())).await;
        assert_eq!(servers[1 - first].channels(), [""; 0]);
        waiting.abort();
        until(|| servers.iter().all(|server| server.channels().is_empty())).await;
    }
}

/// The locks of two clients stand between the repetitions.
#[tokio::test(start_paused = true)]
async fn a_repeated_member_counts_once_whatever_stands_between() {
    let servers = [(); 2].map(|()| InMemoryRedis::new());
    let (one, other) = (client(&servers[0]).await, client(&servers[1]).await);
    let lock = |client: &LockClient| AnyLock::from(client.reentrant_lock("a"));
    let group = GroupLock::<All>::of([lock(&one), lock(&other), lock(&one)]);
    let guard = group.lock().await.unwrap();
    assert_eq!(guard.names().count(), 2);
    guard.unlock().await.unwrap();
    let fair = AnyLock::from(one.fair_lock("a"));
    let group = GroupLock::<All>::of([lock(&one), lock(&other), fair]);
    let refused = group.try_lock().await;
    assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
}
