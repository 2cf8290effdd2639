//! As much of DER as keys and key stores need beside their libraries.

pub(super) const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 0x04;
/// `[1]`, constructed.
const SECOND: u8 = 0xa1;
/// The object identifier of keys on elliptic curves, 1.2.840.10045.2.1.
const ELLIPTIC: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];

/// The first element of some bytes.
pub(super) struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// The element as a whole.
    pub(super) all: &'a [u8],
    /// What follows.
    pub(super) rest: &'a [u8],
}

pub(super) fn element(der: &[u8]) -> Option<Element<'_>> {
    let (&[tag, first], after) = der.split_first_chunk()?;
    let (length, after) = match first {
        ..=0x7f => (usize::from(first), after),
        // A length of one to four bytes. None is of 0x80, whose end would be marked.
        0x81..=0x84 => {
            let (length, after) = after.split_at_checked(usize::from(first - 0x80))?;
            let length = length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, after)
        }
        _ => return None,
    };
    let (content, rest) = after.split_at_checked(length)?;
    let all = &der[..der.len() - rest.len()];
    Some(Element {
        tag,
        content,
        all,
        rest,
    })
}

/// The content of the sequence that `der` begins with.
pub(super) fn sequence(der: &[u8]) -> Option<&[u8]> {
    element(der)
        .filter(|found| found.tag == SEQUENCE)
        .map(|found| found.content)
}

/// The content of the octets that `der` begins with.
pub(super) fn octets(der: &[u8]) -> Option<&[u8]> {
    element(der)
        .filter(|found| found.tag == OCTETS)
        .map(|found| found.content)
}

pub(super) fn encoded(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let zeros = length.iter().take_while(|byte| **byte == 0).count();
    let length = &length[zeros..];
    let head = match content.len() {
        0..0x80 => vec![tag, content.len() as u8],
        _ => [&[tag, 0x80 | length.len() as u8], length].concat(),
    };
    [head, content].concat()
}

/// The key of an elliptic curve, in PKCS#8, with its public key, which `info` (a certificate's) has. Java writes such keys without
/// it, and the TLS library requires it. None if nothing is missing.
pub(super) fn with_public_key(key: &[u8], info: &[u8]) -> Option<Vec<u8>> {
    let version = element(sequence(key)?)?;
    let algorithm = element(version.rest)?;
    if !algorithm.content.starts_with(&ELLIPTIC) {
        return None;
    }
    let private = sequence(octets(algorithm.rest)?)?;
    let own_version = element(private)?;
    let secret = element(own_version.rest)?;
    let mut rest = secret.rest;
    while let Some(optional) = element(rest) {
        if optional.tag == SECOND {
            return None;
        }
        rest = optional.rest;
    }
    let public = element(element(sequence(info)?)?.rest)?;
    let public = encoded(SECOND, &[public.all]);
    let private = encoded(SEQUENCE, &[own_version.all, secret.all, &public]);
    let private = encoded(OCTETS, &[&private]);
    Some(encoded(SEQUENCE, &[version.all, algorithm.all, &private]))
}
