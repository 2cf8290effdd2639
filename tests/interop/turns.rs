//! Turns at a lock that goes round among many tasks of ours, and that a thread of Java wants as well.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use std::time::Duration;

use redisson_lock::{Config, LockClient};
use tokio::task::JoinSet;

use crate::kinds::FENCED;
use crate::rust_peer::NO_POLLS;
use crate::stage::Version;
use crate::worker::Lock;

const CROWD: usize = 16;
const WAITS: usize = 100;

/// Counted by the tokens of a fenced lock, in turns of ours between the asking and the answer.
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
    println!("turns that Java waited: {waits:?}");
    assert!(waits.iter().sum::<i64>() > 0, "it was alone");
    // Of 17 who want it, it would wait for 16.
    assert!(waits[WAITS * 99 / 100 - 1] <= 3 * CROWD as i64, "{waits:?}");
}

async fn crowd(url: &str, name: &str, over: &Arc<AtomicBool>) -> JoinSet<()> {
    let mut config = Config::default();
    config.poll_floor = NO_POLLS;
    let builder = LockClient::builder().url(url).config(config);
    let client = builder.build().await.expect("the server is up");
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let (lock, over) = (client.fenced_lock(name), over.clone());
        crowd.spawn(async move {
            while !over.load(SeqCst) {
                let guard = lock.lock().await.expect("it is let in");
                // What a turn takes, so that the test's conversation with Java is not worth one.
                tokio::time::sleep(Duration::from_millis(1)).await;
                let _ = guard.unlock().await.expect("it is held");
            }
        });
    }
    crowd
}
