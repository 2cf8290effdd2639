//! Whether a connection leads straight to one server, by that server's own view of it. docs/protocol.md, "One server", says what
//! counts, and what a proxy could feign.

use std::net::SocketAddr;

use super::{client_info::field, endpoint::OwnEnd, frame};
use crate::transport::Frame;

/// The most connections of a server that is asked to list them: the list delays other clients.
const MOST_LISTED: u64 = 500;

/// Whether `info`, a line of a server about a connection, describes the connection of this end.
fn describes(info: &str, end: &OwnEnd) -> bool {
    let seen = |name| field(info, name);
    match end {
        OwnEnd::InProcess => true,
        OwnEnd::Unknown => false,
        OwnEnd::Unix(path) => {
            let path_at_server = seen("addr").and_then(|seen| seen.strip_suffix(":0"));
            path.to_str()
                .is_some_and(|path| path_at_server == Some(path))
        }
        OwnEnd::Tcp { own, peer } => {
            let seen = |name| seen(name).and_then(|seen| seen.parse::<SocketAddr>().ok());
            let host = |address: &SocketAddr| address.ip().to_canonical();
            let is_own = |seen: SocketAddr| host(&seen) == host(own) && seen.port() == own.port();
            // A proxy on this host may connect from the same port by chance. It connects to another port or host.
            let is_elsewhere = |at: SocketAddr| match host(&at) == host(peer) {
                true => at.port() != peer.port(),
                false => host(own) == host(peer),
            };
            seen("addr").is_some_and(is_own) && !seen("laddr").is_some_and(is_elsewhere)
        }
    }
}

/// What a server must say about a connection that leads straight to it.
#[derive(Debug)]
pub(super) struct Evidence {
    own_end: OwnEnd,
    /// The number of the connection in the answer to `HELLO`, if there was one.
    id: Option<i64>,
    /// Whether that answer allows for a server of its own.
    is_standalone: bool,
}

impl Evidence {
    pub(super) fn new(own_end: OwnEnd, greeting: &Frame) -> Self {
        let mode = frame::map(greeting).remove("mode");
        Self {
            own_end,
            id: frame::number_in(greeting, "id"),
            is_standalone: mode.is_none_or(|mode| mode == "standalone"),
        }
    }

    /// Whether `info`, the server's description of the connection, proves that the connection leads straight to it.
    pub(super) fn proves(&self, info: &str) -> bool {
        let id = field(info, "id").and_then(|id| id.parse().ok());
        self.is_standalone && (self.id.is_none() || self.id == id) && describes(info, &self.own_end)
    }
}

/// Whether a server lacks `CLIENT INFO`, by its answer. A user without the right to it need not ask for more.
pub(super) fn lacks_client_info(info: &Frame) -> bool {
    frame::error(info).is_some_and(|message| message.to_lowercase().contains("unknown subcommand"))
}

/// The line of a connection in a list of connections.
pub(super) fn line_of(id: i64, list: &str) -> Option<&str> {
    let id = id.to_string();
    list.lines().find(|line| field(line, "id") == Some(&id))
}

/// Whether `INFO` is that of a server before 6.2 with few connections. Proxies list connections too: a later version would have
/// `CLIENT INFO`.
pub(super) fn may_be_listed(info: &str) -> bool {
    let value = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let mut version = value("redis_version").unwrap_or_default().split('.');
    let mut part = || version.next()?.parse::<u32>().ok();
    let is_old = matches!((part(), part()), (Some(major), Some(minor)) if (major, minor) < (6, 2));
    let connections = value("connected_clients").and_then(|count| count.parse().ok());
    is_old
        && value("redis_mode") == Some("standalone")
        && connections.is_some_and(|count: u64| count <= MOST_LISTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(own: &str, peer: &str) -> OwnEnd {
        OwnEnd::Tcp {
            own: own.parse().unwrap(),
            peer: peer.parse().unwrap(),
        }
    }

    fn greeting(id: i64, mode: &'static str) -> Frame {
        let text = |text: &'static str| Frame::Text(text.into());
        Frame::Map(vec![
            (text("id"), Frame::Number(id)),
            (text("mode"), text(mode)),
        ])
    }

    #[test]
    fn only_the_clients_own_address_proves_a_server() {
        let own = || tcp("10.0.0.7:4711", "10.0.0.1:6379");
        for (info, proves) in [
            ("id=7 addr=10.0.0.7:4711 laddr=10.0.0.1:6379 fd=8", true),
            ("id=7 addr=10.0.0.7:4711 fd=8", true),
            ("id=7 addr=[::ffff:10.0.0.7]:4711", true),
            // The server's address is translated, and the client's is not.
            ("id=7 addr=10.0.0.7:4711 laddr=172.17.0.2:6379", true),
            // A proxy on the same host as the server has the same port by chance.
            ("id=7 addr=10.0.0.7:4711 laddr=10.0.0.1:6380", false),
            ("id=7 addr=10.0.0.7:4712 laddr=10.0.0.1:6379", false),
            ("id=7 addr=10.0.0.8:4711 laddr=10.0.0.1:6379", false),
            ("id=7 addr=/run/redis.sock:0", false),
            ("id=7 laddr=10.0.0.1:6379", false),
            ("id=7 addr=", false),
            ("OK", false),
            ("", false),
        ] {
            assert_eq!(
                Evidence::new(own(), &Frame::Null).proves(info),
                proves,
                "{info}"
            );
        }
        // A proxy on this host has the client's port by chance, at a server elsewhere.
        let local = tcp("10.0.0.7:4711", "10.0.0.7:6379");
        for (info, proves) in [
            ("addr=10.0.0.7:4711 laddr=10.0.0.7:6379", true),
            ("addr=10.0.0.7:4711", true),
            ("addr=10.0.0.7:4711 laddr=10.0.0.9:6379", false),
        ] {
            assert_eq!(describes(info, &local), proves, "{info}");
        }
        let own = tcp("[fe80::1%3]:4711", "[fe80::2%3]:6379");
        assert!(describes("addr=[fe80::1]:4711 laddr=[fe80::2]:6379", &own));
    }

    #[test]
    fn a_unix_socket_is_known_by_its_path() {
        let own = OwnEnd::Unix("/run/redis.sock".into());
        assert!(describes(
            "id=7 addr=/run/redis.sock:0 laddr=/run/redis.sock:0",
            &own
        ));
        for other in [
            "addr=/run/redis-2.sock:0",
            "addr=127.0.0.1:5",
            "addr=/run/redis.sock",
        ] {
            assert!(!describes(other, &own), "{other}");
        }
    }

    #[test]
    fn a_greeting_that_contradicts_proves_nothing() {
        let own = || tcp("10.0.0.7:4711", "10.0.0.1:6379");
        let info = "id=7 addr=10.0.0.7:4711 laddr=10.0.0.1:6379";
        let proves = |greeting: &Frame| Evidence::new(own(), greeting).proves(info);
        assert!(proves(&greeting(7, "standalone")));
        assert!(!proves(&greeting(8, "standalone")));
        assert!(!proves(&greeting(7, "cluster")));
        assert!(!proves(&greeting(7, "proxy")));
    }

    #[test]
    fn only_old_and_small_servers_list_their_connections() {
        let info = |version: &str, mode: &str, clients: &str| {
            format!(
                "# Server\r\nredis_version:{version}\r\nredis_mode:{mode}\r\nconnected_clients:{clients}\r\n"
            )
        };
        assert!(may_be_listed(&info("6.0.16", "standalone", "500")));
        assert!(may_be_listed(&info("5.0", "standalone", "1")));
        for (version, mode, clients) in [
            ("6.2.0", "standalone", "1"),
            ("7.0.1", "standalone", "1"),
            ("6.0.16", "cluster", "1"),
            ("6.0.16", "standalone", "501"),
            ("6.0.16", "standalone", "many"),
            ("unknown", "standalone", "1"),
        ] {
            let info = info(version, mode, clients);
            assert!(!may_be_listed(&info), "{info}");
        }
        assert!(!may_be_listed(""));
        let error = |message: &str| lacks_client_info(&Frame::Error(message.into()));
        assert!(error(
            "ERR Unknown subcommand or wrong number of arguments for 'INFO'. Try CLIENT HELP."
        ));
        assert!(!error("NOPERM this user has no permissions"));
    }
}
