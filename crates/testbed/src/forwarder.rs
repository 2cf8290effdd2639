//! Another address of a server, as behind a tunnel.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::task::JoinSet;

/// Forwards connections to a loopback port, whatever they carry. Dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl Forwarder {
    /// Forwards from a free loopback port to the port `to`.
    pub async fn start(to: u16) -> Self {
        Self::bind((Ipv4Addr::LOCALHOST, 0), to).await
    }

    /// Forwards from `address` to the loopback port `to`. It ends connections while no server listens there.
    pub async fn bind(address: impl ToSocketAddrs, to: u16) -> Self {
        let listener = TcpListener::bind(address).await;
        let listener = Arc::new(listener.expect("the address is free"));
        let address = listener.local_addr().expect("a listener has an address");
        let connections = Arc::<AtomicUsize>::default();
        let mut accepting = JoinSet::new();
        accepting.spawn(forward(listener, to, connections.clone()));
        Self {
            address,
            connections,
            _accepting: accepting,
        }
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The number of connections that it has accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

pub(crate) async fn forward(listener: Arc<TcpListener>, to: u16, connections: Arc<AtomicUsize>) {
    let mut links = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::Relaxed);
        links.spawn(async move {
            let mut far = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await?;
            copy_bidirectional(&mut near, &mut far).await
        });
    }
}
