//! The configuration file of Java's Redisson: one file for services in both languages.

mod section;
mod yaml;

use std::{collections::HashMap, fmt, path::PathBuf};

use section::{Environment, Section};

use super::{LockClient, LockClientBuilder};
use crate::{
    config::{Config, ShardedPubSub},
    error::Error,
    redis::Target,
    wire::name,
};

/// A configuration of Redisson, read from its YAML (or JSON). Needs the feature `redisson-yaml`.
///
/// | | |
/// | --- | --- |
/// | servers | `singleServerConfig`, `sentinelServersConfig`, `clusterServersConfig`, `replicatedServersConfig`, and of `masterSlaveServersConfig` the master |
/// | logins | `username`, `password`, of the file or the section; of sentinels `sentinelUsername`, `sentinelPassword`; `database` |
/// | TLS, by addresses with `rediss://` | `sslTruststore` and `sslKeystore`, as `file:` URLs of PEM files; the second with certificate and key |
/// | times | `timeout`, `connectTimeout` (cut to 5 s), in milliseconds or with a unit |
/// | locks | `lockWatchdogTimeout`, `lockWatchdogBatchSize`, `fairLockWaitTimeout`, `slavesSyncTimeout` (cut to `timeout`), `checkLockSyncedSlaves`, `shardedSubscriptionMode`, `lazyInitialization` |
/// | names | a `nameMapper` of any class whose one setting is `prefix`; `clientName` |
/// | addresses of sentinels and clusters | a `natMapper` of the class `HostPortNatMapper` or `HostNatMapper`, or a `natMap` |
///
/// In values, `${NAME}` and `${NAME:-default}` stand for environment variables. [`ignored`](Self::ignored) lists the
/// settings without a meaning here. A setting that this client cannot apply is an error that names it. So is a setting in the wrong
/// section, and a setting whose name resembles one above.
///
/// `timeout` is [`Config::command_wait`], which covers all repetitions of a command; in Redisson it is the wait for one
/// answer. `retryAttempts`, `retryInterval`, `retryDelay` and `reconnectionDelay` are therefore ignored: a command is
/// repeated on each new connection until its wait ends, and a repetition changes nothing on the server.
///
/// # Examples
///
/// ```
/// use redisson_lock::RedissonConfig;
///
/// let file = "
///   singleServerConfig:
///     address: redis://${REDIS_HOST:-127.0.0.1}:6379
///     connectionPoolSize: 64
///   lockWatchdogTimeout: 20000
/// ";
/// let redisson = RedissonConfig::from_yaml(file)?;
/// assert_eq!(redisson.config().watchdog_lease.as_secs(), 20);
/// assert_eq!(redisson.ignored(), ["singleServerConfig.connectionPoolSize"]);
/// let builder = redisson.into_builder();
/// # Ok::<(), redisson_lock::Error>(())
/// ```
pub struct RedissonConfig {
    builder: LockClientBuilder,
    config: Config,
    ignored: Vec<String>,
}

impl LockClient {
    /// Connects by the settings of Redisson's YAML: see [`RedissonConfig`]. Logs the names of the
    /// [ignored](RedissonConfig::ignored) settings.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and [`Error::Config`] with the name of an invalid or unsupported setting.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Redisson
    ///
    /// `Redisson.create(Config.fromYAML(text))`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = std::fs::read_to_string("redisson.yaml")?;
    /// let client = redisson_lock::LockClient::from_redisson_yaml(text).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn from_redisson_yaml(text: impl AsRef<str>) -> Result<Self, Error> {
        RedissonConfig::logged_builder(text)?.build().await
    }
}

impl RedissonConfig {
    /// Reads the YAML, with the variables of this process's environment.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], with the line or the name of an invalid or unsupported setting. No error shows a user, a password or
    /// an address.
    pub fn from_yaml(text: impl AsRef<str>) -> Result<Self, Error> {
        Self::read(text.as_ref(), &|name| std::env::var(name).ok())
    }

    /// The settings of locks.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The names of the settings without a meaning here, such as the sizes of pools, in the order of the file.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Returns a builder with these settings, for further settings.
    pub fn into_builder(self) -> LockClientBuilder {
        self.builder
    }

    /// The builder of a file, after a log line about its settings without effect.
    pub(crate) fn logged_builder(text: impl AsRef<str>) -> Result<LockClientBuilder, Error> {
        let Self {
            builder, ignored, ..
        } = Self::from_yaml(text)?;
        if !ignored.is_empty() {
            let settings = ignored.join(", ");
            tracing::info!(
                settings,
                "settings of the Redisson file have no effect here"
            );
        }
        Ok(builder)
    }

    fn read(text: &str, environment: Environment<'_>) -> Result<Self, Error> {
        let tree = yaml::parse(text)?;
        let file = Section::new("", &tree, environment)?;
        let (kind, section) = servers(&file)?;
        let both = [&section, &file];
        let mut config = locks(&file)?;
        if let Some(wait) = section.time("timeout")? {
            config.command_wait = wait;
        }
        if let Some(mode) = section.text("shardedSubscriptionMode")? {
            config.sharded_pubsub = match &*mode {
                "AUTO" => ShardedPubSub::Auto,
                "ON" => ShardedPubSub::On,
                "OFF" => ShardedPubSub::Off,
                _ => {
                    let told = "the value must be AUTO, ON or OFF";
                    return Err(section.error("shardedSubscriptionMode", told));
                }
            };
        }
        if let Some(name) = section.text("clientName")? {
            config.client_name = name;
        }
        let [own, general] = [prefix(&section)?, prefix(&file)?];
        if let Some(prefix) = own.or(general) {
            config.name_prefix = prefix;
        }
        let path_of = |setting: &str| match setting {
            "watchdog_lease" => file.path_of("lockWatchdogTimeout"),
            "watchdog_batch_size" => file.path_of("lockWatchdogBatchSize"),
            "replica_wait" => file.path_of("slavesSyncTimeout"),
            "command_wait" => section.path_of("timeout"),
            "client_name" => section.path_of("clientName"),
            default => default.to_owned(),
        };
        // The check cuts long waits: `config` returns the values of the file.
        config.clone().check_as(&path_of)?;
        let (target, is_tls) = kind.target(&section)?;
        let mut builder = LockClient::builder().target(target).config(config.clone());
        builder = log_in(builder, both)?;
        builder = log_in_to_sentinels(builder, kind, &section)?;
        if let Some(wait) = section.time("connectTimeout")? {
            if wait.is_zero() {
                return Err(section.error("connectTimeout", "the value must not be 0"));
            }
            builder = builder.connect_timeout(wait);
        }
        if is_tls {
            builder = encrypt(builder, both)?;
        }
        if let Some((key, map)) = addresses(&section)? {
            if !matches!(kind, Kind::Sentinel | Kind::Cluster) {
                let told = "only sentinels and nodes of a cluster announce addresses: write the addresses that this client \
                    can reach";
                return Err(section.error(key, told));
            }
            builder = builder.address_map(map);
        }
        if let Some(lazy) = file.flag("lazyInitialization")? {
            builder = builder.lazy(lazy);
        }
        for section in both {
            refuse_other_classes(section)?;
        }
        file.check_names(&section)?;
        section.check_names(&file)?;
        Ok(Self {
            builder,
            config,
            ignored: file.unread().chain(section.unread()).collect(),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
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
fn servers<'a>(file: &Section<'a>) -> Result<(Kind, Section<'a>), Error> {
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
    /// The servers, and whether TLS is used.
    fn target(self, section: &Section<'_>) -> Result<(Target, bool), Error> {
        let database = section.number("database")?.unwrap_or(0).to_string();
        let key = match self {
            Kind::Single => "address",
            Kind::MasterSlave => "masterAddress",
            Kind::Sentinel => "sentinelAddresses",
            Kind::Cluster | Kind::Replicated => "nodeAddresses",
        };
        let addresses = section.texts(key)?;
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
            Kind::Cluster if database != "0" => {
                return Err(section.error("database", "a cluster has only database 0"));
            }
            Kind::Cluster => Target::several("cluster", &[], &addresses),
            Kind::Replicated => Target::several("replicated", &[&database], &addresses),
        };
        Ok((found.map_err(|error| section.error(key, error))?, is_tls))
    }
}

fn one(address: &str, database: &str) -> Result<Target, Error> {
    if let Some(path) = address.strip_prefix("redis+uds://") {
        return Target::url(&format!("unix://{path}?db={database}"));
    }
    if address.contains('@') {
        return Err(Error::config(
            "the address contains a user or a password: set `username` and `password` instead",
        ));
    }
    Target::url(&format!("{}/{database}", address.trim_end_matches('/')))
}

fn locks(file: &Section<'_>) -> Result<Config, Error> {
    let mut config = Config::default();
    for (key, setting) in [
        ("lockWatchdogTimeout", &mut config.watchdog_lease),
        ("fairLockWaitTimeout", &mut config.fair_lock_wait),
        ("slavesSyncTimeout", &mut config.replica_wait),
    ] {
        if let Some(time) = file.time(key)? {
            *setting = time;
        }
    }
    if let Some(size) = file.number("lockWatchdogBatchSize")? {
        config.watchdog_batch_size = usize::try_from(size).unwrap_or(usize::MAX);
    }
    if let Some(check) = file.flag("checkLockSyncedSlaves")? {
        config.check_replicas = check;
    }
    Ok(config)
}

fn log_in(builder: LockClientBuilder, both: [&Section<'_>; 2]) -> Result<LockClientBuilder, Error> {
    let (username, password) = (first(both, "username")?, first(both, "password")?);
    match (username, password) {
        (username, Some(password)) => {
            Ok(builder.credentials(username.unwrap_or_default(), password))
        }
        (Some(_), None) => Err(Error::config(
            "username: the password is missing, and Redisson does not log in without one",
        )),
        (None, None) => Ok(builder),
    }
}

fn log_in_to_sentinels(
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
    // An empty user, as of a variable that is not set, is none.
    let user = section.text(username)?.filter(|user| !user.is_empty());
    match (user, section.text(password)?) {
        (user, Some(password)) => {
            Ok(builder.sentinel_credentials(user.unwrap_or_default(), password))
        }
        (Some(_), None) => Err(section.error(username, "the password is missing")),
        (None, None) => Ok(builder),
    }
}

/// A setting of the section, or of the file if the section lacks it.
fn first(both: [&Section<'_>; 2], key: &str) -> Result<Option<String>, Error> {
    let [section, file] = both;
    let (own, general) = (section.text(key)?, file.text(key)?);
    Ok(own.or(general))
}

fn encrypt(
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

/// The prefix that a mapper adds to names.
fn prefix(section: &Section<'_>) -> Result<Option<String>, Error> {
    let Some(class) = section.class("nameMapper")? else {
        return Ok(None);
    };
    if class == "DefaultNameMapper" {
        return Ok(None);
    }
    let mapper = section.section("nameMapper")?;
    let prefix = mapper.as_ref().map(|mapper| mapper.text("prefix"));
    match (prefix.transpose()?.flatten(), mapper) {
        (Some(prefix), Some(mapper)) if mapper.unread().next().is_none() => {
            match name::check(&prefix) {
                Err(reason) if !prefix.is_empty() => {
                    let told = format!("the prefix cannot begin the name of a lock: {reason}");
                    Err(section.error("nameMapper", told))
                }
                _ => Ok(Some(prefix)),
            }
        }
        _ => Err(section.error(
            "nameMapper",
            format!("{class} is not supported: the only supported name mappers are those whose single setting is \
             `prefix`"),
        )),
    }
}

type AddressMap = Box<dyn Fn(&str, u16) -> (String, u16) + Send + Sync>;

/// The addresses of a mapper, announced to real, and the setting that has them.
fn addresses(section: &Section<'_>) -> Result<Option<(&'static str, AddressMap)>, Error> {
    if let Some(pairs) = section.section("natMap")? {
        return Ok(Some(("natMap", ports_map(&pairs)?)));
    }
    let Some(class) = section.class("natMapper")? else {
        return Ok(None);
    };
    let (key, map): (_, fn(&Section<'_>) -> _) = match class {
        "DefaultNatMapper" => return Ok(None),
        "HostPortNatMapper" => ("hostsPortMap", ports_map),
        "HostNatMapper" => ("hostsMap", hosts_map),
        _ => {
            let told = format!("{class} is not supported: use `address_map` of the builder");
            return Err(section.error("natMapper", told));
        }
    };
    let mapper = section.section("natMapper")?;
    let pairs = mapper.as_ref().map(|mapper| mapper.section(key));
    let (Some(mapper), Some(pairs)) = (&mapper, pairs.transpose()?.flatten()) else {
        // Redisson itself writes the class without its map.
        return Err(section.error(
            "natMapper",
            format!("the setting {key} of {class} is missing"),
        ));
    };
    if let Some(other) = mapper.unread().next() {
        return Err(Error::config(format!(
            "{other}: unknown setting of {class}"
        )));
    }
    Ok(Some(("natMapper", map(&pairs)?)))
}

fn hosts_map(pairs: &Section<'_>) -> Result<AddressMap, Error> {
    let hosts: HashMap<String, String> = pairs.pairs()?.into_iter().collect();
    Ok(Box::new(move |host, port| {
        (hosts.get(host).map_or(host, |host| host).to_owned(), port)
    }))
}

fn ports_map(pairs: &Section<'_>) -> Result<AddressMap, Error> {
    let mut ports = HashMap::new();
    for (from, to) in pairs.pairs()? {
        let address = to.rsplit_once(':');
        let address = address.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        let address = address.ok_or_else(|| pairs.error(&from, "write host:port"))?;
        ports.insert(from, address);
    }
    Ok(Box::new(move |host, port| {
        let known = ports.get(&format!("{host}:{port}"));
        known.cloned().unwrap_or_else(|| (host.to_owned(), port))
    }))
}

/// Java classes that change requests: they cannot run here.
fn refuse_other_classes(section: &Section<'_>) -> Result<(), Error> {
    for (key, harmless) in [
        ("credentialsResolver", "DefaultCredentialsResolver"),
        ("commandMapper", "DefaultCommandMapper"),
    ] {
        if let Some(class) = section.class(key)?.filter(|class| *class != harmless) {
            return Err(section.error(
                key,
                format!("{class} is a Java class, which this client cannot run"),
            ));
        }
    }
    Ok(())
}

impl fmt::Debug for RedissonConfig {
    /// Without users and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedissonConfig")
            .field("config", &self.config)
            .field("ignored", &self.ignored)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
