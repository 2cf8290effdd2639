//! A job that every instance starts and one runs: `cargo run --example singleton_job`, in two terminals.
//!
//! The server is that of `REDIS_URL`, or `redis://127.0.0.1:6379`.

use std::time::Duration;

use redisson_lock::{Error, LockClient};

/// Longer than the difference of the instances' clocks, shorter than the pause between two runs.
const AT_LEAST: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(5);

/// Runs the job, unless another instance runs it or has just run it. Returns whether this instance ran it.
async fn run_once(locks: &LockClient, job: impl AsyncFnOnce()) -> Result<bool, Error> {
    let lock = locks.reentrant_lock("job:cleanup");
    let ran = lock
        .run_at_least(AT_LEAST, async |_guard| job().await)
        .await?;
    Ok(ran.is_some())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let locks = LockClient::connect(url).await?;
    let mut ticks = tokio::time::interval(EVERY);
    for _ in 0..3 {
        ticks.tick().await;
        match run_once(&locks, async || println!("cleaning up")).await {
            Ok(true) => println!("done"),
            Ok(false) => println!("skipped: another instance ran it"),
            // The next tick retries a job that failed to start.
            Err(error) => eprintln!("not run: {error}"),
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use redisson_lock::test_util::InMemoryRedis;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_instance_runs_the_job_at_each_tick() {
        let server = InMemoryRedis::new();
        let (one, other) = (
            server.client().await.unwrap(),
            server.client().await.unwrap(),
        );
        for _ in 0..3 {
            let mut runs = 0;
            for instance in [&one, &other, &other, &one] {
                let ran = run_once(instance, async || runs += 1).await;
                assert!(ran.is_ok(), "{ran:?}");
                // The clocks differ by a little.
                sleep(AT_LEAST / 5).await;
            }
            assert_eq!(runs, 1);
            sleep(EVERY).await;
        }
        assert_eq!(server.keys(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_without_a_server_runs_nothing() {
        let server = InMemoryRedis::new();
        let instance = server.client().await.unwrap();
        server.stop();
        let ran = run_once(&instance, async || panic!("the job ran without the lock")).await;
        assert!(matches!(ran, Err(Error::Unavailable { .. })), "{ran:?}");
    }
}
