//! The commands of PROTOCOL.md, one per line.

use std::{fmt, str::FromStr, time::Duration};

use crate::{kind::Kind, round::Times, turns::Turns};

/// A command to a peer: see PROTOCOL.md.
#[rustfmt::skip]
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Pair { kind: Kind, tasks: usize, times: Times },
    Contend { name: String, tasks: usize, times: Times },
    Mixed { tasks: usize, names: usize, times: Times },
    Permits { tasks: usize, permits: u32, times: Times },
    Turns(Turns),
    Hold { kind: Kind, name: String },
    Wait { kind: Kind, name: String, tasks: usize },
    Free,
    Times,
    HoldMany { prefix: String, count: usize },
    FreeMany,
    WaitMany { prefix: String, count: usize, names: usize },
    GiveUp,
    Take(Vec<String>),
    Release,
    Start,
}

impl Command {
    /// Reads a line; `None` if it is no command.
    #[rustfmt::skip]
    pub fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(match words.as_slice() {
            ["pair", kind, tasks, seconds, warm_up] =>
                Self::Pair { kind: read(kind)?, tasks: read(tasks)?, times: times(seconds, warm_up)? },
            ["contend", name, tasks, seconds, warm_up] =>
                Self::Contend { name: read(name)?, tasks: read(tasks)?, times: times(seconds, warm_up)? },
            ["mixed", tasks, names, seconds, warm_up] =>
                Self::Mixed { tasks: read(tasks)?, names: read(names)?, times: times(seconds, warm_up)? },
            ["permits", tasks, permits, seconds, warm_up] =>
                Self::Permits { tasks: read(tasks)?, permits: read(permits)?, times: times(seconds, warm_up)? },
            ["turns", what @ .., seconds, warm_up] => Self::Turns(Turns::read(what, times(seconds, warm_up)?)?),
            ["hold", kind, name] => Self::Hold { kind: read(kind)?, name: read(name)? },
            ["wait", kind, name, tasks] =>
                Self::Wait { kind: read(kind)?, name: read(name)?, tasks: read(tasks)? },
            ["free"] => Self::Free,
            ["times"] => Self::Times,
            ["hold-many", prefix, count] => Self::HoldMany { prefix: read(prefix)?, count: read(count)? },
            ["free-many"] => Self::FreeMany,
            ["wait-many", prefix, count, names] =>
                Self::WaitMany { prefix: read(prefix)?, count: read(count)?, names: read(names)? },
            ["give-up"] => Self::GiveUp,
            ["take", names @ ..] if !names.is_empty() =>
                Self::Take(names.iter().map(|name| (*name).to_owned()).collect()),
            ["release"] => Self::Release,
            ["start"] => Self::Start,
            _ => return None,
        })
    }

    /// The duration that the command itself prescribes.
    pub fn lasts(&self) -> Duration {
        match self {
            Self::Pair { times, .. }
            | Self::Contend { times, .. }
            | Self::Mixed { times, .. }
            | Self::Permits { times, .. } => times.warm_up + times.measured,
            Self::Turns(turns) => turns.times.warm_up + turns.times.measured,
            _ => Duration::ZERO,
        }
    }
}

fn read<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

fn times(seconds: &str, warm_up: &str) -> Option<Times> {
    let duration = |word: &str| Duration::try_from_secs_f64(word.parse().ok()?).ok();
    Some(Times {
        measured: duration(seconds)?,
        warm_up: duration(warm_up)?,
    })
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair { kind, tasks, times } => write!(f, "pair {} {tasks} {times}", kind.text()),
            Self::Contend { name, tasks, times } => write!(f, "contend {name} {tasks} {times}"),
            Self::Mixed {
                tasks,
                names,
                times,
            } => write!(f, "mixed {tasks} {names} {times}"),
            Self::Permits {
                tasks,
                permits,
                times,
            } => write!(f, "permits {tasks} {permits} {times}"),
            Self::Turns(turns) => turns.fmt(f),
            Self::Hold { kind, name } => write!(f, "hold {} {name}", kind.text()),
            Self::Wait { kind, name, tasks } => write!(f, "wait {} {name} {tasks}", kind.text()),
            Self::Free => f.write_str("free"),
            Self::Times => f.write_str("times"),
            Self::HoldMany { prefix, count } => write!(f, "hold-many {prefix} {count}"),
            Self::FreeMany => f.write_str("free-many"),
            Self::WaitMany {
                prefix,
                count,
                names,
            } => write!(f, "wait-many {prefix} {count} {names}"),
            Self::GiveUp => f.write_str("give-up"),
            Self::Take(names) => write!(f, "take {}", names.join(" ")),
            Self::Release => f.write_str("release"),
            Self::Start => f.write_str("start"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_as_it_is_written() {
        for line in [
            "pair read 8 0.5 0.1",
            "contend x 64 2 0",
            "mixed 64 16 1 0.25",
            "permits 64 8 1 0.25",
            "turns fair x 8 1 0 5 0.5",
            "turns multi x,y 200x1 5-25 0.5 4 1",
            "hold fair x",
            "wait reentrant x 8",
            "free",
            "times",
            "hold-many p 10000",
            "free-many",
            "wait-many p 10000 1",
            "give-up",
            "take a b c",
            "release",
            "start",
        ] {
            let command = Command::read(line);
            assert_eq!(
                command.map(|command| command.to_string()).as_deref(),
                Some(line)
            );
        }
    }

    #[test]
    fn lines_that_are_not_commands_are_refused() {
        for line in [
            "",
            "pair",
            "pair spin 1 1 0",
            "pair read x 1 0",
            "pair read 1 -1 0",
            "turns read x 1 1 5 1",
            "turns read x,y 1 1 0 5 1",
            "hold x",
            "take",
            "free x",
        ] {
            assert_eq!(Command::read(line), None, "{line}");
        }
    }

    #[test]
    fn only_rounds_last_by_themselves() {
        let lasts = |line| Command::read(line).expect("a command").lasts();
        assert_eq!(lasts("pair read 8 0.5 0.25"), Duration::from_millis(750));
        assert_eq!(lasts("turns read x 1 1 0 4 1"), Duration::from_secs(5));
        assert_eq!(lasts("start"), Duration::ZERO);
    }
}
