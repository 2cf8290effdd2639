//! The workloads.

use compare::Kind;

use crate::{
    figure::{Columns, Figure},
    share::{self, Share},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Pairs of `lock()` and `unlock()` in that many tasks, each on a key of its own.
    Pair {
        kind: Kind,
        tasks: usize,
    },
    /// The commands that a client sends for a pair, by `MONITOR`.
    Sent,
    /// Pairs in tasks of one process, all on one key.
    OneKey {
        tasks: usize,
    },
    /// Pairs on the read side of one lock.
    Readers {
        tasks: usize,
    },
    /// Pairs in tasks of four processes, all on one key.
    Processes,
    /// The time from `unlock()` in one process until the `lock()` that waits in another returns.
    HandOff,
    /// The time from one waiter to the next in the queue of a fair lock, in two processes.
    FairHandOff,
    /// Read-write locks: one pair in ten writes, and nine read.
    Mixed,
    /// Pairs on one semaphore of `permits` permits.
    Permits {
        tasks: usize,
        permits: u32,
    },
    /// Locks that are held until they have been renewed a few times.
    Held,
    /// Tasks that wait for locks of `names` names.
    Waiting {
        names: usize,
    },
    Multi {
        names: usize,
    },
    Start,
    /// Pairs while one segment in a hundred is lost.
    Loss,
    /// Processes that contend for one lock.
    Share(Share),
}

/// The tasks in each of the processes that share a key.
pub const PROCESS_TASKS: usize = 16;
pub const MIXED_TASKS: usize = 64;
pub const MIXED_NAMES: usize = 16;
pub const HELD: usize = 10_000;
pub const LOSS_TASKS: usize = 8;

/// The order of the workloads. Long ones are last, because the time of a run is bounded.
const COSTS: [Workload; 30] = [
    pair(1),
    Workload::Sent,
    pair(8),
    pair(64),
    pair(256),
    pair(1000),
    of(Kind::Fair, 1),
    of(Kind::Read, 1),
    of(Kind::Write, 1),
    of(Kind::Fenced, 1),
    of(Kind::Read, 64),
    permits(1, 1),
    permits(64, 8),
    Workload::OneKey { tasks: 2 },
    Workload::OneKey { tasks: 16 },
    Workload::OneKey { tasks: 64 },
    Workload::Readers { tasks: 64 },
    Workload::HandOff,
    Workload::FairHandOff,
    Workload::Multi { names: 10 },
    Workload::Multi { names: 100 },
    Workload::Multi { names: 1000 },
    Workload::Start,
    Workload::Held,
    Workload::Waiting { names: 10_000 },
    Workload::Waiting { names: 1 },
    Workload::Mixed,
    Workload::Loss,
    Workload::Processes,
    Workload::OneKey { tasks: 1000 },
];

/// All workloads, in the order of a run.
pub fn all() -> impl Iterator<Item = Workload> {
    COSTS.into_iter().chain(shares())
}

pub fn shares() -> impl Iterator<Item = Workload> {
    share::ALL.into_iter().map(Workload::Share)
}

pub const fn pair(tasks: usize) -> Workload {
    of(Kind::Reentrant, tasks)
}

pub const fn of(kind: Kind, tasks: usize) -> Workload {
    Workload::Pair { kind, tasks }
}

pub const fn permits(tasks: usize, permits: u32) -> Workload {
    Workload::Permits { tasks, permits }
}

const PAIRS: Columns = &[
    (Figure::PerSecond, "pairs/s"),
    (Figure::P50, "pair p50, us"),
    (Figure::P99, "pair p99, us"),
    (Figure::Scripts, "scripts/pair"),
    (Figure::Others, "other commands/pair"),
    (Figure::ServerCpu, "server CPU/pair, us"),
    (Figure::ClientCpu, "client CPU/pair, us"),
];
const PROCESSES: Columns = &[
    (Figure::PerSecond, "pairs/s"),
    (Figure::P50, "pair p50, us"),
    (Figure::P99, "pair p99, us"),
    (Figure::LeastShare, "least share of a process, %"),
    (Figure::Scripts, "scripts/pair"),
    (Figure::ServerCpu, "server CPU/pair, us"),
];
const READERS: Columns = &[
    (Figure::PerSecond, "pairs/s"),
    (Figure::LongestWait, "longest wait, ms"),
    (Figure::Scripts, "scripts/pair"),
    (Figure::ServerCpu, "server CPU/pair, us"),
    (Figure::ClientCpu, "client CPU/pair, us"),
];
const SENT: Columns = &[
    (Figure::Scripts, "scripts/pair"),
    (Figure::Others, "other commands/pair"),
];
const HAND_OFF: Columns = &[(Figure::P50, "p50, us"), (Figure::P99, "p99, us")];
/// Each queue has to form first, so the scripts include those that enqueue.
const FAIR_HAND_OFF: Columns = &[
    (Figure::P50, "p50, us"),
    (Figure::P99, "p99, us"),
    (Figure::Scripts, "scripts/waiter"),
];
const HELD_COLUMNS: Columns = &[
    (Figure::Scripts, "scripts/third"),
    (Figure::Others, "other commands/third"),
    (Figure::ClientCore, "client CPU, % of a core"),
    (Figure::ServerCore, "server CPU, % of a core"),
];
const WAITING: Columns = &[
    (Figure::ClientMemory, "client memory/waiter, bytes"),
    (Figure::ServerMemory, "server memory/waiter, bytes"),
];
const MULTI: Columns = &[
    (Figure::Scripts, "scripts to take"),
    (Figure::ReleaseScripts, "to release"),
    (Figure::Trips, "round trips to take, at most"),
    (Figure::ReleaseTrips, "to release, at most"),
    (Figure::P50, "take p50, us"),
    (Figure::ReleaseP50, "release p50, us"),
];
const START: Columns = &[(Figure::P50, "until the first lock, us")];

impl Workload {
    /// The name on the command line, in the results and in the lines about progress.
    pub fn name(self) -> String {
        match self {
            Self::Pair {
                kind: Kind::Reentrant,
                tasks,
            } => format!("pair-{tasks}"),
            Self::Pair { kind, tasks } => format!("{}-{tasks}", kind.text()),
            Self::Sent => "sent".into(),
            Self::OneKey { tasks } => format!("one-key-{tasks}"),
            Self::Readers { tasks } => format!("readers-{tasks}"),
            Self::Processes => "processes".into(),
            Self::HandOff => "hand-off".into(),
            Self::FairHandOff => "fair-hand-off".into(),
            Self::Mixed => "mixed".into(),
            Self::Permits { tasks, permits } => format!("permits-{tasks}-{permits}"),
            Self::Held => "held".into(),
            Self::Waiting { names } => format!("waiting-{names}"),
            Self::Multi { names } => format!("multi-{names}"),
            Self::Start => "start".into(),
            Self::Loss => "loss".into(),
            Self::Share(share) => share.name(),
        }
    }

    pub fn read(name: &str) -> Option<Self> {
        all().find(|workload| workload.name() == name)
    }

    #[rustfmt::skip]
    pub fn title(self) -> String {
        match self {
            Self::Pair { kind, tasks } => {
                let kind = match kind {
                    Kind::Reentrant => String::new(),
                    kind => format!("{} ", kind.text()),
                };
                match tasks {
                    1 => format!("{kind}lock + unlock, 1 task"),
                    _ => format!("{kind}lock + unlock, {tasks} tasks, a key each"),
                }
            }
            Self::Sent => "sent by the client for lock + unlock, 1 task (MONITOR)".into(),
            Self::OneKey { tasks } => format!("one key, {tasks} tasks of one process"),
            Self::Readers { tasks } => format!("one name, {tasks} readers of one process"),
            Self::Processes => format!("one key, 4 processes of {PROCESS_TASKS} tasks"),
            Self::HandOff => "hand-off: unlock() in one process until the waiting lock() of another returns".into(),
            Self::FairHandOff => "fair hand-off: unlock() of one until lock() of the next returns, 8 waiters in each of 2 processes".into(),
            Self::Mixed => format!("read-write locks, {MIXED_TASKS} tasks on {MIXED_NAMES} names, one write among ten"),
            Self::Permits { tasks: 1, .. } => "a semaphore, acquire + release, 1 task".into(),
            Self::Permits { tasks, permits } => format!("a semaphore of {permits} permits, {tasks} tasks of one process"),
            Self::Held => format!("{HELD} locks held, per third of the lease (10 s)"),
            Self::Waiting { names: 1 } => "10,000 tasks of one process wait for one lock".into(),
            Self::Waiting { .. } => "10,000 tasks of one process wait for a lock each".into(),
            Self::Multi { names } => format!("multi-lock over {names} names of one server, taken and released by 1 task"),
            Self::Start => "start: a new client until it has its first lock".into(),
            Self::Loss => format!("lock + unlock, {LOSS_TASKS} tasks, a key each, 1 % of all segments lost"),
            Self::Share(share) => share.title(),
        }
    }

    pub fn columns(self) -> Columns {
        match self {
            Self::Pair { .. }
            | Self::OneKey { .. }
            | Self::Mixed
            | Self::Permits { .. }
            | Self::Loss => PAIRS,
            Self::Readers { .. } => READERS,
            Self::Sent => SENT,
            Self::Processes => PROCESSES,
            Self::HandOff => HAND_OFF,
            Self::FairHandOff => FAIR_HAND_OFF,
            Self::Held => HELD_COLUMNS,
            Self::Waiting { .. } => WAITING,
            Self::Multi { .. } => MULTI,
            Self::Start => START,
            Self::Share(share) => share.columns(),
        }
    }

    /// Whether a round mostly waits: a JVM executes less in it, and needs a longer warm-up.
    pub fn mostly_waits(self) -> bool {
        matches!(self, Self::HandOff | Self::FairHandOff)
    }

    /// Whether tasks wait for one another.
    pub fn is_shared(self) -> bool {
        matches!(
            self,
            Self::OneKey { .. }
                | Self::Processes
                | Self::Mixed
                | Self::Permits { .. }
                | Self::HandOff
        )
    }

    /// The length of a round, in lengths of an ordinary one: in less, few of many waiters get a
    /// turn.
    pub fn stretch(self, quick: bool) -> u32 {
        match self {
            Self::OneKey { tasks: 1000 } => 3,
            shared if shared.is_shared() && quick => 2,
            _ => 1,
        }
    }

    /// Whether a round is long and does many operations: then it is the only one.
    pub fn takes_long(self) -> bool {
        matches!(self, Self::Held | Self::Waiting { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_workloads_apart() {
        for workload in all() {
            assert_eq!(Workload::read(&workload.name()), Some(workload));
        }
        assert_eq!(of(Kind::Read, 64).name(), "read-64");
        assert_eq!(Workload::read("all"), None);
    }
}
