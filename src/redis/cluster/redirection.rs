//! Redirections to other nodes.

use crate::redis::endpoint::Address;

/// The target of a redirection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// The slot has moved.
    Moved(Address),
    /// The slot is moving: keys that are absent here may be at the target.
    Ask(Address),
}

impl Redirection {
    /// Reads `MOVED 3999 127.0.0.1:6381` or `ASK ..`. Without a host, the host is that of the answering node.
    pub(super) fn read(message: &str, asked: &Address) -> Option<Self> {
        let mut words = message.split(' ');
        let (kind, _slot, address) = (words.next()?, words.next()?, words.next()?);
        let (host, port) = address.rsplit_once(':')?;
        let host = if matches!(host, "" | "?") {
            &asked.0
        } else {
            host
        };
        let address = (host.to_owned(), port.parse().ok()?);
        match kind {
            "MOVED" => Some(Self::Moved(address)),
            "ASK" => Some(Self::Ask(address)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            read("MOVED 1 ?:6381"),
            Some(Redirection::Moved(at("asked", 6381)))
        );
        for odd in [
            "MOVED",
            "MOVED 1",
            "MOVED 1 host",
            "ASK 1 host:x",
            "TRYAGAIN a b:1",
            "",
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
