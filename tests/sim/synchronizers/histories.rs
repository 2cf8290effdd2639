//! Histories of semaphores and latches: tasks of several clients acquire permits, give up, drop permits and wait for openings, while
//! connections break and messages are lost.
//!
//! The rules: no more permits are acquired than exist, no permit is lost, every waiter is served, and nothing is left. A seed
//! determines a history: `SEED=n cargo test --all-features --test sim semaphores_keep` plays one, `HISTORIES` sets their number.

use std::{cell::Cell, collections::BTreeSet, rc::Rc, time::Duration};

use super::redisson::Thread;
use fastrand::Rng;
use futures_util::future::select_all;
use redisson_lock::{Config, LockClient};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{self, Delivering, Ending, Fate, Faults},
};
use tokio::{
    runtime::{Builder, RngSeed},
    task::{JoinSet, LocalSet, yield_now},
    time::{Instant, sleep, timeout},
};

/// The longest duration of a history, many times longer than its outages and leases.
pub const LONG: Duration = Duration::from_secs(20_000);
/// After this pause, background tasks have completed unanswered requests and released dropped permits.
pub const SETTLED: Duration = Duration::from_secs(300);

/// Loses one command or message in `one_in`, until `until`.
struct RandomFaults {
    random: Rng,
    until: Instant,
    one_in: u64,
    /// The longest delay of a message, in milliseconds.
    slowest: u64,
    /// The connections up to this one, which are those of Java, are never disturbed.
    undisturbed: u64,
}

impl RandomFaults {
    fn strikes(&mut self, connection: u64) -> bool {
        connection > self.undisturbed
            && Instant::now() < self.until
            && self.random.u64(..self.one_in) == 0
    }

    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.random.u64(..4_000))
    }
}

impl Faults for RandomFaults {
    fn connecting(&mut self) -> Duration {
        self.delay()
    }

    fn sending(&mut self, connection: u64, _command: &'static str) -> Fate {
        let delay = self.delay();
        if !self.strikes(connection) {
            return Fate {
                delay,
                ending: None,
            };
        }
        let late = Duration::from_millis(self.random.u64(..3_000));
        let (late, ending) = match self.random.u8(..3) {
            0 => (Duration::ZERO, Ending::Unsent),
            1 => (Duration::ZERO, Ending::Unanswered),
            _ => (late, Ending::Unheard),
        };
        Fate {
            delay: delay + late,
            ending: Some(ending),
        }
    }

    fn answering(&mut self, _connection: u64) -> Duration {
        self.delay()
    }

    fn delivering(&mut self, connection: u64) -> Delivering {
        match self.strikes(connection) {
            true => Delivering::Never,
            false => Delivering::After(Duration::from_millis(self.random.u64(..self.slowest))),
        }
    }
}

/// The server, the clients and the conditions of a history.
struct Stage {
    server: InMemoryRedis,
    clients: Vec<LockClient>,
    /// Threads of Java services: none in half of the histories.
    java: Vec<Thread>,
    random: Rng,
    is_calm: bool,
}

impl Stage {
    async fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let server = InMemoryRedis::new();
        let mut java = Vec::new();
        for _ in 0..[0, 0, 1, 3][random.usize(..4)] {
            java.push(Thread::new(&server, random.fork()).await);
        }
        // A thread opens two connections, and connections count from 1.
        let undisturbed = 2 * java.len() as u64;
        let is_calm = random.bool();
        let mut config = Config::default();
        if is_calm {
            // Without polls, a waiter continues only after a message.
            config.max_poll_interval = LONG * 2;
        }
        config.local_hand_off = Duration::from_millis([0, 2, 100][random.usize(..3)]);
        let mut clients = Vec::new();
        for _ in 0..random.usize(1..=3) {
            clients.push(server.client_with(config.clone()).await.unwrap());
        }
        server.set_faults(RandomFaults {
            random: random.fork(),
            until: Instant::now() + Duration::from_secs(if is_calm { 0 } else { 30 }),
            one_in: random.u64(5..50),
            slowest: [5, 60][random.usize(..2)],
            undisturbed,
        });
        Self {
            server,
            clients,
            java,
            random,
            is_calm,
        }
    }

    fn client(&mut self) -> LockClient {
        let at = self.random.usize(..self.clients.len());
        self.clients[at].clone()
    }

    /// Asserts that the settled server keeps nothing but the named key, and no subscription.
    async fn is_left_clean(&self, name: &str) {
        sleep(SETTLED).await;
        let keys: BTreeSet<_> = self.server.keys().into_iter().collect();
        let own = BTreeSet::from([name.to_owned()]);
        assert!(keys.is_subset(&own), "left: {keys:?}");
        assert_eq!(self.server.channels(), [""; 0]);
    }
}

/// Counts acquired permits, as their holders know it.
#[derive(Clone)]
pub struct Out {
    now: Rc<Cell<i64>>,
    most: i64,
}

impl Out {
    fn of(most: i64) -> Self {
        Self {
            now: Rc::default(),
            most,
        }
    }

    pub fn take(&self, permits: i64) {
        self.now.set(self.now.get() + permits);
        assert!(
            self.now.get() <= self.most,
            "more permits are acquired than exist"
        );
    }

    pub fn give(&self, permits: i64) {
        self.now.set(self.now.get() - permits);
    }
}

pub async fn work(random: &mut Rng) {
    match random.u8(..3) {
        0 => yield_now().await,
        _ => sleep(Duration::from_millis(random.u64(..15))).await,
    }
}

/// Runs `future` in a task that polls it late now and then.
async fn lazily<F: Future>(random: &mut Rng, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut busy = Box::pin(sleep(Duration::ZERO));
    std::future::poll_fn(move |context| {
        if busy.as_mut().poll(context).is_pending() {
            return std::task::Poll::Pending;
        }
        let polled = future.as_mut().poll(context);
        if polled.is_pending() && random.bool() {
            // A wake-up in the meantime takes effect after the pause.
            busy.as_mut()
                .reset(Instant::now() + Duration::from_millis(random.u64(1..8)));
            let _ = busy.as_mut().poll(context);
        }
        polled
    })
    .await
}

async fn semaphores(seed: u64) {
    let mut stage = Stage::new(seed).await;
    // With few tasks, a lost wake-up shows: no later task wakes the waiter.
    let (permits, tasks_of, turns) = match stage.random.bool() {
        true => (stage.random.u32(1..=2), 2..=4, 2),
        false => (stage.random.u32(1..=4), 2..=10, 6),
    };
    let pool = stage.client().semaphore("pool");
    assert!(pool.try_set_permits(permits).await.unwrap());
    let out = Out::of(permits.into());
    let mut tasks = JoinSet::new();
    for _ in 0..stage.random.u32(tasks_of) {
        let (pool, out) = (stage.client().semaphore("pool"), out.clone());
        let (mut random, is_calm) = (stage.random.fork(), stage.is_calm);
        tasks.spawn_local(async move {
            for _ in 0..random.u32(1..=turns) {
                let wanted = random.u32(1..=permits);
                let limit = Duration::from_millis(random.u64(..60));
                let mut lazy = random.fork();
                let taken = match random.u8(..4) {
                    0 => pool.try_acquire_many(wanted).await.unwrap_or(None),
                    1 => pool
                        .try_acquire_many_for(wanted, limit)
                        .await
                        .unwrap_or(None),
                    2 => match timeout(limit, lazily(&mut lazy, pool.acquire_many(wanted))).await {
                        Ok(taken) => taken.map(Some).unwrap_or(None),
                        Err(_) => None,
                    },
                    // Acquires a single permit: a larger request may wait for long, as smaller ones go first.
                    _ => Some(
                        lazily(&mut lazy, pool.acquire())
                            .await
                            .expect("an outage is short"),
                    ),
                };
                let Some(taken) = taken else {
                    continue;
                };
                out.take(taken.permits().into());
                work(&mut random).await;
                out.give(taken.permits().into());
                match random.u8(..3) {
                    0 => drop(taken),
                    1 => {
                        let released = taken.release().await;
                        assert!(!is_calm || released.is_ok(), "{released:?}");
                    }
                    _ => drop(timeout(limit, taken.release()).await),
                }
                work(&mut random).await;
            }
        });
    }
    for thread in stage.java.drain(..) {
        tasks.spawn_local(thread.use_permits(out.clone(), turns));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    stage.is_left_clean("pool").await;
    assert_eq!(
        pool.available_permits().await,
        Ok(permits.into()),
        "permits are lost"
    );
}

async fn permits_with_an_end(seed: u64) {
    let mut stage = Stage::new(seed).await;
    let permits = stage.random.u32(1..=3);
    let pool = stage.client().permit_expirable_semaphore("pool");
    assert!(pool.try_set_permits(permits).await.unwrap());
    let out = Out::of(permits.into());
    let mut tasks = JoinSet::new();
    for _ in 0..stage.random.u32(2..=8) {
        let mut pool = stage.client().permit_expirable_semaphore("pool");
        let (mut random, out) = (stage.random.fork(), out.clone());
        let is_renewed = random.bool();
        if is_renewed {
            pool = pool.renewed();
        }
        tasks.spawn_local(async move {
            for _ in 0..random.u32(1..=5) {
                let lease = Duration::from_millis(random.u64(100..20_000));
                let limit = Duration::from_millis(random.u64(..60));
                let wanted = random.u32(1..=permits);
                let mut lazy = random.fork();
                let pool = pool.with_lease(lease);
                let taken = match random.u8(..4) {
                    0 => pool.try_acquire_many(wanted).await.unwrap_or(None),
                    1 => pool
                        .try_acquire_many_for(wanted, limit)
                        .await
                        .unwrap_or(None),
                    2 => {
                        let acquiring = lazily(&mut lazy, pool.acquire_many(wanted));
                        match timeout(limit, acquiring).await {
                            Ok(taken) => taken.map(Some).unwrap_or(None),
                            Err(_) => None,
                        }
                    }
                    // Acquires a single permit: a larger request may wait for long, as smaller ones go first.
                    _ => Some(vec![
                        lazily(&mut lazy, pool.acquire())
                            .await
                            .expect("an outage is short"),
                    ]),
                };
                let Some(mut taken) = taken else {
                    continue;
                };
                // A late grant may have expired.
                let left = taken[0]
                    .valid_until()
                    .expect("the permit has an end")
                    .saturating_duration_since(Instant::now().into_std());
                if left.is_zero() {
                    continue;
                }
                out.take(taken.len() as i64);
                match is_renewed && random.bool() {
                    // Waits for several leases, or until a permit is lost.
                    true => {
                        let long = lease.mul_f64(random.f64() * 4.0);
                        let lost = taken.iter().map(|permit| Box::pin(permit.lost()));
                        let _ = timeout(long, select_all(lost)).await;
                    }
                    false => sleep(left.min(Duration::from_micros(random.u64(..5_000)))).await,
                }
                out.give(taken.len() as i64);
                match random.u8(..5) {
                    0 => drop(taken),
                    // The end of the lease releases it.
                    1 => taken.swap_remove(0).leak(),
                    2 => drop(
                        pool.release_many(taken.iter().map(|permit| permit.id()))
                            .await,
                    ),
                    _ => drop(taken.swap_remove(0).release().await),
                }
            }
        });
    }
    for thread in stage.java.drain(..) {
        tasks.spawn_local(thread.use_permits_with_ends(out.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    sleep(SETTLED).await;
    assert_eq!(pool.permits().await, Ok(permits.into()), "permits are lost");
    assert_eq!(pool.acquired_permits().await, Ok(0));
    stage.is_left_clean("pool").await;
}

/// The round of a latch, and whether the latch may be open.
#[derive(Clone, Default)]
pub struct Openings(pub Rc<Cell<(u32, bool)>>);

impl Openings {
    /// Asserts that the latch was open, or has opened since `before`.
    pub fn assert_opened_since(&self, before: (u32, bool)) {
        let went_too_soon = self.0.get() == before && !before.1;
        assert!(!went_too_soon, "a waiter continued before the opening");
    }
}

async fn latches(seed: u64) {
    let mut stage = Stage::new(seed).await;
    let counting = stage.client().count_down_latch("ready");
    let (java, openings) = (stage.java.pop(), Openings::default());
    let mut tasks = JoinSet::new();
    for round in 1..=stage.random.u32(1..=5) {
        let count = stage.random.u64(1..=3);
        match counting.try_set_count(count).await {
            Ok(set) => assert!(set, "the latch was not open"),
            Err(_) => sleep(SETTLED).await,
        }
        openings.0.set((round, false));
        for _ in 0..stage.random.u32(1..=5) {
            let latch = stage.client().count_down_latch("ready");
            let (mut random, openings) = (stage.random.fork(), openings.clone());
            tasks.spawn_local(async move {
                if random.bool() {
                    let limit = Duration::from_millis(random.u64(..15));
                    let _ = timeout(limit, latch.wait()).await;
                }
                let before = openings.0.get();
                let waited = lazily(&mut random, latch.wait()).await;
                waited.expect("an outage is short");
                openings.assert_opened_since(before);
            });
        }
        if let Some(thread) = stage.java.pop() {
            tasks.spawn_local(thread.wait(openings.clone()));
        }
        work(&mut stage.random).await;
        for left in (0..count).rev() {
            work(&mut stage.random).await;
            if left == 0 {
                openings.0.set((round, true));
            }
            if let (Some(thread), 0) = (&java, stage.random.u8(..3)) {
                thread.count_down().await;
            } else if counting.count_down().await.is_err() {
                sleep(SETTLED).await;
            }
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    stage.is_left_clean("ready").await;
}

/// Plays the history of a seed.
fn play<F: Future<Output = ()>>(seed: u64, history: impl Fn(u64) -> F) {
    fastrand::seed(seed);
    simulation::count_owners_from(1);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()))
        .build()
        .expect("a runtime");
    let tasks = LocalSet::new();
    let ended = tasks.block_on(&runtime, async { timeout(LONG, history(seed)).await });
    assert!(ended.is_ok(), "a task waits without end");
}

fn campaign<F: Future<Output = ()>>(history: impl Fn(u64) -> F) {
    let first = crate::number("SEED").or(crate::number("FIRST_SEED"));
    let histories = match crate::number("SEED") {
        Some(_) => 1,
        None => crate::number("HISTORIES").unwrap_or(600),
    };
    for seed in (first.unwrap_or(1)..).take(histories as usize) {
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(seed, &history)));
        if let Err(panic) = told {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn semaphores_keep_the_rules() {
    campaign(semaphores);
}

#[test]
fn semaphores_with_ends_keep_the_rules() {
    campaign(permits_with_an_end);
}

#[test]
fn latches_keep_the_rules() {
    campaign(latches);
}
