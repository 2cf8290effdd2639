//! Connections over TCP, TLS and unix sockets, with the crate's own RESP.
//!
//! fred takes no part in them. It sends the handshake as an inline command with unescaped credentials. It logs servers'
//! messages with the arguments that they echo. Its decoder recurses into nested values until the stack overflows and the
//! process ends. It treats `CLUSTERDOWN` as the end of a connection.
//!
//! - [`dial`]: opens a socket at one of the server's addresses.
//! - [`driver`]: the only task of a socket, which moves its bytes.
//! - [`resp`]: encodes commands and decodes values.

mod dial;
mod driver;
mod resp;

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::{
    BoxFuture,
    connect_error::{ConnectError, ConnectErrorKind},
    credentials_provider::CredentialsProvider,
    endpoint::{Endpoint, Socket},
    handshake::{Handshake, Version},
    log_in::{Failed, Greeted, RefusedHandshakes, shake_hands_until},
    opener::{Answer, ConnectOptions, Opened, Opener, ServerConfig, SocketOptions},
    reauthentication::Reauthentication,
    reconnect::KnownServer,
    time_limits::PAUSED_CLOCK_LEAD,
    tls::Tls,
};
use crate::{
    error::Error,
    transport::{Connection, Pushed, TransportError},
};
use dial::{Dialed, Peer, in_share, together};
use driver::{Driver, Received, Request};

pub(super) use dial::Dialer;
#[cfg(test)]
pub(super) use resp::{Decoded, Decoder};

/// Opens sockets.
#[derive(Clone)]
pub(super) struct Sockets {
    pub(super) dialer: Dialer,
    /// The source of credentials before each connection, if not the configuration.
    pub(super) provider: Option<CredentialsProvider>,
    /// The longest time that a connection may take to open, if the client sets it.
    pub(super) wait: Option<Duration>,
}

impl Sockets {
    pub(super) fn plain() -> Arc<dyn Opener> {
        Self::by(Dialer::default())
    }

    pub(super) fn encrypted() -> Result<Arc<dyn Opener>, Error> {
        Ok(Self::by(Dialer {
            tls: Some(Tls::of_the_system()?),
            resolver: None,
        }))
    }

    fn by(dialer: Dialer) -> Arc<dyn Opener> {
        Arc::new(Self {
            dialer,
            provider: None,
            wait: None,
        })
    }

    /// How long a connection may take to open.
    fn wait_of(&self, options: ConnectOptions) -> Duration {
        self.wait
            .map_or(options.timeout, |wait| wait.min(options.timeout))
    }

    /// Opens a connection within `wait`. The source of credentials is asked first.
    async fn open_within(
        self,
        wait: Duration,
        mut server: ServerConfig,
        options: ConnectOptions,
    ) -> Result<Opened, ConnectError> {
        let (began, deadline) = (Instant::now(), Instant::now() + wait);
        let (mut end, mut asked) = (None, Duration::ZERO);
        if let Some(provider) = &self.provider {
            let asking = provider.credentials(&server.endpoint, options.is_sentinel, deadline);
            let credentials = asking.await?;
            server.log_in_as(credentials.username, credentials.password);
            (end, asked) = (credentials.end, began.elapsed());
        }
        let opened = timeout_at(deadline, self.open(&server, options, end, deadline)).await;
        opened.unwrap_or_else(|_| {
            Err(match asked > wait / 2 {
                // The server is not to blame, nor other connections to it to pause.
                true => ConnectError {
                    kind: ConnectErrorKind::Provider,
                    details: format!("it took {asked:?} of the {wait:?} of the connection"),
                },
                false => ConnectError::timeout(),
            })
        })
    }

    /// Opens a connection at one of the server's hosts. Those of a node of a cluster are tried one after the other, because the
    /// host that it does not prefer may lead to another server from here.
    async fn open(
        &self,
        server: &ServerConfig,
        options: ConnectOptions,
        end: Option<Instant>,
        deadline: Instant,
    ) -> Result<Opened, ConnectError> {
        let known = server.servers.at(&server.endpoint);
        let named = match &server.endpoint {
            Endpoint::Unix(path) => {
                let peers = vec![Peer::Unix(path.clone())];
                return self
                    .open_peers(peers, &known, server, options, end, deadline)
                    .await;
            }
            Endpoint::Tcp(named) => named,
        };
        let mut hosts = known.address_order.hosts(named).into_iter();
        let mut errors = Vec::new();
        while let Some(host) = hosts.next() {
            let opening = async {
                let peers = self.dialer.peers(&host, &known.address_order).await?;
                let opening = self.open_peers(peers, &known, server, options, end, deadline);
                opening.await
            };
            match in_share(opening, deadline, hosts.len()).await {
                Some(Ok(opened)) => return Ok(opened),
                Some(Err(error)) if error.kind.is_of_the_server() => return Err(error),
                Some(Err(error)) => errors.push(error),
                None => errors.push(ConnectError::timeout()),
            }
        }
        Err(together(errors))
    }

    /// Opens a connection to one of `peers`.
    async fn open_peers(
        &self,
        mut peers: Vec<Peer>,
        known: &KnownServer,
        server: &ServerConfig,
        options: ConnectOptions,
        end: Option<Instant>,
        deadline: Instant,
    ) -> Result<Opened, ConnectError> {
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            let (dialed, peer) = self.dialer.dial_one(&mut peers, wait).await?;
            let opening = self.open_at(dialed, &peer, server, options, end);
            // A peer that accepts sockets and answers nothing leaves time for the next address.
            let opened = in_share(opening, deadline, peers.len()).await;
            if let Peer::Tcp(address) = peer {
                match opened {
                    Some(Ok(_)) => known.address_order.worked(address),
                    _ => known.address_order.failed(address),
                }
            }
            if let Some(opened) = opened {
                return opened;
            }
        }
    }

    /// Opens a connection over a socket, or over further ones to the same peer.
    async fn open_at(
        &self,
        dialed: Dialed,
        peer: &Peer,
        server: &ServerConfig,
        options: ConnectOptions,
        end: Option<Instant>,
    ) -> Result<Opened, ConnectError> {
        let mut refused = RefusedHandshakes::default();
        let mut dialed = Some(dialed);
        for handshake in options.handshakes {
            let opening = async {
                let dialed = match dialed.take() {
                    Some(dialed) => dialed,
                    // The other addresses of the name may lead to another server.
                    None => self.dialer.dial(peer).await?,
                };
                self.open_by(*handshake, dialed, server, options, end).await
            };
            let failed = match opening.await {
                Ok(mut opened) => {
                    opened.host = match peer {
                        Peer::Tcp((host, _)) => Some(host.clone()),
                        Peer::Unix(_) => None,
                    };
                    return Ok(opened);
                }
                Err(failed) => failed,
            };
            refused.add(failed, options, &server.endpoint)?;
        }
        Err(refused.into_error())
    }

    /// Opens a connection by one handshake. A server may close the connection after it has refused another handshake.
    async fn open_by(
        &self,
        handshake: Handshake,
        Dialed { socket, own_end }: Dialed,
        server: &ServerConfig,
        options: ConnectOptions,
        end: Option<Instant>,
    ) -> Result<Opened, Failed> {
        let reauthentication = end.zip(self.provider.clone());
        let reauthentication = reauthentication.map(|(end, provider)| Reauthentication {
            provider,
            server: server.clone(),
            is_sentinel: options.is_sentinel,
            wait: self.wait_of(options),
            version: handshake.version(),
            end,
        });
        let (open, mut task) = SocketConnection::start(
            socket,
            server,
            options,
            handshake.version(),
            reauthentication,
        );
        let greeted = shake_hands_until(&mut task, &open, server, handshake).await;
        let Greeted { greeting, info } = greeted?;
        Ok(Opened {
            connection: Arc::new(open),
            ended: Box::pin(task),
            info,
            greeting,
            handshake,
            own_end,
            host: None,
        })
    }
}

impl Opener for Sockets {
    fn connect(
        &self,
        server: &ServerConfig,
        options: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>> {
        let (server, wait) = (server.clone(), self.wait_of(options));
        let opening = self.clone().open_within(wait, server, options);
        Box::pin(async move {
            let clocks = Clocks::now();
            match opening.await {
                Err(_) if clocks.differ() => Err(ConnectError::paused_clock()),
                opened => opened,
            }
        })
    }

    fn has_credentials(&self) -> bool {
        self.provider.is_some()
    }

    fn is_encrypted(&self) -> bool {
        self.dialer.tls.is_some()
    }

    fn on(&self, options: &SocketOptions) -> Option<Arc<dyn Opener>> {
        let mut sockets = self.clone();
        sockets.dialer.tls = options.tls.clone().or(sockets.dialer.tls);
        if let Some(resolver) = &options.resolver {
            sockets.dialer.resolver = Some(resolver.clone());
        }
        if let Some(provider) = &options.provider {
            sockets.provider = Some(provider.clone());
        }
        sockets.wait = options.wait.or(self.wait);
        Some(Arc::new(sockets))
    }
}

/// The time by tokio's clock and by the machine's. They differ while a test has paused tokio's clock.
struct Clocks(tokio::time::Instant, std::time::Instant);

impl Clocks {
    fn now() -> Self {
        Self(tokio::time::Instant::now(), std::time::Instant::now())
    }

    fn differ(&self) -> bool {
        self.0.elapsed() > self.1.elapsed() + PAUSED_CLOCK_LEAD
    }
}

/// The task that moves a connection's bytes. It completes when the connection ends. Its drop closes the socket, and calls
/// fail.
struct DriverTask(JoinHandle<String>);

impl Future for DriverTask {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<String> {
        let ended = Pin::new(&mut self.0).poll(context);
        ended.map(|ended| ended.unwrap_or_else(|_| "the connection ended".into()))
    }
}

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An open connection.
struct SocketConnection {
    requests: mpsc::UnboundedSender<Request>,
    /// `None` once a caller has taken them.
    received: Mutex<Option<Received>>,
}

impl SocketConnection {
    fn start(
        socket: Box<dyn Socket>,
        server: &ServerConfig,
        options: ConnectOptions,
        version: Version,
        reauthentication: Option<Reauthentication>,
    ) -> (Self, DriverTask) {
        let (requests, taken) = mpsc::unbounded_channel();
        let (messages, received) = driver::messages(options.messages);
        let password = server.password.clone().unwrap_or_default();
        let driver = Driver::new(socket, version, password, taken, messages);
        let for_logins = Self {
            requests: requests.clone(),
            received: Mutex::default(),
        };
        let moving: BoxFuture<_> = match reauthentication {
            None => Box::pin(driver.run()),
            Some(reauthentication) => Box::pin(async move {
                tokio::select! {
                    biased;
                    reason = driver.run() => reason,
                    reason = reauthentication.keep(&for_logins) => reason,
                }
            }),
        };
        let open = Self {
            requests,
            received: Mutex::new(Some(received)),
        };
        (open, DriverTask(tokio::spawn(moving)))
    }
}

impl Connection for SocketConnection {
    fn send(&self, name: &'static str, args: Vec<Bytes>) -> Answer<'_> {
        Box::pin(async move {
            let ended = || TransportError::new("the connection ended");
            let (answer, answered) = oneshot::channel();
            let request = Request { name, args, answer };
            if self.requests.send(request).is_err() {
                return Err(ended());
            }
            answered.await.unwrap_or_else(|_| Err(ended()))
        })
    }

    fn messages(&self) -> Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(stream::unfold(received.take(), |received| async move {
            let mut received = received?;
            Some((received.next().await?, Some(received)))
        }))
    }
}
