//! The section that names the servers.

use super::section::Section;
use crate::{error::Error, redis::Target};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Single,
    Sentinel,
    Cluster,
    Replicated,
    MasterSlave,
}

const KINDS: [(&str, Kind); 5] = [
    ("singleServerConfig", Kind::Single),
    ("sentinelServersConfig", Kind::Sentinel),
    ("clusterServersConfig", Kind::Cluster),
    ("replicatedServersConfig", Kind::Replicated),
    ("masterSlaveServersConfig", Kind::MasterSlave),
];

/// The one section that names the servers.
pub(super) fn servers<'a>(file: &Section<'a>) -> Result<(Kind, Section<'a>), Error> {
    let mut found = None;
    for (key, kind) in KINDS {
        if let Some(section) = file.section(key)? {
            if found.is_some() {
                return Err(file.error(key, "the file has a second section of servers: keep one"));
            }
            found = Some((kind, section));
        }
    }
    found.ok_or_else(|| {
        Error::config(format!(
            "the file has no section of servers: add one of {}",
            KINDS.map(|(key, _)| key).join(", ")
        ))
    })
}

impl Kind {
    fn key(self) -> &'static str {
        match self {
            Kind::Single => "address",
            Kind::MasterSlave => "masterAddress",
            Kind::Sentinel => "sentinelAddresses",
            Kind::Cluster | Kind::Replicated => "nodeAddresses",
        }
    }

    /// Whether an address has a user and a password, which Redisson prefers to those of the file.
    pub(super) fn has_login(self, section: &Section<'_>) -> Result<bool, Error> {
        let addresses = section.texts(self.key())?;
        Ok(addresses.iter().any(|address| address.contains('@')))
    }

    /// A name for the path or query of an address, if it says something else than `database`. Redisson ignores both.
    pub(super) fn ignored_path(self, section: &Section<'_>) -> Result<Option<String>, Error> {
        let database = section.number("database")?.unwrap_or(0);
        let says_more = |address: &String| {
            let rest = split(address).1;
            !matches!(rest, "" | "/") && rest != format!("/{database}")
        };
        let has_more = section.texts(self.key())?.iter().any(says_more);
        Ok(has_more.then(|| format!("{} (the path)", section.path_of(self.key()))))
    }

    /// The servers, and whether TLS is used.
    pub(super) fn target(self, section: &Section<'_>) -> Result<(Target, bool), Error> {
        let database = section.number("database")?.unwrap_or(0).to_string();
        let key = self.key();
        let addresses = section.texts(key)?;
        let addresses: Vec<_> = addresses.iter().map(|address| split(address).0).collect();
        let is_tls = addresses
            .iter()
            .any(|address| address.starts_with("rediss:") || address.starts_with("valkeys:"));
        let found = match self {
            Kind::Single | Kind::MasterSlave => match &addresses[..] {
                [address] => one(address, &database),
                _ => Err(Error::config("give exactly one address")),
            },
            Kind::Sentinel => {
                let service = section.required("masterName")?;
                Target::several("sentinel", &[&service, &database], &addresses)
            }
            Kind::Cluster => Target::several("cluster", &[&database], &addresses),
            Kind::Replicated => Target::several("replicated", &[&database], &addresses),
        };
        Ok((found.map_err(|error| section.error(key, error))?, is_tls))
    }
}

/// An address without its path and query, and these. A `/` before an `@` belongs to a password that is not encoded.
fn split(address: &str) -> (&str, &str) {
    let authority = address.find("://").map_or(0, |scheme| scheme + 3);
    let host = address.rfind('@').map_or(authority, |at| at + 1);
    if address.starts_with("redis+uds:") {
        return (address, "");
    }
    let end = address[host..].find(['/', '?', '#']);
    address.split_at(end.map_or(address.len(), |end| host + end))
}

fn one(address: &str, database: &str) -> Result<Target, Error> {
    if let Some(path) = address.strip_prefix("redis+uds://") {
        return Target::url(&format!("unix://{path}?db={database}"));
    }
    Target::url(&format!("{address}/{database}"))
}
