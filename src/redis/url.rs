//! Reads an address and credentials from a URL.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use url::Url;

use super::{
    attempts::Servers,
    connection::{ServerConfig, Transport},
    endpoint::{Address, Endpoint},
    socket::Sockets,
    target::Target,
};
use crate::error::Error;

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
    match url.scheme() {
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
    }
}

/// A URL, and details that its parser drops.
struct Given {
    url: Url,
    has_empty_password: bool,
}

impl std::ops::Deref for Given {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.url
    }
}

/// Whether the URL has an empty password, as in `redis://user:@host`, instead of none.
fn has_empty_password(text: &str) -> bool {
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
fn ends_in_its_password(text: &str) -> bool {
    let (_, rest) = text.split_once("://").unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let is_port = |port: &str| port.ends_with(']') || port.parse::<u16>().is_ok();
    let port = authority.rsplit_once(':');
    !authority.contains('@')
        && behind.contains('@')
        && port.is_some_and(|(host, port)| host.is_empty() || !is_port(port))
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

/// `scheme://[user:password@]host[:port][/database]`
fn single(url: &Given, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    allow_only(url, &[])?;
    let endpoint = Endpoint::Tcp((host(url)?, url.port().unwrap_or(SERVER_PORT)));
    let database = database(&mut path(url))?;
    server(url, transport, endpoint, database).map(Target::fixed)
}

/// `scheme://[user:password@]host[:port]/service[/database][?node=host:port..&sentinelUsername=..&sentinelPassword=..]`
fn sentinel(url: &Given, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    let of_sentinels = [
        "sentinelServiceName",
        "sentinelUsername",
        "sentinelPassword",
    ];
    allow_only(url, &[&["node"], &of_sentinels[..]].concat())?;
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
    allow_only(url, &["node"])?;
    let database = database(&mut path(url))?;
    let server = server(url, transport, Endpoint::unknown(), database)?;
    Ok(Target::replicated(server, addresses(url, SERVER_PORT)?))
}

/// `scheme://[user:password@]host[:port][?node=host:port..]`
fn cluster(url: &Given, transport: Arc<dyn Transport>) -> Result<Target, Error> {
    allow_only(url, &["node"])?;
    if !matches!(database(&mut path(url))?, None | Some(0)) {
        return Err(Error::config(
            "the path of the URL selects a database, and a cluster has only database 0: remove the path",
        ));
    }
    let server = server(url, transport, Endpoint::unknown(), None)?;
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
    Ok(ServerConfig {
        transport,
        endpoint,
        username,
        password,
        database,
        connection_name: None,
        servers: Servers::new(),
    })
}

/// The parts of the path.
fn path(url: &Url) -> impl Iterator<Item = &str> {
    url.path_segments().into_iter().flatten()
}

/// The database number of the rest of a path; `None` for an empty rest.
fn database<'a>(path: &mut impl Iterator<Item = &'a str>) -> Result<Option<u32>, Error> {
    let number = match path.next().unwrap_or_default() {
        "" => None,
        number if number.bytes().all(|digit| digit.is_ascii_digit()) => {
            Some(number.parse().map_err(|_| bad_database())?)
        }
        _ => return Err(bad_database()),
    };
    match path.all(str::is_empty) {
        true => Ok(number),
        false => Err(bad_database()),
    }
}

fn bad_database() -> Error {
    Error::config(
        "the path of the URL is not a database number: write redis://host/3 for database 3",
    )
}

fn host(url: &Url) -> Result<String, Error> {
    match url.host() {
        // A resolver would treat the brackets of `[::1]` as part of a name.
        Some(url::Host::Ipv6(address)) => Ok(address.to_string()),
        Some(host) => Ok(host.to_string()),
        None => Err(Error::config("the URL names no host")),
    }
}

fn addresses(url: &Url, port: u16) -> Result<Vec<Address>, Error> {
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

/// The values of a parameter. A plus sign is no space, as elsewhere in a URL: passwords may contain one.
fn query<'a>(url: &'a Url, key: &'a str) -> impl Iterator<Item = Result<String, Error>> + 'a {
    let pairs = url.query().unwrap_or_default().split('&');
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let values = pairs.filter(move |(name, _)| *name == key);
    values.map(|(_, value)| decoded(value, "query"))
}

/// The value of a parameter that may occur once.
fn parameter(url: &Url, key: &str) -> Result<Option<String>, Error> {
    let mut values = query(url, key);
    match (values.next().transpose()?, values.next()) {
        (value, None) => Ok(value),
        _ => Err(Error::config(format!("the URL has more than one {key}"))),
    }
}

/// Refuses unknown parameters: a misspelt one would be ignored. The error does not contain the name, which may be the rest
/// of a password.
fn allow_only(url: &Url, parameters: &[&str]) -> Result<(), Error> {
    let query = url.query().unwrap_or_default();
    let mut names = query
        .split('&')
        .map(|pair| pair.split('=').next().unwrap_or_default());
    if query.is_empty() || names.all(|name| parameters.contains(&name)) {
        return Ok(());
    }
    Err(Error::config(match parameters.join(", ") {
        none if none.is_empty() && query.starts_with("node=") => {
            "the URL is for one server: for several, use \
         redis-cluster://, redis-sentinel:// or redis-replicated://"
                .to_owned()
        }
        none if none.is_empty() => {
            "the URL has a parameter, and its scheme takes none: give a database as the \
         path, as in redis://host/3, and in a password write %3F for ?"
                .to_owned()
        }
        known => format!("the URL has a parameter other than {known}: in a value, write %26 for &"),
    }))
}

/// A part of a URL, with percent escapes decoded.
fn decoded(part: &str, which: &str) -> Result<String, Error> {
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

/// `unix://[user:password@localhost]/path/to/socket[?db=database]`
fn unix(url: &Given) -> Result<Target, Error> {
    if url.path().is_empty() || url.path() == "/" {
        return Err(Error::config(
            "the URL names no socket: write unix:///run/redis.sock",
        ));
    }
    allow_only(url, &["db"])?;
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
#[path = "url_tests.rs"]
mod tests;
