//! Samples of several processes that contend for one lock, of one peer or of two.

use std::time::Duration;

use compare::{Command, Failure, Times, Turned, Turns, Unsupported};
use futures_util::future::try_join_all;
use testbed::Server;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::{JoinHandle, spawn_local},
};

use crate::{
    counters::Used,
    figure::{Figure, Sample},
    peers::{MIXED, Peer, REDISSON},
    program::Program,
    progress::progress,
    results::{Row, Table},
    share::{Party, Share},
    stage::{Stage, asked, plain_url},
    workload::Workload,
};

/// The part of a round's length that precedes it as a warm-up.
const WARM_UP: f64 = 0.25;
/// A run on another lock before the first round makes clients, scripts and connections.
const SHORTLY: Duration = Duration::from_millis(300);
/// The same run where a JVM takes part: it compiles code while it runs.
const JVM_WARM_UP: Duration = Duration::from_secs(2);
/// Processes of a peer that the next workload takes over.
const KEPT: usize = 2;

/// The result of one contention for a lock.
struct Contention {
    /// The answers in the order of the parties.
    turned: Vec<Turned>,
    used: Used,
}

/// The processes of the parties, in their order.
type Programs<'a> = Vec<&'a mut Program>;

pub async fn measure(
    stage: &mut Stage,
    peers: &mut [Peer],
    share: Share,
) -> Result<Table, Failure> {
    let workload = Workload::Share(share);
    let rounds = stage.plan.shares.rounds;
    let mut rows = rows(peers, share);
    for round in 0..rounds {
        for row in &mut rows {
            if row.missing.is_some() {
                continue;
            }
            match sample(stage, peers, share, row, round == 0).await {
                Ok(sample) => {
                    row.add(vec![sample]);
                    progress(stage.began, workload, row);
                }
                Err(failure) => {
                    row.miss(reason(&failure));
                    eprintln!("{:>13} {:>15}: {failure}", workload.name(), row.peer);
                    // A late answer must not be taken for that of a later command.
                    peers.iter_mut().for_each(|peer| peer.keep(0));
                    stage.observer.clear().await?;
                }
            }
        }
    }
    let several = |row: &Row| {
        share
            .parties(&row.peer)
            .iter()
            .any(|party| party.clients > 1)
    };
    let kept = if rows.iter().any(several) { 0 } else { KEPT };
    peers.iter_mut().for_each(|peer| peer.keep(kept));
    Ok(Table {
        workload: workload.name(),
        rows,
    })
}

/// The rows of the peers that take part. A mixed row says which peer it lacks.
fn rows(peers: &[Peer], share: Share) -> Vec<Row> {
    let present = |name: &str| peers.iter().any(|peer| peer.name == name);
    let mut rows = Vec::new();
    for name in share.rows() {
        let mut row = Row::new(name);
        let parties = share.parties(name);
        match parties.iter().find(|party| !present(party.peer)) {
            Some(absent) if *name == MIXED => {
                row.miss(format!("{} does not take part", absent.peer));
            }
            Some(_) => continue,
            None => {}
        }
        rows.push(row);
    }
    rows
}

fn reason(failure: &Failure) -> String {
    match failure.is::<Unsupported>() {
        true => failure.to_string(),
        false => format!("failed: {failure}"),
    }
}

async fn sample(
    stage: &mut Stage,
    peers: &mut [Peer],
    share: Share,
    row: &Row,
    first: bool,
) -> Result<Sample, Failure> {
    let parties = share.parties(&row.peer);
    let mut far = Vec::new();
    for party in parties.iter().filter(|party| party.far) {
        let url = plain_url(stage.far().await);
        far.push(peer_of(peers, party.peer)?.program_at(&url).await?);
    }
    let mut programs = programs(peers, &mut far, &parties).await?;
    if first || parties.iter().any(|party| party.far) {
        warm_up(stage, &mut programs, &parties).await?;
    }
    let measured = stage.plan.shares.measured * share.stretch();
    let times = Times {
        warm_up: measured.mul_f64(WARM_UP),
        measured,
    };
    let name = testbed::unique_name("bench:share");
    let count = parties.len();
    Ok(match share {
        Share::Dead => {
            let alone = contend(stage, &mut programs, &parties, &name, times).await?;
            let listener = Listener::of(&stage.server, &name).await?;
            let beside = contend(stage, &mut programs, &parties, &name, times).await?;
            drop(listener);
            with_ratio(common(&beside), rate(&alone.turned), rate(&beside.turned))
        }
        Share::Readers { .. } => {
            let (readers, read) = (&parties[..count - 1], &mut programs[..count - 1]);
            let alone = contend(stage, read, readers, &name, times).await?;
            let beside = contend(stage, &mut programs, &parties, &name, times).await?;
            readers_and_writer(&alone, beside)
        }
        _ => common(&contend(stage, &mut programs, &parties, &name, times).await?),
    })
}

fn peer_of<'a>(peers: &'a mut [Peer], name: &str) -> Result<&'a mut Peer, Failure> {
    let found = peers.iter_mut().find(|peer| peer.name == name);
    found.ok_or_else(|| format!("{name} does not take part").into())
}

async fn programs<'a>(
    peers: &'a mut [Peer],
    far: &'a mut [Program],
    parties: &[Party],
) -> Result<Programs<'a>, Failure> {
    let mut near = Vec::new();
    for peer in peers {
        let own = parties
            .iter()
            .filter(|party| party.peer == peer.name && !party.far);
        let (name, count) = (peer.name, own.count());
        near.push((name, peer.first(count).await?.into_iter()));
    }
    let mut far = far.iter_mut();
    let program = |party: &Party| {
        if party.far {
            return far.next();
        }
        let mut near = near.iter_mut();
        near.find(|(name, _)| *name == party.peer)?.1.next()
    };
    let missing = || "a peer that it needs does not take part".into();
    parties
        .iter()
        .map(program)
        .collect::<Option<_>>()
        .ok_or_else(missing)
}

/// Connects the clients and compiles their code, so that all parties begin at the same time.
async fn warm_up(
    stage: &mut Stage,
    programs: &mut [&mut Program],
    parties: &[Party],
) -> Result<(), Failure> {
    let java = parties.iter().any(|party| party.peer == REDISSON);
    let times = Times {
        warm_up: Duration::ZERO,
        measured: match (java, stage.plan.quick) {
            (false, _) => SHORTLY,
            (true, false) => JVM_WARM_UP,
            (true, true) => JVM_WARM_UP / 2,
        },
    };
    let name = testbed::unique_name("bench:share:warm-up");
    contend(stage, programs, parties, &name, times)
        .await
        .map(drop)
}

async fn contend(
    stage: &mut Stage,
    programs: &mut [&mut Program],
    parties: &[Party],
    name: &str,
    times: Times,
) -> Result<Contention, Failure> {
    let commands: Vec<Command> = parties
        .iter()
        .map(|party| party.turns(name, times))
        .collect();
    let before = stage.counters().await?;
    let asking = programs.iter_mut().zip(&commands);
    let asking = asking.map(|(program, command)| asked::<Turned>(program, command));
    let turned = try_join_all(asking).await?;
    let used = before.until(&stage.counters().await?);
    Ok(Contention { turned, used })
}

fn rate(turned: &[Turned]) -> f64 {
    let per_second = |one: &Turned| one.count as f64 / one.seconds;
    turned.iter().map(per_second).sum()
}

fn longest_wait(turned: &[Turned]) -> f64 {
    let waits = turned.iter().map(|one| one.longest_wait_us / 1e3);
    waits.fold(0.0, f64::max)
}

/// The least share of a party, in percent of an equal one.
fn least_share(turned: &[Turned]) -> f64 {
    let all: u64 = turned.iter().map(|one| one.count).sum();
    let least = turned.iter().map(|one| one.count).min().unwrap_or(0);
    match all {
        0 => 0.0,
        all => 100.0 * least as f64 * turned.len() as f64 / all as f64,
    }
}

/// The figures of every workload; its columns select those that are shown.
fn common(Contention { turned, used }: &Contention) -> Sample {
    let done: u64 = turned.iter().map(|one| one.all).sum();
    let per_turn = |commands: u64| commands as f64 / done.max(1) as f64;
    let mut sample = Sample::from([
        (Figure::PerSecond, rate(turned)),
        (Figure::LeastShare, least_share(turned)),
        (Figure::LongestWait, longest_wait(turned)),
        (Figure::Scripts, per_turn(used.scripts)),
        (Figure::Others, per_turn(used.others)),
    ]);
    let rates = [Figure::First, Figure::Second, Figure::Third, Figure::Fourth];
    for (figure, one) in rates.into_iter().zip(turned) {
        sample.insert(figure, rate(&[*one]));
    }
    let waits = [
        (Figure::FirstWait, Figure::FirstWaitP99),
        (Figure::SecondWait, Figure::SecondWaitP99),
    ];
    for ((longest, p99), one) in waits.into_iter().zip(turned) {
        sample.insert(longest, longest_wait(&[*one]));
        sample.insert(p99, one.wait_p99_us / 1e3);
    }
    sample
}

fn with_ratio(mut sample: Sample, alone: f64, beside: f64) -> Sample {
    sample.insert(Figure::Alone, alone);
    sample.insert(Figure::Ratio, beside / alone);
    sample
}

/// The figures of `Readers`. The last party writes.
fn readers_and_writer(alone: &Contention, beside: Contention) -> Sample {
    let Some((writer, readers)) = beside.turned.split_last() else {
        return Sample::new();
    };
    let (without, with) = (rate(&alone.turned), rate(readers));
    let sample = Sample::from([
        (Figure::Writes, rate(&[*writer])),
        (Figure::WriterWait, longest_wait(&[*writer])),
        (Figure::PerSecond, with),
        (Figure::LongestWait, longest_wait(readers)),
    ]);
    with_ratio(sample, without, with)
}

impl Party {
    fn turns(&self, name: &str, times: Times) -> Command {
        let names = match self.taken {
            compare::Taken::One(_) => vec![name.to_owned()],
            compare::Taken::Multi => vec![format!("{name}:a"), format!("{name}:b")],
        };
        Command::Turns(Turns {
            taken: self.taken,
            names,
            clients: self.clients,
            tasks: self.tasks,
            work: self.work,
            think: self.think,
            times,
        })
    }
}

/// A connection that listens for the releases of a lock and never asks for it; dropping it closes it.
struct Listener(JoinHandle<()>);

impl Listener {
    async fn of(server: &Server, name: &str) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await?;
        let subscribe = format!("SUBSCRIBE redisson_lock__channel:{{{name}}}\r\n");
        stream.write_all(subscribe.as_bytes()).await?;
        let mut confirmation = [0; 1];
        stream.read_exact(&mut confirmation).await?;
        Ok(Self(spawn_local(async move {
            // The messages are read: the server closes a connection with a full output buffer.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        })))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(count: u64, longest_wait_ms: f64) -> Turned {
        Turned {
            count,
            all: 2 * count,
            seconds: 2.0,
            longest_wait_us: longest_wait_ms * 1e3,
            wait_p99_us: longest_wait_ms * 500.0,
        }
    }

    fn contention(turned: &[Turned]) -> Contention {
        Contention {
            turned: turned.to_vec(),
            used: Used {
                scripts: 400,
                others: 800,
                cpu_seconds: 0.0,
                reads: 0,
            },
        }
    }

    #[test]
    fn a_share_is_a_part_of_an_equal_one() {
        assert_eq!(least_share(&[turned(50, 0.0), turned(150, 0.0)]), 50.0);
        let three = [turned(10, 0.0), turned(10, 0.0), turned(10, 0.0)];
        assert_eq!(least_share(&three), 100.0);
        assert_eq!(least_share(&[turned(0, 0.0), turned(0, 0.0)]), 0.0);
    }

    #[test]
    fn a_sample_has_a_figure_for_each_process() {
        let sample = common(&contention(&[turned(50, 7.0), turned(150, 3.0)]));
        assert_eq!(sample[&Figure::PerSecond], 100.0);
        assert_eq!(sample[&Figure::First], 25.0);
        assert_eq!(sample[&Figure::Second], 75.0);
        assert_eq!(sample.get(&Figure::Third), None);
        assert_eq!(sample[&Figure::LongestWait], 7.0);
        assert_eq!(sample[&Figure::SecondWait], 3.0);
        assert_eq!(sample[&Figure::FirstWaitP99], 3.5);
        assert_eq!(sample[&Figure::Scripts], 1.0);
    }

    #[test]
    fn the_last_of_readers_writes() {
        let alone = contention(&[turned(100, 0.0)]);
        let beside = contention(&[turned(80, 9.0), turned(6, 400.0)]);
        let sample = readers_and_writer(&alone, beside);
        assert_eq!(sample[&Figure::Writes], 3.0);
        assert_eq!(sample[&Figure::WriterWait], 400.0);
        assert_eq!(sample[&Figure::LongestWait], 9.0);
        assert_eq!(sample[&Figure::Ratio], 0.8);
    }
}
