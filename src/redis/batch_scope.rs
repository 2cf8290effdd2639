//! Which operations may travel in one call. A proxy sends a call to the server of its first key: a second name would be locked on the
//! wrong server (docs/protocol.md, "One server").

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use super::{
    hash_slot::{HashSlot, hash_slot},
    one_server::Evidence,
};
use crate::{endpoint_kind::EndpointKind, wire::script::Operation};

/// The message of a call that was not sent, because it exceeds the scope of its connection.
pub(super) const NOT_SENT: &str =
    "NOTSENT operations of several names, on a connection that may lead to several servers";

/// Which operations may travel in one call, the fewest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BatchScope {
    OneName,
    OneSlot,
    AllNames,
}

impl BatchScope {
    const ALL: [Self; 3] = [Self::OneName, Self::OneSlot, Self::AllNames];

    /// Whether these operations may travel in one call.
    pub(super) fn allows(self, operations: &[Operation]) -> bool {
        self == Self::AllNames || Self::of(operations) <= self
    }

    /// The narrowest scope that allows these operations.
    fn of(operations: &[Operation]) -> Self {
        let [first, rest @ ..] = operations else {
            return Self::OneName;
        };
        let slot = |operation: &Operation| hash_slot(name(operation));
        if rest.iter().all(|other| name(other) == name(first)) {
            Self::OneName
        } else if rest.iter().all(|other| slot(other) == slot(first)) {
            Self::OneSlot
        } else {
            Self::AllNames
        }
    }
}

/// The first key of an operation is its name.
fn name(operation: &Operation) -> &[u8] {
    operation.first().map_or(&[], |name| name)
}

/// The scope of the calls to one end point.
pub(super) struct EndpointScope {
    kind: EndpointKind,
    /// The widest scope that the end point has not refused. It only narrows.
    widest: AtomicU8,
    /// Whether the last connection leads straight to one server. Decides how operations queue, not how they are sent.
    is_straight: AtomicBool,
}

impl EndpointScope {
    pub(super) fn new(kind: EndpointKind) -> Arc<Self> {
        Arc::new(Self {
            kind,
            widest: AtomicU8::new(BatchScope::AllNames as u8),
            is_straight: AtomicBool::new(false),
        })
    }

    pub(super) fn kind(&self) -> EndpointKind {
        self.kind
    }

    /// The scope of a connection.
    fn on(&self, is_straight: bool) -> BatchScope {
        match self.kind {
            EndpointKind::Server => {}
            EndpointKind::Auto if is_straight => {}
            EndpointKind::Auto | EndpointKind::Proxy => return BatchScope::OneName,
        }
        BatchScope::ALL[usize::from(self.widest.load(Ordering::Relaxed))]
    }

    /// The scope of the last connection.
    pub(super) fn now(&self) -> BatchScope {
        self.on(self.is_straight.load(Ordering::Relaxed))
    }

    /// The slot by which operations of `key` queue. Few slots have several names.
    pub(super) fn slot(&self, key: &[u8]) -> HashSlot {
        match self.now() {
            BatchScope::AllNames => 0,
            BatchScope::OneSlot | BatchScope::OneName => hash_slot(key),
        }
    }

    /// Narrows the scope for good: the end point has refused these operations together, and has run each of them alone.
    pub(super) fn refused_together(&self, operations: &[Operation]) {
        let narrower = match BatchScope::of(operations) {
            BatchScope::AllNames => BatchScope::OneSlot,
            BatchScope::OneSlot | BatchScope::OneName => BatchScope::OneName,
        };
        self.widest.fetch_min(narrower as u8, Ordering::Relaxed);
    }
}

/// The scope of the calls on one connection.
pub(super) struct ConnectionScope {
    of_endpoint: Arc<EndpointScope>,
    evidence: Evidence,
    is_straight: AtomicBool,
}

impl ConnectionScope {
    pub(super) fn new(of_endpoint: Arc<EndpointScope>, evidence: Evidence) -> Self {
        Self {
            of_endpoint,
            evidence,
            is_straight: AtomicBool::new(false),
        }
    }

    /// Judges the connection by the server's description of it.
    pub(super) fn judge(&self, info: &str) {
        self.is_straight
            .store(self.evidence.proves(info), Ordering::Relaxed);
    }

    /// Has later operations queue for this connection.
    pub(super) fn becomes_current(&self) {
        let is_straight = self.is_straight.load(Ordering::Relaxed);
        self.of_endpoint
            .is_straight
            .store(is_straight, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> BatchScope {
        self.of_endpoint
            .on(self.is_straight.load(Ordering::Relaxed))
    }

    /// Whether one server answers on the connection, by that server's view of it or by the configuration.
    pub(super) fn leads_straight(&self) -> bool {
        self.now() != BatchScope::OneName
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::endpoint::OwnEnd;

    fn operations(names: &[&'static str]) -> Vec<Operation> {
        names
            .iter()
            .map(|name| vec![(*name).into(), "arg".into()])
            .collect()
    }

    fn in_process() -> Evidence {
        Evidence::new(OwnEnd::InProcess, &crate::transport::Frame::Null)
    }

    #[test]
    fn operations_need_the_scope_of_their_names() {
        let scope = |names: &[&'static str]| BatchScope::of(&operations(names));
        assert_eq!(scope(&[]), BatchScope::OneName);
        assert_eq!(scope(&["a"]), BatchScope::OneName);
        assert_eq!(scope(&["a", "a", "a"]), BatchScope::OneName);
        assert_eq!(scope(&["{a}1", "{a}2", "a"]), BatchScope::OneSlot);
        assert_eq!(scope(&["a", "a", "b"]), BatchScope::AllNames);
        // Redis: CLUSTER KEYSLOT. Two names may share a slot.
        assert_eq!(scope(&["foo1", "foo1", "foo2"]), BatchScope::AllNames);
        for (index, wide) in BatchScope::ALL.into_iter().enumerate() {
            assert_eq!(wide as usize, index);
            assert!(wide.allows(&operations(&["a", "a"])));
        }
        assert!(!BatchScope::OneName.allows(&operations(&["{a}1", "{a}2"])));
        assert!(!BatchScope::OneSlot.allows(&operations(&["a", "b"])));
    }

    #[test]
    fn names_share_a_call_where_one_server_is_proven_or_vouched_for() {
        for (kind, unproven, proven) in [
            (
                EndpointKind::Auto,
                BatchScope::OneName,
                BatchScope::AllNames,
            ),
            (
                EndpointKind::Server,
                BatchScope::AllNames,
                BatchScope::AllNames,
            ),
            (
                EndpointKind::Proxy,
                BatchScope::OneName,
                BatchScope::OneName,
            ),
        ] {
            let of_endpoint = EndpointScope::new(kind);
            let scope = ConnectionScope::new(of_endpoint.clone(), in_process());
            assert_eq!(
                (scope.now(), of_endpoint.now()),
                (unproven, unproven),
                "{kind:?}"
            );
            scope.judge("id=7 addr=?");
            assert_eq!(
                (scope.now(), of_endpoint.now()),
                (proven, unproven),
                "{kind:?}"
            );
            scope.becomes_current();
            assert_eq!(of_endpoint.now(), proven, "{kind:?}");
            // The next connection proves nothing: calls on it are narrow before operations queue for it.
            let next = ConnectionScope::new(of_endpoint.clone(), in_process());
            assert_eq!(
                (next.now(), of_endpoint.now()),
                (unproven, proven),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn a_refused_batch_narrows_the_scope_for_good() {
        let scope = EndpointScope::new(EndpointKind::Server);
        assert_eq!((scope.slot(b"a"), scope.slot(b"b")), (0, 0));
        scope.refused_together(&operations(&["a", "b"]));
        assert_eq!(scope.now(), BatchScope::OneSlot);
        assert_eq!(scope.slot(b"a"), hash_slot(b"a"));
        scope.refused_together(&operations(&["a", "b"]));
        assert_eq!(scope.now(), BatchScope::OneSlot);
        scope.refused_together(&operations(&["{a}1", "{a}2"]));
        scope.refused_together(&operations(&["a", "b"]));
        assert_eq!(scope.now(), BatchScope::OneName);
    }
}
