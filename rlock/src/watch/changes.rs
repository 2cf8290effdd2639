//! The changes between two looks at the locks, computed without I/O.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use crate::{
    entry::{Entry, Holder, Owner},
    ls::at_most,
};

/// A change of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub name: String,
    pub kind: String,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The lock was held before the first look.
    Held(By),
    /// The owner acquired the lock between two looks.
    Taken(By),
    /// The owner released the lock.
    Released(By),
    /// The hold ended when its lease was over, and no renewal was seen.
    Expired(By),
    /// The number of waiters changed to this.
    Waiting(u64),
}

/// The owner of a change, and the name of its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    owner: Owner,
    client: Option<String>,
}

impl By {
    fn new(holder: &Holder) -> Self {
        Self {
            owner: holder.owner.clone(),
            client: holder.client.clone(),
        }
    }
}

impl What {
    fn word(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Taken(_) => "taken",
            Self::Released(_) => "released",
            Self::Expired(_) => "expired",
            Self::Waiting(_) => "waiting",
        }
    }

    fn by(&self) -> Option<&By> {
        match self {
            Self::Held(by) | Self::Taken(by) | Self::Released(by) | Self::Expired(by) => Some(by),
            Self::Waiting(_) => None,
        }
    }
}

impl Change {
    /// Returns the change as a line of text; `at` is the time since 1970.
    pub fn line(&self, at: Duration) -> String {
        let seconds = at.as_secs();
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let about = match &self.what {
            What::Waiting(number) => number.to_string(),
            what => what.by().map_or(String::new(), |By { owner, client }| {
                let by = owner.shown_client(client.as_deref());
                let since = match what {
                    What::Held(_) => owner.held_at_most(),
                    _ => None,
                };
                let since = since.map(|age| format!("  {}", at_most(age)));
                format!("by {by} {}{}", owner.text, since.unwrap_or_default())
            }),
        };
        format!(
            "{hour:02}:{minute:02}:{second:02}Z  {:8}  {}  ({})  {about}",
            self.what.word(),
            self.name.escape_debug(),
            self.kind
        )
    }

    pub fn json(&self, at: Duration) -> Value {
        let by = self.what.by();
        let owner = by.map(|by| &by.owner);
        let waiting = match self.what {
            What::Waiting(number) => Some(number),
            _ => None,
        };
        json!({
            "at_ms": at.as_millis() as u64,
            "event": self.what.word(),
            "name": self.name,
            "kind": self.kind,
            "owner": owner.map(|owner| &owner.text),
            "language": owner.map(Owner::language),
            "held_at_most_ms": match &self.what {
                What::Held(by) => by.owner.held_at_most().map(|age| age.as_millis() as u64),
                _ => None,
            },
            "client": by.and_then(|by| by.client.as_deref()),
            "waiting": waiting,
        })
    }
}

/// Returns what the first look finds. It does not show when the holders acquired the locks.
pub fn found(locks: &[Entry]) -> Vec<Change> {
    let mut found = changes(&[], locks, Duration::ZERO);
    for change in &mut found {
        if let What::Taken(by) = &change.what {
            change.what = What::Held(by.clone());
        }
    }
    found
}

/// Returns the changes from `before` to `after`, which was seen `later` after it. Releases come before acquisitions.
pub fn changes(before: &[Entry], after: &[Entry], later: Duration) -> Vec<Change> {
    let by_name = |entries: &'_ [Entry]| -> BTreeMap<String, usize> {
        let names = entries.iter().enumerate();
        names
            .map(|(index, entry)| (entry.name.clone(), index))
            .collect()
    };
    let (old, new) = (by_name(before), by_name(after));
    let mut changes = Vec::new();
    for (name, index) in &old {
        let (was, is) = (&before[*index], new.get(name).map(|index| &after[*index]));
        let change = |what| Change {
            name: name.clone(),
            kind: was.kind.text(),
            what,
        };
        for holder in &was.holders {
            if is.is_some_and(|is| has(is, &holder.owner)) {
                continue;
            }
            let by = By::new(holder);
            changes.push(change(match holder.lease {
                Some(left) if left <= later => What::Expired(by),
                _ => What::Released(by),
            }));
        }
        if is.is_none() && was.waiting() > 0 {
            changes.push(change(What::Waiting(0)));
        }
    }
    for (name, index) in &new {
        let (is, was) = (&after[*index], old.get(name).map(|index| &before[*index]));
        let change = |what| Change {
            name: name.clone(),
            kind: is.kind.text(),
            what,
        };
        for holder in &is.holders {
            if !was.is_some_and(|was| has(was, &holder.owner)) {
                changes.push(change(What::Taken(By::new(holder))));
            }
        }
        if is.waiting() != was.map_or(0, Entry::waiting) {
            changes.push(change(What::Waiting(is.waiting())));
        }
    }
    changes
}

fn has(entry: &Entry, owner: &Owner) -> bool {
    entry.holders.iter().any(|holder| holder.owner == *owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Holder, Kind};

    fn owner(number: u64) -> Owner {
        let text = format!("0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:{number}");
        Owner::read(&text).unwrap()
    }

    fn held(name: &str, by: u64, lease: u64, listening: u64) -> Entry {
        let lease = Some(Duration::from_secs(lease));
        let holder = Holder {
            owner: owner(by),
            writes: false,
            count: 1,
            lease,
            client: None,
        };
        Entry {
            kind: Kind::Reentrant,
            lease,
            holders: vec![holder],
            listening,
            ..Entry::free(name.to_owned())
        }
    }

    fn by(number: u64) -> By {
        By {
            owner: owner(number),
            client: None,
        }
    }

    fn told(before: &[Entry], after: &[Entry]) -> Vec<What> {
        let changes = changes(before, after, Duration::from_secs(1));
        changes.into_iter().map(|change| change.what).collect()
    }

    #[test]
    fn holders_come_and_go() {
        let (first, second) = ([held("a", 1, 20, 1)], [held("a", 2, 30, 0)]);
        assert_eq!(told(&[], &first), [What::Taken(by(1)), What::Waiting(1)]);
        assert_eq!(told(&first, &first), []);
        assert_eq!(
            told(&first, &second),
            [What::Released(by(1)), What::Taken(by(2)), What::Waiting(0)]
        );
        assert_eq!(told(&first, &[]), [What::Released(by(1)), What::Waiting(0)]);
        // The lease was to end within the second that has passed.
        assert_eq!(told(&[held("a", 1, 1, 0)], &[]), [What::Expired(by(1))]);
        let other = [held("a", 1, 20, 1), held("b", 1, 20, 0)];
        assert_eq!(told(&first, &other), [What::Taken(by(1))]);
    }

    #[test]
    fn a_hold_from_before_the_first_look_was_not_taken_at_it() {
        let found: Vec<_> = found(&[held("a", 1, 20, 1)])
            .into_iter()
            .map(|change| change.what)
            .collect();
        assert_eq!(found, [What::Held(by(1)), What::Waiting(1)]);
    }

    #[test]
    fn a_line_has_the_time_and_the_owner() {
        let mut change = Change {
            name: "a".into(),
            kind: "reentrant".into(),
            what: What::Taken(by(47)),
        };
        assert_eq!(
            change.line(Duration::from_secs(86_400 + 3_661)),
            "01:01:01Z  taken     a  (reentrant)  by Java 0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47"
        );
        let client = Some("jobs-7".to_owned());
        change.what = What::Released(By {
            owner: owner(1 << 62),
            client,
        });
        let line = change.line(Duration::ZERO);
        let ends = "by Rust jobs-7 0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:4611686018427387904";
        assert!(line.ends_with(ends), "{line}");
    }
}
