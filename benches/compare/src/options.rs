//! The command line.

use std::{path::PathBuf, time::Duration};

use compare::Command;

use crate::{
    peers,
    workload::{self, Workload},
};

pub const USAGE: &str = "\
usage: compare [--quick] [--rounds N] [--seconds S] [--workload W]... [--shares] [--without PEER]...
       compare only PEER COMMAND...
       compare --render FILE

  --quick     2 rounds of 0.2 s instead of 5 of 0.8 s, 6 minutes at most; BENCH_QUICK=1 says the same
  --workload  only this part, such as pair-64, one-key-16, hand-off, multi-100, waiting-1 or share-pair-10ms
  --shares    only the parts in which processes contend: share-pair-0ms to herd-fair-200
  --without   leaves this peer out
  only        one command of PROTOCOL.md to one peer, with what it used, for a profiler: only ours pair reentrant 64 2 0.3
  --render    the tables and charts of stored results";

#[derive(Debug, PartialEq)]
pub enum Options {
    Compare(Plan),
    Only {
        peer: &'static str,
        command: Command,
    },
    Render(PathBuf),
}

/// The extent of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub quick: bool,
    pub rounds: usize,
    pub measured: Duration,
    pub shares: Shares,
    pub workloads: Vec<Workload>,
    pub without: Vec<&'static str>,
}

/// The rounds of the workloads in which processes contend: fewer and longer ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    pub rounds: usize,
    pub measured: Duration,
}

impl Options {
    /// Reads the arguments behind the program's name; `None` if they are invalid.
    pub fn read(words: &[String], quick: bool) -> Option<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["only", peer, command @ ..] => Some(Self::Only {
                peer: peer_of(peer)?,
                command: Command::read(&command.join(" "))?,
            }),
            ["--render", file] => Some(Self::Render(file.into())),
            flags => Plan::read(flags, quick).map(Self::Compare),
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::read(&[], false).expect("no flags are good flags")
    }
}

impl Plan {
    fn read(flags: &[&str], quick: bool) -> Option<Self> {
        let quick = quick || flags.contains(&"--quick");
        let (rounds, millis) = if quick { (2, 200) } else { (5, 800) };
        let share_seconds = if quick { 1 } else { 4 };
        let mut plan = Self {
            quick,
            rounds,
            measured: Duration::from_millis(millis),
            shares: Shares {
                rounds: 1,
                measured: Duration::from_secs(share_seconds),
            },
            workloads: Vec::new(),
            without: Vec::new(),
        };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match *flag {
                "--quick" => {}
                "--rounds" => {
                    plan.rounds = flags.next()?.parse().ok().filter(|rounds| *rounds > 0)?;
                    plan.shares.rounds = plan.rounds;
                }
                "--seconds" => {
                    plan.measured = seconds(flags.next()?)?;
                    plan.shares.measured = plan.measured;
                }
                "--shares" => plan.workloads.extend(workload::shares()),
                "--workload" => plan.workloads.push(Workload::read(flags.next()?)?),
                "--without" => plan.without.push(peer_of(flags.next()?)?),
                _ => return None,
            }
        }
        if plan.workloads.is_empty() {
            plan.workloads = workload::all().collect();
        }
        Some(plan)
    }

    /// Whether this is the full run that is meant to be published.
    pub fn is_full(&self) -> bool {
        Self::default() == *self
    }

    /// The longest time for all measurements; what is missing then stays unmeasured.
    pub fn limit(&self) -> Duration {
        // A quick run has six minutes and a full one thirty, less the time for the report.
        Duration::from_secs(if self.quick { 352 } else { 1780 })
    }
}

fn peer_of(name: &str) -> Option<&'static str> {
    peers::ALL.into_iter().find(|peer| *peer == name)
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
        Options::read(&words, false)
    }

    fn plan(line: &str) -> Plan {
        match read(line) {
            Some(Options::Compare(plan)) => plan,
            other => panic!("{line} is {other:?}"),
        }
    }

    #[test]
    fn flags_say_how_much_is_measured() {
        let all = plan("");
        assert_eq!((all.rounds, all.measured), (5, Duration::from_millis(800)));
        assert!(all.workloads.iter().copied().eq(workload::all()));
        assert!(all.is_full());
        let quick = plan("--quick --without redisson");
        assert_eq!(
            (quick.rounds, quick.measured),
            (2, Duration::from_millis(200))
        );
        assert_eq!(
            (quick.without.as_slice(), quick.is_full()),
            (&["redisson"][..], false)
        );
        assert!(quick.limit() < all.limit());
        let words = ["--rounds", "7"].map(str::to_owned);
        let Some(Options::Compare(by_environment)) = Options::read(&words, true) else {
            panic!("it is a plan");
        };
        assert_eq!((by_environment.quick, by_environment.rounds), (true, 7));
        let parts = plan("--workload hand-off --workload multi-100");
        assert_eq!(
            parts.workloads,
            [Workload::HandOff, Workload::Multi { names: 100 }]
        );
    }

    #[test]
    fn other_uses() {
        assert_eq!(
            read("only ours pair read 64 2 0.5"),
            Some(Options::Only {
                peer: "ours",
                command: Command::read("pair read 64 2 0.5").expect("a command"),
            })
        );
        let render = Options::Render("results/x.json".into());
        assert_eq!(read("--render results/x.json"), Some(render));
    }

    #[test]
    fn bad_options_are_refused() {
        for bad in [
            "--rounds",
            "--rounds 0",
            "--seconds x",
            "--seconds 0",
            "fast",
            "only ours",
            "only nobody start",
            "--workload",
            "--workload all",
            "--without everybody",
            "--render",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
