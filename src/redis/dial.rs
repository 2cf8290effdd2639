//! Opens a socket to a server that may have several addresses.
//!
//! A name may have several addresses, and a node of a cluster may announce a second host. One of them may lead nowhere, which
//! shows only at the end of the whole time for a connection. So attempts start a little apart, and the first socket that opens
//! is used (RFC 8305, "happy eyeballs"). [`Places`](super::places::Places) has their order.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    net::{TcpStream, UnixStream, lookup_host},
    time::timeout,
};

use super::{
    attempts::Attempts,
    connect_error::{ConnectError, ConnectErrorKind},
    connection::ServerConfig,
    endpoint::{Address, Endpoint, OwnEnd, Socket},
    places::Place,
    resolver::Resolver,
    tls::Tls,
};
use crate::server_text;

/// The time between the starts of two attempts, as RFC 8305 recommends.
const PACE: Duration = Duration::from_millis(250);

/// Opens sockets, with TLS if it is set.
#[derive(Clone, Default)]
pub(super) struct Dialer {
    pub(super) tls: Option<Tls>,
    /// The way from names to addresses, if it is not the system's.
    pub(super) resolver: Option<Resolver>,
}

/// An open socket.
pub(super) struct Dialed {
    pub(super) socket: Box<dyn Socket>,
    pub(super) own_end: OwnEnd,
}

/// Where a server accepts sockets.
enum Peer {
    Tcp(Place),
    Unix(PathBuf),
}

/// The peer of one attempt to connect. Its place counts as failed unless the server accepts a connection there.
pub(super) struct Site {
    peer: Peer,
    attempts: Arc<Attempts>,
    /// Whether there are other addresses to try.
    pub(super) has_others: bool,
    has_worked: bool,
}

impl Site {
    /// The server has accepted a connection.
    pub(super) fn worked(&mut self) {
        self.has_worked = true;
        if let Peer::Tcp(place) = &self.peer {
            self.attempts.places.worked(place.clone());
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Peer::Tcp(place) = &self.peer
            && !self.has_worked
        {
            self.attempts.places.failed(place.clone());
        }
    }
}

impl Dialer {
    /// Opens a socket where the server accepts one. The caller limits the time to `wait`.
    pub(super) async fn dial(
        &self,
        server: &ServerConfig,
        wait: Duration,
    ) -> Result<(Dialed, Site), ConnectError> {
        let attempts = server.servers.at(&server.endpoint);
        let (dialed, peer, has_others) = match &server.endpoint {
            Endpoint::Unix(path) => {
                let peer = Peer::Unix(path.clone());
                (self.dial_peer(&peer).await?, peer, false)
            }
            Endpoint::Tcp(named) => {
                let hosts = attempts.places.hosts(named);
                let pace = pace(wait, hosts.len());
                let several = hosts.len() > 1;
                let dialing = hosts.into_iter();
                let dialing = dialing.map(|host| self.dial_host(host, &attempts, wait));
                let (dialed, peer, is_one) = first_of(dialing, pace).await.map_err(together)?;
                (dialed, peer, several || !is_one)
            }
        };
        let site = Site {
            peer,
            attempts,
            has_others,
            has_worked: false,
        };
        Ok((dialed, site))
    }

    /// Opens a further socket to the peer of an attempt.
    pub(super) async fn dial_again(&self, site: &Site) -> Result<Dialed, ConnectError> {
        self.dial_peer(&site.peer).await
    }

    /// Opens a socket at one of the addresses of a host. Returns whether it has one alone, too.
    async fn dial_host(
        &self,
        host: Address,
        attempts: &Attempts,
        wait: Duration,
    ) -> Result<(Dialed, Peer, bool), ConnectError> {
        let mut found = self.resolve(&host).await?;
        attempts.places.sort(&mut found);
        let is_one = found.len() == 1;
        let pace = pace(wait, found.len());
        let dialing = found.into_iter().map(|at| {
            let peer = Peer::Tcp((host.clone(), at));
            async move {
                match self.dial_peer(&peer).await {
                    Ok(dialed) => Ok((dialed, peer, is_one)),
                    Err(error) if is_one => Err(error),
                    Err(ConnectError { kind, details }) => Err(ConnectError {
                        kind,
                        details: format!("{at}: {details}"),
                    }),
                }
            }
        });
        first_of(dialing, pace).await.map_err(together)
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

    async fn dial_peer(&self, peer: &Peer) -> Result<Dialed, ConnectError> {
        let ((host, port), at) = match peer {
            Peer::Tcp(place) => place,
            Peer::Unix(path) => {
                return Ok(Dialed {
                    socket: Box::new(UnixStream::connect(path).await.map_err(network)?),
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

/// The time between two of so many starts: each has begun by the middle of the time for all.
fn pace(wait: Duration, number: usize) -> Duration {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    PACE.min(wait / 2 / number.max(1))
}

/// The first success. The next attempt starts when one fails, or `pace` after the last start. Returns all errors if each fails.
async fn first_of<T>(
    attempts: impl Iterator<Item: Future<Output = Result<T, ConnectError>>>,
    pace: Duration,
) -> Result<T, Vec<ConnectError>> {
    let (mut running, mut errors) = (FuturesUnordered::new(), Vec::new());
    for attempt in attempts {
        running.push(attempt);
        match timeout(pace, running.next()).await {
            Ok(Some(Ok(success))) => return Ok(success),
            Ok(Some(Err(error))) => errors.push(error),
            Ok(None) | Err(_) => {}
        }
    }
    while let Some(ended) = running.next().await {
        match ended {
            Ok(success) => return Ok(success),
            Err(error) => errors.push(error),
        }
    }
    Err(errors)
}

/// One error for all attempts. A refusal by a server that answers says more than the network's.
fn together(errors: Vec<ConnectError>) -> ConnectError {
    let mut details: Vec<_> = errors.iter().map(|error| &*error.details).collect();
    details.dedup();
    let details = details.join("; ");
    let is_told = |kind: &ConnectErrorKind| *kind != ConnectErrorKind::Network;
    let kind = errors.iter().map(|error| error.kind).find(is_told);
    ConnectError {
        kind: kind.unwrap_or(ConnectErrorKind::Network),
        details,
    }
}

fn network(error: impl ToString) -> ConnectError {
    ConnectError {
        kind: ConnectErrorKind::Network,
        details: server_text::shown(&error.to_string()),
    }
}
