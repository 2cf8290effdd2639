//! The command line.

use std::time::Duration;

use crate::{
    multi,
    peers::Name,
    waiters,
    workload::{self, LockKind, Workload},
};

pub const USAGE: &str = "\
usage: cargo run --release -p compare -- [--quick] [--without-java] [--rounds N] [--seconds S] [--workload W]...
       cargo run --release -p compare -- only PEER KIND TASKS SECONDS

  --quick          3 rounds of 0.5 s instead of 5 rounds of 2 s
  --without-java   leaves Redisson out
  --workload       only this part of it, such as pair-64, hand-off, fair-1, queue or multi-100
  only             one round of one peer (ours, fred, redis-rs, redisson) and kind of lock (reentrant, fair, read, write,
                   fenced), for a profiler";

#[derive(Debug, PartialEq)]
pub enum Options {
    Compare(Plan),
    Only {
        peer: Name,
        kind: LockKind,
        tasks: usize,
        measured: Duration,
    },
    /// This is a child of such a program: see [`waiters`].
    Waiters {
        url: String,
    },
}

/// How much is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub rounds: usize,
    pub measured: Duration,
    pub java: bool,
    pub workloads: Vec<Workload>,
    /// Whether the multi-lock is measured as well.
    pub multi: bool,
}

impl Options {
    /// Reads the arguments behind the program's name; `None` when they make no sense.
    pub fn read(words: &[String]) -> Option<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["only", peer, kind, tasks, measured] => Some(Self::Only {
                peer: Name::read(peer)?,
                kind: LockKind::read(kind)?,
                tasks: tasks.parse().ok().filter(|tasks| *tasks > 0)?,
                measured: seconds(measured)?,
            }),
            [waiters::ARGUMENT, url] => Some(Self::Waiters {
                url: (*url).to_owned(),
            }),
            flags => Plan::read(flags).map(Self::Compare),
        }
    }
}

impl Plan {
    fn read(flags: &[&str]) -> Option<Self> {
        let mut plan = Self {
            rounds: 5,
            measured: Duration::from_secs(2),
            java: true,
            workloads: Vec::new(),
            multi: false,
        };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match *flag {
                "--quick" => {
                    plan.rounds = 3;
                    plan.measured = Duration::from_millis(500);
                }
                "--without-java" => plan.java = false,
                "--rounds" => {
                    plan.rounds = flags.next()?.parse().ok().filter(|rounds| *rounds > 0)?
                }
                "--seconds" => plan.measured = seconds(flags.next()?)?,
                "--workload" => plan.add(flags.next()?)?,
                _ => return None,
            }
        }
        if plan.workloads.is_empty() && !plan.multi {
            plan.workloads = workload::ALL.to_vec();
            plan.multi = true;
        }
        Some(plan)
    }

    fn add(&mut self, name: &str) -> Option<()> {
        if name == multi::NAME {
            self.multi = true;
            return Some(());
        }
        let mut all = workload::ALL.into_iter();
        self.workloads
            .push(all.find(|workload| workload.name() == name)?);
        Some(())
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    (!duration.is_zero()).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Options> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::read(&words)
    }

    #[test]
    fn flags_and_what_is_no_flag() {
        let plan = |rounds, millis, java| {
            Some(Options::Compare(Plan {
                rounds,
                measured: Duration::from_millis(millis),
                java,
                workloads: workload::ALL.to_vec(),
                multi: true,
            }))
        };
        assert_eq!(read(""), plan(5, 2000, true));
        assert_eq!(read("--quick --without-java"), plan(3, 500, false));
        assert_eq!(read("--rounds 7 --seconds 0.1"), plan(7, 100, true));
        for bad in [
            "--rounds",
            "--rounds 0",
            "--seconds x",
            "--seconds 0",
            "fast",
            "only ours 1",
            "--workload",
            "--workload all",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert!(matches!(
            read("only ours read 64 2"),
            Some(Options::Only { tasks: 64, .. })
        ));
        let Some(Options::Compare(parts)) = read("--workload queue --workload multi-100") else {
            panic!("both are parts of it");
        };
        assert_eq!(
            (parts.workloads, parts.multi),
            (vec![Workload::Queue], true)
        );
    }
}
