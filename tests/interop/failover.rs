//! The cost of a failover, beside Redisson in the same run. Prints figures, and fails only if this
//! crate breaks a promise.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use testbed::{Peer, Refused, eventually};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::ground::{Fault, Ground};
use crate::kinds::REENTRANT;
use crate::stage::{AMPLE, Pace, Stage, Version, now_ms, together};
use crate::worker::{Lock, Worker};

/// This crate polls at its default rate, and leases outlast a failover.
const PACE: Pace = Pace {
    watchdog: Duration::from_secs(15),
    max_poll_interval: Duration::from_secs(5),
    ..Pace::REDISSONS
};
const HOLDS: usize = 10;
const UNREPLICATED: usize = 3;
/// The interval between acquisitions during the outage, and their greatest number.
const EVERY: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 300;
/// The lease of an acquisition that only shows whether the lock can be acquired.
const BRIEF: &str = "1000";

pub async fn a_killed_master_beside_redisson(version: Version) {
    for _ in 0..rounds() {
        everything_replicated(version, Fault::Killed).await;
    }
}

pub async fn a_stopped_master_beside_redisson(version: Version) {
    for _ in 0..rounds() {
        everything_replicated(version, Fault::Stopped).await;
    }
}

pub async fn a_failover_by_order_beside_redisson(version: Version) {
    for _ in 0..rounds() {
        everything_replicated(version, Fault::Ordered).await;
    }
}

pub async fn a_master_ahead_of_its_replicas(version: Version) {
    for _ in 0..rounds() {
        nothing_replicated(version).await;
    }
}

/// The number of rounds: `TOPOLOGY_ROUNDS`, set by `make topologies`, or one.
fn rounds() -> usize {
    let rounds = std::env::var("TOPOLOGY_ROUNDS");
    let rounds = rounds.ok().map(|rounds| rounds.parse().expect("a number"));
    let rounds = rounds.unwrap_or(1);
    println!("{rounds} rounds (TOPOLOGY_ROUNDS)");
    rounds
}

/// The master is lost after full replication. Checks new acquisitions, hand-offs to the other side,
/// and holds.
async fn everything_replicated(version: Version, fault: Fault) {
    let stage = &version.own_stage(PACE).await;
    let sides = [&stage.java, &stage.rust];
    let (java, rust) = (
        holds(stage, &stage.java).await,
        holds(stage, &stage.rust).await,
    );
    let handed = handed_off(stage).await;
    stage
        .server
        .first()
        .await
        .replicated_to(stage.server.replicas())
        .await;
    let names = names(&stage.server).await;
    stage.server.strike(fault).await;
    let struck = now_ms();
    let mastered = AtomicU64::new(u64::MAX);
    let ([elected, announced], for_java, for_rust) = tokio::join!(
        stage.server.elected(&mastered),
        first_inside(sides[0], &names[0], struck, &mastered),
        first_inside(sides[1], &names[1], struck, &mastered),
    );
    println!(
        "Redisson {version} beside this crate: {fault:?}; a new master after {} ms, announced after {} ms",
        elected - struck,
        announced - struck
    );
    for (peer, outage) in sides.into_iter().zip([for_java, for_rust]) {
        println!("  {:4}: {outage}", peer.name());
    }
    if fault == Fault::Ordered {
        // Writes that the old master accepts until it follows the new one are lost.
        stage.server.recover(fault).await;
    }
    let mut late = Vec::new();
    for Handed {
        holder,
        waiter,
        inside,
    } in handed
    {
        let asked = now_ms();
        let unlocked = holder.ask("unlock", &[]).await;
        let came = timeout(AMPLE, inside).await;
        let came = came.map(|inside| format!("{} ms", inside.saturating_sub(asked)));
        println!(
            "  {waiter} waits, {holder} unlocks ({}): acquired after {came:?}",
            shown(&unlocked)
        );
        if waiter.peer.name() == "Rust" && came.is_err() {
            late.push(format!("{waiter} did not acquire the lock after {holder}"));
        }
    }
    assert!(late.is_empty(), "{late:?}");
    stage.server.recover(fault).await;
    judge(stage, &java, &rust, "after the failover").await;
    sleep(PACE.watchdog + Duration::from_secs(1)).await;
    judge(stage, &java, &rust, "a lease later").await;
}

/// The master is lost with holds that no replica has. Their owners lose them, and may or may not
/// get a report.
async fn nothing_replicated(version: Version) {
    let stage = &version.own_stage(PACE).await;
    println!(
        "Redisson {version} beside this crate: a master killed with holds that no replica has"
    );
    stage.server.deafen().await;
    let mut asked = Vec::new();
    for (peer, other) in [(&stage.java, &stage.rust), (&stage.rust, &stage.java)] {
        for _ in 0..UNREPLICATED {
            let worker = lock(stage, "ahead").await.worker(peer);
            let answer = worker.ask("trylock", &[]);
            asked.push((worker, other, answer));
        }
    }
    let mut granted = Vec::new();
    for (worker, other, answer) in asked {
        let answer = answer.await;
        println!("  {worker} acquires a lock: {answer:?}");
        if answer.is_ok_and(|values| values[0] == "true") {
            granted.push((worker, other));
        }
    }
    stage.server.strike(Fault::Killed).await;
    let struck = now_ms();
    stage.server.undeafen();
    let [elected, announced] = stage.server.elected(&AtomicU64::default()).await;
    let [elected, announced] = [elected - struck, announced - struck];
    println!("  a new master after {elected} ms, announced after {announced} ms");
    together(granted.iter().map(async |(hold, other)| {
        let rival = hold.lock.worker(other);
        let (lost, inside) = tokio::join!(lost_at(hold), rival.lock());
        let lost = lost.map(|lost| lost.saturating_sub(struck));
        let inside = inside - struck;
        println!("  {hold} learns of its loss after {lost:?} ms, {rival} acquires the lock after {inside} ms");
    }))
    .await;
}

/// The time when a Rust holder learns of its loss. A Java holder gets no report.
async fn lost_at(hold: &Worker<'_>) -> Option<u64> {
    if hold.peer.name() == "Java" {
        return None;
    }
    eventually("the holder learns of its loss", AMPLE, async || {
        is_lost(hold).await
    })
    .await;
    Some(now_ms())
}

async fn is_lost(hold: &Worker<'_>) -> bool {
    let lost = hold.ask("islost", &[]).await;
    lost.unwrap_or_else(|refused| panic!("{refused}"))[0] == "true"
}

/// Locks that a peer holds, each by its own worker.
async fn holds<'a>(stage: &Stage, peer: &'a Peer) -> Vec<Worker<'a>> {
    let mut holds = Vec::new();
    for _ in 0..HOLDS {
        let worker = lock(stage, "hold").await.worker(peer);
        worker.lock().await;
        holds.push(worker);
    }
    holds
}

async fn lock(stage: &Stage, prefix: &str) -> Lock {
    Lock {
        name: stage.server.name(prefix).await,
        kind: &REENTRANT,
    }
}

struct Handed<'a> {
    holder: Worker<'a>,
    waiter: Worker<'a>,
    inside: std::pin::Pin<Box<dyn Future<Output = u64> + Send>>,
}

/// A lock that one side holds and the other waits for, in both directions.
async fn handed_off(stage: &Stage) -> Vec<Handed<'_>> {
    let mut handed = Vec::new();
    for (one, other) in [(&stage.java, &stage.rust), (&stage.rust, &stage.java)] {
        let lock = lock(stage, "handed").await;
        let (holder, waiter) = (lock.worker(one), lock.worker(other));
        holder.lock().await;
        let inside = Box::pin(waiter.lock());
        stage.waiting(&lock).await;
        handed.push(Handed {
            holder,
            waiter,
            inside,
        });
    }
    handed
}

/// Names for the acquisitions of each side, created while a server can still assign them.
async fn names(server: &Ground) -> [Vec<String>; 2] {
    let mut names = [Vec::new(), Vec::new()];
    for index in 0..2 * ATTEMPTS {
        names[index % 2].push(server.name("new").await);
    }
    names
}

/// The acquisitions of one side, in ms after the loss of the master.
#[derive(Default)]
struct Outage {
    /// The first acquisition on the new master, whenever it was requested.
    first: Option<u64>,
    /// The acquisition that was requested when the master was lost: its result and its time.
    at_once: Option<(Result<(), String>, u64)>,
    begun: usize,
    refused: BTreeMap<String, u32>,
}

/// Starts acquisitions until one is granted and the first one has ended.
async fn first_inside(peer: &Peer, names: &[String], struck: u64, mastered: &AtomicU64) -> Outage {
    let (mut outage, mut asked) = (Outage::default(), JoinSet::new());
    let mut pace = interval(EVERY);
    while outage.first.is_none() || outage.at_once.is_none() {
        tokio::select! {
            _ = pace.tick(), if outage.first.is_none() && outage.begun < ATTEMPTS => {
                let name = names[outage.begun].clone();
                let worker = Lock { name, kind: &REENTRANT }.worker(peer);
                let (index, answer) = (outage.begun, worker.ask("lock", &[BRIEF]));
                outage.begun += 1;
                asked.spawn(async move { (index, answer.await) });
            }
            Some(answered) = asked.join_next() => {
                let (index, answer) = answered.expect("the request ends");
                let after = now_ms().saturating_sub(struck);
                match &answer {
                    // After an ordered failover, the old master accepts writes for a while.
                    Ok(_) if now_ms() >= mastered.load(Relaxed) => {
                        outage.first.get_or_insert(after);
                    }
                    Ok(_) => {}
                    Err(refused) => *outage.refused.entry(refused.class.clone()).or_default() += 1,
                }
                if index == 0 {
                    outage.at_once = Some((answer.map(drop).map_err(|refused| refused.class), after));
                }
            }
            else => break,
        }
    }
    outage
}

impl std::fmt::Display for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            first,
            at_once,
            begun,
            refused,
        } = self;
        write!(
            f,
            "the first new acquisition after {first:?} ms; the one begun at once: {at_once:?} ms; {begun} begun, \
             refused so far: {refused:?}"
        )
    }
}

/// Counts the holds that workers rely on, and those that the server has.
async fn judge(stage: &Stage, java: &[Worker<'_>], rust: &[Worker<'_>], when: &str) {
    let mut gone = 0;
    for hold in java {
        gone += u32::from(!is_there(stage, hold).await);
    }
    // A Java holder gets no report, and relies on its hold until it asks.
    println!("  Java, {when}: of {HOLDS} holds {gone} are gone, and wrongly relied on");
    let (mut gone, mut kept, mut dropped) = (0, 0, 0);
    for hold in rust {
        let there = is_there(stage, hold).await;
        let lost = is_lost(hold).await;
        gone += u32::from(!there);
        kept += u32::from(!there && !lost);
        dropped += u32::from(there && lost);
    }
    println!(
        "  Rust, {when}: of {HOLDS} holds {gone} are gone, {kept} wrongly relied on, {dropped} wrongly believed lost"
    );
    assert_eq!(
        (gone, kept, dropped),
        (0, 0, 0),
        "{when}: a replicated hold was lost"
    );
}

async fn is_there(stage: &Stage, hold: &Worker<'_>) -> bool {
    let field = hold.field().await;
    stage.fields(&hold.lock).await.contains_key(&field)
}

fn shown(answer: &Result<Vec<String>, Refused>) -> String {
    match answer {
        Ok(_) => "ok".to_owned(),
        Err(refused) => refused.to_string(),
    }
}
