//! The gauges of the oldest hold and wait: a stuck lock shows while it is stuck, and not only when it ends.

use std::time::Duration;

use redisson_lock::{Config, Guard, LockClient, Owner, Reentrant};
use redisson_lock_test::InMemoryRedis;
use tokio::time::sleep;

use super::{page::Page, two};

/// The look after the next one is over.
const SEEN: Duration = Duration::from_secs(10);

fn oldest(page: &Page, what: &str, labels: &str) -> f64 {
    page.number(&format!("redisson_lock_oldest_{what}_seconds{{{labels}}}"))
}

async fn held_by(client: &LockClient, owner: Owner, name: &str) -> Guard<Reentrant> {
    let lock = client.reentrant_lock(name).owned_by(&owner);
    lock.lock().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stuck_lock_shows_as_an_old_hold_and_an_old_wait() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let (one, other) = two(&server).await;
    let reentrant = "kind=\"reentrant\"";
    let stuck = held_by(&one, Owner::new(), "stuck").await;
    let waits = tokio::spawn(async move { other.reentrant_lock("stuck").lock().await });
    sleep(Duration::from_secs(300)).await;
    // A younger hold hides no older one, and each kind has a series.
    let younger = held_by(&one, Owner::new(), "young").await;
    let fenced = one.fenced_lock("led").lock().await.unwrap();
    sleep(SEEN).await;
    for what in ["hold", "wait"] {
        let age = oldest(&page, what, reentrant);
        assert!((300.0..=310.0).contains(&age), "{what}: {age}");
    }
    let age = oldest(&page, "hold", "kind=\"fenced\"");
    assert!(age <= 10.0, "{age}");
    stuck.unlock().await.unwrap();
    let next = waits.await.unwrap().unwrap();
    sleep(SEEN).await;
    assert_eq!(oldest(&page, "wait", reentrant), 0.0);
    let age = oldest(&page, "hold", reentrant);
    assert!((10.0..=20.0).contains(&age), "{age}");
    for guard in [next, younger] {
        guard.unlock().await.unwrap();
    }
    fenced.unlock().await.unwrap();
    sleep(SEEN).await;
    assert_eq!(oldest(&page, "hold", reentrant), 0.0);
    // A client that had nothing to look at looks again.
    let _again = held_by(&one, Owner::new(), "again").await;
    sleep(Duration::from_secs(60)).await;
    assert!(oldest(&page, "hold", reentrant) >= 55.0);
}

/// A wait in the local queue, behind a task of the same client.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_task_of_the_same_client_shows() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let (one, _other) = two(&server).await;
    let _held = held_by(&one, Owner::new(), "a").await;
    let waits = tokio::spawn(async move { one.reentrant_lock("a").lock().await });
    sleep(Duration::from_secs(60)).await;
    let age = oldest(&page, "wait", "kind=\"reentrant\"");
    assert!((50.0..=60.0).contains(&age), "{age}");
    waits.abort();
}

/// The clients of a process share the series, as several of a RedLock do.
#[tokio::test(start_paused = true)]
async fn the_oldest_hold_of_several_clients_shows() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let (one, other) = two(&server).await;
    let old = held_by(&one, Owner::new(), "a").await;
    sleep(Duration::from_secs(100)).await;
    let young = held_by(&other, Owner::new(), "b").await;
    let reentrant = "kind=\"reentrant\"";
    for _ in 0..10 {
        sleep(Duration::from_secs(1)).await;
        assert!(oldest(&page, "hold", reentrant) >= 95.0);
    }
    // A client that is gone has no hold.
    old.unlock().await.unwrap();
    one.shutdown().await;
    drop(one);
    sleep(SEEN).await;
    assert!(oldest(&page, "hold", reentrant) < 30.0);
    young.unlock().await.unwrap();
    drop(other);
    sleep(SEEN).await;
    assert_eq!(oldest(&page, "hold", reentrant), 0.0);
}

/// A name is a label only if the client's configuration says so.
#[tokio::test(start_paused = true)]
async fn the_name_of_the_lock_is_a_label_on_request() {
    let (page, server) = (Page::new(), InMemoryRedis::new());
    let config = Config::default().with_lock_name_label(true);
    let named = server.client_with(config).await.unwrap();
    let plain = server.client().await.unwrap();
    let held = held_by(&named, Owner::new(), "order:42").await;
    let _other = held_by(&plain, Owner::new(), "secret").await;
    let waits = tokio::spawn({
        let lock = named.reentrant_lock("secret");
        async move { lock.lock().await }
    });
    sleep(SEEN).await;
    let order = "kind=\"reentrant\",name=\"order:42\"";
    assert!(oldest(&page, "hold", order) >= 5.0);
    let awaited = "kind=\"reentrant\",name=\"secret\"";
    assert!(oldest(&page, "wait", awaited) >= 5.0);
    let text = page.text();
    let holds = text.lines().filter(|line| line.contains("oldest_hold"));
    assert!(!holds.clone().any(|line| line.contains("secret")), "{text}");
    waits.abort();
    held.unlock().await.unwrap();
    sleep(SEEN).await;
    assert_eq!(oldest(&page, "hold", order), 0.0);
}
