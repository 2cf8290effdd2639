//! From a URL, or the caller's own fred client, to a configuration of fred.

use fred::{
    interfaces::ClientLike,
    types::config::{Config, ServerConfig},
};
use url::Url;

use super::{
    locator::{Address, Question},
    server::{Asked, Target},
};
use crate::error::Error;

/// Reads a URL. No part of it comes back in an error: it may carry a password.
pub(super) fn parse(text: &str) -> Result<Target, Error> {
    let url = Url::parse(text).map_err(|error| {
        Error::config(format!(
            "the URL cannot be read ({error}): it should look like redis://[user:password@]host[:port][/database]; \
             more servers than one are written ?node=host:port&node=host:port"
        ))
    })?;
    match url.scheme() {
        "redis" | "valkey" => tcp(text, &url).map(Target::fixed),
        "rediss" | "valkeys" => tls(text, &url).map(Target::fixed),
        "unix" | "redis+unix" | "valkey+unix" => unix(text, &url).map(Target::fixed),
        "redis-sentinel" | "valkey-sentinel" => sentinel(&url, tcp),
        "rediss-sentinel" | "valkeys-sentinel" => sentinel(&url, tls),
        "redis-replicated" | "valkey-replicated" => replicated(&url, tcp),
        "rediss-replicated" | "valkeys-replicated" => replicated(&url, tls),
        "redis-cluster" | "valkey-cluster" => cluster(&url, tcp),
        "rediss-cluster" | "valkeys-cluster" => cluster(&url, tls),
        other => Err(Error::config(format!(
            "the URL has the scheme {other:?}: use redis, rediss, valkey, valkeys, unix, redis-sentinel, \
             redis-replicated or redis-cluster"
        ))),
    }
}

/// The target that a URL with these nodes, and this path, would name.
pub(super) fn of_nodes(
    set_up: &str,
    path: Option<&str>,
    nodes: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Target, Error> {
    let mut security = None;
    let mut hosts = Vec::new();
    for node in nodes {
        let node = node.as_ref();
        let (scheme, host) = node.split_once("://").unwrap_or(("redis", node));
        security.get_or_insert(scheme.to_owned());
        // A user, a path or a query there would be lost without a word.
        let is_plain = !host.is_empty() && !host.contains(['@', '/', '?', '#']);
        if !is_plain || !matches!(scheme, "redis" | "rediss" | "valkey" | "valkeys") {
            return Err(Error::config(
                "a node should look like host:port, or rediss://host:port; user and password are set apart",
            ));
        }
        hosts.push(host.to_owned());
    }
    let (Some(security), Some(first)) = (security, hosts.first()) else {
        return Err(Error::config("no node to connect to"));
    };
    let mut url = Url::parse(&format!("{security}-{set_up}://{first}")).map_err(|error| {
        Error::config(format!(
            "a node cannot be read ({error}): it should look like host:port"
        ))
    })?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.extend(path);
    }
    for host in &hosts[1..] {
        url.query_pairs_mut().append_pair("node", host);
    }
    parse(url.as_str())
}

/// Where sentinels listen unless told otherwise.
const SENTINEL_PORT: u16 = 26379;
const SERVER_PORT: u16 = 6379;

type Read = fn(&str, &Url) -> Result<Config, Error>;

/// `scheme://[user:password@]host[:port]/service[/database][?node=host:port..&sentinelUsername=..&sentinelPassword=..]`
fn sentinel(url: &Url, read: Read) -> Result<Target, Error> {
    let of_sentinels = [
        "sentinelServiceName",
        "sentinelUsername",
        "sentinelPassword",
    ];
    allow_only(url, &[&["node"], &of_sentinels[..]].concat())?;
    let mut path = url.path_segments().into_iter().flatten();
    let in_query = query(url, "sentinelServiceName").next();
    let service = match in_query {
        Some(service) => service,
        None => decoded(path.next().unwrap_or_default()),
    };
    if service.is_empty() {
        return Err(Error::config(
            "the URL names no service: it should look like redis-sentinel://host:26379/service?node=host2:26379",
        ));
    }
    let config = server_config(url, path.next(), read)?;
    let mut asking = config.clone();
    asking.database = None;
    asking.username = query(url, "sentinelUsername").next();
    asking.password = query(url, "sentinelPassword").next();
    Ok(Target::asking(
        config,
        Asked {
            question: Question::MasterOf(service),
            config: asking,
            addresses: addresses(url, SENTINEL_PORT)?,
        },
    ))
}

/// `scheme://[user:password@]host[:port][/database][?node=host:port..]`
fn replicated(url: &Url, read: Read) -> Result<Target, Error> {
    allow_only(url, &["node"])?;
    let database = url.path_segments().and_then(|mut path| path.next());
    let config = server_config(url, database, read)?;
    let mut asking = config.clone();
    asking.database = None;
    Ok(Target::asking(
        config,
        Asked {
            question: Question::AreYou,
            config: asking,
            addresses: addresses(url, SERVER_PORT)?,
        },
    ))
}

/// `scheme://[user:password@]host[:port][?node=host:port..]`
fn cluster(url: &Url, read: Read) -> Result<Target, Error> {
    allow_only(url, &["node"])?;
    let database = url.path_segments().and_then(|mut path| path.next());
    if !matches!(database, None | Some("" | "0")) {
        return Err(Error::config(
            "the URL's path is a database number, and a cluster has only database 0",
        ));
    }
    let config = server_config(url, None, read)?;
    Ok(Target::cluster(config, addresses(url, SERVER_PORT)?))
}

/// As whom to connect to the servers themselves.
fn server_config(url: &Url, database: Option<&str>, read: Read) -> Result<Config, Error> {
    let mut server = url.clone();
    server.set_query(None);
    server.set_path(database.unwrap_or_default());
    let text = server.to_string();
    // fred knows the schemes of single servers only.
    let text = text.split_once(':').map_or("", |(_, rest)| rest);
    read(&format!("redis:{text}"), &server)
}

fn addresses(url: &Url, port: u16) -> Result<Vec<Address>, Error> {
    let host = match url.host() {
        Some(url::Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
        None => return Err(Error::config("the URL names no host")),
    };
    let mut addresses = vec![(host, url.port().unwrap_or(port))];
    for node in query(url, "node") {
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
                    "a node of the URL cannot be read: it should look like node=host:port",
                ));
            }
        }
    }
    Ok(addresses)
}

/// The values of a parameter. A plus sign is one, as elsewhere in a URL: passwords have some.
fn query<'a>(url: &'a Url, key: &'a str) -> impl Iterator<Item = String> + 'a {
    let pairs = url.query().unwrap_or_default().split('&');
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let values = pairs.filter(move |(name, _)| *name == key);
    values.map(|(_, value)| decoded(value))
}

/// A misspelt parameter would be none. Its name is not told: it may be the rest of a password.
fn allow_only(url: &Url, parameters: &[&str]) -> Result<(), Error> {
    let mut names = url.query_pairs().map(|(name, _)| name);
    if names.all(|name| parameters.contains(&&*name)) {
        return Ok(());
    }
    let known = parameters.join(", ");
    Err(Error::config(format!(
        "the URL has a parameter that is none of {known}: in a value, & is written %26"
    )))
}

/// A part of a path or a query, its percent escapes read.
fn decoded(part: &str) -> String {
    let as_value = format!("={}", part.replace('+', "%2B"));
    let mut pairs = url::form_urlencoded::parse(as_value.as_bytes());
    pairs
        .next()
        .map_or_else(String::new, |(_, value)| value.into_owned())
}

/// Takes over where and as whom the caller's own client connects. Its connections stay its own.
pub(super) fn of_donor(donor: &fred::clients::Client) -> Result<Target, Error> {
    let config = donor.client_config();
    match &config.server {
        ServerConfig::Centralized { .. } | ServerConfig::Unix { .. } => Ok(Target::fixed(config)),
        ServerConfig::Sentinel {
            hosts,
            service_name,
            ..
        } => {
            let addresses = hosts
                .iter()
                .map(|server| (server.host.to_string(), server.port));
            let mut asking = config.clone();
            asking.database = None;
            asking.username = None;
            asking.password = None;
            let asked = Asked {
                question: Question::MasterOf(service_name.clone()),
                addresses: addresses.collect(),
                config: asking,
            };
            Ok(Target::asking(config, asked))
        }
        ServerConfig::Clustered { hosts, .. } => {
            let seeds = hosts
                .iter()
                .map(|server| (server.host.to_string(), server.port));
            let seeds = seeds.collect();
            Ok(Target::cluster(config, seeds))
        }
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
#[path = "url_tests.rs"]
mod tests;
