//! All rounds of all workloads. Each round begins with another peer.

use std::time::Duration;

use compare::{Failure, Times, Unsupported};

use crate::{
    peers::{self, OURS, Peer, REDISSON},
    progress::progress,
    results::{Report, Row, Table},
    shares,
    stage::Stage,
    workload::Workload,
};

/// Of the time of a round, what comes before it and is not measured.
const WARM_UP: f64 = 0.2;
/// Before the first round of a workload: connections, scripts.
const SHORTLY: Duration = Duration::from_millis(200);
/// Of the time of a round, what a JVM needs before the first one of a workload: it compiles what it runs.
const JVM_WARM_UP: u32 = 3;
/// Likewise, where most of the time is waiting.
const JVM_WARM_UP_OF_WAITING: u32 = 8;
/// A peer has this long to answer, beyond the time that the command takes by itself.
const TIMEOUT: Duration = Duration::from_secs(30);
const QUICK_TIMEOUT: Duration = Duration::from_secs(12);
/// As many processes as a hand-off needs.
const KEPT: usize = 2;

pub async fn all(stage: &mut Stage, report: &mut Report) -> Result<(), Failure> {
    let mut workloads = stage.plan.workloads.iter();
    let contended = workloads.all(|one| matches!(one, Workload::Share(_)));
    let needed = |name: &str| !contended || matches!(name, OURS | REDISSON);
    let (present, absent) = peers::present();
    let without = stage.plan.without.clone();
    let left_out = without.iter().map(|name| (*name, "--without".to_owned()));
    for (name, why) in absent.into_iter().chain(left_out) {
        if !needed(name) {
            continue;
        }
        eprintln!("without {name}: {why}");
        report.absent.insert(name.to_owned(), why);
    }
    let timeout = match stage.plan.quick {
        true => QUICK_TIMEOUT,
        false => TIMEOUT,
    };
    let present = present.into_iter().filter(|name| needed(name));
    let present = present.filter(|name| !without.contains(name));
    let mut peers: Vec<Peer> = present
        .map(|name| Peer::new(name, stage.server.url(), timeout))
        .collect();
    for workload in stage.plan.workloads.clone() {
        let table = match workload {
            Workload::Share(share) => shares::measure(stage, &mut peers, share).await?,
            workload => measure(stage, &mut peers, workload).await?,
        };
        report.tables.push(table);
    }
    Ok(())
}

async fn measure(
    stage: &mut Stage,
    peers: &mut [Peer],
    workload: Workload,
) -> Result<Table, Failure> {
    let plan = &stage.plan;
    // Thirds of a lease, and thousands of waiters: only ours, where there is little time.
    let few = plan.quick && workload.takes_long();
    let count = match workload {
        Workload::Pair { .. } => plan.rounds,
        _ if workload.takes_long() || workload == Workload::Sent => 1,
        // They take longer, or are less steady than a few rounds more could mend.
        _ => plan.rounds.div_ceil(2),
    };
    let measured = plan.measured * workload.stretch(plan.quick);
    let times = Times {
        warm_up: plan.measured.mul_f64(WARM_UP),
        measured,
    };
    let mut rows: Vec<(&mut Peer, Row)> = peers
        .iter_mut()
        .filter(|peer| !few || peer.name == OURS)
        .map(|peer| {
            let row = Row::new(peer.name);
            (peer, row)
        })
        .collect();
    let warms_up = !workload.takes_long() && workload != Workload::Sent;
    for (peer, row) in &mut rows {
        if warms_up && (peer.warms_up() || !stage.plan.quick || !workload.is_shared()) {
            warm_up(stage, peer, row, workload, times).await?;
        }
    }
    for round in 0..count {
        for turn in 0..rows.len() {
            let at = (round + turn) % rows.len();
            let (peer, row) = &mut rows[at];
            sample(stage, peer, row, workload, times).await?;
        }
    }
    let mut table = Table {
        workload: workload.name(),
        rows: Vec::new(),
    };
    for (peer, row) in rows {
        // More would be in the way of what comes next.
        peer.keep(KEPT);
        table.rows.push(row);
    }
    Ok(table)
}

async fn warm_up(
    stage: &mut Stage,
    peer: &mut Peer,
    row: &mut Row,
    workload: Workload,
    times: Times,
) -> Result<(), Failure> {
    let longer = match (peer.warms_up(), workload.mostly_waits()) {
        (false, _) => SHORTLY,
        (true, false) => times.measured * JVM_WARM_UP,
        (true, true) => times.measured * JVM_WARM_UP_OF_WAITING,
    };
    let times = Times {
        warm_up: Duration::ZERO,
        measured: longer,
    };
    match stage.samples(peer, workload, times).await {
        Err(failure) if failure.is::<Unsupported>() => row.miss(failure.to_string()),
        // The rounds tell whether it fails for good.
        Err(failure) => restart(stage, peer, workload, &failure).await?,
        Ok(_) => {}
    }
    Ok(())
}

async fn sample(
    stage: &mut Stage,
    peer: &mut Peer,
    row: &mut Row,
    workload: Workload,
    times: Times,
) -> Result<(), Failure> {
    if row.missing.is_some() {
        return Ok(());
    }
    match stage.samples(peer, workload, times).await {
        Ok((samples, note)) => {
            row.add(samples);
            row.note = note;
            progress(stage.began, workload, row);
            Ok(())
        }
        Err(failure) => missed(stage, peer, row, workload, failure).await,
    }
}

/// A peer that cannot or fails costs its row, and not the run.
async fn missed(
    stage: &mut Stage,
    peer: &mut Peer,
    row: &mut Row,
    workload: Workload,
    failure: Failure,
) -> Result<(), Failure> {
    let why = match failure.is::<Unsupported>() {
        true => failure.to_string(),
        false => {
            restart(stage, peer, workload, &failure).await?;
            format!("failed: {failure}")
        }
    };
    row.miss(why);
    Ok(())
}

/// An answer that is late must not be taken for another's.
async fn restart(
    stage: &mut Stage,
    peer: &mut Peer,
    workload: Workload,
    failure: &Failure,
) -> Result<(), Failure> {
    eprintln!("{:>13} {:>15}: {failure}", workload.name(), peer.name);
    peer.keep(0);
    stage.observer.clear().await
}

/// Without our own figures nothing can be compared: that is a failure.
pub fn ours_is_there(report: &Report) -> Result<(), Failure> {
    for table in &report.tables {
        for row in &table.rows {
            if let (OURS, Some(why)) = (row.peer.as_str(), &row.missing) {
                return Err(format!("{}: ours: {why}", table.workload).into());
            }
        }
    }
    Ok(())
}
