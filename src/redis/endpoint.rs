//! The address of a server, and the transport to it.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::server_text;

/// A host and a port.
pub(crate) type Address = (String, u16);

/// Maps the address that a node announces to the address at which this client reaches it.
pub(crate) type AddressMap = Arc<dyn Fn(&str, u16) -> Address + Send + Sync>;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Tcp(Address),
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp((host, port)) => write!(f, "{}:{port}", server_text::shown(host)),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Endpoint {
    /// A placeholder for an unknown address: of a master that nodes will name, or of a node of a cluster.
    pub(crate) fn unknown() -> Self {
        Endpoint::Tcp((String::new(), 0))
    }
}

/// This client's end of a connection.
#[derive(Debug, Clone)]
pub(crate) enum OwnEnd {
    Tcp {
        own: SocketAddr,
        peer: SocketAddr,
    },
    /// The path of the server's socket.
    Unix(PathBuf),
    /// A server in this process.
    #[cfg_attr(not(any(test, feature = "transport")), expect(dead_code))]
    InProcess,
    /// A transport of the program knows it.
    #[cfg_attr(not(feature = "transport"), expect(dead_code))]
    Unknown,
}

/// The transport of the bytes.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}
