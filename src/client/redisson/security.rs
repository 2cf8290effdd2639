//! Logins and TLS.

use std::path::PathBuf;

use super::{section::Section, servers::Kind};
use crate::{client::LockClientBuilder, error::Error};

pub(super) fn log_in(
    builder: LockClientBuilder,
    kind: Kind,
    both: [&Section<'_>; 2],
) -> Result<LockClientBuilder, Error> {
    let password = first(both, "password")?;
    // Redisson prefers the address, and does not log in as a user without a password.
    let is_in_address = kind.has_login(both[0])?;
    let Some(password) = password.filter(|_| !is_in_address) else {
        return Ok(builder);
    };
    let username = first(both, "username")?;
    Ok(builder.credentials(username.unwrap_or_default(), password))
}

pub(super) fn log_in_to_sentinels(
    builder: LockClientBuilder,
    kind: Kind,
    section: &Section<'_>,
) -> Result<LockClientBuilder, Error> {
    let [username, password] = ["sentinelUsername", "sentinelPassword"];
    for key in [username, password] {
        if section.text(key)?.is_some() && kind != Kind::Sentinel {
            return Err(section.error(key, "only sentinelServersConfig has sentinels"));
        }
    }
    let Some(password) = section.text(password)? else {
        return Ok(builder);
    };
    let user = section.text(username)?;
    Ok(builder.sentinel_credentials(user.unwrap_or_default(), password))
}

/// A setting of the section, or of the file if the section lacks it.
fn first(both: [&Section<'_>; 2], key: &str) -> Result<Option<String>, Error> {
    let [section, file] = both;
    let (own, general) = (section.text(key)?, file.text(key)?);
    Ok(own.or(general))
}

pub(super) fn encrypt(
    mut builder: LockClientBuilder,
    both: [&Section<'_>; 2],
) -> Result<LockClientBuilder, Error> {
    const INSTEAD: &str = "this client always checks the server's certificate and name: set sslTruststore to the \
     authority's file, and the builder's `server_name` if the name differs from the host";
    for section in both {
        if let Some(mode) = section.text("sslVerificationMode")?
            && mode != "STRICT"
        {
            return Err(section.error(
                "sslVerificationMode",
                format!("{mode} is not supported: {INSTEAD}"),
            ));
        }
        if section.flag("sslEnableEndpointIdentification")? == Some(false) {
            return Err(section.error("sslEnableEndpointIdentification", INSTEAD));
        }
    }
    if let Some(store) = first(both, "sslTruststore")? {
        builder = builder.ca_file(file_of("sslTruststore", &store)?);
    }
    if let Some(store) = first(both, "sslKeystore")? {
        let store = file_of("sslKeystore", &store)?;
        builder = builder.client_certificate(store.clone(), store);
    }
    Ok(builder)
}

/// The file that a `file:` URL names.
fn file_of(key: &str, url: &str) -> Result<PathBuf, Error> {
    let path = url.strip_prefix("file:").unwrap_or(url);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.contains("://") || url.starts_with("http") {
        return Err(Error::config(format!(
            "{key}: only files are supported, as in file:/etc/redis/ca.pem"
        )));
    }
    Ok(path.into())
}
