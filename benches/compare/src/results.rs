//! What was measured, over all rounds.

use std::collections::BTreeMap;

use crate::{counters::Used, peers::Name, round::Round, stats::Spread, workload::Workload};

/// One round, and what it cost the server.
pub struct Sample {
    pub round: Round,
    pub used: Used,
}

impl Sample {
    fn per_pair(&self, amount: f64) -> f64 {
        amount / self.round.all as f64
    }
}

/// A column of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    PerSecond,
    P50,
    P99,
    Scripts,
    OtherCommands,
    ServerCpu,
}

impl Figure {
    fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::PerSecond => sample.round.per_second(),
            Self::P50 => sample.round.p50_us,
            Self::P99 => sample.round.p99_us,
            Self::Scripts => sample.per_pair(sample.used.scripts as f64),
            Self::OtherCommands => sample.per_pair(sample.used.others as f64),
            Self::ServerCpu => sample.per_pair(sample.used.cpu_seconds * 1e6),
        }
    }
}

/// Of one workload.
pub struct Results {
    pub workload: Workload,
    /// In the order of [`Name::ALL`].
    pub samples: Vec<(Name, Vec<Sample>)>,
}

impl Results {
    pub fn spread(&self, peer: Name, figure: Figure) -> Option<Spread> {
        let (_, samples) = self.samples.iter().find(|(name, _)| *name == peer)?;
        (!samples.is_empty()).then(|| Spread::of(samples.iter().map(|sample| figure.of(sample))))
    }
}

/// What the clients themselves sent in a monitored round, per pair.
pub struct Sent {
    pub peer: Name,
    pub pairs: u64,
    pub commands: BTreeMap<String, u64>,
}

impl Sent {
    /// `EVALSHA` and `EVAL`, and everything else, per pair.
    pub fn per_pair(&self) -> (f64, f64) {
        let is_script = |name: &str| matches!(name, "EVALSHA" | "EVAL");
        let (mut scripts, mut others) = (0, 0);
        for (name, count) in &self.commands {
            *(if is_script(name) {
                &mut scripts
            } else {
                &mut others
            }) += count;
        }
        (
            scripts as f64 / self.pairs as f64,
            others as f64 / self.pairs as f64,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_other_commands_are_told_apart() {
        let sent = Sent {
            peer: Name::Ours,
            pairs: 10,
            commands: [("EVALSHA", 18), ("EVAL", 2), ("PING", 5)]
                .map(|(name, count)| (name.to_owned(), count))
                .into(),
        };
        assert_eq!(sent.per_pair(), (2.0, 0.5));
    }
}
