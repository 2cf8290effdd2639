//! What answers at the address of the configuration.

/// What answers at a single address: [`LockClientBuilder::endpoint_kind`](crate::LockClientBuilder::endpoint_kind).
///
/// A call of this crate carries operations of many lock names, if one server has all names. Behind a proxy that distributes names
/// over several servers, such a call would reach the server of its first name alone, and another client could get the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum EndpointKind {
    /// The client finds out for each connection. Names share calls only if the server's own view of the connection names this
    /// client's socket. Otherwise each name travels alone, which is safe and slower.
    #[default]
    Auto,
    /// One server has all names, although it sees another address than this client's, as behind a NAT, a tunnel or a TLS
    /// terminator. Names share calls. **Wrong behind a proxy that distributes names**: two owners could hold one lock.
    Server,
    /// A proxy, or one end point in front of a cluster, that distributes names over servers which the client cannot reach. Each name
    /// travels alone. A server that says that it belongs to a cluster is accepted. Messages use `PUBLISH` and `SUBSCRIBE`.
    Proxy,
}

impl EndpointKind {
    /// The kind of this name in a URL.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "server" => Some(Self::Server),
            "proxy" => Some(Self::Proxy),
            _ => None,
        }
    }
}
