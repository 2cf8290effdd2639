//! A number with a target: an upper or a lower limit.

use crate::{figure::Figure, workload::Workload};

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reach {
    AtMost(f64),
    AtLeast(f64),
}

/// What our figure is divided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Over {
    Peer(&'static str),
    /// The least figure of all locks but ours.
    BestLock,
    /// Something else than one.
    Unit(f64),
    /// A unit, for the figure of the worst round.
    WorstOf(f64),
}

pub struct Target {
    pub what: String,
    /// The row of the figure.
    pub row: &'static str,
    pub workload: Workload,
    pub figure: Figure,
    pub over: Over,
    pub reach: Reach,
}
