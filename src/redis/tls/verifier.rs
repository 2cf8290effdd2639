//! Checks a server's certificate as far as the client's settings ask for it.

use super::library::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use crate::tls_verification::TlsVerification;

#[derive(Debug)]
pub(super) struct Verifier {
    verification: TlsVerification,
    authorities: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// Fails if none of the `authorities` can be used.
    pub(super) fn new(
        verification: TlsVerification,
        authorities: Vec<CertificateDer<'static>>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let mut reason = None;
        for authority in &authorities {
            reason = roots.add(authority.clone()).err().or(reason);
        }
        match reason {
            Some(reason) if roots.is_empty() => Err(reason.to_string()),
            _ => Ok(Self {
                verification,
                authorities,
                roots,
                algorithms,
            }),
        }
    }

    /// Whether the certificate is one of the authorities itself, as a self-signed one by `openssl req -x509` is. The library
    /// refuses an authority as a server, after it has checked the dates.
    fn is_trusted_itself(&self, certificate: &CertificateDer<'_>, error: &Error) -> bool {
        matches!(error, Error::InvalidCertificate(CertificateError::Other(inner))
            if format!("{:?}", inner.0) == "CaUsedAsEndEntity")
            && self.authorities.contains(certificate)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.verification == TlsVerification::None {
            return Ok(ServerCertVerified::assertion());
        }
        let parsed = ParsedCertificate::try_from(certificate)?;
        let all = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, all)
            .or_else(|error| match self.is_trusted_itself(certificate, &error) {
                true => Ok(()),
                false => Err(error),
            })?;
        if self.verification == TlsVerification::Full {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.verification {
            // The library reads no certificate of version 1, and the key of an unchecked one proves nothing.
            TlsVerification::None => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls12_signature(message, certificate, signature, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.verification {
            TlsVerification::None => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls13_signature(message, certificate, signature, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
