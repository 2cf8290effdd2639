//! Reads a server's description of a connection, the answer to `CLIENT INFO`. Pure.

use super::frame;
use crate::{transport::Frame, wire::Refusal};

/// The identity of a connection at its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) address: String,
}

/// The result of a request for a connection's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectionIdentity {
    Known(Identity),
    /// The server is busy: ask again later.
    NotNow,
    /// The server refuses to tell.
    Never,
}

impl ConnectionIdentity {
    pub(super) fn read(answer: &Frame) -> Self {
        match frame::error(answer).map(Refusal::from_message) {
            Some(Refusal::Transient { .. }) => Self::NotNow,
            Some(_) => Self::Never,
            None => {
                let identity = frame::text(answer).and_then(|info| Identity::read(&info));
                identity.map_or(Self::Never, Self::Known)
            }
        }
    }
}

/// A field of `CLIENT INFO`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut words = info.split(' ');
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The number of channels to which the server has subscribed a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subscriptions {
    pub(super) everywhere: usize,
    /// Not all servers with shards report this count.
    pub(super) of_shard: Option<usize>,
}

impl Subscriptions {
    pub(super) fn read(info: &str) -> Option<Self> {
        Some(Self {
            everywhere: field(info, "sub")?.parse().ok()?,
            of_shard: field(info, "ssub").and_then(|count| count.parse().ok()),
        })
    }
}

impl Identity {
    /// Reads `CLIENT INFO`. All connections over a unix socket have the same address, which identifies none of them.
    pub(super) fn read(info: &str) -> Option<Self> {
        let (id, address) = (field(info, "id")?, field(info, "addr")?);
        (!address.ends_with(":0")).then(|| Self {
            id: id.to_owned(),
            address: address.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_info_is_read() {
        let info =
            "id=7 addr=127.0.0.1:51764 laddr=127.0.0.1:6379 fd=8 name= age=0 sub=12 psub=0 ssub=3";
        let read = |info| Subscriptions::read(info).map(|count| (count.everywhere, count.of_shard));
        assert_eq!(read(info), Some((12, Some(3))));
        assert_eq!(read("sub=12 psub=0"), Some((12, None)));
        assert_eq!(read("PONG"), None);
        let identity = Identity::read(info).unwrap();
        assert_eq!(
            (identity.id.as_str(), identity.address.as_str()),
            ("7", "127.0.0.1:51764")
        );
        assert_eq!(Identity::read("id=7 addr=/run/redis.sock:0 laddr="), None);
        assert_eq!(Identity::read("ERR unknown subcommand"), None);
        let asked = |message: &str| ConnectionIdentity::read(&Frame::Error(message.into()));
        assert_eq!(
            asked("BUSY Redis is busy running a script"),
            ConnectionIdentity::NotNow
        );
        assert_eq!(asked("NOPERM no permission"), ConnectionIdentity::Never);
        let known = ConnectionIdentity::read(&Frame::Text(info.into()));
        assert_eq!(known, ConnectionIdentity::Known(identity));
    }
}
