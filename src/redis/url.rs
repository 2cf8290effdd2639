//! Reads an address and credentials from a URL.

mod parts;

use std::sync::Arc;

use url::Url;

use super::{
    attempts::Servers,
    connection::{ServerConfig, Transport},
    endpoint::Endpoint,
    socket::Sockets,
    target::Target,
};
use crate::{endpoint_kind::EndpointKind, error::Error};
use parts::{
    Given, addresses, allow_only, database, decoded, ends_in_its_password, has_empty_password,
    host, parameter, path,
};

impl Target {
    pub(crate) fn url(url: &str) -> Result<Self, Error> {
        parse(url)
    }

    /// The master of `service`, which the sentinels `nodes` name.
    pub(crate) fn sentinel(
        service: &str,
        nodes: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        of_nodes("sentinel", [service], nodes)
    }

    /// A `replicated`, `cluster` or `sentinel` set-up of `nodes`, with the path of its URL.
    pub(crate) fn several(
        set_up: &str,
        path: &[&str],
        nodes: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        of_nodes(set_up, path.iter().copied(), nodes)
    }
}

/// Reads a URL. No error contains a part of it: it may carry a password.
pub(super) fn parse(text: &str) -> Result<Target, Error> {
    // The parser would drop these characters, and with them a part of a password.
    let text = text.trim();
    if text.contains(['\t', '\r', '\n']) {
        return Err(Error::config(
            "the URL contains a tab or a line break: in a password, write %09, %0D or %0A",
        ));
    }
    if !text.contains("://") {
        return Err(Error::config(
            "the URL has no scheme: write redis://host:port, or unix:///path for a socket",
        ));
    }
    if ends_in_its_password(text) {
        return Err(Error::config(
            "the URL has a /, ? or # before its @: in a user or a password, write %2F, %3F or %23",
        ));
    }
    let url = Url::parse(text).map_err(|error| {
        Error::config(format!(
            "the URL is invalid ({error}): write redis://[user:password@]host[:port][/database], and further \
             servers as ?node=host:port&node=host:port"
        ))
    })?;
    if url.fragment().is_some() {
        return Err(Error::config(
            "the URL has a fragment, which has no meaning here: in a password, write %23 for #",
        ));
    }
    let url = &Given {
        has_empty_password: has_empty_password(text),
        url,
    };
    let mut target = match url.scheme() {
        "redis" | "valkey" => single(url, Sockets::plain()),
        "rediss" | "valkeys" => single(url, Sockets::encrypted()?),
        "unix" | "redis+unix" | "valkey+unix" => unix(url),
        "redis-sentinel" | "valkey-sentinel" => sentinel(url, Sockets::plain()),
        "rediss-sentinel" | "valkeys-sentinel" => sentinel(url, Sockets::encrypted()?),
        "redis-replicated" | "valkey-replicated" => replicated(url, Sockets::plain()),
        "rediss-replicated" | "valkeys-replicated" => replicated(url, Sockets::encrypted()?),
        "redis-cluster" | "valkey-cluster" => cluster(url, Sockets::plain()),
        "rediss-cluster" | "valkeys-cluster" => cluster(url, Sockets::encrypted()?),
        other => Err(Error::config(format!(
            "the URL has the scheme {other:?}: use redis, rediss, valkey, valkeys, unix, redis-sentinel, \
             redis-replicated or redis-cluster"
        ))),
    }?;
    if let Some(kind) = parameter(url, "endpoint")? {
        let kind = EndpointKind::of_name(&kind).ok_or_else(|| {
            Error::config("the URL's endpoint is unknown: write endpoint=auto, endpoint=server or endpoint=proxy")
        })?;
        target.set_endpoint_kind(kind)?;
    }
    Ok(target)
}

/// The target of a URL with these nodes and this path.
pub(super) fn of_nodes<'a>(
    set_up: &str,
    path: impl IntoIterator<Item = &'a str>,
    nodes: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Target, Error> {
    let mut security = None;
    let mut hosts = Vec::new();
    for node in nodes {
        let node = node.as_ref();
        let (scheme, host) = node.split_once("://").unwrap_or(("redis", node));
        let first = security.get_or_insert_with(|| scheme.to_owned());
        let is_encrypted = |scheme: &str| matches!(scheme, "rediss" | "valkeys");
        if is_encrypted(first) != is_encrypted(scheme) {
            return Err(Error::config(
                "some nodes have rediss:// and some have not: use TLS for all nodes or for none",
            ));
        }
        // A user, a path or a query of a node would be lost silently.
        let is_plain = !host.is_empty() && !host.contains(['@', '/', '?', '#']);
        if !is_plain || !matches!(scheme, "redis" | "rediss" | "valkey" | "valkeys") {
            return Err(Error::config(
                "write a node as host:port or rediss://host:port, and set user and password by `credentials`",
            ));
        }
        hosts.push(host.to_owned());
    }
    let (Some(security), Some(first)) = (security, hosts.first()) else {
        return Err(Error::config(
            "the list of nodes is empty: give at least one host:port",
        ));
    };
    let mut url = Url::parse(&format!("{security}-{set_up}://{first}"))
        .map_err(|error| Error::config(format!("a node is invalid ({error}): write host:port")))?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.extend(path);
    }
    for host in &hosts[1..] {
        url.query_pairs_mut().append_pair("node", host);
    }
    parse(url.as_str())
}

/// The default port of sentinels.
const SENTINEL_PORT: u16 = 26379;
const SERVER_PORT: u16 = 6379;
/// The parameters of every URL.
const GENERAL: &[&str] = &["protocol", "endpoint"];

/// `scheme://[user:password@]host[:port][/database]`
fn single(url: &Given, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    allow_only(url, GENERAL)?;
    let endpoint = Endpoint::Tcp((host(url)?, url.port().unwrap_or(SERVER_PORT)));
    let database = database(&mut path(url))?;
    server(url, transport, endpoint, database).map(Target::fixed)
}

/// `scheme://[user:password@]host[:port]/service[/database][?node=host:port..&sentinelUsername=..&sentinelPassword=..]`
fn sentinel(url: &Given, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    let of_sentinels = [
        "node",
        "sentinelServiceName",
        "sentinelUsername",
        "sentinelPassword",
    ];
    allow_only(url, &[&of_sentinels[..], GENERAL].concat())?;
    let mut path = path(url);
    let in_query = parameter(url, "sentinelServiceName")?;
    let service = match in_query {
        Some(service) => service,
        None => decoded(path.next().unwrap_or_default(), "path")?,
    };
    if service.is_empty() {
        return Err(Error::config(
            "the URL names no service: write redis-sentinel://host:26379/service?node=host2:26379",
        ));
    }
    let database = database(&mut path)?;
    let sentinels = (
        parameter(url, "sentinelUsername")?,
        parameter(url, "sentinelPassword")?,
    );
    if let (Some(_), None) = sentinels {
        return Err(Error::config(
            "the URL has a sentinelUsername without a sentinelPassword: set both or neither",
        ));
    }
    Ok(Target::of_service(
        server(url, transport, Endpoint::unknown(), database)?,
        service,
        sentinels,
        addresses(url, SENTINEL_PORT)?,
    ))
}

/// `scheme://[user:password@]host[:port][/database][?node=host:port..]`
fn replicated(url: &Given, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    allow_only(url, &[&["node"], GENERAL].concat())?;
    let database = database(&mut path(url))?;
    let server = server(url, transport, Endpoint::unknown(), database)?;
    Ok(Target::replicated(server, addresses(url, SERVER_PORT)?))
}

/// `scheme://[user:password@]host[:port][/database][?node=host:port..]`
fn cluster(url: &Given, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    allow_only(url, &[&["node"], GENERAL].concat())?;
    let database = database(&mut path(url))?;
    let server = server(url, transport, Endpoint::unknown(), database)?;
    Ok(Target::cluster(server, addresses(url, SERVER_PORT)?))
}

/// A server at `endpoint`, with the credentials of the URL.
fn server(
    url: &Given,
    transport: Arc<dyn Transport>,
    endpoint: Endpoint,
    database: Option<u32>,
) -> Result<ServerConfig, Error> {
    let text = |part: &str| match decoded(part, "user or password")? {
        text if text.is_empty() => Ok::<_, Error>(None),
        text => Ok(Some(text)),
    };
    let username = text(url.username())?;
    let mut password = text(url.password().unwrap_or_default())?;
    if url.has_empty_password && username.is_some() {
        password = Some(String::new());
    }
    if username.is_some() && password.is_none() {
        return Err(Error::config(
            "the URL has a user without a password: write user:password@, :password@ for the user `default`, or \
             user:@ for an empty password",
        ));
    }
    let protocol = parameter(url, "protocol")?.map(|protocol| protocol.parse());
    let protocol = protocol.transpose().map_err(|_| {
        Error::config("the URL's protocol is unknown: write protocol=auto, RESP2 or RESP3")
    })?;
    Ok(ServerConfig {
        transport,
        endpoint,
        username,
        password,
        database,
        protocol: protocol.unwrap_or_default(),
        connection_name: None,
        servers: Servers::new(),
    })
}

/// `unix://[user:password@localhost]/path/to/socket[?db=database]`
fn unix(url: &Given) -> Result<Target, Error> {
    if url.path().is_empty() || url.path() == "/" {
        return Err(Error::config(
            "the URL names no socket: write unix:///run/redis.sock",
        ));
    }
    allow_only(url, &[&["db"], GENERAL].concat())?;
    if !matches!(url.host_str(), None | Some("" | "localhost")) || url.port().is_some() {
        return Err(Error::config(
            "the URL of a socket names a host: write unix:///run/redis.sock, with three slashes",
        ));
    }
    let number = parameter(url, "db")?.map(|number| database(&mut [&*number].into_iter()));
    let number = number.transpose().map_err(|_| {
        Error::config("the URL's db is not a database number: write unix:///run/redis.sock?db=3 for database 3")
    })?;
    let endpoint = Endpoint::Unix(decoded(url.path(), "path")?.into());
    server(url, Sockets::plain(), endpoint, number.flatten()).map(Target::fixed)
}

#[cfg(test)]
mod forms_tests;
#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
