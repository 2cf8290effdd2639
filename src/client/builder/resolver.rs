//! A program's own way from host names to addresses.

use std::{fmt, net::SocketAddr};

use super::LockClientBuilder;
use crate::redis::Resolver;

impl LockClientBuilder {
    /// Finds the addresses of host names by `resolver`, instead of the system's resolver.
    ///
    /// The client asks it once for each attempt to connect to a name, of whatever origin: the URL, a sentinel, a node of a
    /// cluster. It is not asked about IP addresses. A name may have several addresses. The client tries first the one that worked
    /// last, and the rest in the order of the answer: each 250 ms after the one before it, or at once when that one fails. The
    /// first that accepts a connection is used, so an address that leads nowhere delays no lock for long. The system's resolver is
    /// used in the same way. At most 16 addresses are tried.
    ///
    /// A call counts in the time for one connection, [`connect_timeout`](Self::connect_timeout). A call that returns an error, no
    /// address, or panics is a failed attempt, which the client repeats. The call runs in a task of its own on the client's
    /// runtime: use [`tokio::task::spawn_blocking`] for code that blocks. Certificates are checked against the name, not the
    /// address.
    ///
    /// # Redisson
    ///
    /// `addressResolverGroupFactory`, with `dnsMonitoringInterval`: this client has no interval, because it resolves a name for
    /// each new connection.
    ///
    /// # Examples
    ///
    /// Servers that a service registry knows:
    ///
    /// ```no_run
    /// # async fn registered(name: &str) -> Result<Vec<std::net::IpAddr>, std::io::Error> { Ok(Vec::new()) }
    /// # async fn example() -> Result<(), redisson_lock::Error> {
    /// use std::net::SocketAddr;
    ///
    /// let client = redisson_lock::LockClient::builder()
    ///     .url("redis://locks.service.consul:6379")
    ///     .resolver(|host, port| async move {
    ///         let found = registered(&host).await?;
    ///         let found = found.into_iter().map(|ip| SocketAddr::new(ip, port));
    ///         Ok::<_, std::io::Error>(found.collect())
    ///     })
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "addressResolverGroupFactory")]
    pub fn resolver<F, Fut, E>(mut self, resolver: F) -> Self
    where
        F: Fn(String, u16) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<SocketAddr>, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.resolver = Some(Resolver::new(resolver));
        self
    }
}
