//! The parts of a URL: login, host, path, parameters.

use super::{
    host::{Host, without_login},
    text::{decoded, invalid, without_dots},
};
use crate::{error::Error, redis::endpoint::Address};

/// What follows the scheme of a URL. A part is decoded where it is used; a host never is.
pub(super) struct Url<'a> {
    /// What precedes the `@`, if there is one.
    pub(super) login: Option<&'a str>,
    pub(super) host: Host,
    /// Without `.` and `..`.
    pub(super) path: String,
    query: &'a str,
}

impl<'a> Url<'a> {
    /// Reads `//login@host:port/path?query`.
    pub(super) fn read(text: &'a str) -> Result<Self, Error> {
        let (text, query) = text.split_once('?').unwrap_or((text, ""));
        let (authority, path) = match text.strip_prefix("//") {
            Some(text) => text.split_at(text.find('/').unwrap_or(text.len())),
            None => ("", text),
        };
        let (login, host) = without_login(authority);
        let host = Host::read(host).map_err(invalid)?;
        if host.name.is_empty() && !matches!(login, None | Some("" | ":")) {
            return Err(invalid(
                "its login has no host; that of a socket is localhost",
            ));
        }
        Ok(Self::of(login, host, path, query))
    }

    pub(super) fn of(login: Option<&'a str>, host: Host, path: &str, query: &'a str) -> Self {
        let path = match &*host.behind {
            "" => without_dots(path),
            behind => without_dots(&format!("/{behind}{path}")),
        };
        Self {
            login,
            host,
            path,
            query,
        }
    }

    /// The user and the password. A user has a password, even if it is empty.
    pub(super) fn credentials(&self) -> Result<(Option<String>, Option<String>), Error> {
        let login = self.login.unwrap_or_default();
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (login, None),
        };
        let user = decoded(user, "user or password")?;
        let password = password.map(|password| decoded(password, "user or password"));
        match (user.is_empty(), password.transpose()?) {
            (true, password) => Ok((None, password.filter(|password| !password.is_empty()))),
            (false, Some(password)) => Ok((Some(user), Some(password))),
            (false, None) => Err(Error::config(
                "the URL has a user without a password: write user:password@, :password@ for the user `default`, or \
                 user:@ for an empty password",
            )),
        }
    }

    /// The parts of the path.
    pub(super) fn path_parts(&self) -> impl Iterator<Item = &str> {
        let parts = self.path.strip_prefix('/');
        parts.into_iter().flat_map(|parts| parts.split('/'))
    }

    pub(super) fn address(&self, port: u16) -> Result<Address, Error> {
        match &*self.host.name {
            "" => Err(Error::config("the URL names no host")),
            name => Ok((name.to_owned(), self.host.port.unwrap_or(port))),
        }
    }

    /// The addresses of the host and of the nodes.
    pub(super) fn addresses(&self, port: u16) -> Result<Vec<Address>, Error> {
        let mut addresses = vec![self.address(port)?];
        for node in self.values("node") {
            match Host::of_node(&node?) {
                Ok(node) if !node.name.is_empty() => {
                    addresses.push((node.name, node.port.unwrap_or(port)));
                }
                _ => {
                    return Err(Error::config(
                        "a node of the URL is invalid: write node=host:port",
                    ));
                }
            }
        }
        Ok(addresses)
    }

    /// The names and values of the parameters. An empty pair, as in `?&node=host` or before a final `&`, is no parameter.
    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// The values of a parameter. A plus sign is no space, as elsewhere in a URL: passwords may contain one.
    fn values(&self, key: &str) -> impl Iterator<Item = Result<String, Error>> {
        let values = self.pairs().filter(move |(name, _)| *name == key);
        values.map(|(_, value)| decoded(value, "query"))
    }

    /// The value of a parameter that may occur once.
    pub(super) fn parameter(&self, key: &str) -> Result<Option<String>, Error> {
        let mut values = self.values(key);
        match (values.next().transpose()?, values.next()) {
            (value, None) => Ok(value),
            _ => Err(Error::config(format!("the URL has more than one {key}"))),
        }
    }

    /// Refuses unknown parameters: a misspelt one would be ignored. The error does not contain the name, which may be the rest
    /// of a password.
    pub(super) fn allow_only(&self, parameters: &[&str]) -> Result<(), Error> {
        let is_known = |(name, _): &(&str, &str)| parameters.contains(name);
        let Some((unknown, _)) = self.pairs().find(|pair| !is_known(pair)) else {
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
}
