//! Connections that break with replies under way: no operation is executed twice, and nothing is
//! left.

use std::time::Duration;

use redisson_lock::LockClient;
use testbed::{Proxy, Server, eventually};
use tokio::time::timeout;

use super::SOON;

/// A client behind a proxy that loses replies.
struct Bed {
    server: Server,
    proxy: Proxy,
    client: LockClient,
}

impl Bed {
    async fn new() -> Self {
        let server = Server::start().await;
        let proxy = Proxy::start(server.port()).await;
        let client = LockClient::connect(proxy.url()).await.unwrap();
        Self {
            server,
            proxy,
            client,
        }
    }

    /// Runs `future`, whose first reply is lost with its connection.
    async fn lose_its_answer<T>(&self, future: impl Future<Output = T>) -> T {
        let faults = self.proxy.faults();
        let before = faults.lost_replies();
        faults.lose_next_reply();
        let done = timeout(SOON, future)
            .await
            .expect("the request is repeated");
        assert_eq!(faults.lost_replies(), before + 1);
        done
    }
}

#[tokio::test]
async fn permits_are_acquired_and_released_once() {
    let bed = Bed::new().await;
    let pool = bed.client.semaphore("pool");
    assert!(bed.lose_its_answer(pool.try_set_permits(9)).await.unwrap());
    // Loads each script first.
    pool.acquire().await.unwrap().release().await.unwrap();
    let taken = bed.lose_its_answer(pool.acquire_many(2)).await.unwrap();
    assert_eq!(pool.available_permits().await, Ok(7));
    bed.lose_its_answer(taken.release()).await.unwrap();
    assert_eq!(pool.available_permits().await, Ok(9));
    bed.lose_its_answer(pool.add_permits(-4)).await.unwrap();
    assert_eq!(pool.available_permits().await, Ok(5));
    assert_eq!(bed.lose_its_answer(pool.drain_permits()).await, Ok(5));
    assert_eq!(pool.available_permits().await, Ok(0));
}

#[tokio::test]
async fn a_grant_whose_caller_was_dropped_is_released() {
    let bed = Bed::new().await;
    let pool = bed.client.semaphore("pool");
    pool.try_set_permits(9).await.unwrap();
    pool.acquire().await.unwrap().release().await.unwrap();
    let faults = bed.proxy.faults();
    faults.stall_replies(true);
    {
        let acquire = pool.acquire_many(4);
        tokio::pin!(acquire);
        eventually("the server has executed the request", SOON, async || {
            assert!(
                timeout(Duration::from_millis(1), &mut acquire)
                    .await
                    .is_err()
            );
            bed.server.command::<String>(&["GET", "pool"]).await == "5"
        })
        .await;
    }
    faults.cut_all();
    faults.stall_replies(false);
    eventually("the permits are released", SOON, async || {
        pool.available_permits().await == Ok(9)
    })
    .await;
}

#[tokio::test]
async fn expirable_permits_are_acquired_and_released_once() {
    let bed = Bed::new().await;
    let pool = bed.client.permit_expirable_semaphore("pool");
    pool.try_set_permits(9).await.unwrap();
    let lease = Duration::from_secs(60);
    pool.with_lease(lease)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let permit = bed
        .lose_its_answer(pool.with_lease(lease).acquire())
        .await
        .unwrap();
    assert_eq!(pool.available_permits().await, Ok(8));
    assert_eq!(pool.acquired_permits().await, Ok(1));
    let released = bed.lose_its_answer(permit.release()).await.unwrap();
    assert!(released);
    assert_eq!(pool.available_permits().await, Ok(9));
}

#[tokio::test]
async fn a_latch_counts_once() {
    let bed = Bed::new().await;
    let ready = bed.client.count_down_latch("ready");
    ready.try_set_count(9).await.unwrap();
    ready.count_down().await.unwrap();
    bed.lose_its_answer(ready.count_down()).await.unwrap();
    assert_eq!(ready.count().await, Ok(7));
    assert!(bed.lose_its_answer(ready.delete()).await.unwrap());
    assert!(bed.lose_its_answer(ready.try_set_count(1)).await.unwrap());
    assert_eq!(ready.count().await, Ok(1));
}
