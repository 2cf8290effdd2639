//! Whose turn it is: first come, first served, however long it takes and whatever stands between.

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
        inside_now = inside("the waiter is next", waiter).await;
    }
    unlock(inside_now).await;
    line.nothing_left().await;
}

/// A try without a wait does not overtake either.
#[tokio::test]
async fn trying_once_overtakes_no_waiter_and_takes_no_place() {
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

/// P-F8: the hold lasts longer than the places of the waiters.
#[tokio::test]
async fn p_f8_a_long_hold_costs_no_waiter_its_place() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        waiters.push(line.join(&client).await);
    }
    let entries: Vec<String> = waiters.iter().map(|(entry, _)| entry.clone()).collect();
    let long = Duration::from_millis(3 * PLACE as u64);
    always("all are there, in order", long, async || {
        line.waiting().await == entries
    })
    .await;
    let mut inside_now = guard;
    for (number, (_, waiter)) in waiters.into_iter().enumerate() {
        unlock(inside_now).await;
        inside_now = inside("the waiter is next", waiter).await;
        assert_eq!(line.waiting().await, entries[number + 1..]);
    }
    unlock(inside_now).await;
    line.nothing_left().await;
}

/// The same with waiters of Redisson's between ours: each that enters takes 300 s off the scores of the rest.
#[tokio::test]
async fn p_f8_redissons_grants_cost_ours_no_place() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    // Two of Redisson's in a row, and ours at all places; Redisson adds up what is before it.
    let (first, first_waiter) = line.join(&client).await;
    let one = line.java_joins(1, 2 * PATIENCE).await;
    let two = line.java_joins(2, 3 * PATIENCE).await;
    let (second, second_waiter) = line.join(&client).await;
    let (third, third_waiter) = line.join(&client).await;
    let three = line.java_joins(3, 5 * PATIENCE).await;
    let (fourth, fourth_waiter) = line.join(&client).await;
    let all = [&first, &one, &two, &second, &third, &three, &fourth].map(String::clone);
    let long = Duration::from_millis(2 * PLACE as u64);
    always("all are there, in order", long, async || {
        line.waiting().await == all
    })
    .await;
    unlock(guard).await;
    unlock(inside("the waiter is first", first_waiter).await).await;
    let keep_places = async || {
        let now = line.witness.now().await;
        for entry in [&second, &third, &fourth] {
            let score = line.score(entry).await;
            assert!(score > Some(now), "{score:?} at {now}: Redisson removes it");
        }
        assert!(line.waiting().await.ends_with(&all[3..]), "some are gone");
    };
    for java in [&one, &two] {
        assert!(line.java_enters(java).await);
        // At once, and not only when they have asked again.
        keep_places().await;
        let_pass(Duration::from_millis(PLACE as u64 / 2)).await;
        keep_places().await;
        line.java_leaves().await;
    }
    unlock(inside("the waiter is next", second_waiter).await).await;
    unlock(inside("the waiter is next", third_waiter).await).await;
    assert!(line.java_enters(&three).await);
    line.java_leaves().await;
    unlock(inside("the waiter is last", fourth_waiter).await).await;
    line.nothing_left().await;
}

/// Redisson's waiters may have been given more patience than our settings say: ours are then evicted, and come back.
#[tokio::test]
async fn a_waiter_that_redisson_evicts_comes_back_to_its_place() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    let (ours, waiter) = line.join(&client).await;
    let (behind, behind_waiter) = line.join(&client).await;
    let words = ["EVAL", EVICT, "2", &line.queue, &line.places, &ours];
    let () = line.witness.ask(&words).await;
    eventually("it is back", SOON, async || {
        line.waiting().await == [&*ours, &*behind]
    })
    .await;
    unlock(guard).await;
    unlock(inside("the waiter is first", waiter).await).await;
    unlock(inside("the waiter is second", behind_waiter).await).await;
    line.nothing_left().await;
}

const EVICT: &str = "redis.call('zrem', KEYS[2], ARGV[1]); redis.call('lrem', KEYS[1], 0, ARGV[1])";

/// P-F7: Redisson reports success.
#[tokio::test]
async fn p_f7_an_unlock_of_a_lost_lock_is_lost() {
    let line = Line::new().await;
    let client = line.witness.client(only_messages()).await;
    let gone = async |guard: redisson_lock::Guard<redisson_lock::Fair>| {
        let unlocked = guard.unlock().await;
        assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    };
    // No waiter; one waiter; another owner is in.
    let guard = line.held().await;
    let () = line.witness.ask(&["DEL", &line.name]).await;
    gone(guard).await;

    let guard = line.held().await;
    let java = line.java_joins(1, 60_000).await;
    let () = line.witness.ask(&["DEL", &line.name]).await;
    gone(guard).await;
    assert_eq!(line.waiting().await, [&*java], "and its place is its own");
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
    unlock(inside("it was told", waiter).await).await;
    line.nothing_left().await;
}
