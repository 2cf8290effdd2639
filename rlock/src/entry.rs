//! The data at keys, recognised as locks or as foreign data.

use std::time::Duration;

use redisson_lock::probe::{Frame, since};
use serde_json::{Value, json};

use crate::{
    Failure,
    answers::{bytes, good, list, number, pairs, text},
    fleet::{Commands, Fleet},
};

/// The largest number of fields to read from a hash. A lock has one field per holder.
const MOST_FIELDS: &str = "1000";
/// The index of the last waiter of a queue that is listed by name.
const MOST_NAMED: &str = "99";
/// The largest number of markers to read for one reader.
const MOST_MARKERS: u64 = 16;

/// A key that is a lock, or has the name of one.
#[derive(Debug)]
pub struct Entry {
    pub name: String,
    pub kind: Kind,
    /// The rest of the lease. `None` without an expiry or without a holder.
    pub lease: Option<Duration>,
    pub holders: Vec<Holder>,
    /// The number of holders, including those that `holders` omits.
    pub holder_count: u64,
    /// The first owners in the queue of a fair lock.
    pub queue: Vec<Owner>,
    pub queue_length: u64,
    /// The number of clients that are subscribed to releases.
    pub listening: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Also a fair lock without waiters, a spin lock or a non-reentrant lock: their data are the same.
    Reentrant,
    Fair,
    Fenced,
    Read,
    Write,
    Simple,
    /// Foreign data of this Redis type.
    Foreign(String),
}

impl Kind {
    pub fn text(&self) -> String {
        match self {
            Self::Reentrant => "reentrant".into(),
            Self::Fair => "fair".into(),
            Self::Fenced => "fenced".into(),
            Self::Read => "read".into(),
            Self::Write => "write".into(),
            Self::Simple => "simple".into(),
            Self::Foreign(kind) => format!("not a lock ({kind})"),
        }
    }

    fn is_of_readers_and_writers(&self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// The owner of a lock that this crate keeps because its job is done (docs/protocol.md, section 6).
const KEPT: &str = "run_at_least:done";

/// An owner in the format of all clients, `<client id>:<number>`, or [`KEPT`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub text: String,
    /// Whether this crate made the owner: its numbers have a bit that no Java thread id has.
    pub is_rust: bool,
}

impl Owner {
    pub fn read(text: &str) -> Option<Self> {
        if text == KEPT {
            return Some(Self {
                text: text.to_owned(),
                is_rust: true,
            });
        }
        let (client, number) = text.split_once(':')?;
        let is_id = client.len() == 36
            && client.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = number.parse().ok()?;
        (is_id && is_number).then(|| Self {
            text: text.to_owned(),
            is_rust: number >= 1 << 62,
        })
    }

    /// The longest time for which it can have held a lock: since its client was made. Data of Java have no time.
    pub fn held_at_most(&self) -> Option<Duration> {
        since(&self.text).at_most()
    }

    /// The id of the client.
    pub fn client(&self) -> &str {
        self.text.split(':').next().unwrap_or_default()
    }

    pub fn language(&self) -> &'static str {
        match self.is_rust {
            true => "Rust",
            false => "Java",
        }
    }

    /// The language, and the name of the owner's client if it is known.
    pub fn shown_client(&self, name: Option<&str>) -> String {
        let language = self.language();
        match name {
            Some(name) => format!("{language} {}", name.escape_debug()),
            None => language.to_owned(),
        }
    }
}

#[derive(Debug)]
pub struct Holder {
    pub owner: Owner,
    pub writes: bool,
    pub count: u64,
    pub lease: Option<Duration>,
    /// The name of the client, if the server shows it.
    pub client: Option<String>,
}

impl Holder {
    /// The longest time for which it can have held the lock, if anything tells.
    pub fn held_at_most(&self) -> Option<Duration> {
        self.owner.held_at_most()
    }

    /// The language, and the client's name if it is known.
    pub fn by(&self) -> String {
        self.owner.shown_client(self.client.as_deref())
    }
}

/// The lock that the fields of a hash describe.
struct Fields {
    kind: Kind,
    holders: Vec<Holder>,
}

impl Fields {
    /// Parses the fields; `None` if they are not a lock.
    fn read(fields: &[(String, String)]) -> Option<Self> {
        let mut kind = Kind::Reentrant;
        let mut holders = Vec::new();
        for (name, value) in fields {
            match (&**name, &**value) {
                ("mode", "read") => kind = Kind::Read,
                ("mode", "write") => kind = Kind::Write,
                // An election is a fenced lock with this field.
                ("leader", _) => kind = Kind::Fenced,
                (name, value) => {
                    let (owner, writes) = match name.strip_suffix(":write") {
                        Some(owner) => (owner, true),
                        None => (name, false),
                    };
                    holders.push(Holder {
                        owner: Owner::read(owner)?,
                        writes,
                        count: value.parse().ok().filter(|count| *count > 0)?,
                        lease: None,
                        client: None,
                    });
                }
            }
        }
        let writes = holders.iter().any(|holder| holder.writes);
        let fits = !holders.is_empty() && (!writes || kind == Kind::Write);
        fits.then_some(Self { kind, holders })
    }
}

/// The key of `prefix` and `name`, in the hash slot of `name`.
pub fn prefixed(prefix: &str, name: &str) -> String {
    match name.contains('{') {
        true => format!("{prefix}:{name}"),
        false => format!("{prefix}:{{{name}}}"),
    }
}

fn suffixable(name: &str) -> String {
    match name.contains('{') {
        true => name.to_owned(),
        false => format!("{{{name}}}"),
    }
}

/// The prefix of the queues of fair locks.
pub const QUEUE: &str = "redisson_lock_queue";

/// The name of the lock whose queue is at `key`.
pub fn queued(key: &str) -> Option<&str> {
    let rest = key.strip_prefix(QUEUE)?.strip_prefix(':')?;
    let inside = rest
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    // A name that has braces is stored without additional ones.
    Some(inside.filter(|name| !name.contains('{')).unwrap_or(rest))
}

/// Whether a key is an auxiliary key of a lock of another name.
fn is_a_part(key: &str) -> bool {
    let prefixes = [
        "redisson_lock_queue:",
        "redisson_lock_timeout:",
        "redisson_lock_token:",
        "redisson_unlock_latch:",
    ];
    prefixes.iter().any(|prefix| key.starts_with(prefix))
        || key.contains(":rwlock_timeout:")
        || key.ends_with(":write_intent")
        || key.ends_with(":write_intent:rest")
}

fn lease(answer: &Frame) -> Option<Duration> {
    let left = number(answer).and_then(|left| u64::try_from(left).ok());
    left.map(Duration::from_millis)
}

/// Reads the data at `keys` of one master. Omits auxiliary keys of locks, and keys that expire meanwhile.
pub async fn read(
    fleet: &mut Fleet,
    master: usize,
    keys: Vec<Vec<u8>>,
) -> Result<Vec<Entry>, Failure> {
    let keys = keys
        .into_iter()
        .filter(|key| !is_a_part(&String::from_utf8_lossy(key)))
        .collect();
    let mut entries = at_keys(fleet, master, keys).await?;
    around(fleet, master, &mut entries).await?;
    Ok(entries)
}

async fn at_keys(
    fleet: &mut Fleet,
    master: usize,
    keys: Vec<Vec<u8>>,
) -> Result<Vec<Entry>, Failure> {
    let types = keys.iter().map(|key| ("TYPE", vec![key.clone()]));
    let types = fleet.ask_all(master, types.collect()).await?;
    let mut commands = Commands::new();
    let mut typed = Vec::new();
    for (key, kind) in keys.into_iter().zip(types) {
        let kind = text(&good(kind)?).unwrap_or_default();
        let word = |word: &str| word.as_bytes().to_vec();
        commands.push(("PTTL", vec![key.clone()]));
        match &*kind {
            "hash" => {
                commands.push((
                    "HSCAN",
                    vec![key.clone(), word("0"), word("COUNT"), word(MOST_FIELDS)],
                ));
                commands.push(("HLEN", vec![key.clone()]));
            }
            "string" => commands.push(("GETRANGE", vec![key.clone(), word("0"), word("99")])),
            // The key ended after it was listed.
            "none" => drop(commands.pop()),
            _ => {}
        }
        typed.push((key, kind));
    }
    let answers = fleet.ask_all(master, commands).await?;
    let mut answers = answers.into_iter();
    let mut next = || good(answers.next().unwrap_or(Frame::Null));
    let mut entries = Vec::new();
    for (key, kind) in typed.into_iter().filter(|(_, kind)| kind != "none") {
        let left = next()?;
        let mut holder_count = 0;
        let fields = match &*kind {
            "hash" => {
                let (page, length) = (next()?, next()?);
                let fields = list(&page).get(1).map(pairs).unwrap_or_default();
                let read = Fields::read(&fields);
                if let Some(read) = &read {
                    let others = fields.len() - read.holders.len();
                    let length = number(&length).and_then(|length| u64::try_from(length).ok());
                    holder_count = length.unwrap_or_default().saturating_sub(others as u64);
                }
                read
            }
            "string" => {
                let owner = text(&next()?).and_then(|value| Owner::read(&value));
                owner.map(|owner| Fields {
                    kind: Kind::Simple,
                    holders: vec![Holder {
                        owner,
                        writes: false,
                        count: 1,
                        lease: lease(&left),
                        client: None,
                    }],
                })
            }
            _ => None,
        };
        // -2: the key has ended meanwhile.
        if number(&left) == Some(-2) {
            continue;
        }
        let name = String::from_utf8(key);
        let (fields, name) = match name {
            Ok(name) => (fields, name),
            Err(error) => (None, String::from_utf8_lossy(error.as_bytes()).into_owned()),
        };
        let Fields { kind, holders } = fields.unwrap_or(Fields {
            kind: Kind::Foreign(kind),
            holders: Vec::new(),
        });
        entries.push(Entry {
            lease: lease(&left),
            holder_count: holder_count.max(holders.len() as u64),
            holders,
            name,
            kind,
            queue: Vec::new(),
            queue_length: 0,
            listening: 0,
        });
    }
    Ok(entries)
}

impl Entry {
    /// An entry without a holder: the lock is free, or its key has ended meanwhile.
    pub fn free(name: String) -> Self {
        Self {
            name,
            kind: Kind::Reentrant,
            lease: None,
            holders: Vec::new(),
            holder_count: 0,
            queue: Vec::new(),
            queue_length: 0,
            listening: 0,
        }
    }

    pub fn is_foreign(&self) -> bool {
        matches!(self.kind, Kind::Foreign(_))
    }

    /// The known number of waiters: the length of the queue, or without one the subscribed clients.
    pub fn waiting(&self) -> u64 {
        match self.queue_length {
            0 => self.listening,
            length => length,
        }
    }

    pub fn json(&self) -> Value {
        let millis = |lease: Option<Duration>| lease.map(|lease| lease.as_millis() as u64);
        let holders = self.holders.iter().map(|holder| {
            json!({
                "owner": holder.owner.text,
                "language": holder.owner.language(),
                "client": holder.client,
                "writes": holder.writes,
                "count": holder.count,
                "remaining_lease_ms": millis(holder.lease),
                "held_at_most_ms": millis(holder.held_at_most()),
            })
        });
        let queue = self.queue.iter().map(|owner| &owner.text);
        json!({
            "name": self.name,
            "kind": match &self.kind {
                Kind::Foreign(kind) => json!({ "foreign": kind }),
                kind => json!(kind.text()),
            },
            "remaining_lease_ms": millis(self.lease),
            "holders": holders.collect::<Vec<_>>(),
            "holder_count": self.holder_count,
            "queue": queue.collect::<Vec<_>>(),
            "queue_length": self.queue_length,
            "listening": self.listening,
        })
    }
}

/// Adds the data of auxiliary keys and channels: queues, counters, markers of readers, and subscribed clients.
pub async fn around(
    fleet: &mut Fleet,
    master: usize,
    entries: &mut [Entry],
) -> Result<(), Failure> {
    let mut commands = Commands::new();
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .collect::<Vec<_>>()
    };
    let listening = match fleet.is_cluster() {
        true => "SHARDNUMSUB",
        false => "NUMSUB",
    };
    for entry in entries.iter().filter(|entry| !entry.is_foreign()) {
        let name = &entry.name;
        let channel = match &entry.kind {
            Kind::Read | Kind::Write => "redisson_rwlock",
            Kind::Simple => "simple_lock__channel",
            _ => "redisson_lock__channel",
        };
        let channel = prefixed(channel, name);
        commands.push(("PUBSUB", words(&[listening, &channel])));
        if entry.kind.is_of_readers_and_writers() {
            for holder in entry.holders.iter().filter(|holder| !holder.writes) {
                for number in 1..=holder.count.min(MOST_MARKERS) {
                    let marker = format!(
                        "{}:{}:rwlock_timeout:{number}",
                        suffixable(name),
                        holder.owner.text
                    );
                    commands.push(("PTTL", words(&[&marker])));
                }
            }
        } else if entry.kind != Kind::Simple {
            let queue = prefixed(QUEUE, name);
            commands.push(("LLEN", words(&[&queue])));
            commands.push(("LRANGE", words(&[&queue, "0", MOST_NAMED])));
            commands.push(("EXISTS", words(&[&prefixed("redisson_lock_token", name)])));
        }
    }
    let answers = fleet.ask_all(master, commands).await?;
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or(Frame::Null);
    for entry in entries.iter_mut().filter(|entry| !entry.is_foreign()) {
        // The query fails on a server before 7.0, which has no shards, and for a user without the right.
        let count = list(&next()).get(1).and_then(number);
        entry.listening = count.unwrap_or_default().unsigned_abs();
        if entry.kind.is_of_readers_and_writers() {
            for holder in &mut entry.holders {
                holder.lease = match holder.writes {
                    true => entry.lease,
                    false => (1..=holder.count.min(MOST_MARKERS))
                        .filter_map(|_| lease(&next()))
                        .max(),
                };
            }
        } else if entry.kind != Kind::Simple {
            let (length, queue, counter) = (next(), next(), next());
            // The length is 0 if foreign data is at the key of the queue.
            entry.queue_length = number(&length).unwrap_or_default().unsigned_abs();
            let owners = list(&queue).iter().filter_map(bytes);
            entry.queue = owners
                .filter_map(|owner| Owner::read(&String::from_utf8_lossy(owner)))
                .collect();
            if entry.queue_length > 0 {
                entry.kind = Kind::Fair;
            } else if number(&counter) == Some(1) {
                entry.kind = Kind::Fenced;
            }
            for holder in &mut entry.holders {
                holder.lease = entry.lease;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d";

    #[test]
    fn owners_are_distinct_from_other_texts() {
        let read = |text: &str| Owner::read(text).map(|owner| owner.language());
        assert_eq!(read(&format!("{ID}:47")), Some("Java"));
        assert_eq!(read(&format!("{ID}:4611686018427387907")), Some("Rust"));
        assert_eq!(read("run_at_least:done"), Some("Rust"));
        for odd in [
            "",
            "a:1",
            ID,
            &format!("{ID}:"),
            &format!("{ID}:x"),
            &format!("{ID}:+1"),
            "run_at_least:x",
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }

    #[test]
    fn hashes_of_other_tools_are_no_locks() {
        let read = |fields: &[(&str, &str)]| {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| (name.replace("ID", ID), (*value).to_owned()))
                .collect();
            Fields::read(&fields).map(|fields| fields.kind)
        };
        assert_eq!(read(&[("ID:1", "2")]), Some(Kind::Reentrant));
        assert_eq!(read(&[("ID:1", "1"), ("leader", "x")]), Some(Kind::Fenced));
        assert_eq!(read(&[("mode", "read"), ("ID:1", "1")]), Some(Kind::Read));
        assert_eq!(
            read(&[("mode", "write"), ("ID:1:write", "1"), ("ID:1", "1")]),
            Some(Kind::Write)
        );
        for odd in [
            &[][..],
            &[("mode", "read")],
            &[("mode", "dark"), ("ID:1", "1")],
            &[("ID:1:write", "1")],
            &[("ID:1", "0")],
            &[("ID:1", "one")],
            &[("ID:1", "1"), ("name", "Ann")],
        ] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn queues_belong_to_locks() {
        assert_eq!(queued("redisson_lock_queue:{a}"), Some("a"));
        assert_eq!(queued("redisson_lock_queue:{a}:b"), Some("{a}:b"));
        assert_eq!(queued("redisson_lock_queue:x{a}"), Some("x{a}"));
        assert_eq!(queued("a"), None);
    }
}
