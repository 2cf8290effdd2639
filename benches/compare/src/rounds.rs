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

/// The part of a round's length that precedes it as a warm-up.
const WARM_UP: f64 = 0.2;
/// A run before the first round of a workload makes connections and loads scripts.
const SHORTLY: Duration = Duration::from_millis(200);
/// The same run for a JVM, in lengths of a round: it compiles code while it runs.
const JVM_WARM_UP: u32 = 3;
/// The same for workloads that mostly wait.
const JVM_WARM_UP_OF_WAITING: u32 = 8;
/// The time for an answer, beyond the duration of the command itself.
const TIMEOUT: Duration = Duration::from_secs(30);
const QUICK_TIMEOUT: Duration = Duration::from_secs(12);
/// The processes that a hand-off needs.
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
    // A quick run measures only this crate over thirds of a lease, or with thousands of waiters.
    let few = plan.quick && workload.takes_long();
    let count = match workload {
        Workload::Pair { .. } => plan.rounds,
        _ if workload.takes_long() || workload == Workload::Sent => 1,
        // The remaining workloads take longer, or vary by more than a few more rounds could
        // correct.
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
        // Further processes would disturb the next workload.
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
        // The rounds show whether the peer fails for good.
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

/// Records that a peer failed, or does not support the workload. The run goes on without its row.
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

/// Ends a failed peer's processes, so that a late answer is not taken for that of a later command.
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

/// Fails without figures of this crate: nothing can be compared then.
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
