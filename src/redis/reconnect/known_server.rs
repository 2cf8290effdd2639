//! What one client has learned of each server by attempts to connect.

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::back_off::BackOff;
use crate::{
    hash::HashMap,
    protocol::Protocol,
    rate_limit::RateLimit,
    redis::{
        address_order::AddressOrder,
        connect_error::ConnectErrorKind,
        endpoint::Endpoint,
        handshake::Handshake,
        time_limits::{HANDSHAKES_AGAIN_AFTER, HELLO_AGAIN_AFTER},
    },
    sync::lock,
};

/// The most lines about connections that one client logs in a minute.
const MOST_LINES: u32 = 5;
/// The most unused servers that are remembered.
const MOST_REMEMBERED: usize = 64;

/// The servers that one client connects to.
pub(crate) struct KnownServers {
    known: Mutex<HashMap<Endpoint, Arc<KnownServer>>>,
    pub(super) lines: RateLimit,
}

impl KnownServers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::default(),
            lines: RateLimit::new(MOST_LINES),
        })
    }

    /// As [`RateLimit::may_log_about`], for lines about connections.
    pub(in crate::redis) fn may_log_about(&self, reason: &str) -> Option<u64> {
        self.lines.may_log_about(reason)
    }

    /// What is known of the server at `endpoint`, for all purposes.
    pub(in crate::redis) fn at(&self, endpoint: &Endpoint) -> Arc<KnownServer> {
        let mut known = lock(&self.known);
        if known.len() > MOST_REMEMBERED {
            known.retain(|_, server| Arc::strong_count(server) > 1);
        }
        known.entry(endpoint.clone()).or_default().clone()
    }
}

/// What the client has learned of one server by attempts to connect.
#[derive(Default)]
pub(in crate::redis) struct KnownServer {
    pub(in crate::redis) back_off: BackOff,
    handshakes: Mutex<Handshakes>,
    pub(in crate::redis) address_order: AddressOrder,
}

/// The fate of the handshakes with one server.
#[derive(Default)]
struct Handshakes {
    /// The handshake that the server accepted after it had refused `HELLO`, and when it refused that.
    instead_of_hello: Option<(Handshake, Instant)>,
    /// When the server closed the connections of all handshakes.
    closed: Option<Instant>,
}

impl KnownServer {
    /// The handshakes for the next connection. A refused `HELLO` is not repeated for [`HELLO_AGAIN_AFTER`], unless a connection
    /// fails meanwhile: another server may be there now.
    pub(in crate::redis) fn handshakes(&self, protocol: Protocol) -> &'static [Handshake] {
        match lock(&self.handshakes).instead_of_hello {
            Some((accepted, at)) if at.elapsed() < HELLO_AGAIN_AFTER => accepted.onwards(),
            _ => Handshake::of(protocol),
        }
    }

    /// Whether the next handshake follows when the server closes the connection on one. A load balancer without a server
    /// closes every connection: each attempt would open three.
    pub(in crate::redis) fn follows_a_close(&self) -> bool {
        let closed = lock(&self.handshakes).closed;
        closed.is_none_or(|at| at.elapsed() >= HANDSHAKES_AGAIN_AFTER)
    }

    /// A connection was opened by this handshake, or failed.
    pub(in crate::redis) fn shook_hands(&self, result: Result<Handshake, ConnectErrorKind>) {
        let is_followed = self.follows_a_close();
        let mut handshakes = lock(&self.handshakes);
        let now = Instant::now();
        match result {
            // The server was not asked.
            Err(ConnectErrorKind::Provider) => return,
            Err(ConnectErrorKind::Closed) if is_followed => handshakes.closed = Some(now),
            Err(_) => {}
            Ok(_) => handshakes.closed = None,
        }
        handshakes.instead_of_hello = match (result, handshakes.instead_of_hello) {
            // A balancer without a server closes each connection. The server may be the same later.
            (Err(ConnectErrorKind::Closed), kept) => kept,
            (Err(_) | Ok(Handshake::Hello), _) => None,
            (Ok(accepted), Some((_, at))) if at.elapsed() < HELLO_AGAIN_AFTER => {
                Some((accepted, at))
            }
            (Ok(accepted), _) => Some((accepted, now)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refused_hello_is_repeated_after_a_minute_or_a_failure() {
        let server = KnownServer::default();
        let begins_with = || server.handshakes(Protocol::Auto)[0];
        assert_eq!(begins_with(), Handshake::Hello);
        server.shook_hands(Ok(Handshake::Classic));
        tokio::time::advance(HELLO_AGAIN_AFTER / 2).await;
        assert_eq!(begins_with(), Handshake::Classic);
        // Connections in RESP2 do not put the next HELLO off.
        server.shook_hands(Ok(Handshake::Bare));
        assert_eq!(begins_with(), Handshake::Bare);
        tokio::time::advance(HELLO_AGAIN_AFTER / 2).await;
        assert_eq!(begins_with(), Handshake::Hello);
        server.shook_hands(Ok(Handshake::Classic));
        server.shook_hands(Err(ConnectErrorKind::Network));
        assert_eq!(begins_with(), Handshake::Hello);
        server.shook_hands(Ok(Handshake::Classic));
        server.shook_hands(Ok(Handshake::Hello));
        assert_eq!(begins_with(), Handshake::Hello);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_closes_everything_gets_one_handshake_in_each_attempt() {
        let server = KnownServer::default();
        server.shook_hands(Err(ConnectErrorKind::Network));
        assert!(server.follows_a_close());
        server.shook_hands(Err(ConnectErrorKind::Closed));
        assert!(!server.follows_a_close());
        tokio::time::advance(HANDSHAKES_AGAIN_AFTER / 2).await;
        server.shook_hands(Err(ConnectErrorKind::Closed));
        tokio::time::advance(HANDSHAKES_AGAIN_AFTER / 2).await;
        assert!(server.follows_a_close(), "later closes do not put it off");
        server.shook_hands(Err(ConnectErrorKind::Closed));
        server.shook_hands(Ok(Handshake::Hello));
        assert!(server.follows_a_close());
    }

    /// twemproxy behind a balancer that closes every connection for a moment: each attempt is a single handshake then.
    #[tokio::test(start_paused = true)]
    async fn handshake_that_was_accepted_is_tried_first_after_a_peer_that_closed() {
        let server = KnownServer::default();
        server.shook_hands(Ok(Handshake::Bare));
        server.shook_hands(Err(ConnectErrorKind::Closed));
        assert!(!server.follows_a_close());
        assert_eq!(server.handshakes(Protocol::Auto), [Handshake::Bare]);
        server.shook_hands(Err(ConnectErrorKind::Refused));
        let all = Handshake::of(Protocol::Auto);
        assert_eq!(server.handshakes(Protocol::Auto), all);
    }
}
