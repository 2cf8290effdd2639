//! What a workload's numbers are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One number of a sample: a column of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    PerSecond,
    /// Microseconds, as all times but waits.
    P50,
    P99,
    /// `EVALSHA` and `EVAL`, per pair, third, waiter or taking.
    Scripts,
    /// All other commands, inside scripts too.
    Others,
    /// Microseconds per pair.
    ServerCpu,
    ClientCpu,
    /// Percent of what an equal share would be.
    LeastShare,
    /// Percent of a core.
    ClientCore,
    ServerCore,
    /// Bytes per waiter.
    ClientMemory,
    ServerMemory,
    /// Reads from clients' connections.
    Trips,
    ReleaseScripts,
    ReleaseTrips,
    ReleaseP50,
    /// Turns per second of each contending process, in the order of the columns.
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
    /// Turns per second without the subscriber or the writer, and the ratio of turns with and without it.
    Alone,
    Ratio,
    /// Turns per second and the longest wait of the process that writes.
    Writes,
    WriterWait,
}

pub type Sample = BTreeMap<Figure, f64>;

pub type Columns = &'static [(Figure, &'static str)];
