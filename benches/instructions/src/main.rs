//! Does one thing again and again, on one thread: `instructions <url> <workload>`.
//!
//! `tools/bench-check.sh` runs it under callgrind, which writes down a count at every [`mark`]: what comes before the
//! first, such as connecting, is not compared.
//!
//! `tools/gauges-cost.sh` runs `speed-1` and `speed-64`, which print pairs per second, and `make bench-permits` runs `permits`.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use redisson_lock::{Config, LockClient, ReentrantLock, Semaphore};
use tokio::{task::JoinSet, time::sleep};

type Failure = Box<dyn Error + Send + Sync>;

/// The watchdog renews together what is due within a 60th of it: long enough for all holds to be taken meanwhile, on a
/// busy machine too; short, because a third of it is waited for.
const LEASE: Duration = Duration::from_secs(9);
/// How often the holds are looked at, which is counted too: seldom.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Counts per run: the first is of what is not warm yet, and of the rest the script takes the one in the middle.
const COUNTS: usize = 10;
/// Of the renewal: a count takes a third of the lease.
const RENEWALS: usize = 5;
/// Turns in which pairs are timed, and the pairs of a turn.
const TURNS: usize = 200;
const PAIRS_OF_A_TURN: usize = 50;
/// How long pairs are made for their speed.
const SPEED_FOR: Duration = Duration::from_millis(300);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, workload] = &words[..] else {
        return Err("usage: instructions <url> <workload>".into());
    };
    // One thread: with more, which one finds another asleep would differ from run to run.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        #[cfg(feature = "metrics")]
        let _handle = metrics_exporter_prometheus::PrometheusBuilder::new()
            .set_buckets(&[0.001, 0.01, 0.1, 1.0, 10.0])?
            .install_recorder()?;
        let config = Config::default()
            .with_watchdog_lease(LEASE)
            .with_local_hand_off(hand_off_window(workload));
        let client = LockClient::builder()
            .url(url)
            .config(config)
            .build()
            .await?;
        match workload.as_str() {
            "pairs" => pairs(&client, 1, 100).await,
            "pairs-64" => pairs(&client, 64, 10).await,
            "renewal" => renewal(&client, 1_000).await,
            "wake-up" | "hand-off" => wake_up(&client, 100).await,
            "speed-1" => speed(&client, 1).await,
            "speed-64" => speed(&client, 64).await,
            "permits" => permits(&client).await,
            _ => Err(format!("no such workload: {workload}").into()),
        }
    })
}

/// Callgrind slows the client down some fifty times. With the default window, the number of waiters that learn of their turn by the
/// server would depend on the machine: here it is all of them, or none.
fn hand_off_window(workload: &str) -> Duration {
    match workload {
        "wake-up" => Duration::ZERO,
        "hand-off" => Duration::from_secs(60),
        _ => Config::default().local_hand_off,
    }
}

/// Where one count ends and the next begins.
#[inline(never)]
fn mark() {
    // Otherwise nothing calls it in the end.
    std::hint::black_box(());
}

fn locks(client: &LockClient, count: usize) -> Vec<ReentrantLock> {
    // All names are of the same length.
    (0..count)
        .map(|number| client.reentrant_lock(format!("lock:{number:04}")))
        .collect()
}

async fn pair(lock: &ReentrantLock) -> Result<(), Failure> {
    let _ = lock.lock().await?.unlock().await?;
    Ok(())
}

/// A count: `rounds` times, so many at a time lock and unlock a lock of their own.
async fn pairs(client: &LockClient, together: usize, rounds: usize) -> Result<(), Failure> {
    let locks = locks(client, together);
    for _ in 0..COUNTS {
        mark();
        for _ in 0..rounds {
            try_join_all(locks.iter().map(pair)).await?;
        }
    }
    mark();
    Ok(())
}

/// Prints how many pairs so many tasks make in a second, a lock each.
async fn speed(client: &LockClient, together: usize) -> Result<(), Failure> {
    let locks = locks(client, together);
    try_join_all(locks.iter().map(pair)).await?;
    let began = Instant::now();
    let pairs = locks.iter().map(async |lock| {
        let mut pairs = 0_u32;
        while began.elapsed() < SPEED_FOR {
            pair(lock).await?;
            pairs += 1;
        }
        Ok::<_, Failure>(pairs)
    });
    let pairs: u32 = try_join_all(pairs).await?.into_iter().sum();
    println!("{:.0}", f64::from(pairs) / began.elapsed().as_secs_f64());
    Ok(())
}

/// Prints the p50 of a pair of `try_lock` and `unlock`, and of `try_acquire` and `release`, which take turns: other work on the
/// machine concerns both alike.
async fn permits(client: &LockClient) -> Result<(), Failure> {
    let (lock, pool) = (client.reentrant_lock("lock"), client.semaphore("pool"));
    pool.try_set_permits(8).await?;
    let (mut locks, mut permits) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        for _ in 0..PAIRS_OF_A_TURN {
            let of_lock = timed(try_pair(&lock)).await?;
            let of_permit = timed(permit(&pool)).await?;
            // The first turns warm up.
            if turn >= TURNS / 10 {
                locks.push(of_lock);
                permits.push(of_permit);
            }
        }
    }
    let p50 = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    let (lock, permit) = (p50(locks), p50(permits));
    let more = (permit / lock - 1.0) * 100.0;
    println!("p50 of a pair: lock {lock:.1} us, permit {permit:.1} us: {more:+.1} %");
    Ok(())
}

async fn timed(pair: impl Future<Output = Result<(), Failure>>) -> Result<Duration, Failure> {
    let began = Instant::now();
    pair.await?;
    Ok(began.elapsed())
}

async fn try_pair(lock: &ReentrantLock) -> Result<(), Failure> {
    let guard = lock.try_lock().await?.ok_or("the lock is free")?;
    let _ = guard.unlock().await?;
    Ok(())
}

async fn permit(pool: &Semaphore) -> Result<(), Failure> {
    let permit = pool.try_acquire().await?.ok_or("there are permits")?;
    Ok(permit.release().await?)
}

/// A count: each of so many holds is renewed.
async fn renewal(client: &LockClient, held: usize) -> Result<(), Failure> {
    let locks = locks(client, held);
    let guards = try_join_all(locks.iter().map(ReentrantLock::lock)).await?;
    for _ in 0..RENEWALS {
        mark();
        let valid: Vec<_> = guards.iter().map(|guard| guard.valid_until()).collect();
        for (guard, valid) in guards.iter().zip(valid) {
            while guard.valid_until() == valid {
                sleep(LOOK_EVERY).await;
            }
        }
    }
    mark();
    guards.into_iter().for_each(|guard| guard.leak());
    Ok(())
}

/// A count: so many tasks want one lock; all but the first wait, and each wakes the next.
async fn wake_up(client: &LockClient, tasks: usize) -> Result<(), Failure> {
    let lock = client.reentrant_lock("lock:wake");
    for _ in 0..COUNTS {
        mark();
        let mut turns = JoinSet::new();
        for _ in 0..tasks {
            let lock = lock.clone();
            turns.spawn(async move { pair(&lock).await });
        }
        while let Some(turn) = turns.join_next().await {
            turn??;
        }
    }
    mark();
    Ok(())
}
