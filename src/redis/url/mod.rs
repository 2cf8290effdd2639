//! Reads an address and credentials from a URL. `forms.txt` says what each form means.
//!
//! - [`parts`]: splits a URL into login, host, path and parameters.
//! - [`host`]: a host and a port, in a URL or in a list of nodes.
//! - [`text`]: schemes, percent sequences, paths and numbers.

mod host;
mod parts;
mod text;

use std::sync::Arc;

use super::{
    endpoint::Endpoint,
    opener::{Opener, ServerConfig},
    socket::Sockets,
    target::Target,
};
use crate::{endpoint_kind::EndpointKind, error::Error};
use host::Host;
use parts::Url;
use text::{database, decoded, ends_in_its_password, escaped, scheme, without_breaks};

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

/// Reads a URL. No error contains a part of it, except its scheme: it may carry a password.
pub(super) fn parse(text: &str) -> Result<Target, Error> {
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
    if text.contains('#') {
        return Err(Error::config(
            "the URL has a fragment, which has no meaning here: in a password, write %23 for #",
        ));
    }
    let (scheme, rest) = scheme(text)?;
    let (form, opener) = form_of(&scheme)?;
    let url = &Url::read(rest)?;
    let mut target = form(url, opener)?;
    if let Some(kind) = url.parameter("endpoint")? {
        let kind = EndpointKind::of_name(&kind).ok_or_else(|| {
            Error::config("the URL's endpoint is unknown: write endpoint=auto, endpoint=server or endpoint=proxy")
        })?;
        target.set_endpoint_kind(kind)?;
    }
    Ok(target)
}

/// Reads the rest of a URL of one scheme.
type Form = fn(&Url, Arc<dyn Opener>) -> Result<Target, Error>;

fn form_of(scheme: &str) -> Result<(Form, Arc<dyn Opener>), Error> {
    Ok(match scheme {
        "redis" | "valkey" => (single, Sockets::plain()),
        "rediss" | "valkeys" => (single, Sockets::encrypted()?),
        "unix" | "redis+unix" | "valkey+unix" => (unix, Sockets::plain()),
        "redis-sentinel" | "valkey-sentinel" => (sentinel, Sockets::plain()),
        "rediss-sentinel" | "valkeys-sentinel" => (sentinel, Sockets::encrypted()?),
        "redis-replicated" | "valkey-replicated" => (replicated, Sockets::plain()),
        "rediss-replicated" | "valkeys-replicated" => (replicated, Sockets::encrypted()?),
        "redis-cluster" | "valkey-cluster" => (cluster, Sockets::plain()),
        "rediss-cluster" | "valkeys-cluster" => (cluster, Sockets::encrypted()?),
        other => {
            return Err(Error::config(format!(
                "the URL has the scheme {other:?}: use redis, rediss, valkey, valkeys, unix, redis-sentinel, \
                 redis-replicated or redis-cluster"
            )));
        }
    })
}

/// The target of a URL with these nodes and this path.
pub(super) fn of_nodes<'a>(
    set_up: &str,
    path: impl IntoIterator<Item = &'a str>,
    nodes: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Target, Error> {
    let (security, nodes) = plain(nodes)?;
    let Some((first, further)) = nodes.split_first() else {
        return Err(Error::config(
            "the list of nodes is empty: give at least one host:port",
        ));
    };
    let first = Host::of_node(first).map_err(|reason| {
        Error::config(format!("a node is invalid ({reason}): write host:port"))
    })?;
    let escaped = |text: &str| escaped(text, |byte| byte == b'.' || byte.is_ascii_alphanumeric());
    // The parts after an empty first one take its place.
    let parts = path.into_iter().map(without_breaks);
    let parts = parts.skip_while(|part| part.is_empty() && first.behind.is_empty());
    let path: String = parts.map(|part| format!("/{}", escaped(&part))).collect();
    // No resolver finds a name with a space, or with the plus sign in its place.
    let further = further.iter().map(|node| escaped(&node.replace(' ', "+")));
    let query: String = further.map(|node| format!("node={node}&")).collect();
    let (form, opener) = form_of(&format!("{security}-{set_up}"))?;
    form(&Url::of(None, first, &path, &query), opener)
}

/// The scheme of the first node, and all nodes without theirs.
fn plain(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(String, Vec<String>), Error> {
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
    Ok((security.unwrap_or_default(), hosts))
}

/// The default port of sentinels.
const SENTINEL_PORT: u16 = 26379;
const SERVER_PORT: u16 = 6379;
/// The parameters of every URL.
const GENERAL: &[&str] = &["protocol", "endpoint"];

/// `scheme://[user:password@]host[:port][/database]`
fn single(url: &Url, opener: Arc<dyn Opener>) -> Result<Target, Error> {
    url.allow_only(GENERAL)?;
    let endpoint = Endpoint::Tcp(url.address(SERVER_PORT)?);
    let database = database(&mut url.path_parts())?;
    server(url, opener, endpoint, database).map(Target::fixed)
}

/// `scheme://[user:password@]host[:port]/service[/database][?node=host:port..&sentinelUsername=..&sentinelPassword=..]`
fn sentinel(url: &Url, opener: Arc<dyn Opener>) -> Result<Target, Error> {
    let of_sentinels = [
        "node",
        "sentinelServiceName",
        "sentinelUsername",
        "sentinelPassword",
    ];
    url.allow_only(&[&of_sentinels[..], GENERAL].concat())?;
    let mut path = url.path_parts();
    let in_query = url.parameter("sentinelServiceName")?;
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
        url.parameter("sentinelUsername")?,
        url.parameter("sentinelPassword")?,
    );
    if let (Some(_), None) = sentinels {
        return Err(Error::config(
            "the URL has a sentinelUsername without a sentinelPassword: set both or neither",
        ));
    }
    Ok(Target::of_service(
        server(url, opener, Endpoint::unknown(), database)?,
        service,
        sentinels,
        url.addresses(SENTINEL_PORT)?,
    ))
}

/// `scheme://[user:password@]host[:port][/database][?node=host:port..]`
fn replicated(url: &Url, opener: Arc<dyn Opener>) -> Result<Target, Error> {
    url.allow_only(&[&["node"], GENERAL].concat())?;
    let database = database(&mut url.path_parts())?;
    let server = server(url, opener, Endpoint::unknown(), database)?;
    Ok(Target::replicated(server, url.addresses(SERVER_PORT)?))
}

/// `scheme://[user:password@]host[:port][/database][?node=host:port..]`
fn cluster(url: &Url, opener: Arc<dyn Opener>) -> Result<Target, Error> {
    url.allow_only(&[&["node"], GENERAL].concat())?;
    let database = database(&mut url.path_parts())?;
    let server = server(url, opener, Endpoint::unknown(), database)?;
    Ok(Target::cluster(server, url.addresses(SERVER_PORT)?))
}

/// A server at `endpoint`, with the credentials of the URL.
fn server(
    url: &Url,
    opener: Arc<dyn Opener>,
    endpoint: Endpoint,
    database: Option<u32>,
) -> Result<ServerConfig, Error> {
    let (username, password) = url.credentials()?;
    let protocol = url.parameter("protocol")?.map(|protocol| protocol.parse());
    let protocol = protocol.transpose().map_err(|_| {
        Error::config("the URL's protocol is unknown: write protocol=auto, RESP2 or RESP3")
    })?;
    Ok(ServerConfig {
        username,
        password,
        database,
        protocol: protocol.unwrap_or_default(),
        ..ServerConfig::new(opener, endpoint)
    })
}

/// `unix://[user:password@localhost]/path/to/socket[?db=database]`
fn unix(url: &Url, opener: Arc<dyn Opener>) -> Result<Target, Error> {
    if matches!(&*url.path, "" | "/") {
        return Err(Error::config(
            "the URL names no socket: write unix:///run/redis.sock",
        ));
    }
    url.allow_only(&[&["db"], GENERAL].concat())?;
    let is_local = match &*url.host.name {
        "" => url.login != Some(""),
        name => name == "localhost",
    };
    if !is_local || url.host.port.is_some() {
        return Err(Error::config(
            "the URL of a socket names a host: write unix:///run/redis.sock, with three slashes",
        ));
    }
    let number = url
        .parameter("db")?
        .map(|number| database(&mut [&*number].into_iter()));
    let number = number.transpose().map_err(|_| {
        Error::config("the URL's db is not a database number: write unix:///run/redis.sock?db=3 for database 3")
    })?;
    let endpoint = Endpoint::Unix(decoded(&url.path, "path")?.into());
    server(url, opener, endpoint, number.flatten()).map(Target::fixed)
}

#[cfg(test)]
mod forms_tests;
#[cfg(test)]
mod tests;
