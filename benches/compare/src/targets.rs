//! The project's targets, compared with the medians of one run.

use compare::{
    Kind::{Fair, Fenced, Read, Write},
    stats::Spread,
};

use crate::{
    figure::Figure,
    peers::{self, MUTEX, OURS, REDISSON},
    results::Report,
    share_targets,
    target::{Over, Reach, Target},
    workload::{Workload, of, pair, permits},
};

/// A target and the figure that was measured; `None` without the peer.
pub struct Outcome {
    pub what: String,
    pub reach: Reach,
    pub measured: Option<f64>,
    pub is_later: bool,
}

impl Outcome {
    pub fn is_met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.reach {
            Reach::AtMost(most) => measured <= most,
            Reach::AtLeast(least) => measured >= least,
        })
    }
}

#[rustfmt::skip]
fn targets() -> Vec<Target> {
    use {Figure::*, Over::{BestLock, Peer, Unit}, Reach::{AtLeast, AtMost}, Workload::*};
    const REDISSON_: Over = Peer(REDISSON);
    const ITSELF: Over = Unit(1.0);
    const KIBIBYTE: Over = Unit(1024.0);
    let target = |what: &str, workload, figure, over, reach| {
        Target { what: what.to_owned(), row: OURS, workload, figure, over, reach, is_later: false }
    };
    let mut all = vec![
        // The limits allow for an occasional PING, a thousandth of a command.
        target("scripts sent per lock + unlock", Sent, Scripts, ITSELF, AtMost(2.005)),
        target("other commands sent per lock + unlock", Sent, Others, ITSELF, AtMost(0.005)),
        target("pair p50, 1 task / raw fred", pair(1), P50, Peer("fred"), AtMost(1.05)),
        target("pair p50, 1 task / Redisson", pair(1), P50, REDISSON_, AtMost(0.66)),
        target("pair p50, 1 task / the best other lock", pair(1), P50, BestLock, AtMost(1.0)),
        target("pairs/s, 8 tasks / raw fred", pair(8), PerSecond, Peer("fred"), AtLeast(0.95)),
        target("pairs/s, 64 tasks / raw redis-rs", pair(64), PerSecond, Peer("redis-rs"), AtLeast(1.2)),
        target("pairs/s, 64 tasks / Redisson", pair(64), PerSecond, REDISSON_, AtLeast(9.0)),
        target("pairs/s, 256 tasks / raw redis-rs", pair(256), PerSecond, Peer("redis-rs"), AtLeast(1.5)),
        target("pairs/s, 256 tasks / Redisson", pair(256), PerSecond, REDISSON_, AtLeast(17.0)),
        target("pairs/s, 256 tasks / the ceiling of one operation per command", pair(256), PerSecond, Peer("ceiling"), AtLeast(1.2)),
        target("server CPU per pair, 256 tasks / Redisson", pair(256), ServerCpu, REDISSON_, AtMost(0.15)),
        target("one key, 64 tasks of one process: pairs/s / Redisson", OneKey { tasks: 64 }, PerSecond, REDISSON_, AtLeast(50.0)),
        target("one key, 64 tasks of one process: pairs/s / tokio's Mutex", OneKey { tasks: 64 }, PerSecond, Peer(MUTEX), AtLeast(0.1)),
        target("one key, 1,000 tasks of one process: pairs/s / Redisson", OneKey { tasks: 1000 }, PerSecond, REDISSON_, AtLeast(50.0)),
        target("one name, 64 readers of one process: pairs/s / Redisson", Readers { tasks: 64 }, PerSecond, REDISSON_, AtLeast(50.0)),
        target("one key, 4 processes of 16 tasks: pairs/s / Redisson", Processes, PerSecond, REDISSON_, AtLeast(20.0)),
        target("hand-off between processes p50 / Redisson", HandOff, P50, REDISSON_, AtMost(0.6)),
        target("semaphore pair p50, 1 task / Redisson", permits(1, 1), P50, REDISSON_, AtMost(0.7)),
        target("semaphore of 8 permits, 64 tasks: pairs/s / Redisson", permits(64, 8), PerSecond, REDISSON_, AtLeast(8.0)),
        target("10,000 held locks: renewal commands per third", Held, Scripts, ITSELF, AtMost(100.0)),
        target("10,000 held locks: client CPU, % of a core", Held, ClientCore, ITSELF, AtMost(1.0)),
        target("memory per waiting task, a name each, KiB", Waiting { names: 10_000 }, ClientMemory, KIBIBYTE, AtMost(2.0)),
        target("memory per waiting task, one name, KiB", Waiting { names: 1 }, ClientMemory, KIBIBYTE, AtMost(0.6)),
        target("multi-lock of 1,000 names: round trips to take", Multi { names: 1000 }, Trips, ITSELF, AtMost(20.0)),
        target("multi-lock of 1,000 names: round trips to release", Multi { names: 1000 }, ReleaseTrips, ITSELF, AtMost(20.0)),
        target("fair pair p50, 1 task / Redisson", of(Fair, 1), P50, REDISSON_, AtMost(0.7)),
        target("read pair p50, 1 task / Redisson", of(Read, 1), P50, REDISSON_, AtMost(0.7)),
        target("write pair p50, 1 task / Redisson", of(Write, 1), P50, REDISSON_, AtMost(0.7)),
        target("fenced pair p50, 1 task / Redisson", of(Fenced, 1), P50, REDISSON_, AtMost(0.7)),
        target("read pairs/s, 64 tasks / Redisson", of(Read, 64), PerSecond, REDISSON_, AtLeast(5.0)),
        target("fair hand-off through 16 waiters p50 / Redisson", FairHandOff, P50, REDISSON_, AtMost(0.7)),
        target("multi-lock of 100 names: scripts to take", Multi { names: 100 }, Scripts, ITSELF, AtMost(2.0)),
        target("multi-lock of 100 names: scripts to release", Multi { names: 100 }, ReleaseScripts, ITSELF, AtMost(1.0)),
    ];
    all.extend(share_targets::targets());
    all
}

/// The outcomes for the workloads of the report.
pub fn outcomes(report: &Report) -> Vec<Outcome> {
    let measured = targets()
        .into_iter()
        .filter(|target| report.table(target.workload).is_some());
    measured
        .map(|target| Outcome {
            measured: measured_of(report, &target),
            what: target.what,
            reach: target.reach,
            is_later: target.is_later,
        })
        .collect()
}

fn measured_of(report: &Report, target: &Target) -> Option<f64> {
    let median = |peer| report.median(target.workload, peer, target.figure);
    let over = match target.over {
        Over::Peer(peer) => median(peer)?,
        Over::BestLock => {
            let locks = peers::ALL.into_iter();
            let others = locks.filter(|peer| *peer != OURS && !peers::RAW.contains(peer));
            others.filter_map(median).min_by(f64::total_cmp)?
        }
        Over::Unit(unit) => unit,
        Over::WorstOf(unit) => {
            let spread = report.spread(target.workload, target.row, target.figure)?;
            return Some(worst(spread, target.reach) / unit);
        }
    };
    Some(median(target.row)? / over)
}

fn worst(spread: Spread, reach: Reach) -> f64 {
    match reach {
        Reach::AtMost(_) => spread.max,
        Reach::AtLeast(_) => spread.min,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{results::tests::report, workload};

    #[test]
    fn a_target_is_met_in_its_direction_and_unknown_without_a_peer() {
        let met = |reach, measured| {
            let what = String::new();
            Outcome {
                what,
                reach,
                measured,
                is_later: false,
            }
            .is_met()
        };
        assert_eq!(met(Reach::AtMost(1.05), Some(1.05)), Some(true));
        assert_eq!(met(Reach::AtMost(1.05), Some(1.06)), Some(false));
        assert_eq!(met(Reach::AtLeast(8.0), Some(7.9)), Some(false));
        assert_eq!(met(Reach::AtLeast(8.0), None), None);
        let rounds = Spread::of([1.0, 2.0, 3.0]);
        assert_eq!(worst(rounds, Reach::AtMost(2.0)), 3.0);
        assert_eq!(worst(rounds, Reach::AtLeast(2.0)), 1.0);
    }

    #[test]
    fn every_target_names_a_known_workload_and_a_column_of_it() {
        for Target {
            what,
            workload,
            figure,
            ..
        } in targets()
        {
            assert!(workload::all().any(|one| one == workload), "{what}");
            let mut columns = workload.columns().iter();
            assert!(columns.any(|(column, _)| *column == figure), "{what}");
        }
    }

    #[test]
    fn ours_over_theirs() {
        let measured = report(&[
            (pair(1), OURS, Figure::P50, 150.0),
            (pair(1), "fred", Figure::P50, 100.0),
            (pair(1), "redsync", Figure::P50, 120.0),
            (pair(1), "redis-py", Figure::P50, 300.0),
            (
                Workload::Waiting { names: 1 },
                OURS,
                Figure::ClientMemory,
                1536.0,
            ),
        ]);
        let outcomes = outcomes(&measured);
        let of = |what: &str| {
            let mut outcomes = outcomes.iter();
            let found = outcomes.find(|outcome| outcome.what == what);
            found.expect("it is a target").measured
        };
        assert_eq!(of("pair p50, 1 task / raw fred"), Some(1.5));
        assert_eq!(of("pair p50, 1 task / the best other lock"), Some(1.25));
        assert_eq!(of("pair p50, 1 task / Redisson"), None, "it was not there");
        assert_eq!(of("memory per waiting task, one name, KiB"), Some(1.5));
        assert_eq!(outcomes.len(), 4, "what was not measured stays out");
    }
}
