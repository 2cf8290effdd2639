//! Java's older form of key stores, JKS. Its ciphers are a key stream and a checksum by SHA-1.

use super::{Entry, Store, der};
use crate::redis::tls::library::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use sha1_smol::Sha1;

const MAGIC: u32 = 0xfeed_feed;
/// The length of a checksum, and of a key's salt.
const CHECKSUM: usize = 20;
const DAMAGED: &str = "the file is damaged or incomplete";

/// Reads the store. Without a password, certificates are read as they are: only the password could prove them.
pub(super) fn read(bytes: &[u8], password: &str) -> Result<Store, String> {
    let body = bytes.len().checked_sub(CHECKSUM).ok_or(DAMAGED)?;
    let (body, checksum) = bytes.split_at(body);
    let mut unread = Unread(body);
    let entries = unread.entries().ok_or(DAMAGED)?;
    let password: Vec<u8> = password.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let is_proven = sha(&[&password, b"Mighty Aphrodite", body]) == checksum;
    if !is_proven && !password.is_empty() {
        return Err("the password is wrong, or the file is damaged".to_owned());
    }
    let mut store = Store::default();
    for RawEntry { chain, key } in entries {
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
        // As in Java, the certificate of a key is trusted too.
        store.certificates.extend(chain.first().cloned());
        let Some(key) = key else { continue };
        let key = decrypted(key, &password).ok_or(match password.is_empty() {
            true => "the file needs a password",
            false => {
                "a key has another password than the store: change it by `keytool -keypasswd -keystore <file> -alias <name>`"
            }
        })?;
        let key = PrivatePkcs8KeyDer::from(key).into();
        store.keys.push(Entry { chain, key });
    }
    Ok(store)
}

/// The certificates of an entry, and its key, which is encrypted.
struct RawEntry<'a> {
    chain: Vec<Vec<u8>>,
    key: Option<&'a [u8]>,
}

struct Unread<'a>(&'a [u8]);

impl<'a> Unread<'a> {
    fn entries(&mut self) -> Option<Vec<RawEntry<'a>>> {
        if self.number()? != MAGIC {
            return None;
        }
        let version = self.number()?;
        let mut entries = Vec::new();
        for _ in 0..self.number()? {
            let is_key = self.number()? == 1;
            self.text()?;
            let _date = self.bytes(8)?;
            let key = match is_key {
                true => Some(self.block()?),
                false => None,
            };
            let certificates = match is_key {
                true => self.number()?,
                false => 1,
            };
            let mut chain = Vec::new();
            for _ in 0..certificates {
                if version == 2 {
                    self.text()?;
                }
                chain.push(self.block()?.to_vec());
            }
            entries.push(RawEntry { chain, key });
        }
        self.0.is_empty().then_some(entries)
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.bytes(2)?;
        self.bytes(usize::from(length[0]) << 8 | usize::from(length[1]))
    }
}

fn decrypted(key: &[u8], password: &[u8]) -> Option<Vec<u8>> {
    let algorithm = der::element(der::sequence(key)?)?;
    let (salt, secret) = der::octets(algorithm.rest)?.split_at_checked(CHECKSUM)?;
    let (secret, checksum) = secret.split_at_checked(secret.len().checked_sub(CHECKSUM)?)?;
    let mut stream = sha(&[password, salt]);
    let mut plain = Vec::with_capacity(secret.len());
    for block in secret.chunks(CHECKSUM) {
        plain.extend(block.iter().zip(stream).map(|(secret, mask)| secret ^ mask));
        stream = sha(&[password, &stream]);
    }
    (sha(&[password, &plain]) == checksum).then_some(plain)
}

fn sha(parts: &[&[u8]]) -> [u8; CHECKSUM] {
    let mut sha = Sha1::new();
    for part in parts {
        sha.update(part);
    }
    sha.digest().bytes()
}
