//! The figures of a workload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One number of a sample: a column of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    PerSecond,
    /// A median in microseconds, as all times except waits.
    P50,
    P99,
    /// The calls of `EVALSHA` and `EVAL`, per pair, third of a lease, waiter or acquisition.
    Scripts,
    /// All other commands, inside scripts too.
    Others,
    /// The server's processor time in microseconds per pair.
    ServerCpu,
    ClientCpu,
    /// The least share of a process, in percent of an equal one.
    LeastShare,
    /// The client's processor time in percent of a core.
    ClientCore,
    ServerCore,
    /// The client's memory in bytes per waiter.
    ClientMemory,
    ServerMemory,
    /// The server's reads from clients' connections.
    Trips,
    ReleaseScripts,
    ReleaseTrips,
    ReleaseP50,
    /// The turns per second of each contending process, in the order of the columns.
    First,
    Second,
    Third,
    Fourth,
    /// The longest wait in milliseconds: of all tasks, and of the tasks of one process.
    LongestWait,
    FirstWait,
    SecondWait,
    /// The wait in milliseconds that 99 of 100 do not exceed, of the tasks of one process.
    FirstWaitP99,
    SecondWaitP99,
    /// The turns per second without the subscriber or the writer, and the ratio of turns with and
    /// without it.
    Alone,
    Ratio,
    /// The turns per second and the longest wait of the process that writes.
    Writes,
    WriterWait,
}

pub type Sample = BTreeMap<Figure, f64>;

pub type Columns = &'static [(Figure, &'static str)];
