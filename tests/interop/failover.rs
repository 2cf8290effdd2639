//! What a failover costs, beside Redisson in the same run. It prints figures, and fails only where ours breaks a promise.

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

/// Ours asks as often as it does by default, and the leases outlast a failover and are waited for.
const PACE: Pace = Pace {
    watchdog: Duration::from_secs(15),
    poll_floor: Duration::from_secs(5),
};
const HOLDS: usize = 10;
const UNREPLICATED: usize = 3;
/// How often a new acquisition is begun during the outage, and how many there are at most.
const EVERY: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 300;
/// The lease of what is only taken to see whether it can be.
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

/// As often as `TOPOLOGY_ROUNDS` says, for `make topologies`, or once.
fn rounds() -> usize {
    let rounds = std::env::var("TOPOLOGY_ROUNDS");
    let rounds = rounds.ok().map(|rounds| rounds.parse().expect("a number"));
    let rounds = rounds.unwrap_or(1);
    println!("{rounds} rounds (TOPOLOGY_ROUNDS)");
    rounds
}

/// The master is lost with everything replicated. New acquisitions, handing over to the other side, and holds.
async fn everything_replicated(version: Version, fault: Fault) {
    let stage = &version.own_stage(PACE).await;
    let sides = [&stage.java, &stage.rust];
    let (java, rust) = (
        holds(stage, &stage.java).await,
        holds(stage, &stage.rust).await,
    );
    let handed = handed_over(stage).await;
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
        "Redisson {version} beside ours: {fault:?}; a new master after {} ms, announced after {} ms",
        elected - struck,
        announced - struck
    );
    for (peer, outage) in sides.into_iter().zip([for_java, for_rust]) {
        println!("  {:4}: {outage}", peer.name());
    }
    if fault == Fault::Ordered {
        // What the old master is told until it follows is lost.
        stage.server.recover(fault).await;
    }
    let mut late = Vec::new();
    for Handed {
        holder,
        waiter,
        inside,
    } in handed
    {
        let told = now_ms();
        let unlocked = holder.ask("unlock", &[]).await;
        let came = timeout(AMPLE, inside).await;
        let came = came.map(|inside| format!("{} ms", inside.saturating_sub(told)));
        println!(
            "  {waiter} waits, {holder} unlocks ({}): inside after {came:?}",
            shown(&unlocked)
        );
        if waiter.peer.name() == "Rust" && came.is_err() {
            late.push(format!("{waiter} has not come in after {holder}"));
        }
    }
    assert!(late.is_empty(), "{late:?}");
    stage.server.recover(fault).await;
    judge(stage, &java, &rust, "after the failover").await;
    sleep(PACE.watchdog + Duration::from_secs(1)).await;
    judge(stage, &java, &rust, "a lease later").await;
}

/// The master is lost with holds that no replica has. Their owners do not hold any more: they are told, or not.
async fn nothing_replicated(version: Version) {
    let stage = &version.own_stage(PACE).await;
    println!("Redisson {version} beside ours: a master killed with what no replica has");
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
        println!("  {worker} takes one: {answer:?}");
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
        let (told, inside) = tokio::join!(told(hold), rival.lock());
        let told = told.map(|told| told.saturating_sub(struck));
        let inside = inside - struck;
        println!("  {hold} is told after {told:?} ms, {rival} inside after {inside} ms");
    }))
    .await;
}

/// When a holder of ours knows of its loss. A Java holder is told nothing.
async fn told(hold: &Worker<'_>) -> Option<u64> {
    if hold.peer.name() == "Java" {
        return None;
    }
    eventually("a holder is told of its loss", AMPLE, async || {
        is_lost(hold).await
    })
    .await;
    Some(now_ms())
}

async fn is_lost(hold: &Worker<'_>) -> bool {
    let lost = hold.ask("islost", &[]).await;
    lost.unwrap_or_else(|refused| panic!("{refused}"))[0] == "true"
}

/// What each side holds, one worker each.
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

/// A lock that one side holds and the other waits for, both ways.
async fn handed_over(stage: &Stage) -> Vec<Handed<'_>> {
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

/// Names for the acquisitions of each side, made while both can be asked for them.
async fn names(server: &Ground) -> [Vec<String>; 2] {
    let mut names = [Vec::new(), Vec::new()];
    for index in 0..2 * ATTEMPTS {
        names[index % 2].push(server.name("new").await);
    }
    names
}

/// How the acquisitions of one side went, in ms after the master was lost.
#[derive(Default)]
struct Outage {
    /// The first that was taken once there was a new master, whenever it was asked for.
    first: Option<u64>,
    /// The one that was asked for when the master was lost: taken, or refused, after so many ms.
    at_once: Option<(Result<(), String>, u64)>,
    begun: usize,
    refused: BTreeMap<String, u32>,
}

/// Begins acquisitions until one is taken and the first is answered.
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
                let (index, answer) = answered.expect("it is answered");
                let after = now_ms().saturating_sub(struck);
                match &answer {
                    // By order, the old master goes on for a while.
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

/// Counts the tasks that believe to hold, and those that do.
async fn judge(stage: &Stage, java: &[Worker<'_>], rust: &[Worker<'_>], when: &str) {
    let mut gone = 0;
    for hold in java {
        gone += u32::from(!is_there(stage, hold).await);
    }
    // A Java holder is told nothing: it believes until it asks.
    println!("  Java, {when}: of {HOLDS} holds {gone} are gone, and kept wrongly");
    let (mut gone, mut kept, mut dropped) = (0, 0, 0);
    for hold in rust {
        let there = is_there(stage, hold).await;
        let lost = is_lost(hold).await;
        gone += u32::from(!there);
        kept += u32::from(!there && !lost);
        dropped += u32::from(there && lost);
    }
    println!(
        "  Rust, {when}: of {HOLDS} holds {gone} are gone, {kept} kept wrongly, {dropped} dropped wrongly"
    );
    assert_eq!(
        (gone, kept, dropped),
        (0, 0, 0),
        "{when}: what was replicated goes on"
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
