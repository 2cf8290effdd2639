//! From a URL, or the caller's own fred client, to a configuration of fred.

use fred::{
    interfaces::ClientLike,
    types::config::{Config, ServerConfig},
};
use url::Url;

use crate::error::Error;

/// Reads a URL. No part of it comes back in an error: it may carry a password.
pub(super) fn parse(text: &str) -> Result<Config, Error> {
    let url = Url::parse(text).map_err(|error| {
        Error::config(format!(
            "the URL cannot be read ({error}): it should look like redis://[user:password@]host[:port][/database]"
        ))
    })?;
    match url.scheme() {
        "redis" | "valkey" => tcp(text, &url),
        "rediss" | "valkeys" => tls(text, &url),
        "unix" | "redis+unix" | "valkey+unix" => unix(text, &url),
        "redis-cluster" | "rediss-cluster" | "redis-sentinel" | "rediss-sentinel"
        | "valkey-cluster" | "valkeys-cluster" | "valkey-sentinel" | "valkeys-sentinel" => {
            Err(Error::config(
                "clusters and sentinels are not supported by this version of redisson-lock: \
                 give the URL of a single server",
            ))
        }
        other => Err(Error::config(format!(
            "the URL has the scheme {other:?}: use redis, rediss, valkey, valkeys or unix"
        ))),
    }
}

/// Takes over where and as whom the caller's own client connects. Its connections stay its own.
pub(super) fn of_donor(donor: &fred::clients::Client) -> Result<Config, Error> {
    let config = donor.client_config();
    match config.server {
        ServerConfig::Centralized { .. } | ServerConfig::Unix { .. } => Ok(config),
        _ => Err(Error::config(
            "the fred client is one for a cluster or for sentinels, which this version of redisson-lock does not \
             support: give one for a single server",
        )),
    }
}

fn tcp(text: &str, url: &Url) -> Result<Config, Error> {
    let host = match url.host() {
        // fred would look up the brackets of `[::1]`.
        Some(url::Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
        None => return Err(Error::config("the URL names no host")),
    };
    let mut config = Config::from_url_centralized(text).map_err(|_| {
        Error::config("the URL's path is not a database number, such as redis://host/3")
    })?;
    config.server = ServerConfig::new_centralized(host, url.port().unwrap_or(6379));
    Ok(config)
}

#[cfg(feature = "rustls")]
fn tls(text: &str, url: &Url) -> Result<Config, Error> {
    use fred::types::config::TlsConnector;

    let mut config = tcp(text, url)?;
    let connector = TlsConnector::default_rustls().map_err(|error| {
        Error::config(format!(
            "the system's certificates cannot be read: {}",
            error.details()
        ))
    })?;
    config.tls = Some(connector.into());
    Ok(config)
}

/// fred would connect in plain text (P-FR15).
#[cfg(not(feature = "rustls"))]
fn tls(_: &str, _: &Url) -> Result<Config, Error> {
    Err(Error::config(
        "the URL asks for TLS, which is not compiled in: enable the feature `rustls` of redisson-lock",
    ))
}

fn unix(text: &str, url: &Url) -> Result<Config, Error> {
    if url.path().is_empty() || url.path() == "/" {
        return Err(Error::config(
            "the URL names no socket: it should look like unix:///run/redis.sock",
        ));
    }
    let mut config = Config::from_url_unix(text)
        .map_err(|_| Error::config("the URL of a unix socket cannot be read"))?;
    if let Some((_, database)) = url.query_pairs().find(|(key, _)| key == "db") {
        let number = database.parse().map_err(|_| {
            Error::config(
                "the URL's db is not a database number, such as unix:///run/redis.sock?db=3",
            )
        })?;
        config.database = Some(number);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(url: &str) -> String {
        match parse(url) {
            Err(Error::Config { reason }) => reason,
            other => panic!("{url} gave {:?}", other.map(|_| "a configuration")),
        }
    }

    #[test]
    fn urls_of_single_servers() {
        let config = parse("redis://app:s%40crt@cache.example:6380/3").unwrap();
        assert_eq!(
            config.server,
            ServerConfig::new_centralized("cache.example", 6380)
        );
        assert_eq!(config.username.as_deref(), Some("app"));
        assert_eq!(config.password.as_deref(), Some("s@crt"));
        assert_eq!(config.database, Some(3));

        let config = parse("valkey://[::1]").unwrap();
        assert_eq!(config.server, ServerConfig::new_centralized("::1", 6379));

        let config = parse("unix://:pw@localhost/run/redis.sock?db=2").unwrap();
        assert!(
            matches!(config.server, ServerConfig::Unix { path } if path.to_str() == Some("/run/redis.sock"))
        );
        assert_eq!(
            (config.password.as_deref(), config.database),
            (Some("pw"), Some(2))
        );
    }

    #[test]
    fn bad_urls_say_what_to_do_and_keep_the_password() {
        for (url, hint) in [
            ("", "redis://"),
            ("localhost:6379", "scheme"),
            ("http://:s3cret@localhost", "scheme"),
            ("redis://:s3cret@", "redis://"),
            ("redis://:s3cret@host:99999", "redis://"),
            ("redis://:s3cret@host/three", "database"),
            ("unix://", "socket"),
            ("unix:///run/redis.sock?db=x", "db"),
            ("redis-cluster://:s3cret@host", "single server"),
            ("redis-sentinel://:s3cret@host/mymaster", "single server"),
        ] {
            let reason = reason(url);
            assert!(reason.contains(hint), "{url}: {reason}");
            assert!(!reason.contains("s3cret"), "{url}: {reason}");
        }
    }

    #[cfg(not(feature = "rustls"))]
    #[test]
    fn without_tls_a_tls_url_is_refused() {
        for url in ["rediss://:s3cret@localhost", "valkeys://localhost"] {
            let reason = reason(url);
            assert!(
                reason.contains("rustls") && !reason.contains("s3cret"),
                "{reason}"
            );
        }
    }

    #[cfg(feature = "rustls")]
    #[test]
    fn a_tls_url_asks_for_tls() {
        assert!(parse("rediss://localhost").unwrap().tls.is_some());
        assert!(parse("redis://localhost").unwrap().tls.is_none());
    }
}
