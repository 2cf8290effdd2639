//! A multi-lock over many names of one server: how many calls it takes, and how long.

use std::collections::BTreeMap;

use redisson_lock::MultiGuard;
use testbed::Server;

use crate::{
    counters::{Counters, Monitor},
    options::Plan,
    peers::{Name, Peer},
    round::Failure,
    stats::Spread,
};

/// What it is called on the command line and in the lines about progress.
pub const NAME: &str = "multi-100";
const LOCKS: usize = 100;
/// In each round.
const TURNS: usize = 20;
/// Before the first round; the JVM's are more, because it compiles what it runs.
const WARM_UP_TURNS: usize = 10;
const JVM_WARM_UP_TURNS: usize = 200;

/// A multi-lock that is held: by whom.
pub enum Held {
    Ours(MultiGuard),
    Redisson,
}

/// Taking the locks, or releasing them.
pub struct Step {
    pub scripts: u64,
    pub micros: f64,
}

/// What one peer did.
pub struct Turns {
    pub peer: Name,
    pub take: Vec<Step>,
    pub release: Vec<Step>,
    /// What the client sent to take the locks and to release them, once, by `MONITOR`.
    pub sent: [BTreeMap<String, u64>; 2],
}

pub fn scripts(steps: &[Step]) -> Spread {
    Spread::of(steps.iter().map(|step| step.scripts as f64))
}

pub fn micros(steps: &[Step]) -> Spread {
    Spread::of(steps.iter().map(|step| step.micros))
}

/// All rounds. Each begins with another peer.
pub async fn measure(
    server: &Server,
    peers: &mut [Peer],
    plan: &Plan,
) -> Result<Vec<Turns>, Failure> {
    let names: Vec<String> = (0..LOCKS).map(|i| format!("bench:multi:{i}")).collect();
    let mut taking_part: Vec<&mut Peer> = peers.iter_mut().filter(|peer| peer.is_lock()).collect();
    let mut all = Vec::new();
    for peer in &mut taking_part {
        let warm_up = match peer.name() {
            Name::Redisson => JVM_WARM_UP_TURNS,
            _ => WARM_UP_TURNS,
        };
        for _ in 0..warm_up {
            let (held, _) = peer.take(&names).await?;
            peer.release(held).await?;
        }
        all.push(Turns {
            peer: peer.name(),
            take: Vec::new(),
            release: Vec::new(),
            sent: listen(server, peer, &names).await?,
        });
    }
    for number in 0..plan.rounds {
        for turn in 0..taking_part.len() {
            let at = (number + turn) % taking_part.len();
            for _ in 0..TURNS {
                take_turn(server, taking_part[at], &names, &mut all[at]).await?;
            }
            let (peer, p50) = (all[at].peer.text(), micros(&all[at].take).median);
            eprintln!("{NAME:>9} {peer:>9}: p50 to take {p50:.0} us");
        }
    }
    Ok(all)
}

async fn take_turn(
    server: &Server,
    peer: &mut Peer,
    names: &[String],
    turns: &mut Turns,
) -> Result<(), Failure> {
    let before = Counters::read(server).await;
    let (held, take) = peer.take(names).await?;
    let between = Counters::read(server).await;
    let release = peer.release(held).await?;
    let after = Counters::read(server).await;
    turns.take.push(Step {
        scripts: before.until(&between).scripts,
        micros: take,
    });
    turns.release.push(Step {
        scripts: between.until(&after).scripts,
        micros: release,
    });
    Ok(())
}

async fn listen(
    server: &Server,
    peer: &mut Peer,
    names: &[String],
) -> Result<[BTreeMap<String, u64>; 2], Failure> {
    let monitor = Monitor::open(server).await?;
    let (held, _) = peer.take(names).await?;
    let take = monitor.close(server).await?;
    let monitor = Monitor::open(server).await?;
    peer.release(held).await?;
    Ok([take, monitor.close(server).await?])
}
