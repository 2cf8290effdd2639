//! The ways to begin a connection, and the version of the protocol that each leads to.
//!
//! `HELLO` does everything in one command. Many proxies and servers refuse it, in any words, by another answer or by closing
//! the connection. Redis before 6.2.2 refuses it for the rights of `default`, before it looks at the user. The client then
//! opens another connection, in RESP2. [`log_in`](super::log_in) sends the commands.

use crate::protocol::Protocol;

/// The version of the protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Resp2,
    Resp3,
}

/// The first commands of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// `HELLO`: RESP3.
    Hello,
    /// `AUTH`, `SELECT`, `PING`, `CLIENT`: RESP2.
    Classic,
    /// The same without `CLIENT`, for twemproxy, which closes the connection on a command that it does not know.
    Bare,
}

impl Handshake {
    /// The handshakes that a connection may try, in this order.
    pub(super) fn of(protocol: Protocol) -> &'static [Self] {
        match protocol {
            Protocol::Auto => &[Self::Hello, Self::Classic, Self::Bare],
            Protocol::Resp2 => &[Self::Classic, Self::Bare],
            Protocol::Resp3 => &[Self::Hello],
        }
    }

    /// The handshakes from this one on.
    pub(super) fn onwards(self) -> &'static [Self] {
        match self {
            Self::Hello => Self::of(Protocol::Auto),
            Self::Classic => Self::of(Protocol::Resp2),
            Self::Bare => &[Self::Bare],
        }
    }

    pub(crate) fn version(self) -> Version {
        match self {
            Self::Hello => Version::Resp3,
            Self::Classic | Self::Bare => Version::Resp2,
        }
    }
}
