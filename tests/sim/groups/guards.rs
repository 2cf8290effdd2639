//! Guards of groups: reported losses, and the tasks that remain after a release. One arranged case per test, under a paused clock.

use std::{pin::pin, time::Duration};

use redisson_lock::{All, GroupLock, LostReason, Majority, Owner, Quorum, Released};
use redisson_lock_test::InMemoryRedis;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::{Instant, sleep, timeout},
};

use crate::support::{LEASE, SHORT, client, network::server, until};

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_leaked_group_leaves_no_task_behind_once_it_is_released() {
    let (server, _) = server();
    let client = client(&server).await;
    let group = client.multi_lock(["a", "b"]).owned_by(&Owner::new());
    group.lock().await.unwrap().unlock().await.unwrap();
    let before = tasks();
    let guard = group.lock().await.unwrap();
    let token = guard.cancellation_token();
    guard.leak();
    assert_eq!(group.unlock().await.unwrap(), Released::Fully);
    until(|| tasks() == before).await;
    assert!(!token.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_leaked_group_is_cancelled_at_the_loss() {
    let (server, _) = server();
    let client = client(&server).await;
    let group = client.multi_lock(["a", "b"]);
    let guard = group.lock().await.unwrap();
    let token = guard.cancellation_token();
    guard.leak();
    server.advance(2 * LEASE).await;
    assert!(!token.is_cancelled());
    assert!(server.delete("b"));
    timeout(LEASE, token.cancelled()).await.unwrap();
}

/// Two groups share a lock. The one that was acquired first has a fixed lease, and is released first. Its unlock used to release the latest
/// hold of the shared lock, and the other group was lost with the fixed lease.
async fn leaves_the_holds_of_another_group<Q: Quorum>() {
    let (server, _) = server();
    let client = client(&server).await;
    let group =
        |names: [&str; 3]| GroupLock::<Q>::of(names.map(|name| client.reentrant_lock(name)));
    let brief = group(["a", "b", "shared"]).with_lease(SHORT);
    let watched = group(["shared", "y", "z"]);
    brief.lock().await.unwrap().leak();
    watched.lock().await.unwrap().leak();
    let released = brief.unlock().await;
    assert_eq!(released, Ok(Released::StillHeld { holds: 1 }));
    sleep(2 * LEASE).await;
    for (name, holders) in [("a", 0), ("b", 0), ("shared", 1), ("y", 1), ("z", 1)] {
        assert_eq!(server.holders(name).len(), holders, "{name}");
    }
    assert_eq!(watched.unlock().await, Ok(Released::Fully));
}

#[tokio::test(start_paused = true)]
async fn an_unlock_leaves_the_holds_of_a_group_that_shares_a_lock() {
    leaves_the_holds_of_another_group::<All>().await;
    leaves_the_holds_of_another_group::<Majority>().await;
}

/// The locks of a group may be released one by one.
#[tokio::test(start_paused = true)]
async fn an_unlock_after_that_of_one_lock_releases_the_rest() {
    let (server, _) = server();
    let client = client(&server).await;
    let group = client.multi_lock(["a", "b"]);
    for _ in 0..2 {
        group.lock().await.unwrap().leak();
    }
    let alone = client.reentrant_lock("a").unlock().await;
    assert_eq!(alone, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(group.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert!(server.holders("a").is_empty());
    assert_eq!(
        client.reentrant_lock("b").unlock().await,
        Ok(Released::Fully)
    );
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// The client of the second member has a runtime of its own, which stops when the group is held. The runtime of the first client continues.
#[test]
fn a_holder_learns_of_a_loss_although_the_runtime_of_a_member_is_blocked() {
    let (one, other) = (runtime(), runtime());
    let servers = [(); 2].map(|()| InMemoryRedis::new());
    let running = one.block_on(client(&servers[0]));
    let blocked = other.block_on(client(&servers[1]));
    let brief = blocked.reentrant_lock("b").with_lease(SHORT);
    let locks = [running.reentrant_lock("a"), brief];
    let group = GroupLock::<All>::of(locks).owned_by(&Owner::new());
    let moment = Duration::from_millis(1);
    let mut locking = pin!(group.lock());
    let guard = loop {
        let locked = one.block_on(async { timeout(moment, &mut locking).await });
        match locked {
            Ok(guard) => break guard.unwrap(),
            Err(_) => other.block_on(async { sleep(moment).await }),
        }
    };
    one.block_on(async {
        let token = guard.cancellation_token();
        assert!(!guard.is_lost());
        let since = Instant::now();
        let lost = timeout(2 * SHORT, guard.lost()).await;
        assert_eq!(lost, Ok(LostReason::Expired));
        assert!(since.elapsed() <= SHORT, "{:?}", since.elapsed());
        timeout(SHORT, token.cancelled()).await.unwrap();
    });
}
