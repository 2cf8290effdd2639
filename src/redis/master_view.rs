//! Which of several answers about the master is right. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::endpoint::Address;
use crate::hash::{HashMap, HashSet};
/// How long no sentinel must have reported a failover before those are believed that have not heard of it: then sentinels
/// have been set up anew, and count from nothing.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// What one sentinel says of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// The same, by whichever address the sentinel was asked.
    pub(super) sentinel: String,
    pub(super) master: Option<Address>,
    /// Grows with each failover.
    pub(super) epoch: u64,
    /// How many sentinels there are, by this one's count.
    pub(super) sentinels: usize,
    /// How many replicas the master has, those that are down included.
    pub(super) replicas: usize,
    /// A failover is going on, or is about to.
    pub(super) unsettled: bool,
}

/// What one server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) address: Address,
    pub(super) is_master: bool,
    /// The history that its data is of: a master's own, or that of the master that it follows.
    pub(super) history: String,
    /// The one that it was of before it became a master.
    pub(super) before: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) reports: Vec<Report>,
    pub(super) roles: Vec<Role>,
}

/// Where the master is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MasterView {
    pub(super) master: Address,
    epoch: u64,
    /// When the nodes were asked that reported so last.
    asked: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    NoAnswer,
    NoMaster,
    /// Those that answer have not heard of the latest failover.
    Outdated,
    /// Neither was promoted after the other, nor is it followed by more of the nodes.
    TwoMasters(Address, Address),
}

impl Answers {
    fn heard(&self) -> usize {
        let ids: HashSet<_> = self.reports.iter().map(|report| &report.sentinel).collect();
        ids.len()
    }

    /// How many replicas there are, those that are down included; of servers that speak for themselves, `servers` make up
    /// the set-up.
    pub(super) fn replicas(&self, servers: usize) -> Option<usize> {
        let listed = self.reports.iter().map(|report| report.replicas).max();
        listed.or((!self.roles.is_empty()).then(|| servers.saturating_sub(1)))
    }

    /// More than half of the sentinels have answered.
    pub(super) fn majority(&self) -> bool {
        let all = self.reports.iter().map(|report| report.sentinels).max();
        all.is_some_and(|all| self.heard() > all / 2)
    }

    /// The answer may soon be another one.
    pub(super) fn unsettled(&self) -> bool {
        let disputed = |report: &Report| {
            report.unsettled
                || (&report.master, report.epoch) != {
                    let first = &self.reports[0];
                    (&first.master, first.epoch)
                }
        };
        let masters = self.roles.iter().filter(|role| role.is_master).count();
        self.reports.iter().any(disputed) || (self.reports.is_empty() && masters != 1)
    }

    /// Where the master is, by these answers to what was asked at `asked`, and by what was believed before.
    pub(super) fn elect(
        &self,
        asked: Instant,
        before: Option<&MasterView>,
    ) -> Result<MasterView, Undecided> {
        if self.reports.is_empty() && self.roles.is_empty() {
            return Err(Undecided::NoAnswer);
        }
        let (master, epoch) = if self.reports.is_empty() {
            (self.master_by_roles()?, 0)
        } else {
            self.master_by_reports(before)?
        };
        let outdated = |before: &MasterView| {
            epoch < before.epoch && !(self.majority() && asked >= before.asked + FORGOTTEN_AFTER)
        };
        if before.is_some_and(outdated) {
            return Err(Undecided::Outdated);
        }
        Ok(MasterView {
            master,
            epoch,
            asked,
        })
    }

    /// The latest failover counts; of reports that disagree about it, the most frequent.
    fn master_by_reports(&self, before: Option<&MasterView>) -> Result<(Address, u64), Undecided> {
        let known = self.reports.iter().filter(|report| report.master.is_some());
        let epoch = known.clone().map(|report| report.epoch).max();
        let epoch = epoch.ok_or(Undecided::NoMaster)?;
        let mut votes: HashMap<&Address, HashSet<&str>> = HashMap::default();
        for report in known.filter(|report| report.epoch == epoch) {
            let voters = votes.entry(report.master.as_ref().ok_or(Undecided::NoMaster)?);
            voters.or_default().insert(&report.sentinel);
        }
        let present = before.map(|before| &before.master);
        let best = votes
            .iter()
            .max_by_key(|(master, voters)| (voters.len(), Some(**master) == present, **master));
        let (master, _) = best.ok_or(Undecided::NoMaster)?;
        Ok(((*master).clone(), epoch))
    }

    /// A master that was promoted out of another's history comes after it: an old master that wakes up is not believed. Else
    /// the master that more of the nodes follow.
    fn master_by_roles(&self) -> Result<Address, Undecided> {
        let masters = || self.roles.iter().filter(|role| role.is_master);
        let replaced =
            |role: &&Role| masters().any(|later| later.before.as_ref() == Some(&role.history));
        let followers = |master: &Role| {
            let follows = |role: &&Role| !role.is_master && role.history == master.history;
            self.roles.iter().filter(follows).count()
        };
        let mut last: Vec<_> = masters().filter(|role| !replaced(role)).collect();
        last.sort_by_key(|master| std::cmp::Reverse(followers(master)));
        match *last {
            [] => Err(Undecided::NoMaster),
            [only] => Ok(only.address.clone()),
            [one, other, ..] if followers(one) > followers(other) => Ok(one.address.clone()),
            [one, other, ..] => Err(Undecided::TwoMasters(
                one.address.clone(),
                other.address.clone(),
            )),
        }
    }
}

#[cfg(test)]
#[path = "master_view_tests.rs"]
mod tests;
