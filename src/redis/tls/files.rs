//! The files of a client's TLS settings, which are read for each connection.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use ::fred::{
    rustls::{
        ClientConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
    types::config::TlsConnector,
};
use sha1_smol::{Digest, Sha1};

use super::{Identity, TlsSettings, verifier::Verifier};
use crate::{error::Error, sync::lock, tls_verification::TlsVerification};

/// The files, and what they led to when they were last read.
pub(super) struct Files {
    ca: Option<PathBuf>,
    identity: Option<Identity>,
    pub(super) verification: TlsVerification,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    good: Option<(Digest, TlsConnector)>,
    /// Whether the present fault has been logged.
    is_told: bool,
}

/// What the files say.
struct Contents {
    authorities: Vec<CertificateDer<'static>>,
    /// The texts of the client's certificate and key.
    identity: Option<[Vec<u8>; 2]>,
}

impl Files {
    pub(super) fn new(settings: &TlsSettings) -> Self {
        Self {
            ca: settings.ca.clone(),
            identity: settings.identity.clone(),
            verification: settings.servers.verification.unwrap_or_default(),
            last: Mutex::default(),
        }
    }

    /// Reads the files. Keeps what they last led to while they say the same, and while they are unusable: a program that
    /// replaces them may have written half.
    pub(super) fn current(&self) -> Result<TlsConnector, Error> {
        let contents = self.read();
        let digest = contents.as_ref().ok().map(Contents::digest);
        if let Some((last, connector)) = &lock(&self.last).good
            && Some(last) == digest.as_ref()
        {
            return Ok(connector.clone());
        }
        let made = contents.and_then(|contents| self.connector(contents));
        let mut last = lock(&self.last);
        match (made, &last.good) {
            (Ok(connector), _) => {
                last.is_told = false;
                last.good = digest.map(|digest| (digest, connector.clone()));
                Ok(connector)
            }
            (Err(error), Some((_, connector))) => {
                let connector = connector.clone();
                if !std::mem::replace(&mut last.is_told, true) {
                    let error = error.to_string();
                    tracing::warn!(
                        error,
                        "the TLS files cannot be used; connecting with the last good ones"
                    );
                }
                Ok(connector)
            }
            (Err(error), None) => Err(error),
        }
    }

    fn read(&self) -> Result<Contents, Error> {
        let authorities = match &self.ca {
            Some(ca) => certificates("ca_file", ca, &read("ca_file", ca)?)?,
            // Without verification, a system without authorities will do.
            None if self.verification == TlsVerification::None => Vec::new(),
            None => authorities_of_the_system()?,
        };
        let text = |file| read("client_certificate", file);
        let identity = self.identity.as_ref();
        let identity = identity.map(|files| Ok([text(&files.certificate)?, text(&files.key)?]));
        Ok(Contents {
            authorities,
            identity: identity.transpose()?,
        })
    }

    fn connector(&self, contents: Contents) -> Result<TlsConnector, Error> {
        let provider = ring::default_provider();
        let algorithms = provider.signature_verification_algorithms;
        let verifier = Verifier::new(self.verification, contents.authorities, algorithms);
        let verifier = verifier.map_err(|reason| match &self.ca {
            Some(ca) => unreadable("ca_file", ca, &reason),
            None => no_authorities(&reason),
        })?;
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let (Some(files), Some([certificate, key])) = (&self.identity, &contents.identity) else {
            return Ok(TlsConnector::from(config.with_no_client_auth()));
        };
        const SETTING: &str = "client_certificate";
        let chain = certificates(SETTING, &files.certificate, certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| unreadable(SETTING, &files.key, &error.to_string()))?;
        let config = config.with_client_auth_cert(chain, key);
        let config =
            config.map_err(|error| unreadable(SETTING, &files.certificate, &error.to_string()))?;
        Ok(TlsConnector::from(config))
    }
}

impl Contents {
    fn digest(&self) -> Digest {
        let mut sha = Sha1::new();
        let authorities = self.authorities.iter().map(|one| &**one);
        let identity = self.identity.iter().flatten().map(|text| &**text);
        for part in authorities.chain(identity) {
            // The length tells apart parts that continue one another.
            sha.update(&part.len().to_le_bytes());
            sha.update(part);
        }
        sha.digest()
    }
}

/// The authorities of the system. One that cannot be read is left out, unless none can.
fn authorities_of_the_system() -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = ::fred::rustls_native_certs::load_native_certs();
    match found.errors.first() {
        Some(error) if found.certs.is_empty() => Err(no_authorities(&error.to_string())),
        _ => Ok(found.certs),
    }
}

fn no_authorities(reason: &str) -> Error {
    Error::config(format!(
        "the system's certificates cannot be read: {reason}"
    ))
}

fn read(setting: &str, file: &Path) -> Result<Vec<u8>, Error> {
    let bytes =
        std::fs::read(file).map_err(|error| unreadable(setting, file, &error.to_string()))?;
    // Java's: JKS, and PKCS#12, which is DER.
    if bytes.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) || bytes.starts_with(&[0x30, 0x82]) {
        return Err(unreadable(
            setting,
            file,
            "the file is a Java key store or DER, and must be PEM: convert JKS by `keytool -importkeystore \
             -srckeystore <file> -destkeystore store.p12 -deststoretype PKCS12`, and PKCS#12 by `openssl pkcs12 -in \
             store.p12 -nodes -out store.pem`",
        ));
    }
    Ok(bytes)
}

fn unreadable(setting: &str, file: &Path, reason: &str) -> Error {
    Error::config(format!("{setting} {}: {reason}", file.display()))
}

fn certificates(
    setting: &str,
    file: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| unreadable(setting, file, &error.to_string()))?;
    match found.is_empty() {
        true => Err(unreadable(
            setting,
            file,
            "the file contains no certificate in PEM format",
        )),
        false => Ok(found),
    }
}
