//! This crate.

use std::time::{Duration, Instant};

use redisson_lock::{Guard, LockClient, Reentrant, ReentrantLock};

use crate::{
    round::{Client, Failure, Measured, Task, Times},
    scripts::key,
};

/// How long a holder keeps the lock in a hand-off: the Java program's `HANDOFF_HOLD_NANOS`.
const HANDOFF_HOLD: Duration = Duration::from_millis(3);
/// A hand-off that takes longer has failed.
const HANDOFF_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Ours(LockClient);

impl Ours {
    pub async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(LockClient::connect(url).await?))
    }
}

impl Client for Ours {
    type Task = ReentrantLock;

    fn task(&self, number: usize) -> ReentrantLock {
        self.0.reentrant_lock(key(number))
    }
}

impl Task for ReentrantLock {
    async fn pair(&mut self) -> Result<(), Failure> {
        let _ = self.lock().await?.unlock().await?;
        Ok(())
    }
}

/// From just before one client's `unlock()` until the `lock()` that waits in another returns, again and again.
pub async fn handoff(url: String, times: Times) -> Result<Measured, Failure> {
    let clients = [
        LockClient::connect(&url).await?,
        LockClient::connect(&url).await?,
    ];
    let name = testbed::unique_name("bench:handoff");
    let locks = [&clients[0], &clients[1]].map(|client| client.reentrant_lock(&name));
    let window = times.window();
    let mut measured = Measured::default();
    let (mut held, _) = entered(locks[0].clone()).await?;
    for waiter in [1, 0].into_iter().cycle() {
        if Instant::now() >= window.end {
            break;
        }
        let waiting = tokio::spawn(entered(locks[waiter].clone()));
        tokio::time::sleep(HANDOFF_HOLD).await;
        let from = tokio::spawn(async move {
            let before = Instant::now();
            held.unlock().await.map(|_| before)
        })
        .await??;
        let to;
        (held, to) = tokio::time::timeout(HANDOFF_WITHIN, waiting).await???;
        measured.note(&window, from, to);
    }
    let _ = held.unlock().await?;
    for client in &clients {
        client.shutdown().await;
    }
    Ok(measured)
}

/// Takes the lock and says when `lock()` had returned.
async fn entered(lock: ReentrantLock) -> Result<(Guard<Reentrant>, Instant), redisson_lock::Error> {
    let guard = lock.lock().await?;
    Ok((guard, Instant::now()))
}
