//! The lifetime of queue entries: of live waiters, of dead ones, of Redisson's, and of entries
//! without a score.

use std::time::{Duration, SystemTime};

use redisson_lock::LockClient;
use testbed::eventually;
use tokio::time::timeout;

use super::{Line, PATIENCE, PLACE, brisk, inside, unlock};
use crate::witness::{Monitor, SOON, connect, let_pass};

/// Waiters of a dead process: their runtime ends, and the server receives nothing.
async fn dead_waiters(line: &Line, count: usize) -> Vec<String> {
    let (url, name) = (line.witness.server.url(), line.name.clone());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let started = runtime.spawn(async move {
        let client = connect(&url, brisk()).await;
        for _ in 0..count {
            let lock = client
                .fair_lock(&name)
                .owned_by(&redisson_lock::Owner::new());
            tokio::spawn(async move { lock.lock().await.map(drop) });
        }
        client
    });
    let client: LockClient = started.await.unwrap();
    eventually("the tasks wait", SOON, async || {
        line.waiting().await.len() == count
    })
    .await;
    runtime.shutdown_background();
    drop(client);
    line.waiting().await
}

/// A dead waiter of Redisson blocks a free lock for 300 s (330 s measured). Entries of this crate
/// are short.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_f1_dead_waiters_of_this_crate_delay_by_seconds() {
    let line = Line::new().await;
    let guard = line.held().await;
    let dead = dead_waiters(&line, 3).await;
    let client = line.witness.client(brisk()).await;
    let (alive, waiter) = line.join(&client).await;
    unlock(guard).await;
    assert!(
        line.waiting().await.contains(&dead[0]),
        "the dead head keeps its entry at first"
    );
    unlock(inside("the waiter behind three dead ones", waiter).await).await;
    assert!(!line.waiting().await.contains(&alive));
    line.nothing_left().await;
}

/// The same for an entry behind one of Redisson's, which gives it a high score.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_f1_a_dead_waiter_of_this_crate_behind_redissons_delays_by_seconds() {
    let line = Line::new().await;
    let guard = line.held().await;
    let java = line.java_joins(1, PATIENCE).await;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = connect(&line.witness.server.url(), brisk()).await;
    let (url, name) = (line.witness.server.url(), line.name.clone());
    runtime.spawn(async move {
        let client = connect(&url, brisk()).await;
        client.fair_lock(name).lock().await.map(drop)
    });
    eventually("the task waits", SOON, async || {
        line.waiting().await.len() == 2
    })
    .await;
    runtime.shutdown_background();
    let dead = line.waiting().await.pop().unwrap();
    let until = line.score(&dead).await.unwrap() - line.witness.now().await;
    assert!(
        until > PATIENCE / 2,
        "the entry must outlast Redisson's: {until}"
    );
    // Redisson's waiter leaves, without the reduction of the other scores.
    let () = line.witness.ask(&["ZREM", &line.places, &java]).await;
    let () = line.witness.ask(&["LREM", &line.queue, "0", &java]).await;
    let (_, waiter) = line.join(&client).await;
    unlock(guard).await;
    unlock(inside("the waiter behind a dead one", waiter).await).await;
    line.nothing_left().await;
}

/// Redisson's timeout holds for its waiters, dead or alive.
#[tokio::test]
async fn p_f1_a_dead_waiter_of_redissons_is_honoured_to_its_score() {
    let line = Line::new().await;
    let java = line.java_joins(1, 3000).await;
    let until = line.score(&java).await.unwrap();
    let client = line.witness.client(brisk()).await;
    let guard = timeout(SOON, line.lock(&client).lock()).await;
    let guard = guard.expect("the dead waiter's entry has expired").unwrap();
    let now = line.witness.now().await;
    assert!(now >= until, "{} ms too early", until - now);
    unlock(guard).await;
    line.nothing_left().await;
}

/// Expired entries stay while the lock is held.
#[tokio::test]
async fn p_f1_no_place_ends_while_the_lock_is_held() {
    let line = Line::new().await;
    let guard = line.held().await;
    let java = line.java_joins(1, -1000).await;
    let client = line.witness.client(brisk()).await;
    let (ours, waiter) = line.join(&client).await;
    assert_eq!(line.waiting().await, [&*java, &*ours]);
    unlock(guard).await;
    // The waiter's turn begins with the release, however long it has waited.
    assert_eq!(line.waiting().await, [&*java, &*ours]);
    assert!(line.java_enters(&java).await);
    line.java_leaves().await;
    unlock(inside("the next waiter", waiter).await).await;
    line.nothing_left().await;
}

/// Redisson answers each poll with "0 ms" here, and its clients spin.
#[tokio::test]
async fn p_f2_no_waiter_spins_behind_a_dead_head_of_a_free_lock() {
    let line = Line::new().await;
    line.java_joins(1, 60_000).await;
    let client = line.witness.a_client().await;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(line.join(&client).await);
    }
    line.witness.server.reset_calls().await;
    let before = line.witness.now().await;
    let_pass(Duration::from_secs(6)).await;
    let (scripts, after) = (line.witness.scripts().await, line.witness.now().await);
    let seconds = (after - before) as u64 / 1000;
    assert!(scripts > 0, "the waiters must poll");
    assert!(scripts < 10 * seconds, "{scripts} scripts in {seconds} s");
    waiters.iter().for_each(|(_, waiter)| waiter.abort());
}

/// A head without a live waiter, whose entry ends soon or has ended.
#[tokio::test]
async fn p_f2_short_places_make_no_waiter_spin_either() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let head = line.java_joins(1, 60_000).await;
    let (_, waiter) = line.join(&client).await;
    let soon = (line.witness.now().await + 300).to_string();
    let () = line
        .witness
        .ask(&["ZADD", &line.places, &soon, &head])
        .await;
    line.witness.server.reset_calls().await;
    let before = line.witness.now().await;
    unlock(inside("the waiter behind the dead head", waiter).await).await;
    let (scripts, after) = (line.witness.scripts().await, line.witness.now().await);
    let allowed = 10 + 10 * (after - before) / 1000;
    assert!((scripts as i64) < allowed, "{scripts} of {allowed} scripts");
}

/// Redisson sends its own time. A clock that is 11 minutes ahead empties the queue (measured).
#[tokio::test]
async fn p_f3_scores_use_the_servers_clock_only() {
    let line = Line::new().await;
    let mut monitor = Monitor::start(line.witness.server.port()).await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    let (entry, waiter) = line.join(&client).await;
    let before = line.witness.now().await;
    let score = line.score(&entry).await.unwrap();
    assert!(
        score > before && score <= before + PLACE,
        "{score} at {before}"
    );
    unlock(guard).await;
    unlock(inside("the next waiter", waiter).await).await;
    let (_, quitter) = {
        let _guard = line.held().await;
        line.join(&client).await
    };
    quitter.abort();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap().as_millis() as u64;
    let (mut scripts, day) = (0, 24 * 3600 * 1000);
    for line in monitor.lines().await {
        // The log also shows commands within scripts, where the server's time is right.
        let sent = line.contains("\"EVALSHA\"") || line.contains("\"EVAL\"");
        if !sent || line.contains(" lua]") {
            continue;
        }
        scripts += 1;
        let words = line.split('"').filter_map(|word| word.parse::<u64>().ok());
        let times: Vec<u64> = words.filter(|word| word.abs_diff(now) < day).collect();
        assert!(times.is_empty(), "{times:?} in {line}");
    }
    assert!(scripts >= 6, "only {scripts} scripts were logged");
}

/// An entry without a score blocks Redisson's queue for ever.
#[tokio::test]
async fn p_f4_an_entry_without_score_at_the_head_gets_one_that_ends() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    for ghost in [
        "33333333-3333-4333-8333-333333333333:1",
        "",
        "what is this?",
    ] {
        let () = line.witness.ask(&["RPUSH", &line.queue, ghost]).await;
        let guard = timeout(SOON, line.lock(&client).lock()).await;
        unlock(guard.expect("the waiter acquires the lock").unwrap()).await;
        line.nothing_left().await;
    }
}

#[tokio::test]
async fn p_f4_an_entry_without_score_in_the_middle_gets_one_that_ends() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    let (first, first_waiter) = line.join(&client).await;
    let ghost = "33333333-3333-4333-8333-333333333333:1";
    let () = line.witness.ask(&["RPUSH", &line.queue, ghost]).await;
    let (last, last_waiter) = line.join(&client).await;
    assert_eq!(line.waiting().await, [&*first, ghost, &*last]);
    unlock(guard).await;
    unlock(inside("the first waiter", first_waiter).await).await;
    unlock(inside("the waiter behind an entry without a score", last_waiter).await).await;
    line.nothing_left().await;
}

/// An entry of this crate that loses its score gets a new one in the same place, and overtakes no
/// waiter.
#[tokio::test]
async fn p_f4_an_entry_of_this_crate_that_loses_its_score_keeps_its_place() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    let mut waiters = Vec::new();
    for _ in 0..4 {
        waiters.push(line.join(&client).await);
    }
    let entries: Vec<String> = waiters.iter().map(|(entry, _)| entry.clone()).collect();
    let has_score = async |entry: &str| line.score(entry).await.is_some();
    for lost in [3, 1, 2, 0] {
        let entry = &entries[lost];
        let () = line.witness.ask(&["ZREM", &line.places, entry]).await;
        eventually("the entry has a score again", SOON, async || {
            has_score(entry).await
        })
        .await;
        assert_eq!(line.waiting().await, entries, "entry {lost} has moved");
    }
    let () = line.witness.ask(&["DEL", &line.places]).await;
    for entry in &entries {
        eventually("the entry has a score again", SOON, async || {
            has_score(entry).await
        })
        .await;
    }
    assert_eq!(line.waiting().await, entries, "the order has changed");
    unlock(guard).await;
    for (_, waiter) in waiters {
        unlock(inside("the waiter gets the lock", waiter).await).await;
    }
    line.nothing_left().await;
}

/// The queue is deleted, and the scores are not.
#[tokio::test]
async fn p_f4_waiters_whose_queue_is_gone_come_back() {
    let line = Line::new().await;
    let client = line.witness.client(brisk()).await;
    let guard = line.held().await;
    let (entry, waiter) = line.join(&client).await;
    let () = line.witness.ask(&["DEL", &line.queue]).await;
    let (other, other_waiter) = line.join(&client).await;
    let both = async || {
        let waiting = line.waiting().await;
        waiting.contains(&entry) && waiting.contains(&other)
    };
    eventually("both are in the queue", SOON, both).await;
    unlock(guard).await;
    for waiter in [other_waiter, waiter] {
        // The waiters acquire the lock in any order.
        tokio::spawn(async move { unlock(inside("the waiter gets the lock", waiter).await).await });
    }
    line.nothing_left().await;
}
