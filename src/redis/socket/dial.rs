//! Opens a socket to a server that may have several addresses.
//!
//! A name may have several addresses, of which one leads nowhere. That shows only at the end of the whole time for a connection.
//! So attempts start a little apart, and the first socket that opens is used (RFC 8305, "happy eyeballs"). [`AddressOrder`] has their
//! order.

use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout},
};

use crate::{
    redis::{
        address_order::{AddressOrder, HostAddress},
        connect_error::{ConnectError, ConnectErrorKind},
        endpoint::{Address, OwnEnd, Socket},
        resolver::Resolver,
        time_limits::NEXT_ADDRESS_AFTER,
        tls::Tls,
    },
    server_text,
};

/// Opens sockets, with TLS if it is set.
#[derive(Clone, Default)]
pub(in crate::redis) struct Dialer {
    pub(in crate::redis) tls: Option<Tls>,
    /// The way from names to addresses, if it is not the system's.
    pub(in crate::redis) resolver: Option<Resolver>,
}

/// An open socket.
pub(super) struct Dialed {
    pub(super) socket: Box<dyn Socket>,
    pub(super) own_end: OwnEnd,
}

/// Where a server may accept sockets.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Peer {
    Tcp(HostAddress),
    Unix(PathBuf),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp((_, at)) => write!(f, "{at}"),
            Peer::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Dialer {
    /// The peers at a host, in the order in which to try them.
    pub(super) async fn peers(
        &self,
        host: &Address,
        address_order: &AddressOrder,
    ) -> Result<Vec<Peer>, ConnectError> {
        let mut found = self.resolve(host).await?;
        address_order.sort(&mut found);
        let peers = found.into_iter().map(|at| Peer::Tcp((host.clone(), at)));
        Ok(peers.collect())
    }

    /// Opens a socket to one of `peers`, and removes that one and those that failed. The caller limits the time to `wait`.
    pub(super) async fn dial_one(
        &self,
        peers: &mut Vec<Peer>,
        wait: Duration,
    ) -> Result<(Dialed, Peer), ConnectError> {
        let pace = pace(wait, peers.len());
        let dialing = peers.iter().cloned().map(|peer| async move {
            let dialed = self.dial(&peer).await;
            (peer, dialed)
        });
        let (dialed, failed) = first_of(dialing, pace).await;
        let is_one = peers.len() == 1;
        peers.retain(|peer| failed.iter().all(|(known, _)| known != peer));
        if let Some((dialed, peer)) = dialed {
            peers.retain(|other| *other != peer);
            return Ok((dialed, peer));
        }
        let error = |(peer, error): (Peer, ConnectError)| match is_one {
            true => error,
            false => ConnectError {
                details: format!("{peer}: {}", error.details),
                ..error
            },
        };
        Err(together(failed.into_iter().map(error)))
    }

    async fn resolve(&self, (host, port): &Address) -> Result<Vec<SocketAddr>, ConnectError> {
        let found = match (&self.resolver, host.parse()) {
            (_, Ok(ip)) => return Ok(vec![SocketAddr::new(ip, *port)]),
            (Some(resolver), _) => resolver.addresses(host.clone(), *port).await,
            (None, _) => match lookup_host((host.as_str(), *port)).await {
                Ok(found) => Ok(found.collect()),
                Err(error) => Err(error.to_string()),
            },
        };
        match found {
            Ok(found) if found.is_empty() => Err(network("the name has no address")),
            found => found.map_err(network),
        }
    }

    /// Opens a socket to a peer.
    pub(super) async fn dial(&self, peer: &Peer) -> Result<Dialed, ConnectError> {
        let ((host, port), at) = match peer {
            Peer::Tcp(address) => address,
            Peer::Unix(path) => {
                return Ok(Dialed {
                    socket: open_unix(path).await.map_err(network)?,
                    own_end: OwnEnd::Unix(path.clone()),
                });
            }
        };
        let socket = TcpStream::connect(at).await.map_err(network)?;
        socket.set_nodelay(true).map_err(network)?;
        let own_end = OwnEnd::Tcp {
            own: socket.local_addr().map_err(network)?,
            peer: socket.peer_addr().map_err(network)?,
        };
        let socket = match &self.tls {
            Some(tls) => tls.secure(host, *port, socket).await?,
            None => Box::new(socket),
        };
        Ok(Dialed { socket, own_end })
    }
}

#[cfg(unix)]
async fn open_unix(path: &Path) -> io::Result<Box<dyn Socket>> {
    Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
}

/// No client gets here: `Target::open_on` refuses the server.
#[cfg(not(unix))]
async fn open_unix(_: &Path) -> io::Result<Box<dyn Socket>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The time between two of so many starts: each has begun by the middle of the time for all.
fn pace(wait: Duration, number: usize) -> Duration {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    NEXT_ADDRESS_AFTER.min(wait / 2 / number.max(1))
}

/// The first attempt that succeeds, if one does, and those that failed before. The next attempt starts when one fails, or `pace`
/// after the last start.
async fn first_of<I, T, E>(
    attempts: impl Iterator<Item: Future<Output = (I, Result<T, E>)>>,
    pace: Duration,
) -> (Option<(T, I)>, Vec<(I, E)>) {
    let (mut running, mut failed) = (FuturesUnordered::new(), Vec::new());
    let mut attempts = attempts.fuse();
    loop {
        let started = attempts.next().map(|attempt| running.push(attempt));
        let limit = started.map_or(Duration::MAX, |()| pace);
        match timeout(limit, running.next()).await {
            Ok(Some((id, Ok(success)))) => return (Some((success, id)), failed),
            Ok(Some((id, Err(error)))) => failed.push((id, error)),
            Ok(None) => return (None, failed),
            Err(_) => {}
        }
    }
}

/// One error for all attempts. It is a lasting one only if all are.
pub(super) fn together(errors: impl IntoIterator<Item = ConnectError>) -> ConnectError {
    let errors: Vec<_> = errors.into_iter().collect();
    let passing = errors.iter().find(|error| !error.kind.is_lasting());
    let told = passing.or(errors.first()).map(|error| error.kind);
    let mut details: Vec<_> = errors.into_iter().map(|error| error.details).collect();
    details.dedup();
    ConnectError {
        kind: told.unwrap_or(ConnectErrorKind::Network),
        details: details.join("; "),
    }
}

/// `future`, within half of the time that is left if there are `others` to try.
pub(super) async fn in_share<T>(
    future: impl Future<Output = T>,
    deadline: Instant,
    others: usize,
) -> Option<T> {
    if others == 0 {
        return Some(future.await);
    }
    let left = deadline.saturating_duration_since(Instant::now());
    timeout(left / 2, future).await.ok()
}

fn network(error: impl ToString) -> ConnectError {
    ConnectError {
        kind: ConnectErrorKind::Network,
        details: server_text::shown(&error.to_string()),
    }
}
