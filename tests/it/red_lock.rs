//! A majority of several locks on servers that fail independently.

mod broken_server;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redisson_lock::{Error, LockClient, RedLock, Released};
use testbed::{Server, eventually, unique_name};
use tokio::{task::JoinSet, time::timeout};

use crate::hazards::stage::{
    GENEROUS, PROMPT, Room, all_done, connect, exists, nothing_left, watched,
};

/// Independent servers, and the name of one lock on each.
struct Fleet {
    servers: Vec<Server>,
    name: String,
}

impl Fleet {
    async fn new(count: usize) -> Self {
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(Server::start().await);
        }
        Self {
            servers,
            name: unique_name("red"),
        }
    }

    async fn clients(&self) -> Vec<LockClient> {
        let mut clients = Vec::new();
        for server in &self.servers {
            // Each server has a 50th of the lease to answer: on a busy machine, a live server may take longer than 0.6 s.
            let mut config = watched(Duration::from_secs(150));
            config.command_wait = Duration::from_secs(3);
            clients.push(connect(&server.url(), config).await);
        }
        clients
    }

    fn lock(&self, clients: &[LockClient]) -> RedLock {
        RedLock::of(
            clients
                .iter()
                .map(|client| client.reentrant_lock(&self.name)),
        )
    }

    async fn held(&self) -> usize {
        let mut held = 0;
        for server in &self.servers {
            held += usize::from(exists(server, &self.name).await);
        }
        held
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_excludes() {
    let fleet = Fleet::new(3).await;
    let (one, other) = (fleet.clients().await, fleet.clients().await);
    let guard = fleet.lock(&one).lock().await.unwrap();
    // A majority waits for a slow server for 10 ms.
    assert!(fleet.held().await >= 2);
    assert!(fleet.lock(&other).try_lock().await.unwrap().is_none());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    for server in &fleet.servers {
        nothing_left(server, PROMPT).await;
    }
}

/// A majority of three members of which two are one lock: one server would be a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_given_twice_is_refused() {
    let fleet = Fleet::new(2).await;
    let clients = fleet.clients().await;
    let (one, other) = (&clients[0], &clients[1]);
    for lock in [
        fleet.lock(&[one.clone(), one.clone(), one.clone()]),
        fleet.lock(&[one.clone(), other.clone(), one.clone()]),
        one.red_lock(["a", "b", "a"]),
    ] {
        for error in [
            lock.lock().await.map(drop).unwrap_err(),
            lock.try_lock().await.map(drop).unwrap_err(),
            lock.unlock().await.map(drop).unwrap_err(),
        ] {
            let is_expected =
                matches!(&error, Error::Config { reason, .. } if reason.contains("twice"));
            assert!(is_expected, "{error:?}");
        }
    }
    for server in &fleet.servers {
        nothing_left(server, PROMPT).await;
    }
}

/// Foreign locks on a minority do not matter, those on a majority do. Too few granted members are
/// released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_m5_a_minority_is_not_needed_and_a_minority_is_not_enough() {
    let fleet = Fleet::new(5).await;
    let (one, other) = (fleet.clients().await, fleet.clients().await);
    let mut taken = Vec::new();
    for client in &other[..2] {
        taken.push(client.reentrant_lock(&fleet.name).lock().await.unwrap());
    }
    let guard = fleet.lock(&one).try_lock().await.unwrap();
    let guard = guard.expect("three of five are free");
    assert_eq!(guard.names().count(), 3);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    taken.push(other[2].reentrant_lock(&fleet.name).lock().await.unwrap());
    assert!(fleet.lock(&one).try_lock().await.unwrap().is_none());
    assert_eq!(fleet.held().await, 3, "only the foreign locks are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_m5_a_frozen_minority_is_not_needed_and_is_released_later() {
    let fleet = Fleet::new(3).await;
    let clients = fleet.clients().await;
    fleet.servers[1].pause();
    let lock = fleet.lock(&clients).with_lease(Duration::from_secs(20));
    let began = Instant::now();
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.names().count(), 2);
    // Validity starts before the request to the paused server.
    assert!(guard.valid_until() < began + Duration::from_secs(20));
    fleet.servers[1].resume();
    // The paused server executes the request late, and the hold has no owner.
    eventually("the late hold is released", GENEROUS, async || {
        !exists(&fleet.servers[1], &fleet.name).await
    })
    .await;
    assert!(!guard.is_lost());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    for server in &fleet.servers {
        nothing_left(server, PROMPT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_of_servers_there_is_no_lock() {
    let fleet = Fleet::new(3).await;
    let clients = fleet.clients().await;
    fleet.servers[0].pause();
    fleet.servers[2].pause();
    let refused = fleet.lock(&clients).try_lock().await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    let waited = fleet
        .lock(&clients)
        .try_lock_for(Duration::from_secs(1))
        .await;
    assert!(
        matches!(waited, Ok(None) | Err(Error::Unavailable { .. })),
        "{waited:?}"
    );
    let lock = fleet.lock(&clients);
    let waiting = tokio::spawn(async move { lock.lock().await });
    fleet.servers[0].resume();
    let guard = timeout(2 * GENEROUS, waiting)
        .await
        .expect("two servers answer");
    guard.unwrap().unwrap().unlock().await.unwrap();
    fleet.servers[2].resume();
    for server in &fleet.servers {
        nothing_left(server, PROMPT).await;
    }
}

/// The loss of a majority is a loss, that of one member is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_outlives_the_loss_of_a_minority_only() {
    let fleet = Fleet::new(3).await;
    let clients = fleet.clients().await;
    let lock = fleet.lock(&clients);
    let of_all = async {
        loop {
            let guard = lock.lock().await.unwrap();
            // A majority waits for a slow third for 10 ms.
            if guard.names().count() == 3 {
                return guard;
            }
            guard.unlock().await.unwrap();
        }
    };
    let guard = timeout(GENEROUS, of_all)
        .await
        .expect("three servers grant");
    let token = guard.cancellation_token();
    let force = async |index: usize| {
        let lock: redisson_lock::ReentrantLock = clients[index].reentrant_lock(&fleet.name);
        assert!(lock.force_unlock().await.unwrap());
    };
    force(0).await;
    assert!(!guard.is_lost() && !token.is_cancelled());
    force(1).await;
    timeout(GENEROUS, guard.lost())
        .await
        .expect("the loss is reported");
    timeout(GENEROUS, token.cancelled())
        .await
        .expect("the token is cancelled");
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    for server in &fleet.servers {
        nothing_left(server, PROMPT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_owners_of_a_red_lock_exclude_each_other() {
    let fleet = Fleet::new(3).await;
    let room = Arc::<Room>::default();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let lock = fleet.lock(&fleet.clients().await);
        let room = room.clone();
        tasks.spawn(async move {
            for _ in 0..8 {
                let guard = lock.lock().await.unwrap();
                room.visit().await;
                assert_eq!(guard.unlock().await, Ok(Released::Fully));
            }
        });
    }
    all_done(tasks).await;
    assert_eq!(room.visits(), 4 * 8);
    for server in &fleet.servers {
        nothing_left(server, PROMPT).await;
    }
}

/// A member whose lease ends while the client waits for the rest does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_m5_validity_is_the_lease_less_the_time_spent_and_drift() {
    let fleet = Fleet::new(3).await;
    let lock = fleet.lock(&fleet.clients().await);
    let lease = Duration::from_secs(10);
    let before = Instant::now();
    let guard = lock.with_lease(lease).lock().await.unwrap();
    let drift = lease / 100;
    assert!(guard.valid_until() <= Instant::now() + lease - drift);
    assert!(guard.valid_until() >= before + lease - 2 * drift);
    guard.unlock().await.unwrap();
}

/// P-A11: a call does not wait for dead servers longer than necessary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_a11_dead_servers_do_not_delay_live_ones() {
    let fleet = Fleet::new(3).await;
    let lock = fleet.lock(&fleet.clients().await);
    let long = lock.with_lease(Duration::from_secs(3600));
    let quick = || async {
        let began = Instant::now();
        long.lock().await.unwrap().unlock().await.unwrap();
        began.elapsed()
    };
    quick().await;
    fleet.servers[1].kill();
    // The client of the dead server notices it, and fails its calls at once from then on.
    eventually("no call waits for the dead server", GENEROUS, async || {
        quick().await < Duration::from_secs(1)
    })
    .await;
    fleet.servers[2].pause();
    let began = Instant::now();
    let refused = long.try_lock_for(Duration::from_millis(100)).await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    // With a lease of an hour, each server may take 3 s.
    assert!(began.elapsed() < Duration::from_secs(2));
    fleet.servers[2].resume();
}
