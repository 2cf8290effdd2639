use std::time::Duration;

use redisson_lock::{CountDownLatch, Error, LockClient};
use testbed::{Server, eventually};
use tokio::{task::JoinSet, time::timeout};

use super::{SOON, a_task_waits, listeners, no_client_listens, without_polls};

/// As [`busy_at_worst`](crate::witness::busy_at_worst): a late reply counts as closed.
async fn stays_closed(ready: &CountDownLatch, wait: Duration) -> bool {
    let waited = ready.wait_for(wait).await;
    matches!(waited, Ok(false) | Err(Error::Unavailable { .. }))
}

const CHANNEL: &str = "redisson_countdownlatch__channel__{ready}";

#[tokio::test]
async fn a_latch_opens_when_it_is_counted_down() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let ready = client.count_down_latch("ready");
    assert_eq!(ready.count().await, Ok(0));
    ready.wait().await.unwrap();
    ready.count_down().await.unwrap();
    assert!(ready.try_set_count(2).await.unwrap());
    assert!(!ready.try_set_count(5).await.unwrap());
    assert_eq!(server.command::<String>(&["GET", "ready"]).await, "2");
    assert!(stays_closed(&ready, Duration::ZERO).await);
    assert!(stays_closed(&ready, Duration::from_millis(50)).await);
    let mut waits = JoinSet::new();
    for _ in 0..20 {
        let ready = ready.clone();
        waits.spawn(async move { ready.wait().await });
    }
    a_task_waits(&server, CHANNEL).await;
    ready.count_down().await.unwrap();
    assert_eq!(ready.count().await, Ok(1));
    LockClient::connect(server.url())
        .await
        .unwrap()
        .count_down_latch("ready")
        .count_down()
        .await
        .unwrap();
    while let Some(waited) = timeout(SOON, waits.join_next()).await.unwrap() {
        waited.unwrap().unwrap();
    }
    assert_eq!(ready.count().await, Ok(0));
    assert!(!server.command::<bool>(&["EXISTS", "ready"]).await);
    no_client_listens(&server, CHANNEL).await;
    assert!(ready.wait_for(Duration::ZERO).await.unwrap());
}

/// Half of Redisson's waiters miss this opening.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_is_not_missed_when_a_new_count_comes_at_once() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let ready = client.count_down_latch("ready");
    let mut admin = server.admin().await;
    for round in 0..20 {
        ready.try_set_count(1).await.unwrap();
        // That was a `GET` too.
        server.reset_calls().await;
        let mut waits = JoinSet::new();
        for _ in 0..20 {
            let ready = ready.clone();
            waits.spawn(async move { ready.wait().await });
        }
        // Each waiter has looked once. Before that, it may not have begun to wait.
        let looked = async || server.calls().await.get("get").copied().unwrap_or(0);
        eventually("the tasks wait", SOON, async || {
            listeners(&server, CHANNEL).await == 1 && looked().await >= 20
        })
        .await;
        let mut both = redis::pipe();
        both.atomic().cmd("DEL").arg("ready");
        // Either the last count, or a deletion by Redisson, which does not publish an opening.
        let opening = ["0", "1"][round % 2];
        both.cmd("PUBLISH").arg(CHANNEL).arg(opening);
        both.cmd("SET").arg("ready").arg("1");
        both.cmd("PUBLISH").arg(CHANNEL).arg("1");
        let _: redis::Value = both.query_async(&mut admin).await.unwrap();
        while let Some(waited) = timeout(SOON, waits.join_next()).await.unwrap_or_else(|_| {
            panic!("a waiter missed the opening in round {round}");
        }) {
            waited.unwrap().unwrap();
        }
        assert!(ready.delete().await.unwrap());
    }
}

/// An opening before the wait does not end it, although its message may arrive after the reply.
#[tokio::test]
async fn an_earlier_opening_does_not_end_a_wait() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let ready = client.count_down_latch("ready");
    for _ in 0..50 {
        ready.try_set_count(1).await.unwrap();
        // Keeps the subscription while the latch opens.
        let waits = tokio::spawn({
            let ready = ready.clone();
            async move { ready.wait().await }
        });
        a_task_waits(&server, CHANNEL).await;
        ready.count_down().await.unwrap();
        ready.try_set_count(1).await.unwrap();
        assert!(stays_closed(&ready, Duration::from_millis(5)).await);
        ready.count_down().await.unwrap();
        timeout(SOON, waits).await.unwrap().unwrap().unwrap();
    }
}

/// Redisson's waiters hang here.
#[tokio::test]
async fn a_latch_that_is_deleted_opens() {
    let server = Server::start().await;
    let client = without_polls(&server.url()).await;
    let ready = client.count_down_latch("ready");
    assert!(!ready.delete().await.unwrap());
    for by_redisson in [false, true] {
        ready.try_set_count(3).await.unwrap();
        let waits = tokio::spawn({
            let ready = ready.clone();
            async move { ready.wait().await }
        });
        a_task_waits(&server, CHANNEL).await;
        if by_redisson {
            let _: i64 = server.command(&["DEL", "ready"]).await;
            let _: i64 = server.command(&["PUBLISH", CHANNEL, "1"]).await;
        } else {
            assert!(ready.delete().await.unwrap());
        }
        timeout(SOON, waits).await.unwrap().unwrap().unwrap();
        no_client_listens(&server, CHANNEL).await;
    }
}

#[tokio::test]
async fn data_that_is_no_latch_is_refused_and_left_alone() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    let _: i64 = server.command(&["HSET", "hash", "a", "1"]).await;
    let _: String = server.command(&["SET", "text", "many"]).await;
    for name in ["hash", "text"] {
        let latch = client.count_down_latch(name);
        let wrong = [
            latch.delete().await.map(drop),
            latch.count_down().await,
            latch.try_set_count(1).await.map(drop),
            latch.count().await.map(drop),
            latch.wait().await,
        ];
        for wrong in wrong {
            assert!(matches!(wrong, Err(Error::WrongKind { .. })), "{wrong:?}");
        }
        assert!(server.command::<bool>(&["EXISTS", name]).await);
    }
}

/// Lua cannot represent this number exactly, and Redisson can.
#[tokio::test]
async fn a_latch_of_the_largest_count_is_closed() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    let ready = client.count_down_latch("ready");
    let most = i64::MAX as u64;
    for odd in [most + 1, u64::MAX] {
        let error = ready.try_set_count(odd).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
    }
    assert!(ready.try_set_count(most).await.unwrap());
    assert_eq!(ready.count().await, Ok(most));
    assert!(stays_closed(&ready, Duration::ZERO).await);
    let wait = Duration::from_millis(50);
    assert!(stays_closed(&ready, wait).await);
    ready.count_down().await.unwrap();
    assert_eq!(ready.count().await, Ok(most - 1));
    assert!(ready.delete().await.unwrap());
}
