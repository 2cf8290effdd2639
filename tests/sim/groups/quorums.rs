//! Operations of held groups, some of whose servers do not answer. One arranged case per test, under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{
    All, Config, Error, GroupLock, LockClient, Majority, MultiGuard, Owner, Quorum, Released,
};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use crate::support::{
    hold_counts,
    log_lines::LogLines,
    network::{self, Network},
};

const LEASE: Duration = Duration::from_millis(2_500);
/// As long as a majority waits for the rest.
const GRACE: Duration = Duration::from_millis(11);
/// As long as a majority waits for an answer: a fiftieth of the default lease, and of [`LEASE`].
const ANSWER: Duration = Duration::from_millis(601);
const SHORT_ANSWER: Duration = Duration::from_millis(51);
/// Longer than any wait of a client.
const NEVER: u64 = 1_000_000_000;

/// A lock at each of some servers, and the networks in front of them.
struct Fleet {
    servers: Vec<InMemoryRedis>,
    networks: Vec<Network>,
    clients: Vec<LockClient>,
}

impl Fleet {
    async fn of(count: usize) -> Self {
        let (mut servers, mut networks, mut clients) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (server, network) = network::server();
            clients.push(server.client_with(Config::default()).await.unwrap());
            servers.push(server);
            networks.push(network);
        }
        Self {
            servers,
            networks,
            clients,
        }
    }

    fn group<Q: Quorum>(&self) -> GroupLock<Q> {
        let locks = self.clients.iter().map(|client| client.reentrant_lock("a"));
        GroupLock::of(locks)
    }

    async fn held<Q: Quorum>(&self) -> MultiGuard {
        let guard = self.group::<Q>().with_lease(LEASE).lock().await.unwrap();
        assert_eq!(guard.names().count(), self.clients.len());
        guard
    }

    /// The answers of these servers take so many milliseconds.
    fn delay_answers(&self, servers: impl IntoIterator<Item = usize>, millis: u64) {
        for server in servers {
            self.networks[server].0.answers.store(millis, Relaxed);
        }
    }
}

/// The result and the time of an operation.
async fn timed<T>(operation: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    (operation.await, began.elapsed())
}

fn results(
    each: Vec<(std::sync::Arc<str>, Result<Released, Error>)>,
) -> Vec<Result<Released, Error>> {
    each.into_iter().map(|(_, released)| released).collect()
}

#[tokio::test(start_paused = true)]
async fn a_majority_answers_for_any_silent_minority() {
    for (count, silent) in [(3, vec![0]), (3, vec![2]), (5, vec![1, 3]), (5, vec![4])] {
        let what = format!("{silent:?} of {count}");
        let fleet = Fleet::of(count).await;
        let of = || silent.iter().copied();
        for _ in 0..2 {
            let guard = fleet.held::<Majority>().await;
            fleet.delay_answers(of(), NEVER);
            let (extended, took) = timed(guard.extend(LEASE)).await;
            assert!(extended == Ok(()) && took <= GRACE, "{what}: {extended:?}");
            let (each, took) = timed(guard.unlock_each()).await;
            assert!(took <= GRACE, "{what}: {took:?}");
            for (index, released) in results(each).into_iter().enumerate() {
                let is_late = matches!(released, Err(Error::Unavailable { .. }));
                assert_eq!(is_late, silent.contains(&index), "{what}: {released:?}");
            }
            // The releases under way continue.
            fleet.delay_answers(of(), 0);
            fleet.servers.iter().for_each(InMemoryRedis::disconnect);
            sleep(2 * LEASE).await;
        }
        let held = fleet.servers.iter().map(|server| server.holders("a").len());
        assert_eq!(held.sum::<usize>(), 0, "{what}");
    }
}

/// A server that a majority did without may answer later than any wait.
#[tokio::test(start_paused = true)]
async fn a_majority_without_a_server_is_released_without_it() {
    let fleet = Fleet::of(3).await;
    let lock = fleet.group::<Majority>();
    fleet.servers[0].stop();
    sleep(LEASE).await;
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.names().count(), 2);
    fleet.delay_answers([1], NEVER);
    // Of the three servers, two do not have the lock any more.
    let (released, took) = timed(guard.unlock()).await;
    assert!(took <= GRACE, "{took:?}");
    assert_eq!(released, Ok(Released::Fully));
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_lost_as_soon_as_no_majority_is_valid() {
    let fleet = Fleet::of(3).await;
    let guard = fleet.held::<Majority>().await;
    // The validity is 27 ms shorter than the lease, and ends before the time for an answer.
    sleep(LEASE - Duration::from_millis(60)).await;
    fleet.delay_answers([1, 2], NEVER);
    let (extended, took) = timed(guard.extend(LEASE)).await;
    assert!(matches!(extended, Err(Error::Lost { .. })), "{extended:?}");
    assert!(guard.is_lost() && took < SHORT_ANSWER, "{took:?}");
}

/// Every member counts, so the answer of a silent one is needed: until the hold is over.
#[tokio::test(start_paused = true)]
async fn an_extension_of_all_members_is_lost_with_the_first() {
    let fleet = Fleet::of(2).await;
    let guard = fleet.held::<All>().await;
    fleet.delay_answers([1], NEVER);
    let (extended, took) = timed(guard.extend(LEASE)).await;
    assert!(matches!(extended, Err(Error::Lost { .. })), "{extended:?}");
    assert!(guard.is_lost() && took <= LEASE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_extension_without_enough_answers_names_no_loss() {
    let fleet = Fleet::of(3).await;
    let guard = fleet.group::<Majority>().lock().await.unwrap();
    fleet.servers[0].delete("a");
    fleet.delay_answers([1], NEVER);
    let (extended, took) = timed(guard.extend(LEASE)).await;
    assert!(
        matches!(extended, Err(Error::Unavailable { .. })),
        "{extended:?}"
    );
    assert!(!guard.is_lost() && took <= ANSWER, "{took:?}");
}

/// A RedLock with the fewest members cannot do without any.
#[tokio::test(start_paused = true)]
async fn a_bare_majority_waits_for_its_members_as_an_acquisition() {
    let fleet = Fleet::of(3).await;
    fleet.servers[0].stop();
    sleep(LEASE).await;
    for (lease, answer) in [(None, ANSWER), (Some(LEASE), SHORT_ANSWER)] {
        let lock = fleet.group::<Majority>();
        let lock = lease.map_or(lock.clone(), |lease| lock.with_lease(lease));
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.names().count(), 2);
        fleet.delay_answers([1], NEVER);
        for operation in ["check", "extend"] {
            let (done, took) = match operation {
                "check" => timed(guard.check()).await,
                _ => timed(guard.extend(LEASE)).await,
            };
            let is_unavailable = matches!(done, Err(Error::Unavailable { .. }));
            assert!(is_unavailable && took <= answer, "{operation}: {took:?}");
            assert!(!guard.is_lost());
        }
        fleet.delay_answers([1], 0);
        fleet.servers[1].disconnect();
        drop(guard);
        sleep(2 * LEASE).await;
    }
}

/// The first member is lost after its answer, and before that of the second.
#[tokio::test(start_paused = true)]
async fn an_extension_counts_the_members_that_are_held_at_its_end() {
    let fleet = Fleet::of(3).await;
    let guard = fleet.group::<Majority>().lock().await.unwrap();
    fleet.delay_answers([1], 300);
    fleet.delay_answers([2], NEVER);
    let loss = async {
        sleep(Duration::from_millis(100)).await;
        fleet.clients[0].shutdown().await;
    };
    let ((extended, took), ()) = tokio::join!(timed(guard.extend(LEASE)), loss);
    assert!(
        matches!(extended, Err(Error::Unavailable { .. })),
        "{extended:?}"
    );
    assert!(!guard.is_lost() && took <= ANSWER, "{took:?}");
}

/// One lost member and one silent one leave a majority of servers without the lock.
#[tokio::test(start_paused = true)]
async fn a_lost_member_counts_as_released() {
    let fleet = Fleet::of(3).await;
    let guard = fleet.held::<Majority>().await;
    fleet.servers[0].delete("a");
    fleet.delay_answers([1], NEVER);
    let (released, took) = timed(guard.unlock()).await;
    assert_eq!(released, Ok(Released::Fully));
    assert!(took <= GRACE, "{took:?}");
}

/// Other owners have a majority of the servers, so the group does not need the answer to its only release.
#[tokio::test(start_paused = true)]
async fn a_round_with_one_member_does_not_wait_for_its_release() {
    let fleet = Fleet::of(3).await;
    let mut rivals = Vec::new();
    for server in &fleet.servers[1..] {
        let rival = server.client_with(Config::default()).await.unwrap();
        rival.reentrant_lock("a").lock().await.unwrap().leak();
        rivals.push(rival);
    }
    let refusals = Duration::from_millis(20);
    fleet.delay_answers([1, 2], 20);
    let silence = async {
        sleep(refusals / 2).await;
        fleet.delay_answers([0], NEVER);
    };
    let lock = fleet.group::<Majority>();
    let ((acquired, took), ()) = tokio::join!(timed(lock.try_lock()), silence);
    assert!(acquired.unwrap().is_none());
    assert!(took <= refusals + GRACE, "{took:?}");
}

/// The error names the outage, and says that the release goes on.
#[tokio::test(start_paused = true)]
async fn a_late_release_goes_on_by_its_error_also_in_an_outage() {
    for is_stopped in [false, true] {
        let fleet = Fleet::of(3).await;
        let guard = fleet.group::<Majority>().lock().await.unwrap();
        match is_stopped {
            false => fleet.delay_answers([1], NEVER),
            true => fleet.servers[1].stop(),
        }
        sleep(LEASE).await;
        let each = results(guard.unlock_each().await);
        let late = each[1].as_ref().unwrap_err().to_string();
        let goes_on = "the release goes on in the background";
        assert!(late.contains(goes_on), "{late}");
    }
}

/// The outer hold is on the servers 0 and 1, the inner one on 0 and 2. Of each server, an unlock used to release the latest hold. The outer
/// hold then had one server left, and another owner could acquire the other two.
#[tokio::test(start_paused = true)]
async fn an_unlock_releases_the_latest_majority_and_leaves_the_outer_one() {
    let fleet = Fleet::of(3).await;
    let lock = fleet.group::<Majority>();
    for stopped in [2, 1] {
        fleet.servers[stopped].stop();
        sleep(GRACE).await;
        lock.lock().await.unwrap().leak();
        fleet.servers[stopped].start();
        sleep(LEASE).await;
    }
    let counts = || fleet.servers.iter().map(hold_counts).collect::<Vec<_>>();
    assert_eq!(counts(), [vec![2], vec![1], vec![1]]);
    let released = lock.unlock().await;
    assert_eq!(released, Ok(Released::StillHeld { holds: 1 }));
    let rival = fleet.group::<Majority>().owned_by(&Owner::new());
    assert!(rival.try_lock().await.unwrap().is_none());
    assert_eq!(counts(), [vec![1], vec![1], vec![]]);
    assert_eq!(lock.unlock().await, Ok(Released::Fully));
    assert!(rival.try_lock().await.unwrap().is_some());
    let released = lock.unlock().await;
    assert!(
        matches!(released, Err(Error::NotHeld { .. })),
        "{released:?}"
    );
}

/// A lock has a plain hold and a hold of the group. A plain hold that no unlock takes would stay, and the watchdog would renew it.
#[tokio::test(start_paused = true)]
async fn an_unlock_of_one_lock_leaves_the_hold_of_a_majority() {
    let fleet = Fleet::of(3).await;
    let (group, alone) = (
        fleet.group::<Majority>(),
        fleet.clients[0].reentrant_lock("a"),
    );
    alone.lock().await.unwrap().leak();
    group.lock().await.unwrap().leak();
    let left = Ok(Released::StillHeld { holds: 1 });
    assert_eq!(alone.unlock().await, left);
    assert_eq!(group.unlock().await, Ok(Released::Fully));
    assert!(
        fleet
            .servers
            .iter()
            .all(|server| hold_counts(server).is_empty())
    );
    // The locks of a group may also be released one by one.
    group.lock().await.unwrap().leak();
    assert_eq!(alone.unlock().await, Ok(Released::Fully));
}

/// The owner has a plain hold of each lock, and a hold of the group beside it, or had.
#[tokio::test(start_paused = true)]
async fn a_plain_hold_is_none_of_a_group() {
    for is_released in [true, false] {
        let (lines, _recording) = LogLines::record(Level::WARN);
        let fleet = Fleet::of(3).await;
        for client in &fleet.clients {
            client.reentrant_lock("a").lock().await.unwrap().leak();
        }
        let guard = fleet.group::<Majority>().lock().await.unwrap();
        match is_released {
            true => drop(guard.unlock().await.unwrap()),
            false => guard.leak(),
        }
        fleet.delay_answers([1], NEVER);
        let (_, took) = timed(fleet.clients[1].shutdown_and_release()).await;
        assert!(took >= Duration::from_secs(5), "{is_released}: {took:?}");
        fleet.servers[0].delete("a");
        fleet.servers[0].disconnect();
        sleep(LEASE).await;
        let lost = lines.with("a hold was lost");
        let names_group = lost.iter().any(|line| line.contains("members"));
        assert!(!lost.is_empty() && !names_group, "{is_released}: {lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_a_silent_member_as_long_as_an_acquisition() {
    let fleet = Fleet::of(3).await;
    fleet.group::<Majority>().lock().await.unwrap().leak();
    fleet.delay_answers([1], NEVER);
    let (report, took) = timed(fleet.clients[1].shutdown_and_release()).await;
    assert_eq!(report.unreleased.len(), 1);
    // Less than a fiftieth of 30 s.
    assert!(took <= Duration::from_millis(510), "{took:?}");
    // A member of a group that needs it, and a lock of its own, are worth a longer wait.
    for number in [0, 2] {
        let alone = Fleet::of(1).await;
        match number {
            0 => alone.group::<All>().lock().await.unwrap().leak(),
            _ => alone.clients[0]
                .reentrant_lock("a")
                .lock()
                .await
                .unwrap()
                .leak(),
        }
        alone.delay_answers([0], NEVER);
        let (_, took) = timed(alone.clients[0].shutdown_and_release()).await;
        assert!(took >= Duration::from_secs(5), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_names_the_server_of_a_lost_member_and_the_state_of_its_group() {
    let (lines, _recording) = LogLines::record(Level::WARN);
    let fleet = Fleet::of(3).await;
    let guard = fleet.group::<Majority>().lock().await.unwrap();
    for (server, state) in [
        (0, "still held: 2 of 3 members are left, 2 needed"),
        (1, "lost: 1 of 3 members are left, 2 needed"),
    ] {
        fleet.servers[server].delete("a");
        fleet.servers[server].disconnect();
        sleep(LEASE).await;
        let lost = lines.with("a hold was lost");
        assert_eq!(lost.len(), server + 1, "{lost:?}");
        let last = lost.last().unwrap();
        assert!(last.contains(state) && last.contains("server="), "{last}");
    }
    assert!(timeout(LEASE, guard.lost()).await.is_ok());
    assert!(guard.unlock().await.is_err());
}
