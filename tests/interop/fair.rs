//! The queue of a fair lock: the waiters of both languages share it.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use testbed::{Peer, eventually};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::stage::{AMPLE, Case, LONG, Pace, Stage};
use crate::worker::{Lock, Worker};

/// The lifetime of a dead Redisson waiter's entry, which is its wait limit.
const LIMIT: Duration = Duration::from_secs(4);

/// Four waiters of each language, in turns.
pub async fn all_waiters_enter_in_order(case: Case) {
    let stage = case.stage().await;
    for (holder, other) in stage.both_ways(case.kind) {
        let queue = Queue::behind(&stage, &holder, LONG).await;
        let queue = queue.of(&[other.peer, holder.peer].repeat(4)).await;
        let (owners, scores) = (queue.owners().await, queue.scores().await);
        assert_eq!(owners.len(), 8);
        let scored = owners.iter().filter(|owner| scores.contains_key(*owner));
        assert_eq!(
            (scored.count(), scores.len()),
            (8, 8),
            "each entry has a score"
        );
        queue.moves_up(&[0, 1, 2, 3, 4, 5, 6, 7]).await;
    }
}

/// A waiter of each language times out, and a Rust waiter is dropped, with further waiters behind.
/// A thread that is interrupted in Java stays in the queue, in all versions.
pub async fn a_waiter_that_leaves_changes_no_other_place(case: Case) {
    let stage = case.stage().await;
    for (holder, other) in stage.both_ways(case.kind) {
        let (one, two) = (holder.peer, other.peer);
        let limit = Duration::from_secs(3);
        let queue = Queue::behind(&stage, &holder, LONG).await;
        let queue = queue.of(&[one]).await;
        let quitters = [queue.lock.worker(two), queue.lock.worker(one)];
        let limits = quitters
            .each_ref()
            .map(|quitter| quitter.try_lock_for(limit));
        let [first, second] = limits;
        let (first, second, ()) = tokio::join!(first, second, queue.comes_to(3));
        assert!(!first.0 && !second.0, "both waits time out");
        queue.comes_to(1).await;
        let queue = queue.of(&[two, &stage.rust, one, two]).await;
        queue.waiters[2].interrupt().await;
        queue.leaves(2).await;
        queue.moves_up(&[0, 1, 3, 4]).await;
    }
}

/// The lock is free, and the head of the queue is a paused process that has not acquired it yet. A
/// newcomer queues behind it.
pub async fn a_slow_head_is_not_overtaken(case: Case) {
    let stage = case.version.own_stage(Pace::REDISSONS).await;
    for (holder, head) in stage.both_ways(case.kind) {
        let queue = Queue::behind(&stage, &holder, LONG).await;
        let queue = queue.of(&[head.peer]).await;
        signal(head.peer, "-STOP");
        holder.unlock().await;
        let newcomer = queue.lock.worker(holder.peer);
        let took = newcomer.try_lock().await;
        let (took_later, _) = newcomer.try_lock_for(Duration::from_millis(700)).await;
        signal(head.peer, "-CONT");
        assert!(!took && !took_later, "{newcomer} overtook {head}");
        queue.comes_up(0).await;
    }
}

fn signal(peer: &Peer, signal: &str) {
    let pid = peer.pid().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status();
    assert!(sent.expect("there is a `kill`").success());
}

/// An entry of this crate lasts 3 s here, an entry of Redisson as long as its wait.
pub async fn a_long_hold_leaves_all_waiters_in_order(case: Case) {
    let stage = case.version.own_stage(Pace::SHORT_PLACES).await;
    let (java, rust) = (&stage.java, &stage.rust);
    let holder = Lock::new(case.kind).worker(java);
    let queue = Queue::behind(&stage, &holder, LONG).await;
    let queue = queue.of(&[rust, java, rust, rust, java]).await;
    let places = Pace::SHORT_PLACES.max_poll_interval * 3;
    let before = queue.owners().await;
    tokio::time::sleep(places + Duration::from_secs(1)).await;
    assert_eq!(queue.owners().await, before);
    queue.moves_up(&[0, 1, 2, 3, 4]).await;
}

/// The head of the queue is killed. Its entry delays the other waiters for its lifetime, and no
/// longer.
pub async fn a_dead_rust_waiter_is_passed_over(case: Case) {
    let stage = case.version.own_stage(Pace::SHORT_PLACES).await;
    a_dead_waiter(&case, &stage, &stage.rust, &stage.java).await;
}

pub async fn a_dead_java_waiter_is_passed_over(case: Case) {
    let stage = case.version.own_stage(Pace::SHORT_PLACES).await;
    a_dead_waiter(&case, &stage, &stage.java, &stage.rust).await;
}

async fn a_dead_waiter(case: &Case, stage: &Stage, dies: &Peer, lives: &Peer) {
    let lock = Lock::new(case.kind);
    let holder = lock.worker(lives);
    // Redisson's entry lasts as long as its wait limit, and as the rest of the lease at its start.
    let queue = Queue::behind(stage, &holder, Pace::SHORT_PLACES.watchdog * 2).await;
    let dead = lock.worker(dies);
    let owner = dead.owner().await;
    let _unanswered = dead.ask("trylock", &[&LIMIT.as_millis().to_string()]);
    queue.comes_to(1).await;
    // Redisson before 3.45 relies on the entry before it as it first saw it. If the dead waiter
    // refreshed its entry after that, Redisson sleeps until a message wakes it.
    let counts_on_it = case.version.is_before(3, 45);
    if counts_on_it {
        dies.kill();
    }
    let next = lock.worker(lives);
    let inside = next.lock_for(LONG);
    queue.comes_to(2).await;
    assert_eq!(queue.owners().await[0], owner);
    if !counts_on_it {
        dies.kill();
    }
    holder.unlock().await;
    assert!(
        timeout(AMPLE, inside).await.is_ok(),
        "{next} stands behind a dead waiter"
    );
    assert_eq!(queue.owners().await, [] as [String; 0]);
    next.unlock().await;
}

/// The waiters of a lock, in order.
struct Queue<'a> {
    stage: &'a Stage,
    lock: Lock,
    holder: Worker<'a>,
    waiters: Vec<Worker<'a>>,
    inside: JoinSet<usize>,
}

impl<'a> Queue<'a> {
    async fn behind(stage: &'a Stage, holder: &Worker<'a>, lease: Duration) -> Self {
        holder.lock_for(lease).await;
        Self {
            stage,
            lock: holder.lock.clone(),
            holder: holder.with(holder.lock.kind),
            waiters: Vec::new(),
            inside: JoinSet::new(),
        }
    }

    async fn of(mut self, peers: &[&'a Peer]) -> Self {
        for peer in peers {
            self.join(peer).await;
        }
        self
    }

    /// A new waiter queues at the end.
    async fn join(&mut self, peer: &'a Peer) {
        let waiter = self.lock.worker(peer);
        let owner = waiter.owner().await;
        let answer = waiter.ask("lock", &[&LONG.as_millis().to_string()]);
        let number = self.waiters.len();
        self.waiters.push(waiter);
        self.inside.spawn(async move {
            match answer.await {
                Ok(_) => number,
                // The thread was interrupted and never acquires the lock.
                Err(_) => std::future::pending().await,
            }
        });
        let what = format!("{owner} is the last in the queue");
        eventually(&what, AMPLE, async || {
            self.owners().await.last() == Some(&owner)
        })
        .await;
    }

    /// Waits until the queue has this many entries.
    async fn comes_to(&self, waiters: usize) {
        let what = format!("{waiters} are in the queue");
        eventually(&what, AMPLE, async || {
            self.owners().await.len() == waiters && self.scores().await.len() == waiters
        })
        .await;
    }

    /// Waits until a waiter's entry is gone.
    async fn leaves(&self, number: usize) {
        let quitter = &self.waiters[number];
        let owner = quitter.owner().await;
        let what = format!("{quitter} is out of the queue");
        eventually(&what, AMPLE, async || {
            !self.owners().await.contains(&owner) && !self.scores().await.contains_key(&owner)
        })
        .await;
    }

    /// The lock passes from waiter to waiter: these acquire it in this order, one at a time, and
    /// then no waiter is left.
    async fn moves_up(mut self, order: &[usize]) {
        let mut inside = &self.holder;
        for &next in order {
            let early = timeout(Duration::from_millis(100), self.inside.join_next());
            assert!(
                early.await.is_err(),
                "a second worker holds the lock beside {inside}"
            );
            inside.unlock().await;
            let came = timeout(AMPLE, self.inside.join_next()).await;
            let came =
                came.unwrap_or_else(|_| panic!("{inside} has woken no waiter; next is {next}"));
            let came = came
                .expect("a task waits")
                .expect("the waiter acquires the lock");
            assert_eq!(came, next, "in the order {order:?}");
            inside = &self.waiters[came];
        }
        inside.unlock().await;
        for key in [
            self.key("queue"),
            self.key("timeout"),
            self.lock.name.clone(),
        ] {
            let left: u64 = self.stage.server.command(&["EXISTS", &key]).await;
            assert_eq!(left, 0, "{key} is left");
        }
    }

    /// One of the waiters acquires and releases the lock.
    async fn comes_up(mut self, next: usize) {
        let came = timeout(AMPLE, self.inside.join_next()).await;
        let came =
            came.unwrap_or_else(|_| panic!("{} does not acquire the lock", self.waiters[next]));
        let came = came
            .expect("a task waits")
            .expect("the waiter acquires the lock");
        assert_eq!(came, next);
        self.waiters[next].unlock().await;
    }

    async fn owners(&self) -> Vec<String> {
        let key = self.key("queue");
        self.stage
            .server
            .command(&["LRANGE", &key, "0", "-1"])
            .await
    }

    async fn scores(&self) -> BTreeMap<String, f64> {
        let key = self.key("timeout");
        let question = ["ZRANGE", &key, "0", "-1", "WITHSCORES"];
        let scores: Vec<(String, f64)> = self.stage.server.command(&question).await;
        scores.into_iter().collect()
    }

    fn key(&self, what: &str) -> String {
        format!("redisson_lock_{what}:{{{}}}", self.lock.name)
    }
}
