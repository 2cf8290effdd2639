//! Histories that once broke a rule, and keep it now. A change of the programs makes another history of a seed,
//! so a defect that can be arranged has a separate test too. Where a seeded bug of tests/sim/mutants is the defect, another seed
//! that breaks a rule with that bug may replace one that no longer does.

use crate::{campaign::history::Plan, world::servers::Kind};

/// A seed that once broke a rule, the world and the profile that it had, and the defect that it showed.
type Regression = (u64, Kind, &'static str, &'static str);

/// Defects of this crate.
const OF_THE_CRATE: &[Regression] = &[
    (
        2995,
        Kind::Node,
        "calm",
        "a release cut the lease and did not notify a waiter",
    ),
    (
        2271,
        Kind::Cluster,
        "outages",
        "a reconnecting listener subscribed to a channel without waiters, and kept the subscription",
    ),
    (
        914,
        Kind::Cluster,
        "losses",
        "the same as 2271, in another profile",
    ),
    (
        127,
        Kind::Cluster,
        "outages",
        "a command of a broken connection enqueued a waiter late: the next connection broke before it had killed the first",
    ),
    (
        506,
        Kind::Node,
        "closings",
        "a shutdown listed holds as unreleased that a task was about to release",
    ),
    (
        405,
        Kind::Cluster,
        "outages",
        "a node that gave a slot away granted a fair lock without its queue, which kept the owner's place",
    ),
    (
        127,
        Kind::Replicas,
        "lagging",
        "the owner of a late grant enqueued before the notified waiter, and the lock stayed free",
    ),
    (
        728,
        Kind::Replicas,
        "ordered",
        "the marker of a live read hold was set to the shorter lease of the next one, and the lock expired too early",
    ),
    (
        217,
        Kind::Replicas,
        "ordered",
        "the server executed a late command of a connection before the killed one",
    ),
    (
        37,
        Kind::Replicas,
        "ordered",
        "the release of an inner hold extended the outer one without a wait for replicas",
    ),
    (
        150,
        Kind::Node,
        "silences",
        "an early form of the local queue broke a rule",
    ),
    (
        2148,
        Kind::Node,
        "slow",
        "an early form of the local queue broke a rule",
    ),
    (
        4303,
        Kind::Node,
        "forced",
        "an early form of the local queue broke a rule",
    ),
    (
        5617,
        Kind::Node,
        "closings",
        "an early form of the local queue broke a rule",
    ),
    (
        43375,
        Kind::Node,
        "forced",
        "an early form of the local queue broke a rule",
    ),
    (
        4042,
        Kind::Node,
        "forced",
        "an asker waited for the end of its client's tenure, which a forced unlock had ended",
    ),
    (
        149_392,
        Kind::Node,
        "silences",
        "a fair waiter on a silent connection gave up leaving the queue after 600 ms",
    ),
    (
        210_197,
        Kind::Node,
        "silences",
        "a second broken connection for messages stayed subscribed: only the latest one was killed",
    ),
    (
        232_592,
        Kind::Node,
        "outages",
        "the server refused the release of an inner hold, and the holder was told of an expiry that had not happened",
    ),
    (
        328_858,
        Kind::Node,
        "calm",
        "writers left intents at a free lock, because a reader's release on the Redisson side publishes nothing",
    ),
    (
        7,
        Kind::Node,
        "calm",
        "a release ran as a task of the client, and the owner's next attempt overtook it",
    ),
    (
        4_010_081,
        Kind::Node,
        "closings",
        "the release of an inner hold gave the server a new lease for an outer one that had ended by the client's clock",
    ),
    (
        310,
        Kind::Replicas,
        "lagging",
        "a write hold ended before the answer to its owner's read attempt, which had prolonged it on the server",
    ),
    (
        7_106_859,
        Kind::Cluster,
        "outages",
        "an owner asked a node that had the queue but not yet the places, and took a second place",
    ),
    (
        8_008_466,
        Kind::Node,
        "freezes",
        "a nested grant under a lent field, whose outer hold had ended, counted as the lender's, and the lender entered too",
    ),
    (
        9_171_457,
        Kind::Node,
        "silences",
        "a group with a short lease kept its members too briefly to get the rest within 30 s",
    ),
    (
        11_115_421,
        Kind::Node,
        "calm",
        "overlapping groups waited for each other in a circle for 30 s",
    ),
    (
        10_349_717,
        Kind::Replicas,
        "failovers",
        "a renewal found the lease that an unacknowledged release had set, wrote nothing, and counted as acknowledged",
    ),
    (
        5403,
        Kind::Replicas,
        "losses",
        "a repeated release of a read hold counted as a renewal, although the server had refused the new lease",
    ),
    (
        22_759_965,
        Kind::Node,
        "closings",
        "an inner hold began a tenure of its own beside a lost outer one, and the server counted both",
    ),
    (
        24_636_812,
        Kind::Cluster,
        "outages",
        "a marker of a read hold arrived with its slot after the release of an inner hold, and replaced a newer one",
    ),
    (24_720_412, Kind::Cluster, "outages", "the same as 24636812"),
    (
        25_431_485,
        Kind::Node,
        "closings",
        "a write hold ended during a shutdown, which did not list it, and an abandoned read had given it a longer lease on the server",
    ),
    (
        494,
        Kind::Node,
        "slow",
        "an unlock of a RedLock released parts of two leaked holds, and the outer one had no majority",
    ),
];

/// Mistakes of the checker: it refused a history that kept the rules.
const OF_THE_CHECKER: &[Regression] = &[
    (
        3_022_696,
        Kind::Cluster,
        "closings",
        "an owner learned of its client's shutdown after the next waiter had entered",
    ),
    (
        50_844,
        Kind::Node,
        "closings",
        "the server keeps the field of an ended read hold beside a write hold of the same owner",
    ),
    (
        6_010_587,
        Kind::Node,
        "cuts",
        "an outer hold ended before the answer to the inner release, and another client entered",
    ),
    (
        9_116_837,
        Kind::Replicas,
        "losses",
        "an owner lost its outer holds during a wait, and checked its guards only before it",
    ),
    (
        9_044_372,
        Kind::Node,
        "forced",
        "waiters of a simple lock poll every 200 ms, later than other locks notify theirs",
    ),
    (
        10_448_804,
        Kind::Replicas,
        "losses",
        "a second master was replaced while the first one still served, and lost its grants",
    ),
    (10_697_669, Kind::Replicas, "losses", "the same as 10448804"),
    (10_752_582, Kind::Replicas, "losses", "the same as 10448804"),
    (
        10_285_776,
        Kind::Cluster,
        "losses",
        "a slot moved and its new node died, and no connection told a waiter that its entry was lost",
    ),
    (
        24_560_538,
        Kind::Node,
        "closings",
        "a shutdown lists each of the readers that share a field of the server",
    ),
    (
        26_426_369,
        Kind::Node,
        "slow",
        "a writer of Redisson waited for a lease of 30 s that a reader of Redisson had cut without a message",
    ),
    (
        21_263_244,
        Kind::Cluster,
        "closings",
        "the server keeps the field of an ended write hold beside a read hold of the same owner",
    ),
];

#[test]
fn histories_that_once_broke_a_rule_keep_it() {
    for (seed, world, profile, defect) in OF_THE_CRATE.iter().chain(OF_THE_CHECKER) {
        let plan = Plan::named(*seed, *world, profile);
        if let Err(failure) = plan.play(false) {
            panic!(
                "seed {seed} breaks a rule: {}\nIt once showed: {defect}\n{}",
                failure.rule,
                plan.command()
            );
        }
    }
}
