//! A job that every instance starts and one runs: `cargo run --example singleton_job`, in two terminals.
//!
//! The server is that of `REDIS_URL`, or `redis://127.0.0.1:6379`.

use std::time::Duration;

use redisson_lock::{AtLeast, Config, Error, JobOutcome, LockClient};

const EVERY: Duration = Duration::from_secs(10);
/// Longer than the job and the difference of the instances' clocks, shorter than the time between two ticks.
const AT_LEAST: Duration = Duration::from_secs(7);
/// Ends before the next tick.
const WAIT: Duration = Duration::from_secs(8);
/// Shorter than the wait: an instance that waits takes over from one that crashed.
const LEASE: Duration = Duration::from_secs(3);

/// Has one instance run the job of this tick. Returns whether it is done, here or elsewhere.
async fn tick(
    locks: &LockClient,
    job: impl AsyncFnOnce() -> std::io::Result<()>,
) -> Result<bool, Error> {
    let lock = locks.reentrant_lock("job:cleanup");
    // An instance that waits runs a failed job again.
    let least = AtLeast::if_ok(AT_LEAST);
    let outcome = lock
        .run_at_least_for(WAIT, least, async |_guard| job().await)
        .await?;
    Ok(match outcome {
        JobOutcome::Ran(result) => {
            println!("ran: {result:?}");
            result.is_ok()
        }
        JobOutcome::Done { .. } => {
            println!("skipped: another instance ran it");
            true
        }
        JobOutcome::Running { .. } | JobOutcome::Crashed { .. } => false,
    })
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let config = Config::default().with_watchdog_lease(LEASE);
    let locks = LockClient::builder()
        .url(url)
        .config(config)
        .build()
        .await?;
    let mut ticks = tokio::time::interval(EVERY);
    for _ in 0..3 {
        ticks.tick().await;
        let job = async || {
            println!("cleaning up");
            Ok(())
        };
        match tick(&locks, job).await {
            Ok(true) => {}
            Ok(false) => eprintln!("not done in this tick"),
            Err(error) => eprintln!("not run: {error}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redisson_lock_test::InMemoryRedis;
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
                let job = async || {
                    runs += 1;
                    Ok(())
                };
                assert_eq!(tick(instance, job).await, Ok(true));
                // The clocks differ by a little.
                sleep(AT_LEAST / 5).await;
            }
            assert_eq!(runs, 1);
            sleep(EVERY).await;
        }
        assert_eq!(server.keys(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_job_and_that_of_a_crashed_instance_are_taken_over() {
        let server = InMemoryRedis::new();
        let (one, other) = (
            server.client().await.unwrap(),
            server.client().await.unwrap(),
        );
        let mut runs = 0;
        let fails = async || Err(std::io::Error::other("no disk"));
        assert_eq!(tick(&one, fails).await, Ok(false));
        let works = async || {
            runs += 1;
            Ok(())
        };
        assert_eq!(tick(&other, works).await, Ok(true));
        assert_eq!(runs, 1);
        sleep(EVERY).await;
        // The lease of a crashed instance.
        let crashed = one.reentrant_lock("job:cleanup").with_lease(LEASE);
        crashed.lock().await.unwrap().leak();
        assert_eq!(tick(&other, async || Ok(())).await, Ok(true));
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_without_a_server_runs_nothing() {
        let server = InMemoryRedis::new();
        let instance = server.client().await.unwrap();
        server.stop();
        let ran = tick(&instance, async || panic!("the job ran without the lock")).await;
        assert!(matches!(ran, Err(Error::Unavailable { .. })), "{ran:?}");
    }
}
