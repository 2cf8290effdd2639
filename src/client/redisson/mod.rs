//! The configuration file of Java's Redisson: one file for services in both languages.

mod known;
mod mappers;
mod section;
mod security;
mod servers;
mod spring;
mod yaml;

use std::{collections::BTreeSet, fmt, sync::Mutex};

use known::{is_accepted, is_known};
use mappers::{addresses, prefix};
use section::{Environment, Section};
use security::{encrypt, log_in, log_in_to_sentinels};
use servers::{Kind, servers};

use super::{LockClient, LockClientBuilder};
use crate::{
    config::{Config, ShardedPubSub},
    error::Error,
    sync::lock,
};

/// The most lists of settings that are logged.
const MOST_LOGGED: usize = 100;

/// A configuration of Redisson, read from its YAML (or JSON). Needs the feature `redisson-yaml`.
///
/// | | |
/// | --- | --- |
/// | servers | `singleServerConfig`, `sentinelServersConfig`, `clusterServersConfig`, `replicatedServersConfig`, and of `masterSlaveServersConfig` the master |
/// | logins | `username`, `password`, of the file or the section; of sentinels `sentinelUsername`, `sentinelPassword`; `database` |
/// | TLS, by addresses with `rediss://` | `sslTruststore` and `sslKeystore`, as `file:` URLs of PEM files; the second with certificate and key; `sslVerificationMode`, or the older `sslEnableEndpointIdentification` |
/// | connections | `protocol` |
/// | times | `timeout`, `connectTimeout` (cut to the maximum of [`LockClientBuilder::connect_timeout`]), in milliseconds or with a unit |
/// | locks | `lockWatchdogTimeout`, `lockWatchdogBatchSize`, `fairLockWaitTimeout`, `slavesSyncTimeout` (cut to `timeout`), `checkLockSyncedSlaves`, `shardedSubscriptionMode`, `lazyInitialization` |
/// | names | a `nameMapper` of any class whose one setting is `prefix`; `clientName` |
/// | addresses of sentinels and clusters | a `natMapper` of the class `HostPortNatMapper` or `HostNatMapper`, or a `natMap` |
///
/// A configuration file of Spring Boot with such a block, `spring.redis.redisson.config: |`, is read too, with Spring's
/// `${name:default}`. Numbers, booleans, anchors and merged maps are those of YAML 1.1, as in Redisson: `3_000`, `0x10`, `yes`,
/// `<<: *base`. An address may have a path, which Redisson ignores: `database` is the database.
///
/// In values, `${NAME}` and `${NAME:-default}` stand for environment variables. [`ignored`](Self::ignored) lists the
/// settings without a meaning here, and [`unknown`](Self::unknown) those that Redisson does not know. A setting that this client cannot apply is an error that names it. So is a setting in the wrong
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
    unknown: Vec<String>,
}

impl LockClient {
    /// Connects by the settings of Redisson's YAML, the text of its file: see [`RedissonConfig`]. Logs the names of the
    /// [ignored](RedissonConfig::ignored) and the [unknown](RedissonConfig::unknown) settings.
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

    /// The names of Redisson's settings without a meaning here, such as the sizes of pools, in the order of the file.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The names of the settings that Redisson 4.7.0 refuses, and with them the file: typing errors, and settings of another version or
    /// of another section. Those of another version may be [ignored](Self::ignored) too, or have their effect here.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Returns a builder with these settings, for further settings.
    pub fn into_builder(self) -> LockClientBuilder {
        self.builder
    }

    /// The builder of a file, after a log line about its settings without effect.
    pub(crate) fn logged_builder(text: impl AsRef<str>) -> Result<LockClientBuilder, Error> {
        let Self {
            builder,
            ignored,
            unknown,
            ..
        } = Self::from_yaml(text)?;
        let settings = ignored.join(", ");
        if !ignored.is_empty() && is_news(&settings) {
            tracing::info!(
                settings,
                "settings of the Redisson file have no effect here"
            );
        }
        // A setting of an older version is no mistake in a file for that version.
        let mistakes = unknown.into_iter().filter(|path| !is_known(path));
        let settings = mistakes.collect::<Vec<_>>().join(", ");
        if !settings.is_empty() && is_news(&settings) {
            tracing::warn!(
                settings,
                "Redisson does not know these settings of its file"
            );
        }
        Ok(builder)
    }

    fn read(text: &str, environment: Environment<'_>) -> Result<Self, Error> {
        let tree = spring::settings(text, environment)?;
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
        builder = log_in(builder, kind, both)?;
        builder = log_in_to_sentinels(builder, kind, &section)?;
        if let Some(wait) = section.time("connectTimeout")? {
            if wait.is_zero() {
                return Err(section.error("connectTimeout", "the value must not be 0"));
            }
            builder = builder.connect_timeout(wait);
        }
        if let Some(protocol) = file.text("protocol")? {
            let protocol = protocol.trim().parse();
            builder = builder.protocol(protocol.map_err(|error| file.error("protocol", error))?);
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
        let unread = file.unread().chain(section.unread());
        let mut ignored: Vec<_> = unread.filter(|path| is_known(path)).collect();
        ignored.extend(kind.ignored_path(&section)?);
        let refused = |section: &Section<'_>, place| {
            let refused = section
                .names()
                .filter(move |name| !is_accepted(place, name));
            refused
                .map(|name| section.path_of(name))
                .collect::<Vec<_>>()
        };
        let unknown = [refused(&file, None), refused(&section, Some(kind))].concat();
        Ok(Self {
            builder,
            config,
            ignored,
            unknown,
        })
    }
}

/// Whether no client of this process has logged these `settings`: the clients of one file would repeat them.
fn is_news(settings: &str) -> bool {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut logged = lock(&LOGGED);
    logged.len() < MOST_LOGGED && logged.insert(settings.to_owned())
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

/// Java classes that change requests: they cannot run here.
fn refuse_other_classes(section: &Section<'_>) -> Result<(), Error> {
    for (key, harmless) in [
        ("credentialsResolver", "DefaultCredentialsResolver"),
        ("commandMapper", "DefaultCommandMapper"),
    ] {
        if let Some(class) = section.class(key)?.filter(|class| *class != harmless) {
            let instead = match key {
                "credentialsResolver" => {
                    ": leave it out of this client's file, and set `LockClientBuilder::credentials_provider`"
                }
                _ => "",
            };
            return Err(section.error(
                key,
                format!("{class} is a Java class, which this client cannot run{instead}"),
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
            .field("unknown", &self.unknown)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod form_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
