//! `redisson-lock` beside raw fred, raw redis-rs and Redisson on one server: see `docs/benchmarks.md`.

mod about;
mod counters;
mod multi;
mod options;
mod ours;
mod peers;
mod program;
mod queue;
mod raw_fred;
mod raw_redis;
mod redisson;
mod results;
mod round;
mod scripts;
mod stats;
mod tables;
mod targets;
mod waiters;
mod workload;

use std::{process::ExitCode, time::Duration};

use counters::{Counters, Monitor};
use options::{Options, Plan, USAGE};
use peers::{Name, Peer, Workers};
use results::{Results, Sample, Sent};
use round::{Failure, Times};
use testbed::Server;
use workload::{Workload, pair};

/// Before every measured round.
const WARM_UP: Duration = Duration::from_millis(300);
/// Before the first round of a workload: the JVM compiles what it runs.
const JVM_WARM_UP: Duration = Duration::from_secs(3);
/// Likewise, where most of the time is waiting: it gets around to much less.
const JVM_WARM_UP_OF_WAITING: Duration = Duration::from_secs(15);
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
            kind,
            tasks,
            measured,
        } => tokio::spawn(only(peer, pair(kind, tasks), measured)).await,
        Options::Waiters { url } => tokio::spawn(wait(url)).await,
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
    for workload in plan.workloads.iter().copied() {
        let results = measure(&server, &mut peers, workload, &plan).await?;
        println!("{}", tables::results(&results));
        all.push(results);
        if workload == workload::FIRST {
            all_sent = listen(&server, &mut peers, workload).await?;
            println!("{}", tables::sent(&all_sent));
        }
    }
    let mut turns = Vec::new();
    if plan.multi {
        turns = multi::measure(&server, &mut peers, &plan).await?;
        println!("{}", tables::multi(&turns));
    }
    let outcomes = targets::outcomes(&all, &all_sent, &turns);
    println!("{}", tables::outcomes(&outcomes));
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
        let measured = match (peer.name(), workload) {
            (Name::Redisson, Workload::Pair { .. }) => JVM_WARM_UP,
            (Name::Redisson, _) => JVM_WARM_UP_OF_WAITING,
            _ => WARM_UP,
        };
        let warm_up = Duration::ZERO;
        let times = Times { warm_up, measured };
        peer.round(server, workload, times).await?;
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
    let round = peer.round(server, workload, times).await?;
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
        let round = peer.round(server, workload, times).await?;
        all.push(Sent {
            peer: peer.name(),
            pairs: round.all,
            commands: monitor.close(server).await?,
        });
    }
    Ok(all)
}

/// One round of one peer, and nothing else: for a profiler.
async fn only(name: Name, workload: Workload, measured: Duration) -> Result<(), Failure> {
    let server = Server::start().await;
    let mut peer = Peer::connect(name, &server.url()).await?;
    let warm_up = Duration::ZERO;
    let before = Counters::read(&server).await;
    let times = Times { warm_up, measured };
    let round = peer.round(&server, workload, times).await?;
    let used = before.until(&Counters::read(&server).await);
    println!("{round:?}\n{used:?}");
    Ok(())
}

/// A process of a queue.
async fn wait(url: String) -> Result<(), Failure> {
    Workers::new()?.run(waiters::run(url)).await
}
