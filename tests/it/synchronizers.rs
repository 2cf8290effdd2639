//! Semaphores and latches on a real server. tests/interop/synchronizers.rs tests them beside
//! Redisson.

mod count_down_latch;
mod lost_replies;
mod permit_expirable_semaphore;
mod semaphore;

use std::time::Duration;

use redisson_lock::{Config, Error, LockClient};
use testbed::{Clustered, Server, eventually};
use tokio::time::timeout;

/// The limit for steps that take milliseconds.
const SOON: Duration = Duration::from_secs(20);

/// A client that does not poll within a test, so that only a notification ends a wait.
async fn without_polls(url: &str) -> LockClient {
    let config = Config::default().with_max_poll_interval(Duration::from_secs(3_600));
    let builder = LockClient::builder().url(url).config(config);
    builder.build().await.expect("the server runs")
}

/// Counts the subscriptions to the channel.
async fn listeners(server: &Server, channel: &str) -> i64 {
    let (_, count): (String, i64) = server.command(&["PUBSUB", "NUMSUB", channel]).await;
    count
}

/// Waits until a task has subscribed to the channel.
async fn a_task_waits(server: &Server, channel: &str) {
    eventually("the task waits", SOON, async || {
        listeners(server, channel).await == 1
    })
    .await;
}

async fn no_client_listens(server: &Server, channel: &str) {
    eventually("no client subscribes", SOON, async || {
        listeners(server, channel).await == 0
    })
    .await;
}

/// On a cluster a name's number, its hash of attempts and its channel must share a slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_work_on_a_cluster() {
    let cluster = Clustered::start().await;
    let (client, other) = (
        without_polls(&cluster.url()).await,
        without_polls(&cluster.url()).await,
    );
    for name in ["a", "b", "order:{42}"] {
        let (pool, rival) = (client.semaphore(name), other.semaphore(name));
        pool.try_set_permits(1).await.unwrap();
        let permit = pool.acquire().await.unwrap();
        let waits = tokio::spawn(async move { rival.acquire().await });
        parked().await;
        permit.release().await.unwrap();
        let permit = timeout(SOON, waits).await.unwrap().unwrap().unwrap();
        permit.release().await.unwrap();
        let name = format!("{name}:ends");
        let pool = client.permit_expirable_semaphore(&name);
        let rival = other.permit_expirable_semaphore(&name);
        pool.try_set_permits(1).await.unwrap();
        let permit = pool.with_lease(SOON).acquire().await.unwrap();
        let waits = tokio::spawn(async move { rival.with_lease(SOON).acquire().await });
        parked().await;
        assert!(permit.release().await.unwrap());
        let permit = timeout(SOON, waits).await.unwrap().unwrap().unwrap();
        drop(permit);
        let name = name.replace(":ends", ":ready").replace(['{', '}'], "");
        let (latch, rival) = (
            client.count_down_latch(&name),
            other.count_down_latch(&name),
        );
        latch.try_set_count(1).await.unwrap();
        let waits = tokio::spawn(async move { rival.wait().await });
        parked().await;
        latch.count_down().await.unwrap();
        timeout(SOON, waits).await.unwrap().unwrap().unwrap();
    }
    let odd = client.semaphore("a{b");
    let error = odd.acquire().await.unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
}

/// By then the task has tried, subscribed and parked, so that it needs the notification.
async fn parked() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}
