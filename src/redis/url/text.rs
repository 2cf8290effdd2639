//! Texts within a URL: the scheme, percent sequences, paths, numbers.

use std::fmt::Write;

use crate::error::Error;

/// Whether the port is invalid and an `@` follows: a character of a password has ended the host's part of the URL.
pub(super) fn ends_in_its_password(text: &str) -> bool {
    let (_, rest) = text.split_once("://").unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let is_port = |port: &str| port.ends_with(']') || port.parse::<u16>().is_ok();
    let port = authority.rsplit_once(':');
    !authority.contains('@')
        && behind.contains('@')
        && port.is_some_and(|(host, port)| host.is_empty() || !is_port(port))
}

/// The scheme in lower case, and what follows its colon.
pub(super) fn scheme(text: &str) -> Result<(String, &str), Error> {
    let is_scheme = |scheme: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(is_known)
    };
    match text.trim_matches(is_blank).split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => Ok((scheme.to_ascii_lowercase(), rest)),
        _ => Err(invalid("its scheme is not a word of letters and digits")),
    }
}

/// Whether a character at the ends of a URL is no part of it.
pub(super) fn is_blank(sign: char) -> bool {
    sign <= ' '
}

pub(super) fn without_breaks(text: &str) -> String {
    text.replace(['\t', '\r', '\n'], "")
}

pub(super) fn invalid(reason: &str) -> Error {
    Error::config(format!(
        "the URL is invalid ({reason}): write redis://[user:password@]host[:port][/database], and further servers as \
         ?node=host:port&node=host:port"
    ))
}

/// A path without `.` and `..`, also if they are percent sequences. `..` does not leave a drive.
pub(super) fn without_dots(path: &str) -> String {
    let Some(parts) = path.strip_prefix('/') else {
        return path.to_owned();
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = parts.split('/').peekable();
    while let Some(part) = parts.next() {
        let dots = part.to_ascii_lowercase().replace("%2e", ".");
        match &*dots {
            "." => {}
            ".." => drop(kept.pop_if(|part| !is_drive(part))),
            _ => {
                kept.push(part);
                continue;
            }
        }
        if parts.peek().is_none() {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

fn is_drive(part: &str) -> bool {
    matches!(part.as_bytes(), [letter, b':' | b'|'] | [letter, b':' | b'|', b'\\', ..] if letter.is_ascii_alphabetic())
}

/// The database number of the rest of a path; `None` for an empty rest, and for 0: a new connection uses database 0 without `SELECT`,
/// for which a user may lack the right, and which some proxies do not know.
pub(super) fn database<'a>(path: &mut impl Iterator<Item = &'a str>) -> Result<Option<u32>, Error> {
    let number = match path.next().unwrap_or_default() {
        "" => None,
        number if number.bytes().all(|digit| digit.is_ascii_digit()) => {
            Some(number.parse().map_err(|_| bad_database())?)
        }
        _ => return Err(bad_database()),
    };
    match path.all(str::is_empty) {
        true => Ok(number.filter(|number| *number != 0)),
        false => Err(bad_database()),
    }
}

fn bad_database() -> Error {
    Error::config(
        "the path of the URL is not a database number: write redis://host/3 for database 3",
    )
}

/// A part of a URL, with percent sequences decoded.
pub(super) fn decoded(part: &str, which: &str) -> Result<String, Error> {
    let mut pieces = part.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let hex = piece
            .get(..2)
            .filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.ok_or_else(|| {
            Error::config(format!(
                "the URL's {which} has a % without two hexadecimal digits after it: write %25 for the sign itself"
            ))
        })?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| {
        Error::config(format!(
            "the URL's {which} is not UTF-8 after percent decoding"
        ))
    })
}

/// The text with a percent sequence for each byte that is not `kept`.
pub(super) fn escaped(text: &str, kept: impl Fn(u8) -> bool) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match kept(byte) {
            true => escaped.push(byte.into()),
            false => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}
