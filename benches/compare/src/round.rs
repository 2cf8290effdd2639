//! One round: the same tasks and the same clock for every peer in Rust.

use std::{
    fmt,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::{failure::Failure, stats};

/// The operation that a task of a round repeats.
pub trait Task: Send + 'static {
    /// Acquires one lock and releases it.
    fn pair(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The length of a round, after a warm-up that is not measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    pub warm_up: Duration,
    pub measured: Duration,
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (measured, warm_up) = (self.measured.as_secs_f64(), self.warm_up.as_secs_f64());
        write!(f, "{measured} {warm_up}")
    }
}

impl Times {
    pub fn window(&self) -> Window {
        let begin = Instant::now() + self.warm_up;
        let end = begin + self.measured;
        Window { begin, end }
    }
}

/// The time in which a round measures.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub begin: Instant,
    pub end: Instant,
}

/// The operations of a task, and the duration in nanoseconds of each that lies within the window.
#[derive(Debug, Default)]
pub struct Measured {
    nanos: Vec<u64>,
    all: u64,
}

impl Measured {
    pub fn note(&mut self, window: &Window, from: Instant, to: Instant) {
        self.note_together(window, from, to, 1);
    }

    /// Notes `count` operations that began and ended together.
    pub fn note_together(&mut self, window: &Window, from: Instant, to: Instant, count: usize) {
        self.all += count as u64;
        if from >= window.begin && to <= window.end {
            let nanos = (to - from).as_nanos() as u64;
            self.nanos.extend(std::iter::repeat_n(nanos, count));
        }
    }

    pub fn add(&mut self, other: Self) {
        self.nanos.extend(other.nanos);
        self.all += other.all;
    }
}

/// The result of a round: see PROTOCOL.md.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The operations within the window.
    pub count: u64,
    /// All operations, warm-up and stragglers included: the server's counters contain them too.
    pub all: u64,
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Round {
    pub fn new(mut measured: Measured, times: Times) -> Result<Self, Failure> {
        if measured.nanos.is_empty() {
            return Err("nothing was measured: the round was too short".into());
        }
        measured.nanos.sort_unstable();
        let micros =
            |quantile| stats::quantile(&measured.nanos, quantile).unwrap_or(0) as f64 / 1e3;
        Ok(Self {
            count: measured.nanos.len() as u64,
            all: measured.all,
            seconds: times.measured.as_secs_f64(),
            p50_us: micros(0.50),
            p99_us: micros(0.99),
        })
    }
}

/// Runs pairs in these tasks until the window is over.
pub async fn pairs<T: Task>(
    tasks: impl IntoIterator<Item = T>,
    times: Times,
) -> Result<Round, Failure> {
    let window = times.window();
    let tasks = tasks.into_iter();
    let running: Vec<_> = tasks
        .map(|task| tokio::spawn(repeat(task, window)))
        .collect();
    let mut measured = Measured::default();
    for task in running {
        measured.add(task.await??);
    }
    Round::new(measured, times)
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

/// The present time by the clock that all processes share, in nanoseconds since 1970.
pub fn now() -> Result<u64, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::try_from(since.as_nanos())?)
}

pub fn micros_since(from: Instant) -> f64 {
    from.elapsed().as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_turns_within_the_window_are_measured() {
        let times = Times {
            warm_up: Duration::from_secs(1),
            measured: Duration::from_secs(2),
        };
        let window = times.window();
        let at = |millis| window.begin + Duration::from_millis(millis) - Duration::from_secs(1);
        let mut measured = Measured::default();
        measured.note(&window, at(900), at(1_100));
        measured.note(&window, at(1_100), at(1_150));
        measured.note_together(&window, at(1_200), at(1_300), 2);
        measured.note(&window, at(2_900), at(3_100));
        let round = Round::new(measured, times).expect("something was measured");
        assert_eq!((round.count, round.all, round.seconds), (3, 5, 2.0));
        assert_eq!((round.p50_us, round.p99_us), (100_000.0, 100_000.0));
        assert!(Round::new(Measured::default(), times).is_err());
    }
}
