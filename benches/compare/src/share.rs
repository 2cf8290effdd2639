//! Workloads in which several processes contend for one lock.

use compare::{Kind, Pause, Taken};

use crate::{
    figure::{Columns, Figure},
    peers::{MIXED, OURS, REDISSON},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Several processes of one task each.
    Pair {
        taken: Taken,
        work_ms: u32,
        processes: usize,
    },
    /// One process of this crate beside one of Redisson.
    Mixed {
        taken: Taken,
        work_ms: u32,
        ours: usize,
        redisson: usize,
    },
    /// One process of one task beside one of `CROWD` tasks.
    Lone,
    /// Four processes of many tasks.
    Crowd { work_ms: u32 },
    /// One process of one task behind a slow network, beside one of `near` tasks.
    Far { near: usize },
    /// One process of one task, alone, and beside a subscriber that never asks for the lock.
    Dead,
    /// Clients that read for a random time, without and with a process that writes.
    Readers {
        clients: usize,
        least_ms: u32,
        most_ms: u32,
    },
    /// Clients of one task each, all in one process.
    Herd { kind: Kind, clients: usize },
}

use Share::{Crowd, Dead, Far, Herd, Lone, Mixed, Pair, Readers};

const REENTRANT: Taken = Taken::One(Kind::Reentrant);
const FENCED: Taken = Taken::One(Kind::Fenced);
const WRITE: Taken = Taken::One(Kind::Write);
/// The tasks of the process beside that of a lone task.
const CROWD: usize = 64;
/// The work of each turn, unless a workload says otherwise.
pub const LONE_WORK_MS: u32 = 10;
const CROWD_TASKS: usize = 16;
const CROWD_PROCESSES: usize = 4;
/// The most processes of one reading client each; more readers share `FEWER_READER_PROCESSES`.
const READER_PROCESSES: usize = 6;
const FEWER_READER_PROCESSES: usize = 4;

pub const ALL: [Share; 35] = [
    pair(REENTRANT, 0),
    pair(REENTRANT, 1),
    pair(REENTRANT, 10),
    pair(REENTRANT, 50),
    pair(FENCED, 10),
    pair(WRITE, 10),
    THREE,
    mixed(REENTRANT, 1),
    mixed(REENTRANT, 10),
    mixed(FENCED, 10),
    mixed(WRITE, 10),
    mixed(Taken::Multi, 10),
    mixed(Taken::Multi, 5),
    MIXED_8_8,
    mixed_of(REENTRANT, 1, 64, 1),
    CROWD_1MS,
    Lone,
    MIXED_LONE_JAVA,
    MIXED_LONE_RUST,
    CROWD_10MS,
    Far { near: 1 },
    Far { near: 64 },
    Dead,
    READERS_6,
    READERS_16,
    READERS_20MS,
    READERS_200MS,
    herd(Kind::Reentrant, 2),
    herd(Kind::Reentrant, 10),
    herd(Kind::Reentrant, 50),
    herd(Kind::Reentrant, 200),
    herd(Kind::Fair, 2),
    herd(Kind::Fair, 10),
    herd(Kind::Fair, 50),
    herd(Kind::Fair, 200),
];

pub const THREE: Share = Pair {
    taken: REENTRANT,
    work_ms: 10,
    processes: 3,
};
pub const MIXED_8_8: Share = mixed_of(REENTRANT, 1, 8, 8);
pub const CROWD_1MS: Share = Crowd { work_ms: 1 };
pub const CROWD_10MS: Share = Crowd {
    work_ms: LONE_WORK_MS,
};
/// A Java thread beside many tasks of this crate.
pub const MIXED_LONE_JAVA: Share = mixed_of(REENTRANT, LONE_WORK_MS, CROWD, 1);
/// A task of this crate beside many Java threads.
pub const MIXED_LONE_RUST: Share = mixed_of(REENTRANT, LONE_WORK_MS, 1, CROWD);

pub const READERS_6: Share = readers_of(6, 5, 25);
pub const READERS_16: Share = readers_of(16, 5, 25);
/// Beside a writer of this crate, and beside one of Redisson. Of work of one length, readers would keep
/// step and leave the lock free.
pub const READERS_20MS: Share = readers_of(8, 10, 20);
/// Readers whose work lasts longer than the longest intent.
pub const READERS_200MS: Share = readers_of(8, 100, 200);

const fn readers_of(clients: usize, least_ms: u32, most_ms: u32) -> Share {
    Readers {
        clients,
        least_ms,
        most_ms,
    }
}

pub const fn pair(taken: Taken, work_ms: u32) -> Share {
    let processes = 2;
    Pair {
        taken,
        work_ms,
        processes,
    }
}

pub const fn mixed(taken: Taken, work_ms: u32) -> Share {
    mixed_of(taken, work_ms, 1, 1)
}

const fn mixed_of(taken: Taken, work_ms: u32, ours: usize, redisson: usize) -> Share {
    Mixed {
        taken,
        work_ms,
        ours,
        redisson,
    }
}

const fn herd(kind: Kind, clients: usize) -> Share {
    Herd { kind, clients }
}

/// A contending process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Party {
    pub peer: &'static str,
    /// Whether the process is behind the slow network.
    pub far: bool,
    pub taken: Taken,
    pub clients: usize,
    /// The tasks of each client.
    pub tasks: usize,
    pub work: Pause,
    pub think: Pause,
}

impl Party {
    fn new(peer: &'static str, taken: Taken, tasks: usize, work_ms: u32) -> Self {
        Self {
            peer,
            far: false,
            taken,
            clients: 1,
            tasks,
            work: Pause::of(f64::from(work_ms)),
            think: Pause::NONE,
        }
    }
}

impl Share {
    pub fn name(self) -> String {
        match self {
            Pair {
                processes: 3,
                work_ms,
                ..
            } => format!("share-three-{work_ms}ms"),
            Pair { taken, work_ms, .. } => format!("share-pair-{}{work_ms}ms", prefix(taken)),
            Mixed {
                taken,
                work_ms,
                ours: 1,
                redisson: 1,
            } => format!("share-mixed-{}{work_ms}ms", prefix(taken)),
            Mixed {
                work_ms: 1,
                ours,
                redisson,
                ..
            } => format!("share-mixed-{ours}-{redisson}"),
            Mixed {
                work_ms,
                ours,
                redisson,
                ..
            } => format!("share-mixed-{ours}-{redisson}-{work_ms}ms"),
            Lone => format!("share-lone-{CROWD}-{LONE_WORK_MS}ms"),
            Crowd { work_ms: 1 } => "share-crowd".into(),
            Crowd { work_ms } => format!("share-crowd-{work_ms}ms"),
            Far { near } => format!("share-far-{near}"),
            Dead => "share-dead".into(),
            Readers {
                clients,
                most_ms: 25,
                ..
            } => format!("share-readers-{clients}"),
            Readers {
                clients, most_ms, ..
            } => format!("share-readers-{clients}-{most_ms}ms"),
            Herd {
                kind: Kind::Reentrant,
                clients,
            } => format!("herd-{clients}"),
            Herd { kind, clients } => format!("herd-{}-{clients}", kind.text()),
        }
    }

    #[rustfmt::skip]
    pub fn title(self) -> String {
        match self {
            Pair { taken, work_ms, processes } =>
                format!("shares: {processes} processes of 1 task, {work_ms} ms of work, {} lock", taken.text()),
            Mixed { taken, work_ms, ours, redisson } =>
                format!("shares: ours ({ours}) beside Redisson ({redisson}), {work_ms} ms of work, {} lock", taken.text()),
            Lone => format!("shares: a process of 1 task beside a process of {CROWD}, {LONE_WORK_MS} ms of work"),
            Crowd { work_ms } => format!("shares: {CROWD_PROCESSES} processes of {CROWD_TASKS} tasks, {work_ms} ms of work"),
            Far { near } => format!("shares: a task 5 ms away each way beside a process of {near} near, 1 ms of work"),
            Dead => "a process of 1 task, 1 ms of work, alone and beside a subscriber that never asks".into(),
            Readers { clients, least_ms, most_ms } =>
                format!("{clients} clients that read for {least_ms} to {most_ms} ms, without and with a writer"),
            Herd { kind, clients } => format!("{clients} clients of one task, 1 ms of work, {} lock", kind.text()),
        }
    }

    pub fn columns(self) -> Columns {
        match self {
            Pair { processes: 3, .. } => THREE_COLUMNS,
            Pair { .. } => PAIR,
            MIXED_LONE_JAVA | MIXED_LONE_RUST => MIXED_LONE,
            Mixed { .. } => MIXED_COLUMNS,
            Lone => LONE,
            Crowd { .. } => CROWD_COLUMNS,
            Far { .. } => FAR,
            Dead => DEAD,
            Readers { .. } => READERS,
            Herd { .. } => HERD,
        }
    }

    /// The p99 wait of the task that is alone in its process beside many, if there is one.
    pub fn lone_p99(self) -> Option<Figure> {
        match self {
            Lone | MIXED_LONE_RUST => Some(Figure::FirstWaitP99),
            MIXED_LONE_JAVA => Some(Figure::SecondWaitP99),
            _ => None,
        }
    }

    /// The rows of its table.
    pub fn rows(self) -> &'static [&'static str] {
        match self {
            Mixed { .. } => &[MIXED],
            READERS_20MS | READERS_200MS => &[OURS, REDISSON, MIXED],
            _ => &[OURS, REDISSON],
        }
    }

    /// A factor for the length of a round in which few turns fit.
    pub fn stretch(self) -> u32 {
        match self {
            Pair { work_ms: 50, .. } | Far { .. } | Readers { .. } => 2,
            Lone | MIXED_LONE_JAVA | MIXED_LONE_RUST | CROWD_10MS => 2,
            _ => 1,
        }
    }

    /// The contending processes of a row.
    pub fn parties(self, row: &str) -> Vec<Party> {
        let peer = match row {
            REDISSON => REDISSON,
            _ => OURS,
        };
        match self {
            Pair {
                taken,
                work_ms,
                processes,
            } => vec![Party::new(peer, taken, 1, work_ms); processes],
            Mixed {
                taken,
                work_ms,
                ours,
                redisson,
            } => vec![
                Party::new(OURS, taken, ours, work_ms),
                Party::new(REDISSON, taken, redisson, work_ms),
            ],
            Lone => {
                let party = |tasks| Party::new(peer, REENTRANT, tasks, LONE_WORK_MS);
                vec![party(1), party(CROWD)]
            }
            Crowd { work_ms } => {
                vec![Party::new(peer, REENTRANT, CROWD_TASKS, work_ms); CROWD_PROCESSES]
            }
            Far { near } => {
                let far = Party {
                    far: true,
                    ..Party::new(peer, REENTRANT, 1, 1)
                };
                vec![far, Party::new(peer, REENTRANT, near, 1)]
            }
            Dead => vec![Party::new(peer, REENTRANT, 1, 1)],
            Readers {
                clients,
                least_ms,
                most_ms,
            } => {
                let work = Pause::between(f64::from(least_ms), f64::from(most_ms));
                let writer = match row {
                    MIXED => REDISSON,
                    _ => peer,
                };
                readers(peer, clients, work, writer)
            }
            Herd { kind, clients } => vec![Party {
                clients,
                ..Party::new(peer, Taken::One(kind), 1, 1)
            }],
        }
    }
}

/// The contending processes of `Readers`: the last one writes.
fn readers(peer: &'static str, clients: usize, work: Pause, writer: &'static str) -> Vec<Party> {
    let processes = match clients {
        few if few <= READER_PROCESSES => few,
        _ => FEWER_READER_PROCESSES,
    };
    let think = Pause::of(5.0);
    let reader = Party {
        clients: clients / processes,
        work,
        think,
        ..Party::new(peer, Taken::One(Kind::Read), 1, 0)
    };
    let writer = Party {
        think,
        ..Party::new(writer, WRITE, 1, 1)
    };
    let mut all = vec![reader; processes];
    all.push(writer);
    all
}

fn prefix(taken: Taken) -> String {
    match taken {
        REENTRANT => String::new(),
        taken => format!("{}-", taken.text()),
    }
}

const PAIR: Columns = &[
    (Figure::LeastShare, "least share, %"),
    (Figure::LongestWait, "longest wait, ms"),
    (Figure::PerSecond, "turns/s"),
    (Figure::First, "first process, turns/s"),
    (Figure::Second, "second, turns/s"),
    (Figure::Scripts, "scripts/turn"),
];
const THREE_COLUMNS: Columns = &[
    (Figure::LeastShare, "least share, %"),
    (Figure::LongestWait, "longest wait, ms"),
    (Figure::PerSecond, "turns/s"),
    (Figure::First, "first process, turns/s"),
    (Figure::Second, "second, turns/s"),
    (Figure::Third, "third, turns/s"),
    (Figure::Scripts, "scripts/turn"),
];
const LONE: Columns = &[
    (Figure::LeastShare, "least share, %"),
    (Figure::FirstWaitP99, "p99 wait of the lone task, ms"),
    (Figure::FirstWait, "its longest wait, ms"),
    (Figure::SecondWait, "longest wait of the rest, ms"),
    (Figure::PerSecond, "turns/s"),
    (Figure::First, "lone task, turns/s"),
    (Figure::Second, "the rest, turns/s"),
    (Figure::Scripts, "scripts/turn"),
];
const MIXED_LONE: Columns = &[
    (Figure::LeastShare, "least share, %"),
    (Figure::FirstWaitP99, "p99 wait of ours, ms"),
    (Figure::FirstWait, "longest wait of ours, ms"),
    (Figure::SecondWaitP99, "p99 wait of redisson, ms"),
    (Figure::SecondWait, "longest wait of redisson, ms"),
    (Figure::First, "ours, turns/s"),
    (Figure::Second, "redisson, turns/s"),
    (Figure::Scripts, "scripts/turn"),
];
const CROWD_COLUMNS: Columns = &[
    (Figure::LeastShare, "least share, %"),
    (Figure::LongestWait, "longest wait, ms"),
    (Figure::PerSecond, "turns/s"),
    (Figure::First, "first process, turns/s"),
    (Figure::Second, "second, turns/s"),
    (Figure::Third, "third, turns/s"),
    (Figure::Fourth, "fourth, turns/s"),
    (Figure::Scripts, "scripts/turn"),
];
const MIXED_COLUMNS: Columns = &[
    (Figure::LeastShare, "least share, %"),
    (Figure::FirstWait, "longest wait of ours, ms"),
    (Figure::SecondWait, "of redisson, ms"),
    (Figure::PerSecond, "turns/s"),
    (Figure::First, "ours, turns/s"),
    (Figure::Second, "redisson, turns/s"),
    (Figure::Scripts, "scripts/turn"),
];
const FAR: Columns = &[
    (Figure::LeastShare, "least share, %"),
    (Figure::FirstWait, "longest wait of the far task, ms"),
    (Figure::SecondWait, "of a near task, ms"),
    (Figure::PerSecond, "turns/s"),
    (Figure::First, "far, turns/s"),
    (Figure::Second, "near, turns/s"),
    (Figure::Scripts, "scripts/turn"),
];
const DEAD: Columns = &[
    (Figure::Alone, "alone, turns/s"),
    (Figure::PerSecond, "with the subscriber, turns/s"),
    (Figure::Ratio, "with / alone"),
    (Figure::LongestWait, "longest wait with it, ms"),
    (Figure::Scripts, "scripts/turn with it"),
];
const READERS: Columns = &[
    (Figure::Writes, "writer, turns/s"),
    (Figure::WriterWait, "longest wait of the writer, ms"),
    (Figure::Alone, "reads/s without the writer"),
    (Figure::PerSecond, "reads/s with it"),
    (Figure::Ratio, "with / without"),
    (Figure::LongestWait, "longest wait of a reader, ms"),
];
const HERD: Columns = &[
    (Figure::PerSecond, "turns/s"),
    (Figure::Scripts, "scripts/turn"),
    (Figure::LongestWait, "longest wait, ms"),
    (Figure::Others, "other commands/turn"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_readers_are_four_processes_of_four_clients() {
        let parties = READERS_16.parties(OURS);
        let clients = parties.iter().map(|party| party.clients);
        assert_eq!(clients.collect::<Vec<_>>(), [4, 4, 4, 4, 1]);
        assert_eq!(parties[4].taken, WRITE);
        assert_eq!(READERS_6.parties(REDISSON).len(), 7);
    }

    #[test]
    fn a_mixed_workload_has_one_row_with_a_party_of_each_peer() {
        for share in ALL {
            for row in share.rows() {
                let parties = share.parties(row);
                let mut peers: Vec<_> = parties.iter().map(|party| party.peer).collect();
                peers.dedup();
                match *row {
                    MIXED => assert_eq!(peers, [OURS, REDISSON]),
                    row => assert_eq!(peers, [row]),
                }
            }
        }
    }
}
