//! `redisson-lock` beside other clients and locks on one server: see `docs/benchmarks.md`.

mod about;
mod chart_style;
mod charts;
mod counters;
mod figure;
mod hand_off;
mod held;
mod measure;
mod options;
mod peers;
mod program;
mod progress;
mod results;
mod rounds;
mod share;
mod share_chart;
mod share_targets;
mod shares;
mod stage;
mod tables;
mod target;
mod targets;
mod waiting;
mod workload;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use about::About;
use compare::{Command, Failure};
use options::{Options, Plan, USAGE};
use peers::Peer;
use results::Report;
use stage::Stage;
use tokio::task::{LocalSet, spawn_local};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let quick = std::env::var("BENCH_QUICK").is_ok_and(|value| !matches!(&*value, "" | "0"));
    let Some(options) = Options::read(&words, quick) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A task, because the testbed panics if it fails.
    let tasks = LocalSet::new();
    let done = tasks
        .run_until(async { spawn_local(run(options)).await })
        .await;
    match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            eprintln!("compare: {failure}");
            ExitCode::FAILURE
        }
        // The panic has printed the reason.
        Err(_) => ExitCode::FAILURE,
    }
}

async fn run(options: Options) -> Result<(), Failure> {
    match options {
        Options::Compare(plan) => compare(plan).await,
        Options::Only { peer, command } => only(peer, command).await,
        Options::Render(file) => render(&file),
    }
}

async fn compare(plan: Plan) -> Result<(), Failure> {
    let from = Instant::now();
    let mut stage = Stage::set_up(plan.clone()).await;
    let mut report = Report::new(About::now(&stage.server, &plan).await);
    let measuring = rounds::all(&mut stage, &mut report);
    let in_time = tokio::time::timeout(plan.limit(), measuring).await;
    if let Ok(failed) = in_time {
        failed?;
    }
    let unmeasured = plan.workloads.iter().map(|workload| workload.name());
    let done = |name: &String| report.tables.iter().any(|table| table.workload == *name);
    report.unmeasured = unmeasured.filter(|name| !done(name)).collect();
    report.about.load_after = about::load();
    report.about.took_seconds = from.elapsed().as_secs_f64();
    let file = store(&report, plan.is_full())?;
    show(&report, &file)?;
    rounds::ours_is_there(&report)
}

/// Stores a report. Only a full run is kept with the sources.
fn store(report: &Report, full: bool) -> Result<PathBuf, Failure> {
    let folder = match full {
        true => peers::folder().join("results"),
        false => scratch(),
    };
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{}.json", report.about.date.replace(':', "")));
    fs::write(&file, report.written()?)?;
    Ok(file)
}

fn scratch() -> PathBuf {
    peers::folder().join("../../target/bench-compare")
}

/// Prints the tables and draws the charts.
fn show(report: &Report, file: &Path) -> Result<(), Failure> {
    println!("{}", tables::report(report));
    let kept = file
        .parent()
        .is_some_and(|folder| folder.ends_with("results"));
    let folder = match kept {
        true => peers::folder().join("../../docs/charts"),
        false => scratch(),
    };
    charts::draw(report, &folder)?;
    eprintln!(
        "compare: {} and charts in {}",
        file.display(),
        folder.display()
    );
    Ok(())
}

fn render(file: &Path) -> Result<(), Failure> {
    show(&Report::read(&fs::read_to_string(file)?)?, file)
}

/// Sends one command to one peer, for a profiler.
async fn only(name: &'static str, command: Command) -> Result<(), Failure> {
    let plan = Plan::default();
    let mut stage = Stage::set_up(plan).await;
    let mut peer = Peer::new(name, stage.server.url(), Duration::from_secs(60));
    let [program] = peer.programs().await?;
    let answered = stage.ask(program, &command).await?;
    println!("{}", answered.value);
    println!("{:?}", answered.used);
    println!("client CPU {:.3} s", answered.client_cpu_seconds);
    Ok(())
}
