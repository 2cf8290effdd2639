//! What the project set out to reach: ratios of medians within one run.

use crate::{
    multi::{self, Turns},
    peers::Name,
    results::{Figure, Results, Sent},
    workload::{LockKind, Workload},
};

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reach {
    AtMost(f64),
    AtLeast(f64),
}

/// Ours over a peer's.
struct Target {
    what: &'static str,
    workload: Workload,
    figure: Figure,
    peer: Name,
    reach: Reach,
}

/// A target and how it came out; `ratio` is `None` without the peer.
pub struct Outcome {
    pub what: String,
    pub reach: Reach,
    pub ratio: Option<f64>,
}

impl Outcome {
    pub fn is_met(&self) -> Option<bool> {
        self.ratio.map(|ratio| match self.reach {
            Reach::AtMost(most) => ratio <= most,
            Reach::AtLeast(least) => ratio >= least,
        })
    }
}

#[rustfmt::skip]
fn targets() -> Vec<Target> {
    use {Figure::{P50, PerSecond, ServerCpu}, Name::{Fred, RedisRs, Redisson}, Reach::{AtLeast, AtMost}};
    use LockKind::{Fair, Fenced, Read, Write};
    let pair = |tasks| Workload::Pair { kind: LockKind::Reentrant, tasks };
    let of = |kind, tasks| Workload::Pair { kind, tasks };
    let target = |what, workload, figure, peer, reach| Target { what, workload, figure, peer, reach };
    vec![
        target("1 task: pair p50 / raw fred", pair(1), P50, Fred, AtMost(1.05)),
        target("1 task: pair p50 / Redisson", pair(1), P50, Redisson, AtMost(0.66)),
        target("64 tasks: pairs/s / raw redis-rs", pair(64), PerSecond, RedisRs, AtLeast(1.15)),
        target("64 tasks: pairs/s / Redisson", pair(64), PerSecond, Redisson, AtLeast(8.0)),
        target("256 tasks: pairs/s / raw redis-rs", pair(256), PerSecond, RedisRs, AtLeast(1.45)),
        target("256 tasks: pairs/s / Redisson", pair(256), PerSecond, Redisson, AtLeast(16.0)),
        target("256 tasks: server CPU per pair / Redisson", pair(256), ServerCpu, Redisson, AtMost(0.2)),
        target("hand-off p50 / Redisson", Workload::Handoff, P50, Redisson, AtMost(0.7)),
        target("fair, 1 task: pair p50 / Redisson", of(Fair, 1), P50, Redisson, AtMost(0.7)),
        target("read, 1 task: pair p50 / Redisson", of(Read, 1), P50, Redisson, AtMost(0.7)),
        target("write, 1 task: pair p50 / Redisson", of(Write, 1), P50, Redisson, AtMost(0.7)),
        target("fenced, 1 task: pair p50 / Redisson", of(Fenced, 1), P50, Redisson, AtMost(0.7)),
        target("read, 64 tasks: pairs/s / Redisson", of(Read, 64), PerSecond, Redisson, AtLeast(5.0)),
        target("fair hand-off through 16 waiters: p50 / Redisson", Workload::Queue, P50, Redisson, AtMost(0.7)),
    ]
}

/// What was not measured stays out.
pub fn outcomes(results: &[Results], sent: &[Sent], turns: &[Turns]) -> Vec<Outcome> {
    let measured = |target: &Target| results.iter().any(|one| one.workload == target.workload);
    let ratios = targets()
        .into_iter()
        .filter(measured)
        .map(|target| Outcome {
            ratio: ratio(results, &target),
            what: target.what.into(),
            reach: target.reach,
        });
    ratios
        .chain(commands(sent))
        .chain(calls_of_groups(turns))
        .collect()
}

fn ratio(results: &[Results], target: &Target) -> Option<f64> {
    let results = results
        .iter()
        .find(|results| results.workload == target.workload)?;
    let median = |peer| Some(results.spread(peer, target.figure)?.median);
    Some(median(Name::Ours)? / median(target.peer)?)
}

/// One script per lock and one per unlock, and no other command: a `PING` now and then is a thousandth of one.
fn commands(sent: &[Sent]) -> Vec<Outcome> {
    let Some(ours) = sent.iter().find(|sent| sent.peer == Name::Ours) else {
        return Vec::new();
    };
    let (scripts, others) = ours.per_pair();
    let outcome = |what: &str, most, sent| Outcome {
        what: format!("1 task: {what} sent per pair"),
        reach: Reach::AtMost(most),
        ratio: Some(sent),
    };
    vec![
        outcome("scripts", 2.005, scripts),
        outcome("other commands", 0.005, others),
    ]
}

/// The calls of a multi-lock, as the server counts them.
fn calls_of_groups(turns: &[Turns]) -> Vec<Outcome> {
    let Some(ours) = turns.iter().find(|turns| turns.peer == Name::Ours) else {
        return Vec::new();
    };
    let outcome = |what: &str, most, steps| Outcome {
        what: format!("multi-lock over 100 names: scripts to {what}"),
        reach: Reach::AtMost(most),
        ratio: Some(multi::scripts(steps).median),
    };
    vec![
        outcome("take", 2.0, &ours.take),
        outcome("release", 1.0, &ours.release),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    #[test]
    fn met_in_the_good_direction_and_unknown_without_a_peer() {
        let met = |reach, ratio| {
            Outcome {
                what: String::new(),
                reach,
                ratio,
            }
            .is_met()
        };
        assert_eq!(met(Reach::AtMost(1.05), Some(1.05)), Some(true));
        assert_eq!(met(Reach::AtMost(1.05), Some(1.06)), Some(false));
        assert_eq!(met(Reach::AtLeast(8.0), Some(7.9)), Some(false));
        assert_eq!(met(Reach::AtLeast(8.0), None), None);
    }

    #[test]
    fn what_is_to_be_reached_is_measured() {
        for target in targets() {
            assert!(workload::ALL.contains(&target.workload), "{}", target.what);
        }
    }

    #[test]
    fn what_was_not_measured_stays_out() {
        assert!(outcomes(&[], &[], &[]).is_empty());
        let alone = Results {
            workload: Workload::Queue,
            samples: Vec::new(),
        };
        let outcomes = outcomes(&[alone], &[], &[]);
        assert_eq!(outcomes.len(), 1);
        assert_eq!(outcomes[0].is_met(), None, "nobody to compare with");
    }
}
