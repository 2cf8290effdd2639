//! The rules about several owners: which may be inside together, whose token is higher, which comes first. Pure.

use std::time::Duration;

use super::{
    HashMap, HashSet,
    log::{Event, Side, Spot, What},
    verdict::{Violation, broken},
};

/// One hold, from the event at which it was asked for to the last one at which it was good for certain.
#[derive(Debug, Clone, Copy)]
pub struct Stay {
    pub spot: Spot,
    pub asked: usize,
    pub entered: usize,
    /// `None`: it was over when its owner heard of it.
    pub proven: Option<usize>,
    pub token: Option<i64>,
    /// Its owner was inside already, or may have been.
    pub nested: bool,
}

/// Why what a server keeps may be something else than what its owners were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It was forced open.
    Forced,
    /// Another server has taken over that had something else.
    Promoted,
    /// Two servers take commands.
    Split,
}

/// The lock is forced open some time between these events, or has another state for another cause.
#[derive(Debug, Clone, Copy)]
pub struct Forcing {
    pub cause: Cause,
    /// Whether two owners may be inside for that cause.
    pub loses: bool,
    pub spot: Spot,
    pub began: usize,
    pub ended: Option<usize>,
    /// When it was answered. A client that has the lock may hear of it later, and pass the lock on meanwhile.
    pub answered: Option<Duration>,
}

impl Forcing {
    /// Whether it may have ended what was asked for at `asked`.
    pub fn touches(&self, names: u32, asked: usize) -> bool {
        self.spot.names & names != 0 && self.ended.is_none_or(|ended| ended > asked)
    }
}

impl Stay {
    /// The last event at which it excludes other owners. A forced release ends that, though not at once what its holder
    /// knows.
    fn excludes_until(&self, forcings: &[Forcing]) -> Option<usize> {
        let touching = forcings
            .iter()
            .filter(|forcing| forcing.loses && forcing.touches(self.spot.names, self.asked));
        // Granted while two servers took commands, perhaps by the wrong one.
        let mut doubted = touching
            .clone()
            .filter(|forcing| forcing.cause == Cause::Split);
        if doubted.any(|forcing| forcing.began <= self.entered) {
            return None;
        }
        let touching = touching.filter(|forcing| forcing.cause != Cause::Split);
        let forced = touching.map(|forcing| forcing.began).min();
        let proven = self.proven?;
        let until = forced.map_or(proven, |forced| proven.min(forced));
        (until >= self.entered).then_some(until)
    }
}

fn compatible(one: &Spot, other: &Spot) -> bool {
    one.owner == other.owner
        || one.names & other.names == 0
        || (one.side, other.side) == (Side::Shared, Side::Shared)
}

/// Only readers are inside together.
pub fn alone(stays: &[Stay], forcings: &[Forcing]) -> Result<(), Violation> {
    let mut inside: Vec<(&Stay, usize)> = Vec::new();
    // They are in the order in which they were entered.
    for stay in stays {
        let Some(until) = stay.excludes_until(forcings) else {
            continue;
        };
        inside.retain(|(_, until)| *until > stay.entered);
        let mut others = inside.iter().map(|(other, _)| *other);
        if let Some(other) = others.find(|other| !compatible(&stay.spot, &other.spot)) {
            let rule = format!(
                "{} and {} were inside together",
                other.spot.owner, stay.spot.owner
            );
            return broken(stay.entered, rule);
        }
        inside.push((stay, until));
    }
    Ok(())
}

/// Tokens rise from tenure to tenure; an owner inside keeps its own.
pub fn rising(stays: &[Stay], forcings: &[Forcing]) -> Result<(), Violation> {
    let mut latest: HashMap<u32, (&Stay, i64)> = HashMap::default();
    for stay in stays {
        let until = stay.excludes_until(forcings);
        let (Some(token), Some(_)) = (stay.token, until) else {
            continue;
        };
        if let Some((before, high)) = latest.get(&stay.spot.names) {
            let same_time = before.spot == stay.spot && before.proven > Some(stay.entered);
            let mut changes = forcings.iter().filter(|forcing| {
                forcing.cause != Cause::Forced
                    && forcing.touches(stay.spot.names, before.asked)
                    && forcing.began < stay.entered
            });
            let has_changed = changes.clone().next().is_some();
            if changes.any(|change| change.loses && change.cause == Cause::Promoted) {
                latest.insert(stay.spot.names, (stay, token));
                continue;
            }
            if same_time && token != *high {
                let rule = format!("token {token} inside a hold with token {high}");
                return broken(stay.entered, rule);
            }
            // An owner that may have been inside keeps its token, or gets a higher one: a new master may not have its release.
            let falls = if before.spot == stay.spot && (stay.nested || has_changed) {
                token < *high
            } else {
                token <= *high
            };
            if falls {
                return broken(stay.entered, format!("token {token} after {high}"));
            }
        }
        latest.insert(stay.spot.names, (stay, token));
    }
    Ok(())
}

/// One owner's wait for a lock.
struct Wait {
    spot: Spot,
    asked: usize,
    /// When it gets in, if it does.
    enters: Option<usize>,
    /// When it was first seen in the queue.
    queued: Option<usize>,
    /// It may be granted the lock and wait anew, as its lease is shorter than an answer may take.
    may_wait_anew: bool,
}

/// The first that was seen in the queue is first inside, and none overtakes one that was seen there. Says how many pairs
/// were compared.
///
/// An owner that once left without the lock is not looked at any more: its old place may still have been seen. One with a lease
/// that is shorter than a `slow_answer` may be overtaken.
pub fn in_order(
    events: &[Event],
    stays: &[Stay],
    forcings: &[Forcing],
    slow_answer: Duration,
) -> Result<usize, Violation> {
    let waited = |stay: &&Stay| !stay.nested && stay.excludes_until(forcings).is_some();
    let entries = stays.iter().filter(waited);
    let enters: HashMap<_, _> = entries.map(|stay| (stay.asked, stay.entered)).collect();
    let mut waits: Vec<Wait> = Vec::new();
    let mut quitters = HashSet::default();
    let (mut looked, mut compared) = (0, 0);
    for (at, event) in events.iter().enumerate() {
        let spot = event.spot;
        match &event.what {
            What::Asks { lease, .. } => waits.push(Wait {
                spot,
                asked: at,
                enters: enters
                    .get(&at)
                    .filter(|_| !quitters.contains(&spot))
                    .copied(),
                queued: None,
                may_wait_anew: *lease < slow_answer,
            }),
            What::Enters { .. } => {
                if let Some(wait) = take(&mut waits, spot).filter(|wait| wait.enters.is_some()) {
                    overtakes_no_waiter(&wait, &waits)?;
                }
            }
            What::Refused | What::Failed(_) | What::Abandons => {
                quitters.insert(spot);
                take(&mut waits, spot);
            }
            What::Looks => looked = at,
            What::Queue(owners) => {
                compared += in_line(&mut waits, spot, owners, looked, at)?;
            }
            _ => {}
        }
    }
    Ok(compared)
}

fn take(waits: &mut Vec<Wait>, spot: Spot) -> Option<Wait> {
    let at = waits.iter().position(|wait| wait.spot == spot)?;
    Some(waits.swap_remove(at))
}

/// `wait` ends now, with the lock.
fn overtakes_no_waiter(wait: &Wait, others: &[Wait]) -> Result<(), Violation> {
    let mut before = others.iter().filter(|other| {
        other.spot.names == wait.spot.names
            && other.enters.is_some()
            && !other.may_wait_anew
            && other.queued.is_some_and(|queued| queued < wait.asked)
    });
    match before.next() {
        Some(other) => overtaken(other, wait),
        None => Ok(()),
    }
}

/// These owners were seen in the queue, in this order, some time between the events `looked` and `at`.
fn in_line(
    waits: &mut [Wait],
    spot: Spot,
    owners: &[u64],
    looked: usize,
    at: usize,
) -> Result<usize, Violation> {
    let mut ahead: Option<usize> = None;
    let mut compared = 0;
    for owner in owners {
        let there = |wait: &Wait| {
            wait.spot.owner == *owner && wait.spot.names == spot.names && wait.asked < looked
        };
        let Some(place) = waits.iter().position(there) else {
            continue;
        };
        waits[place].queued.get_or_insert(at);
        if waits[place].enters.is_none() {
            continue;
        }
        if let Some(ahead) = ahead {
            compared += 1;
            if waits[ahead].enters > waits[place].enters {
                return overtaken(&waits[ahead], &waits[place]);
            }
        }
        if !waits[place].may_wait_anew {
            ahead = Some(place);
        }
    }
    Ok(compared)
}

fn overtaken<T>(first: &Wait, second: &Wait) -> Result<T, Violation> {
    let at = second.enters.unwrap_or(second.asked);
    let (first, second) = (first.spot.owner, second.spot.owner);
    broken(
        at,
        format!("{second} is inside before {first}, who was ahead"),
    )
}
