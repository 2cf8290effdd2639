//! The command line.

use std::time::Duration;

use crate::peers::Name;

pub const USAGE: &str = "\
usage: cargo run --release -p compare -- [--quick] [--without-java] [--rounds N] [--seconds S]
       cargo run --release -p compare -- only PEER TASKS SECONDS

  --quick          3 rounds of 0.5 s instead of 5 rounds of 2 s
  --without-java   leaves Redisson out
  only             one round of one peer (ours, fred, redis-rs, redisson), for a profiler";

#[derive(Debug, PartialEq)]
pub enum Options {
    Compare(Plan),
    Only {
        peer: Name,
        tasks: usize,
        measured: Duration,
    },
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    pub rounds: usize,
    pub measured: Duration,
    pub java: bool,
}

impl Options {
    /// Reads the arguments behind the program's name; `None` when they make no sense.
    pub fn read(words: &[String]) -> Option<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["only", peer, tasks, measured] => Some(Self::Only {
                peer: Name::read(peer)?,
                tasks: tasks.parse().ok().filter(|tasks| *tasks > 0)?,
                measured: seconds(measured)?,
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
                _ => return None,
            }
        }
        Some(plan)
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
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert!(matches!(
            read("only redis-rs 64 2"),
            Some(Options::Only { tasks: 64, .. })
        ));
    }
}
