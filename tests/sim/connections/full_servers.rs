//! A server that accepts no new connections, while some of a client's connections live. One arranged case per test, under a
//! paused clock.

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{Durability, Error, LockClient, Released};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Ending, Executed, Fate, Faults},
};
use tokio::time::sleep;

/// Longer than a pause between two attempts to connect.
const LONG: Duration = Duration::from_secs(30);

#[derive(Default, Clone)]
struct Full(Arc<State>);

#[derive(Default)]
struct State {
    is_full: AtomicBool,
    scripts: AtomicUsize,
    /// The connection that waits for replicas.
    durable: AtomicU64,
    /// That connection ends with its next script, not with any command.
    ends_with_script: AtomicBool,
    /// Answers on that connection are late.
    is_slow: AtomicBool,
}

impl Faults for Full {
    fn connecting(&mut self) -> Duration {
        match self.0.is_full.load(Relaxed) {
            true => 1_000 * LONG,
            false => Duration::ZERO,
        }
    }

    /// Ends the connection that waits for replicas, when the server is full.
    fn sending(&mut self, connection: u64, command: &'static str) -> Fate {
        let is_due = !self.0.ends_with_script.load(Relaxed) || command.starts_with("EVAL");
        let is_durable = connection == self.0.durable.load(Relaxed);
        let ends = self.0.is_full.load(Relaxed) && is_durable && is_due;
        Fate {
            delay: Duration::ZERO,
            ending: ends.then_some(Ending::Unsent),
        }
    }

    fn answering(&mut self, connection: u64) -> Duration {
        let is_durable = connection == self.0.durable.load(Relaxed);
        match self.0.is_slow.load(Relaxed) && is_durable {
            true => LONG,
            false => Duration::ZERO,
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        match executed.command {
            "WAIT" => self.0.durable.store(executed.connection, Relaxed),
            "EVAL" | "EVALSHA" => drop(self.0.scripts.fetch_add(1, Relaxed)),
            _ => {}
        }
    }
}

async fn client() -> (LockClient, Full) {
    let (server, full) = (InMemoryRedis::new(), Full::default());
    server.set_faults(full.clone());
    (server.client().await.unwrap(), full)
}

/// The calls would otherwise queue for the connection, and reach the server long after their callers have gone.
#[tokio::test(start_paused = true)]
async fn given_up_acquisition_that_waits_for_replicas_is_not_sent_later() {
    let (client, full) = client().await;
    let lock = client.reentrant_lock("a").with_durability(Durability::All);
    full.0.is_full.store(true, Relaxed);
    for _ in 0..3 {
        let failed = lock.try_lock_for(LONG).await.unwrap_err();
        assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
        assert!(failed.source().is_some(), "no cause: {failed:?}");
    }
    full.0.is_full.store(false, Relaxed);
    sleep(LONG).await;
    assert_eq!(full.0.scripts.load(Relaxed), 0);
    assert!(lock.try_lock().await.unwrap().is_some());
}

/// A renewal that waits for its connection would keep the release from a connection that works.
#[tokio::test(start_paused = true)]
async fn renewal_without_its_connection_does_not_keep_a_release_waiting() {
    // A `PING` ends the connection in a pause between renewals, or a renewal ends it.
    for ends_with_script in [false, true] {
        let (client, full) = client().await;
        full.0.ends_with_script.store(ends_with_script, Relaxed);
        let lock = client.reentrant_lock("a").with_durability(Durability::All);
        let guard = lock.lock().await.unwrap();
        full.0.is_full.store(true, Relaxed);
        sleep(Duration::from_secs(12)).await;
        let released = guard.unlock().await;
        assert_eq!(released, Ok(Released::Fully), "{ends_with_script}");
    }
}

/// The renewal is queued behind an acquisition when the connection breaks.
#[tokio::test(start_paused = true)]
async fn queued_renewal_does_not_keep_a_release_waiting() {
    let (client, full) = client().await;
    let lock = |name: &str| client.reentrant_lock(name).with_durability(Durability::All);
    let guard = lock("a").lock().await.unwrap();
    // The renewal is due after 10 s.
    sleep(Duration::from_millis(9_900)).await;
    full.0.is_slow.store(true, Relaxed);
    let other = lock("b");
    let _acquiring = tokio::spawn(async move { other.lock().await.map(|guard| guard.leak()) });
    sleep(Duration::from_millis(20)).await;
    full.0.is_full.store(true, Relaxed);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
