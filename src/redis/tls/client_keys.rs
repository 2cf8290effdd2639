//! The client's keys, and which of them it presents.

use std::sync::Arc;

use super::{
    library::rustls::{
        SignatureScheme, client::ResolvesClientCert, crypto::CryptoProvider,
        pki_types::CertificateDer, sign::CertifiedKey,
    },
    store::Entry,
};

/// The client's certificates with their keys, in the order of the file.
#[derive(Debug)]
pub(super) struct ClientKeys(Vec<Arc<CertifiedKey>>);

impl ClientKeys {
    /// Leaves out keys that the TLS library cannot use, unless it can use none.
    pub(super) fn new(entries: Vec<Entry>, provider: &CryptoProvider) -> Result<Self, String> {
        let mut reason = "the file contains no private key with a certificate".to_owned();
        let mut keys = Vec::new();
        for entry in entries {
            let Entry { chain, key } = entry.completed();
            match CertifiedKey::from_der(chain, key, provider) {
                Ok(key) => keys.push(Arc::new(key)),
                Err(error) => {
                    reason = format!(
                        "the private key cannot be used ({error}): it must belong to the certificate, and be of RSA, P-256, \
                         P-384 or Ed25519"
                    );
                }
            }
        }
        match keys.is_empty() {
            true => Err(reason),
            false => Ok(Self(keys)),
        }
    }
}

impl ResolvesClientCert for ClientKeys {
    /// The first key that signs as the server asks, of an authority that the server names if there is one.
    fn resolve(
        &self,
        authorities: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let Self(keys) = self;
        let signs = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let is_named = |key: &&Arc<CertifiedKey>| {
            let mut names = authorities.iter().filter(|name| !name.is_empty());
            names.any(|name| key.cert.iter().any(|one| mentions(one, name)))
        };
        let mut suitable = keys.iter().filter(signs);
        let first = suitable.clone().find(is_named);
        first
            .or_else(|| suitable.next())
            .or_else(|| keys.first())
            .cloned()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Whether the certificate contains `name` in DER, as its subject or its issuer.
fn mentions(certificate: &CertificateDer<'_>, name: &[u8]) -> bool {
    certificate.windows(name.len()).any(|part| part == name)
}
