//! Files of certificates and keys: PEM, and Java's key stores, told apart by their first bytes.
//!
//! - `pkcs12.rs`, `jks.rs`: the two forms of Java's key stores.
//! - `der.rs`: as much of DER as keys and key stores need.

mod der;
#[cfg(feature = "keystore")]
mod jks;
#[cfg(feature = "keystore")]
mod pkcs12;

use super::{
    SecretFile,
    library::rustls::{
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
        server::ParsedCertificate,
    },
};
use crate::error::Error;

/// What a file holds.
#[derive(Default)]
pub(super) struct Store {
    /// Certificates that the file marks as trusted. All that are in a PEM file, the chain of its key too.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// Keys of a key store, each with its chain.
    pub(super) keys: Vec<Entry>,
}

pub(super) struct Entry {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Entry {
    /// With the public key, which Java leaves out of keys on elliptic curves. `openssl` leaves it out when it converts them.
    pub(super) fn completed(self) -> Self {
        let completed = || {
            let PrivateKeyDer::Pkcs8(key) = &self.key else {
                return None;
            };
            let certificate = ParsedCertificate::try_from(self.chain.first()?).ok()?;
            der::with_public_key(
                key.secret_pkcs8_der(),
                &certificate.subject_public_key_info(),
            )
        };
        match completed() {
            Some(key) => Self {
                key: PrivatePkcs8KeyDer::from(key).into(),
                chain: self.chain,
            },
            None => self,
        }
    }
}

/// A form that a file may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Pem,
    Jks,
    Pkcs12,
    /// A single certificate or key.
    Der,
    Jceks,
}

impl Form {
    pub(super) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0xfe, 0xed, 0xfe, 0xed, ..] => Form::Jks,
            [0xce, 0xce, 0xce, 0xce, ..] => Form::Jceks,
            // The length of a sequence that is long enough. PKCS#12 begins with its version, a certificate with a sequence.
            [0x30, length @ 0x80..=0x84, rest @ ..] => match rest.get(usize::from(length - 0x80)) {
                Some(0x30) => Form::Der,
                _ => Form::Pkcs12,
            },
            _ => Form::Pem,
        }
    }
}

/// Reads a file of any form, as far as its setting and the crate's features allow.
pub(super) fn read(file: &SecretFile, bytes: &[u8]) -> Result<Store, Error> {
    let read = match (Form::of(bytes), &file.password) {
        (Form::Pem, _) => pem(bytes),
        (Form::Der, _) => Err(
            "the file is a single certificate or key in DER: convert it by `openssl x509 -inform der -in <file> -out \
             <file>.pem`"
                .to_owned(),
        ),
        (Form::Jceks, _) => Err(format!("the file is a JCEKS store: {}", as_pkcs12("JCEKS"))),
        (form, password) => store(form, bytes, password.as_deref()),
    };
    read.map_err(|reason| unusable(file, &reason))
}

pub(super) fn unusable(file: &SecretFile, reason: &str) -> Error {
    Error::config(format!(
        "{} {}: {reason}",
        file.setting,
        file.path.display()
    ))
}

fn pem(text: &[u8]) -> Result<Store, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let certificates = found.map_err(|error| error.to_string())?;
    match certificates.is_empty() {
        true => Err(match text {
            [] => "the file is empty",
            _ => {
                "the file contains no certificate in PEM format, and is no key store of the forms PKCS#12 or JKS"
            }
        }
        .to_owned()),
        false => Ok(Store {
            certificates,
            keys: Vec::new(),
        }),
    }
}

/// The first private key of a PEM file.
pub(super) fn pem_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        let is_encrypted = text.windows(9).any(|part| part == b"ENCRYPTED");
        match is_encrypted {
            true => "the private key is encrypted: decrypt it by `openssl pkey -in <file> -out <file>.key`".to_owned(),
            false => error.to_string(),
        }
    })
}

fn as_pkcs12(form: &str) -> String {
    format!(
        "convert it by `keytool -importkeystore -srckeystore <file> -srcstoretype {form} -destkeystore <file>.p12 \
         -deststoretype PKCS12`"
    )
}

#[cfg(feature = "keystore")]
fn store(form: Form, bytes: &[u8], password: Option<&str>) -> Result<Store, String> {
    let Some(password) = password else {
        return Err(
            "the file is a key store: name it by `trust_store` or `key_store`, with its password"
                .to_owned(),
        );
    };
    match form {
        Form::Jks => jks::read(bytes, password),
        _ => pkcs12::read(bytes, password),
    }
}

#[cfg(not(feature = "keystore"))]
fn store(form: Form, _bytes: &[u8], _password: Option<&str>) -> Result<Store, String> {
    let first = match form {
        Form::Jks => format!("{}, and that file ", as_pkcs12("JKS")),
        _ => "convert it ".to_owned(),
    };
    Err(format!(
        "the file is a key store, which this build cannot read: enable the feature `keystore` of redisson-lock, or \
         {first}by `openssl pkcs12 -nodes -in <file>.p12 -out <file>.pem`"
    ))
}

/// Bytes at random.
#[cfg(all(test, feature = "keystore"))]
pub(crate) mod fuzz {
    use super::{jks, pkcs12};

    pub(crate) fn read(bytes: &[u8]) {
        for password in ["", "s3cret"] {
            let _ = jks::read(bytes, password);
            let _ = pkcs12::read(bytes, password);
        }
    }
}
