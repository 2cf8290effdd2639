//! The rights for semaphores and latches: each is needed, and together they are enough.

use std::{pin::Pin, time::Duration};

use redisson_lock::{Config, Error, LockClient, PermitExpirableSemaphore};
use testbed::{Server, eventually};
use tokio::time::timeout;

use super::{admit_with, all_rights, rights};

const NAME: &str = "app:42";
/// A semaphore whose single permit expires.
const BRIEF: &str = "app:brief";
const LEASE: Duration = Duration::from_secs(60);
/// The limit for steps that must happen.
const SURE: Duration = Duration::from_secs(20);
/// The limit for steps that a missing right may prevent.
const UNSURE: Duration = Duration::from_secs(1);

/// All operations of a kind, by two clients of which one waits for the other.
type Life =
    fn(LockClient, LockClient, Duration) -> Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// Runs a task that waits until `wake` notifies it.
async fn woken<T: Send + 'static>(
    waits: impl Future<Output = Result<T, Error>> + Send + 'static,
    wake: impl Future<Output = Result<(), Error>>,
    limit: Duration,
) -> Result<T, Error> {
    let (joined, woken) = tokio::join!(timeout(limit, waits), async {
        // By then the task has tried, subscribed and parked, so that it needs the notification.
        tokio::time::sleep(Duration::from_millis(100)).await;
        wake.await
    });
    woken?;
    joined.unwrap_or(Err(Error::Closed))
}

fn semaphore(
    one: LockClient,
    other: LockClient,
    limit: Duration,
) -> Pin<Box<dyn Future<Output = Result<(), Error>>>> {
    Box::pin(async move {
        let (ours, theirs) = (one.semaphore(NAME), other.semaphore(NAME));
        ours.try_set_permits(1).await?;
        let permit = ours.acquire().await?;
        let waits = async move { theirs.acquire().await };
        woken(waits, permit.release(), limit)
            .await?
            .release()
            .await?;
        ours.available_permits().await?;
        ours.drain_permits().await?;
        ours.add_permits(1).await
    })
}

fn permit_expirable_semaphore(
    one: LockClient,
    other: LockClient,
    limit: Duration,
) -> Pin<Box<dyn Future<Output = Result<(), Error>>>> {
    Box::pin(async move {
        let ours = one.permit_expirable_semaphore(NAME);
        let theirs = other.permit_expirable_semaphore(NAME);
        ours.try_set_permits(1).await?;
        // A permit whose return was refused half way is lost, and a wait for it never ends.
        let acquire = async |pool: &PermitExpirableSemaphore, lease| {
            let acquired = timeout(limit, pool.with_lease(lease).acquire()).await;
            acquired.unwrap_or(Err(Error::Closed))
        };
        acquire(&ours, Duration::from_millis(10)).await?.leak();
        let permit = acquire(&ours, LEASE).await?;
        ours.update_lease(permit.id(), 2 * LEASE).await?;
        ours.lease_left(permit.id()).await?;
        ours.permits().await?;
        let waits = async move { theirs.with_lease(LEASE).acquire().await };
        let wake = async { permit.release().await.map(drop) };
        woken(waits, wake, limit).await?.release().await?;
        ours.set_permits(3).await?;
        ours.add_permits(-1).await?;
        let brief = one.permit_expirable_semaphore(BRIEF);
        acquire(&brief, LEASE).await?.release().await.map(drop)
    })
}

fn count_down_latch(
    one: LockClient,
    other: LockClient,
    limit: Duration,
) -> Pin<Box<dyn Future<Output = Result<(), Error>>>> {
    Box::pin(async move {
        let (ours, theirs) = (one.count_down_latch(NAME), other.count_down_latch(NAME));
        ours.try_set_count(2).await?;
        ours.count_down().await?;
        ours.count().await?;
        let waits = async move { theirs.wait().await };
        woken(waits, ours.count_down(), limit).await?;
        ours.try_set_count(2).await?;
        ours.delete().await.map(drop)
    })
}

async fn connect(url: &str, limit: Duration) -> Result<LockClient, Error> {
    let config = Config::default()
        .with_max_poll_interval(30 * SURE)
        .with_command_wait(limit)
        .with_outage_wait(limit);
    LockClient::builder().url(url).config(config).build().await
}

/// Returns what a user with `rights` cannot do.
async fn problem(
    server: &Server,
    rights: &[String],
    life: Life,
    limit: Duration,
) -> Option<String> {
    server.command::<()>(&["FLUSHALL"]).await;
    server
        .command::<()>(&["SET", BRIEF, "1", "PX", "60000"])
        .await;
    let url = admit_with(server, "tried", rights).await;
    let lives = async {
        let (one, other) = (connect(&url, limit).await?, connect(&url, limit).await?);
        life(one.clone(), other.clone(), limit).await?;
        // Checked while the clients live, because their end also ends their subscriptions.
        let listens_no_more = eventually("the clients no longer listen", 2 * SURE, async || {
            let channels: Vec<String> = server.command(&["PUBSUB", "CHANNELS", "*app*"]).await;
            channels.is_empty()
        });
        let ended = timeout(limit, listens_no_more).await;
        drop((one, other));
        ended.map_err(|_| Error::Closed)
    };
    lives.await.err().map(|error| crate::in_full(&error))
}

async fn each_is_needed(part: &str, life: Life) {
    let server = Server::start().await;
    let all = all_rights(&[part]);
    assert_eq!(problem(&server, &all, life, SURE).await, None);
    let mut idle = Vec::new();
    for right in rights(part) {
        let remaining: Vec<_> = all
            .iter()
            .filter(|other| **other != right)
            .cloned()
            .collect();
        match problem(&server, &remaining, life, UNSURE).await {
            Some(problem) => println!("{right}: {problem}"),
            None => idle.push(right),
        }
    }
    assert_eq!(idle, [""; 0], "{part}: nothing needs these");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_is_needed_for_a_semaphore() {
    each_is_needed("semaphore", semaphore).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_is_needed_for_a_permit_expirable_semaphore() {
    each_is_needed("permit-expirable-semaphore", permit_expirable_semaphore).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_is_needed_for_a_count_down_latch() {
    each_is_needed("count-down-latch", count_down_latch).await;
}
