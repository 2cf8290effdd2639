//! The parts of the library fred that connections use: the credentials of a caller's client. Only this file,
//! [`donor`](super::donor) and [`tls`](super::tls) name the library.

use std::sync::Arc;

use super::{
    HashSlot,
    connect_error::{ConnectError, ConnectErrorKind},
    endpoint::Endpoint,
};

/// The slot of a key on a cluster.
pub(crate) fn hash_slot(key: &[u8]) -> HashSlot {
    ::fred::util::redis_keyslot(key)
}

/// The library of a client that a caller may pass.
pub(crate) use ::fred::clients::Client as FredClient;

/// A fred client's own source of credentials.
#[derive(Clone)]
pub(super) struct Provider(pub(super) Arc<dyn ::fred::types::config::CredentialProvider>);

impl Provider {
    /// The user and password for the server at `endpoint`.
    pub(super) async fn credentials(
        &self,
        endpoint: &Endpoint,
    ) -> Result<(Option<String>, Option<String>), ConnectError> {
        let server = match endpoint {
            Endpoint::Tcp((host, port)) => {
                Some(::fred::types::config::Server::new(host.clone(), *port))
            }
            Endpoint::Unix(_) => None,
        };
        self.0
            .fetch(server.as_ref())
            .await
            .map_err(|error| ConnectError {
                kind: ConnectErrorKind::Network,
                details: format!("the credential provider failed: {}", error.details()),
            })
    }
}
