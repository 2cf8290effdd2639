//! Hand-offs of a lock from one process to another.

use std::time::{Duration, Instant};

use compare::{Command, Failure, Kind, Times, stats};

use crate::{
    figure::{Figure, Sample},
    peers::Peer,
    program::Program,
    stage::{Stage, asked, until},
};

/// The waiters in each of the two processes of a queue.
const WAITERS: usize = 8;
/// The time between the last waiter's subscription and the release: all waiters have tried once
/// more by then, and sleep.
const SETTLED: Duration = Duration::from_millis(3);
/// The release comes after a random time of at most this length, so that it meets a client that
/// polls at any point between two polls.
const POLLED: Duration = Duration::from_millis(200);
/// The fewest hand-offs of a round: a lock that polls may need the whole round for one.
const AT_LEAST: usize = 5;
/// The time within which waiters must be seen on the server.
const QUEUED_WITHIN: Duration = Duration::from_secs(30);

/// Measures one hand-off after the other until the time is over. The two processes alternate.
pub async fn plain(stage: &mut Stage, peer: &mut Peer, times: Times) -> Result<Sample, Failure> {
    let listens = peer.listens();
    let mut both: [&mut Program; 2] = peer.programs().await?;
    let name = testbed::unique_name("bench:hand-off");
    let mut nanos = Vec::new();
    let from = Instant::now();
    while from.elapsed() < times.measured || nanos.len() < AT_LEAST {
        let [holder, waiter] = &mut both;
        nanos.push(one(stage, holder, waiter, &name, listens).await?);
        both.reverse();
    }
    Ok(sample(nanos))
}

async fn one(
    stage: &mut Stage,
    holder: &mut Program,
    waiter: &mut Program,
    name: &str,
    listens: bool,
) -> Result<u64, Failure> {
    let kind = Kind::Reentrant;
    let (hold, wait) = (name.to_owned(), name.to_owned());
    let tasks = 1;
    holder.ask(&Command::Hold { kind, name: hold }).await?;
    let waiting = Command::Wait {
        kind,
        name: wait,
        tasks,
    };
    waiter.ask(&waiting).await?;
    let mut settled = SETTLED;
    if listens {
        let channel = [format!("redisson_lock__channel:{{{name}}}")];
        until("no waiter listens", QUEUED_WITHIN, async || {
            let listeners = stage.observer.listeners(&channel).await?;
            Ok((listeners[0] > 0).then_some(()))
        })
        .await?;
    } else {
        settled += POLLED.mul_f64(fastrand::f64());
    }
    tokio::time::sleep(settled).await;
    let freed: u64 = asked(holder, &Command::Free).await?;
    let times: Vec<u64> = asked(waiter, &Command::Times).await?;
    match times.as_slice() {
        [taken] if *taken > freed => Ok(taken - freed),
        _ => Err(format!("freed at {freed}, but taken at {times:?}").into()),
    }
}

/// Measures one queue after the other until the time is over.
pub async fn fair(stage: &mut Stage, peer: &mut Peer, times: Times) -> Result<Sample, Failure> {
    let mut both = peer.programs().await?;
    let name = testbed::unique_name("bench:fair-hand-off");
    let mut nanos = Vec::new();
    let before = stage.counters().await?;
    let from = Instant::now();
    while from.elapsed() < times.measured || nanos.is_empty() {
        nanos.extend(queue(stage, &mut both, &name).await?);
    }
    let used = before.until(&stage.counters().await?);
    let scripts = used.scripts as f64 / nanos.len() as f64;
    let mut sample = sample(nanos);
    sample.insert(Figure::Scripts, scripts);
    Ok(sample)
}

/// The duration of each hand-off: from the holder to the head of the queue, and so on.
async fn queue(
    stage: &mut Stage,
    both: &mut [&mut Program; 2],
    name: &str,
) -> Result<Vec<u64>, Failure> {
    let (kind, tasks) = (Kind::Fair, WAITERS);
    let hold = name.to_owned();
    both[0].ask(&Command::Hold { kind, name: hold }).await?;
    for process in &mut *both {
        let name = name.to_owned();
        process.ask(&Command::Wait { kind, name, tasks }).await?;
    }
    all_queued(stage, name).await?;
    tokio::time::sleep(SETTLED).await;
    let freed: u64 = asked(both[0], &Command::Free).await?;
    let mut turns = vec![freed];
    for process in both {
        turns.extend(asked::<Vec<u64>>(process, &Command::Times).await?);
    }
    turns.sort_unstable();
    if turns[0] != freed || turns.len() != 2 * WAITERS + 1 {
        return Err(format!("freed at {freed}, but turns were at {turns:?}").into());
    }
    let pairs = turns.windows(2);
    Ok(pairs.map(|pair| pair[1] - pair[0]).collect())
}

/// Waits until all waiters are in the queue, and each listens to its channel.
async fn all_queued(stage: &mut Stage, name: &str) -> Result<(), Failure> {
    let queue = format!("redisson_lock_queue:{{{name}}}");
    until("waiters not queued", QUEUED_WITHIN, async || {
        let owners = stage.observer.list(&queue).await?;
        if owners.len() < 2 * WAITERS {
            return Ok(None);
        }
        let channels = owners.iter();
        let channels: Vec<String> = channels
            .map(|owner| format!("redisson_lock__channel:{{{name}}}:{owner}"))
            .collect();
        let listening = stage.observer.listeners(&channels).await?;
        Ok(listening.iter().all(|count| *count > 0).then_some(()))
    })
    .await
}

fn sample(mut nanos: Vec<u64>) -> Sample {
    nanos.sort_unstable();
    let micros = |quantile| stats::quantile(&nanos, quantile).unwrap_or(0) as f64 / 1e3;
    Sample::from([(Figure::P50, micros(0.50)), (Figure::P99, micros(0.99))])
}
