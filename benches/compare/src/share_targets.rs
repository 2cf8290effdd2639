//! The targets of the workloads in which processes contend.

use compare::{Kind, Taken};

use crate::{
    figure::Figure::{self, FirstWait, LeastShare, LongestWait, Ratio, WriterWait, Writes},
    peers::{MIXED, OURS},
    share::{self, Share, mixed, pair},
    target::{
        Over, Reach,
        Reach::{AtLeast, AtMost},
        Target,
    },
    workload::Workload,
};

/// The longest wait of a pair: this many critical sections, and a time for messages and timers.
const SECTIONS: u32 = 5;
const BESIDES_MS: u32 = 50;

/// The longest wait of a task that is alone in its process: two critical sections, and a time for a
/// message and a script.
pub const LONE_WAIT_MS: f64 = (2 * share::LONE_WORK_MS + 5) as f64;

pub fn targets() -> Vec<Target> {
    let one = |kind| Taken::One(kind);
    let mut all = Vec::new();
    for (taken, work_ms) in [
        (one(Kind::Reentrant), 1),
        (one(Kind::Reentrant), 10),
        (one(Kind::Reentrant), 50),
        (one(Kind::Fenced), 10),
        (one(Kind::Write), 10),
    ] {
        let within = f64::from(SECTIONS * work_ms + BESIDES_MS);
        all.push(least(OURS, pair(taken, work_ms), 0.8));
        all.push(wait(pair(taken, work_ms), LongestWait, within));
    }
    all.push(least(OURS, share::THREE, 0.7));
    all.push(wait(share::THREE, LongestWait, 500.0));
    for (taken, work_ms) in [
        (one(Kind::Reentrant), 1),
        (one(Kind::Reentrant), 10),
        (one(Kind::Fenced), 10),
        (one(Kind::Write), 10),
        (Taken::Multi, 10),
        (Taken::Multi, 5),
    ] {
        all.push(least(MIXED, mixed(taken, work_ms), 0.6));
    }
    all.push(least(MIXED, share::MIXED_8_8, 0.5));
    all.push(least(OURS, share::CROWD_1MS, 0.5));
    all.push(wait(share::CROWD_1MS, LongestWait, 150.0));
    for (row, share) in [
        (OURS, Share::Lone),
        (MIXED, share::MIXED_LONE_JAVA),
        (MIXED, share::MIXED_LONE_RUST),
    ] {
        let p99 = share.lone_p99().map(|figure| {
            let what = "p99 wait of the lone task, ms";
            target(row, share, figure, what, 1.0, AtMost(LONE_WAIT_MS))
        });
        all.extend(p99);
    }
    all.push(least(OURS, share::CROWD_10MS, 0.5));
    let far = |near| Share::Far { near };
    all.push(least(OURS, far(1), 0.25));
    all.push(wait(far(1), FirstWait, 500.0));
    all.push(ours(far(64), Figure::First, "far turns/s", AtLeast(4.0)));
    all.push(wait(far(64), FirstWait, 500.0));
    let with_without = "turns/s with the subscriber / without";
    all.push(ours(Share::Dead, Ratio, with_without, AtLeast(0.8)));
    for readers in [share::READERS_6, share::READERS_16] {
        all.push(ours(readers, Writes, "turns/s of the writer", AtLeast(2.0)));
        all.push(wait(readers, WriterWait, 1000.0));
        let with_without = "reads/s with the writer / without";
        all.push(ours(readers, Ratio, with_without, AtLeast(0.75)));
    }
    all.extend(later());
    all
}

/// The targets of writers that readers starve: Redisson's beside readers of this crate, and this
/// crate's beside readers whose work lasts longer than its intents.
fn later() -> Vec<Target> {
    let mut all = Vec::new();
    for (row, readers, least, within) in [
        (MIXED, share::READERS_20MS, 2.0, 1000.0),
        (OURS, share::READERS_200MS, 1.0, 2000.0),
    ] {
        for (figure, what, reach) in [
            (Writes, "turns/s of the writer", AtLeast(least)),
            (WriterWait, "longest wait of the writer, ms", AtMost(within)),
        ] {
            all.push(Target {
                is_later: true,
                ..target(row, readers, figure, what, 1.0, reach)
            });
        }
    }
    all
}

/// The target for the least share of a workload, in percent.
pub fn least_share(share: Share) -> Option<f64> {
    let all = targets().into_iter();
    let mut shares = all.filter(|target| target.figure == LeastShare);
    let target = shares.find(|target| target.workload == Workload::Share(share))?;
    match target.reach {
        AtLeast(least) => Some(100.0 * least),
        AtMost(_) => None,
    }
}

/// The target for the least share, as a part of an equal one.
fn least(row: &'static str, share: Share, least: f64) -> Target {
    let what = "least share of a process";
    target(row, share, LeastShare, what, 100.0, AtLeast(least))
}

fn wait(share: Share, figure: Figure, millis: f64) -> Target {
    let what = match figure {
        FirstWait => "longest wait of the far task, ms",
        WriterWait => "longest wait of the writer, ms",
        _ => "longest wait, ms",
    };
    ours(share, figure, what, AtMost(millis))
}

fn ours(share: Share, figure: Figure, what: &str, reach: Reach) -> Target {
    target(OURS, share, figure, what, 1.0, reach)
}

fn target(
    row: &'static str,
    share: Share,
    figure: Figure,
    what: &str,
    unit: f64,
    reach: Reach,
) -> Target {
    Target {
        what: format!("{}: {what}", share.name()),
        row,
        workload: Workload::Share(share),
        figure,
        over: Over::WorstOf(unit),
        reach,
        is_later: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_shows_the_target_of_a_share() {
        let reentrant = Taken::One(Kind::Reentrant);
        assert_eq!(least_share(pair(reentrant, 10)), Some(80.0));
        assert_eq!(least_share(pair(reentrant, 0)), None);
        assert_eq!(least_share(Share::Far { near: 1 }), Some(25.0));
    }

    #[test]
    fn a_target_names_its_workload() {
        let all = targets();
        let mut whats: Vec<&str> = all.iter().map(|target| target.what.as_str()).collect();
        assert!(whats.contains(&"share-pair-10ms: longest wait, ms"));
        whats.sort_unstable();
        whats.dedup();
        assert_eq!(whats.len(), all.len(), "each is told apart");
    }
}
