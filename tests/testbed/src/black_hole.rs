//! An address that answers nothing, as behind a firewall that drops packets.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

/// The longest time that a connection over loopback takes, on a busy machine.
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);

/// A loopback port whose listener accepts no connection. Its queue is full, so the kernel drops each further SYN.
#[derive(Debug)]
pub struct BlackHole {
    address: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl BlackHole {
    /// Opens one on a free port.
    pub async fn open() -> Self {
        Self::on(0).await
    }

    /// Opens one on `port`.
    pub async fn on(port: u16) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.set_reuseaddr(true).expect("a port can be reused");
        let bound = socket.bind((Ipv4Addr::LOCALHOST, port).into());
        bound.expect("the port is free");
        let listener = socket.listen(1).expect("the socket can listen");
        let address = listener.local_addr().expect("a listener has an address");
        let mut queued = Vec::new();
        while let Ok(connected) = timeout(CONNECTED_WITHIN, TcpStream::connect(address)).await {
            queued.push(connected.expect("the queue takes a connection"));
        }
        Self {
            address,
            _listener: listener,
            _queued: queued,
        }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
