//! The rules about several owners: exclusion, rising tokens, and the order of a fair lock. Pure functions.

use std::time::Duration;

use super::{
    HashMap, HashSet,
    log::{Event, Side, Spot, What},
    verdict::{Violation, broken},
};

/// One hold, from the event of its request to the last event at which it was certainly good.
#[derive(Debug, Clone, Copy)]
pub struct Stay {
    pub spot: Spot,
    pub asked: usize,
    pub entered: usize,
    /// `None`: the hold had ended before its owner learned of it.
    pub proven: Option<usize>,
    pub token: Option<i64>,
    /// The owner had a hold already, or may have had one.
    pub nested: bool,
}

/// Why the server's state may differ from the results that owners received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The lock was forced open.
    Forced,
    /// A server with other data has become the master.
    Promoted,
    /// Two servers take commands.
    Split,
}

/// A change of a lock's state without its owners, at some time between two events.
#[derive(Debug, Clone, Copy)]
pub struct Forcing {
    pub cause: Cause,
    /// Whether the change may end holds, so that two owners may be inside.
    pub loses: bool,
    pub spot: Spot,
    pub began: usize,
    pub ended: Option<usize>,
    /// The time of the answer. A client with the lock may learn of it later, and hand the lock off meanwhile.
    pub answered: Option<Duration>,
}

impl Forcing {
    /// Whether the change may have ended a hold that was requested at `asked`.
    pub fn touches(&self, names: u32, asked: usize) -> bool {
        self.spot.names & names != 0 && self.ended.is_none_or(|ended| ended > asked)
    }
}

impl Stay {
    /// The last event at which the hold excludes other owners. A forced release ends the exclusion, although its holder learns of it
    /// later.
    fn excludes_until(&self, forcings: &[Forcing]) -> Option<usize> {
        let touching = forcings
            .iter()
            .filter(|forcing| forcing.loses && forcing.touches(self.spot.names, self.asked));
        // While two servers take commands, the replaced one may have granted it.
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

/// Checks exclusion: only readers are inside together.
pub fn alone(stays: &[Stay], forcings: &[Forcing]) -> Result<(), Violation> {
    let mut inside: Vec<(&Stay, usize)> = Vec::new();
    // `stays` is in the order of the grants.
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

/// Checks that tokens rise from tenure to tenure, and stay equal within one.
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
            // An owner that may still be inside keeps its token or gets a higher one: a new master may lack its release.
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

/// A wait of one owner for a lock.
struct Wait {
    spot: Spot,
    asked: usize,
    /// The event of the grant, if there is one.
    enters: Option<usize>,
    /// The first event that shows it in the queue.
    queued: Option<usize>,
    /// The lease is shorter than an answer may take, so a grant may expire and the wait begin again.
    may_wait_anew: bool,
}

/// Checks that grants follow the order of the queue, and that no later owner overtakes a queued one. Returns the number of compared
/// pairs.
///
/// Ignores an owner that once left without the lock, because its old place may still have been recorded. An owner with a lease
/// shorter than `slow_answer` may be overtaken.
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

/// Checks the end of `wait` with a grant.
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

/// Checks the queue, which had these owners in this order at some time between the events `looked` and `at`.
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
        format!("{second} is inside before {first}, which was ahead in the queue"),
    )
}
