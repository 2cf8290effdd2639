//! One sample of one workload by one peer.

use std::time::Duration;

use compare::{
    Command, Failure, Kind, Round, Times,
    stats::Spread,
    turns::{Pause, Taken, Turned, Turns},
};
use futures_util::future::try_join_all;
use serde_json::Value;

use crate::{
    counters::Monitor,
    figure::{Figure, Sample},
    hand_off, held,
    peers::{MUTEX, OURS, Peer, REDISSON},
    program::Program,
    stage::{Answered, Stage, asked, plain_url},
    waiting,
    workload::{LOSS_TASKS, MIXED_NAMES, MIXED_TASKS, PROCESS_TASKS, Workload},
};

/// The turns at the multi-lock in one sample.
const MULTI_TURNS: usize = 5;
const STARTS: usize = 3;
/// The time for which `MONITOR` records the clients' commands.
const MONITORED: Duration = Duration::from_millis(500);
const SEGMENTS_LOST: f64 = 0.01;
impl Stage {
    /// Runs one round of the workload, and returns its samples and a note of the peer.
    pub async fn samples(
        &mut self,
        peer: &mut Peer,
        workload: Workload,
        times: Times,
    ) -> Result<(Vec<Sample>, Option<String>), Failure> {
        let mut note = None;
        let samples = match workload {
            Workload::Pair { kind, tasks } => {
                let command = Command::Pair { kind, tasks, times };
                let [program] = peer.programs().await?;
                let answered = self.ask(program, &command).await?;
                note = noted(&answered.value, tasks);
                vec![rounds(&answered)?]
            }
            Workload::Sent => vec![self.sent(peer).await?],
            Workload::OneKey { tasks } => {
                let name = testbed::unique_name("bench:one");
                let command = Command::Contend { name, tasks, times };
                let [program] = peer.programs().await?;
                vec![rounds(&self.ask(program, &command).await?)?]
            }
            Workload::Readers { .. } if ![OURS, REDISSON].contains(&peer.name) => {
                return compare::failure::unsupported("it is asked for no read-write lock");
            }
            Workload::Readers { tasks } => {
                let turns = Turns {
                    taken: Taken::One(Kind::Read),
                    names: vec![testbed::unique_name("bench:readers")],
                    clients: 1,
                    tasks,
                    work: Pause::of(0.0),
                    think: Pause::of(0.0),
                    times,
                };
                let [program] = peer.programs().await?;
                vec![turned(&self.ask(program, &Command::Turns(turns)).await?)?]
            }
            Workload::Processes if peer.name == MUTEX => {
                return compare::failure::unsupported("it excludes the tasks of one process");
            }
            Workload::Processes => vec![self.processes(peer, times).await?],
            Workload::HandOff => vec![hand_off::plain(self, peer, times).await?],
            Workload::FairHandOff => vec![hand_off::fair(self, peer, times).await?],
            Workload::Mixed => {
                let command = Command::Mixed {
                    tasks: MIXED_TASKS,
                    names: MIXED_NAMES,
                    times,
                };
                let [program] = peer.programs().await?;
                vec![rounds(&self.ask(program, &command).await?)?]
            }
            Workload::Permits { .. } if ![OURS, REDISSON].contains(&peer.name) => {
                return compare::failure::unsupported("it is asked for no semaphore");
            }
            Workload::Permits { tasks, permits } => {
                let command = Command::Permits {
                    tasks,
                    permits,
                    times,
                };
                let [program] = peer.programs().await?;
                vec![rounds(&self.ask(program, &command).await?)?]
            }
            Workload::Held => held::thirds(self, peer).await?,
            Workload::Waiting { names } => vec![waiting::memory(self, peer, names).await?],
            Workload::Multi { names } => vec![self.multi(peer, names).await?],
            Workload::Start => {
                let [program] = peer.programs().await?;
                let mut starts = Vec::new();
                for _ in 0..STARTS {
                    starts.push(asked::<f64>(program, &Command::Start).await?);
                }
                vec![Sample::from([(Figure::P50, Spread::of(starts).median)])]
            }
            Workload::Loss => vec![self.loss(peer, times).await?],
            Workload::Share(_) => return Err("it is measured with several peers".into()),
        };
        Ok((samples, note))
    }

    async fn sent(&mut self, peer: &mut Peer) -> Result<Sample, Failure> {
        let times = Times {
            warm_up: Duration::ZERO,
            measured: MONITORED,
        };
        let kind = Kind::Reentrant;
        let [program] = peer.programs().await?;
        let monitor = Monitor::open(&self.server).await?;
        let tasks = 1;
        let round: Round = asked(program, &Command::Pair { kind, tasks, times }).await?;
        let sent = monitor.close(&mut self.observer).await?;
        let all: u64 = sent.values().sum();
        let scripts = ["EVALSHA", "EVAL"]
            .iter()
            .filter_map(|name| sent.get(*name));
        let scripts: u64 = scripts.sum();
        let per_pair = |count: u64| count as f64 / round.all as f64;
        Ok(Sample::from([
            (Figure::Scripts, per_pair(scripts)),
            (Figure::Others, per_pair(all - scripts)),
        ]))
    }

    async fn processes(&mut self, peer: &mut Peer, times: Times) -> Result<Sample, Failure> {
        let name = testbed::unique_name("bench:processes");
        let command = Command::Contend {
            name,
            tasks: PROCESS_TASKS,
            times,
        };
        let programs: [&mut Program; 4] = peer.programs().await?;
        let before = self.counters().await?;
        let asking = programs
            .into_iter()
            .map(|one| asked::<Round>(one, &command));
        let all = try_join_all(asking).await?;
        let used = before.until(&self.counters().await?);
        let (count, done) = all.iter().fold((0, 0), |(count, done), round| {
            (count + round.count, done + round.all)
        });
        let least = all.iter().map(|round| round.count).min().unwrap_or(0);
        let median = Spread::of(all.iter().map(|round| round.p50_us)).median;
        let slowest = Spread::of(all.iter().map(|round| round.p99_us)).max;
        let equal = count as f64 / all.len() as f64;
        Ok(Sample::from([
            (Figure::PerSecond, count as f64 / all[0].seconds),
            (Figure::P50, median),
            (Figure::P99, slowest),
            (Figure::LeastShare, 100.0 * least as f64 / equal),
            (Figure::Scripts, used.scripts as f64 / done as f64),
            (Figure::ServerCpu, 1e6 * used.cpu_seconds / done as f64),
        ]))
    }

    async fn multi(&mut self, peer: &mut Peer, names: usize) -> Result<Sample, Failure> {
        let names = (0..names).map(|i| format!("bench:multi:{i}")).collect();
        let take = Command::Take(names);
        let [program] = peer.programs().await?;
        let (mut taken, mut released) = (Vec::new(), Vec::new());
        for _ in 0..MULTI_TURNS {
            taken.push(self.ask(program, &take).await?);
            released.push(self.ask(program, &Command::Release).await?);
        }
        let median =
            |turns: &[Answered], of: fn(&Answered) -> f64| Spread::of(turns.iter().map(of)).median;
        let micros = |turn: &Answered| turn.value.as_f64().unwrap_or(f64::NAN);
        let scripts = |turn: &Answered| turn.used.scripts as f64;
        let trips = |turn: &Answered| turn.used.reads as f64;
        Ok(Sample::from([
            (Figure::P50, median(&taken, micros)),
            (Figure::Scripts, median(&taken, scripts)),
            (Figure::Trips, median(&taken, trips)),
            (Figure::ReleaseP50, median(&released, micros)),
            (Figure::ReleaseScripts, median(&released, scripts)),
            (Figure::ReleaseTrips, median(&released, trips)),
        ]))
    }

    async fn loss(&mut self, peer: &mut Peer, times: Times) -> Result<Sample, Failure> {
        let proxy = self.proxy().await;
        let (url, faults) = (plain_url(proxy), proxy.faults());
        let mut program = peer.program_at(&url).await?;
        let pairs = |times| Command::Pair {
            kind: Kind::Reentrant,
            tasks: LOSS_TASKS,
            times,
        };
        // The peer connects and warms up without losses.
        let without = Times {
            warm_up: Duration::ZERO,
            measured: times.measured / 2,
        };
        program.ask(&pairs(without)).await?;
        // A fixed seed, so that all peers lose the same segments.
        faults.seed(1);
        faults.lose_segments(SEGMENTS_LOST);
        // A longer round, because a loss costs 200 ms: a second would have too few losses.
        let times = Times {
            measured: 2 * times.measured,
            ..times
        };
        let answered = self.ask(&mut program, &pairs(times)).await;
        faults.heal();
        rounds(&answered?)
    }
}

fn rounds(answered: &Answered) -> Result<Sample, Failure> {
    let round: Round = serde_json::from_value(answered.value.clone())?;
    let used = &answered.used;
    let per_pair = |amount: f64| amount / round.all as f64;
    Ok(Sample::from([
        (Figure::PerSecond, round.count as f64 / round.seconds),
        (Figure::P50, round.p50_us),
        (Figure::P99, round.p99_us),
        (Figure::Scripts, per_pair(used.scripts as f64)),
        (Figure::Others, per_pair(used.others as f64)),
        (Figure::ServerCpu, per_pair(used.cpu_seconds * 1e6)),
        (
            Figure::ClientCpu,
            per_pair(answered.client_cpu_seconds * 1e6),
        ),
    ]))
}

fn turned(answered: &Answered) -> Result<Sample, Failure> {
    let turned: Turned = serde_json::from_value(answered.value.clone())?;
    let used = &answered.used;
    let per_pair = |amount: f64| amount / turned.all as f64;
    Ok(Sample::from([
        (Figure::PerSecond, turned.count as f64 / turned.seconds),
        (Figure::LongestWait, turned.longest_wait_us / 1e3),
        (Figure::Scripts, per_pair(used.scripts as f64)),
        (Figure::ServerCpu, per_pair(used.cpu_seconds * 1e6)),
        (
            Figure::ClientCpu,
            per_pair(answered.client_cpu_seconds * 1e6),
        ),
    ]))
}

/// The note of the ceiling: the number of connections with the most operations.
fn noted(answer: &Value, tasks: usize) -> Option<String> {
    let connections = answer.get("connections")?.as_u64()?;
    let depth = tasks.div_ceil(connections as usize);
    Some(format!(
        "{connections} connections, {depth} commands in each pipeline"
    ))
}
