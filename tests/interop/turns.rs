//! A lock that many Rust tasks acquire in turns, and that a Java thread wants too.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use redisson_lock::{Config, LockClient};
use tokio::task::JoinSet;

use crate::kinds::{FENCED, Kind, MULTI, REENTRANT, WRITE};
use crate::rust_peer::NO_POLLS;
use crate::stage::{Stage, Version};
use crate::worker::Lock;

const CROWD: usize = 16;
const WAITS: usize = 100;

/// Counted by the tokens of a fenced lock: Rust's turns between a request of Java and its grant.
pub async fn java_has_its_share_beside_a_crowd(version: Version) {
    let stage = version.stage().await;
    let lock = Lock::new(&FENCED);
    let over = Arc::new(AtomicBool::new(false));
    let crowd = crowd(&stage.server.url(), &lock.name, &over).await;
    let counter = format!("redisson_lock_token:{{{}}}", lock.name);
    let java = lock.worker(&stage.java);
    let mut waits = Vec::new();
    for _ in 0..WAITS {
        let before: Option<i64> = stage.server.command(&["GET", &counter]).await;
        let token = java.token().await;
        java.unlock().await;
        waits.push(token - before.unwrap_or(0) - 1);
    }
    over.store(true, SeqCst);
    crowd.join_all().await;
    waits.sort_unstable();
    println!("turns for which Java waited: {waits:?}");
    assert!(waits.iter().sum::<i64>() > 0, "Java never waited");
    // In a fair order of 17 waiters, Java would wait for 16 turns. A busy machine delays some of its requests.
    assert!(waits[WAITS * 9 / 10 - 1] <= 3 * CROWD as i64, "{waits:?}");
}

async fn crowd(url: &str, name: &str, over: &Arc<AtomicBool>) -> JoinSet<()> {
    let mut config = Config::default();
    config.max_poll_interval = NO_POLLS;
    let builder = LockClient::builder().url(url).config(config);
    let client = builder.build().await.expect("the server is up");
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let (lock, over) = (client.fenced_lock(name), over.clone());
        crowd.spawn(async move {
            while !over.load(SeqCst) {
                let guard = lock.lock().await.expect("the waiter acquires the lock");
                // The length of a turn, so that the test's messages to Java cost less than one.
                tokio::time::sleep(Duration::from_millis(1)).await;
                let _ = guard.unlock().await.expect("the lock is held");
            }
        });
    }
    crowd
}

/// As many Java threads as Rust tasks acquire a lock over and over. When one side has had all its
/// turns, returns the shares of Java and Rust, relative to equal ones.
async fn shares(stage: &Stage, kind: &'static Kind, each: usize, turns: u64) -> [f64; 2] {
    let lock = Lock::new(kind);
    let peers = [&stage.java, &stage.rust];
    let mut counters = Vec::new();
    let mut working = Vec::new();
    for peer in peers {
        let counter = stage.server.name("turns").await;
        for _ in 0..each {
            let worker = lock.worker(peer);
            working.push(Box::pin(
                worker.ask("work", &[&counter, &turns.to_string()]),
            ));
        }
        counters.push(counter);
    }
    let (first, _, rest) = select_all(working).await;
    first.unwrap_or_else(|refused| panic!("{refused}"));
    let mut had = [0.0; 2];
    for (had, counter) in had.iter_mut().zip(&counters) {
        let counted: Option<u32> = stage.server.command(&["GET", counter]).await;
        *had = counted.unwrap_or(0).into();
    }
    for done in join_all(rest).await {
        done.unwrap_or_else(|refused| panic!("{refused}"));
    }
    println!("{}: Java and Rust had {had:?}", kind.name);
    let equal = had.iter().sum::<f64>() / 2.0;
    had.map(|had| had / equal)
}

/// `make bench-shares` sets longer turns. Without yields Java gets one turn in hundreds.
pub async fn java_and_rust_have_their_shares(version: Version) {
    let stage = version.stage().await;
    for (kind, each, turns) in [
        (&REENTRANT, 1, 600),
        (&FENCED, 1, 600),
        (&WRITE, 1, 600),
        (&MULTI, 1, 200),
        (&REENTRANT, 8, 100),
    ] {
        // A warm-up: a JVM first loads and compiles its classes.
        shares(&stage, kind, 1, 100).await;
        let mut had = Vec::new();
        // A JVM on a busy machine may stand still for as long as all turns of Rust take.
        for _ in 0..3 {
            let [java, rust] = shares(&stage, kind, each, turns).await;
            had.push([java, rust]);
            if java >= 0.1 && rust > 0.0 {
                break;
            }
        }
        let [java, rust] = had[had.len() - 1];
        assert!(java >= 0.1 && rust > 0.0, "{}: {had:?}", kind.name);
    }
}
