//! The client's unbroken possession of the lock under one field, and the holds that its tasks have of it.

use std::time::Duration;

use super::{
    facts::{Limits, Terms},
    keys::{HoldKey, Owner, WaiterKey},
    records::Records,
    time::Time,
};

/// A part of a tenure, which one task has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    pub state: HoldState,
    pub terms: Terms,
    /// Until when the server was told to keep the hold, whatever the client renews: a lease of its own, or an extension.
    pub until: Option<Time>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HoldState {
    /// The task has not taken it yet.
    Given {
        to: WaiterKey,
        since: Time,
    },
    Guarded,
    /// It has a guard, and is gone.
    Lost,
}

impl Hold {
    fn is_live(&self) -> bool {
        self.state != HoldState::Lost
    }

    fn is_guarded(&self) -> bool {
        self.state == HoldState::Guarded
    }

    pub fn is_watched(&self) -> bool {
        self.terms == Terms::Watched
    }

    /// The lease from now on when the expiry is set anew: the end of an inner hold starts the lease of an outer one again.
    fn lease_anew(&self, now: Time, limits: &Limits) -> Duration {
        let left = self.until.map_or(Duration::ZERO, |end| end.left(now));
        left.max(self.terms.lease(limits))
    }

    /// Whether the hold has the lease of a watched hold, and no longer one.
    pub fn may_pass(&self, now: Time, limits: &Limits) -> bool {
        self.is_watched() && self.lease_anew(now, limits) == limits.watched_lease
    }
}

/// All holds of a name that have a task.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Holds {
    records: Records<Hold>,
}

impl Holds {
    pub fn add(&mut self, hold: Hold) -> HoldKey {
        HoldKey(self.records.add(hold))
    }

    pub fn remove(&mut self, key: HoldKey) -> Option<Hold> {
        self.records.remove(key.0)
    }

    pub fn get(&self, key: HoldKey) -> Option<&Hold> {
        self.records.get(key.0)
    }

    /// The task takes a hold that it was given.
    pub fn take(&mut self, key: HoldKey) {
        if let Some(hold) = self.records.get_mut(key.0) {
            hold.state = HoldState::Guarded;
        }
    }

    pub fn live(&self) -> impl Iterator<Item = (HoldKey, &Hold)> {
        let live = self.records.all().filter(|(_, hold)| hold.is_live());
        live.map(|(number, hold)| (HoldKey(number), hold))
    }

    pub fn count(&self) -> u32 {
        self.live().count() as u32
    }

    /// Whether a guard has a hold that the client renews.
    pub fn is_watched(&self) -> bool {
        self.live()
            .any(|(_, hold)| hold.is_guarded() && hold.is_watched())
    }

    /// Whether a hold has a lease of its own, or was extended.
    pub fn has_lease(&self) -> bool {
        self.live().any(|(_, hold)| hold.until.is_some())
    }

    /// The lease of all holds when the expiry is set anew.
    pub fn lease_anew(&self, now: Time, limits: &Limits) -> Duration {
        let leases = self.live().map(|(_, hold)| hold.lease_anew(now, limits));
        leases.max().unwrap_or_default()
    }

    pub fn is_live(&self, key: HoldKey) -> bool {
        self.get(key).is_some_and(Hold::is_live)
    }

    /// The server keeps the hold until then.
    pub fn extend(&mut self, key: HoldKey, until: Time) {
        if let Some(hold) = self.records.get_mut(key.0) {
            hold.until = hold.until.max(Some(until));
        }
    }

    /// Marks the live holds as lost. Holds that were not taken have no task that would ask: returns their waiters, the earliest first.
    pub fn lose(&mut self) -> Vec<WaiterKey> {
        let mut given = Vec::new();
        while let Some((key, waiter)) = self.find_given(|_| true) {
            self.remove(key);
            given.push(waiter);
        }
        for hold in self.records.all_mut() {
            hold.state = HoldState::Lost;
        }
        given
    }

    /// The first hold that was given before its time to be taken ended.
    pub fn find_given(&self, is_over: impl Fn(Time) -> bool) -> Option<(HoldKey, WaiterKey)> {
        self.live().find_map(|(key, hold)| match hold.state {
            HoldState::Given { to, since } if is_over(since) => Some((key, to)),
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
        for hold in self.records.all_mut() {
            hold.until = hold.until.map(&of_ends);
            if let HoldState::Given { since, .. } = &mut hold.state {
                *since = of_begins(*since);
            }
        }
    }
}

/// Whether a tenure may pass from task to task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Window {
    Open {
        until: Time,
    },
    Closed,
    /// The server may have lost the tenure: nothing but its confirmation opens the way.
    Verifying,
}

/// The live possession of the lock. All live holds are its parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tenure {
    /// The owner whose field the server counts.
    pub field: Owner,
    /// The owner whose tasks have the holds: another one after a hand-off.
    pub holder: Owner,
    pub valid_until: Time,
    /// The allowance for drift within the validity.
    pub allowance: Duration,
    /// The next time to ask the server, for a renewal or a verification.
    pub ask_at: Time,
    pub window: Window,
}

impl Tenure {
    /// Asks the server at once whether the tenure is still there. Until then it passes to no other task.
    pub fn verify(&mut self, now: Time) {
        self.window = Window::Verifying;
        self.ask_at = now;
    }

    /// Records a lease that the server was told at `sent`.
    pub fn prolong(&mut self, sent: Time, lease: Duration, limits: &Limits) {
        self.valid_until = self.valid_until.max(limits.validity(sent, lease));
        self.allowance = self.allowance.max(limits.drift(lease));
        if lease >= limits.watched_lease && self.window != Window::Verifying {
            self.ask_at = self.ask_at.max(sent + limits.watched_lease / 3);
        }
    }
}
