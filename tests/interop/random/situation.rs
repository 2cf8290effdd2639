//! What is played, and what the four owners hold and await. Pure.

use super::synchronizers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Lock { queues: bool, reenters: bool },
    ReadWrite,
    Group,
    Semaphore,
    Expirable,
    Latch,
}

#[derive(Clone, Copy, Debug)]
pub struct Game {
    /// The KIND in both peers.
    pub kind: &'static str,
    pub family: Family,
    /// The watchdog's lease, in ms.
    pub watchdog: i64,
}

/// No schedule lasts until its first renewal.
pub const LONG: i64 = 6 * 3_600_000;
/// The renewals of this one are steps.
pub const SHORT: i64 = 15_000;

/// The games with a watchdog's lease.
pub fn games(watchdog: i64) -> impl Iterator<Item = Game> + Clone {
    let lock = |queues, reenters| Family::Lock { queues, reenters };
    let games = [
        ("reentrant", lock(false, true)),
        ("readwrite", Family::ReadWrite),
        ("fair", lock(true, true)),
        ("spin", lock(false, true)),
        ("fenced", lock(false, true)),
        ("nonreentrant", lock(false, false)),
        ("nonreentrantfair", lock(true, false)),
        ("multi", Family::Group),
        ("semaphore", Family::Semaphore),
        ("expirable", Family::Expirable),
        ("latch", Family::Latch),
    ];
    let number = if watchdog == SHORT { 2 } else { games.len() };
    let games = games.into_iter().take(number);
    games.map(move |(kind, family)| Game {
        kind,
        family,
        watchdog,
    })
}

pub const OWNERS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub owner: usize,
    pub words: Vec<String>,
}

impl Step {
    /// An action, such as `trylock 0 60000`, on a side of a read-write lock, a member of a group, or `""`.
    pub fn new(owner: usize, side: &str, action: &str) -> Self {
        let dot = if side.is_empty() { "" } else { "." };
        let action = format!("{side}{dot}{action}");
        let words = action.split_whitespace().map(str::to_owned).collect();
        Self { owner, words }
    }

    pub fn verb(&self) -> &str {
        let action = &self.words[0];
        action.split_once('.').map_or(action, |(_, verb)| verb)
    }

    pub fn side(&self) -> &str {
        self.words[0].split_once('.').map_or("", |(side, _)| side)
    }

    /// The number at an index of its words.
    pub fn number(&self, index: usize) -> Option<i64> {
        self.words.get(index)?.parse().ok()
    }

    /// The lease that an acquisition asks for; `None` for the watchdog's.
    pub fn lease(&self) -> Option<i64> {
        self.number(if self.verb() == "lock" { 1 } else { 2 })
    }

    pub fn acquires(&self) -> bool {
        ["lock", "trylock"].contains(&self.verb())
    }

    /// Whether the step waits for the end of a lease, or for a renewal, and asks nothing.
    pub fn only_waits(&self) -> bool {
        ["expired", "renewed"].contains(&self.verb())
    }
}

#[derive(Clone, Debug)]
pub struct Hold {
    pub side: String,
    pub lease: Option<i64>,
    pub token: Option<i64>,
}

/// What the owners hold and await, by the answers so far.
#[derive(Debug)]
pub struct Situation {
    pub game: Game,
    pub holds: [Vec<Hold>; 4],
    pub waiting: Vec<Step>,
    /// Steps that follow in any case.
    pub next: Vec<Step>,
    /// Whether an owner has had holds with and without a lease, or has acquired or released both sides, since its first hold.
    pub mixed: [bool; 4],
    /// Holds that were forced open, whose owners have not asked for their release since.
    pub forced: [Vec<Hold>; 4],
    /// Whether nothing further can be compared.
    pub is_over: bool,
    /// The numbers of acquired permits that were not released, and the number of all so far.
    pub permits: Vec<usize>,
    pub issued: usize,
    /// The steps so far, with their answers.
    pub told: String,
}

impl Situation {
    pub fn new(game: Game) -> Self {
        Self {
            game,
            holds: Default::default(),
            waiting: Vec::new(),
            next: synchronizers::set_up(game.family).into_iter().collect(),
            mixed: [false; 4],
            forced: Default::default(),
            is_over: false,
            permits: Vec::new(),
            issued: 0,
            told: String::new(),
        }
    }

    /// Whether renewals are steps.
    pub fn renews(&self) -> bool {
        self.game.watchdog == SHORT
    }

    pub fn waits(&self, owner: usize) -> bool {
        self.waiting.iter().any(|step| step.owner == owner)
    }

    pub fn count(&self, owner: usize, side: &str) -> usize {
        let holds = self.holds[owner].iter();
        holds.filter(|hold| hold.side == side).count()
    }

    /// Whether another owner has a hold of a side that begins so.
    pub fn others_hold(&self, owner: usize, side: &str) -> bool {
        let others = (0..4).filter(|&other| other != owner);
        let mut holds = others.flat_map(|other| &self.holds[other]);
        holds.any(|hold| hold.side.starts_with(side))
    }

    /// The longest lease of the owner's holds of a side after a release of the latest one.
    pub fn rest(&self, owner: usize, side: &str) -> Option<i64> {
        let holds = self.holds[owner].iter().filter(|hold| hold.side == side);
        let leases = holds.map(|hold| hold.lease.unwrap_or(self.game.watchdog));
        leases.rev().skip(1).max()
    }

    /// Takes the answers of a step into account: of its owner, and of owners that waited.
    pub fn note(&mut self, step: &Step, answers: &[(usize, String)]) {
        let (owner, words) = (OWNERS[step.owner], step.words.join(" "));
        self.told += &format!("\n  {owner} {words}: {answers:?}");
        match step.verb() {
            "expired" => self.holds[step.owner].clear(),
            "renewed" => {}
            _ => self.waiting.push(step.clone()),
        }
        // What waiting owners have got follows the step.
        let mut answers: Vec<_> = answers.iter().collect();
        answers.sort_by_key(|(owner, _)| *owner != step.owner);
        for (owner, answer) in answers {
            let asked = self.waiting.iter().position(|step| step.owner == *owner);
            let asked = self.waiting.remove(asked.expect("an owner has asked"));
            self.answered(&asked, answer);
        }
    }

    fn answered(&mut self, step: &Step, answer: &str) {
        let (answer, token) = answer.split_once(' ').unwrap_or((answer, ""));
        let (owner, side) = (step.owner, step.side());
        let holds = &mut self.holds[owner];
        match (step.verb(), answer) {
            ("lock" | "trylock", "true") => {
                let (lease, token) = (step.lease(), token.parse().ok());
                let differs = |hold: &Hold| hold.lease != lease || hold.side != side;
                let is_mixed = self.mixed[owner] || holds.iter().any(differs);
                self.mixed[owner] = !holds.is_empty() && is_mixed;
                let side = side.to_owned();
                holds.push(Hold { side, lease, token });
            }
            ("unlock", answer) => {
                self.forced[owner].retain(|hold| hold.side != side);
                let last = holds.iter().rposition(|hold| hold.side == side);
                // A release of the other side, too, ends Redisson's renewal.
                self.mixed[owner] |= !holds.is_empty() && last.is_none();
                // A group whose member was forced open may be held in part.
                self.is_over |= last.is_some() && answer != "ok";
                last.map(|last| holds.remove(last));
            }
            // A forced release of the write side takes the writer's read holds along.
            ("forceunlock", "true") if self.game.family != Family::Group => {
                for (holds, forced) in self.holds.iter_mut().zip(&mut self.forced) {
                    forced.append(holds);
                }
            }
            // It ends Redisson's renewals of all owners of the client.
            ("forceunlock", _) => self.mixed[owner / 2 * 2..][..2].fill(true),
            _ => synchronizers::answered(self, step, answer),
        }
    }
}
