//! One round: the same tasks and the same clock for every peer of this process.

use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::stats;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A connected client, shared by the tasks of a round.
pub trait Client: Clone + Send + Sync + 'static {
    type Task: Task;

    /// What the task of that number runs, on a key of its own.
    fn task(&self, number: usize) -> Self::Task;
}

pub trait Task: Send + 'static {
    /// One lock and its unlock.
    fn pair(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// How long a round is, after a warm-up that is not measured.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Times {
    pub fn window(&self) -> Window {
        let begin = Instant::now() + self.warm_up;
        let end = begin + self.measured;
        Window { begin, end }
    }
}

/// When a round measures.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    begin: Instant,
    pub end: Instant,
}

/// What was done, and how long each thing took, in nanoseconds, that lies within the window.
#[derive(Debug, Default)]
pub struct Measured {
    nanos: Vec<u64>,
    all: u64,
}

impl Measured {
    pub fn note(&mut self, window: &Window, from: Instant, to: Instant) {
        self.all += 1;
        if from >= window.begin && to <= window.end {
            self.nanos.push((to - from).as_nanos() as u64);
        }
    }

    fn add(&mut self, other: Self) {
        self.nanos.extend(other.nanos);
        self.all += other.all;
    }
}

/// How a round went: a line of the Java program, or the same made here.
#[derive(Debug, Clone, Deserialize)]
pub struct Round {
    /// Pairs or hand-offs within the window.
    #[serde(alias = "pairs", alias = "handoffs")]
    pub count: u64,
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Warm-up and stragglers included: what the server's counters saw.
    #[serde(alias = "all_pairs", alias = "all_handoffs")]
    pub all: u64,
}

impl Round {
    pub fn new(mut measured: Measured, times: Times) -> Result<Self, Failure> {
        if measured.nanos.is_empty() {
            return Err("nothing was measured: the round was too short".into());
        }
        measured.nanos.sort_unstable();
        let micros = |quantile| stats::quantile(&measured.nanos, quantile) as f64 / 1e3;
        Ok(Self {
            count: measured.nanos.len() as u64,
            seconds: times.measured.as_secs_f64(),
            p50_us: micros(0.50),
            p99_us: micros(0.99),
            all: measured.all,
        })
    }

    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.seconds
    }
}

/// Runs pairs by `tasks` tasks until the window is over. Called on the runtime that is to run them.
pub async fn pairs<C: Client>(client: &C, tasks: usize, times: Times) -> Result<Measured, Failure> {
    let window = times.window();
    let running: Vec<_> = (0..tasks)
        .map(|number| tokio::spawn(repeat(client.task(number), window)))
        .collect();
    let mut measured = Measured::default();
    for task in running {
        measured.add(task.await??);
    }
    Ok(measured)
}

async fn repeat(mut task: impl Task, window: Window) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    let mut from = Instant::now();
    while from < window.end {
        task.pair().await?;
        let to = Instant::now();
        measured.note(&window, from, to);
        from = to;
    }
    Ok(measured)
}

/// What the raw scripts must have replied.
pub fn check(busy: Option<i64>, released: Option<i64>) -> Result<(), Failure> {
    match (busy, released) {
        (None, Some(1)) => Ok(()),
        other => Err(format!("the scripts replied {other:?} to a free lock").into()),
    }
}
