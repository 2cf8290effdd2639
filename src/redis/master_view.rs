//! Decides which of several answers about the master is right. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::endpoint::Address;
use crate::hash::{HashMap, HashSet};
/// After this time without a report of the latest failover, the client believes sentinels that do not know it: they have
/// been set up anew and count epochs from zero.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// One sentinel's report of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// The sentinel's identity, the same for each of its addresses.
    pub(super) sentinel: String,
    pub(super) master: Option<Address>,
    /// Grows with each failover.
    pub(super) epoch: u64,
    /// The number of sentinels, by this one's count.
    pub(super) sentinels: usize,
    /// The number of the master's replicas, including replicas that are down.
    pub(super) replicas: usize,
    /// A failover is under way or imminent.
    pub(super) unsettled: bool,
}

/// One server's report of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) address: Address,
    pub(super) is_master: bool,
    /// The history of its data: a master's own, or that of the master that it follows.
    pub(super) history: String,
    /// The history before it became a master.
    pub(super) before: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) reports: Vec<Report>,
    pub(super) roles: Vec<Role>,
}

/// The master's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MasterView {
    pub(super) master: Address,
    epoch: u64,
    /// The time of the last request that was answered so.
    asked: Instant,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    NoAnswer,
    NoMaster,
    /// The answering nodes do not know the latest failover.
    Outdated,
    /// No master was promoted out of the other's history, and none is followed by more nodes.
    TwoMasters(Address, Address),
}

impl Answers {
    fn heard(&self) -> usize {
        let ids: HashSet<_> = self.reports.iter().map(|report| &report.sentinel).collect();
        ids.len()
    }

    /// The number of replicas, including replicas that are down. For servers that report themselves, `servers` is the size
    /// of the set-up.
    pub(super) fn replicas(&self, servers: usize) -> Option<usize> {
        let listed = self.reports.iter().map(|report| report.replicas).max();
        listed.or((!self.roles.is_empty()).then(|| servers.saturating_sub(1)))
    }

    /// Whether more than half of the sentinels have answered.
    pub(super) fn majority(&self) -> bool {
        let all = self.reports.iter().map(|report| report.sentinels).max();
        all.is_some_and(|all| self.heard() > all / 2)
    }

    /// Whether the answer may soon change.
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

    /// Decides on the master by the answers to the request at `asked` and by the earlier view.
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

    /// A master that was promoted out of another's history replaces it, so a resumed old master is not believed. Otherwise,
    /// the master with more followers counts.
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
