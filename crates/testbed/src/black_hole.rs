//! An address that answers nothing, as behind a firewall that drops packets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::forwarder::forward;

/// The longest time that a connection over loopback takes, on a busy machine.
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);

/// A loopback port whose listener accepts no connection. Its queue is full, so the kernel drops each further SYN.
#[derive(Debug)]
pub struct BlackHole {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    leading: JoinSet<()>,
    queued: Vec<TcpStream>,
}

impl BlackHole {
    /// Opens one on a free port.
    pub async fn open() -> Self {
        let mut hole = Self::leading_to(None);
        hole.swallow().await;
        hole
    }

    /// Opens a port that leads to a server until it [`swallow`](Self::swallow)s its connections.
    pub fn before(server: u16) -> Self {
        Self::leading_to(Some(server))
    }

    fn leading_to(server: Option<u16>) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        let bound = socket.bind((Ipv4Addr::LOCALHOST, 0).into());
        bound.expect("a port is free");
        let listener = Arc::new(socket.listen(1).expect("the socket can listen"));
        let address = listener.local_addr().expect("a listener has an address");
        let mut leading = JoinSet::new();
        if let Some(server) = server {
            leading.spawn(forward(listener.clone(), server, Arc::default()));
        }
        Self {
            address,
            listener,
            leading,
            queued: Vec::new(),
        }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, and answers no SYN from now on.
    pub async fn swallow(&mut self) {
        self.leading.shutdown().await;
        assert!(Arc::strong_count(&self.listener) == 1, "no task accepts");
        loop {
            let connecting = TcpStream::connect(self.address);
            let Ok(connected) = timeout(CONNECTED_WITHIN, connecting).await else {
                return;
            };
            let connected = connected.expect("the queue takes a connection");
            self.queued.push(connected);
        }
    }
}
