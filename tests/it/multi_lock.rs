//! All of several locks, or none.

use std::{sync::Arc, time::Duration};

use redisson_lock::{AnyLock, Config, Error, LockClient, LostReason, MultiLock, Owner, Released};
use testbed::{Server, eventually, unique_name};
use tokio::{task::JoinSet, time::timeout};

use crate::hazards::stage::{
    GENEROUS, PROMPT, Random, Room, Stage, all_done, connect, nothing_left, scripts, watched,
    woken_only,
};
use crate::witness::{busy_at_worst, poll_and_drop};

async fn bed() -> (Server, LockClient) {
    let server = Server::start().await;
    let client = connect(&server.url(), woken_only()).await;
    (server, client)
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|_| unique_name("member")).collect()
}

async fn exist(server: &Server, names: &[String]) -> usize {
    let words: Vec<&str> = std::iter::once("EXISTS")
        .chain(names.iter().map(|name| &**name))
        .collect();
    server.command(&words).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_acquires_and_releases_all_members() {
    let (server, client) = bed().await;
    let names = names(3);
    let lock = client.multi_lock(&names);
    let guard = lock.lock().await.unwrap();
    assert_eq!(exist(&server, &names).await, 3);
    assert!(!guard.is_lost() && guard.valid_until() > std::time::Instant::now());
    for name in &names {
        let other = client.reentrant_lock(name).owned_by(&Owner::new());
        assert!(other.try_lock().await.unwrap().is_none());
    }
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_with_a_held_member_is_busy_and_leaves_nothing() {
    let (server, client) = bed().await;
    let names = names(5);
    let taken = client.reentrant_lock(&names[3]).owned_by(&Owner::new());
    let guard = taken.lock().await.unwrap();
    let lock = client.multi_lock(&names);
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(
        exist(&server, &names).await,
        1,
        "only the foreign hold is left"
    );
    let waited = lock.try_lock_for(Duration::from_millis(300)).await;
    assert!(busy_at_worst(waited).is_none());
    eventually("only the foreign hold is left", PROMPT, async || {
        exist(&server, &names).await == 1
    })
    .await;
    guard.unlock().await.unwrap();
    nothing_left(&server, PROMPT).await;
}

/// The waiting group holds nothing, and a message wakes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_waits_for_the_member_that_refused_and_is_woken() {
    let (server, client) = bed().await;
    let names = names(4);
    let taken = client.reentrant_lock(&names[2]).owned_by(&Owner::new());
    let holder = taken.lock().await.unwrap();
    let lock = client.multi_lock(&names);
    let waiting = tokio::spawn(async move { lock.lock().await });
    let channel = format!("redisson_lock__channel:{{{}}}", names[2]);
    eventually(
        "the group listens for the busy member",
        GENEROUS,
        async || {
            server
                .command::<Vec<String>>(&["PUBSUB", "CHANNELS"])
                .await
                .contains(&channel)
        },
    )
    .await;
    assert_eq!(
        exist(&server, &names).await,
        1,
        "only the holder has a lock"
    );
    holder.unlock().await.unwrap();
    let guard = timeout(GENEROUS, waiting)
        .await
        .expect("a message wakes the waiter");
    assert_eq!(guard.unwrap().unwrap().unlock().await, Ok(Released::Fully));
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_m1_one_lost_member_is_a_loss_and_the_rest_is_released() {
    let (server, client) = bed().await;
    let names = names(3);
    let guard = client.multi_lock(&names).lock().await.unwrap();
    let token = guard.cancellation_token();
    assert!(
        client
            .reentrant_lock(&names[1])
            .force_unlock()
            .await
            .unwrap()
    );
    let reason = timeout(GENEROUS, guard.lost())
        .await
        .expect("the loss is reported");
    assert_eq!(reason, LostReason::Gone);
    timeout(GENEROUS, token.cancelled())
        .await
        .expect("the token is cancelled");
    assert!(guard.is_lost());
    let unlocked = guard.unlock().await;
    let by_name = matches!(&unlocked, Err(Error::Lost { name, .. }) if **name == *names[1]);
    assert!(by_name, "{unlocked:?}");
    nothing_left(&server, PROMPT).await;

    let guard = client.multi_lock(&names).lock().await.unwrap();
    assert!(
        client
            .reentrant_lock(&names[2])
            .force_unlock()
            .await
            .unwrap()
    );
    let mut sorted = names.clone();
    sorted.sort();
    for ((name, released), expected) in guard.unlock_each().await.into_iter().zip(sorted) {
        assert_eq!(*name, *expected);
        match *name == *names[2] {
            true => assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}"),
            false => assert_eq!(released, Ok(Released::Fully)),
        }
    }
    nothing_left(&server, PROMPT).await;
}

/// P-M2: a group's lease never changes a lock that another owner holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_m2_a_lease_is_set_where_it_is_granted_and_nowhere_else() {
    let (server, client) = bed().await;
    let names = names(2);
    let stranger = client.reentrant_lock(&names[1]).owned_by(&Owner::new());
    let held = stranger
        .with_lease(Duration::from_secs(20))
        .lock()
        .await
        .unwrap();
    let lock = client
        .multi_lock(&names)
        .with_lease(Duration::from_secs(500));
    assert!(lock.try_lock().await.unwrap().is_none());
    let left: i64 = server.command(&["PTTL", &names[1]]).await;
    assert!(left <= 20_000, "{left}");
    held.unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    for name in &names {
        let left: i64 = server.command(&["PTTL", name]).await;
        assert!((400_000..=500_000).contains(&left), "{left}");
    }
    guard.unlock().await.unwrap();
}

/// P-M3: groups that share locks in opposite orders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_m3_overlapping_groups_do_not_wait_for_each_other_for_ever() {
    let server = Server::start().await;
    let names = Arc::new(names(5));
    let room = Arc::<Room>::default();
    let mut random = Random::new();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = connect(&server.url(), watched(Duration::from_secs(30))).await;
        for _ in 0..2 {
            let (client, names, room) = (client.clone(), names.clone(), room.clone());
            let mut random = random.split();
            tasks.spawn(async move {
                for _ in 0..15 {
                    // All groups share the first name, which protects the room.
                    let mut chosen = vec![&names[0], &names[1 + random.below(4) as usize]];
                    chosen.push(&names[1 + random.below(4) as usize]);
                    let shift = random.below(3) as usize;
                    chosen.rotate_left(shift);
                    let guard = client.multi_lock(chosen).lock().await.unwrap();
                    room.visit().await;
                    assert_eq!(guard.unlock().await, Ok(Released::Fully));
                }
            });
        }
    }
    all_done(tasks).await;
    assert_eq!(room.visits(), 6 * 15);
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_m4_a_hundred_names_are_acquired_and_released_in_one_call_each() {
    let (server, client) = bed().await;
    client
        .multi_lock(["warm"])
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    for (count, calls) in [(100, 1), (1_000, 8)] {
        let names = names(count);
        let lock = client.multi_lock(&names);
        server.reset_calls().await;
        let guard = lock.lock().await.unwrap();
        assert_eq!(scripts(&server).await, calls, "to acquire {count}");
        server.reset_calls().await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        assert_eq!(scripts(&server).await, calls, "to release {count}");
    }
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_of_any_kind_and_client() {
    let (server, client) = bed().await;
    let (elsewhere, other) = bed().await;
    let name = |kind| unique_name(kind);
    let fenced = client.fenced_lock(name("fenced"));
    let rates = other.read_write_lock(name("rates"));
    let lock = MultiLock::of([
        AnyLock::from(client.reentrant_lock(name("plain"))),
        AnyLock::from(&fenced),
        AnyLock::from(client.fair_lock(name("fair"))),
        AnyLock::from(rates.read()),
        AnyLock::from(other.simple_lock(name("simple"))),
        AnyLock::from(other.spin_lock(name("spin"))),
    ]);
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.names().count(), 6);
    assert_eq!(guard.tokens(), [(fenced.name().into(), 1)]);
    let reader = rates.read().owned_by(&Owner::new());
    let reading = reader.try_lock().await.unwrap().expect("readers share");
    reading.unlock().await.unwrap();
    assert!(
        rates
            .write()
            .owned_by(&Owner::new())
            .try_lock()
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    nothing_left(&elsewhere, PROMPT).await;
    let keys: Vec<String> = server.command(&["KEYS", "*"]).await;
    assert_eq!(keys, [format!("redisson_lock_token:{{{}}}", fenced.name())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_given_twice_counts_once_and_groups_are_reentrant() {
    let (server, client) = bed().await;
    let name = unique_name("twice");
    let lock = client.multi_lock([&name, &name]);
    let outer = lock.lock().await.unwrap();
    assert_eq!(client.reentrant_lock(&name).hold_count().await, Ok(1));
    let inner = lock
        .try_lock()
        .await
        .unwrap()
        .expect("the owner enters again");
    assert_eq!(client.reentrant_lock(&name).hold_count().await, Ok(2));
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sides_of_one_name_are_two_members() {
    let (server, client) = bed().await;
    let sides = client.read_write_lock(unique_name("sides"));
    // The write side comes first in any order of the members. In the reverse order, the owner would
    // wait for itself.
    let lock = MultiLock::of([AnyLock::from(sides.read()), AnyLock::from(sides.write())]);
    let guard = lock.try_lock().await.unwrap().expect("both are free");
    assert_eq!(sides.read().hold_count().await, Ok(1));
    assert_eq!(sides.write().hold_count().await, Ok(1));
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    nothing_left(&server, PROMPT).await;

    let reading = sides.read().lock().await.unwrap();
    let refused = lock.try_lock().await;
    assert!(
        matches!(refused, Err(Error::WouldDeadlock { .. })),
        "{refused:?}"
    );
    reading.unlock().await.unwrap();
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaked_group_is_unlocked_by_its_owner() {
    let (server, client) = bed().await;
    let names = names(3);
    let lock = client.multi_lock(&names);
    assert!(matches!(lock.unlock().await, Err(Error::NotHeld { .. })));
    lock.lock().await.unwrap().leak();
    assert_eq!(exist(&server, &names).await, 3);
    let stranger = lock.owned_by(&Owner::new());
    assert!(matches!(
        stranger.unlock().await,
        Err(Error::NotHeld { .. })
    ));
    assert_eq!(lock.unlock().await, Ok(Released::Fully));
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_releases_and_stops_its_body_at_a_loss() {
    let (server, client) = bed().await;
    let names = names(2);
    let lock = client.multi_lock(&names);
    assert_eq!(lock.run(async |guard| guard.names().count()).await, Ok(2));
    nothing_left(&server, PROMPT).await;
    let (client, name) = (&client, &names[0]);
    let stopped = lock
        .run(async |_| {
            client.reentrant_lock(name).force_unlock().await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
    let is_expected = matches!(&stopped, Err(Error::Lost { name: lost, .. }) if **lost == **name);
    assert!(is_expected, "{stopped:?}");
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_multi_lock_is_refused_and_leaves_nothing() {
    let (server, client) = bed().await;
    server.reset_calls().await;
    let none = client.multi_lock([""; 0]).lock().await;
    assert!(matches!(none, Err(Error::Config { .. })), "{none:?}");
    let bad = client.multi_lock(["fine", ""]).lock().await;
    assert!(matches!(bad, Err(Error::InvalidName { .. })), "{bad:?}");
    let lease = client.multi_lock(["fine"]).with_lease(Duration::ZERO);
    assert!(matches!(lease.lock().await, Err(Error::Config { .. })));
    assert_eq!(scripts(&server).await, 0);
    server.command::<()>(&["SET", "other", "shape"]).await;
    let kind = client.multi_lock(["fine", "other"]).lock().await;
    assert!(matches!(kind, Err(Error::WrongKind { .. })), "{kind:?}");
    server.command::<()>(&["DEL", "other"]).await;
    nothing_left(&server, PROMPT).await;
}

/// A group leaves nothing when its future is dropped at an await point and replies are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_futures_and_lost_replies_leave_nothing() {
    let stage = Stage::new().await;
    let client = stage.client(watched(Duration::from_secs(60))).await;
    let names = names(4);
    let holder = stage.direct(Config::default()).await;
    for polls in 0..12 {
        let taken = (polls % 2 == 1).then(|| holder.reentrant_lock(&names[polls % 4]));
        let held = match &taken {
            Some(lock) => Some(lock.lock().await.unwrap()),
            None => None,
        };
        if polls % 3 == 0 {
            stage.faults().lose_next_reply();
        }
        let owner = Owner::new();
        let lock = client.multi_lock(&names).owned_by(&owner);
        drop(poll_and_drop(lock.lock(), polls as u64).await);
        if let Some(held) = held {
            held.unlock().await.unwrap();
        }
        eventually("no member is held", GENEROUS, async || {
            exist(&stage.server, &names).await == 0
        })
        .await;
    }
    stage.faults().heal();
    nothing_left(&stage.server, PROMPT).await;
}

/// Two groups of one owner in one task share its holds, and do not wait for each other's calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_groups_of_one_owner_at_once() {
    let (server, client) = bed().await;
    let names = names(20);
    let (some, all) = (client.multi_lock(&names[5..]), client.multi_lock(&names));
    for _ in 0..20 {
        let pair = async { tokio::join!(some.lock(), all.lock(), some.lock()) };
        let (a, b, c) = timeout(GENEROUS, pair)
            .await
            .expect("every task ends in time");
        let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
        let (a, b, c) = tokio::join!(a.unlock(), b.unlock(), c.unlock());
        assert!(a.is_ok() && b.is_ok() && c.is_ok(), "{a:?} {b:?} {c:?}");
    }
    nothing_left(&server, PROMPT).await;
}

/// A group with an unreachable member does not keep its other members from other owners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_held_while_a_member_cannot_be_reached() {
    let (server, _) = bed().await;
    let (sick, _) = bed().await;
    let mut config = woken_only();
    config.command_wait = Duration::from_secs(1);
    let client = connect(&server.url(), config.clone()).await;
    let other = connect(&sick.url(), config).await;
    let names = names(2);
    let lock = MultiLock::of([
        client.reentrant_lock(&names[0]),
        other.reentrant_lock(&names[1]),
    ]);
    let once = lock.clone();
    sick.pause();
    let waiting = tokio::spawn(async move { lock.lock().await });
    let healthy = client.reentrant_lock(&names[0]).owned_by(&Owner::new());
    // The group has tried and released the healthy member.
    let guard = timeout(GENEROUS, healthy.lock())
        .await
        .expect("the lock is free");
    let refused = once.owned_by(&Owner::new()).try_lock().await;
    assert!(
        matches!(refused, Ok(None) | Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    sick.resume();
    guard.unwrap().unlock().await.unwrap();
    let guard = timeout(GENEROUS, waiting)
        .await
        .expect("both servers answer");
    assert_eq!(guard.unwrap().unwrap().unlock().await, Ok(Released::Fully));
    nothing_left(&server, PROMPT).await;
    nothing_left(&sick, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lock_given_as_two_kinds_is_refused() {
    let (_server, client) = bed().await;
    let name = unique_name("kinds");
    let lock = MultiLock::of([
        AnyLock::from(client.reentrant_lock(&name)),
        AnyLock::from(client.fenced_lock(&name)),
        AnyLock::from(client.reentrant_lock(&name)),
    ]);
    let refused = lock.lock().await;
    assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
}
