//! The memory of many tasks that wait.

use std::time::{Duration, Instant};

use compare::{Command, Failure, Kind, Times};

use crate::{
    figure::{Figure, Sample},
    peers::Peer,
    program::Program,
    stage::Stage,
};

const COUNT: usize = 10_000;
/// Warm-up for connections, scripts and threads, whose memory is no part of a waiter.
const WARM_UP: Times = Times {
    warm_up: Duration::ZERO,
    measured: Duration::from_millis(300),
};
/// All tasks wait when the memory has been steady for this long.
const STEADY: Duration = Duration::from_millis(700);
/// The memory is steady if it changes by no more than this part.
const SAME: f64 = 0.005;

/// Measures a process of its own. Another process of the same peer holds the locks.
pub async fn memory(stage: &mut Stage, peer: &mut Peer, names: usize) -> Result<Sample, Failure> {
    let prefix = testbed::unique_name("bench:waiting");
    let mut holder = peer.program().await?;
    let hold = Command::HoldMany {
        prefix: prefix.clone(),
        count: names,
    };
    holder.ask(&hold).await?;
    let mut waiter = peer.program().await?;
    let warm_up = Command::Pair {
        kind: Kind::Reentrant,
        tasks: 8,
        times: WARM_UP,
    };
    waiter.ask(&warm_up).await?;
    let server = stage.counters().await?.memory;
    let client = waiter.memory()?;
    let count = COUNT;
    let wait = Command::WaitMany {
        prefix,
        count,
        names,
    };
    waiter.ask(&wait).await?;
    let within = Duration::from_secs(if stage.plan.quick { 3 } else { 15 });
    steady(&waiter, within).await?;
    let each = |before: f64, after: f64| (after - before) / COUNT as f64;
    let sample = Sample::from([
        (Figure::ClientMemory, each(client, waiter.memory()?)),
        (
            Figure::ServerMemory,
            each(server, stage.counters().await?.memory),
        ),
    ]);
    waiter.ask(&Command::GiveUp).await?;
    holder.ask(&Command::FreeMany).await?;
    Ok(sample)
}

/// Waits until the memory is steady, for `within` at most.
async fn steady(program: &Program, within: Duration) -> Result<(), Failure> {
    let start = Instant::now();
    let (mut was, mut since) = (program.memory()?, Instant::now());
    while start.elapsed() < within && since.elapsed() < STEADY {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let is = program.memory()?;
        if (is - was).abs() > SAME * was {
            (was, since) = (is, Instant::now());
        }
    }
    Ok(())
}
