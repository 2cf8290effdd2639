//! `shutdown_within`: acquisitions are refused, holders have their time, then the rest is released.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use redisson_lock::{Config, Error, LockClient, LostReason, MultiLock, Owner, Released};
use testbed::{Server, eventually};
use tokio::{task::JoinHandle, time::timeout};

use crate::hazards::stage::{connect, scripts, watched};

const SOON: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(1_000);

async fn bed(config: Config) -> (Server, LockClient, LockClient) {
    let server = Server::start().await;
    let one = connect(&server.url(), config).await;
    let other = connect(&server.url(), Config::default()).await;
    (server, one, other)
}

/// Begins the shutdown, and returns once the client refuses acquisitions.
async fn begin(client: &LockClient, wait: Duration) -> JoinHandle<redisson_lock::ShutdownReport> {
    let closing = client.clone();
    let closing = tokio::spawn(async move { closing.shutdown_within(wait).await });
    timeout(SOON, client.closed())
        .await
        .expect("the shutdown begins");
    assert!(client.is_closed());
    closing
}

/// A permit whose guard lives keeps neither a second shutdown waiting, nor the first one after it.
#[tokio::test]
async fn a_client_that_closes_meanwhile_or_before_has_no_holders() {
    let (_server, one, _other) = bed(Config::default()).await;
    let pool = one.semaphore("pool");
    pool.add_permits(1).await.unwrap();
    let _permit = pool.acquire().await.unwrap();
    let first = begin(&one, LONG).await;
    timeout(SOON, one.shutdown_and_release()).await.unwrap();
    timeout(SOON, first)
        .await
        .expect("the client has closed")
        .unwrap();
    timeout(SOON, one.shutdown_within(LONG)).await.unwrap();
}

#[tokio::test]
async fn holders_have_their_time_and_acquisitions_are_refused() {
    let (server, one, other) = bed(watched(Duration::from_secs(1))).await;
    let lock = one.reentrant_lock("held");
    let guard = lock.lock().await.unwrap();
    let mut closing = begin(&one, LONG).await;
    let pool = one.semaphore("pool");
    let expirable = one.permit_expirable_semaphore("expirable");
    for refused in [
        lock.try_lock().await.map(drop),
        lock.lock().await.map(drop),
        lock.owned_by(&Owner::new())
            .try_lock_for(SOON)
            .await
            .map(drop),
        one.fair_lock("free").lock().await.map(drop),
        one.read_write_lock("free").read().lock().await.map(drop),
        one.multi_lock(["free", "too"]).lock().await.map(drop),
        MultiLock::of([other.reentrant_lock("free"), one.reentrant_lock("too")])
            .try_lock()
            .await
            .map(drop),
        one.election("free").campaign("me").await.map(drop),
        pool.acquire().await.map(drop),
        pool.drain_permits().await.map(drop),
        expirable.acquire().await.map(drop),
        one.count_down_latch("latch").wait().await,
        lock.run(async |_| ()).await,
    ] {
        assert_eq!(refused, Err(Error::Closed));
    }
    assert_eq!(
        server.command::<Vec<String>>(&["KEYS", "*"]).await,
        ["held"]
    );
    // The watchdog goes on: its lease would have ended.
    let renewed = timeout(Duration::from_millis(1_500), guard.lost()).await;
    assert!(renewed.is_err(), "{renewed:?}");
    assert!(
        timeout(Duration::from_millis(10), &mut closing)
            .await
            .is_err()
    );
    guard.extend(SOON).await.unwrap();
    assert_eq!(lock.is_locked().await, Ok(true));
    let released = Instant::now();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let report = timeout(SOON, closing).await.unwrap().unwrap();
    assert_eq!(report.unreleased, []);
    assert!(released.elapsed() < SOON / 4, "{:?}", released.elapsed());
    assert_eq!(other.reentrant_lock("held").is_locked().await, Ok(false));
}

/// Every sort of waiter ends, and holds nothing.
#[tokio::test]
async fn waiters_end_when_the_shutdown_begins() {
    let (server, one, other) = bed(Config::default().with_local_hand_off(SOON)).await;
    let names = ["plain", "fair", "spin", "simple", "member"];
    let here = one.reentrant_lock("here").lock().await.unwrap();
    let mut held = Vec::new();
    for name in names {
        let lock = match name {
            "simple" => other.simple_lock(name).into_dyn(),
            _ => other.reentrant_lock(name).into_dyn(),
        };
        held.push(lock.lock().await.unwrap());
    }
    let locks = [
        one.reentrant_lock("plain").into_dyn(),
        one.fair_lock("fair").into_dyn(),
        one.spin_lock("spin").into_dyn(),
        one.simple_lock("simple").into_dyn(),
        one.reentrant_lock("here").into_dyn(),
    ];
    let mut waiters: Vec<_> = locks
        .map(|lock| lock.owned_by(&Owner::new()))
        .map(|lock| tokio::spawn(async move { lock.lock().await.map(drop) }))
        .into();
    let group = one.multi_lock(["free", "member"]);
    waiters.push(tokio::spawn(async move { group.lock().await.map(drop) }));
    let pool = one.semaphore("pool");
    waiters.push(tokio::spawn(async move { pool.acquire().await.map(drop) }));
    let latch = one.count_down_latch("latch");
    latch.try_set_count(1).await.unwrap();
    waiters.push(tokio::spawn(async move { latch.wait().await }));
    eventually("all wait", SOON, async || {
        let before = scripts(&server).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The spin lock and the simple lock poll.
        before > 20 && scripts(&server).await <= before + 10
    })
    .await;
    let closing = begin(&one, LONG).await;
    for waiter in waiters {
        let ended = timeout(SOON, waiter).await.expect("it ends").unwrap();
        assert_eq!(ended, Err(Error::Closed));
    }
    assert!(!closing.is_finished());
    drop(here);
    let report = timeout(SOON, closing).await.unwrap().unwrap();
    assert_eq!(report.unreleased, []);
    drop(held);
    eventually("no lock is held", SOON, async || {
        server
            .command::<u32>(&[&["EXISTS", "here", "free"], &names[..]].concat())
            .await
            == 0
    })
    .await;
}

#[tokio::test]
async fn the_holders_that_remain_are_cancelled_and_their_locks_released() {
    let (server, one, _) = bed(Config::default()).await;
    let (lock, leaked) = (one.reentrant_lock("run"), one.reentrant_lock("leaked"));
    let body = tokio::spawn(async move { lock.run(async |_| pending::<()>().await).await });
    leaked.lock().await.unwrap().leak();
    eventually("both are held", SOON, async || one.holds().len() == 2).await;
    let began = Instant::now();
    let wait = Duration::from_millis(300);
    let report = timeout(SOON, one.shutdown_within(wait)).await.unwrap();
    assert!(began.elapsed() >= wait);
    assert_eq!(report.unreleased, []);
    let lost = timeout(SOON, body).await.unwrap().unwrap();
    let closed = matches!(
        lost,
        Err(Error::Lost {
            reason: LostReason::Closed,
            ..
        })
    );
    assert!(closed, "{lost:?}");
    assert_eq!(server.command::<u32>(&["EXISTS", "run", "leaked"]).await, 0);
}

#[tokio::test]
async fn the_shutdown_waits_for_permits_too() {
    let (server, one, _) = bed(Config::default()).await;
    let pool = one.semaphore("pool");
    let expirable = one.permit_expirable_semaphore("expirable");
    assert_eq!(pool.try_set_permits(1).await, Ok(true));
    assert_eq!(expirable.try_set_permits(1).await, Ok(true));
    let permit = pool.acquire().await.unwrap();
    let leased = expirable.with_lease(LONG).acquire().await.unwrap();
    let mut closing = begin(&one, LONG).await;
    let waits = async |closing: &mut JoinHandle<_>| {
        timeout(Duration::from_millis(100), closing).await.is_err()
    };
    assert!(waits(&mut closing).await);
    permit.release().await.unwrap();
    assert!(waits(&mut closing).await);
    drop(leased);
    timeout(SOON, closing).await.unwrap().unwrap();
    let left: Vec<u32> = server.command(&["MGET", "pool", "expirable"]).await;
    assert_eq!(left, [1, 1]);
}

#[tokio::test]
async fn a_shutdown_that_is_dropped_goes_on_with_the_next_one() {
    let (_server, one, other) = bed(Config::default()).await;
    let guard = one.reentrant_lock("held").lock().await.unwrap();
    let began = begin(&one, Duration::MAX).await;
    began.abort();
    assert!(began.await.unwrap_err().is_cancelled());
    assert!(!guard.is_lost());
    let refused = one.reentrant_lock("free").try_lock().await.map(drop);
    assert_eq!(refused, Err(Error::Closed));
    let report = timeout(SOON, one.shutdown_within(Duration::ZERO))
        .await
        .unwrap();
    assert_eq!(report.unreleased, []);
    assert!(guard.is_lost());
    assert_eq!(other.reentrant_lock("held").is_locked().await, Ok(false));
}

#[cfg(feature = "blocking")]
#[tokio::test]
async fn a_blocking_client_waits_for_its_holders_too() {
    let server = Server::start().await;
    let url = server.url();
    let done = tokio::task::spawn_blocking(move || {
        let client = redisson_lock::blocking::LockClient::connect(url).unwrap();
        let (lock, closing) = (client.reentrant_lock("held"), client.clone());
        let guard = lock.lock().unwrap();
        let closing = std::thread::spawn(move || closing.shutdown_within(LONG));
        while !client.is_closed() {
            std::thread::yield_now();
        }
        assert_eq!(lock.lock().map(drop), Err(Error::Closed));
        assert!(!guard.is_lost() && !closing.is_finished());
        assert_eq!(guard.unlock(), Ok(Released::Fully));
        closing.join().unwrap().unreleased
    });
    assert_eq!(timeout(SOON, done).await.unwrap().unwrap(), []);
}
