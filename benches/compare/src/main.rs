//! `redisson-lock` beside raw fred, raw redis-rs and Redisson on one server: see `docs/benchmarks.md`.

mod about;
mod counters;
mod options;
mod ours;
mod peers;
mod raw_fred;
mod raw_redis;
mod redisson;
mod results;
mod round;
mod scripts;
mod stats;
mod tables;
mod targets;

use std::{process::ExitCode, time::Duration};

use counters::{Counters, Monitor};
use options::{Options, Plan, USAGE};
use peers::{Name, Peer, Workload};
use results::{Results, Sample, Sent};
use round::{Failure, Times};
use testbed::Server;

const WORKLOADS: [Workload; 5] = [
    Workload::Pair { tasks: 1 },
    Workload::Pair { tasks: 8 },
    Workload::Pair { tasks: 64 },
    Workload::Pair { tasks: 256 },
    Workload::Handoff,
];
/// Before every measured round.
const WARM_UP: Duration = Duration::from_millis(300);
/// Before the first round of a workload: the JVM compiles what it runs.
const JVM_WARM_UP: Duration = Duration::from_secs(3);
/// How long the clients are listened to by `MONITOR`.
const MONITORED: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = Options::read(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A task, because what the testbed cannot do makes it panic.
    let done = match options {
        Options::Compare(plan) => tokio::spawn(compare(plan)).await,
        Options::Only {
            peer,
            tasks,
            measured,
        } => tokio::spawn(only(peer, tasks, measured)).await,
    };
    match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            eprintln!("compare: {failure}");
            ExitCode::FAILURE
        }
        // The panic has said why.
        Err(_) => ExitCode::FAILURE,
    }
}

async fn compare(plan: Plan) -> Result<(), Failure> {
    let server = Server::start().await;
    println!("{}", about::report(&server, &plan).await);
    if !plan.java {
        println!("Without Java: the rows and ratios of Redisson are left out.\n");
    }
    let mut peers = Vec::new();
    for name in Name::ALL {
        if plan.java || name != Name::Redisson {
            peers.push(Peer::connect(name, &server.url()).await?);
        }
    }
    let (mut all, mut all_sent) = (Vec::new(), Vec::new());
    for workload in WORKLOADS {
        let results = measure(&server, &mut peers, workload, &plan).await?;
        println!("{}", tables::results(&results));
        all.push(results);
        if workload == (Workload::Pair { tasks: 1 }) {
            all_sent = listen(&server, &mut peers, workload).await?;
            println!("{}", tables::sent(&all_sent));
        }
    }
    println!("{}", tables::outcomes(&targets::outcomes(&all, &all_sent)));
    println!("Load average after: {}.", about::load());
    Ok(())
}

/// All rounds of one workload. Each round begins with another peer.
async fn measure(
    server: &Server,
    peers: &mut [Peer],
    workload: Workload,
    plan: &Plan,
) -> Result<Results, Failure> {
    let mut taking_part: Vec<&mut Peer> = peers
        .iter_mut()
        .filter(|peer| peer.takes_part(workload))
        .collect();
    let mut samples: Vec<(Name, Vec<Sample>)> = Vec::new();
    for peer in &mut taking_part {
        let measured = match peer.name() {
            Name::Redisson => JVM_WARM_UP,
            _ => WARM_UP,
        };
        let warm_up = Duration::ZERO;
        peer.round(workload, Times { warm_up, measured }).await?;
        samples.push((peer.name(), Vec::new()));
    }
    for number in 0..plan.rounds {
        for turn in 0..taking_part.len() {
            let at = (number + turn) % taking_part.len();
            let sample = sample(server, taking_part[at], workload, plan.measured).await?;
            samples[at].1.push(sample);
        }
    }
    Ok(Results { workload, samples })
}

async fn sample(
    server: &Server,
    peer: &mut Peer,
    workload: Workload,
    measured: Duration,
) -> Result<Sample, Failure> {
    let times = Times {
        warm_up: WARM_UP,
        measured,
    };
    let before = Counters::read(server).await;
    let round = peer.round(workload, times).await?;
    let used = before.until(&Counters::read(server).await);
    let name = peer.name();
    let progress = tables::progress(workload, name, round.per_second(), round.p50_us);
    eprintln!("{progress}");
    Ok(Sample { round, used })
}

/// What each client sends for a pair.
async fn listen(
    server: &Server,
    peers: &mut [Peer],
    workload: Workload,
) -> Result<Vec<Sent>, Failure> {
    let times = Times {
        warm_up: Duration::ZERO,
        measured: MONITORED,
    };
    let mut all = Vec::new();
    for peer in peers {
        let monitor = Monitor::open(server).await?;
        let round = peer.round(workload, times).await?;
        all.push(Sent {
            peer: peer.name(),
            pairs: round.all,
            commands: monitor.close(server).await?,
        });
    }
    Ok(all)
}

/// One round of one peer, and nothing else: for a profiler.
async fn only(name: Name, tasks: usize, measured: Duration) -> Result<(), Failure> {
    let server = Server::start().await;
    let mut peer = Peer::connect(name, &server.url()).await?;
    let warm_up = Duration::ZERO;
    let before = Counters::read(&server).await;
    let round = peer
        .round(Workload::Pair { tasks }, Times { warm_up, measured })
        .await?;
    let used = before.until(&Counters::read(&server).await);
    println!("{round:?}\n{used:?}");
    Ok(())
}
