//! The files of a client's TLS settings, which are read for each connection.

use std::{
    io::Read,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use sha1_smol::{Digest, Sha1};

use super::{
    SecretFile, TlsSettings,
    client_keys::ClientKeys,
    library::{
        TlsConnector, ciphers, load_native_certs,
        rustls::{ClientConfig, crypto::CryptoProvider, pki_types::CertificateDer},
    },
    store::{self, Entry, Form, unusable},
    verifier::Verifier,
};
use crate::{error::Error, sync::lock, tls_verification::TlsVerification};

/// A file beyond this size is none of certificates: those of all authorities take 0.3 MiB.
const MOST: u64 = 8 << 20;

/// The files, and what they led to when they were last read.
pub(super) struct Files {
    ca: Option<SecretFile>,
    identity: Option<(SecretFile, Option<PathBuf>)>,
    pub(super) verification: TlsVerification,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    good: Option<(Digest, TlsConnector)>,
    /// The contents that were unusable, and why: a key store may take long to try.
    bad: Option<(Digest, Error)>,
    /// The fault that has been logged.
    told: Option<Error>,
}

/// What the files say.
struct Contents {
    authorities: Authorities,
    /// The bytes of the client's certificate and key.
    identity: Option<[Vec<u8>; 2]>,
}

enum Authorities {
    OfFile(SecretFile, Vec<u8>),
    OfSystem(Vec<CertificateDer<'static>>),
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
    /// replaces them may have written half. The second value is a fault that the log does not have yet.
    pub(super) fn current(&self) -> Result<(TlsConnector, Option<Error>), Error> {
        // Several connections at once read and try new files once.
        let mut last = lock(&self.last);
        let made = self.read().and_then(|contents| {
            let digest = contents.digest();
            match (&last.good, &last.bad) {
                (Some((good, connector)), _) if *good == digest => Ok(connector.clone()),
                (_, Some((bad, error))) if *bad == digest => Err(error.clone()),
                _ => match self.connector(contents) {
                    Ok(connector) => {
                        last.good = Some((digest, connector.clone()));
                        Ok(connector)
                    }
                    Err(error) => {
                        last.bad = Some((digest, error.clone()));
                        Err(error)
                    }
                },
            }
        });
        let error = match made {
            Ok(connector) => {
                last.told = None;
                return Ok((connector, None));
            }
            Err(error) => error,
        };
        let Some((_, connector)) = &last.good else {
            return Err(error);
        };
        let connector = connector.clone();
        let is_new = last.told.as_ref() != Some(&error);
        last.told = Some(error.clone());
        Ok((connector, is_new.then_some(error)))
    }

    fn read(&self) -> Result<Contents, Error> {
        let authorities = match &self.ca {
            Some(ca) => Authorities::OfFile(ca.clone(), read(ca)?),
            // Without verification, a system without authorities will do.
            None if self.verification == TlsVerification::None => Authorities::OfSystem(Vec::new()),
            None => Authorities::OfSystem(authorities_of_the_system()?),
        };
        let identity = self.identity.as_ref().map(|(certificate, key)| {
            let bytes = read(certificate)?;
            let key = match key {
                Some(path) => read(&certificate.at(path))?,
                None => bytes.clone(),
            };
            Ok([bytes, key])
        });
        Ok(Contents {
            authorities,
            identity: identity.transpose()?,
        })
    }

    fn connector(&self, contents: Contents) -> Result<TlsConnector, Error> {
        let provider = ciphers();
        let verifier = self.verifier(contents.authorities, &provider)?;
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let (Some((file, key)), Some([bytes, key_bytes])) = (&self.identity, &contents.identity)
        else {
            return Ok(Arc::new(config.with_no_client_auth()).into());
        };
        let mut held = store::read(file, bytes)?;
        if Form::of(bytes) == Form::Pem {
            let key = store::pem_key(key_bytes).map_err(|reason| match key {
                Some(path) => unusable(&file.at(path), &reason),
                None => unusable(file, &reason),
            })?;
            let chain = std::mem::take(&mut held.certificates);
            held.keys.push(Entry { chain, key });
        }
        let keys = ClientKeys::new(held.keys, &provider);
        let keys = keys.map_err(|reason| unusable(file, &reason))?;
        Ok(Arc::new(config.with_client_cert_resolver(Arc::new(keys))).into())
    }

    fn verifier(
        &self,
        authorities: Authorities,
        provider: &CryptoProvider,
    ) -> Result<Verifier, Error> {
        let certificates = match authorities {
            Authorities::OfSystem(certificates) => certificates,
            Authorities::OfFile(file, bytes) => store::read(&file, &bytes)?.certificates,
        };
        let algorithms = provider.signature_verification_algorithms;
        let verifier = Verifier::new(self.verification, certificates, algorithms);
        verifier.map_err(|reason| match &self.ca {
            Some(ca) => unusable(ca, &reason),
            None => no_authorities(&reason),
        })
    }
}

impl Contents {
    fn digest(&self) -> Digest {
        let authorities: Vec<&[u8]> = match &self.authorities {
            Authorities::OfFile(_, bytes) => vec![bytes],
            Authorities::OfSystem(certificates) => certificates.iter().map(|one| &**one).collect(),
        };
        let identity = self.identity.iter().flatten().map(|bytes| &**bytes);
        let mut sha = Sha1::new();
        for part in authorities.into_iter().chain(identity) {
            // The length tells apart parts that continue one another.
            sha.update(&part.len().to_le_bytes());
            sha.update(part);
        }
        sha.digest()
    }
}

/// The authorities of the system. One that cannot be read is left out, unless none can.
fn authorities_of_the_system() -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = load_native_certs();
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

fn read(file: &SecretFile) -> Result<Vec<u8>, Error> {
    let read = || {
        let opened = std::fs::File::open(&file.path)?;
        let mut bytes = Vec::new();
        opened.take(MOST + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error: std::io::Error| unusable(file, &error.to_string()))?;
    match bytes.len() as u64 > MOST {
        true => Err(unusable(
            file,
            "the file has over 8 MiB, and cannot be one of certificates or keys",
        )),
        false => Ok(bytes),
    }
}
