//! The parts of a URL: login, path, parameters, hosts.

use percent_encoding::percent_decode_str;
use url::Url;

use crate::{error::Error, redis::endpoint::Address};

/// A URL, and details that its parser drops.
pub(super) struct Given {
    pub(super) url: Url,
    pub(super) has_empty_password: bool,
}

impl std::ops::Deref for Given {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.url
    }
}

/// Whether the URL has an empty password, as in `redis://user:@host`, instead of none.
pub(super) fn has_empty_password(text: &str) -> bool {
    let (_, rest) = text.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let login = authority.rsplit_once('@').map(|(login, _)| login);
    login.is_some_and(|login| {
        login
            .split_once(':')
            .is_some_and(|(_, password)| password.is_empty())
    })
}

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

/// The parts of the path.
pub(super) fn path(url: &Url) -> impl Iterator<Item = &str> {
    url.path_segments().into_iter().flatten()
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

pub(super) fn host(url: &Url) -> Result<String, Error> {
    match url.host() {
        // A resolver would treat the brackets of `[::1]` as part of a name.
        Some(url::Host::Ipv6(address)) => Ok(address.to_string()),
        Some(host) => Ok(host.to_string()),
        None => Err(Error::config("the URL names no host")),
    }
}

pub(super) fn addresses(url: &Url, port: u16) -> Result<Vec<Address>, Error> {
    let mut addresses = vec![(host(url)?, url.port().unwrap_or(port))];
    for node in query(url, "node") {
        let node = node?;
        let parsed = Url::parse(&format!("redis://{node}"));
        match parsed
            .as_ref()
            .ok()
            .and_then(|node| Some((node.host()?, node.port())))
        {
            Some((url::Host::Ipv6(address), given)) => {
                addresses.push((address.to_string(), given.unwrap_or(port)));
            }
            Some((host, given)) => addresses.push((host.to_string(), given.unwrap_or(port))),
            None => {
                return Err(Error::config(
                    "a node of the URL is invalid: write node=host:port",
                ));
            }
        }
    }
    Ok(addresses)
}

/// The names and values of the parameters. An empty pair, as in `?&node=host` or before a final `&`, is no parameter.
fn pairs(url: &Url) -> impl Iterator<Item = (&str, &str)> {
    let pairs = url.query().unwrap_or_default().split('&');
    let pairs = pairs.filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// The values of a parameter. A plus sign is no space, as elsewhere in a URL: passwords may contain one.
fn query<'a>(url: &'a Url, key: &'a str) -> impl Iterator<Item = Result<String, Error>> + 'a {
    let values = pairs(url).filter(move |(name, _)| *name == key);
    values.map(|(_, value)| decoded(value, "query"))
}

/// The value of a parameter that may occur once.
pub(super) fn parameter(url: &Url, key: &str) -> Result<Option<String>, Error> {
    let mut values = query(url, key);
    match (values.next().transpose()?, values.next()) {
        (value, None) => Ok(value),
        _ => Err(Error::config(format!("the URL has more than one {key}"))),
    }
}

/// Refuses unknown parameters: a misspelt one would be ignored. The error does not contain the name, which may be the rest
/// of a password.
pub(super) fn allow_only(url: &Url, parameters: &[&str]) -> Result<(), Error> {
    let is_known = |(name, _): &(&str, &str)| parameters.contains(name);
    let Some((unknown, _)) = pairs(url).find(|pair| !is_known(pair)) else {
        return Ok(());
    };
    if unknown == "node" {
        return Err(Error::config(
            "the URL is for one server: for several, use redis-cluster://, redis-sentinel:// or redis-replicated://",
        ));
    }
    Err(Error::config(format!(
        "the URL has a parameter other than {}: give a database as the path, as in redis://host/3; in a value, write \
         %26 for &, and in a password %3F for ?",
        parameters.join(", ")
    )))
}

/// A part of a URL, with percent escapes decoded.
pub(super) fn decoded(part: &str, which: &str) -> Result<String, Error> {
    let mut escapes = part.split('%').skip(1);
    let is_hex = |escape: &str| escape.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !escapes.all(is_hex) {
        return Err(Error::config(format!(
            "the URL's {which} has a % without two hexadecimal digits after it: write %25 for the sign itself"
        )));
    }
    match percent_decode_str(part).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(Error::config(format!(
            "the URL's {which} is not UTF-8 after percent decoding"
        ))),
    }
}
