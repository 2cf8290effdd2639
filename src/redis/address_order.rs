//! The addresses of one server, in the order in which to try them.

use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::endpoint::Address;

/// The most addresses of one name that are tried, and the most failures that are remembered.
const MOST: usize = 16;

/// A host that leads to the server, and one address that its name has.
pub(super) type HostAddress = (Address, SocketAddr);

/// The addresses of one server. The one that worked last comes first, and those that failed last come last.
#[derive(Default)]
pub(super) struct AddressOrder(Mutex<Order>);

/// A node of a cluster that announces several hosts.
struct NodeHosts {
    id: String,
    /// The hosts after the preferred one.
    others: Vec<Address>,
}

#[derive(Default)]
struct Order {
    node: Option<NodeHosts>,
    worked: Option<HostAddress>,
    /// The earliest failure comes first.
    failed: Vec<HostAddress>,
}

impl Order {
    /// The rank of the address that `is` recognizes; the lowest one is tried first.
    fn rank(&self, is: impl Fn(&HostAddress) -> bool) -> usize {
        match self.failed.iter().rposition(&is) {
            _ if self.worked.as_ref().is_some_and(&is) => 0,
            None => 1,
            Some(failure) => 2 + failure,
        }
    }
}

impl AddressOrder {
    fn lock(&self) -> MutexGuard<'_, Order> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the server is the node `id` of a cluster, and the other hosts that should lead to it.
    pub(super) fn set_node(&self, id: String, others: Vec<Address>) {
        self.lock().node = Some(NodeHosts { id, others });
    }

    /// The id of the node that must answer, if the server is a node of a cluster with several hosts.
    pub(super) fn node_id(&self) -> Option<String> {
        self.lock().node.as_ref().map(|node| node.id.clone())
    }

    /// The hosts that lead to the server, `named` among them.
    pub(super) fn hosts(&self, named: &Address) -> Vec<Address> {
        let order = self.lock();
        let others = order.node.iter().flat_map(|node| &node.others);
        let others = others.filter(|other| *other != named);
        let mut hosts: Vec<_> = std::iter::once(named).chain(others).cloned().collect();
        hosts.sort_by_key(|host| order.rank(|(known, _)| known == host));
        hosts
    }

    /// Puts the addresses of a name in order, without those beyond the limit.
    pub(super) fn sort(&self, found: &mut Vec<SocketAddr>) {
        let order = self.lock();
        found.sort_by_key(|at| order.rank(|(_, known)| known == at));
        found.dedup();
        found.truncate(MOST);
    }

    /// The server has accepted a connection there.
    pub(super) fn worked(&self, address: HostAddress) {
        let mut order = self.lock();
        order.failed.retain(|failed| *failed != address);
        order.worked = Some(address);
    }

    /// Another server than the wanted one answers where a connection worked last.
    pub(super) fn leads_astray(&self) {
        let worked = self.lock().worked.clone();
        if let Some(address) = worked {
            self.failed(address);
        }
    }

    /// A socket opened there, and no connection to the server.
    pub(super) fn failed(&self, address: HostAddress) {
        let mut order = self.lock();
        order.worked.take_if(|worked| *worked == address);
        order.failed.retain(|failed| *failed != address);
        if order.failed.len() >= MOST {
            order.failed.remove(0);
        }
        order.failed.push(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u16) -> SocketAddr {
        ([10, 0, 0, 1], number).into()
    }

    fn host(name: &str) -> Address {
        (name.to_owned(), 6379)
    }

    #[test]
    fn the_last_success_comes_first_and_the_last_failure_last() {
        let order = AddressOrder::default();
        let sorted = || {
            let mut found = vec![at(1), at(2), at(3)];
            order.sort(&mut found);
            found
        };
        assert_eq!(sorted(), [at(1), at(2), at(3)]);
        order.worked((host("name"), at(3)));
        assert_eq!(sorted(), [at(3), at(1), at(2)]);
        order.failed((host("name"), at(3)));
        assert_eq!(sorted(), [at(1), at(2), at(3)]);
        // Each of several addresses that accept sockets and nothing else has its turn.
        order.failed((host("name"), at(1)));
        assert_eq!(sorted(), [at(2), at(3), at(1)]);
        order.failed((host("name"), at(2)));
        assert_eq!(sorted(), [at(3), at(1), at(2)]);
        order.worked((host("name"), at(1)));
        assert_eq!(sorted(), [at(1), at(3), at(2)]);
    }

    #[test]
    fn the_host_that_worked_last_comes_first() {
        let order = AddressOrder::default();
        order.set_node("aaa".into(), vec![host("name"), host("other")]);
        assert_eq!(order.hosts(&host("name")), [host("name"), host("other")]);
        order.worked((host("other"), at(1)));
        assert_eq!(order.hosts(&host("name")), [host("other"), host("name")]);
        order.leads_astray();
        assert_eq!(order.hosts(&host("name")), [host("name"), host("other")]);
    }

    /// A resolver may return anything, and a name may have new addresses for ever.
    #[test]
    fn what_is_tried_and_remembered_is_bounded() {
        let order = AddressOrder::default();
        for number in 0..1000 {
            order.failed((host("name"), at(number)));
        }
        assert_eq!(order.lock().failed.len(), MOST);
        let mut found: Vec<_> = (0..1000).map(at).collect();
        order.sort(&mut found);
        assert_eq!(found.len(), MOST);
    }
}
