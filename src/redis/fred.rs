//! The parts of the library fred that connections use: the credentials of a caller's client. Only this file,
//! [`donor`](super::donor) and [`tls`](super::tls) name the library.

use std::sync::Arc;

use super::{HashSlot, provider::Provider};
use crate::credentials::{Credentials, CredentialsRequest};

/// The slot of a key on a cluster.
pub(crate) fn hash_slot(key: &[u8]) -> HashSlot {
    ::fred::util::redis_keyslot(key)
}

/// The library of a client that a caller may pass.
pub(crate) use ::fred::clients::Client as FredClient;

/// A fred client's own source of credentials.
pub(super) fn provider(source: Arc<dyn ::fred::types::config::CredentialProvider>) -> Provider {
    Provider::new(move |CredentialsRequest { host, port, .. }| {
        let source = source.clone();
        async move {
            let server = (port != 0).then(|| ::fred::types::config::Server::new(host, port));
            let fetched = source.fetch(server.as_ref()).await;
            let (username, password) = fetched.map_err(|error| error.details().to_owned())?;
            let credentials = Credentials {
                username,
                password,
                end: None,
            };
            Ok::<_, String>(match source.refresh_interval() {
                Some(interval) => credentials.valid_for(interval),
                None => credentials,
            })
        }
    })
}
