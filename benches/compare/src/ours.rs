//! This crate.

use std::time::{Duration, Instant};

use redisson_lock::{Guard, Kind, Lock, LockClient, MultiGuard, Reentrant, ReentrantLock};

use crate::{
    round::{Client, Failure, Measured, Task, Times},
    scripts::key,
};

/// How long a holder keeps the lock in a hand-off: the Java program's `HANDOFF_HOLD_NANOS`.
const HANDOFF_HOLD: Duration = Duration::from_millis(3);
/// A hand-off that takes longer has failed.
const HANDOFF_WITHIN: Duration = Duration::from_secs(60);

/// Makes the locks of one kind.
pub struct Ours<K: Kind> {
    pub client: LockClient,
    pub lock: fn(&LockClient, String) -> Lock<K>,
}

impl<K: Kind> Clone for Ours<K> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            lock: self.lock,
        }
    }
}

impl<K: Kind> Client for Ours<K> {
    type Task = Lock<K>;

    fn task(&self, number: usize) -> Lock<K> {
        (self.lock)(&self.client, key(number))
    }
}

impl<K: Kind> Task for Lock<K> {
    async fn pair(&mut self) -> Result<(), Failure> {
        let _ = self.lock().await?.unlock().await?;
        Ok(())
    }
}

/// Takes a multi-lock, and says how many microseconds that took.
pub async fn take(client: LockClient, names: Vec<String>) -> Result<(MultiGuard, f64), Failure> {
    let lock = client.multi_lock(names);
    let from = Instant::now();
    let guard = lock.lock().await?;
    Ok((guard, micros_since(from)))
}

/// Releases it: likewise.
pub async fn release(guard: MultiGuard) -> Result<f64, Failure> {
    let from = Instant::now();
    let _ = guard.unlock().await?;
    Ok(micros_since(from))
}

fn micros_since(from: Instant) -> f64 {
    from.elapsed().as_secs_f64() * 1e6
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
