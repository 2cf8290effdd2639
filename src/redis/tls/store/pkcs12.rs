//! Key stores in PKCS#12.

use super::{Entry, Store, der};
use crate::redis::tls::library::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use p12_keystore::{Certificate, CertificateBag, Pkcs12Archive, PrivateKeyBag, error::Error};

/// Reads the store. Without a password, parts that are not encrypted are read as they are: only the password could prove them.
pub(super) fn read(bytes: &[u8], password: &str) -> Result<Store, String> {
    let read = match Pkcs12Archive::from_pkcs12(bytes, password) {
        Err(Error::MacError(_)) if password.is_empty() => {
            let unchecked = without_checksum(bytes).unwrap_or_default();
            Pkcs12Archive::from_pkcs12(&unchecked, "")
        }
        read => read,
    };
    let archive = read.map_err(|error| told(&error, password, is_unchecked(bytes)))?;
    let entries = archive.keys.iter();
    let keys: Vec<_> = entries
        .filter_map(|key| entry(key, &archive.certs))
        .collect();
    Ok(Store {
        certificates: trusted(&archive.certs, &keys),
        keys,
    })
}

/// The first two parts of the outer sequence: the version and the data. The checksum by the password may follow.
fn parts(bytes: &[u8]) -> Option<[der::Element<'_>; 2]> {
    let version = der::element(der::sequence(bytes)?)?;
    let safe = der::element(version.rest)?;
    Some([version, safe])
}

/// The file without its checksum.
fn without_checksum(bytes: &[u8]) -> Option<Vec<u8>> {
    let parts = parts(bytes)?.map(|part| part.all);
    Some(der::encoded(der::SEQUENCE, &parts))
}

/// Whether the file has no checksum. By a wrong password, one part in 256 is then decrypted to what looks like data.
fn is_unchecked(bytes: &[u8]) -> bool {
    parts(bytes).is_some_and(|[_, safe]| safe.rest.is_empty())
}

/// Why the file cannot be read, and what helps.
fn told(error: &Error, password: &str, is_unchecked: bool) -> String {
    const AGAIN: &str = "write it anew by `keytool -importkeystore`, or by `openssl pkcs12 -nodes -in <file> -out \
                         <file>.pem` and `openssl pkcs12 -export -in <file>.pem -out <file>.p12`";
    let is_undecrypted = matches!(error, Error::UnpadError | Error::Pkcs5Error(_));
    let is_nonsense = matches!(
        error,
        Error::DerError(_) | Error::X509Error(_) | Error::InvalidData | Error::InvalidPrivateKey
    );
    match error {
        _ if is_undecrypted && password.is_empty() => "the file needs a password".to_owned(),
        _ if is_undecrypted || (is_unchecked && is_nonsense && !password.is_empty()) => format!(
            "a part of the file cannot be decrypted by the password, or is damaged ({error}): {AGAIN}, with one \
             password"
        ),
        _ if is_unchecked && is_nonsense => {
            format!("the file needs a password, or is damaged ({error})")
        }
        Error::MacError(_) => "the password is wrong, or the file is damaged".to_owned(),
        Error::InvalidParameters => format!(
            "the file's encryption takes over 1000000 iterations, or has unknown parameters: {AGAIN}"
        ),
        Error::UnsupportedEncryptionScheme | Error::UnsupportedMacAlgorithm => {
            format!("the file's encryption is not supported: {AGAIN}")
        }
        Error::DerError(_) | Error::IoError(_) => {
            format!("the file is damaged or incomplete, or is no PKCS#12 in DER ({error})")
        }
        _ => format!("the file cannot be used ({error}): {AGAIN}"),
    }
}

/// The certificates that Java trusts: those with its mark, and those of keys. `openssl` leaves out the mark, so if there are
/// none of either, all are trusted.
fn trusted(bags: &[CertificateBag], keys: &[Entry]) -> Vec<CertificateDer<'static>> {
    let marked = bags.iter().filter(|bag| bag.trusted);
    let marked = marked.map(|bag| certificate(&bag.cert));
    let own = keys.iter().filter_map(|entry| entry.chain.first().cloned());
    let trusted: Vec<_> = marked.chain(own).collect();
    match trusted.is_empty() {
        true => bags.iter().map(|bag| certificate(&bag.cert)).collect(),
        false => trusted,
    }
}

/// The key with the certificates from its own to the last known issuer. None for a key without a certificate.
fn entry(key: &PrivateKeyBag, bags: &[CertificateBag]) -> Option<Entry> {
    let id = key.local_key_id.as_ref().map(|id| id.as_ref());
    let by_id = bags
        .iter()
        .find(|bag| id.is_some() && bag.local_key_id.as_deref() == id);
    // Some programs give no identifiers, and write the certificate of the key first.
    let own = by_id.or_else(|| bags.iter().find(|bag| bag.local_key_id.is_none()))?;
    let mut chain = vec![&own.cert];
    while let Some(last) = chain.last()
        && last.issuer() != last.subject()
        && let Some(issuer) = bags
            .iter()
            .map(|bag| &bag.cert)
            .find(|issuer| issuer.subject() == last.issuer() && !chain.contains(issuer))
    {
        chain.push(issuer);
    }
    Some(Entry {
        chain: chain.into_iter().map(certificate).collect(),
        key: PrivatePkcs8KeyDer::from(key.key.as_der().to_vec()).into(),
    })
}

fn certificate(found: &Certificate) -> CertificateDer<'static> {
    CertificateDer::from(found.as_der().to_vec())
}
