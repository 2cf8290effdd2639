//! Compares each event of a simulated history with the server's state.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use histories::{
    HashMap, HashSet,
    log::{Event, HoldId, Side, Spot, Trouble, What},
    profiles::{FaultKinds, Profile},
    subjects::Subject,
};
use redisson_lock::{LostReason, Released};
use tokio::time::{Instant, sleep};

use crate::world::servers::World;

/// The least time from the end of a guard's validity to the end of the server's lease: clocks differ.
const CLOCKS_DIFFER: Duration = Duration::from_millis(2);
/// The pause between two checks for idle locks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a lock may be free while a task waits for it, without disturbances: some round trips, and the longest yield of a
/// client that waits alone.
const LONGEST_FREE: Duration = Duration::from_millis(150);
/// The same for a lock of which a release need not be published: its waiters ask every 200 ms.
const LONGEST_FREE_UNANNOUNCED: Duration = Duration::from_millis(350);
/// The same for waiters that poll after growing pauses.
const LONGEST_FREE_SPINNING: Duration = Duration::from_secs(2);
/// The same where a client must first notice that it has missed a message.
const LONGEST_FREE_DISTURBED: Duration = Duration::from_secs(8);

/// Compares the events of a log with the server.
#[derive(Clone)]
pub struct ServerRules {
    server: World,
    names: Arc<Vec<String>>,
    subject: Subject,
    profile: Profile,
    /// Threads of Redisson use the locks too.
    has_java: bool,
    /// Readers of one client share one hold on the server.
    readers_share: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The longest lease that an owner has asked for since its last full release.
    longest: HashMap<Spot, Duration>,
    /// The holds with the watchdog's lease.
    watched: HashSet<HoldId>,
    /// Present waits without a deadline, and when each began.
    waits: HashMap<Spot, Duration>,
    /// The holds of each owner.
    counts: HashMap<Spot, Count>,
    /// Names, a bit for each, whose locks a failover may have lost, and until when a guard may not know of it.
    lost: Vec<(u32, Duration)>,
}

/// The holds of an owner, according to the replies that it got.
#[derive(Default)]
struct Count {
    holds: u64,
    /// The server keeps the holds until then at least.
    good_until: Duration,
    /// The shortest lease that the owner has asked for since it entered.
    shortest: Duration,
    /// When the owner last began to release a hold.
    ending: Duration,
    /// Whether the server may have another count: an operation has no result yet, or a lease may have ended.
    is_unsure: bool,
}

impl Count {
    fn apply(&mut self, event: &Event) {
        match &event.what {
            What::Enters { until, lease, .. } => {
                self.may_be_over(event.at);
                if self.holds == 0 || *lease < self.shortest {
                    self.shortest = *lease;
                }
                self.holds += 1;
                self.good_until = *until;
            }
            What::Valid { until, .. } => self.good_until = *until,
            What::Ends { .. } => self.ending = event.at,
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
                // From now on a shorter lease may apply.
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

impl ServerRules {
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

    pub fn is_single(&self) -> bool {
        !self.subject.group && self.subject.exact
    }

    fn name(&self, spot: Spot) -> &str {
        &self.names[spot.names.trailing_zeros() as usize]
    }

    /// Returns the rule that an event breaks, if the server's state contradicts it.
    pub fn check(&self, event: &Event) -> Option<String> {
        let spot = event.spot;
        let mut state = self.state();
        let count = state.counts.entry(spot).or_default();
        count.apply(event);
        let holds = Some(count.holds).filter(|_| !count.is_unsure);
        // A short lease may have ended before the reply.
        let may_be_over = match event.what {
            What::Enters { until, valid, .. } => !valid || until <= event.at,
            _ => event.at >= count.ending + count.shortest,
        };
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
                // Releases do not wait for replicas: a new master may still have released holds.
                let counts = state.counts.iter_mut();
                let touched = counts.filter(|(other, _)| other.names & spot.names != 0);
                touched.for_each(|(_, count)| count.is_unsure = true);
                if self.profile.fault_kinds == FaultKinds::Losses {
                    // A holder learns of the loss when its client reaches the new master, or when its validity ends.
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
        // Not checked for groups. After a forced unlock, the field may belong to a later hold of the same owner.
        if !self.is_single() || self.profile.forced {
            return None;
        }
        let is_calm = self.profile.disturbed.is_none();
        let mut lost = state.lost.iter();
        if lost.any(|(names, until)| names & spot.names != 0 && event.at < *until) {
            return None;
        }
        if let Some(rule) = holds.and_then(|holds| self.check_count(event, holds, may_be_over)) {
            return Some(rule);
        }
        match event.what {
            What::Lost { hold, reason }
            | What::Ended {
                hold,
                how: Some(Err(Trouble::Lost(reason))),
            } if is_calm && state.watched.contains(&hold) && reason != LostReason::Closed => {
                Some("a renewed hold was lost without a disturbance".into())
            }
            What::Enters { valid: false, .. } => {
                Some("the guard of a new hold is lost already".into())
            }
            What::Enters { until, .. } | What::Valid { until, .. } => {
                let longest = state.longest.get(&spot).copied();
                self.check_validity(event, until, longest)
            }
            _ => None,
        }
    }

    /// Checks that the server has the owner's number of holds.
    fn check_count(&self, event: &Event, holds: u64, may_be_over: bool) -> Option<String> {
        if !matches!(
            event.what,
            What::Enters { .. }
                | What::Ended {
                    how: Some(Ok(Released::StillHeld { .. })),
                    ..
                }
        ) {
            return None;
        }
        let owner = match (event.spot.side, self.subject.sides.len()) {
            (Side::Alone, 2) => format!(":{}:write", event.spot.owner),
            _ => format!(":{}", event.spot.owner),
        };
        let counts = self.server.holders(self.name(event.spot));
        let its = counts.iter().find(|(name, _)| name.ends_with(&owner));
        // A lock that was handed off in memory stays in the field of the owner to which the server granted it.
        // After the lease, the lock may be another client's.
        let lent = || {
            counts
                .first()
                .filter(|_| counts.len() == 1 && self.subject.passes && !may_be_over)
        };
        // Readers that share a hold have one field, with one count.
        let shared = self.readers_share
            && event.spot.side == Side::Shared
            && counts.iter().any(|(name, _)| !name.ends_with(":write"));
        if shared {
            return None;
        }
        let counted = its.or_else(lent).map_or(0, |(_, count)| *count);
        // A simple lock has no hash: its value is not compared.
        let is_good =
            self.subject.name == "simple" || counted == holds || may_be_over && counted == 0;
        (!is_good).then(|| format!("the server has {counted} holds of an owner that has {holds}"))
    }

    /// Checks that the server's lease outlasts the validity of a guard, and is no longer than the longest requested lease.
    fn check_validity(
        &self,
        event: &Event,
        until: Duration,
        longest: Option<Duration>,
    ) -> Option<String> {
        let name = self.name(event.spot);
        let relied = until
            .checked_sub(event.at)
            .filter(|relied| !relied.is_zero())?;
        let kept = match self.profile.fault_kinds {
            FaultKinds::Losses => self.server.longest_lease(name),
            _ => self.server.remaining_lease(name),
        };
        let Some(kept) = kept else {
            return Some(format!(
                "a guard is valid for {relied:?}, and the server has no lock"
            ));
        };
        if kept == Duration::MAX {
            return Some("the server has a lock without an expiry".into());
        }
        // The server counts in whole milliseconds.
        if relied + CLOCKS_DIFFER > kept + Duration::from_millis(1) {
            return Some(format!(
                "a guard is valid for {relied:?}, the server's lease lasts for {kept:?}"
            ));
        }
        // Readers share one expiry. After a disturbance, an earlier lease of the owner may remain.
        let alone = self.subject.sides.len() == 1 && self.profile.disturbed.is_none();
        let kept = self.server.remaining_lease(name)?;
        longest
            .filter(|longest| alone && kept > *longest)
            .map(|longest| {
                format!("the server's lease is {kept:?}, and its owner asked for {longest:?}")
            })
    }

    /// Checks every 10 ms for a lock that is free for too long while a task waits for it. Completes with the broken rule.
    pub async fn detect_idle_lock(&self) -> String {
        if !self.is_single() {
            return std::future::pending().await;
        }
        // Redisson's readers may leave a much shorter lease without a message. Waiters expect the longer one, and Redisson's wait for
        // its end.
        let has_silent_cuts = self.has_java && self.subject.name == "read_write";
        let longest = match self.profile.disturbed {
            None if self.subject.name == "spin" => LONGEST_FREE_SPINNING,
            // Waiters of this crate poll.
            None if has_silent_cuts => LONGEST_FREE_DISTURBED,
            None if self.subject.name == "simple" && self.profile.forced => {
                LONGEST_FREE_UNANNOUNCED
            }
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
                    spot.names == 1 << index
                        && !(has_silent_cuts && spot.is_java())
                        && now.saturating_sub(since.max(**began)) > longest
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

/// Checks the order of grants of a fair lock, without disturbances: an owner whose attempt is `apart` earlier enters first.
pub fn check_grant_order(events: &[Event], apart: Duration) -> Result<(), String> {
    let mut asks: HashMap<Spot, Duration> = HashMap::default();
    let mut inside: HashMap<Spot, u32> = HashMap::default();
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
                        "{} asked at {asked:?} and entered before {}, which had asked at {began:?}",
                        spot.owner, other.owner
                    ));
                }
            }
            // A closing client gives back what it is granted, and its tasks hear of the close later. The event does not name the client.
            What::Closes => asks.clear(),
            // An abandoned attempt may keep its place, or hold the lock without an event.
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
