//! Logins and TLS.

use std::path::PathBuf;

use super::{section::Section, servers::Kind};
use crate::{client::LockClientBuilder, error::Error, tls_verification::TlsVerification};

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
    let store = first(both, "sslTruststore")?;
    let verification = match verification(both)? {
        // As in Redisson, a trust store is used nevertheless.
        Some(TlsVerification::None) if store.is_some() => Some(TlsVerification::Ca),
        verification => verification,
    };
    if let Some(verification) = verification {
        builder = builder.tls_verification(verification);
    }
    if let Some(store) = store {
        let (file, password) = store_of(both, "sslTruststore", &store, "sslTruststorePassword")?;
        builder = builder.trusting("sslTruststore", file, Some(password));
    }
    if let Some(store) = first(both, "sslKeystore")? {
        let (file, password) = store_of(both, "sslKeystore", &store, "sslKeystorePassword")?;
        builder = builder.presenting("sslKeystore", file, None, Some(password));
    }
    Ok(builder)
}

/// The file and the password of a store. Its form is told by its content, as in Java.
fn store_of(
    both: [&Section<'_>; 2],
    key: &str,
    url: &str,
    password: &str,
) -> Result<(PathBuf, String), Error> {
    const TYPE: &str = "sslKeystoreType";
    if let Some(form) = first(both, TYPE)?
        && !["pkcs12", "jks", "pem"].contains(&&*form.to_lowercase())
    {
        return Err(Error::config(format!(
            "{TYPE}: this client reads PKCS12, JKS and PEM: convert the store by `keytool -importkeystore \
             -srcstoretype {form} -deststoretype PKCS12`"
        )));
    }
    let password = first(both, password)?.unwrap_or_default();
    Ok((file_of(key, url)?, password))
}

/// The file that a `file:` URL names.
fn file_of(key: &str, url: &str) -> Result<PathBuf, Error> {
    let path = url.strip_prefix("file:").unwrap_or(url);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.contains("://") || url.starts_with("http") {
        return Err(Error::config(format!(
            "{key}: only files are supported, as in file:/etc/redis/trust.p12"
        )));
    }
    Ok(path.into())
}

/// The mode of the section, unless it is `STRICT`, which Redisson writes as a default; else that of the file.
fn verification(both: [&Section<'_>; 2]) -> Result<Option<TlsVerification>, Error> {
    let [section, file] = both;
    let general = mode(file)?;
    Ok(match mode(section)? {
        None | Some(TlsVerification::Full) if general.is_some() => general,
        own => own,
    })
}

fn mode(section: &Section<'_>) -> Result<Option<TlsVerification>, Error> {
    const KEY: &str = "sslVerificationMode";
    let mode = match section.text(KEY)?.as_deref() {
        None => None,
        Some("STRICT") => Some(TlsVerification::Full),
        Some("CA_ONLY") => Some(TlsVerification::Ca),
        Some("NONE") => Some(TlsVerification::None),
        Some(_) => return Err(section.error(KEY, "the value must be STRICT, CA_ONLY or NONE")),
    };
    // The older setting, which means NONE. Redisson writes it beside CA_ONLY too.
    let checks = section.flag("sslEnableEndpointIdentification")?;
    Ok(match (checks, mode) {
        (Some(false), None | Some(TlsVerification::Full)) => Some(TlsVerification::None),
        (Some(true), None) => Some(TlsVerification::Full),
        (_, mode) => mode,
    })
}
