//! Random faults of masters, replicas and sentinels during a history.

use std::time::Duration;

use fastrand::Rng;
use histories::profiles::{CALM, CUTS, FaultKinds, Profile};
use redisson_lock::Durability;
use redisson_lock_test::simulation::Replicated;

const NODES: usize = 3;

/// Replicas lag a little, and nothing fails.
const LAGGING: Profile = Profile {
    lag: Duration::from_millis(10),
    ..CALM
};

/// Masters die, hang and are isolated, and no granted hold is lost.
const FAILOVERS: Profile = Profile {
    disturbed: Some(Duration::from_millis(2_500)),
    fault_kinds: FaultKinds::Failovers,
    durability: Durability::Majority,
    lag: Duration::from_millis(10),
    ..CUTS
};

/// As `FAILOVERS`, but two masters may serve at a time.
const ORDERED: Profile = Profile {
    fault_kinds: FaultKinds::Ordered,
    durability: Durability::All,
    ..FAILOVERS
};

/// Replicas that lack data take over.
const LOSSES: Profile = Profile {
    fault_kinds: FaultKinds::Losses,
    durability: Durability::Local,
    lag: Duration::from_millis(50),
    ..FAILOVERS
};

/// The conditions of histories on replicas.
pub const PROFILES: [(&str, Profile); 4] = [
    ("lagging", LAGGING),
    ("failovers", FAILOVERS),
    ("ordered", ORDERED),
    ("losses", LOSSES),
];

/// Disturbs the servers at random. The caller starts them again after `lasting`. Returns a description.
pub fn disturb(
    world: &Replicated,
    profile: &Profile,
    lasting: Duration,
    random: &mut Rng,
) -> String {
    let loses = profile.fault_kinds == FaultKinds::Losses;
    // A failover keeps all holds only if the previous one has ended.
    if !loses && !world.is_settled() {
        return "the servers are left alone".into();
    }
    let master = world.master();
    let other = (master + random.usize(1..NODES)) % NODES;
    let most = if loses { 9 } else { 5 };
    let fault = match random.u8(..most) {
        0 => {
            world.stop(master);
            format!("the master {master} is stopped")
        }
        1 => {
            world.hang(master);
            format!("the master {master} hangs")
        }
        2 => {
            world.isolate(master);
            format!("the master {master} is isolated")
        }
        3 => {
            let sentinel = random.usize(..NODES);
            world.stop_sentinel(sentinel);
            format!("the sentinel {sentinel} is stopped")
        }
        4 if profile.fault_kinds == FaultKinds::Failovers => {
            world.stop(other);
            format!("the replica {other} is stopped")
        }
        4 | 5 => {
            world.fail_over();
            format!("failover by order from {master}")
        }
        6 => {
            world.hang(other);
            format!("the replica {other} hangs")
        }
        7 => {
            world.set_lag(lasting);
            format!("replicas lag by {lasting:?}")
        }
        _ => {
            world.set_lag(profile.lag);
            format!("replicas lag by {:?}", profile.lag)
        }
    };
    format!("{fault} for {lasting:?}")
}
