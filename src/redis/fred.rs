//! The library of a client that a caller may pass, and its source of credentials. Only this file, [`donor`](super::donor) and
//! `tls/of_fred.rs` name the library.

use std::sync::Arc;

use super::credentials_provider::CredentialsProvider;
use crate::credentials::{Credentials, CredentialsRequest};

/// The library of a client that a caller may pass.
pub(crate) use ::fred::clients::Client as FredClient;

/// A fred client's own source of credentials.
pub(super) fn provider(
    source: Arc<dyn ::fred::types::config::CredentialProvider>,
) -> CredentialsProvider {
    CredentialsProvider::new(move |CredentialsRequest { host, port, .. }| {
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

#[cfg(test)]
mod tests {
    use crate::redis::hash_slot::hash_slot;

    #[test]
    fn slots_are_those_of_fred() {
        for _ in 0..20_000 {
            let byte = || match fastrand::u8(..8) {
                0 => fastrand::u8(..),
                chosen => b"{}{}abc"[usize::from(chosen) - 1],
            };
            let key: Vec<u8> = std::iter::repeat_with(byte)
                .take(fastrand::usize(..12))
                .collect();
            let expected = ::fred::util::redis_keyslot(&key);
            assert_eq!(hash_slot(&key), expected, "{}", key.escape_ascii());
        }
    }
}
