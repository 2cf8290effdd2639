//! From a URL to where and as whom to connect.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use url::Url;

use super::{
    connection::{Address, Endpoint, ServerConfig, Transport},
    fred::Fred,
    server::Target,
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
        "redis" | "valkey" => single(&url, Fred::plain()),
        "rediss" | "valkeys" => single(&url, Fred::encrypted()?),
        "unix" | "redis+unix" | "valkey+unix" => unix(&url),
        "redis-sentinel" | "valkey-sentinel" => sentinel(&url, Fred::plain()),
        "rediss-sentinel" | "valkeys-sentinel" => sentinel(&url, Fred::encrypted()?),
        "redis-replicated" | "valkey-replicated" => replicated(&url, Fred::plain()),
        "rediss-replicated" | "valkeys-replicated" => replicated(&url, Fred::encrypted()?),
        "redis-cluster" | "valkey-cluster" => cluster(&url, Fred::plain()),
        "rediss-cluster" | "valkeys-cluster" => cluster(&url, Fred::encrypted()?),
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

/// `scheme://[user:password@]host[:port][/database]`
fn single(url: &Url, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    let endpoint = Endpoint::Tcp((host(url)?, url.port().unwrap_or(SERVER_PORT)));
    let mut path = url.path_segments().into_iter().flatten();
    let database = database(path.next())?;
    match path.next() {
        None => server(url, transport, endpoint, database).map(Target::fixed),
        Some(_) => Err(bad_database()),
    }
}

/// `scheme://[user:password@]host[:port]/service[/database][?node=host:port..&sentinelUsername=..&sentinelPassword=..]`
fn sentinel(url: &Url, transport: Arc<dyn Transport>) -> Result<Target, Error> {
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
    let database = database(path.next())?;
    let sentinels = (
        query(url, "sentinelUsername").next(),
        query(url, "sentinelPassword").next(),
    );
    Ok(Target::of_service(
        server(url, transport, Endpoint::unknown(), database)?,
        service,
        sentinels,
        addresses(url, SENTINEL_PORT)?,
    ))
}

/// `scheme://[user:password@]host[:port][/database][?node=host:port..]`
fn replicated(url: &Url, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    allow_only(url, &["node"])?;
    let database = database(url.path_segments().and_then(|mut path| path.next()))?;
    let server = server(url, transport, Endpoint::unknown(), database)?;
    Ok(Target::replicated(server, addresses(url, SERVER_PORT)?))
}

/// `scheme://[user:password@]host[:port][?node=host:port..]`
fn cluster(url: &Url, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    allow_only(url, &["node"])?;
    let database = url.path_segments().and_then(|mut path| path.next());
    if !matches!(database, None | Some("" | "0")) {
        return Err(Error::config(
            "the URL's path is a database number, and a cluster has only database 0",
        ));
    }
    let server = server(url, transport, Endpoint::unknown(), None)?;
    Ok(Target::cluster(server, addresses(url, SERVER_PORT)?))
}

/// A server at `endpoint`, as whom the URL says.
fn server(
    url: &Url,
    transport: Arc<dyn Transport>,
    endpoint: Endpoint,
    database: Option<u8>,
) -> Result<ServerConfig, Error> {
    let text = |part: &str| match percent_decode_str(part).decode_utf8() {
        Ok(text) => Ok(Some(text.into_owned()).filter(|text| !text.is_empty())),
        Err(_) => Err(Error::config(
            "the URL's user or password is no UTF-8 once its percent escapes are read",
        )),
    };
    Ok(ServerConfig {
        transport,
        endpoint,
        username: text(url.username())?,
        password: text(url.password().unwrap_or_default())?,
        database,
    })
}

/// The number in a path; none in an empty one.
fn database(segment: Option<&str>) -> Result<Option<u8>, Error> {
    match segment.unwrap_or_default().trim() {
        "" => Ok(None),
        number => number.parse().map(Some).map_err(|_| bad_database()),
    }
}

fn bad_database() -> Error {
    Error::config("the URL's path is not a database number, such as redis://host/3")
}

fn host(url: &Url) -> Result<String, Error> {
    match url.host() {
        // A resolver would look up the brackets of `[::1]`.
        Some(url::Host::Ipv6(address)) => Ok(address.to_string()),
        Some(host) => Ok(host.to_string()),
        None => Err(Error::config("the URL names no host")),
    }
}

fn addresses(url: &Url, port: u16) -> Result<Vec<Address>, Error> {
    let mut addresses = vec![(host(url)?, url.port().unwrap_or(port))];
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
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

/// `unix://[user:password@localhost]/path/to/socket[?db=database]`
fn unix(url: &Url) -> Result<Target, Error> {
    if url.path().is_empty() || url.path() == "/" {
        return Err(Error::config(
            "the URL names no socket: it should look like unix:///run/redis.sock",
        ));
    }
    let number = url.query_pairs().find(|(key, _)| key == "db");
    let number = number.map(|(_, number)| {
        number.parse().map_err(|_| {
            Error::config(
                "the URL's db is not a database number, such as unix:///run/redis.sock?db=3",
            )
        })
    });
    let endpoint = Endpoint::Unix(url.path().into());
    server(url, Fred::plain(), endpoint, number.transpose()?).map(Target::fixed)
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
