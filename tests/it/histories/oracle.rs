//! Says whether a history could have happened with locks that keep their word. Pure: it sees only the log.
//!
//! Books are kept for each owner on each lock: which holds it has (`live`), and how many things it has begun and not
//! seen the end of (`pending`: dropped guards, dropped futures), which the server may still count. The rules that look at
//! several owners are in [`super::stays`].

use std::{collections::HashMap, time::Duration};

use redisson_lock::{LostReason, Released};

use super::{
    log::{Event, HoldId, Spot, Trouble, What},
    stays::{self, Forcing, Stay},
};

/// What is expected of one history.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Whether an owner may take the lock again.
    pub reentrant: bool,
    /// Whether it is had in the order of asking.
    pub fair: bool,
    /// Whether connections are disturbed: then an answer may stay out.
    pub disturbed: bool,
}

/// A rule that was broken, and the event that shows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    pub at: usize,
    pub rule: String,
}

/// A violation, as an error.
pub fn broken<T>(at: usize, rule: impl Into<String>) -> Result<T, Violation> {
    let rule = rule.into();
    Err(Violation { at, rule })
}

/// What a history consisted of: one in which nothing happened proves nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub entered: usize,
    pub nested: usize,
    pub refused: usize,
    pub abandoned: usize,
    pub lost: usize,
    pub unanswered: usize,
    /// Counts that were compared.
    pub counted: usize,
    /// Pairs of waiters whose order was compared.
    pub ordered: usize,
}

pub fn judge(events: &[Event], rules: Rules) -> Result<Tally, Violation> {
    let mut replay = Replay::new(rules);
    for (at, event) in events.iter().enumerate() {
        replay.take(at, event)?;
    }
    replay.certainties()?;
    stays::alone(&replay.stays, &replay.forcings)?;
    stays::rising(&replay.stays, &replay.forcings)?;
    if rules.fair {
        replay.tally.ordered = stays::in_order(events, &replay.stays)?;
    }
    Ok(replay.tally)
}

/// A hold that the owner counts as its own.
struct Live {
    hold: HoldId,
    lease: Duration,
    leaked: bool,
    ending: Option<usize>,
}

/// One owner on one lock.
#[derive(Default)]
struct Book {
    asked: Option<usize>,
    /// The wait has a limit.
    limited: bool,
    live: Vec<Live>,
    pending: u32,
    /// Before this, a loss has no excuse.
    safe_until: Duration,
    /// The lock was forced open: counts and losses prove nothing until all is released.
    forced: bool,
}

impl Book {
    /// Something that may end one of the holds begins: the server may be told a new expiry from here on.
    fn may_shorten(&mut self, at: Duration) {
        let rest = self.live.iter().filter(|live| live.ending.is_none());
        if let Some(lease) = rest.map(|live| live.lease).max() {
            self.safe_until = self.safe_until.min(at + validity(lease));
        }
    }

    fn valid(&mut self, at: Duration, until: Duration) {
        self.safe_until = until;
        if self.pending > 0 {
            self.may_shorten(at);
        }
    }

    fn remove(&mut self, hold: HoldId) -> Option<Live> {
        let at = self.live.iter().position(|live| live.hold == hold)?;
        Some(self.live.remove(at))
    }

    /// A hold is known to be lost: those without a guard that were there at the time are too.
    fn lose(&mut self, hold: HoldId) {
        self.remove(hold);
        self.forget_leaked();
    }

    fn forget_leaked(&mut self) {
        let before = self.live.len();
        self.live.retain(|live| !live.leaked);
        self.pending += (before - self.live.len()) as u32;
    }
}

/// What may be relied upon of a lease, at the least.
fn validity(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(3))
}

/// At that event the owner was told something that is right only if none of its holds was still good.
struct Certainty {
    at: usize,
    holds: Vec<HoldId>,
    /// At most so many of the holds were good.
    good: usize,
    rule: String,
}

struct Replay {
    rules: Rules,
    books: HashMap<Spot, Book>,
    stays: Vec<Stay>,
    index: HashMap<HoldId, usize>,
    forcings: Vec<Forcing>,
    certainties: Vec<Certainty>,
    counting: HashMap<Spot, usize>,
    tally: Tally,
}

impl Replay {
    fn new(rules: Rules) -> Self {
        Self {
            rules,
            books: HashMap::new(),
            stays: Vec::new(),
            index: HashMap::new(),
            forcings: Vec::new(),
            certainties: Vec::new(),
            counting: HashMap::new(),
            tally: Tally::default(),
        }
    }

    fn book(&mut self, spot: Spot) -> &mut Book {
        self.books.entry(spot).or_default()
    }

    fn take(&mut self, at: usize, event: &Event) -> Result<(), Violation> {
        let (spot, time) = (event.spot, event.at);
        match &event.what {
            What::Asks { limited } => self.asks(at, spot, time, *limited),
            What::Enters { .. } => return self.enters(at, event),
            What::Refused => {
                self.tally.refused += 1;
                let reentrant = self.rules.reentrant;
                self.book(spot).asked = None;
                if reentrant {
                    self.must_not_be_good(at, spot, 0, "its owner was refused");
                }
            }
            What::Failed(trouble) => {
                let limited = self.book(spot).limited;
                let book = self.book(spot);
                book.asked = None;
                book.pending += 1;
                return self.failed(at, trouble, limited);
            }
            What::Abandons => {
                self.tally.abandoned += 1;
                let book = self.book(spot);
                book.asked = None;
                book.pending += 1;
            }
            What::Valid { hold, until } => {
                self.prove(*hold, at);
                self.book(spot).valid(time, *until);
            }
            What::Lost { hold, reason } => {
                self.lost(at, spot, time, *reason)?;
                self.book(spot).lose(*hold);
            }
            What::Leaks { hold } => {
                let mut live = self.book(spot).live.iter_mut();
                if let Some(live) = live.find(|live| live.hold == *hold) {
                    live.leaked = true;
                }
            }
            What::Drops { hold } => {
                let book = self.book(spot);
                if book.remove(*hold).is_some() {
                    book.pending += 1;
                    book.may_shorten(time);
                }
            }
            What::Ends { hold } => {
                let book = self.book(spot);
                if let Some(live) = book.live.iter_mut().find(|live| live.hold == *hold) {
                    live.ending = Some(at);
                }
                book.may_shorten(time);
            }
            What::Ended { hold, how } => return self.ended(at, event, *hold, how.as_ref()),
            What::Counts => {
                self.counting.insert(spot, at);
            }
            What::Counted(counted) => return self.counted(at, spot, counted),
            What::Forces => self.forces(at, spot),
            What::Forced(forced) => {
                self.forced(at, spot, forced);
                if let Err(trouble) = forced {
                    return self.failed(at, trouble, false);
                }
            }
            What::Looks | What::Queue(_) | What::Weather(_) => {}
        }
        Ok(())
    }

    fn asks(&mut self, at: usize, spot: Spot, time: Duration, limited: bool) {
        let opened = self.is_forced(spot, at);
        let book = self.book(spot);
        (book.asked, book.limited) = (Some(at), limited);
        book.forced = opened || book.forced && !book.live.is_empty();
        // It may be granted unseen, and given back.
        book.may_shorten(time);
    }

    fn enters(&mut self, at: usize, event: &Event) -> Result<(), Violation> {
        let What::Enters {
            hold,
            lease,
            until,
            valid,
            token,
        } = event.what
        else {
            return Ok(());
        };
        let (spot, reentrant) = (event.spot, self.rules.reentrant);
        let forced = self.is_forced(spot, at);
        let Some(asked) = self.book(spot).asked.take() else {
            return broken(at, "a hold that nobody asked for");
        };
        if !reentrant {
            self.must_not_be_good(at, spot, 0, "its owner entered once more");
        }
        let book = self.book(spot);
        book.forced |= forced;
        if event.at >= book.safe_until && book.live.iter().all(|live| live.leaked) {
            // They had no guard to tell of their loss.
            book.forget_leaked();
        }
        let nested = !book.live.is_empty();
        book.live.push(Live {
            hold,
            lease,
            leaked: false,
            ending: None,
        });
        book.valid(event.at, until);
        self.tally.entered += 1;
        self.tally.nested += usize::from(nested);
        self.index.insert(hold, self.stays.len());
        self.stays.push(Stay {
            spot,
            asked,
            entered: at,
            proven: valid.then_some(at),
            token,
            nested,
        });
        Ok(())
    }

    fn ended(
        &mut self,
        at: usize,
        event: &Event,
        hold: HoldId,
        how: Option<&Result<Released, Trouble>>,
    ) -> Result<(), Violation> {
        let spot = event.spot;
        let book = self.book(spot);
        let Some(ended) = book.remove(hold) else {
            return broken(at, "the end of a hold that there was not");
        };
        let (sure, forced) = (book.live.len() as u32, book.forced);
        let most = sure + book.pending;
        match how {
            Some(Ok(released)) => {
                if let Some(began) = ended.ending {
                    self.prove(hold, began);
                }
                let left = match *released {
                    Released::Fully => 0,
                    Released::StillHeld { holds } => holds,
                };
                self.tally.counted += 1;
                if !forced && !(sure..=most).contains(&left) {
                    let rule = format!("{left} holds are left, of {sure} and {most} at most");
                    return broken(at, rule);
                }
                if *released == (Released::StillHeld { holds: 0 }) {
                    return broken(at, "still held, and not once");
                }
            }
            Some(Err(Trouble::Lost(reason))) => {
                self.lost(at, spot, event.at, *reason)?;
                self.book(spot).forget_leaked();
            }
            Some(Err(Trouble::NotHeld)) if ended.leaked => {
                self.lost(at, spot, event.at, LostReason::Expired)?;
                self.book(spot).forget_leaked();
            }
            Some(Err(trouble)) => {
                self.book(spot).pending += 1;
                return self.failed(at, trouble, false);
            }
            None => self.book(spot).pending += 1,
        }
        Ok(())
    }

    fn counted(
        &mut self,
        at: usize,
        spot: Spot,
        counted: &Result<u32, Trouble>,
    ) -> Result<(), Violation> {
        let began = self.counting.remove(&spot);
        let count = match counted {
            Ok(count) => *count as usize,
            Err(trouble) => return self.failed(at, trouble, false),
        };
        let book = self.book(spot);
        let live: Vec<_> = book.live.iter().map(|live| live.hold).collect();
        if count > live.len() {
            let rule = format!("its owner has {} holds, and counts {count}", live.len());
            return broken(at, rule);
        }
        self.tally.counted += 1;
        if let Some(began) = began.filter(|_| count == live.len()) {
            live.iter().for_each(|hold| self.prove(*hold, began));
        }
        let rule = format!("its owner counts {count}");
        self.must_not_be_good(at, spot, count, &rule);
        Ok(())
    }

    /// A loss, which the clock or a forced release must account for.
    fn lost(
        &mut self,
        at: usize,
        spot: Spot,
        time: Duration,
        reason: LostReason,
    ) -> Result<(), Violation> {
        self.tally.lost += 1;
        let forced = self.is_forced(spot, at);
        let book = self.book(spot);
        if time >= book.safe_until || forced || book.forced {
            return Ok(());
        }
        let rule = format!(
            "lost ({reason:?}), although it was good until {:?}",
            book.safe_until
        );
        broken(at, rule)
    }

    /// An error, which only a disturbed connection or too short a wait can account for.
    fn failed(&mut self, at: usize, trouble: &Trouble, limited: bool) -> Result<(), Violation> {
        match trouble {
            Trouble::Unavailable if limited || self.rules.disturbed => self.tally.unanswered += 1,
            trouble => return broken(at, format!("failed: {trouble:?}")),
        }
        Ok(())
    }

    fn forces(&mut self, at: usize, spot: Spot) {
        let names = spot.names;
        self.forcings.push(Forcing {
            spot,
            began: at,
            ended: None,
        });
        for (spot, book) in &mut self.books {
            book.forced |= spot.names & names != 0;
        }
    }

    fn forced(&mut self, at: usize, spot: Spot, forced: &Result<bool, Trouble>) {
        let mut latest = self.forcings.iter_mut().rev();
        let forcing = latest.find(|forcing| forcing.spot == spot);
        // One that was not answered may happen at any time.
        if let Some(forcing) = forcing.filter(|_| forced.is_ok()) {
            forcing.ended = Some(at);
        }
    }

    /// Whether the lock was forced open since it was last asked for.
    fn is_forced(&mut self, spot: Spot, at: usize) -> bool {
        let asked = self.book(spot).asked.unwrap_or(at);
        let mut forcings = self.forcings.iter();
        forcings.any(|forcing| forcing.touches(spot.names, asked))
    }

    /// The hold was good at that event.
    fn prove(&mut self, hold: HoldId, at: usize) {
        if let Some(stay) = self.index.get(&hold) {
            let stay = &mut self.stays[*stay];
            stay.proven = stay.proven.max(Some(at));
        }
    }

    /// What the owner has just been told is wrong if more than `good` of its holds turn out to have been good.
    fn must_not_be_good(&mut self, at: usize, spot: Spot, good: usize, rule: &str) {
        let book = self.book(spot);
        if book.forced {
            return;
        }
        let holds = book.live.iter().map(|live| live.hold).collect();
        self.certainties.push(Certainty {
            at,
            holds,
            good,
            rule: rule.to_owned(),
        });
    }

    fn certainties(&self) -> Result<(), Violation> {
        for certainty in &self.certainties {
            let proven = |hold: &&HoldId| {
                let stay = self.index.get(hold).map(|stay| &self.stays[*stay]);
                stay.is_some_and(|stay| stay.proven > Some(certainty.at))
            };
            let good = certainty.holds.iter().filter(proven).count();
            if good > certainty.good {
                let rule = format!("{} while it had {good} good holds", certainty.rule);
                return broken(certainty.at, rule);
            }
        }
        Ok(())
    }
}
