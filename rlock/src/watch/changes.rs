//! The changes between two looks at the locks, computed without I/O.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use crate::entry::{Entry, Owner};

/// A change of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub name: String,
    pub kind: String,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The owner acquired the lock.
    Taken(Owner),
    /// The owner released the lock.
    Released(Owner),
    /// The hold ended when its lease was over, and no renewal was seen.
    Expired(Owner),
    /// The number of waiters changed to this.
    Waiting(u64),
}

impl What {
    fn word(&self) -> &'static str {
        match self {
            Self::Taken(_) => "taken",
            Self::Released(_) => "released",
            Self::Expired(_) => "expired",
            Self::Waiting(_) => "waiting",
        }
    }

    fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Taken(owner) | Self::Released(owner) | Self::Expired(owner) => Some(owner),
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
            what => what.owner().map_or(String::new(), |owner| {
                format!("by {} {}", owner.language(), owner.text)
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
        let owner = self.what.owner();
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
            "waiting": waiting,
        })
    }
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
            let owner = holder.owner.clone();
            changes.push(change(match holder.lease {
                Some(left) if left <= later => What::Expired(owner),
                _ => What::Released(owner),
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
                changes.push(change(What::Taken(holder.owner.clone())));
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

    fn told(before: &[Entry], after: &[Entry]) -> Vec<What> {
        let changes = changes(before, after, Duration::from_secs(1));
        changes.into_iter().map(|change| change.what).collect()
    }

    #[test]
    fn holders_come_and_go() {
        let (first, second) = ([held("a", 1, 20, 1)], [held("a", 2, 30, 0)]);
        assert_eq!(told(&[], &first), [What::Taken(owner(1)), What::Waiting(1)]);
        assert_eq!(told(&first, &first), []);
        assert_eq!(
            told(&first, &second),
            [
                What::Released(owner(1)),
                What::Taken(owner(2)),
                What::Waiting(0)
            ]
        );
        assert_eq!(
            told(&first, &[]),
            [What::Released(owner(1)), What::Waiting(0)]
        );
        // The lease was to end within the second that has passed.
        assert_eq!(told(&[held("a", 1, 1, 0)], &[]), [What::Expired(owner(1))]);
        let other = [held("a", 1, 20, 1), held("b", 1, 20, 0)];
        assert_eq!(told(&first, &other), [What::Taken(owner(1))]);
    }

    #[test]
    fn a_line_has_the_time_and_the_owner() {
        let change = Change {
            name: "a".into(),
            kind: "reentrant".into(),
            what: What::Taken(owner(47)),
        };
        assert_eq!(
            change.line(Duration::from_secs(86_400 + 3_661)),
            "01:01:01Z  taken     a  (reentrant)  by Java 0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47"
        );
    }
}
