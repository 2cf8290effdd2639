//! Queries of locks and clients, log lines of long waits, and `DynLock`. Under a paused clock.

use std::time::Duration;

use crate::lines::Lines;
use redisson_lock::{
    AnyLock, Config, DynGuard, DynLock, Error, LockClient, MultiLock, Owner, Semaphore,
    test_util::InMemoryRedis,
};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(30);
const JAVA: &str = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47";

async fn client(server: &InMemoryRedis) -> LockClient {
    server.client().await.expect("the server is up")
}

fn owner_of(client: &LockClient, owner: Owner) -> String {
    format!("{}:{owner}", client.id())
}

#[tokio::test(start_paused = true)]
async fn holders_of_both_sides_of_a_read_write_lock_have_leases_of_their_own() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
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

#[tokio::test(start_paused = true)]
async fn fields_of_another_program_are_not_holders() {
    let server = InMemoryRedis::new();
    let raw = server.raw().await.unwrap();
    let odd = format!("30000 1 {JAVA}\n-1 7 another");
    for words in [["a", "colour", "red"], ["a", &odd, "1"], ["a", JAVA, "2"]] {
        raw.send("HSET", &words).await.unwrap();
    }
    let lock = client(&server).await.reentrant_lock("a");
    let holders = lock.holders().await.unwrap();
    assert_eq!(holders.len(), 2, "{holders:?}");
    let java = holders
        .iter()
        .find(|holder| *holder.owner == *JAVA)
        .unwrap();
    assert_eq!((java.holds, java.remaining_lease), (2, None));
    let wrong = client(&server).await.simple_lock("a").holders().await;
    assert!(matches!(wrong, Err(Error::WrongKind { .. })), "{wrong:?}");
    let text = client(&server).await.simple_lock("b");
    server.set("b", "worker 7\nof 9");
    assert_eq!(&*text.holders().await.unwrap()[0].owner, "worker 7?of 9");
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_fair_lock_are_listed_in_the_order_of_the_queue() {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
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
async fn a_ping_is_answered_by_a_server_that_lives_and_by_no_other() {
    let server = InMemoryRedis::new();
    let client = client(&server).await;
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

async fn slow(server: &InMemoryRedis, slow_wait: u64) -> LockClient {
    let mut config = Config::default();
    config.slow_wait = Some(Duration::from_secs(slow_wait));
    config.deadlock_warning = None;
    server.client_with(config).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_slow_wait_is_logged_with_the_holder_each_time_it_has_doubled() {
    let (lines, _kept) = Lines::keep_from(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let (holder, waiter) = (client(&server).await, slow(&server, 2).await);
    let owner = Owner::new();
    let guard = holder
        .reentrant_lock("a")
        .owned_by(&owner)
        .lock()
        .await
        .unwrap();
    // Five tasks wait, and the log names only the one that has waited for longest.
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let lock = waiter.reentrant_lock("a");
            tokio::spawn(async move { lock.lock().await?.unlock().await })
        })
        .collect();
    sleep(Duration::from_millis(1_900)).await;
    assert_eq!(lines.with("a task waits for a lock"), [""; 0]);
    sleep(Duration::from_secs(18)).await;
    let told = lines.with("a task waits for a lock");
    // Logged after 2, 4, 8 and 16 s; the last may come a look later.
    assert!((3..=4).contains(&told.len()), "{told:#?}");
    for line in &told {
        assert!(
            line.contains("name=a ") && line.contains(&owner_of(&holder, owner)),
            "{line}"
        );
    }
    guard.unlock().await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    // The next wait starts again at the first threshold.
    let guard = holder.reentrant_lock("a").lock().await.unwrap();
    let lock = waiter.reentrant_lock("a");
    let task = tokio::spawn(async move { lock.lock().await?.unlock().await });
    sleep(Duration::from_millis(4_500)).await;
    assert!(lines.with("a task waits for a lock").len() > told.len());
    guard.unlock().await.unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_wait_for_a_lock_of_the_same_client_names_its_holder() {
    let (lines, _kept) = Lines::keep_from(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let client = slow(&server, 1).await;
    let owner = Owner::new();
    let guard = client
        .reentrant_lock("a")
        .owned_by(&owner)
        .lock()
        .await
        .unwrap();
    let lock = client.reentrant_lock("a");
    let task = tokio::spawn(async move { lock.lock().await?.unlock().await });
    sleep(Duration::from_millis(2_500)).await;
    let told = lines.with("a task waits for a lock");
    assert!(
        !told.is_empty() && told[0].contains(&owner.to_string()),
        "{told:?}"
    );
    drop(guard);
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn waits_are_not_logged_unless_that_is_asked_for() {
    let (lines, _kept) = Lines::keep_from(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let guard = holder.reentrant_lock("a").lock().await.unwrap();
    let lock = waiter.reentrant_lock("a");
    let task = tokio::spawn(async move { lock.lock().await?.unlock().await });
    sleep(Duration::from_secs(100)).await;
    assert_eq!(lines.with(""), [""; 0]);
    guard.unlock().await.unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_without_its_kind_is_the_same_lock() {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
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

#[tokio::test(start_paused = true)]
async fn permit_handed_to_an_unpolled_future_goes_to_the_next_waiter() {
    let server = InMemoryRedis::new();
    let (one, other) = (client(&server).await, client(&server).await);
    // The permit is handed off in memory, or by a message of the server.
    for holder in [&one, &other] {
        passes_a_future_that_is_not_polled(&one.semaphore("pool"), &holder.semaphore("pool")).await;
    }
}

async fn passes_a_future_that_is_not_polled(pool: &Semaphore, holder: &Semaphore) {
    holder.try_set_permits(1).await.unwrap();
    let held = holder.acquire().await.unwrap();
    // A future that a `select!` keeps, for example, and does not poll.
    let mut kept = Box::pin(pool.acquire());
    assert!(timeout(Duration::from_millis(10), &mut kept).await.is_err());
    let next = pool.clone();
    let next = tokio::spawn(async move { next.acquire().await?.release().await });
    sleep(Duration::from_millis(10)).await;
    held.release().await.unwrap();
    let entered = timeout(Duration::from_secs(1), next).await;
    entered
        .expect("the permit stays with a future that is not polled")
        .unwrap()
        .unwrap();
    // The kept future still waits for its permit.
    let permit = timeout(Duration::from_secs(1), kept).await;
    permit
        .expect("it is free")
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(pool.available_permits().await, Ok(1));
}
