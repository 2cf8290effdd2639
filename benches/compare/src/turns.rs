//! Turns at a lock that several processes contend for, with their waits.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    failure::Failure,
    kind::Kind,
    round::{Times, Window},
    stats,
};

/// The lock that the tasks of `turns` acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    One(Kind),
    /// A multi-lock of reentrant locks.
    Multi,
}

/// The command `turns` of PROTOCOL.md.
#[derive(Debug, Clone, PartialEq)]
pub struct Turns {
    pub taken: Taken,
    /// The names of the lock: one, except for a multi-lock.
    pub names: Vec<String>,
    pub clients: usize,
    /// The tasks of each client.
    pub tasks: usize,
    /// The time for which a turn holds the lock.
    pub work: Pause,
    /// The time from a release until the task wants the lock again.
    pub think: Pause,
    pub times: Times,
}

/// A range in milliseconds, from which each pause is drawn at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pause {
    pub least: f64,
    pub most: f64,
}

/// The answer to `turns`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Turned {
    /// The turns that ended within the window.
    pub count: u64,
    /// The turns since the command.
    pub all: u64,
    pub seconds: f64,
    /// The longest wait. A wait that lasts at the end of the window counts up to there.
    pub longest_wait_us: f64,
    /// The 99th percentile of the same waits.
    pub wait_p99_us: f64,
}

/// A lock that a task acquires and releases again and again.
pub trait TurnLock: Send + 'static {
    type Held: Send;

    fn lock(&self) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    fn unlock(&self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl Taken {
    pub fn text(self) -> &'static str {
        match self {
            Self::One(kind) => kind.text(),
            Self::Multi => "multi",
        }
    }
}

impl FromStr for Taken {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "multi" => Ok(Self::Multi),
            kind => kind.parse().map(Self::One),
        }
    }
}

impl Pause {
    pub const NONE: Self = Self::of(0.0);

    pub const fn of(millis: f64) -> Self {
        Self {
            least: millis,
            most: millis,
        }
    }

    pub const fn between(least: f64, most: f64) -> Self {
        Self { least, most }
    }

    fn drawn(self) -> Duration {
        let millis = self.least + (self.most - self.least) * fastrand::f64();
        Duration::from_secs_f64(millis / 1e3)
    }

    /// Sleeps on a thread that may block: tokio's timer would make 2 ms of 1.
    async fn sleep(self) {
        if self.most > 0.0 {
            let drawn = self.drawn();
            // The thread fails only when the runtime ends.
            let _ = tokio::task::spawn_blocking(move || std::thread::sleep(drawn)).await;
        }
    }
}

impl FromStr for Pause {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let millis = |text: &str| text.parse::<f64>().map_err(drop);
        let pause = Self::between(millis(least)?, millis(most)?);
        let good = pause.least >= 0.0 && pause.least <= pause.most && pause.most.is_finite();
        good.then_some(pause).ok_or(())
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least == self.most {
            true => write!(f, "{}", self.least),
            false => write!(f, "{}-{}", self.least, self.most),
        }
    }
}

impl Turns {
    /// Reads the words behind `turns`, except the times.
    pub fn read(words: &[&str], times: Times) -> Option<Self> {
        let [kind, names, tasks, work, think] = words else {
            return None;
        };
        let (clients, tasks) = tasks.split_once('x').unwrap_or(("1", tasks));
        let turns = Self {
            taken: kind.parse().ok()?,
            names: names.split(',').map(str::to_owned).collect(),
            clients: clients.parse().ok()?,
            tasks: tasks.parse().ok()?,
            work: work.parse().ok()?,
            think: think.parse().ok()?,
            times,
        };
        let one = turns.names.len() == 1 || turns.taken == Taken::Multi;
        (one && turns.clients > 0).then_some(turns)
    }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, names) = (self.taken.text(), self.names.join(","));
        write!(f, "turns {kind} {names} ")?;
        if self.clients > 1 {
            write!(f, "{}x", self.clients)?;
        }
        let (tasks, work, think, times) = (self.tasks, self.work, self.think, self.times);
        write!(f, "{tasks} {work} {think} {times}")
    }
}

/// The turns of one task or of several.
#[derive(Debug, Default)]
struct Done {
    count: u64,
    all: u64,
    waits: Vec<Duration>,
}

impl Done {
    /// Notes a wait, which may have lasted beyond the window.
    fn waited(&mut self, window: &Window, asked: Instant, taken: Instant) {
        if taken >= window.begin && asked < window.end {
            self.waits.push(taken.min(window.end) - asked);
        }
    }

    fn ended(&mut self, window: &Window, released: Instant) {
        self.all += 1;
        self.count += u64::from(released >= window.begin && released <= window.end);
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.all += other.all;
        self.waits.extend(other.waits);
    }
}

/// Acquires and releases each of these locks in a task of its own until the window is over.
pub async fn run<L: TurnLock>(locks: Vec<L>, turns: &Turns) -> Result<Turned, Failure> {
    let (work, think) = (turns.work, turns.think);
    let window = turns.times.window();
    let tasks: Vec<_> = locks
        .into_iter()
        .map(|lock| tokio::spawn(repeat(lock, work, think, window)))
        .collect();
    let mut done = Done::default();
    for task in tasks {
        done.add(task.await??);
    }
    let micros = |wait: &Duration| wait.as_nanos() as f64 / 1e3;
    let mut waits: Vec<f64> = done.waits.iter().map(micros).collect();
    waits.sort_by(f64::total_cmp);
    Ok(Turned {
        count: done.count,
        all: done.all,
        seconds: turns.times.measured.as_secs_f64(),
        longest_wait_us: waits.last().copied().unwrap_or(0.0),
        wait_p99_us: stats::quantile(&waits, 0.99).unwrap_or(0.0),
    })
}

async fn repeat(
    lock: impl TurnLock,
    work: Pause,
    think: Pause,
    window: Window,
) -> Result<Done, Failure> {
    let mut done = Done::default();
    let mut asked = Instant::now();
    while asked < window.end {
        let held = lock.lock().await?;
        done.waited(&window, asked, Instant::now());
        work.sleep().await;
        lock.unlock(held).await?;
        done.ended(&window, Instant::now());
        think.sleep().await;
        asked = Instant::now();
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times {
        warm_up: Duration::from_secs(1),
        measured: Duration::from_secs(2),
    };

    #[test]
    fn pauses_are_read_as_they_are_written() {
        for text in ["0", "10", "0.5", "5-25"] {
            let pause: Pause = text.parse().expect("a pause");
            assert_eq!(pause.to_string(), text);
        }
        for bad in ["", "-1", "x", "25-5", "1-", "inf", "NaN"] {
            assert_eq!(bad.parse::<Pause>(), Err(()), "{bad}");
        }
        let range = Pause::between(5.0, 25.0);
        for _ in 0..100 {
            let millis = range.drawn().as_secs_f64() * 1e3;
            assert!((5.0..=25.0).contains(&millis), "{millis}");
        }
        assert_eq!(Pause::of(1.0).drawn(), Duration::from_millis(1));
    }

    #[test]
    fn only_a_multi_lock_has_several_names() {
        let read = |words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            Turns::read(&words, TIMES)
        };
        let several = read("multi a,b 2x8 1 0").expect("a command");
        assert_eq!(several.names, ["a", "b"]);
        assert_eq!((several.clients, several.tasks), (2, 8));
        assert_eq!(read("fair a,b 8 1 0"), None);
        assert_eq!(read("fair a 0x8 1 0"), None);
    }

    #[test]
    fn a_turn_counts_if_it_ends_within_the_window() {
        let window = TIMES.window();
        let at = |millis| window.begin + Duration::from_millis(millis) - Duration::from_secs(1);
        let mut done = Done::default();
        for released in [900, 1_100, 2_900, 3_100] {
            done.ended(&window, at(released));
        }
        assert_eq!((done.count, done.all), (2, 4));
    }

    #[test]
    fn a_wait_that_lasts_at_the_end_counts_until_then() {
        let window = TIMES.window();
        let at = |millis| window.begin + Duration::from_millis(millis) - Duration::from_secs(1);
        let longest = |asked, taken| {
            let mut done = Done::default();
            done.waited(&window, at(asked), at(taken));
            done.waits.iter().max().map_or(0, Duration::as_millis)
        };
        assert_eq!(longest(100, 900), 0, "it ended before the window");
        assert_eq!(longest(900, 1_200), 300);
        assert_eq!(longest(1_200, 9_000), 1_800);
        assert_eq!(longest(3_100, 9_000), 0, "it began after the window");
    }
}
