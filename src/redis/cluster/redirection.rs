//! Redirections to other nodes.

use std::sync::Mutex;

use tokio::time::Instant;

use crate::{
    hash::HashMap,
    redis::{HashSlot, endpoint::Address, time_limits::REDIRECTOR_MUTE},
    sync::lock,
};

/// The most redirections that one call follows.
pub(super) const MOST_HOPS: usize = 5;

/// The target of a redirection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// The slot has moved.
    Moved(Address),
    /// The slot is moving: keys that are absent here may be at the target.
    Ask(Address),
}

impl Redirection {
    /// Reads `MOVED 3999 127.0.0.1:6381` or `ASK ..`. Without a host, the host is that of the answering node. `?` stands for a
    /// host that the answering node does not know.
    pub(super) fn read(message: &str, asked: &Address) -> Option<Self> {
        let mut words = message.split(' ');
        let (kind, _slot, address) = (words.next()?, words.next()?, words.next()?);
        let (host, port) = address.rsplit_once(':')?;
        let host = match host {
            "" => &asked.0,
            "?" => return None,
            host => host,
        };
        let address = (host.to_owned(), port.parse().ok()?);
        match kind {
            "MOVED" => Some(Self::Moved(address)),
            "ASK" => Some(Self::Ask(address)),
            _ => None,
        }
    }
}

/// The nodes that have redirected calls of a slot lately, by their announced addresses.
///
/// Each redirection that is followed has the slot's holds verified and its waiters woken. Their calls may be redirected too: two
/// nodes that redirect to each other would multiply the calls without a limit.
#[derive(Default)]
pub(super) struct Redirectors(Mutex<HashMap<HashSlot, Vec<(Address, Instant)>>>);

impl Redirectors {
    /// Records that the node at `asked` redirects calls of `slot`. Returns whether the redirection to `new` may be followed: the
    /// node at `new` has not redirected calls of the slot itself, and only a few nodes have.
    pub(super) fn admit(&self, slot: HashSlot, asked: Address, new: &Address) -> bool {
        let now = Instant::now();
        let mut slots = lock(&self.0);
        let recent = slots.entry(slot).or_default();
        recent.retain(|(address, at)| *address != asked && now < *at + REDIRECTOR_MUTE);
        let follows = recent.len() < MOST_HOPS
            && *new != asked
            && recent.iter().all(|(address, _)| address != new);
        if recent.len() < MOST_HOPS {
            recent.push((asked, now));
        }
        follows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn redirection_to_a_node_that_has_redirected_is_not_followed_for_a_while() {
        let at = |node: usize| (format!("node-{node}"), 1);
        let redirectors = Redirectors::default();
        let follows = |slot, asked, new| redirectors.admit(slot, at(asked), &at(new));
        assert!(follows(7, 1, 2));
        assert!(follows(7, 1, 2), "a second call was under way");
        assert!(follows(7, 2, 3), "the chain goes on");
        assert!(!follows(7, 3, 1), "the chain closes");
        assert!(!follows(7, 4, 4), "a node redirects to itself");
        assert!(follows(8, 2, 1), "another slot");
        tokio::time::advance(REDIRECTOR_MUTE).await;
        assert!(follows(7, 2, 1));
        // A hostile node may name one address after the other.
        let followed = (10..100).filter(|node| follows(7, *node, node + 1));
        assert_eq!(followed.count(), MOST_HOPS - 1);
    }

    #[test]
    fn redirections_are_read() {
        let read = |message| Redirection::read(message, &("asked".into(), 1));
        let at = |host: &str, port| (host.to_owned(), port);
        assert_eq!(
            read("MOVED 3999 10.0.0.2:6381"),
            Some(Redirection::Moved(at("10.0.0.2", 6381)))
        );
        assert_eq!(
            read("ASK 1 ::1:6381"),
            Some(Redirection::Ask(at("::1", 6381)))
        );
        assert_eq!(
            read("MOVED 1 :6381"),
            Some(Redirection::Moved(at("asked", 6381)))
        );
        for odd in [
            "MOVED",
            "MOVED 1",
            "MOVED 1 host",
            "ASK 1 host:x",
            "MOVED 1 ?:6381",
            "TRYAGAIN a b:1",
            "",
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
