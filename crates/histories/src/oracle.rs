//! Checks whether the log of a history agrees with the promises of locks. Pure functions of the log.
//!
//! A `Book` checks the results of one owner. The rules about several owners are in `stays`.

use std::time::Duration;

use redisson_lock::{LostReason, Released};

use super::{
    HashMap,
    books::{Book, Live, validity},
    log::{Event, HoldId, Side, Spot, Trouble, What},
    stays::{self, Cause, Forcing, Stay},
    verdict::{Rules, Tally, Violation, broken},
};

pub fn judge(events: &[Event], rules: Rules) -> Result<Tally, Violation> {
    let mut replay = Replay::new(rules);
    for (at, event) in events.iter().enumerate() {
        replay.take(at, event)?;
    }
    replay.certainties()?;
    stays::alone(&replay.stays, &replay.forcings)?;
    stays::rising(&replay.stays, &replay.forcings)?;
    if rules.fair {
        let (stays, forcings) = (&replay.stays, &replay.forcings);
        replay.tally.ordered = stays::in_order(events, stays, forcings, rules.slow_answer)?;
    }
    Ok(replay.tally)
}

/// The read side of a write lock.
fn reads(spot: Spot) -> Spot {
    Spot {
        side: Side::Shared,
        ..spot
    }
}

/// A result at event `at` that is right only if at most `good` of these holds were still good. Later events may prove more.
struct Certainty {
    at: usize,
    holds: Vec<HoldId>,
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
    /// A client has been shut down.
    closed: bool,
    tally: Tally,
}

impl Replay {
    fn new(rules: Rules) -> Self {
        Self {
            rules,
            books: HashMap::default(),
            stays: Vec::new(),
            index: HashMap::default(),
            forcings: Vec::new(),
            certainties: Vec::new(),
            counting: HashMap::default(),
            closed: false,
            tally: Tally::default(),
        }
    }

    fn book(&mut self, spot: Spot) -> &mut Book {
        self.books.entry(spot).or_default()
    }

    fn take(&mut self, at: usize, event: &Event) -> Result<(), Violation> {
        let (spot, time) = (event.spot, event.at);
        self.end_forcings(at, time);
        self.tally.calls += usize::from(event.what.is_call());
        match &event.what {
            What::Asks { limited, lease } => {
                let book = self.book(spot);
                (book.limited, book.good_until) = (*limited, time + validity(*lease));
                self.asks(at, spot);
            }
            What::Enters { .. } => return self.enters(at, event),
            What::Refused => {
                self.tally.refused += 1;
                self.book(spot).asked = None;
                for side in [Side::Shared, Side::Alone] {
                    let spot = Spot { side, ..spot };
                    self.must_not_be_good(at, spot, 0, "its owner was refused");
                }
            }
            What::Failed(Trouble::AlreadyHeld | Trouble::WouldDeadlock) => {
                return self.turned_away(at, event);
            }
            What::Failed(trouble) => {
                let book = self.book(spot);
                let limited = book.limited;
                // A lease may end before the caller can use it.
                let too_late = time >= book.good_until || book.forced;
                book.asked = None;
                book.pending += 1;
                return match trouble {
                    Trouble::Lost(_) if too_late => Ok(()),
                    // A server without memory renews and releases all the same.
                    Trouble::NoMemory if self.rules.disturbed => {
                        self.tally.unanswered += 1;
                        Ok(())
                    }
                    trouble => self.failed(at, trouble, limited),
                };
            }
            What::Abandons => {
                self.tally.abandoned += 1;
                let book = self.book(spot);
                book.asked = None;
                book.pending += 1;
            }
            What::Valid { hold, until } => {
                self.prove(*hold, at);
                if self.book(spot).valid(*hold, *until) && self.rules.exact {
                    return broken(at, "a guard said before that it would last longer");
                }
            }
            What::Lost { hold, reason } => {
                let lost = self.book(spot).remove(*hold);
                self.lost(at, event, lost.as_ref(), *reason)?;
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
                }
            }
            What::Ends { hold } => {
                self.book(spot).ends(*hold, at, time);
            }
            What::Ended { hold, how } => return self.ended(at, event, *hold, how.as_ref()),
            What::Counts => {
                self.counting.insert(spot, at);
            }
            What::Counted(counted) => return self.counted(at, spot, counted),
            What::Forces => self.forces(at, spot, Cause::Forced),
            What::Forced(forced) => {
                self.forced(time, spot, forced);
                if let Err(trouble) = forced {
                    return self.failed(at, trouble, false);
                }
            }
            What::Closes => self.closed = true,
            What::Promoted => self.forces(at, spot, Cause::Promoted),
            What::Splits => self.forces(at, spot, Cause::Split),
            What::Joins => self.joins(at, spot),
            What::Looks | What::Queue(_) | What::Fault(_) => {}
        }
        Ok(())
    }

    fn asks(&mut self, at: usize, spot: Spot) {
        let opened = self.is_forced(spot, at);
        let book = self.book(spot);
        book.asked = Some(at);
        book.asked_inside = !book.live.is_empty();
        book.forced = opened || book.forced && !book.live.is_empty();
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
            return broken(at, "a hold without a request");
        };
        if !reentrant {
            self.must_not_be_good(at, spot, 0, "its owner entered once more");
        }
        let book = self.book(spot);
        // The server may have granted a re-entry into an outer hold that was lost after the request.
        let was_outside = book.live.is_empty() && !book.asked_inside;
        if spot.side == Side::Alone && was_outside {
            let reads = reads(spot);
            self.must_not_be_good(at, reads, 0, "its owner entered alone");
        }
        let book = self.book(spot);
        book.forced |= forced;
        book.doubt_leaked(event.at);
        let nested = !book.live.is_empty() || book.lingering;
        book.lingering = false;
        book.live.push(Live {
            hold,
            lease,
            leaked: false,
            doubtful: false,
            ending: None,
            safe_until: until,
        });
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

    /// An attempt is refused because its owner already has a hold.
    fn turned_away(&mut self, at: usize, event: &Event) -> Result<(), Violation> {
        let (spot, what) = (event.spot, &event.what);
        let reentrant = self.rules.reentrant;
        self.book(spot).asked = None;
        let in_the_way = match what {
            What::Failed(Trouble::WouldDeadlock) => spot.side == Side::Alone && reentrant,
            _ => !reentrant,
        };
        let hold = if reentrant { reads(spot) } else { spot };
        if in_the_way && !self.book(hold).live.is_empty() {
            return Ok(());
        }
        broken(at, format!("{what:?}, without a hold in the way"))
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
        let ((sure, most), forced) = (book.bounds(), book.forced);
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
                if self.rules.exact && !forced && !(sure..=most).contains(&left) {
                    let rule = format!("{left} holds are left, of {sure} and {most} at most");
                    return broken(at, rule);
                }
                if *released == (Released::StillHeld { holds: 0 }) {
                    return broken(at, "still held, and not once");
                }
            }
            Some(Err(Trouble::Lost(reason))) => {
                self.lost(at, event, Some(&ended), *reason)?;
            }
            Some(Err(Trouble::NotHeld)) if ended.leaked => {
                self.lost(at, event, Some(&ended), LostReason::Expired)?;
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
        // A hold granted to a dropped future counts until it is released.
        if count > live.len() + book.pending as usize {
            let rule = format!("its owner has {} holds, and counts {count}", live.len());
            return broken(at, rule);
        }
        let exact = book.pending == 0 && count == live.len();
        self.tally.counted += 1;
        if let Some(began) = began.filter(|_| exact) {
            live.iter().for_each(|hold| self.prove(*hold, began));
        }
        let rule = format!("its owner counts {count}");
        self.must_not_be_good(at, spot, count, &rule);
        Ok(())
    }

    /// A loss, which an expiry or a forced release must explain. Leaked holds are lost with it.
    fn lost(
        &mut self,
        at: usize,
        event: &Event,
        lost: Option<&Live>,
        reason: LostReason,
    ) -> Result<(), Violation> {
        self.tally.lost += 1;
        let (forced, exact) = (self.is_forced(event.spot, at), self.rules.exact);
        let closed = self.closed && reason == LostReason::Closed;
        let book = self.book(event.spot);
        book.forget_leaked();
        book.lingering = true;
        // Some members of a group may still be held.
        book.pending += u32::from(event.spot.names.count_ones() > 1);
        let Some(lost) = lost else {
            return broken(at, "the loss of a hold that there was not");
        };
        if event.at >= lost.safe_until || forced || book.forced || !exact || closed {
            return Ok(());
        }
        let until = lost.safe_until;
        broken(
            at,
            format!("lost ({reason:?}), although it was good until {until:?}"),
        )
    }

    /// An error, which only a disturbance, a shutdown or a time limit can explain.
    fn failed(&mut self, at: usize, trouble: &Trouble, limited: bool) -> Result<(), Violation> {
        match trouble {
            Trouble::Unavailable if limited || self.rules.disturbed => self.tally.unanswered += 1,
            Trouble::Closed | Trouble::Lost(LostReason::Closed) if self.closed => {
                self.tally.closed += 1;
            }
            Trouble::TooFewReplicas if self.rules.disturbed => self.tally.unanswered += 1,
            trouble => return broken(at, format!("failed: {trouble:?}")),
        }
        Ok(())
    }

    /// The replaced master executes no more commands, and its writes are lost.
    fn joins(&mut self, at: usize, spot: Spot) {
        let forcings = self.forcings.iter_mut();
        for forcing in forcings.filter(|forcing| forcing.cause == Cause::Split) {
            forcing.ended.get_or_insert(at);
        }
        self.doubt_books(spot);
    }

    fn doubt_books(&mut self, touched: Spot) {
        for (spot, book) in &mut self.books {
            book.forced |= spot.names & touched.names != 0;
        }
    }

    fn forces(&mut self, at: usize, spot: Spot, cause: Cause) {
        self.forcings.push(Forcing {
            cause,
            loses: cause == Cause::Forced || self.rules.failovers_lose,
            spot,
            began: at,
            ended: (cause == Cause::Promoted).then_some(at),
            answered: None,
        });
        self.doubt_books(spot);
    }

    fn forced(&mut self, time: Duration, spot: Spot, forced: &Result<bool, Trouble>) {
        let mut latest = self.forcings.iter_mut().rev();
        let forcing = latest.find(|forcing| forcing.spot == spot);
        // A forced release without an answer may still happen at any time.
        if let Some(forcing) = forcing.filter(|_| forced.is_ok()) {
            forcing.answered = Some(time);
        }
    }

    /// Ends the forced releases that every client knows by now.
    fn end_forcings(&mut self, at: usize, time: Duration) {
        let most = self.rules.forced_hand_off;
        let over = |answered: Duration| time > answered + most || most.is_zero();
        for forcing in &mut self.forcings {
            if forcing.ended.is_none() && forcing.answered.is_some_and(over) {
                forcing.ended = Some(at);
            }
        }
    }

    /// Whether the lock was forced open since the last request for it.
    fn is_forced(&mut self, spot: Spot, at: usize) -> bool {
        let asked = self.book(spot).asked.unwrap_or(at);
        let mut forcings = self.forcings.iter();
        forcings.any(|forcing| forcing.touches(spot.names, asked))
    }

    /// Records that the hold was good at this event.
    fn prove(&mut self, hold: HoldId, at: usize) {
        if let Some(stay) = self.index.get(&hold) {
            let stay = &mut self.stays[*stay];
            stay.proven = stay.proven.max(Some(at));
        }
    }

    /// Records a result that is wrong if more than `good` holds of the owner prove to have been good.
    fn must_not_be_good(&mut self, at: usize, spot: Spot, good: usize, rule: &str) {
        let exact = self.rules.exact;
        let book = self.book(spot);
        if book.forced || !exact {
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
