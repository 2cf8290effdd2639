//! A waiter that stops waiting leaves the queue, in whichever way it stops, and costs the other
//! waiters nothing.

use std::time::Duration;

use redisson_lock::{Error, LockClient, Owner};
use testbed::{Proxy, eventually};
use tokio::time::timeout;

use super::{Line, PATIENCE, brisk, inside, unlock};
use crate::witness::{SOON, busy_at_worst, connect, done, poll_and_drop, polling};

/// Long enough for two attempts, and short enough for the test.
const SHORT: Duration = Duration::from_millis(60);

/// A waiter of Redisson that times out lowers the scores of all later entries, so that repeated
/// timeouts evict live waiters (measured).
#[tokio::test]
async fn p_f5_a_waiter_that_leaves_changes_no_other_score() {
    let line = Line::new().await;
    // No waiter polls while this test compares scores.
    let client = line.witness.client(polling(SOON)).await;
    let guard = line.held().await;
    let (first, first_waiter) = line.join(&client).await;
    let (middle, middle_waiter) = line.join(&client).await;
    let java = line.java_joins(1, 2 * PATIENCE).await;
    let (last, last_waiter) = line.join(&client).await;
    let before = line.scores().await;
    for _ in 0..20 {
        let tried = line.lock(&client).try_lock_for(SHORT).await;
        assert!(busy_at_worst(tried).is_none());
    }
    eventually("the waiters have left", SOON, async || {
        line.waiting().await.len() == 4
    })
    .await;
    assert_eq!(line.scores().await, before);
    middle_waiter.abort();
    eventually("the waiter has left", SOON, async || {
        line.waiting().await.len() == 3
    })
    .await;
    let mut rest = before;
    rest.retain(|(entry, _)| *entry != middle);
    assert_eq!(line.scores().await, rest);
    assert_eq!(line.waiting().await, [&*first, &*java, &*last]);
    unlock(guard).await;
    unlock(inside("the first waiter", first_waiter).await).await;
    assert!(line.java_enters(&java).await);
    line.java_leaves().await;
    unlock(inside("the last waiter", last_waiter).await).await;
    line.nothing_left().await;
}

/// The head leaves a free lock and notifies the next waiter: the release notified only the head.
#[tokio::test]
async fn p_f5_a_head_that_leaves_notifies_the_next_waiter() {
    let line = Line::new().await;
    let client = line.witness.client(polling(SOON * 10)).await;
    let guard = line.held().await;
    let (head, head_waiter) = line.join(&client).await;
    let (_, next_waiter) = line.join(&client).await;
    // The head receives no message.
    let () = line.witness.ask(&["DEL", &line.name]).await;
    drop(guard);
    assert_eq!(line.waiting().await[0], head);
    head_waiter.abort();
    unlock(inside("the next waiter", next_waiter).await).await;
    line.nothing_left().await;
}

/// The script that removes the entry is lost, or its reply is, with the connection.
#[tokio::test]
async fn p_f6_a_lost_removal_of_an_entry_is_repeated() {
    let line = Line::new().await;
    let proxy = Proxy::start(line.witness.server.port()).await;
    let client = connect(&proxy.url(), polling(SOON)).await;
    let faults = proxy.faults();
    let guard = line.held().await;
    for lost in 1..=3 {
        for reply in [false, true] {
            let (entry, waiter) = line.join(&client).await;
            faults.only(Some(entry));
            if reply {
                faults.lose_next_reply();
            } else {
                faults.lose_next_request();
            }
            waiter.abort();
            eventually("the queue is empty", SOON, async || {
                line.waiting().await.is_empty() && line.scores().await.is_empty()
            })
            .await;
            // The queue may be empty before the proxy has had the reply.
            eventually("the proxy has lost it", SOON, async || {
                let count = if reply {
                    faults.lost_replies()
                } else {
                    faults.lost_requests()
                };
                count == lost
            })
            .await;
            faults.heal();
        }
    }
    unlock(guard).await;
    line.nothing_left().await;
}

/// The entry stays while the server cannot be reached, and is removed once it can.
#[tokio::test]
async fn p_f6_the_removal_of_an_entry_waits_for_the_connection() {
    let line = Line::new().await;
    let proxy = Proxy::start(line.witness.server.port()).await;
    let client = connect(&proxy.url(), polling(SOON)).await;
    let guard = line.held().await;
    let (entry, waiter) = line.join(&client).await;
    proxy.faults().refuse(true);
    proxy.faults().cut_all();
    eventually("the proxy has cut all", SOON, async || {
        proxy.faults().connections() == 0
    })
    .await;
    waiter.abort();
    assert!(done_or_cancelled(waiter).await);
    assert_eq!(line.waiting().await, [&*entry]);
    proxy.faults().refuse(false);
    eventually("the queue is empty", SOON, async || {
        line.waiting().await.is_empty()
    })
    .await;
    unlock(guard).await;
    line.nothing_left().await;
}

async fn done_or_cancelled<T>(task: tokio::task::JoinHandle<T>) -> bool {
    let ended = timeout(SOON, task).await;
    ended
        .expect("the task ends in time")
        .is_err_and(|error| error.is_cancelled())
}

/// Futures dropped at every await point, with the lock held and free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_f6_dropped_futures_leave_no_entry() {
    let line = Line::new().await;
    let proxy = Proxy::start(line.witness.server.port()).await;
    proxy.faults().delay(Duration::from_millis(1));
    let client = connect(&proxy.url(), polling(SOON)).await;
    for held in [true, false] {
        let guard = match held {
            true => Some(line.held().await),
            false => None,
        };
        for polls in 0..10 {
            let (one, same) = (line.lock(&client), line.lock(&client));
            let _ = timeout(SHORT, poll_and_drop(one.lock(), polls)).await;
            let _ = timeout(SHORT, poll_and_drop(same.try_lock_for(SHORT), polls)).await;
            // The owner tries again while its last entry is being removed, and stays a little
            // longer.
            let _ = timeout(SHORT, poll_and_drop(same.lock(), polls)).await;
            let _ = timeout(SHORT, poll_and_drop(same.lock(), polls + 1)).await;
        }
        eventually("the queue is empty", SOON, async || {
            line.waiting().await.is_empty() && line.scores().await.is_empty()
        })
        .await;
        if let Some(guard) = guard {
            unlock(guard).await;
        }
    }
    line.nothing_left().await;
}

/// A wait that ends with an error.
#[tokio::test]
async fn p_f6_waits_that_fail_leave_no_entry() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    let (_, waiter) = line.join(&client).await;
    let () = line.witness.ask(&["SET", &line.name, "a string"]).await;
    let failed = done("the waiter polls", waiter).await;
    assert!(matches!(failed, Err(Error::WrongKind { .. })), "{failed:?}");
    drop(guard);
    eventually("the queue is empty", SOON, async || {
        line.waiting().await.is_empty() && line.scores().await.is_empty()
    })
    .await;
}

/// `shutdown` returns after all queue entries of the client are removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_f6_a_shutdown_leaves_no_entry() {
    let line = Line::new().await;
    let guard = line.held().await;
    for _ in 0..5 {
        let client: LockClient = line.witness.client(polling(SOON)).await;
        let mut waiters = Vec::new();
        for _ in 0..40 {
            let lock = line.lock(&client);
            waiters.push(tokio::spawn(async move { lock.lock().await.map(drop) }));
        }
        eventually("the tasks wait", SOON, async || {
            line.waiting().await.len() == 40
        })
        .await;
        let report = client.shutdown().await;
        assert_eq!(report.unreleased, []);
        let left = line.waiting().await.len();
        assert_eq!(left, 0, "entries are left in the queue");
        for waiter in waiters {
            let ended = done("the waiter ends", waiter).await;
            assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
        }
    }
    unlock(guard).await;
    line.nothing_left().await;
}

/// Two waits of one owner share an entry, which stays as long as one of them waits.
#[tokio::test]
async fn p_f6_the_entry_of_two_waits_stays_for_the_second() {
    let line = Line::new().await;
    let client = line.witness.client(polling(SOON)).await;
    let guard = line.held().await;
    let owner = Owner::new();
    let lock = client.fair_lock(&line.name).owned_by(&owner);
    let twin = lock.clone();
    let first = tokio::spawn(async move { twin.lock().await });
    eventually("the task waits", SOON, async || {
        line.waiting().await.len() == 1
    })
    .await;
    let second = tokio::spawn(async move { lock.lock().await });
    eventually("both waits have sent attempts", SOON, async || {
        line.witness.scripts().await >= 5
    })
    .await;
    first.abort();
    assert!(done_or_cancelled(first).await);
    let (_, behind) = line.join(&client).await;
    assert_eq!(line.waiting().await[0], format!("{}:{owner}", client.id()));
    unlock(guard).await;
    unlock(inside("the second wait of the owner", second).await).await;
    unlock(inside("the waiter behind", behind).await).await;
    line.nothing_left().await;
}
