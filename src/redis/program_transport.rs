//! Connections by a transport of the program.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    BoxFuture,
    connect_error::{ConnectError, ConnectErrorKind},
    endpoint::{Address, Endpoint, OwnEnd},
    handshake::Handshake,
    log_in::{Failed, Greeted, RefusedHandshakes, shake_hands},
    opener::{ConnectOptions, Opened, Opener, ServerConfig, SocketOptions},
};
use crate::{
    server_text,
    transport::{self, Link},
};

/// A transport of the program.
#[derive(Clone)]
pub(super) struct ProgramTransport {
    transport: Arc<dyn transport::Transport>,
    /// The longest time that a connection may take to open, if the client sets it.
    wait: Option<Duration>,
}

impl ProgramTransport {
    pub(super) fn new(transport: Arc<dyn transport::Transport>) -> Self {
        Self {
            transport,
            wait: None,
        }
    }

    /// Opens a connection by the first handshake that the server accepts.
    async fn open(
        &self,
        server: &ServerConfig,
        options: ConnectOptions,
    ) -> Result<Opened, ConnectError> {
        let Endpoint::Tcp(address) = &server.endpoint else {
            return Err(ConnectError {
                kind: ConnectErrorKind::Config,
                details: "a transport reaches hosts and ports, not sockets of this machine".into(),
            });
        };
        let mut refused = RefusedHandshakes::default();
        for handshake in options.handshakes {
            match self.open_by(*handshake, address, server).await {
                Ok(opened) => return Ok(opened),
                Err(failed) => refused.add(failed, options, &server.endpoint)?,
            }
        }
        Err(refused.into_error())
    }

    /// Opens a connection and logs in. Both may fail for the network, of which only the transport knows: a connection
    /// that ends meanwhile says nothing about the handshake.
    async fn open_by(
        &self,
        handshake: Handshake,
        (host, port): &Address,
        server: &ServerConfig,
    ) -> Result<Opened, Failed> {
        let of_the_network = |details: String| ConnectError {
            kind: ConnectErrorKind::Network,
            details: server_text::shown(&details),
        };
        let linked = self.transport.connect(host, *port).await;
        let Link {
            connection,
            mut ended,
        } = linked.map_err(of_the_network)?;
        let greeted = tokio::select! {
            biased;
            greeted = shake_hands(&*connection, server, handshake) => greeted,
            reason = &mut ended => return Err(of_the_network(reason).into()),
        };
        let Greeted { greeting, info } = greeted.map_err(|failed| match failed.error.kind {
            ConnectErrorKind::Closed => of_the_network(failed.error.details).into(),
            _ => failed,
        })?;
        let own_end = match self.transport.is_in_process() {
            true => OwnEnd::InProcess,
            false => OwnEnd::Unknown,
        };
        Ok(Opened {
            connection,
            ended,
            info,
            greeting,
            handshake,
            own_end,
            host: None,
        })
    }
}

impl Opener for ProgramTransport {
    fn connect(
        &self,
        server: &ServerConfig,
        options: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>> {
        let (transport, mut server) = (self.clone(), server.clone());
        if self.transport.is_in_process() {
            // A name tells processes apart by the id of this process, with which a simulation would differ each time.
            server.connection_name = None;
        }
        let wait = self
            .wait
            .map_or(options.timeout, |wait| wait.min(options.timeout));
        Box::pin(async move {
            let opened = timeout(wait, transport.open(&server, options)).await;
            opened.unwrap_or_else(|_| Err(ConnectError::timeout()))
        })
    }

    fn on(&self, options: &SocketOptions) -> Option<Arc<dyn Opener>> {
        Some(Arc::new(Self {
            wait: options.wait.or(self.wait),
            ..self.clone()
        }))
    }

    fn is_reached_from_anywhere(&self) -> bool {
        !self.transport.is_in_process()
    }

    fn may_refuse_messages(&self) -> bool {
        !self.transport.is_in_process()
    }
}
