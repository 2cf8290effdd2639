//! What is compared with the server itself, at every step.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redisson_lock::{LostReason, Released};
use tokio::time::{Instant, sleep};

use crate::{
    played::{
        log::{Event, HoldId, Side, Spot, Trouble, What},
        profiles::{Profile, Weather},
        subjects::Subject,
    },
    world::World,
};

/// What a guard has to leave between its own end and the server's, at the least: clocks differ.
const CLOCKS_DIFFER: Duration = Duration::from_millis(2);
/// How often the locks are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a lock may be free while a task waits for it, where nothing is disturbed: some round trips, and the longest
/// yield of a client that has no neighbour any more.
const LONGEST_FREE: Duration = Duration::from_millis(150);
/// The same where waiters hear nothing, and ask after pauses that grow.
const LONGEST_FREE_SPINNING: Duration = Duration::from_secs(2);
/// The same where a client may have to hear first that it has missed something.
const LONGEST_FREE_DISTURBED: Duration = Duration::from_secs(8);

/// Compares the log with the server.
#[derive(Clone)]
pub struct Watch {
    server: World,
    names: Arc<Vec<String>>,
    subject: Subject,
    profile: Profile,
    /// Threads of Redisson's take the locks too.
    has_java: bool,
    /// Readers of one client share what one of them has.
    readers_share: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The longest lease that an owner has asked for since it released all that it had.
    longest: HashMap<Spot, Duration>,
    /// The holds that are renewed.
    watched: HashSet<HoldId>,
    /// Waits without a limit that go on.
    waits: HashMap<Spot, Duration>,
    /// The holds of an owner.
    counts: HashMap<Spot, Count>,
    /// Until then, a guard may rely on a lock that no server has any more: a bit for each name.
    lost: Vec<(u32, Duration)>,
}

/// The holds of an owner, by what it was told.
#[derive(Default)]
struct Count {
    holds: u64,
    /// The holds are good until then at least.
    good_until: Duration,
    /// The owner has begun something of whose end it has not heard, or a lease may have run out: the server may have more
    /// or fewer holds.
    is_unsure: bool,
}

impl Count {
    fn take(&mut self, event: &Event) {
        match &event.what {
            What::Enters { until, .. } => {
                self.may_be_over(event.at);
                self.holds += 1;
                self.good_until = *until;
            }
            What::Valid { until, .. } => self.good_until = *until,
            What::Ended {
                how: Some(Ok(Released::Fully)),
                ..
            } => *self = Self::default(),
            What::Ended {
                how: Some(Ok(Released::StillHeld { .. })),
                ..
            } => {
                self.may_be_over(event.at);
                self.holds = self.holds.saturating_sub(1);
                // A shorter lease may be in force from here on.
                self.good_until = event.at;
            }
            What::Abandons
            | What::Failed(_)
            | What::Drops { .. }
            | What::Lost { .. }
            | What::Ended { .. } => self.is_unsure = true,
            _ => {}
        }
    }

    fn may_be_over(&mut self, now: Duration) {
        self.is_unsure |= self.holds > 0 && self.good_until <= now;
    }
}

impl Watch {
    pub fn new(
        server: &World,
        names: &[String],
        subject: Subject,
        profile: Profile,
        has_java: bool,
        readers_share: bool,
    ) -> Self {
        Self {
            server: server.clone(),
            names: Arc::new(names.to_vec()),
            subject,
            profile,
            has_java,
            readers_share,
            state: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_single(&self) -> bool {
        !self.subject.group && self.subject.exact
    }

    fn name(&self, spot: Spot) -> &str {
        &self.names[spot.names.trailing_zeros() as usize]
    }

    /// Says which rule an event breaks, by what stands on the server.
    pub fn sees(&self, event: &Event) -> Option<String> {
        let spot = event.spot;
        let mut state = self.state();
        let count = state.counts.entry(spot).or_default();
        count.take(event);
        let holds = Some(count.holds).filter(|_| !count.is_unsure);
        match &event.what {
            What::Asks { limited, lease } => {
                let longest = state.longest.entry(spot).or_default();
                *longest = (*lease).max(*longest);
                if !limited {
                    state.waits.insert(spot, event.at);
                }
            }
            What::Enters { .. } | What::Refused | What::Failed(_) | What::Abandons => {
                state.waits.remove(&spot);
            }
            What::Ended {
                how: Some(Ok(Released::Fully)),
                ..
            } => {
                state.longest.remove(&spot);
            }
            What::Promoted | What::Splits | What::Joins => {
                // Releases are not waited for: a new master may have more holds than are left.
                let counts = state.counts.iter_mut();
                let touched = counts.filter(|(other, _)| other.names & spot.names != 0);
                touched.for_each(|(_, count)| count.is_unsure = true);
                if self.profile.weather == Weather::Losses {
                    // A holder hears of it when it reaches the new master, or when its lease is over.
                    let until = event.at + self.profile.watchdog_lease;
                    state.lost.push((spot.names, until));
                }
            }
            _ => {}
        }
        if let What::Enters { hold, lease, .. } = event.what
            && lease == self.profile.watchdog_lease
        {
            state.watched.insert(hold);
        }
        // What is forced open may be another hold's by now, of the same owner.
        if !self.is_single() || self.profile.forced {
            return None;
        }
        let is_calm = self.profile.disturbed.is_none();
        let mut lost = state.lost.iter();
        if lost.any(|(names, until)| names & spot.names != 0 && event.at < *until) {
            return None;
        }
        if let Some(rule) = holds.and_then(|holds| self.counts(event, holds)) {
            return Some(rule);
        }
        match event.what {
            What::Lost { hold, reason }
            | What::Ended {
                hold,
                how: Some(Err(Trouble::Lost(reason))),
            } if is_calm && state.watched.contains(&hold) && reason != LostReason::Closed => {
                Some("a hold was lost that is renewed, and nothing was disturbed".into())
            }
            What::Enters { valid: false, .. } => {
                Some("a hold was granted that was lost already".into())
            }
            What::Enters { until, .. } | What::Valid { until, .. } => {
                let longest = state.longest.get(&spot).copied();
                self.compare(event, until, longest)
            }
            _ => None,
        }
    }

    /// Compares the holds that an owner has just been told of with what the server counts.
    fn counts(&self, event: &Event, holds: u64) -> Option<String> {
        // A short lease may be over when the answer arrives.
        let may_be_over = match event.what {
            What::Enters { until, valid, .. } => !valid || until <= event.at,
            What::Ended {
                how: Some(Ok(Released::StillHeld { .. })),
                ..
            } => true,
            _ => return None,
        };
        let owner = match (event.spot.side, self.subject.sides.len()) {
            (Side::Alone, 2) => format!(":{}:write", event.spot.owner),
            _ => format!(":{}", event.spot.owner),
        };
        let counts = self.server.holders(self.name(event.spot));
        let its = counts.iter().find(|(name, _)| name.ends_with(&owner));
        // What passes from task to task of a client stays in the name of the one that took it from the server.
        let lent = || {
            counts
                .first()
                .filter(|_| counts.len() == 1 && self.subject.passes)
        };
        // Readers of a client read by the field of one of them, whose own holds are then not all that it counts.
        let shared = self.readers_share
            && event.spot.side == Side::Shared
            && counts.iter().any(|(name, _)| !name.ends_with(":write"));
        if shared {
            return None;
        }
        let counted = its.or_else(lent).map_or(0, |(_, count)| *count);
        // The value of a simple lock names its owner in another way.
        let is_good =
            self.subject.name == "simple" || counted == holds || may_be_over && counted == 0;
        (!is_good)
            .then(|| format!("the server counts {counted} holds, and their owner has {holds}"))
    }

    /// Compares a guard that is valid `until` then with what the server keeps.
    fn compare(&self, event: &Event, until: Duration, longest: Option<Duration>) -> Option<String> {
        let name = self.name(event.spot);
        let relied = until
            .checked_sub(event.at)
            .filter(|relied| !relied.is_zero())?;
        let kept = match self.profile.weather {
            Weather::Losses => self.server.longest_lease(name),
            _ => self.server.remaining_lease(name),
        };
        let Some(kept) = kept else {
            return Some(format!(
                "a guard is valid for {relied:?}, the server keeps no lock"
            ));
        };
        if kept == Duration::MAX {
            return Some("the server keeps a lock without an end".into());
        }
        // The server counts in whole milliseconds.
        if relied + CLOCKS_DIFFER > kept + Duration::from_millis(1) {
            return Some(format!(
                "a guard is valid for {relied:?}, the server's lease for {kept:?}"
            ));
        }
        // Readers share an expiry; after a disturbance, an earlier lease of the owner's may be there.
        let alone = self.subject.sides.len() == 1 && self.profile.disturbed.is_none();
        let kept = self.server.remaining_lease(name)?;
        longest
            .filter(|longest| alone && kept > *longest)
            .map(|longest| {
                format!("the server's lease is {kept:?}, and its owner asked for {longest:?}")
            })
    }

    /// Looks at the locks now and then; completes with the rule that is broken when one is free for too long while a task
    /// waits for it.
    pub async fn finds_a_free_lock_that_is_waited_for(&self) -> String {
        if !self.is_single() {
            return std::future::pending().await;
        }
        let longest = match self.profile.disturbed {
            None if self.subject.name == "spin" => LONGEST_FREE_SPINNING,
            // Its readers may leave a lease that ends much earlier than the one that waiters were told, without a message.
            None if self.has_java && self.subject.name == "read_write" => LONGEST_FREE_DISTURBED,
            None => LONGEST_FREE + 20 * (self.profile.delay + 2 * self.profile.lag),
            Some(_) => LONGEST_FREE_DISTURBED,
        };
        let start = Instant::now();
        let mut free_since: Vec<Option<Duration>> = vec![None; self.names.len()];
        loop {
            sleep(LOOK_EVERY).await;
            let now = start.elapsed();
            for (index, name) in self.names.iter().enumerate() {
                if self.server.remaining_lease(name).is_some() {
                    free_since[index] = None;
                    continue;
                }
                let since = *free_since[index].get_or_insert(now);
                let state = self.state();
                let mut waits = state.waits.iter();
                let waits = waits.find(|(spot, began)| {
                    spot.names == 1 << index && now.saturating_sub(since.max(**began)) > longest
                });
                if let Some((spot, _)) = waits {
                    return format!(
                        "the lock {index} was free for {longest:?}, and {} waited for it, at {now:?}",
                        spot.owner
                    );
                }
            }
        }
    }
}

/// Of two owners that ask for a fair lock one long after the other, the first enters first. Where nothing is disturbed.
pub fn first_comes_first(events: &[Event], apart: Duration) -> Result<(), String> {
    let mut asks: HashMap<Spot, Duration> = HashMap::new();
    let mut inside: HashMap<Spot, u32> = HashMap::new();
    let mut quitters: Vec<Spot> = Vec::new();
    for event in events {
        let spot = event.spot;
        match event.what {
            What::Asks { .. } => {
                asks.insert(spot, event.at);
            }
            What::Enters { .. } => {
                let asked = asks.remove(&spot);
                let nested = inside.get(&spot).is_some_and(|holds| *holds > 0);
                *inside.entry(spot).or_default() += 1;
                let (Some(asked), false) = (asked, nested || quitters.contains(&spot)) else {
                    continue;
                };
                let earlier = asks.iter().find(|(other, began)| {
                    other.names == spot.names && **began + apart < asked && other.side == spot.side
                });
                if let Some((other, began)) = earlier {
                    return Err(format!(
                        "{} asked at {asked:?} and entered before {}, who had asked at {began:?}",
                        spot.owner, other.owner
                    ));
                }
            }
            // What it has begun may keep its place, or hold the lock unseen.
            What::Abandons | What::Failed(_) | What::Refused => {
                asks.remove(&spot);
                quitters.push(spot);
            }
            What::Drops { .. }
            | What::Lost { .. }
            | What::Ended {
                how: None | Some(Err(_)),
                ..
            } => {
                quitters.push(spot);
            }
            What::Ended { .. } => {
                let holds = inside.entry(spot).or_default();
                *holds = holds.saturating_sub(1);
            }
            _ => {}
        }
    }
    Ok(())
}
