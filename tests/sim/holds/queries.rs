//! Queries of locks and clients, and `DynLock`. Under a paused clock.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use redisson_lock::{AnyLock, Config, DynGuard, DynLock, Error, LockClient, MultiLock, Owner};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep};

use crate::support::{LEASE, network::server, polling_client};

const JAVA: &str = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47";

fn owner_of(client: &LockClient, owner: Owner) -> String {
    format!("{}:{owner}", client.id())
}

#[tokio::test(start_paused = true)]
async fn holders_of_both_sides_of_a_read_write_lock_have_leases_of_their_own() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let lock = client.read_write_lock("a");
    let (writer, reader) = (Owner::new(), Owner::new());
    let writing = lock.write().owned_by(&writer).lock().await.unwrap();
    let reading = lock.read().owned_by(&writer).lock().await.unwrap();
    let mut holders = lock.read().holders().await.unwrap();
    assert_eq!(holders, lock.write().holders().await.unwrap());
    holders.sort_by_key(|holder| holder.writes);
    let told: Vec<_> = holders
        .iter()
        .map(|one| (&*one.owner, one.writes))
        .collect();
    let owner = owner_of(&client, writer);
    assert_eq!(told, [(&*owner, false), (&*owner, true)]);

    writing.unlock().await.unwrap();
    let long = lock.read().owned_by(&reader).with_lease(LEASE * 2);
    let _long = [long.lock().await.unwrap(), long.lock().await.unwrap()];
    let holders = lock.write().holders().await.unwrap();
    let one = |owner: Owner| {
        let name = owner_of(&client, owner);
        let found = holders.iter().find(|holder| *holder.owner == *name);
        found.expect("it reads").clone()
    };
    assert_eq!((one(reader).holds, one(writer).holds), (2, 1));
    let left = one(reader).remaining_lease.unwrap();
    assert!(left > LEASE && left <= LEASE * 2, "{left:?}");
    assert!(one(writer).remaining_lease.unwrap() <= LEASE);
    reading.unlock().await.unwrap();
}

/// The lock goes to another owner of the client while the answer is on its way.
#[tokio::test(start_paused = true)]
async fn an_answer_ends_the_hold_of_an_owner_that_was_handed_the_lock_meanwhile() {
    let (server, network) = server();
    let config = Config::default().with_local_hand_off(Duration::from_secs(60));
    let client = server.client_with(config).await.unwrap();
    let lock = client.reentrant_lock("a");
    let (one, other) = (Owner::new(), Owner::new());
    let held = lock.owned_by(&one).lock().await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.owned_by(&other);
        async move { lock.lock().await }
    });
    sleep(Duration::from_millis(1)).await;
    assert!(server.delete("a"));
    network.0.late_answer.store(1, Relaxed);
    let asked = tokio::spawn(async move { lock.holders().await });
    // The hand-off comes later than the question.
    sleep(Duration::from_millis(1)).await;
    held.unlock().await.unwrap();
    let passed = waiting.await.unwrap().unwrap();
    assert!(!passed.is_lost(), "the answer is on its way");
    assert_eq!(asked.await.unwrap(), Ok(Vec::new()));
    assert!(passed.is_lost());
}

#[tokio::test(start_paused = true)]
async fn fields_of_another_program_are_not_holders() {
    let server = InMemoryRedis::new();
    let raw = server.raw().await.unwrap();
    let odd = format!("30000 1 {JAVA}\n-1 7 another");
    for words in [["a", "colour", "red"], ["a", &odd, "1"], ["a", JAVA, "2"]] {
        raw.send("HSET", &words).await.unwrap();
    }
    let lock = polling_client(&server).await.reentrant_lock("a");
    let holders = lock.holders().await.unwrap();
    assert_eq!(holders.len(), 2, "{holders:?}");
    let java = holders
        .iter()
        .find(|holder| *holder.owner == *JAVA)
        .unwrap();
    assert_eq!((java.holds, java.remaining_lease), (2, None));
    let wrong = polling_client(&server)
        .await
        .simple_lock("a")
        .holders()
        .await;
    assert!(matches!(wrong, Err(Error::WrongKind { .. })), "{wrong:?}");
    let text = polling_client(&server).await.simple_lock("b");
    server.set("b", "worker 7\nof 9");
    assert_eq!(&*text.holders().await.unwrap()[0].owner, "worker 7?of 9");
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_fair_lock_are_listed_in_the_order_of_the_queue() {
    let server = InMemoryRedis::new();
    let (one, other) = (polling_client(&server).await, polling_client(&server).await);
    let lock = one.fair_lock("a");
    assert_eq!(lock.waiters().await, Ok(Vec::new()));
    let guard = lock.lock().await.unwrap();
    let mut waiting = Vec::new();
    let (first, third) = (Owner::new(), Owner::new());
    let waits = |owner: Owner| {
        let lock = other.fair_lock("a").owned_by(&owner);
        tokio::spawn(async move { lock.lock().await?.unlock().await })
    };
    waiting.push(waits(first));
    sleep(Duration::from_millis(10)).await;
    let raw = server.raw().await.unwrap();
    raw.send("RPUSH", &["redisson_lock_queue:{a}", JAVA])
        .await
        .unwrap();
    sleep(Duration::from_millis(10)).await;
    let waiters = lock.waiters().await.unwrap();
    let owners: Vec<_> = waiters.iter().map(|waiter| &*waiter.owner).collect();
    assert_eq!(owners, [&*owner_of(&other, first), JAVA]);
    let kept = waiters[0].place_kept.unwrap();
    assert!(
        kept > Duration::from_secs(14) && kept <= Duration::from_secs(15),
        "{kept:?}"
    );
    assert_eq!(waiters[1].place_kept, None, "the Java waiter has no score");
    assert_eq!(waiters[0].client_id(), Some(other.id()));

    raw.send("LREM", &["redisson_lock_queue:{a}", "0", JAVA])
        .await
        .unwrap();
    waiting.push(waits(third));
    guard.unlock().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(lock.waiters().await, Ok(Vec::new()));
    server.set("redisson_lock_queue:{b}", "text");
    let wrong = one.fair_lock("b").waiters().await;
    assert!(matches!(wrong, Err(Error::WrongKind { .. })), "{wrong:?}");
}

#[tokio::test(start_paused = true)]
async fn ping_fails_while_the_server_is_stopped_and_after_shutdown() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    assert!(client.ping().await.unwrap() < Duration::from_secs(1));
    server.stop();
    let began = Instant::now();
    let error = client.ping().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(began.elapsed() <= Config::default().command_wait * 2);
    server.start();
    sleep(Duration::from_secs(5)).await;
    client.ping().await.unwrap();
    client.shutdown().await;
    assert_eq!(client.ping().await, Err(Error::Closed));
}

#[tokio::test(start_paused = true)]
async fn dyn_lock_is_the_same_lock() {
    let server = InMemoryRedis::new();
    let (one, other) = (polling_client(&server).await, polling_client(&server).await);
    let locks: Vec<DynLock> = vec![
        one.reentrant_lock("reentrant").into_dyn(),
        one.fair_lock("fair").into_dyn(),
        one.fenced_lock("fenced").into_dyn(),
        one.simple_lock("simple").into_dyn(),
        one.read_write_lock("write").write().clone().into_dyn(),
    ];
    for lock in &locks {
        let guard: DynGuard = lock.lock().await.unwrap();
        let is_fenced = lock.name() == "fenced";
        assert_eq!(guard.fencing_token(), is_fenced.then_some(1), "{lock:?}");
        assert!(lock.is_held().await.unwrap());
        let rival = Owner::new();
        assert!(lock.owned_by(&rival).try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
    }
    let typed = other.fenced_lock("fenced").lock().await.unwrap();
    assert!(locks[2].try_lock().await.unwrap().is_none());
    assert_eq!(typed.into_dyn().fencing_token(), Some(2));

    // In a group, the same lock twice is one member, typed or not. Another lock is another member.
    sleep(Duration::from_millis(10)).await;
    let twice = MultiLock::of([
        AnyLock::from(one.non_reentrant_lock("a")),
        AnyLock::from(one.non_reentrant_lock("a").into_dyn()),
        AnyLock::from(&locks[0]),
    ]);
    let guard = twice.lock().await.unwrap();
    let holders = one.reentrant_lock("a").holders().await.unwrap();
    assert_eq!(holders[0].holds, 1);
    guard.unlock().await.unwrap();
}
