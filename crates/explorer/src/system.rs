//! A small system, and what may go wrong in it.

use std::time::Duration;

use crate::{core::facts::Limits, event::Event};

/// The smallest step of time.
pub const TICK: Duration = Duration::from_secs(1);

/// The tasks of a client.
pub const TASKS: usize = 3;

/// A step of a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    Lock,
    /// With a lease of its own.
    LockFixed,
    Try,
    Unlock,
    /// Of the latest guard, to the fixed lease.
    Extend,
}

/// A small system: its tasks, its times, and how much may go wrong in it.
#[derive(Clone, Debug)]
pub struct System {
    pub name: &'static str,
    /// The steps of the tasks of both clients.
    pub tasks: [[Vec<Step>; TASKS]; 2],
    /// What has happened before: the way to a state that few faults reach late.
    pub begins: Vec<Event>,
    /// The owners of the tasks.
    pub owners: [[u64; TASKS]; 2],
    pub limits: Limits,
    pub fixed_lease: Duration,
    /// The ticks for which a waiter of a fair lock keeps its place.
    pub place: u8,
    pub budget: Budget,
    /// Ticks while something is under way. In quiet states time passes freely.
    pub ticks: u8,
    /// Whether a client's clock may be one tick late.
    pub clocks_lag: bool,
    /// Whether a timer may be late.
    pub timers_lag: bool,
    /// Whether requests of one client may overtake each other.
    pub unordered: bool,
    /// Whether answers that were read before a break may reach the machine after it.
    pub keeps_answers: bool,
    /// Whether operations wait for their batches.
    pub batches: bool,
    /// Whether messages come from another server, to which the connections outlast a failover.
    pub elsewhere: bool,
}

impl System {
    /// Whether an extension may be executed without its hold being marked.
    pub(crate) fn loses_extensions(&self) -> bool {
        let extends = self.tasks.iter().flatten().flatten();
        let may_lose = self.budget.breaks > 0 || self.budget.dropped_futures > 0;
        may_lose && extends.into_iter().any(|step| *step == Step::Extend)
    }
}

/// The faults that may still happen, by kind and in all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Budget {
    pub breaks: u8,
    pub lost_messages: u8,
    pub dropped_futures: u8,
    pub dropped_guards: u8,
    pub forced: u8,
    pub refused: u8,
    /// Requests that the server refuses for a passing reason.
    pub put_off: u8,
    pub failovers: u8,
    /// Clients that are shut down.
    pub closes: u8,
    pub late_pick_ups: u8,
    pub all: u8,
}
