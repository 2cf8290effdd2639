//! First come, first served, however long it takes and whichever entries are in between.

use std::time::Duration;

use redisson_lock::Error;
use testbed::eventually;

use super::{Line, PATIENCE, PLACE, brisk, inside, unlock};
use crate::witness::{SOON, always, let_pass, only_messages};

#[tokio::test]
async fn waiters_of_two_clients_enter_in_the_order_in_which_they_came() {
    let line = Line::new().await;
    let clients = [
        line.witness.client(only_messages()).await,
        line.witness.client(only_messages()).await,
    ];
    let guard = line.held().await;
    let mut waiters = Vec::new();
    for number in 0..8 {
        waiters.push(line.join(&clients[number / 2 % 2]).await);
    }
    let mut inside_now = guard;
    for (entry, waiter) in waiters {
        assert_eq!(line.waiting().await.first(), Some(&entry));
        unlock(inside_now).await;
        inside_now = inside("the next waiter", waiter).await;
    }
    unlock(inside_now).await;
    line.nothing_left().await;
}

/// An attempt without a wait does not overtake either.
#[tokio::test]
async fn try_lock_overtakes_no_waiter_and_leaves_no_entry() {
    let line = Line::new().await;
    let client = line.witness.a_client().await;
    let java = line.java_joins(1, 60_000).await;
    assert!(line.lock(&client).try_lock().await.unwrap().is_none());
    assert_eq!(line.waiting().await, [&*java]);
    assert_eq!(line.scores().await.len(), 1);
    assert!(line.java_enters(&java).await);
    assert!(line.lock(&client).try_lock().await.unwrap().is_none());
    line.java_leaves().await;
    unlock(line.lock(&client).try_lock().await.unwrap().expect("free")).await;
    line.nothing_left().await;
}

/// P-F8: a hold that lasts longer than the waiters' entries.
#[tokio::test]
async fn p_f8_a_long_hold_evicts_no_waiter() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        waiters.push(line.join(&client).await);
    }
    let entries: Vec<String> = waiters.iter().map(|(entry, _)| entry.clone()).collect();
    let long = Duration::from_millis(3 * PLACE as u64);
    always("all entries are in order", long, async || {
        line.waiting().await == entries
    })
    .await;
    let mut inside_now = guard;
    for (number, (_, waiter)) in waiters.into_iter().enumerate() {
        unlock(inside_now).await;
        inside_now = inside("the next waiter", waiter).await;
        assert_eq!(line.waiting().await, entries[number + 1..]);
    }
    unlock(inside_now).await;
    line.nothing_left().await;
}

/// The same with entries of Redisson in between: each of its grants lowers the other scores by 300
/// s.
#[tokio::test]
async fn p_f8_redissons_grants_evict_no_waiter_of_this_crate() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    // Two of Redisson's in a row, and this crate's before, between and after. Redisson's score
    // includes all earlier waits.
    let (first, first_waiter) = line.join(&client).await;
    let one = line.java_joins(1, 2 * PATIENCE).await;
    let two = line.java_joins(2, 3 * PATIENCE).await;
    let (second, second_waiter) = line.join(&client).await;
    let (third, third_waiter) = line.join(&client).await;
    let three = line.java_joins(3, 5 * PATIENCE).await;
    let (fourth, fourth_waiter) = line.join(&client).await;
    let all = [&first, &one, &two, &second, &third, &three, &fourth].map(String::clone);
    let long = Duration::from_millis(2 * PLACE as u64);
    always("all entries are in order", long, async || {
        line.waiting().await == all
    })
    .await;
    unlock(guard).await;
    unlock(inside("the first waiter", first_waiter).await).await;
    let keep_places = async || {
        let now = line.witness.now().await;
        for entry in [&second, &third, &fourth] {
            let score = line.score(entry).await;
            assert!(
                score > Some(now),
                "{score:?} at {now}: Redisson would remove the entry"
            );
        }
        assert!(
            line.waiting().await.ends_with(&all[3..]),
            "entries are missing"
        );
    };
    for java in [&one, &two] {
        assert!(line.java_enters(java).await);
        // The scores are right at once, and not only after the next poll.
        keep_places().await;
        let_pass(Duration::from_millis(PLACE as u64 / 2)).await;
        keep_places().await;
        line.java_leaves().await;
    }
    unlock(inside("the second waiter", second_waiter).await).await;
    unlock(inside("the third waiter", third_waiter).await).await;
    assert!(line.java_enters(&three).await);
    line.java_leaves().await;
    unlock(inside("the last waiter", fourth_waiter).await).await;
    line.nothing_left().await;
}

/// Redisson's waiters may have a longer timeout than this client's settings assume. This client's
/// entry is then evicted, and restored in its place.
#[tokio::test]
async fn a_waiter_that_redisson_evicts_comes_back_to_its_place() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    let (ours, waiter) = line.join(&client).await;
    let (behind, behind_waiter) = line.join(&client).await;
    let words = ["EVAL", EVICT, "2", &line.queue, &line.places, &ours];
    let () = line.witness.ask(&words).await;
    eventually("the entry is back", SOON, async || {
        line.waiting().await == [&*ours, &*behind]
    })
    .await;
    unlock(guard).await;
    unlock(inside("the first waiter", waiter).await).await;
    unlock(inside("the second waiter", behind_waiter).await).await;
    line.nothing_left().await;
}

const EVICT: &str = "redis.call('zrem', KEYS[2], ARGV[1]); redis.call('lrem', KEYS[1], 0, ARGV[1])";

/// P-F7: Redisson's `unlock` reports success.
#[tokio::test]
async fn p_f7_an_unlock_of_a_lost_lock_is_lost() {
    let line = Line::new().await;
    let client = line.witness.client(only_messages()).await;
    let gone = async |guard: redisson_lock::Guard<redisson_lock::Fair>| {
        let unlocked = guard.unlock().await;
        assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    };
    // Without a waiter, with one, with another owner inside, and after `force_unlock`.
    let guard = line.held().await;
    let () = line.witness.ask(&["DEL", &line.name]).await;
    gone(guard).await;

    let guard = line.held().await;
    let java = line.java_joins(1, 60_000).await;
    let () = line.witness.ask(&["DEL", &line.name]).await;
    gone(guard).await;
    assert_eq!(line.waiting().await, [&*java], "the waiter keeps its entry");
    assert!(line.java_enters(&java).await);
    line.java_leaves().await;

    let guard = line.held().await;
    let () = line.witness.ask(&["DEL", &line.name]).await;
    let other = line.lock(&client).lock().await.unwrap();
    gone(guard).await;
    assert!(!other.is_lost());
    unlock(other).await;

    let guard = line.held().await;
    let (_, waiter) = line.join(&client).await;
    assert!(client.fair_lock(&line.name).force_unlock().await.unwrap());
    gone(guard).await;
    unlock(inside("the notified waiter", waiter).await).await;
    line.nothing_left().await;
}
