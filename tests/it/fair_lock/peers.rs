//! Waiters of Redisson that sleep, because no message tells them that a lease expired (P-F10).

use std::time::Duration;

use super::{Line, inside, unlock};
use crate::witness::{Listener, SOON, polling};

const FLOOR: Duration = Duration::from_secs(1);

/// Redisson 3.27.0 sleeps for up to 300 s at the head of a free lock (measured).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_f10_a_sleeping_head_of_a_free_lock_is_notified_and_not_too_often() {
    const WAITERS: usize = 2;
    let line = Line::new().await;
    let client = line.witness.client(polling(FLOOR)).await;
    let java = line.java_joins(1, 60_000).await;
    let mut sleeper = Listener::on(&line.witness.server, &line.channel(&java)).await;
    let before = line.witness.now().await;
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(line.join(&client).await);
    }
    let mut heard = Vec::new();
    while heard.len() < 3 * WAITERS {
        heard.extend(sleeper.messages().await);
        let now = line.witness.now().await;
        assert!(now - before < SOON.as_millis() as i64, "only {heard:?}");
        let floors = (now - before) as u128 / FLOOR.as_millis() + 1;
        let most = WAITERS * floors as usize;
        assert!(heard.len() <= most, "{} in {floors} s", heard.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(heard.iter().all(|message| message == "0"), "{heard:?}");
    // The sleeper wakes up.
    drop(sleeper);
    assert!(line.java_enters(&java).await);
    line.java_leaves().await;
    for (_, waiter) in waiters {
        unlock(inside("the next waiter", waiter).await).await;
    }
    line.nothing_left().await;
}

/// A waiter of Redisson sleeps behind a lease that expires, with a waiter of this crate behind it.
#[tokio::test]
async fn p_f10_a_head_whose_holder_died_is_notified() {
    let line = Line::new().await;
    let client = line.witness.client(polling(FLOOR)).await;
    let holder = line.lock(&client).with_lease(Duration::from_secs(2));
    let _guard = holder.lock().await.unwrap();
    let java = line.java_joins(1, 60_000).await;
    let mut sleeper = Listener::on(&line.witness.server, &line.channel(&java)).await;
    let (_, waiter) = line.join(&client).await;
    assert_eq!(sleeper.messages().await, [""; 0], "the lock is held");
    testbed::eventually("Redisson's waiter is notified", SOON, async || {
        !sleeper.messages().await.is_empty()
    })
    .await;
    assert!(
        !line.witness.exists(&line.name).await,
        "the notification came while the lock was held"
    );
    drop(sleeper);
    assert!(line.java_enters(&java).await);
    line.java_leaves().await;
    unlock(inside("the next waiter", waiter).await).await;
    line.nothing_left().await;
}

/// An attempt without a wait sends no notification, however often it comes.
#[tokio::test]
async fn p_f10_try_lock_notifies_no_waiter() {
    let line = Line::new().await;
    let client = line.witness.client(polling(FLOOR)).await;
    let java = line.java_joins(1, 60_000).await;
    let mut sleeper = Listener::on(&line.witness.server, &line.channel(&java)).await;
    for _ in 0..20 {
        assert!(line.lock(&client).try_lock().await.unwrap().is_none());
    }
    assert_eq!(sleeper.messages().await, [""; 0]);
}
