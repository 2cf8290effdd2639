//! How certificates of servers are checked.

/// How a client checks the certificates of servers: see
/// [`tls_verification`](crate::LockClientBuilder::tls_verification).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TlsVerification {
    /// The chain up to a trusted authority, the dates and the name.
    #[default]
    Full,
    /// The chain and the dates. Any server with a certificate of a trusted authority can play the server.
    Ca,
    /// Nothing. Any machine on the way can read the password and change the locks.
    None,
}
