//! `bench`: how fast locks are between this machine and the servers.

use std::time::{Duration, Instant};

use redisson_lock::{Error, LockClient};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{Done, Failure, exit, out::say, servers::Servers};

/// The numbers of concurrent tasks. Each task has a lock of its own.
const TASKS: [usize; 3] = [1, 8, 64];
/// The lease of all locks. An interrupted run leaves locks that end with it.
const LEASE: Duration = Duration::from_secs(10);

/// The time that a waiter has to subscribe.
const LISTENS_WITHIN: Duration = Duration::from_millis(20);

/// The durations of a repeated operation.
struct Times {
    sorted: Vec<Duration>,
    over: Duration,
}

impl Times {
    fn new(mut times: Vec<Duration>, over: Duration) -> Self {
        times.sort_unstable();
        Self {
            sorted: times,
            over,
        }
    }

    fn percentile(&self, percent: usize) -> Duration {
        let at = (self.sorted.len() * percent / 100).min(self.sorted.len().saturating_sub(1));
        self.sorted.get(at).copied().unwrap_or_default()
    }

    fn per_second(&self) -> f64 {
        self.sorted.len() as f64 / self.over.as_secs_f64()
    }

    fn json(&self, of: &str, tasks: usize) -> Value {
        let micros = |time: Duration| time.as_micros() as u64;
        json!({
            "measured": of,
            "tasks": tasks,
            "p50_us": micros(self.percentile(50)),
            "p99_us": micros(self.percentile(99)),
            "per_second": self.per_second().round() as u64,
        })
    }

    fn line(&self, of: &str) -> String {
        let micros = |time: Duration| format!("{} us", time.as_micros());
        format!(
            "{of:<24}  {:>10}  {:>10}  {:>10.0}",
            micros(self.percentile(50)),
            micros(self.percentile(99)),
            self.per_second()
        )
    }
}

pub async fn bench(servers: &Servers, time: Duration, json: bool) -> Result<Done, Failure> {
    let client = servers.connect().await?;
    let other = servers.connect().await?;
    if !json {
        say(format!(
            "{:<24}  {:>10}  {:>10}  {:>10}",
            "", "p50", "p99", "per second"
        ))?;
    }
    for tasks in TASKS {
        let times = pairs(&client, tasks, time).await?;
        match json {
            true => say(times.json("pair", tasks).to_string())?,
            false => say(times.line(&match tasks {
                1 => "lock and unlock, 1 task".to_owned(),
                tasks => format!("the same, {tasks} tasks"),
            }))?,
        }
    }
    let times = hand_offs(&client, &other, time).await?;
    match json {
        true => say(times.json("hand_off", 2).to_string())?,
        false => say(times.line("hand-off to a client"))?,
    }
    client.shutdown_and_release().await;
    other.shutdown_and_release().await;
    Ok(Done::Code(0))
}

fn name(client: &LockClient, number: usize) -> String {
    format!("rlock:bench:{}:{number}", client.id())
}

/// Measures lock and unlock; each task has a lock of its own.
async fn pairs(client: &LockClient, tasks: usize, time: Duration) -> Result<Times, Error> {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..tasks {
        let lock = client
            .reentrant_lock(name(client, number))
            .with_lease(LEASE);
        running.spawn(async move {
            let mut times = Vec::new();
            loop {
                let one = Instant::now();
                lock.lock().await?.unlock().await?;
                times.push(one.elapsed());
                if began.elapsed() >= time {
                    return Ok::<_, Error>(times);
                }
            }
        });
    }
    let mut times = Vec::new();
    for done in running.join_all().await {
        times.extend(done?);
    }
    Ok(Times::new(times, began.elapsed()))
}

/// Two clients alternate: each waits while the other holds the lock. Measures the time from a release to the acquisition.
async fn hand_offs(
    client: &LockClient,
    other: &LockClient,
    time: Duration,
) -> Result<Times, Failure> {
    let name = name(client, 0);
    let locks = [client, other].map(|client| client.reentrant_lock(&name).with_lease(LEASE));
    let began = Instant::now();
    let mut times = Vec::new();
    let mut held = locks[0].lock().await?;
    for turn in 1.. {
        let next = locks[turn % 2].clone();
        let waiting = tokio::spawn(async move {
            let guard = next.lock().await?;
            Ok::<_, Error>((guard, Instant::now()))
        });
        // A waiter that has not asked by then measures less than a hand-off, or one round trip more.
        tokio::time::sleep(LISTENS_WITHIN).await;
        let released = Instant::now();
        held.unlock().await?;
        let entered = waiting.await.map_err(|error| Failure {
            code: exit::FAILED,
            message: format!("a task of the benchmark failed: {error}"),
        })?;
        let (guard, entered) = entered?;
        times.push(entered.saturating_duration_since(released));
        held = guard;
        if began.elapsed() >= time {
            break;
        }
    }
    held.unlock().await?;
    let over = times.iter().sum();
    Ok(Times::new(times, over))
}
