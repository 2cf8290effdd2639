//! The permits that tasks of this client have.

use super::super::{keys::WaiterKey, records::Records, time::Time};

/// The permits of one task. Its guard or its waiter alone frees the record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GrantKey(u32);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GrantState {
    /// The task has not taken them yet.
    Given {
        to: WaiterKey,
        since: Time,
    },
    Guarded,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant {
    pub permits: u32,
    pub state: GrantState,
    /// Until then, the permits may pass to other tasks.
    pub window: Time,
}

/// Permits without a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spare {
    pub permits: u32,
    pub window: Time,
    /// The caller that waits for their release.
    pub for_waiter: Option<WaiterKey>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Grants {
    records: Records<Grant>,
}

impl Grants {
    pub fn add(&mut self, grant: Grant) -> GrantKey {
        GrantKey(self.records.add(grant))
    }

    pub fn remove(&mut self, key: GrantKey) -> Option<Grant> {
        self.records.remove(key.0)
    }

    pub fn get(&self, key: GrantKey) -> Option<&Grant> {
        self.records.get(key.0)
    }

    /// The task takes what it was given.
    pub fn take(&mut self, key: GrantKey) {
        if let Some(grant) = self.records.get_mut(key.0) {
            grant.state = GrantState::Guarded;
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (GrantKey, &Grant)> {
        let grants = self.records.all();
        grants.map(|(number, grant)| (GrantKey(number), grant))
    }

    /// The first permits that were given before their time to be taken ended.
    pub fn find_given(&self, is_over: impl Fn(Time) -> bool) -> Option<(GrantKey, WaiterKey)> {
        self.all().find_map(|(key, grant)| match grant.state {
            GrantState::Given { to, since } if is_over(since) => Some((key, to)),
            _ => None,
        })
    }

    /// Forgets which records were used.
    #[cfg(any(test, feature = "explorer"))]
    pub fn forget(&mut self) {
        self.records.forget();
    }

    #[cfg(any(test, feature = "explorer"))]
    pub fn rebase(&mut self, of_ends: impl Fn(Time) -> Time, of_begins: impl Fn(Time) -> Time) {
        for grant in self.records.all_mut() {
            grant.window = of_ends(grant.window);
            if let GrantState::Given { since, .. } = &mut grant.state {
                *since = of_begins(*since);
            }
        }
    }
}
