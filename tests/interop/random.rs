//! Schedules drawn from a seed: two owners in this crate and two in Redisson on one server, and the same steps with all four owners
//! in Redisson. After each step both plays have given the same answers and left the same keys, with expiries that were set for the
//! same lease. The differences that docs/from-redisson.md names are [checked](compare) too.

mod compare;
mod draw;
mod leases;
mod play;
mod rest;
mod situation;
mod state;
mod synchronizers;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use testbed::{Peer, unique_name};
use tokio::time::{Instant, sleep};

use crate::ground::{Ground, Topology};
use crate::stage::{AMPLE, Pace, Version, rust_peer};

use compare::{ENDS, STOPPED_RENEWAL, compare};
use play::Play;
use situation::{LONG, SHORT, Situation, Step, games};

/// The page that has a row for every named difference.
const PAGE: &str = include_str!("../../docs/from-redisson.md");
const STEPS: usize = 20;
/// Schedules at a time: they wait more than they work.
const AT_A_TIME: usize = 12;

/// The server of all schedules with one watchdog lease, and the services of two owners: of the play in Redisson, of the mixed one, of both.
async fn open(watchdog: i64) -> (Ground, [Peer; 3]) {
    let version = Version::newest().that_is_built();
    let server = Topology::Single.start().await;
    // In memory, the server sees one owner for the next.
    let pace = Pace {
        watchdog: Duration::from_millis(watchdog as u64),
        local_hand_off: Duration::ZERO,
        command_wait: AMPLE,
        ..Pace::REDISSONS
    };
    // A busy machine may take seconds for an answer.
    let settings = format!(
        "{{singleServerConfig: {{address: '{}', timeout: 20000, connectionPoolSize: 16, connectionMinimumIdleSize: 2, \
             subscriptionConnectionPoolSize: 16, subscriptionConnectionMinimumIdleSize: 1, dnsMonitoringInterval: -1}}, \
             threads: 4, nettyThreads: 4, codec: !<org.redisson.client.codec.StringCodec> {{}}, lockWatchdogTimeout: {watchdog}}}",
        server.url()
    );
    let file = server.first().await.dir().join("redisson.yaml");
    std::fs::write(&file, settings).expect("the file can be written");
    let (redisson, rust, both) = tokio::join!(
        version.java_peer_of(&file),
        rust_peer(&server, Topology::Single, pace),
        version.java_peer_of(&file),
    );
    (server, [redisson, rust, both])
}

/// Plays a schedule in Redisson and mixed. Returns the named differences, or the first other one.
async fn play(
    plays: &mut [Play<'_>; 2],
    situation: &mut Situation,
    seed: u64,
) -> Result<Vec<&'static str>, String> {
    let name = situation.game.kind.bytes();
    let chance = name.fold(seed, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
    let mut rng = Rng::with_seed(chance);
    let mut all_named = Vec::new();
    for number in 0.. {
        let step = match number < STEPS {
            true => Some(situation.draw(&mut rng)),
            false => situation.wind_up(),
        };
        let Some(step) = step.filter(|_| !situation.is_over) else {
            break;
        };
        let named = one_step(situation, &step, plays).await?;
        situation.note(&step, &plays[1].seen.answers);
        situation.is_over |= ENDS.iter().any(|end| named.contains(end));
        all_named.extend(named);
    }
    Ok(all_named)
}

/// Plays a step in both plays, and waits until they are equal: this crate's waiters leave a queue in the background, and a lease may
/// end in one play before it ends in the other.
async fn one_step(
    situation: &Situation,
    step: &Step,
    [redisson, mixed]: &mut [Play<'_>; 2],
) -> Result<BTreeSet<&'static str>, String> {
    tokio::join!(redisson.begin(step), mixed.begin(step));
    let limit = Instant::now() + AMPLE;
    loop {
        let rest: [bool; 2] = tokio::join!(redisson.settle(step), mixed.settle(step)).into();
        let (java, mixed) = (&redisson.seen, &mixed.seen);
        let difference = match compare(situation, step, java, mixed) {
            // A waiter of Redisson may sleep until the lease would have ended.
            Ok(named) if rest == [true; 2] || named.contains(STOPPED_RENEWAL) => return Ok(named),
            Ok(_) => "no rest".to_owned(),
            Err(difference) => difference,
        };
        if Instant::now() > limit {
            return Err(format!(
                "{step:?}: {difference}\nRedisson {java:?}\nmixed {mixed:?}"
            ));
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn setting(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok().filter(|value| !value.is_empty());
    set.map_or(default, |value| value.parse().expect(name))
}

/// Plays the seeds of all games with one watchdog lease, or of the game `GAME`.
async fn play_all(watchdog: i64) {
    let only = std::env::var("GAME").unwrap_or_default();
    let known: Vec<_> = games(LONG).map(|game| game.kind).collect();
    let is_known = only.is_empty() || known.contains(&only.as_str());
    assert!(is_known, "no game is called {only:?}: {known:?}");
    let (first, number) = (setting("FIRST_SEED", 1), setting("SEEDS", 6));
    assert!(number > 0, "SEEDS=0 plays nothing");
    let games = games(watchdog).filter(|game| only.is_empty() || only == game.kind);
    if games.clone().next().is_none() {
        return;
    }
    let (server, [redisson, rust, both]) = &open(watchdog).await;
    let seeds =
        (first..first + number).flat_map(|seed| games.clone().map(move |game| (game, seed)));
    let (failed, named) = (RefCell::new(Vec::new()), RefCell::new(BTreeMap::new()));
    let shares = (0..AT_A_TIME).map(async |share| {
        // The threads and tasks of a schedule play the next one.
        let mut labels = unique_name("owner");
        for (game, seed) in seeds.clone().skip(share).step_by(AT_A_TIME) {
            let play_of = |first| Play::new(game, server, [first, both], &labels);
            let mut plays = [play_of(redisson).await, play_of(rust).await];
            let mut situation = Situation::new(game);
            let outcome = play(&mut plays, &mut situation, seed).await;
            if number == 1 || outcome.is_err() {
                println!("{} {seed}:{}", game.kind, situation.told);
            }
            if plays.iter().any(|play| !play.asked.is_empty()) {
                labels = unique_name("owner");
            }
            for &difference in outcome.as_deref().unwrap_or_default() {
                assert!(
                    PAGE.contains(&format!("\n| {difference} |")),
                    "no row: {difference}"
                );
                *named
                    .borrow_mut()
                    .entry((game.kind, difference))
                    .or_insert(0) += 1;
            }
            if let Err(difference) = outcome {
                println!("{difference}\n");
                failed.borrow_mut().push((game.kind, seed));
            }
        }
    });
    join_all(shares).await;
    let (failed, named) = (failed.into_inner(), named.into_inner());
    println!("{} schedules; named differences: {named:?}", seeds.count());
    assert!(failed.is_empty(), "these differ: {failed:?}");
}

mod schedules {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_renewals() {
        super::play_all(super::LONG).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn with_renewals() {
        super::play_all(super::SHORT).await;
    }
}
