//! A number with a target: an upper or a lower limit.

use crate::{figure::Figure, workload::Workload};

/// The limit of a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reach {
    AtMost(f64),
    AtLeast(f64),
}

/// The divisor of this crate's figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Over {
    Peer(&'static str),
    /// The least figure of all other locks.
    BestLock,
    /// A unit other than one.
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
    /// Whether the present code is known to miss it: a later version is to reach it.
    pub is_later: bool,
}
