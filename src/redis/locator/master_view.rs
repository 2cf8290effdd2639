//! Decides which of several answers about the master is right. Pure.

use tokio::time::Instant;

use crate::{
    hash::{HashMap, HashSet},
    redis::{endpoint::Address, time_limits::FAILOVER_FORGOTTEN_AFTER},
};
/// The most replaced histories that are remembered.
const MOST_REPLACED: usize = 8;

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
    /// The identity of its process, the same for each of its addresses.
    pub(super) run_id: Option<String>,
    pub(super) is_master: bool,
    /// The number of its connected replicas.
    pub(super) connected: usize,
    /// The length of its history.
    pub(super) offset: u64,
    /// The history of its data: a master's own, or that of the master that it follows.
    pub(super) history: String,
    /// The history that its data continues: a promotion begins a new one. Replicas learn it from their master.
    pub(super) before: Option<String>,
}

impl Role {
    /// Whether both are reports of one server, which has two addresses. Without run ids, two masters at one point of one
    /// history are one server; its replicas share the history too.
    fn is_of_same_server(&self, other: &Role) -> bool {
        match (&self.run_id, &other.run_id) {
            (Some(id), Some(other)) => id == other,
            _ => {
                let point = |role: &Role| (role.history.clone(), role.offset);
                let has_history = self.history.contains(|digit| digit != '0');
                has_history && self.is_master && other.is_master && point(self) == point(other)
            }
        }
    }
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
    /// The time of the last request that was answered so. If the master is one that was replaced: the
    /// last request that its successor has answered.
    asked: Instant,
    /// The history of the master's data, if it reports one.
    history: Option<String>,
    /// The earlier histories that this one continues, the latest first.
    replaced: Vec<String>,
}

impl MasterView {
    fn is_forgotten(&self, asked: Instant) -> bool {
        asked >= self.asked + FAILOVER_FORGOTTEN_AFTER
    }

    /// A view of the master that reports `role`.
    fn of_role(role: &Role, asked: Instant, before: Option<&MasterView>) -> Self {
        let continues = |view: &&MasterView| {
            // A restart begins a new history too, which may not name the one before.
            let histories = [Some(&role.history), role.before.as_ref()];
            view.master == role.address || histories.contains(&view.history.as_ref())
        };
        let earlier = before.filter(continues).into_iter();
        let earlier = earlier.flat_map(|view| &view.replaced);
        let mut replaced: Vec<_> = role.before.iter().chain(earlier).cloned().collect();
        // The master has reported the same history before.
        replaced.dedup();
        replaced.truncate(MOST_REPLACED);
        Self {
            master: role.address.clone(),
            epoch: 0,
            asked,
            history: Some(role.history.clone()),
            replaced,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    NoAnswer,
    NoMaster,
    /// The answering nodes do not know the latest failover.
    Outdated,
    /// Neither master continues the other's history, and none is followed by more nodes.
    TwoMasters(Address, Address),
}

impl Answers {
    fn heard(&self) -> usize {
        let ids: HashSet<_> = self.reports.iter().map(|report| &report.sentinel).collect();
        ids.len()
    }

    /// The number of replicas, including replicas that are down. Servers that report themselves are counted in two ways: by
    /// the `addresses` of the configuration, and by the connections to `master`, since not all need to be configured.
    pub(super) fn replicas(&self, addresses: usize, master: Option<&Address>) -> Option<usize> {
        let listed = self.reports.iter().map(|report| report.replicas).max();
        let by_roles = || {
            let servers = self.servers(master);
            let master = servers.iter().find(|role| Some(&role.address) == master)?;
            let further_names = self.roles.len() - servers.len();
            let configured = addresses.saturating_sub(further_names + 1);
            Some(configured.max(master.connected))
        };
        listed.or_else(by_roles)
    }

    /// One report for each server: of a server with several addresses that at `preferred`, or else one as a master.
    fn servers(&self, preferred: Option<&Address>) -> Vec<&Role> {
        let mut roles: Vec<_> = self.roles.iter().collect();
        roles.sort_by_key(|role| (Some(&role.address) != preferred, !role.is_master));
        let mut servers: Vec<&Role> = Vec::new();
        for role in roles {
            if !servers.iter().any(|known| known.is_of_same_server(role)) {
                servers.push(role);
            }
        }
        servers
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
        let servers = self.servers(None);
        let masters = servers.iter().filter(|role| role.is_master).count();
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
        if self.reports.is_empty() {
            let (role, is_replaced) = self.master_by_roles(asked, before)?;
            // Otherwise, the client would wait for the successor anew after each election.
            let asked = before
                .filter(|_| is_replaced)
                .map_or(asked, |before| before.asked);
            return Ok(MasterView::of_role(role, asked, before));
        }
        let (master, epoch) = self.master_by_reports(before)?;
        let outdated = |before: &MasterView| {
            epoch < before.epoch && !(self.majority() && before.is_forgotten(asked))
        };
        if before.is_some_and(outdated) {
            return Err(Undecided::Outdated);
        }
        Ok(MasterView {
            master,
            epoch,
            asked,
            history: None,
            replaced: Vec::new(),
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

    /// A master whose history another server continues was replaced, so a resumed old master is not believed: for
    /// [`FAILOVER_FORGOTTEN_AFTER`], not even while its successor is silent. Otherwise, the master with more followers counts.
    /// Also returns whether the master is one that was replaced.
    fn master_by_roles(
        &self,
        asked: Instant,
        before: Option<&MasterView>,
    ) -> Result<(&Role, bool), Undecided> {
        let servers = self.servers(before.map(|before| &before.master));
        let masters = || servers.iter().copied().filter(|role| role.is_master);
        let is_replaced_by =
            |role: &Role, later: &Role| later.before.as_ref() == Some(&role.history);
        let is_replaced = |role: &&Role| {
            let is_remembered = |view: &MasterView| view.replaced.contains(&role.history);
            servers.iter().any(|later| is_replaced_by(role, later))
                || before.is_some_and(is_remembered)
        };
        let mut last: Vec<_> = masters().filter(|role| !is_replaced(role)).collect();
        let all_replaced = last.is_empty() && masters().next().is_some();
        if all_replaced {
            if !before.is_some_and(|before| before.is_forgotten(asked)) {
                return Err(Undecided::Outdated);
            }
            let has_successor = |role: &&Role| masters().any(|later| is_replaced_by(role, later));
            last.extend(masters().filter(|role| !has_successor(role)));
        }
        let followers = |master: &Role| {
            let follows = |role: &&&Role| !role.is_master && role.history == master.history;
            servers.iter().filter(follows).count()
        };
        last.sort_by_key(|master| std::cmp::Reverse(followers(master)));
        match *last {
            [] => Err(Undecided::NoMaster),
            [only] => Ok((only, all_replaced)),
            [one, other, ..] if followers(one) > followers(other) => Ok((one, all_replaced)),
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
