//! `cargo bench`: the time of lock + unlock on a redis-server of its own, and how many round trips of a bare client take as long.
//!
//! `cargo bench -- contended` picks by a part of the name. `make bench-compare` measures beside other clients and locks, and
//! `make bench-check` counts instructions.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use redis::{AsyncCommands, aio::MultiplexedConnection};
use redisson_lock::{Error, LockClient, ReentrantLock};
use testbed::Server;

const USAGE: &str = "\
Usage: cargo bench [-- [--list] [PART]..]

Measures the benchmarks whose names contain a PART, or all.
--list prints the names. Other options are ignored, because cargo passes those of test programs too.";

/// How often each benchmark takes its turn; the median counts. Without cargo's `--bench`, each runs once, to see that it works.
const TURNS: usize = 9;
const TURN: Duration = Duration::from_millis(300);

struct Benchmark {
    name: &'static str,
    tasks: usize,
    locks: usize,
}

const BENCHMARKS: [Benchmark; 3] = [
    Benchmark {
        name: "lock + unlock, 1 task",
        tasks: 1,
        locks: 1,
    },
    Benchmark {
        name: "lock + unlock, 64 tasks with a lock each",
        tasks: 64,
        locks: 64,
    },
    Benchmark {
        name: "lock + unlock, 8 tasks at one contended lock",
        tasks: 8,
        locks: 1,
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |option| words.iter().any(|word| word == option);
    let parts: Vec<_> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let is_chosen = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(*part));
    let chosen = BENCHMARKS.iter().filter(|each| is_chosen(each.name));
    if has("--help") || has("-h") {
        println!("{USAGE}");
    } else if has("--list") {
        chosen.for_each(|each| println!("{}: benchmark", each.name));
    } else {
        let turns = if has("--bench") { TURNS } else { 1 };
        let runtime = tokio::runtime::Runtime::new().expect("tokio starts");
        if let Err(error) = runtime.block_on(measure(&chosen.collect::<Vec<_>>(), turns)) {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Benchmarks and round trips take turns, so that other work on the machine concerns all alike.
async fn measure(chosen: &[&Benchmark], turns: usize) -> Result<(), Error> {
    let server = Server::start().await;
    let locks = LockClient::connect(server.url()).await?;
    let bare = redis::Client::open(server.url()).expect("it is a URL");
    let bare = bare.get_multiplexed_async_connection().await;
    let mut bare = bare.expect("the server accepts connections");
    let mut trips = Vec::new();
    let mut pairs = vec![Vec::new(); chosen.len()];
    for turn in 0..=turns {
        let trip = round_trip(&mut bare).await;
        let mut taken = Vec::new();
        for each in chosen {
            taken.push(pair(&locks, each).await?);
        }
        // The first turn warms up.
        if turn > 0 {
            trips.push(trip);
            pairs
                .iter_mut()
                .zip(taken)
                .for_each(|(all, pair)| all.push(pair));
        }
    }
    let trip = median(trips);
    println!(
        "{:<46} {:>8.1} us",
        "a round trip of redis-rs",
        micros(trip)
    );
    for (each, taken) in chosen.iter().zip(pairs) {
        let pair = median(taken);
        println!(
            "{:<46} {:>8.1} us {:>8.0}/s {:>6.2} round trips",
            each.name,
            micros(pair),
            1.0 / pair.as_secs_f64(),
            pair.as_secs_f64() / trip.as_secs_f64()
        );
    }
    locks.shutdown().await;
    Ok(())
}

/// The time of a `PING`.
async fn round_trip(bare: &mut MultiplexedConnection) -> Duration {
    let (began, mut done) = (Instant::now(), 0);
    while began.elapsed() < TURN {
        let _: String = bare.ping().await.expect("the server answers");
        done += 1;
    }
    began.elapsed() / done
}

/// The time of a pair among all tasks together.
async fn pair(client: &LockClient, benchmark: &Benchmark) -> Result<Duration, Error> {
    let began = Instant::now();
    let tasks = (0..benchmark.tasks).map(|task| {
        let lock = client.reentrant_lock(format!("bench:{}", task % benchmark.locks));
        tokio::spawn(async move { pairs(&lock, began).await })
    });
    let done = try_join_all(tasks).await.expect("no task panics");
    let done: u32 = done.into_iter().sum::<Result<u32, Error>>()?;
    Ok(began.elapsed() / done)
}

/// The number of pairs in a turn that began at `began`, at least one.
async fn pairs(lock: &ReentrantLock, began: Instant) -> Result<u32, Error> {
    let mut done = 0;
    while done == 0 || began.elapsed() < TURN {
        lock.lock().await?.unlock().await?;
        done += 1;
    }
    Ok(done)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
