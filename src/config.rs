//! Every knob, its default and Redisson's name for it.

use std::time::Duration;

#[cfg(feature = "serde")]
use serde::Deserialize;
use uuid::Uuid;

use crate::{durability::Durability, error::Error, lease::Lease};

/// The settings of a [`LockClient`](crate::LockClient).
///
/// All have Redisson's defaults where Redisson has the setting. With the feature `serde`, which is on by default, a configuration can be read from
/// JSON, YAML or TOML under Redisson's own names, in milliseconds or with a unit (`"30s"`); fields that neither Redisson's locks nor this crate know are refused by
/// name.
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
    /// The lease of a hold for which none was asked. It is renewed every third of it for as long as the hold lasts.
    /// Default: 30 s. At least 10 ms, at most 100 years.
    ///
    /// Redisson: `lockWatchdogTimeout`. Services that share locks need not agree on it.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "lockWatchdogTimeout", deserialize_with = "reading::millis")
    )]
    pub watchdog_lease: Duration,

    /// What this client is called at the server: `CLIENT LIST` shows its connections as this name, `/` and the
    /// [id](crate::LockClient::id) of the client, which is in every owner; `rlock show` names holders by it. Default: empty, for the
    /// program's name, `-` and its process id. Printable ASCII without spaces, at most 128 characters. Servers and users that
    /// refuse `CLIENT SETNAME` show none.
    ///
    /// Redisson: `clientName`.
    pub client_name: String,

    /// The most holds renewed in one call. Default: 100. From 1 to 10,000.
    ///
    /// Redisson: `lockWatchdogBatchSize`.
    #[cfg_attr(feature = "serde", serde(rename = "lockWatchdogBatchSize"))]
    pub watchdog_batch_size: usize,

    /// How long Java's waiters for fair locks keep their places in the queue when nothing is heard of them. Default: 300 s.
    /// Set it to what Java has: by it, a waiter of ours that stands behind one of theirs allows for what theirs takes off
    /// everybody's time when it leaves. It is *not* how long ours keep theirs, which is three times
    /// [`poll_floor`](Self::poll_floor).
    ///
    /// Redisson: `fairLockWaitTimeout`.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "fairLockWaitTimeout", deserialize_with = "reading::millis")
    )]
    pub fair_lock_wait: Duration,

    /// How many replicas are to have an acquisition before it counts. Default: [`Durability::Auto`], as Redisson. A lock can
    /// have its own: [`Lock::with_durability`](crate::Lock::with_durability).
    pub durability: Durability,

    /// How long an acquisition waits for replicas. Default: 1 s. At least 1 ms, at most [`command_wait`](Self::command_wait).
    ///
    /// Redisson: `slavesSyncTimeout`.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "slavesSyncTimeout", deserialize_with = "reading::millis")
    )]
    pub replica_wait: Duration,

    /// Whether an acquisition that fewer replicas acknowledged than were wanted is given back, and fails with
    /// [`Error::Replication`](crate::Error::Replication). Default: true. Otherwise it is kept, and its guard says how many
    /// there were ([`Guard::acknowledgements`](crate::Guard::acknowledgements)).
    ///
    /// Redisson: `checkLockSyncedSlaves`.
    #[cfg_attr(feature = "serde", serde(rename = "checkLockSyncedSlaves"))]
    pub check_replicas: bool,

    /// Whether the master and the replicas that acknowledge are to have it on their disks (`WAITAOF`). Default: false. It takes
    /// Redis 7.2 or Valkey, and append-only files; where the server refuses, the log says so once, and replicas are waited
    /// for without their disks.
    ///
    /// Redisson: none.
    pub wait_for_disk: bool,

    /// How the messages that wake waiters travel on a cluster; elsewhere it has no effect. Default: [`ShardedPubSub::Auto`].
    ///
    /// Redisson: `shardedSubscriptionMode`, of 3.22.0 and later. All services that share locks must use the same: a client that
    /// listens in another way receives no message, and only asks now and then ([`poll_floor`](Self::poll_floor)).
    #[cfg_attr(feature = "serde", serde(rename = "shardedSubscriptionMode"))]
    pub sharded_pubsub: ShardedPubSub,

    /// Put in front of every lock's name. Default: empty.
    ///
    /// Redisson: a `NameMapper` that adds a prefix; both sides must use the same.
    pub name_prefix: String,

    /// How often one waiter per lock asks the server even if it hears nothing: the bound on a wait whose wake-up was
    /// lost. Default: 5 s. At least 100 ms.
    ///
    /// Every waiter for a fair lock asks as often, to keep its place: it loses it when it is not heard of for three times
    /// this long and its turn comes. Services that share fair locks should agree on it: each judges by its own value whether
    /// another's waiter is dead.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "reading::millis"))]
    pub poll_floor: Duration,

    /// Whether a client that has released a lock leaves it to the clients that wait for it now and then, before its next
    /// `lock` or `try_lock_for`. Default: true.
    ///
    /// Without it a client that takes, releases and takes a lock again keeps all other clients out, as its way back to the lock is
    /// shorter than theirs. The price: where other clients wait, this client pauses between two turns, for as long as a
    /// waiter takes to come, and at most for a fifth of the time where no waiter comes. Where no other client waits, nothing
    /// changes. `false` is for programs that want throughput alone. `try_lock` never pauses.
    /// [docs/guarantees.md](https://docs.rs/crate/redisson-lock/latest/source/docs/guarantees.md) says what a waiter is
    /// promised.
    ///
    /// Redisson: none.
    pub yield_to_others: bool,

    /// How long a lock may pass from task to task of this client in memory, without the server's hearing of it, before it is
    /// released there. Default: 2 ms. Zero switches it off: each task's hold is then the server's.
    ///
    /// It concerns locks that several tasks of a client want at a time, with the watchdog's lease and without a token: it makes
    /// their turns ten to a hundred times as fast. Readers of one client share a hold for as long. The price: another client waits for so much longer, and a forced unlock
    /// elsewhere is noticed so much later, at most; and during such a row the server shows the owner that took the lock
    /// from it.
    ///
    /// Redisson: none.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "reading::millis"))]
    pub local_hand_off: Duration,

    /// How long a task may wait for what another owner of the same client has held all the time until the log says so
    /// (WARN, once for each such hold). Default: 10 s. `None` says nothing.
    ///
    /// The holder may be waiting for that very task: what it has spawned (`tokio::spawn`, `JoinSet`, `spawn_blocking`) is
    /// another owner, unless it runs by [`Owner::spawn`](crate::Owner::spawn) or [`Owner::scope`](crate::Owner::scope).
    ///
    /// Redisson: none.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "reading::optional_millis")
    )]
    pub deadlock_warning: Option<Duration>,

    /// How long a task may wait for a lock until the log says so, and which owner holds the lock (WARN, event `lock.waiting`), and again
    /// whenever the wait has become twice as long. Default: `None`, which says nothing. At least 10 ms.
    ///
    /// Each line asks the server for the holders: at most 10 at a time and 60 a minute, and of each lock only about the task
    /// that has waited for longest.
    ///
    /// Redisson: none.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "reading::optional_millis")
    )]
    pub slow_wait: Option<Duration>,

    /// How long an operation that does not wait for a holder (`try_lock`, `unlock`, queries) waits for an answer.
    /// Default: 3 s.
    ///
    /// Redisson: `timeout`.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "timeout", deserialize_with = "reading::millis")
    )]
    pub command_wait: Duration,

    /// How long `lock` goes on while Redis cannot be reached. Default: 60 s.
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
    /// Within a shard (`SPUBLISH`) where the servers can, which those of Redis 7.0 and Valkey do; otherwise to all nodes.
    #[default]
    Auto,
    /// Within a shard.
    On,
    /// To all nodes (`PUBLISH`): for a fleet with services that know nothing else, such as Redisson before 3.22.0.
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
            poll_floor: Duration::from_secs(5),
            yield_to_others: true,
            local_hand_off: Duration::from_millis(2),
            deadlock_warning: Some(Duration::from_secs(10)),
            slow_wait: None,
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

    /// With this [`poll_floor`](Self::poll_floor).
    #[must_use = "it is another configuration"]
    pub fn with_poll_floor(mut self, poll_floor: Duration) -> Self {
        self.poll_floor = poll_floor;
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

/// The longest name of a client.
const MOST_CLIENT_NAME: usize = 128;

impl Config {
    /// How long an entry of this client in a fair queue lasts without a word from its waiter, which refreshes it at every poll floor
    /// and may miss two.
    pub(crate) fn fair_entry_lasts(&self) -> Duration {
        self.poll_floor * 3
    }

    /// What the connections of the client `id` are called.
    pub(crate) fn connection_name(&self, id: Uuid) -> String {
        if !self.client_name.is_empty() {
            return format!("{}/{id}", self.client_name);
        }
        let program = std::env::args_os().next().map(std::path::PathBuf::from);
        let name = program.as_deref().and_then(std::path::Path::file_name);
        let name = name.unwrap_or_default().to_string_lossy();
        // What no name may contain.
        let shown = |letter: char| {
            if letter.is_ascii_graphic() {
                letter
            } else {
                '_'
            }
        };
        let name: String = name.chars().map(shown).take(MOST_CLIENT_NAME).collect();
        format!("{name}-{}/{id}", std::process::id())
    }

    /// The watchdog's lease, or what is wrong with these settings. What is longer than any clock can count is as long as
    /// one can.
    pub(crate) fn check(&mut self) -> Result<Lease, Error> {
        for wait in [
            &mut self.poll_floor,
            &mut self.fair_lock_wait,
            &mut self.command_wait,
            &mut self.outage_wait,
            &mut self.local_hand_off,
        ] {
            *wait = (*wait).min(Lease::MAX);
        }
        let least = |name: &str, value: Duration, least: Duration| {
            if value < least {
                return Err(Error::config(format!(
                    "{name} is {value:?}: {least:?} is the least"
                )));
            }
            Ok(())
        };
        least("poll_floor", self.poll_floor, Duration::from_millis(100))?;
        least("command_wait", self.command_wait, Duration::from_millis(1))?;
        least("replica_wait", self.replica_wait, Duration::from_millis(1))?;
        // A renewal that waits for replicas is waited for by the release of its hold.
        self.replica_wait = self.replica_wait.min(self.command_wait);
        for (name, warning) in [
            ("deadlock_warning", &mut self.deadlock_warning),
            ("slow_wait", &mut self.slow_wait),
        ] {
            if let Some(warning) = warning {
                *warning = (*warning).min(Lease::MAX);
                least(name, *warning, Duration::from_millis(10))?;
            }
        }
        least("outage_wait", self.outage_wait, Duration::from_millis(1))?;
        let is_shown = self.client_name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_shown || self.client_name.len() > MOST_CLIENT_NAME {
            return Err(Error::config(format!(
                "client_name is {:?}: give at most {MOST_CLIENT_NAME} printable ASCII characters without spaces",
                self.client_name
            )));
        }
        if !(1..=10_000).contains(&self.watchdog_batch_size) {
            return Err(Error::config(format!(
                "watchdog_batch_size is {}: it must be from 1 to 10000",
                self.watchdog_batch_size
            )));
        }
        Lease::new(self.watchdog_lease)
            .map_err(|reason| Error::config(format!("watchdog_lease: {reason}")))
    }
}

/// A time with its unit: `30s`, `1500 ms`, `5m`. A plain number is in milliseconds.
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

    /// A time as Redisson has it, in milliseconds, or with a unit.
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected milliseconds, as 30000, or a time with its unit, as \"30s\" (ms, s, m, h)"
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
                        "{text:?} is no time: write 30000, in milliseconds, or \"30s\" (ms, s, m, h)"
                    ))
                }),
            }
        }
    }

    pub(super) fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Time::deserialize(deserializer)?.duration()
    }

    pub(super) fn optional_millis<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let time = Option::<Time>::deserialize(deserializer)?;
        time.map(Time::duration).transpose()
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
            poll_floor: ms(5),
            yield_to_others: false,
            local_hand_off: ms(6),
            deadlock_warning: None,
            slow_wait: Some(ms(7)),
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
            .with_poll_floor(ms(5))
            .with_yield_to_others(false)
            .with_local_hand_off(ms(6))
            .with_deadlock_warning(None)
            .with_slow_wait(ms(7))
            .with_command_wait(ms(8))
            .with_outage_wait(ms(9));
        assert_eq!(set, expected);
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
            |config| config.poll_floor = Duration::from_millis(99),
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
