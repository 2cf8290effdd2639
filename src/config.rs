//! Every setting, its default and Redisson's name for it.

use std::time::Duration;

#[cfg(feature = "serde")]
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    durability::Durability,
    error::Error,
    lease::{self, Lease},
};

/// The settings of a [`LockClient`](crate::LockClient).
///
/// A setting that Redisson has too has Redisson's default, but for `clientName`. With the feature `serde`, which is on by default, serde reads a
/// configuration from JSON, YAML or TOML under Redisson's names; a setting without such a name has its Rust name in camelCase
/// (`maxPollInterval`). Times are in milliseconds or have a unit (`"30s"`). An unknown field is an error that names it.
///
/// | field | in a file | default |
/// | --- | --- | --- |
/// | [`watchdog_lease`](Self::watchdog_lease) | `lockWatchdogTimeout` | 30 s |
/// | [`client_name`](Self::client_name) | `clientName` | program, process id and host |
/// | [`watchdog_batch_size`](Self::watchdog_batch_size) | `lockWatchdogBatchSize` | 100 |
/// | [`fair_lock_wait`](Self::fair_lock_wait) | `fairLockWaitTimeout` | 300 s |
/// | [`durability`](Self::durability) | `durability` | `auto` |
/// | [`replica_wait`](Self::replica_wait) | `slavesSyncTimeout` | 1 s |
/// | [`check_replicas`](Self::check_replicas) | `checkLockSyncedSlaves` | true |
/// | [`wait_for_disk`](Self::wait_for_disk) | `waitForDisk` | false |
/// | [`sharded_pubsub`](Self::sharded_pubsub) | `shardedSubscriptionMode` | `AUTO` |
/// | [`name_prefix`](Self::name_prefix) | `namePrefix` | none |
/// | [`max_poll_interval`](Self::max_poll_interval) | `maxPollInterval` | 5 s |
/// | [`yield_to_others`](Self::yield_to_others) | `yieldToOthers` | true |
/// | [`local_hand_off`](Self::local_hand_off) | `localHandOff` | 2 ms |
/// | [`deadlock_warning`](Self::deadlock_warning) | `deadlockWarning` | 10 s |
/// | [`slow_wait`](Self::slow_wait) | `slowWait` | none |
/// | [`slow_hold`](Self::slow_hold) | `slowHold` | none |
/// | [`lock_name_label`](Self::lock_name_label) | `lockNameLabel` | false |
/// | [`command_wait`](Self::command_wait) | `timeout` | 3 s |
/// | [`outage_wait`](Self::outage_wait) | `outageWait` | 60 s |
///
/// ```
/// # #[cfg(feature = "serde")] {
/// use redisson_lock::Config;
///
/// let config: Config = serde_json::from_str(r#"{ "lockWatchdogTimeout": 20000 }"#)?;
/// assert_eq!(config.watchdog_lease.as_secs(), 20);
/// # }
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// In code, start from the default:
///
/// ```
/// use std::time::Duration;
/// use redisson_lock::Config;
///
/// let config = Config::default()
///     .with_watchdog_lease(Duration::from_secs(20))
///     .with_name_prefix("billing:");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(default, deny_unknown_fields, rename_all = "camelCase")
)]
#[non_exhaustive]
pub struct Config {
    /// The lease of a hold without a fixed lease, and of an expirable permit without one. The watchdog renews it every third of that time for
    /// as long as the hold lasts. Default: 30 s. At least 10 ms, at most 100 years.
    ///
    /// Redisson: `lockWatchdogTimeout`. Services that share locks may use different values.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "lockWatchdogTimeout", deserialize_with = "reading::millis")
    )]
    pub watchdog_lease: Duration,

    /// The name of this client at the server. `CLIENT LIST` shows its connections as this name, `/` and the
    /// [id](crate::LockClient::id) of the client; `rlock show` and [`Holder::client_name`](crate::Holder::client_name) name holders by
    /// it. Default: empty, which means the program's name, `-`, its process id, `@` and the name of the host, as in `orders-7@web-1`.
    /// The host's name is that of the kernel (Linux), or of the variable `HOSTNAME`; without both it is left out. Printable ASCII without spaces, at most 128 characters. A server or user that refuses
    /// `CLIENT SETNAME` shows no name.
    ///
    /// Redisson: `clientName`.
    pub client_name: String,

    /// The largest number of locks that one call renews. Default: 100. From 1 to 10,000.
    ///
    /// Redisson: `lockWatchdogBatchSize`.
    #[cfg_attr(feature = "serde", serde(rename = "lockWatchdogBatchSize"))]
    pub watchdog_batch_size: usize,

    /// How long a Java waiter for a fair lock keeps its place in the queue. Default: 300 s. Set it to the value of the Java
    /// services: a leaving Java waiter shortens every place behind it by that time, so a waiter of this crate behind it asks for
    /// a place that is longer by that time. A waiter of this crate keeps its own place for three times
    /// [`max_poll_interval`](Self::max_poll_interval), whatever this setting is.
    ///
    /// Redisson: `fairLockWaitTimeout`.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "fairLockWaitTimeout", deserialize_with = "reading::millis")
    )]
    pub fair_lock_wait: Duration,

    /// How many replicas must acknowledge an acquisition. Default: [`Durability::Auto`], as in Redisson.
    /// [`Lock::with_durability`](crate::Lock::with_durability) sets it for one lock. Semaphores and latches never wait for replicas.
    pub durability: Durability,

    /// How long an acquisition waits for replicas. Default: 1 s. At least 1 ms. A longer time than
    /// [`command_wait`](Self::command_wait) is cut to it.
    ///
    /// Redisson: `slavesSyncTimeout`.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "slavesSyncTimeout", deserialize_with = "reading::millis")
    )]
    pub replica_wait: Duration,

    /// Whether too few acknowledgements end an acquisition. Default: true: the client releases the hold and returns
    /// [`Error::Replication`](crate::Error::Replication). With `false` the hold stays, and its guard has the number
    /// ([`Guard::acknowledgements`](crate::Guard::acknowledgements)); no renewal waits for replicas then.
    ///
    /// Redisson: `checkLockSyncedSlaves`.
    #[cfg_attr(feature = "serde", serde(rename = "checkLockSyncedSlaves"))]
    pub check_replicas: bool,

    /// Whether an acknowledgement requires the disk (`WAITAOF`), at the master and at the replicas. Default: false. Needs Redis 7.2
    /// or Valkey, and append-only files. If the server refuses, the log says so (three times a minute at most), and the
    /// client waits for replicas without their disks.
    /// It has no effect where no replica is required, as on a single server: use `appendfsync always` there.
    ///
    /// Redisson: none.
    pub wait_for_disk: bool,

    /// How the messages that wake waiters travel on a cluster; elsewhere it has no effect. Default: [`ShardedPubSub::Auto`].
    ///
    /// Redisson: `shardedSubscriptionMode`, of 3.22.0 and later. All services that share locks must use the same value: a client
    /// with another one receives no message, and asks every [`max_poll_interval`](Self::max_poll_interval).
    #[cfg_attr(feature = "serde", serde(rename = "shardedSubscriptionMode"))]
    pub sharded_pubsub: ShardedPubSub,

    /// A prefix of every key on the server. Default: empty. An empty name is invalid with a prefix too.
    ///
    /// The API says names as the caller gives them: handles, guards, errors, reports, log lines, spans. `key()` of a handle or guard,
    /// `rlock` and `redis-cli` show the name with its prefix.
    ///
    /// Redisson: a `NameMapper` that adds a prefix; both sides must use the same.
    pub name_prefix: String,

    /// How often one waiter per lock asks the server without a message: the longest delay after a lost wake-up. Default: 5 s.
    /// At least 100 ms.
    ///
    /// Every waiter for a fair lock asks as often, to keep its place. It loses its place if it is silent for three times as long
    /// and is the head of the queue. Services that share fair locks should use one value: each client judges by its own value
    /// whether another client's waiter is dead.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "pollFloor", deserialize_with = "reading::millis")
    )]
    pub max_poll_interval: Duration,

    /// Whether a client yields a released lock to other waiting clients, before its next `lock` or `try_lock_for`. Default: true.
    ///
    /// Without yields, a client that acquires one lock again and again excludes all other clients, because its way back to the lock
    /// is the shortest. The price: beside waiting clients, this client pauses between two turns for as long as a waiter needs to
    /// acquire the lock, and for at most a fifth of the time if no waiter does. Without another listening client there is no yield.
    /// `false` is for programs that need throughput alone. It also switches off the intents of waiting writers: overlapping readers
    /// can then exclude a writer for ever. `try_lock` never pauses. A client with waiting tasks leaves a gap of 2 ms
    /// after 100 ms of consecutive turns, whatever this setting.
    /// [docs/guarantees.md](https://docs.rs/crate/redisson-lock/latest/source/docs/guarantees.md) lists the promises to a waiter.
    ///
    /// Redisson: none.
    pub yield_to_others: bool,

    /// The hand-off window: for how long after the arrival of the server's grant this client may hand off a lock between its tasks
    /// in memory. Default: 2 ms. Zero switches it off: then the server grants each task's hold.
    ///
    /// Applies to reentrant, non-reentrant, spin and simple locks with the watchdog's lease, while several tasks of a client wait for
    /// one. Makes their turns ten to a hundred times as fast. Readers of one client share a hold within the window, and a semaphore's
    /// permits pass to its next task. The price: another client waits for this time longer at most. A task that hands the lock off after a forced unlock does not learn of it. Within the
    /// window the server shows the owner to which it granted the lock.
    ///
    /// Redisson: none.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "reading::millis"))]
    pub local_hand_off: Duration,

    /// After how long a wait for another owner of the same client is logged (WARN, once for each hold of that owner, once a minute
    /// in all). Default: 10 s. `None` logs nothing; a configuration that serde reads may say `0` for it. At least 10 ms.
    ///
    /// The holder may itself wait for the waiting task: a spawned task (`tokio::spawn`, `JoinSet`, `spawn_blocking`) is a new owner,
    /// unless it runs by [`Owner::spawn`](crate::Owner::spawn) or [`Owner::scope`](crate::Owner::scope).
    ///
    /// Permits have no owner. The log names a semaphore when a task waits for its permits while guards of the same client have some, once
    /// for each guard. Where only a release can end the wait and none is heard of, as after a crash, it names the semaphore once. It cannot
    /// tell which task will count a latch down.
    ///
    /// Redisson: none.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "reading::optional_millis")
    )]
    pub deadlock_warning: Option<Duration>,

    /// After how long a wait for a lock is logged with the holders of the lock (WARN, event `lock.waiting`), and again whenever the
    /// wait has become twice as long. Default: `None`, which logs nothing; a configuration that serde reads may say `0` for it. At
    /// least 10 ms.
    ///
    /// A wait at a semaphore is logged with the number of permits (`semaphore.waiting`), one at a latch with its count
    /// (`latch.waiting`). Each line asks the server: at most 10 at a time and 60 a minute. For each lock, semaphore or latch the log names
    /// the wait that has lasted for longest.
    ///
    /// Redisson: none.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "reading::optional_millis")
    )]
    pub slow_wait: Option<Duration>,

    /// After how long a hold of this client is logged (WARN, event `lock.held`), once for each tenure. Default: `None`, which logs
    /// nothing; a configuration that serde reads may say `0` for it. At least 10 ms.
    ///
    /// A line comes up to 5 s after its time, and up to 60 lines a minute. The term of a leader ([`Election`](crate::Election)) is a
    /// hold too. Permits of semaphores are none.
    ///
    /// Redisson: none.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "reading::optional_millis")
    )]
    pub slow_hold: Option<Duration>,

    /// Whether the gauges of the oldest hold and the oldest wait have the lock's name as a label (feature `metrics`). Default: false,
    /// because each name is a series of its own, and exporters seldom remove one. Set it where names are few.
    ///
    /// Redisson: none.
    pub lock_name_label: bool,

    /// How long an operation that does not wait for a holder (`try_lock`, `unlock`, queries) waits for its reply.
    /// Default: 3 s. At least 1 ms.
    ///
    /// Redisson: `timeout`.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "timeout", deserialize_with = "reading::millis")
    )]
    pub command_wait: Duration,

    /// How long `lock`, or a `try_lock_for` with a longer wait, waits for a server that cannot be reached; so do the waits for permits
    /// and latches. Default: 60 s. At least 1 ms.
    ///
    /// Redisson: none; it repeats a command `retryAttempts` times.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "reading::millis"))]
    pub outage_wait: Duration,
}

/// How messages travel on a cluster: [`Config::sharded_pubsub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(Deserialize),
    serde(rename_all = "UPPERCASE")
)]
// Exhaustive: Redisson's three modes are all that a connection can have.
pub enum ShardedPubSub {
    /// Within a shard (`SPUBLISH`) if the servers support it (Redis 7.0 and later, Valkey); else to all nodes.
    #[default]
    Auto,
    /// Within a shard.
    On,
    /// To all nodes (`PUBLISH`): for services that support nothing else, such as Redisson before 3.22.0.
    Off,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            watchdog_lease: Duration::from_secs(30),
            client_name: String::new(),
            watchdog_batch_size: 100,
            fair_lock_wait: Duration::from_secs(300),
            durability: Durability::default(),
            replica_wait: Duration::from_secs(1),
            check_replicas: true,
            wait_for_disk: false,
            sharded_pubsub: ShardedPubSub::default(),
            name_prefix: String::new(),
            max_poll_interval: Duration::from_secs(5),
            yield_to_others: true,
            local_hand_off: Duration::from_millis(2),
            deadlock_warning: Some(Duration::from_secs(10)),
            slow_wait: None,
            slow_hold: None,
            lock_name_label: false,
            command_wait: Duration::from_secs(3),
            outage_wait: Duration::from_secs(60),
        }
    }
}

impl Config {
    /// With this [`watchdog_lease`](Self::watchdog_lease).
    #[must_use = "it is another configuration"]
    pub fn with_watchdog_lease(mut self, watchdog_lease: Duration) -> Self {
        self.watchdog_lease = watchdog_lease;
        self
    }

    /// With this [`client_name`](Self::client_name).
    #[must_use = "it is another configuration"]
    pub fn with_client_name(mut self, client_name: impl Into<String>) -> Self {
        self.client_name = client_name.into();
        self
    }

    /// With this [`watchdog_batch_size`](Self::watchdog_batch_size).
    #[must_use = "it is another configuration"]
    pub fn with_watchdog_batch_size(mut self, watchdog_batch_size: usize) -> Self {
        self.watchdog_batch_size = watchdog_batch_size;
        self
    }

    /// With this [`fair_lock_wait`](Self::fair_lock_wait).
    #[must_use = "it is another configuration"]
    pub fn with_fair_lock_wait(mut self, fair_lock_wait: Duration) -> Self {
        self.fair_lock_wait = fair_lock_wait;
        self
    }

    /// With this [`durability`](Self::durability).
    #[must_use = "it is another configuration"]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// With this [`replica_wait`](Self::replica_wait).
    #[must_use = "it is another configuration"]
    pub fn with_replica_wait(mut self, replica_wait: Duration) -> Self {
        self.replica_wait = replica_wait;
        self
    }

    /// With this [`check_replicas`](Self::check_replicas).
    #[must_use = "it is another configuration"]
    pub fn with_check_replicas(mut self, check_replicas: bool) -> Self {
        self.check_replicas = check_replicas;
        self
    }

    /// With this [`wait_for_disk`](Self::wait_for_disk).
    #[must_use = "it is another configuration"]
    pub fn with_wait_for_disk(mut self, wait_for_disk: bool) -> Self {
        self.wait_for_disk = wait_for_disk;
        self
    }

    /// With this [`sharded_pubsub`](Self::sharded_pubsub).
    #[must_use = "it is another configuration"]
    pub fn with_sharded_pubsub(mut self, sharded_pubsub: ShardedPubSub) -> Self {
        self.sharded_pubsub = sharded_pubsub;
        self
    }

    /// With this [`name_prefix`](Self::name_prefix).
    #[must_use = "it is another configuration"]
    pub fn with_name_prefix(mut self, name_prefix: impl Into<String>) -> Self {
        self.name_prefix = name_prefix.into();
        self
    }

    /// With this [`max_poll_interval`](Self::max_poll_interval).
    #[must_use = "it is another configuration"]
    pub fn with_max_poll_interval(mut self, max_poll_interval: Duration) -> Self {
        self.max_poll_interval = max_poll_interval;
        self
    }

    /// With this [`yield_to_others`](Self::yield_to_others).
    #[must_use = "it is another configuration"]
    pub fn with_yield_to_others(mut self, yield_to_others: bool) -> Self {
        self.yield_to_others = yield_to_others;
        self
    }

    /// With this [`local_hand_off`](Self::local_hand_off).
    #[must_use = "it is another configuration"]
    pub fn with_local_hand_off(mut self, local_hand_off: Duration) -> Self {
        self.local_hand_off = local_hand_off;
        self
    }

    /// With this [`deadlock_warning`](Self::deadlock_warning).
    #[must_use = "it is another configuration"]
    pub fn with_deadlock_warning(mut self, deadlock_warning: impl Into<Option<Duration>>) -> Self {
        self.deadlock_warning = deadlock_warning.into();
        self
    }

    /// With this [`slow_wait`](Self::slow_wait).
    #[must_use = "it is another configuration"]
    pub fn with_slow_wait(mut self, slow_wait: impl Into<Option<Duration>>) -> Self {
        self.slow_wait = slow_wait.into();
        self
    }

    /// With this [`slow_hold`](Self::slow_hold).
    #[must_use = "it is another configuration"]
    pub fn with_slow_hold(mut self, slow_hold: impl Into<Option<Duration>>) -> Self {
        self.slow_hold = slow_hold.into();
        self
    }

    /// With this [`lock_name_label`](Self::lock_name_label).
    #[must_use = "it is another configuration"]
    pub fn with_lock_name_label(mut self, lock_name_label: bool) -> Self {
        self.lock_name_label = lock_name_label;
        self
    }

    /// With this [`command_wait`](Self::command_wait).
    #[must_use = "it is another configuration"]
    pub fn with_command_wait(mut self, command_wait: Duration) -> Self {
        self.command_wait = command_wait;
        self
    }

    /// With this [`outage_wait`](Self::outage_wait).
    #[must_use = "it is another configuration"]
    pub fn with_outage_wait(mut self, outage_wait: Duration) -> Self {
        self.outage_wait = outage_wait;
        self
    }
}

/// The name of a client without a configured one.
fn default_client_name(program: &str, process: u32, host: Option<&str>) -> String {
    let shown = |text: &str, most: usize| -> String {
        // `CLIENT SETNAME` refuses spaces, control characters and everything beyond ASCII.
        let shown = |letter: char| match letter.is_ascii_graphic() {
            true => letter,
            false => '_',
        };
        text.trim().chars().map(shown).take(most).collect()
    };
    let name = format!("{}-{process}", shown(program, MOST_PROGRAM_NAME));
    match host.map(|host| shown(host, MOST_HOST_NAME)) {
        Some(host) if !host.is_empty() => format!("{name}@{host}"),
        _ => name,
    }
}

/// The name of this machine, or of its container.
fn host_name() -> Option<String> {
    let of_kernel = || std::fs::read("/proc/sys/kernel/hostname").ok();
    let variable = match cfg!(windows) {
        true => "COMPUTERNAME",
        false => "HOSTNAME",
    };
    let of_variable = || Some(std::env::var_os(variable)?.into_encoded_bytes());
    let name = of_kernel().or_else(of_variable)?;
    Some(String::from_utf8_lossy(&name).into_owned())
}

/// The most characters of the parts of a default name.
const MOST_PROGRAM_NAME: usize = 48;
const MOST_HOST_NAME: usize = 64;
/// The most characters of a client's name.
const MOST_CLIENT_NAME: usize = 128;

impl Config {
    /// How long an entry of this client in a fair queue lasts without a word from its waiter, which refreshes it at every poll
    /// interval and may miss two.
    pub(crate) fn fair_entry_lasts(&self) -> Duration {
        self.max_poll_interval * 3
    }

    /// The name of the connections of the client `id`.
    pub(crate) fn connection_name(&self, id: Uuid) -> String {
        format!("{}/{id}", self.shown_client_name())
    }

    /// The name of this client at the server.
    pub(crate) fn shown_client_name(&self) -> String {
        if !self.client_name.is_empty() {
            return self.client_name.clone();
        }
        let program = std::env::args_os().next().map(std::path::PathBuf::from);
        let program = program.as_deref().and_then(std::path::Path::file_name);
        let program = program.unwrap_or_default().to_string_lossy();
        default_client_name(&program, std::process::id(), host_name().as_deref())
    }

    /// Checks the settings. Returns the watchdog's lease. Cuts a wait to [`Lease::MAX`]: clocks cannot count more.
    pub(crate) fn check(&mut self) -> Result<Lease, Error> {
        self.check_as(&str::to_owned)
    }

    /// As [`check`](Self::check), with errors that call each setting as `named` does. No error shows a text of the settings.
    pub(crate) fn check_as(&mut self, named: &dyn Fn(&str) -> String) -> Result<Lease, Error> {
        let refused =
            |name: &str, reason: String| Error::config(format!("{}: {reason}", named(name)));
        for wait in [
            &mut self.max_poll_interval,
            &mut self.fair_lock_wait,
            &mut self.command_wait,
            &mut self.outage_wait,
            &mut self.local_hand_off,
        ] {
            *wait = (*wait).min(Lease::MAX);
        }
        let least = |name: &str, value: Duration, least: Duration| {
            if value < least {
                let reason = format!(
                    "{} is too short: the minimum is {least:?}",
                    lease::shown(value)
                );
                return Err(refused(name, reason));
            }
            Ok(())
        };
        least(
            "max_poll_interval",
            self.max_poll_interval,
            Duration::from_millis(100),
        )?;
        least("command_wait", self.command_wait, Duration::from_millis(1))?;
        least("replica_wait", self.replica_wait, Duration::from_millis(1))?;
        // A release waits for a renewal of its hold, and the renewal waits for replicas.
        self.replica_wait = self.replica_wait.min(self.command_wait);
        for (name, warning) in [
            ("deadlock_warning", &mut self.deadlock_warning),
            ("slow_wait", &mut self.slow_wait),
            ("slow_hold", &mut self.slow_hold),
        ] {
            if let Some(warning) = warning {
                *warning = (*warning).min(Lease::MAX);
                least(name, *warning, Duration::from_millis(10))?;
            }
        }
        least("outage_wait", self.outage_wait, Duration::from_millis(1))?;
        let is_shown = self.client_name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_shown || self.client_name.len() > MOST_CLIENT_NAME {
            let reason = format!(
                "give at most {MOST_CLIENT_NAME} printable ASCII characters without spaces"
            );
            return Err(refused("client_name", reason));
        }
        if !(1..=10_000).contains(&self.watchdog_batch_size) {
            let reason = format!(
                "{} is out of bounds: give a number from 1 to 10000",
                self.watchdog_batch_size
            );
            return Err(refused("watchdog_batch_size", reason));
        }
        Lease::new(self.watchdog_lease).map_err(|reason| refused("watchdog_lease", reason))
    }
}

/// Reads a time with a unit: `30s`, `1500 ms`, `5m`. A plain number is in milliseconds.
#[cfg(any(feature = "serde", feature = "redisson-yaml"))]
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let millis = match unit.trim_start() {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    number.checked_mul(millis).map(Duration::from_millis)
}

#[cfg(feature = "serde")]
mod reading {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer};

    /// A time in milliseconds, as in Redisson, or with a unit.
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected 30000, in milliseconds, or a time with its unit, as in \"30s\" (ms, s, m, h)"
    )]
    enum Time {
        Millis(u64),
        Text(String),
    }

    impl Time {
        fn duration<E: serde::de::Error>(self) -> Result<Duration, E> {
            match self {
                Time::Millis(millis) => Ok(Duration::from_millis(millis)),
                Time::Text(text) => super::duration(&text).ok_or_else(|| {
                    E::custom(format!(
                        "{text:?} is not a time: write 30000, in milliseconds, or \"30s\" (ms, s, m, h)"
                    ))
                }),
            }
        }
    }

    pub(super) fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Time::deserialize(deserializer)?.duration()
    }

    /// As [`millis`]. Zero is `None`: TOML and environment variables have no null.
    pub(super) fn optional_millis<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let time = Option::<Time>::deserialize(deserializer)?;
        let time = time.map(Time::duration).transpose()?;
        Ok(time.filter(|time| !time.is_zero()))
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::config::{Config, duration};

        #[test]
        fn redissons_own_names_and_units() {
            let config: Config = serde_json::from_str(
                r#"{"lockWatchdogTimeout": 30000, "fairLockWaitTimeout": 300000, "lockWatchdogBatchSize": 100,
                    "slavesSyncTimeout": 1000, "checkLockSyncedSlaves": true, "shardedSubscriptionMode": "AUTO"}"#,
            )
            .unwrap();
            assert_eq!(config, Config::default());
            assert_eq!(
                serde_json::from_str::<Config>("{}").unwrap(),
                Config::default()
            );
        }

        #[test]
        fn table_names_each_setting_as_a_file_does() {
            let rows = include_str!("config.rs").lines().filter_map(|line| {
                let (field, rest) = line.strip_prefix("/// | [`")?.split_once("`](Self::")?;
                let name = rest.split('`').nth(1)?;
                Some((field, name))
            });
            let rows: Vec<_> = rows.collect();
            let unknown = serde_json::from_str::<Config>(r#"{"no": 1}"#).unwrap_err();
            let known = unknown.to_string();
            let known = known.matches('`').count() / 2 - 1;
            // The former name of one setting is known too.
            assert_eq!(rows.len() + 1, known);
            for (field, name) in rows {
                assert!(
                    unknown.to_string().contains(&format!("`{name}`")),
                    "{field}"
                );
            }
        }

        #[test]
        fn former_name_of_the_poll_interval_is_read() {
            for name in ["maxPollInterval", "pollFloor"] {
                let config: Config =
                    serde_json::from_str(&format!(r#"{{"{name}": "2s"}}"#)).unwrap();
                assert_eq!(config.max_poll_interval, Duration::from_secs(2), "{name}");
            }
        }

        #[test]
        fn times_may_have_units() {
            for (text, millis) in [
                ("30s", 30_000),
                ("1500 ms", 1_500),
                (" 2m", 120_000),
                ("1h", 3_600_000),
                ("250", 250),
            ] {
                let text =
                    format!(r#"{{"lockWatchdogTimeout": "{text}", "deadlockWarning": "{text}"}}"#);
                let config: Config = serde_json::from_str(&text).unwrap();
                assert_eq!(
                    config.watchdog_lease,
                    Duration::from_millis(millis),
                    "{text}"
                );
                assert_eq!(config.deadlock_warning, Some(config.watchdog_lease));
            }
            assert_eq!(duration("99999999999999999999s"), None);
            assert_eq!(duration("18446744073709551615h"), None);
            let told = serde_json::from_str::<Config>(r#"{"timeout": true}"#).unwrap_err();
            assert!(told.to_string().contains("30000"), "{told}");
        }

        #[test]
        fn a_warning_can_be_later_or_left_out() {
            let read = |text| {
                serde_json::from_str::<Config>(text)
                    .unwrap()
                    .deadlock_warning
            };
            assert_eq!(
                read(r#"{"deadlockWarning": 2500}"#),
                Some(Duration::from_millis(2_500))
            );
            assert_eq!(read(r#"{"deadlockWarning": null}"#), None);
        }

        #[test]
        fn zero_switches_a_warning_off() {
            for zero in ["0", r#""0""#, r#""0s""#] {
                let text = format!(
                    r#"{{"deadlockWarning": {zero}, "slowWait": {zero}, "slowHold": {zero}}}"#
                );
                let mut config: Config = serde_json::from_str(&text).unwrap();
                assert_eq!((config.deadlock_warning, config.slow_wait), (None, None));
                assert_eq!(config.slow_hold, None);
                assert!(config.check().is_ok());
            }
        }

        #[test]
        fn unknown_fields_are_refused_by_name() {
            let error =
                serde_json::from_str::<Config>(r#"{"lockWatchdogTimout": 30000}"#).unwrap_err();
            assert!(error.to_string().contains("lockWatchdogTimout"), "{error}");
            for bad in [
                r#"{"lockWatchdogTimeout": -1}"#,
                r#"{"lockWatchdogTimeout": "30 parsecs"}"#,
                r#"{"lockWatchdogTimeout": "s"}"#,
                r#"{"lockWatchdogTimeout": "-1s"}"#,
                r#"{"lockWatchdogTimeout": 1.5}"#,
                r#"{"checkLockSyncedSlaves": 1}"#,
            ] {
                assert!(serde_json::from_str::<Config>(bad).is_err(), "{bad}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_setter() {
        let ms = Duration::from_millis;
        // Without `..`, so that a new setting is missed here.
        let expected = Config {
            watchdog_lease: ms(1),
            client_name: "a".into(),
            watchdog_batch_size: 2,
            fair_lock_wait: ms(3),
            durability: Durability::All,
            replica_wait: ms(4),
            check_replicas: false,
            wait_for_disk: true,
            sharded_pubsub: ShardedPubSub::Off,
            name_prefix: "b".into(),
            max_poll_interval: ms(5),
            yield_to_others: false,
            local_hand_off: ms(6),
            deadlock_warning: None,
            slow_wait: Some(ms(7)),
            slow_hold: Some(ms(10)),
            lock_name_label: true,
            command_wait: ms(8),
            outage_wait: ms(9),
        };
        let set = Config::default()
            .with_watchdog_lease(ms(1))
            .with_client_name("a")
            .with_watchdog_batch_size(2)
            .with_fair_lock_wait(ms(3))
            .with_durability(Durability::All)
            .with_replica_wait(ms(4))
            .with_check_replicas(false)
            .with_wait_for_disk(true)
            .with_sharded_pubsub(ShardedPubSub::Off)
            .with_name_prefix("b")
            .with_max_poll_interval(ms(5))
            .with_yield_to_others(false)
            .with_local_hand_off(ms(6))
            .with_deadlock_warning(None)
            .with_slow_wait(ms(7))
            .with_slow_hold(ms(10))
            .with_lock_name_label(true)
            .with_command_wait(ms(8))
            .with_outage_wait(ms(9));
        assert_eq!(set, expected);
    }

    #[test]
    fn a_default_name_has_the_host_and_only_letters_that_servers_accept() {
        let name = default_client_name;
        assert_eq!(name("orders", 7, Some("web-1\n")), "orders-7@web-1");
        assert_eq!(name("orders", 7, None), "orders-7");
        assert_eq!(name("orders", 7, Some(" \n")), "orders-7");
        let pod = "api.v2_x:8080/a";
        assert_eq!(name("my app", 7, Some(pod)), format!("my_app-7@{pod}"));
        assert_eq!(name("g\u{fc}te", 7, Some("b\tc\u{0}d")), "g_te-7@b_c_d");
        let (program, host) = ("p".repeat(500), "\u{1f512}".repeat(500));
        let mut long = Config::default().with_client_name(name(&program, u32::MAX, Some(&host)));
        assert!(long.check().is_ok(), "{}", long.client_name);
        let shown = Config::default().shown_client_name();
        let host = host_name().expect("this machine has a name");
        assert!(shown.ends_with(&format!("@{}", host.trim())), "{shown}");
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert!(Config::default().check().is_ok());
        let mut endless = Config {
            outage_wait: Duration::MAX,
            ..Config::default()
        };
        assert!(endless.check().is_ok());
        let broken: [fn(&mut Config); 5] = [
            |config| config.watchdog_lease = Duration::ZERO,
            |config| config.watchdog_lease = Duration::MAX,
            |config| config.watchdog_batch_size = 0,
            |config| config.watchdog_batch_size = 10_001,
            |config| config.max_poll_interval = Duration::from_millis(99),
        ];
        for breaking in broken {
            let mut config = Config::default();
            breaking(&mut config);
            assert!(
                matches!(config.check(), Err(Error::Config { .. })),
                "{config:?}"
            );
        }
    }
}
