//! The cost of holding many locks.

use std::time::{Duration, Instant};

use compare::{Command, Failure};

use crate::{
    figure::{Figure, Sample},
    peers::Peer,
    stage::Stage,
    workload::HELD,
};

/// A third of the lease of 30 s: this crate and Redisson renew that often.
const THIRD: Duration = Duration::from_secs(10);
const THIRDS: usize = 3;

/// Measures a process of its own for several thirds of the lease. A peer that sends nothing in the
/// first third renews nothing: it is measured no longer.
pub async fn thirds(stage: &mut Stage, peer: &mut Peer) -> Result<Vec<Sample>, Failure> {
    let mut program = peer.program().await?;
    let prefix = testbed::unique_name("bench:held");
    let count = HELD;
    program.ask(&Command::HoldMany { prefix, count }).await?;
    let thirds = if stage.plan.quick { 1 } else { THIRDS };
    let mut samples = Vec::new();
    for _ in 0..thirds {
        let (cpu, from) = (program.cpu_seconds()?, Instant::now());
        let before = stage.counters().await?;
        tokio::time::sleep(THIRD).await;
        let used = before.until(&stage.counters().await?);
        let seconds = from.elapsed().as_secs_f64();
        let percent = |cpu_seconds: f64| 100.0 * cpu_seconds / seconds;
        samples.push(Sample::from([
            (Figure::Scripts, used.scripts as f64),
            (Figure::Others, used.others as f64),
            (Figure::ClientCore, percent(program.cpu_seconds()? - cpu)),
            (Figure::ServerCore, percent(used.cpu_seconds)),
        ]));
        if used.scripts + used.others == 0 {
            break;
        }
    }
    program.ask(&Command::FreeMany).await?;
    Ok(samples)
}
