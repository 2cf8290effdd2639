//! Does one thing so many times, on one thread: `instructions <url> <workload> <times>`.
//!
//! `tools/bench-check.sh` runs it under callgrind twice and compares: what it does once, such as connecting, drops out.

use std::error::Error;

use futures_util::future::try_join_all;
use redisson_lock::{LockClient, ReentrantLock};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, workload, times] = &words[..] else {
        return Err("usage: instructions <url> <workload> <times>".into());
    };
    let times = times.parse()?;
    // One thread: with more, who finds whom asleep would differ from run to run.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = LockClient::connect(url).await?;
        match workload.as_str() {
            "pairs-1" => pairs(&client, 1, times).await,
            "pairs-64" => pairs(&client, 64, times).await,
            _ => Err(format!("no such workload: {workload}").into()),
        }
    })
}

/// `times` rounds in which so many futures at a time lock and unlock a key of their own.
async fn pairs(client: &LockClient, together: usize, times: usize) -> Result<(), Failure> {
    let locks: Vec<_> = (0..together)
        .map(|number| client.reentrant_lock(format!("pair:{number:04}")))
        .collect();
    for _ in 0..times {
        try_join_all(locks.iter().map(pair)).await?;
    }
    Ok(())
}

async fn pair(lock: &ReentrantLock) -> Result<(), Failure> {
    let _ = lock.lock().await?.unlock().await?;
    Ok(())
}
