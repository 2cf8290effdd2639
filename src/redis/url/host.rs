//! A host and a port, in a URL or in a list of nodes.

use std::net::Ipv6Addr;

use super::text::{escaped, is_blank, without_breaks};

/// A name, empty where a URL has none, and a port.
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: Option<u16>,
    /// What follows the port from a backslash on: it belongs to the path.
    pub(super) behind: String,
}

impl Host {
    /// Reads `host:port`. The error is the reason.
    pub(super) fn read(text: &str) -> Result<Self, &'static str> {
        let (name, port) = match text.strip_prefix('[') {
            // A resolver would treat the brackets of `[::1]` as part of a name.
            Some(text) => {
                let (address, port) = text.split_once(']').unwrap_or_default();
                let address: Ipv6Addr = address
                    .parse()
                    .map_err(|_| "its brackets contain no IPv6 address")?;
                (address.to_string(), port)
            }
            None => {
                let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (host_name(name)?, port)
            }
        };
        let (port, behind) = port.split_at(port.find('\\').unwrap_or(port.len()));
        let port =
            match port {
                "" if behind.is_empty() => None,
                _ if name.is_empty() => return Err("its host is empty"),
                ":" => None,
                port => Some(number(port).ok_or(
                    "its port is not a number up to 65535; an IPv6 address needs brackets",
                )?),
            };
        let behind = behind.to_owned();
        Ok(Self { name, port, behind })
    }

    /// Reads a node of a list. Its line break, its login and what follows its port have no meaning.
    pub(super) fn of_node(text: &str) -> Result<Self, &'static str> {
        let text = without_breaks(text.trim_end_matches(is_blank));
        let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
        Self::read(without_login(authority).1)
    }
}

/// The number of `:port`. `parse` alone would take a sign, too.
fn number(port: &str) -> Option<u16> {
    let digits = port.strip_prefix(':')?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// A name as a resolver gets it: percent sequences remain, and all but visible ASCII becomes one.
fn host_name(name: &str) -> Result<String, &'static str> {
    const NOT_IN_NAMES: &[char] = &[
        '\0', '\t', '\r', '\n', ' ', '<', '>', '@', '[', '\\', ']', '^', '|',
    ];
    match name.contains(NOT_IN_NAMES) {
        true => Err("its host contains a character that no host has"),
        false => Ok(escaped(name, |byte| byte.is_ascii_graphic())),
    }
}

/// The login of an authority, if it has one, and the rest.
pub(super) fn without_login(authority: &str) -> (Option<&str>, &str) {
    match authority.rsplit_once('@') {
        Some((login, host)) => (Some(login), host),
        None => (None, authority),
    }
}
