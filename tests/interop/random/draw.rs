//! The steps of a schedule: what four owners do next, drawn by chance from what they hold and await. Pure.
//!
//! Steps whose outcome two plays need not share are not drawn: a second waiter for a lock without a queue, for example, since either
//! may be served.

use fastrand::Rng;

use super::rest::MEMBERS;
use super::situation::{Family, Hold, Situation, Step};
use super::synchronizers;

/// How long a try waits in vain.
const IN_VAIN: i64 = 300;
/// How long a try may last that succeeds. A writer's intent keeps a reader out for 64 ms at most; a busy machine takes longer. After
/// a group's try of less time, Redisson would have given its members away, with the earlier holds.
const ENOUGH: i64 = 10_000;
/// Four holds of one owner show what three do.
const HOLDS: usize = 3;

impl Situation {
    pub fn draw(&mut self, rng: &mut Rng) -> Step {
        if !self.next.is_empty() {
            return self.next.remove(0);
        }
        if let Some(renewal) = self.renewal(rng) {
            return renewal;
        }
        let free: Vec<usize> = (0..4).filter(|&owner| !self.waits(owner)).collect();
        // Holders are drawn more often, so that they have several holds.
        let mut owners = free.clone();
        owners.retain(|&owner| rng.u8(..3) == 0 && !self.holds[owner].is_empty());
        let owner = *rng
            .choice(&owners)
            .unwrap_or(&free[rng.usize(..free.len())]);
        let side = ["read", "write"][rng.usize(..2)];
        match self.game.family {
            Family::Lock { .. } => self.of_lock(rng, owner, ""),
            Family::ReadWrite => self.of_lock(rng, owner, side),
            Family::Group => self.of_group(rng, owner),
            _ => synchronizers::draw(self, rng, owner),
        }
    }

    /// The next renewal, of an owner whose holds are all renewed. Half of those with one hold acquire a second one first: a watchdog
    /// has to go on then too.
    fn renewal(&mut self, rng: &mut Rng) -> Option<Step> {
        if !self.renews() || rng.u8(..3) > 0 {
            return None;
        }
        let is_renewed = |holds: &Vec<Hold>| holds.iter().all(|hold| hold.lease.is_none());
        let mut owners = (0..4).map(|owner| (owner, &self.holds[owner]));
        let (owner, holds) = owners.find(|(_, holds)| !holds.is_empty() && is_renewed(holds))?;
        let step = |action| Step::new(owner, &holds[0].side, action);
        if holds.len() > 1 || rng.bool() {
            return Some(step("renewed"));
        }
        let again = step("lock");
        self.next.push(step("renewed"));
        Some(again)
    }

    /// An acquisition without a limit, if the lock is not busy or the owner may wait, or a try.
    fn enter(&mut self, rng: &mut Rng, owner: usize, side: &str, busy: bool, waits: bool) -> Step {
        // A lease that ends between two renewals would make an outcome depend on the time.
        let leases = match self.renews() {
            true => ["600000", "", "", "", ""],
            false => ["10800000", "43200000", "64800000", "", ""],
        };
        let lease = leases[rng.usize(..5)];
        let limit = if busy { IN_VAIN } else { ENOUGH };
        let nothing_is_held = self.holds.iter().all(Vec::is_empty) && self.waiting.is_empty();
        let action = match rng.u8(..8) {
            // The end of a lease, with or without a waiter.
            0 if nothing_is_held && !self.renews() && self.game.family != Family::Group => {
                let rival = match side {
                    "" => "",
                    "read" => "write",
                    _ => ["read", "write"][rng.usize(..2)],
                };
                if rng.bool() {
                    let other = (owner + rng.usize(1..4)) % 4;
                    self.next.push(Step::new(other, rival, "lock"));
                }
                self.next.push(Step::new(owner, side, "expired"));
                // Long enough to be granted in time on a busy machine.
                "lock 2000".to_owned()
            }
            0..=3 if waits || !busy => format!("lock {lease}"),
            0..=4 => "trylock".to_owned(),
            5 => format!("trylock 0 {lease}"),
            _ => format!("trylock {limit} {lease}"),
        };
        Step::new(owner, side, &action)
    }

    fn of_lock(&mut self, rng: &mut Rng, owner: usize, mut side: &'static str) -> Step {
        let [reads, writes] = ["read", "write"].map(|side| self.count(owner, side));
        let mine = self.holds[owner].len();
        let (queues, reenters) = match self.game.family {
            Family::Lock { queues, reenters } => (queues, reenters),
            _ => (false, true),
        };
        let writer_waits = self.waiting.iter().any(|step| step.side() == "write");
        let is_held = self.others_hold(owner, if side == "read" { "write" } else { "" });
        let busy = is_held || mine > 0 && !reenters;
        let action = match rng.u8(..20) {
            0 => "forceunlock",
            1..=3 => ["islocked", "isheld", "holdcount"][rng.usize(..3)],
            4..=6 => "unlock",
            7..=12 if mine > 0 => {
                side = match (side, reads, writes) {
                    ("read", 0, _) => "write",
                    ("write", _, 0) => "read",
                    _ => side,
                };
                "unlock"
            }
            _ if self.count(owner, side) >= HOLDS => "islocked",
            // An upgrade: Redisson's owner waits for itself, so it only tries.
            _ if side == "write" && reads > 0 && writes == 0 => "trylock",
            // The intent of a writer of this crate keeps its client's new readers out for a moment.
            _ if side == "read" && writer_waits && mine == 0 && busy => "trylock 300",
            _ if side == "read" && writer_waits && mine == 0 => "trylock 10000",
            _ => {
                // Readers wait together, a writer alone.
                let joins = queues || side == "read" && !writer_waits;
                let may_wait = joins || self.waiting.is_empty();
                return self.enter(rng, owner, side, busy, may_wait);
            }
        };
        // Redisson's downgrade wakes no waiting reader (P-W10).
        let downgrades = action == "unlock" && side == "write" && writes == 1 && reads > 0;
        if downgrades && !self.waiting.is_empty() {
            side = "read";
        }
        Step::new(owner, side, action)
    }

    /// While a group waits, it holds members now and then, so other owners ask for none.
    fn of_group(&mut self, rng: &mut Rng, owner: usize) -> Step {
        let mine = self.holds[owner].len();
        let member = MEMBERS[rng.usize(..4)];
        let holder = (0..4).find(|&owner| !self.holds[owner].is_empty());
        let release = holder.map(|holder| Step::new(holder, "", "unlock"));
        if !self.waiting.is_empty() {
            return release.expect("a group waits for a holder");
        }
        match rng.u8(..16) {
            // Redisson reports the release of a free fair lock as a success. A group that is held in part keeps the next one out.
            0 if member != "fair" => {
                self.next.extend(release);
                Step::new(owner, member, "forceunlock")
            }
            1 | 2 => Step::new(owner, member, ["islocked", "holdcount"][rng.usize(..2)]),
            3..=8 if mine > 0 => Step::new(owner, "", "unlock"),
            _ if mine >= HOLDS => Step::new(owner, "", "unlock"),
            _ => {
                let busy = holder.is_some_and(|holder| holder != owner);
                self.enter(rng, owner, "", busy, true)
            }
        }
    }

    /// The next step towards the end, at which nothing is held and no owner waits.
    pub fn wind_up(&self) -> Option<Step> {
        let mut holds = self.holds.iter().enumerate();
        let last = holds.find_map(|(owner, holds)| Some((owner, &holds.last()?.side)));
        let release = last.map(|(owner, side)| Step::new(owner, side, "unlock"));
        release.or_else(|| synchronizers::wind_up(self))
    }
}
