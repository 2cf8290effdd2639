//! Random calls of scripts, and random changes of their keys by other programs.

use std::fmt::Write as _;

use bytes::Bytes;
use fastrand::Rng;
use model_server::{Operation, Value};

use super::sources::Script;

/// A step of a round.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// The milliseconds before it.
    pub(super) pause: i64,
    pub(super) action: Action,
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    Call(Call),
    /// Another program changes a key.
    Foreign {
        key: Bytes,
        change: Change,
    },
    /// A client subscribes or unsubscribes.
    Listen {
        channel: Bytes,
        on: bool,
    },
}

/// A call of a script.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Its place in the list of scripts.
    pub(super) script: usize,
    pub(super) operations: Vec<Operation>,
    /// Whether the server is out of memory.
    pub(super) is_full: bool,
}

/// What another program does to a key.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Delete,
    Persist,
    Text(&'static str),
    Field(&'static str, &'static str),
    Waiter(&'static str),
    Place(i64, &'static str),
}

const OWNERS: [&str; 5] = [
    "11111111-1111-4111-8111-111111111111:4611686018427387905",
    "22222222-2222-4222-8222-222222222222:4611686018427387909",
    "22222222-2222-4222-8222-222222222222:4611686018427387913",
    "22222222-2222-4222-8222-222222222222:4611686018427387917",
    // A Java thread.
    "33333333-3333-4333-8333-333333333333:42",
];
const FAMILIES: [&str; 7] = [
    "plain",
    "fair",
    "simple",
    "rw",
    "semaphore",
    "latch",
    "permit",
];
const IDS: [&str; 5] = [
    "0000000000000000",
    "1111111111111111",
    "2222222222222222",
    "00000000000000001111111111111111",
    "111111111111111122222222222222223333333333333333",
];

fn pick<'a>(random: &mut Rng, from: &[&'a str]) -> &'a str {
    from[random.usize(..from.len())]
}

/// The kinds of names on which a script is called.
pub(super) fn families(script: &str) -> &'static [&'static str] {
    match script.split('_').next().unwrap_or_default() {
        "fenced" | "election" => &["plain"],
        "reentrant" => &["plain", "fair"],
        "holders" => &["plain", "fair", "rw"],
        "fair" => &["fair"],
        "simple" => &["simple"],
        "read" | "write" => &["rw"],
        "semaphore" => &["semaphore"],
        "number" => &["semaphore", "latch", "permit"],
        "latch" => &["latch"],
        _ => &["permit"],
    }
}

/// Draws the steps of a round. Most calls are of the same owner and the same lock as the one before: otherwise few would go far.
pub(super) struct Draw<'a> {
    random: Rng,
    scripts: &'a [Script],
    owner: &'static str,
    family: &'static str,
    lock: u8,
    /// Whether no other program changes keys, and the server has memory.
    is_tidy: bool,
    /// The longest pauses between calls, as a number of [`PAUSES`].
    pauses: usize,
}

const PAUSES: [i64; 13] = [0, 0, 0, 0, 1, 10, 50, 200, 400, 600, 1000, 1700, 5000];

/// A key of a lock, or an argument, by its name in the script.
fn part(random: &mut Rng, name: &str, owner: &str, lock: &str) -> String {
    let choices: &[&str] = match name {
        "lock" | "semaphore" | "latch" | "number" => return lock.to_owned(),
        "queue" | "places" | "counter" | "intent" | "rest" | "ends" => {
            return format!("{lock}:{name}");
        }
        "channel" => return format!("channel:{lock}"),
        "base" => return [lock, ""][usize::from(random.u8(..8) == 0)].to_owned(),
        "owner" => return owner.to_owned(),
        "kept" => &["run_at_least:done"],
        "lease" => &["1000", "1000", "300", "30000", "30000", "3000", "50"],
        "holds" => &["0", "0", "0", "1", "1", "2"],
        "acquired" => &["1", "1", "1", "2", "2", "3"],
        "waited" => &["-1", "0", "0", "1", "700", "20000"],
        "place" => &["1500"],
        "timeout" => &["6000"],
        "length" => &["0", "200", "200"],
        "permits" => &["0", "1", "1", "2", "3"],
        "added" => &["0", "1", "1", "2", "3", "-2", "9007199254740990"],
        "value" => &["1", "2", "5"],
        "message" => &["5"],
        "ids" => &IDS,
        "id" => &IDS[..3],
        "lasts" => &["1000", "60000"],
        "mark" => &["42"],
        "token" => &["7"],
        "identity" => &["a name"],
        "" => &[""],
        _ => &["0", "1"],
    };
    pick(random, choices).to_owned()
}

impl<'a> Draw<'a> {
    pub(super) fn new(seed: u64, scripts: &'a [Script]) -> Self {
        let mut random = Rng::with_seed(seed);
        Self {
            is_tidy: random.bool(),
            pauses: random.usize(5..=PAUSES.len()),
            random,
            scripts,
            owner: OWNERS[0],
            family: FAMILIES[0],
            lock: 0,
        }
    }

    /// The name of a lock of one of these kinds, and seldom of another one.
    fn name(&mut self, families: &[&'static str]) -> String {
        let random = &mut self.random;
        if random.u8(..6) == 0 || !families.contains(&self.family) {
            self.family = pick(random, families);
            self.lock = random.u8(..2);
        }
        let family = match random.u8(..24) {
            0 if !self.is_tidy => pick(random, &FAMILIES),
            _ => self.family,
        };
        format!("{family}:{}", self.lock)
    }

    fn owner(&mut self) -> &'static str {
        if self.random.u8(..3) == 0 {
            self.owner = pick(&mut self.random, &OWNERS);
        }
        self.owner
    }

    fn operation(&mut self, script: &Script) -> Operation {
        let lock = self.name(families(script.model.name));
        let owner = self.owner();
        let random = &mut self.random;
        let part = |(at, name): (usize, &String)| match (&name[..], at < script.model.keys) {
            // A key and the number of an attempt have one name.
            ("attempt", true) => format!("{lock}:attempt:{}", random.u8(..2)).into(),
            ("attempt", false) => random.u8(1..6).to_string().into(),
            ("holds", _) if script.model.name.ends_with("acquire") => {
                part(random, "acquired", owner, &lock).into()
            }
            // Only a release takes any number.
            ("permits", _) if script.model.name == "semaphore_release" => {
                part(random, "added", owner, &lock).into()
            }
            (name, _) => part(random, name, owner, &lock).into(),
        };
        script.parts.iter().enumerate().map(part).collect()
    }

    /// The place of a script in the list. Acquisitions are frequent, and calls that undo much are seldom.
    fn script(&mut self) -> usize {
        let acquires = self.random.u8(..3) == 0;
        for _ in 0..10 {
            let script = self.random.usize(..self.scripts.len());
            let name = self.scripts[script].model.name;
            let is_good = match acquires {
                true => name.ends_with("acquire"),
                false => !name.contains("force") || self.random.u8(..4) == 0,
            };
            if is_good {
                return script;
            }
        }
        0
    }

    fn call(&mut self) -> Call {
        let script = self.script();
        let several = self.random.u8(..6) == 0;
        let operations = 0..if several { self.random.usize(2..5) } else { 1 };
        let operations = operations.map(|_| self.operation(&self.scripts[script]));
        Call {
            script,
            operations: operations.collect(),
            is_full: !self.is_tidy && self.random.u8(..8) == 0,
        }
    }

    /// Another program changes a key.
    fn foreign(&mut self) -> Action {
        let (lock, owner) = (self.name(&FAMILIES), self.owner());
        let random = &mut self.random;
        let number = pick(
            random,
            &[
                "5",
                "09",
                "text",
                "9007199254740000",
                "9223372036854775808",
                "-1",
                "0",
            ],
        );
        let count = pick(random, &["1", "2", "3", "-2", "1.5", "text"]);
        let mode = pick(random, &["read", "write", "odd"]);
        let score = super::EPOCH + random.i64(-1000..100_000);
        let further = ["queue", "places", "counter", "ends", "attempt:0"];
        let further = format!("{lock}:{}", pick(random, &further));
        let (key, change) = match random.u8(..11) {
            0 | 1 => (lock, Change::Delete),
            2 => (lock, Change::Persist),
            3 => (lock, Change::Text(number)),
            4 => (lock, Change::Field("mode", mode)),
            5 => (lock, Change::Field(owner, count)),
            6 => (format!("{lock}:queue"), Change::Waiter(owner)),
            7 => (format!("{lock}:places"), Change::Place(score, owner)),
            8 => (format!("{lock}:ends"), Change::Place(score, IDS[0])),
            9 => (further, Change::Text(number)),
            _ => (further, Change::Delete),
        };
        Action::Foreign {
            key: key.into(),
            change,
        }
    }

    pub(super) fn step(&mut self) -> Step {
        let pause = PAUSES[self.random.usize(..self.pauses)];
        let action = match self.random.u8(..48) {
            0 | 1 if !self.is_tidy => self.foreign(),
            2 => Action::Listen {
                channel: format!("channel:{}", self.name(&FAMILIES)).into(),
                on: self.random.bool(),
            },
            _ => Action::Call(self.call()),
        };
        Step { pause, action }
    }
}

impl Change {
    /// The commands that make the change.
    pub(super) fn commands(&self, key: &Bytes) -> Vec<(&'static str, Vec<Bytes>)> {
        let with = |words: &[&'static str]| {
            let words = words.iter().map(|word| Bytes::from_static(word.as_bytes()));
            std::iter::once(key.clone()).chain(words).collect()
        };
        match self {
            Self::Delete => vec![("DEL", with(&[]))],
            Self::Persist => vec![("PERSIST", with(&[]))],
            Self::Text(text) => vec![("SET", with(&[text]))],
            Self::Field(field, value) => vec![("HSET", with(&[field, value]))],
            Self::Waiter(owner) => vec![("RPUSH", with(&[owner]))],
            Self::Place(score, owner) => {
                let mut args: Vec<Bytes> = with(&[]);
                args.extend([
                    score.to_string().into(),
                    Bytes::from_static(owner.as_bytes()),
                ]);
                vec![("ZADD", args)]
            }
        }
    }

    /// The key's value and expiry afterwards.
    pub(super) fn value(
        &self,
        present: Option<(&Value, Option<i64>)>,
    ) -> Option<(Value, Option<i64>)> {
        let bytes = |text: &&'static str| Bytes::from_static(text.as_bytes());
        let ends = present.and_then(|(_, ends)| ends);
        let value = present.map(|(value, _)| value.clone());
        match self {
            Self::Delete => None,
            Self::Persist => value.map(|value| (value, None)),
            Self::Text(text) => Some((Value::Text(bytes(text)), None)),
            Self::Field(field, new) => {
                let mut value = value.unwrap_or(Value::Hash(Vec::new()));
                if let Value::Hash(fields) = &mut value {
                    match fields.iter_mut().find(|(name, _)| name == field) {
                        Some((_, old)) => *old = bytes(new),
                        None => fields.push((bytes(field), bytes(new))),
                    }
                }
                Some((value, ends))
            }
            Self::Waiter(owner) => {
                let mut value = value.unwrap_or(Value::List(Default::default()));
                if let Value::List(list) = &mut value {
                    list.push_back(bytes(owner));
                }
                Some((value, ends))
            }
            Self::Place(score, owner) => {
                let mut value = value.unwrap_or(Value::Sorted(Vec::new()));
                if let Value::Sorted(set) = &mut value {
                    set.retain(|(_, name)| name != owner);
                    set.push((*score as f64, bytes(owner)));
                    set.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
                }
                Some((value, ends))
            }
        }
    }
}

impl Step {
    /// The step as a line of a report.
    pub(super) fn shown(&self, scripts: &[Script]) -> String {
        let mut line = format!("after {} ms ", self.pause);
        let _ = match &self.action {
            Action::Call(call) => {
                let name = scripts[call.script].model.name;
                let full = if call.is_full { " without memory" } else { "" };
                write!(line, "{name}{full} {:?}", call.operations)
            }
            other => write!(line, "{other:?}"),
        };
        line
    }
}
