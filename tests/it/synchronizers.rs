//! Semaphores and latches on a real server. tests/interop/synchronizers.rs has them beside Redisson.

mod count_down_latch;
mod lost_replies;
mod permit_expirable_semaphore;
mod semaphore;

use std::time::Duration;

use redisson_lock::{Config, Error, LockClient};
use testbed::{Clustered, Server, eventually};
use tokio::time::timeout;

/// For what should be a matter of milliseconds.
const SOON: Duration = Duration::from_secs(20);

/// No waiter asks by itself in the time that a test takes: one that goes on was woken.
async fn without_polls(url: &str) -> LockClient {
    let config = Config::default().with_poll_floor(Duration::from_secs(3_600));
    let builder = LockClient::builder().url(url).config(config);
    builder.build().await.expect("the server runs")
}

/// So many subscriptions to the channel.
async fn listeners(server: &Server, channel: &str) -> i64 {
    let (_, count): (String, i64) = server.command(&["PUBSUB", "NUMSUB", channel]).await;
    count
}

async fn no_client_listens(server: &Server, channel: &str) {
    eventually("no client subscribes", SOON, async || {
        listeners(server, channel).await == 0
    })
    .await;
}

/// On a cluster, where a name's number, its hash of attempts and its channel have to share a slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_work_on_a_cluster() {
    let cluster = Clustered::start().await;
    let (client, other) = (
        without_polls(&cluster.url()).await,
        without_polls(&cluster.url()).await,
    );
    for name in ["a", "b", "order:{42}"] {
        let (pool, theirs) = (client.semaphore(name), other.semaphore(name));
        pool.try_set_permits(1).await.unwrap();
        let permit = pool.acquire().await.unwrap();
        let waits = tokio::spawn(async move { theirs.acquire().await });
        parked().await;
        permit.release().await.unwrap();
        let permit = timeout(SOON, waits).await.unwrap().unwrap().unwrap();
        permit.release().await.unwrap();
        let name = format!("{name}:ends");
        let pool = client.permit_expirable_semaphore(&name);
        let theirs = other.permit_expirable_semaphore(&name);
        pool.try_set_permits(1).await.unwrap();
        let permit = pool.acquire(SOON).await.unwrap();
        let waits = tokio::spawn(async move { theirs.acquire(SOON).await });
        parked().await;
        assert!(permit.release().await.unwrap());
        let permit = timeout(SOON, waits).await.unwrap().unwrap().unwrap();
        drop(permit);
        let name = name.replace(":ends", ":ready").replace(['{', '}'], "");
        let (latch, theirs) = (
            client.count_down_latch(&name),
            other.count_down_latch(&name),
        );
        latch.try_set_count(1).await.unwrap();
        let waits = tokio::spawn(async move { theirs.wait().await });
        parked().await;
        latch.count_down().await.unwrap();
        timeout(SOON, waits).await.unwrap().unwrap().unwrap();
    }
    let odd = client.semaphore("a{b");
    let error = odd.acquire().await.unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
}

/// It finds nothing, listens and parks before that: if not, nothing had to wake it.
async fn parked() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}
